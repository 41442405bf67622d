/* What the kernels of kda_chunk_intra take; runtime/families/kda_chunk_intra/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_CHUNK_INTRA_ARGS_H
#define GEN_KDA_CHUNK_INTRA_ARGS_H

#include "kda_intra/args.h" /* where sequences and their chunks lie */

/* What the stages' kernels know of the problem. Quotients are by multiplication, as in
 * la_decode/args.h. */
struct gen_kda_stage_shape {
    struct gen_kda_sequences sequences;
    int num_qk_heads, num_v_heads;
    unsigned heads_mul, heads_shift; /* / blocks of a chunk: block -> slot */
    unsigned group_mul, group_shift; /* / group: value head -> query head */
};

struct gen_kda_chunk_intra_params {
    struct gen_kda_stage_shape shape;
    const void *q, *k, *v;
    const float *gk;
    const void *beta;
    void *a_qk, *a_kk, *w, *u, *kg, *qg;
    long long q_stride, k_stride, v_stride, beta_stride; /* elements */
    float scale;
    int beta_fp32;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_chunk_intra_params) == 184, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_chunk_intra_params) == 184, "same on both sides");
#endif

#endif /* GEN_KDA_CHUNK_INTRA_ARGS_H */
