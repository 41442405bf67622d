/* What the kernels of mla_sparse take; runtime/families/mla_sparse/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_MLA_SPARSE_ARGS_H
#define GEN_MLA_SPARSE_ARGS_H

#include "mla_decode/args.h"

/* A row in 656 bytes: the latent in e4m3, a scale in fp32 for every 128 of its columns, the rotary
 * part in bf16. */
#define MLA_SPARSE_SCALES_AT 512
#define MLA_SPARSE_ROPE_AT 528
#define MLA_SPARSE_ROW_BYTES 656
#define MLA_SPARSE_GROUP 128 /* columns of a scale */

struct gen_mla_sparse_params {
    /* As mla_decode has it where every query token is a request of one token: schedule.batch is the
     * tokens, schedule.max_kv_len the most entries of a list, num_heads the packed rows. The
     * cache is ckv, with its strides (of 656-byte rows in bytes), kpe lies behind the latents, and
     * page_mul, page_shift and page_size take an entry apart. kv_len and the page table are not
     * used, and there are no tensor maps. */
    struct gen_mla_decode_params decode;
    const int *indices;     /* entries: rows of the cache */
    const int *topk_length; /* of a list, or null: all of max_kv_len */
    const float *sink;      /* a head's score that has no value, or null */
    long long indices_batch_stride, indices_token_stride;
    unsigned tokens_mul, tokens_shift; /* token / q_len, as in la_decode/args.h */
    unsigned length_mul, length_shift; /* token / q_len where requests have lengths, else token */
    unsigned num_rows;                 /* of the cache: entries from it on do not count */
    int q_len;                         /* of a request */
    int blocks;                        /* of MLA_BLOCK entries of a list, at least 1 */
};

#endif /* GEN_MLA_SPARSE_ARGS_H */
