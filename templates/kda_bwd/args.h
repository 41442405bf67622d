/* What the kernels of kda_bwd take; runtime/families/kda_bwd/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_ARGS_H
#define GEN_KDA_BWD_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

/* What a launch of the kernel does; the other launches of a plan are stages' kernels. */
enum {
    KDA_BWD_PREPARE, /* the stages' form of inputs: beta activated, fp32; rows packed */
    KDA_BWD_VALUES,  /* v_new = u - w h, of states that the caller has kept */
    KDA_BWD_NO_TOKENS /* sums are zeros, and d_initial_state is d_final_state */
};

/* Rows that are packed: of `heads` heads each. */
struct gen_kda_bwd_rows {
    const void *from;
    void *to;              /* NULL: they are packed already */
    long long from_stride; /* elements */
};

struct gen_kda_bwd_params {
    struct gen_kda_stage_shape shape;
    struct gen_kda_bwd_rows q, k, v, d_o; /* KDA_BWD_PREPARE */
    const void *beta;
    float *beta_out; /* [tokens, num_v_heads] */
    long long beta_stride;
    const void *w, *u, *h; /* KDA_BWD_VALUES */
    void *v_new;
    const float *d_final_state; /* KDA_BWD_NO_TOKENS */
    float *d_initial_state, *d_A_log, *d_dt_bias;
    long long state_count; /* elements of all states */
    int num_chunks, state_vk, beta_fp32, beta_activation, task, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_params) == sizeof(struct gen_kda_stage_shape) + 216, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_params) == sizeof(struct gen_kda_stage_shape) + 216, "same on both sides");
#endif

#endif /* GEN_KDA_BWD_ARGS_H */
