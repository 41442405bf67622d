/* Checks that the host files of the MLA families share. */
#ifndef GEN_FAMILIES_MLA_H
#define GEN_FAMILIES_MLA_H

#include "family/arguments.h"
#include "families/common/fastdiv.h"
#include "families/mla_decode/api.h"
#include "mla_decode/args.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(GEN_MLA_LATENT == MLA_LATENT && GEN_MLA_ROPE == MLA_ROPE, "same on both sides");

/* The most packed rows of a request: q_len * num_heads. */
enum { MLA_MAX_Q_LEN = 1024, MLA_MAX_HEADS = 128 };

/* Not 0 where a number is not 1 to `most`, a power of two. */
static inline uint32_t gen__mla_above(int32_t number, uint32_t most)
{
    return ((uint32_t)number - 1) & ~(most - 1);
}

/* `count` steps of a stride stay below 2^59 elements, so that the sum of two such
 * offsets is below 2^62 bytes. */
#define GEN__MLA_MOST (INT64_C(1) << 59)
static inline bool gen__mla_within(int64_t stride, int64_t count)
{
    int64_t reach;
    return !__builtin_mul_overflow(stride, count > 0 ? count : 1, &reach) &&
           reach <= GEN__MLA_MOST && reach >= -GEN__MLA_MOST;
}

/* The greatest such stride. */
static inline int64_t gen__mla_most(int64_t count)
{
    return GEN__MLA_MOST / (count > 0 ? count : 1);
}

/* The packed stride of what holds `count` steps of another one. It wraps where that one is beyond
 * gen__mla_most(), which a check refuses. */
static inline int64_t gen__mla_outer(int64_t count, int64_t stride)
{
    return (int64_t)((uint64_t)count * (uint64_t)stride);
}

/* 0, or a multiple of `unit` elements (a power of two) that holds `width` of them, `count` times.
 * Every launch checks some ten of these, so nothing is divided unless one is refused. */
static inline enum gen_status gen__mla_check_stride(const char *family, const char *name,
                                                    int64_t stride, int64_t unit, int64_t width,
                                                    int64_t count)
{
    if (stride == 0 ||
        (stride >= width && !(stride & (unit - 1)) && gen__mla_within(stride, count)))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of %" PRId64
                     " from %" PRId64 " to %" PRId64,
                     family, name, stride, unit, width, gen__mla_most(count));
}

/* Any, as long as no offset overflows. */
static inline enum gen_status gen__mla_check_free_stride(const char *family, const char *name,
                                                         int64_t stride, int64_t count)
{
    if (gen__mla_within(stride, count))
        return GEN_OK;
    const int64_t most = gen__mla_most(count);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or -%" PRId64
                     " to %" PRId64,
                     family, name, stride, most, most);
}

#endif /* GEN_FAMILIES_MLA_H */
