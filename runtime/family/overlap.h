/*
 * Where a launch reads and writes. A kernel reads while others write, in any order, so what it
 * writes must lie apart from all else, but where a family says that an output may be an input.
 */
#ifndef GEN_OVERLAP_H
#define GEN_OVERLAP_H

#include "core/status.h"

#include <stdbool.h>

#define GEN__MAX_EXTENTS 24
#define GEN__EXTENT_RANK 3
#define GEN__EXTENT_MOST (INT64_C(1) << 56) /* bytes; no memory has more addresses */

/* A tensor in memory: `width` contiguous bytes, count[i] times at a distance of stride[i] bytes for
 * each of `rank` dimensions around them. The functions below write what is asked of it, no more,
 * because every launch does so. */
struct gen__extent {
    uintptr_t begin, end; /* all of it; end is 0 where there is none */
    const char *name;
    bool written;
    uint8_t rank;
    const void *may_be; /* written: the tensor that it may be, place for place; or NULL */
    const void *at;
    int64_t width, count[GEN__EXTENT_RANK], stride[GEN__EXTENT_RANK];
};

/* Contiguous bytes. */
static inline void gen__extent(struct gen__extent *e, bool written, const char *name,
                               const void *at, int64_t width)
{
    const bool some = at && width > 0;
    width = width < GEN__EXTENT_MOST ? width : GEN__EXTENT_MOST;
    e->begin = some ? (uintptr_t)at : UINTPTR_MAX;
    e->end = some ? (uintptr_t)at + (uintptr_t)width : 0;
    e->name = name;
    e->written = written;
    e->rank = 0;
    e->may_be = NULL;
    e->at = at;
    e->width = width;
}

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

/* Errors: INVALID_ARGUMENT, naming two that overlap, one of them written. */
enum gen_status gen__check_apart(const char *family, const struct gen__extent *extents,
                                 uint32_t count);

#endif /* GEN_OVERLAP_H */
