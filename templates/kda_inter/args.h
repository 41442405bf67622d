/* What the kernels of kda_inter take; runtime/families/kda_inter/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_INTER_ARGS_H
#define GEN_KDA_INTER_ARGS_H

#include "kda_intra/args.h"

/* Of kda_inter, kda_scan and kda_prefill's launch behind them. */
struct gen_kda_inter_params {
    const void *w, *u, *qg, *kg, *a_qk;
    const float *decay, *initial_state;
    float *final_state;
    void *o;
    long long o_stride; /* elements */
    struct gen_kda_sequences sequences;
    int num_v_heads, state_vk;
    float *added; /* kda_scan/args.h */
    void *transition;
    float *segment_decay;
    int segment_chunks; /* 0: sequences are not cut into segments */
    int num_states;     /* chunks that `states` holds, whatever cu_seqlens says */
    void *states;
};

/* Of a kernel whose states are in pools: what the others take, and the pools with their strides
 * spelled out and null_slot as it is, -1 where there is none. */
struct gen_kda_pool_params {
    struct gen_kda_pools at;
    int narrow, fp16; /* 16 bits; and which */
};

struct gen_kda_inter_pool_params {
    struct gen_kda_inter_params inter;
    struct gen_kda_pool_params pools;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_pool_params) == 112, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_pool_params) == 112, "same on both sides");
#endif

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_inter_params) == 160, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_inter_params) == 160, "same on both sides");
#endif

#endif /* GEN_KDA_INTER_ARGS_H */
