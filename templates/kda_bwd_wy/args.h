/* What the kernels of kda_bwd_wy take; runtime/families/kda_bwd_wy/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_WY_ARGS_H
#define GEN_KDA_BWD_WY_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_bwd_wy_params {
    struct gen_kda_stage_shape shape;
    const void *q, *k, *v, *v_new;
    const float *gk;
    const void *beta, *a_kk, *h, *d_o, *d_h, *d_v_new;
    float *d_q, *d_k;
    void *d_v;
    float *d_beta, *d_g, *d_a_kk;
    float scale;
    int num_chunks, state_vk, beta_fp32;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_wy_params) == sizeof(struct gen_kda_stage_shape) + 152, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_wy_params) == sizeof(struct gen_kda_stage_shape) + 152, "same on both sides");
#endif

#endif /* GEN_KDA_BWD_WY_ARGS_H */
