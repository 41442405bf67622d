/* What the kernels of kda_bwd_intra take; runtime/families/kda_bwd_intra/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_INTRA_ARGS_H
#define GEN_KDA_BWD_INTRA_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_bwd_intra_params {
    struct gen_kda_stage_shape shape;
    const void *q, *k;
    const float *gk;
    const void *beta;
    const float *d_a_qk, *d_a_kk, *d_q_states, *d_k_states, *d_beta_states, *d_g_states;
    float *d_q, *d_k, *d_beta, *d_g;
    int beta_fp32, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_intra_params) == sizeof(struct gen_kda_stage_shape) + 120, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_intra_params) == sizeof(struct gen_kda_stage_shape) + 120, "same on both sides");
#endif

#endif /* GEN_KDA_BWD_INTRA_ARGS_H */
