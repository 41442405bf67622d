/* What the kernels of kda_recompute_wu take; runtime/families/kda_recompute_wu/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_RECOMPUTE_WU_ARGS_H
#define GEN_KDA_RECOMPUTE_WU_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_recompute_wu_params {
    struct gen_kda_stage_shape shape;
    const void *q, *k, *v;
    const float *gk;
    const void *beta, *a_kk;
    void *w, *u, *kg, *qg;
    long long q_stride, k_stride, v_stride, beta_stride; /* elements */
    int beta_fp32, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_recompute_wu_params) == 176, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_recompute_wu_params) == 176, "same on both sides");
#endif

#endif /* GEN_KDA_RECOMPUTE_WU_ARGS_H */
