/* What the kernels of kda_bwd_dhu take; runtime/families/kda_bwd_dhu/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_DHU_ARGS_H
#define GEN_KDA_BWD_DHU_ARGS_H

#include "kda_chunk_h/args.h" /* whose kernel this one's is like */

struct gen_kda_bwd_dhu_params {
    /* As the forward kernel has them: u is d_v, h is d_h, v_new is d_v_new, the initial state is
     * d_final_state, and the final one is d_initial_state. */
    struct gen_kda_chunk_h_params states;
    const void *qg, *d_o;
    float scale;
    int beside; /* the launch before makes nothing of what is read here, and began when what does had ended: it
                   is waited for at the end */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_dhu_params) == sizeof(struct gen_kda_chunk_h_params) + 24,
              "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_dhu_params) == sizeof(struct gen_kda_chunk_h_params) + 24,
               "same on both sides");
#endif

#endif /* GEN_KDA_BWD_DHU_ARGS_H */
