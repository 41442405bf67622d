/* What the kernels of index32 take; runtime/families/index32/api.h has the operator. The host (C11)
 * and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_INDEX32_ARGS_H
#define GEN_INDEX32_ARGS_H

#define GEN_INDEX32_LISTS 2

struct gen_index32_params {
    const long long *from[GEN_INDEX32_LISTS]; /* null: no such list */
    int *to[GEN_INDEX32_LISTS];
    long long count; /* entries of each list */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_index32_params) == 40, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_index32_params) == 40, "same on both sides");
#endif

#endif /* GEN_INDEX32_ARGS_H */
