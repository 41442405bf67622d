/* What the kernels of kda_gate_bwd take; runtime/families/kda_gate_bwd/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_GATE_BWD_ARGS_H
#define GEN_KDA_GATE_BWD_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_gate_bwd_params {
    struct gen_kda_stage_shape shape;
    const void *g;
    const float *A_log, *dt_bias, *d_gk;
    void *d_g;
    float *d_A_log, *d_dt_bias;
    unsigned long long *tickets; /* a head's, 16 bytes apart */
    float *sums;                 /* [num_slots, num_v_heads, head_dim + 4]: d_dt_bias, d_A_log; NULL: not wanted */
    long long g_stride, d_g_stride; /* elements */
    float lower_bound;
    int gate, gate_fp32, suffix_sum, num_slots, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_gate_bwd_params) == sizeof(struct gen_kda_stage_shape) + 112, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_gate_bwd_params) == sizeof(struct gen_kda_stage_shape) + 112, "same on both sides");
#endif

#endif /* GEN_KDA_GATE_BWD_ARGS_H */
