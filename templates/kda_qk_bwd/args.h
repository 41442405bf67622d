/* What the kernels of kda_qk_bwd take; runtime/families/kda_qk_bwd/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_QK_BWD_ARGS_H
#define GEN_KDA_QK_BWD_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

/* Of q or of k. */
struct gen_kda_qk_bwd_rows {
    const void *x; /* raw, or normalized with rstd; NULL: there is no norm */
    const float *rstd, *d_heads;
    void *d_x; /* NULL: not wanted */
    long long stride, d_stride; /* elements */
};

struct gen_kda_qk_bwd_params {
    struct gen_kda_stage_shape shape;
    struct gen_kda_qk_bwd_rows q, k;
    const void *beta;
    const float *d_beta_heads;
    void *d_beta;
    long long beta_stride, d_beta_stride;
    int beta_form, beta_fp32, group, pad; /* group: value heads of a query head */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_qk_bwd_params) == sizeof(struct gen_kda_stage_shape) + 152, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_qk_bwd_params) == sizeof(struct gen_kda_stage_shape) + 152, "same on both sides");
#endif

#endif /* GEN_KDA_QK_BWD_ARGS_H */
