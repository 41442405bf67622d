/*
 * How partial results of multi-head latent attention lie in memory: what mla_decode writes, and
 * mla_merge reads. Kernels include it, and it is installed as mla.h: it includes nothing and uses
 * plain C types.
 */
#ifndef GEN_MLA_H
#define GEN_MLA_H

/* A row of a partial result beside its 512 columns, which are in fp16. Columns
 * 64 c to 64 c + 63 are in units of the fp32 number that has byte c % 4 of
 * exponents[c / 4] for an exponent and nothing else: 2^(byte - 127), 0 for 0. So
 * a partial result has the range of fp32 and 11 bits, which are more than those of
 * a bf16 output and no fewer than those of an fp16 one. */
struct gen_mla_partial_row {
    float lse; /* base 2; -infinity: the piece is empty, and nothing else is looked at */
    int reserved;
    int exponents[2];
};

/* Which slots hold a request: what mla_merge reads. */
struct gen_mla_record {
    int request;    /* -1: nothing to merge */
    int first_slot; /* slot of piece 0; of piece i: chunk ? first_slot + i : first_slot + 2 i - 1 */
    int num_pieces; /* 1 or less: nothing to merge. A piece may be empty: lse = -infinity */
    int reserved;   /* 0 */
};

#endif /* GEN_MLA_H */
