/* What the kernels of kda_bwd take; runtime/families/kda_bwd/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_ARGS_H
#define GEN_KDA_BWD_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

/* What a launch of the kernel does; the other launches of a plan are stages' kernels. */
enum {
    KDA_BWD_PREPARE,  /* what the forward pass has inside a chunk, of raw inputs */
    KDA_BWD_VALUES,   /* v_new = u - w h, of states that the caller has kept */
    KDA_BWD_NO_TOKENS, /* sums are zeros, and d_initial_state is d_final_state */
    KDA_BWD_SUMS       /* sums over tokens, of what kda_bwd_grad left of each chunk */
};

/* Rows of `heads` heads each, and where they go: q and k as the forward pass has them, normalized
 * or not, v and d_o packed. */
struct gen_kda_bwd_rows {
    const void *from;
    void *to;              /* NULL: nowhere */
    long long from_stride; /* elements */
};

struct gen_kda_bwd_params {
    struct gen_kda_stage_shape shape;
    struct gen_kda_bwd_rows q, k, v, d_o; /* KDA_BWD_PREPARE */
    const void *g, *beta;
    const float *A_log, *dt_bias;
    float *gk;       /* [tokens, num_v_heads, head_dim] */
    float *beta_out; /* activated, [tokens, num_v_heads]; NULL: not wanted */
    void *a_qk;      /* [tokens, num_v_heads, 64]; NULL: not wanted */
    void *d_v;       /* A_qk' d_o, [tokens, num_v_heads, head_dim]; NULL: not wanted */
    void *a_kk, *kg, *qg;
    void *w, *u; /* which KDA_BWD_VALUES reads */
    long long g_stride, beta_stride;
    const void *h; /* KDA_BWD_VALUES */
    void *v_new;
    const float *d_final_state; /* KDA_BWD_NO_TOKENS */
    float *d_initial_state, *d_A_log, *d_dt_bias; /* and KDA_BWD_SUMS */
    const float *partials; /* KDA_BWD_SUMS: [slots, num_v_heads, head_dim + 4] */
    long long state_count; /* elements of all states */
    float scale, lower_bound;
    int num_chunks, state_vk, gate, gate_fp32, beta_fp32, beta_activation, l2_norm, task;
    int num_slots, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_params) == sizeof(struct gen_kda_stage_shape) + 328, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_params) == sizeof(struct gen_kda_stage_shape) + 328, "same on both sides");
#endif

#endif /* GEN_KDA_BWD_ARGS_H */
