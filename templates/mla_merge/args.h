/* What the kernels of mla_merge take; runtime/families/mla_merge/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_MLA_MERGE_ARGS_H
#define GEN_MLA_MERGE_ARGS_H

#include "mla_decode/args.h"

struct gen_mla_merge_params {
    const unsigned short *partial;
    const struct gen_mla_partial_row *partial_rows;
    const struct gen_mla_record *records;
    const int *q_indptr;
    void *o;
    float *lse;                                                                 /* or null */
    long long o_token_stride, o_head_stride, lse_token_stride, lse_head_stride; /* elements */
    int num_heads, q_len, chunked, lse_base_2;
    unsigned heads_mul, heads_shift; /* row / num_heads */
    float out_scale;
    int num_slots;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_mla_merge_params) == 112, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_mla_merge_params) == 112, "same on both sides");
#endif

#endif /* GEN_MLA_MERGE_ARGS_H */
