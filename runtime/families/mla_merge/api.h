/*
 * MLA merge: the partial results of requests that were cut into pieces, added
 * up. What mla_decode launches behind its main kernel; an operator of its own
 * for the tuner and the tests.
 *
 * For each record with num_pieces = n > 1 and each row of its request, over the
 * pieces i of n, with o_i (fp16, in units of gen_mla_partial_row) and the base-2
 * lse_i of the piece's slot:
 *
 *     L = max lse_i,  w_i = 2^(lse_i - L),  d = sum of w_i
 *     o = sum of w_i o_i / d,  lse = L + log2 d       (in base 2)
 *
 * and o = 0, lse = -infinity where L is. Records with n <= 1 are left alone.
 */
#ifndef GEN_MLA_MERGE_H
#define GEN_MLA_MERGE_H

#include "gen.h"
#include "mla/public.h"

enum gen_mla_merge_tag { GEN_MLA_MERGE = 0x4d4c414d /* "MLAM" */ };

typedef struct gen_mla_merge_problem {
    gen_problem base;    /* size, GEN_MLA_MERGE, flags */
    int32_t num_records; /* 0 is legal and launches nothing */
    int32_t num_heads;   /* 1 to 128 */
    int32_t q_len;       /* query tokens of a request: 1 to 1024 */
    int32_t num_pieces;  /* of a request, the mean: what selection goes by */
    int32_t dtype;       /* of o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
} gen_mla_merge_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned. */
typedef struct gen_mla_merge_args {
    gen_args base;                                  /* size, GEN_MLA_MERGE */
    const void *partial;                            /* fp16 [num_slots, q_len * num_heads, 512] */
    const struct gen_mla_partial_row *partial_rows; /* [num_slots, q_len * num_heads] */
    const struct gen_mla_record *records;           /* [num_records] */
    const int32_t *q_indptr;                        /* as in mla_decode, or NULL */
    void *o;                                        /* [tokens, num_heads, 512] */
    float *lse;                                     /* [tokens, num_heads]; may be NULL */
    int64_t o_token_stride, o_head_stride;          /* elements, multiples of 8; 0: packed */
    int64_t lse_token_stride, lse_head_stride;      /* any; 0: packed */
    int32_t num_slots;
    int32_t chunked;    /* 1: slots of a request are neighbours; 0: see gen_mla_record */
    int32_t lse_base_2; /* 1: lse in base 2; 0: natural */
    float out_scale;    /* multiplies o */
} gen_mla_merge_args;

#endif /* GEN_MLA_MERGE_H */
