/* How families describe where a launch reads and writes. */
#ifndef GEN_EXTENTS_H
#define GEN_EXTENTS_H

#include "family/overlap.h"

/* A stride in bytes; one beyond all numbers is beyond all memory. */
static inline int64_t gen__stride_bytes(int64_t stride, int64_t element)
{
    int64_t bytes;
    return __builtin_mul_overflow(stride, element, &bytes) ? INT64_MAX : bytes;
}

/* Repeats it; of a negative stride the first is the last in memory. What reaches beyond all memory
 * overlaps everything. */
static inline void gen__extent_repeat(struct gen__extent *e, int64_t count, int64_t stride)
{
    int64_t reach;
    if (!e->end || e->width == GEN__EXTENT_MOST)
        return;
    if (count <= 0) {
        e->begin = UINTPTR_MAX;
        e->end = 0;
        return;
    }
    if (__builtin_expect(__builtin_mul_overflow(count - 1, stride, &reach) ||
                             reach >= GEN__EXTENT_MOST || reach <= -GEN__EXTENT_MOST,
                         0)) {
        e->begin = 0;
        e->end = UINTPTR_MAX;
        e->rank = 0;
        e->width = GEN__EXTENT_MOST;
        return;
    }
    e->begin += reach < 0 ? (uintptr_t)reach : 0;
    e->end += reach > 0 ? (uintptr_t)reach : 0;
    e->count[e->rank] = count;
    e->stride[e->rank++] = stride;
}

static inline void gen__reads(struct gen__extent *e, const char *name, const void *at,
                              int64_t width)
{
    gen__extent(e, false, name, at, width);
}

static inline void gen__writes(struct gen__extent *e, const char *name, const void *at,
                               int64_t width)
{
    gen__extent(e, true, name, at, width);
}

/* Tokens, say; a stride of 0 is the packed one. */
static inline void gen__reads_rows(struct gen__extent *e, const char *name, const void *at,
                                   int64_t width, int64_t count, int64_t stride)
{
    gen__extent(e, false, name, at, width);
    gen__extent_repeat(e, count, stride ? stride : width);
}

static inline void gen__writes_rows(struct gen__extent *e, const char *name, const void *at,
                                    int64_t width, int64_t count, int64_t stride)
{
    gen__extent(e, true, name, at, width);
    gen__extent_repeat(e, count, stride ? stride : width);
}

#endif /* GEN_EXTENTS_H */
