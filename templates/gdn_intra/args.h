/* What the kernels of gdn_intra take; runtime/families/gdn_intra/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_GDN_INTRA_ARGS_H
#define GEN_GDN_INTRA_ARGS_H

#include "kda_intra/args.h"

/* Of a chunk's record of row factors, in floats: k_in, q_out, k_out, a row each, then the decay. */
#define GDN_K_IN 0
#define GDN_Q_OUT 64
#define GDN_K_OUT 128
#define GDN_DECAY 192
#define GDN_FACTORS 196

struct gen_gdn_intra_params {
    const void *q, *k, *g, *beta;
    const float *A_log, *dt_bias;
    void *x, *a_qk;
    float *factors;
    long long q_stride, k_stride, g_stride, beta_stride; /* elements */
    struct gen_kda_sequences sequences;
    int num_v_heads;
    unsigned heads_mul, heads_shift; /* / num_v_heads: block -> slot */
    unsigned group_mul, group_shift; /* / group: value head -> query head */
    float scale, lower_bound;
    int gate_form, gate_fp32, beta_form, beta_fp32, l2_norm;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_gdn_intra_params) == 184, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_gdn_intra_params) == 184, "same on both sides");
#endif

#endif /* GEN_GDN_INTRA_ARGS_H */
