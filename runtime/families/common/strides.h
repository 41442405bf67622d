/* Strides of arguments: which are allowed, and the packed ones. */
#ifndef GEN_FAMILIES_STRIDES_H
#define GEN_FAMILIES_STRIDES_H

#include "families/common/arguments.h"

#include <inttypes.h>

/* `count` steps of a stride stay below 2^59 elements, so that the sum of two such
 * offsets is below 2^62 bytes. */
#define GEN__STRIDE_MOST (INT64_C(1) << 59)
static inline bool gen__stride_within(int64_t stride, int64_t count)
{
    int64_t reach;
    return !__builtin_mul_overflow(stride, count > 0 ? count : 1, &reach) &&
           reach <= GEN__STRIDE_MOST && reach >= -GEN__STRIDE_MOST;
}

/* The greatest such stride. */
static inline int64_t gen__stride_most(int64_t count)
{
    return GEN__STRIDE_MOST / (count > 0 ? count : 1);
}

/* The packed stride of what holds `count` steps of another one. It wraps where that one is beyond
 * gen__stride_most(), which a check refuses. */
static inline int64_t gen__stride_outer(int64_t count, int64_t stride)
{
    return (int64_t)((uint64_t)count * (uint64_t)stride);
}

/* 0, or a multiple of `unit` elements (a power of two) that holds `width` of them, `count` times.
 * Every launch checks some ten of these, so nothing is divided unless one is refused. */
static inline enum gen_status gen__check_stride(const char *family, const char *name,
                                                int64_t stride, int64_t unit, int64_t width,
                                                int64_t count)
{
    if (stride == 0 ||
        (stride >= width && !(stride & (unit - 1)) && gen__stride_within(stride, count)))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of %" PRId64
                     " from %" PRId64 " to %" PRId64,
                     family, name, stride, unit, width, gen__stride_most(count));
}

/* Any, as long as no offset overflows. */
static inline enum gen_status gen__check_free_stride(const char *family, const char *name,
                                                     int64_t stride, int64_t count)
{
    if (gen__stride_within(stride, count))
        return GEN_OK;
    const int64_t most = gen__stride_most(count);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or -%" PRId64
                     " to %" PRId64,
                     family, name, stride, most, most);
}

#endif /* GEN_FAMILIES_STRIDES_H */
