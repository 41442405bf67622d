/* What the kernels of gdn_prefill take, in both of their phases; runtime/families/gdn_prefill/api.h has
 * the operator. */
#ifndef GEN_GDN_PREFILL_ARGS_H
#define GEN_GDN_PREFILL_ARGS_H

#include "gdn_intra/args.h"
#include "kda_inter/args.h"

#ifdef __cplusplus
#define GDN_ALIGNED(bytes) alignas(bytes)
#else
#define GDN_ALIGNED(bytes) _Alignas(bytes)
#endif

struct gen_gdn_prefill_params {
    /* Tensor maps for TMA of q, k and v: head_dim, tokens, heads, 1; boxes of 64 x 64. Zero for kernels
     * that do not use it. */
    GDN_ALIGNED(64) unsigned long long q_map[16];
    GDN_ALIGNED(64) unsigned long long k_map[16];
    GDN_ALIGNED(64) unsigned long long v_map[16];
    /* As the recurrence of KDA has it, but w is gdn_intra's x, decay its factors; u, qg, kg are not
     * there. */
    struct gen_kda_inter_params inter;
    const void *q, *k, *v;
    long long q_stride, k_stride, v_stride; /* elements */
    unsigned group_mul, group_shift;        /* / group: value head -> query head */
    int scan;                               /* 1: what segments do to states, as kda_scan; 0: the recurrence */
    int pad;
};

struct gen_gdn_prefill_pool_params {
    struct gen_gdn_prefill_params prefill;
    struct gen_kda_pool_params pools;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_gdn_prefill_params) == 640, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_gdn_prefill_params) == 640, "same on both sides");
#endif

#endif /* GEN_GDN_PREFILL_ARGS_H */
