/* What the kernels of kda_chunk_h take; runtime/families/kda_chunk_h/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_CHUNK_H_ARGS_H
#define GEN_KDA_CHUNK_H_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_chunk_h_params {
    struct gen_kda_stage_shape shape;
    const void *kg, *w, *u;
    const float *gk, *initial_state;
    void *h, *v_new;
    float *final_state;
    int num_chunks, state_vk;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_chunk_h_params) == 128, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_chunk_h_params) == 128, "same on both sides");
#endif

#endif /* GEN_KDA_CHUNK_H_ARGS_H */
