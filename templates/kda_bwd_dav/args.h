/* What the kernels of kda_bwd_dav take; runtime/families/kda_bwd_dav/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_BWD_DAV_ARGS_H
#define GEN_KDA_BWD_DAV_ARGS_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

struct gen_kda_bwd_dav_params {
    struct gen_kda_stage_shape shape;
    const void *v_new, *d_o, *a_qk;
    float *d_a_qk;
    void *d_v;
    long long d_o_stride; /* elements */
    float scale;
    int pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_bwd_dav_params) == 112, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_bwd_dav_params) == 112, "same on both sides");
#endif

#endif /* GEN_KDA_BWD_DAV_ARGS_H */
