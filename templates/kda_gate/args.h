/* What the kernels of kda_gate take; runtime/families/kda_gate/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_GATE_ARGS_H
#define GEN_KDA_GATE_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_gate_params {
    struct gen_kda_stage_shape shape;
    const void *g;
    const float *A_log, *dt_bias;
    const void *q, *k;
    float *gk;
    void *q_norm, *k_norm;
    float *q_rstd, *k_rstd;
    long long g_stride, q_stride, k_stride; /* elements */
    float lower_bound;
    int gate, gate_fp32, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_gate_params) == 176, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_gate_params) == 176, "same on both sides");
#endif

#endif /* GEN_KDA_GATE_ARGS_H */
