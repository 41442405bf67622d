/* What the kernels of kda_chunk_o take; runtime/families/kda_chunk_o/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_CHUNK_O_ARGS_H
#define GEN_KDA_CHUNK_O_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_chunk_o_params {
    struct gen_kda_stage_shape shape;
    const void *q, *v_new;
    const float *gk;
    const void *a_qk, *h;
    void *o;
    long long q_stride, o_stride; /* elements */
    float scale;
    int num_chunks, state_vk, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_chunk_o_params) == 136, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_chunk_o_params) == 136, "same on both sides");
#endif

#endif /* GEN_KDA_CHUNK_O_ARGS_H */
