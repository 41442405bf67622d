/* What the kernels of kda_bwd_grad take; runtime/families/kda_bwd_grad/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_GRAD_ARGS_H
#define GEN_KDA_BWD_GRAD_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

/* Of q or of k. */
struct gen_kda_bwd_grad_rows {
    const void *x;
    void *d_x;         /* NULL: d_heads takes its place */
    float *d_heads;    /* of each value head by itself, before the norm's gradient */
    long long stride;  /* elements */
};

struct gen_kda_bwd_grad_params {
    struct gen_kda_stage_shape shape;
    struct gen_kda_bwd_grad_rows q, k;
    const void *v, *v_new;
    const float *gk;
    const void *g; /* raw */
    const float *A_log, *dt_bias;
    const void *beta, *a_kk, *h, *d_o, *d_h, *d_v_new;
    void *d_v, *d_g, *d_beta;
    float *partials; /* [slots, num_v_heads, head_dim + 4]; NULL: not wanted */
    float *sums;     /* [blocks, 2, 64, head_dim]: where a group's gradients of q and k pass from head to head; NULL: each
                        value head is by itself */
    long long g_stride, beta_stride;
    float scale, lower_bound;
    int unit; /* heads that a block takes in turn: with sums a group's */
    int num_tiles, num_chunks, state_vk, beta_fp32, beta_form, gate, gate_fp32, qk_l2norm, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_grad_params) == sizeof(struct gen_kda_stage_shape) + 264, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_grad_params) == sizeof(struct gen_kda_stage_shape) + 264, "same on both sides");
#endif

#endif /* GEN_KDA_BWD_GRAD_ARGS_H */
