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
 * each of `rank` dimensions around them. families/common/extents.h fills it. */
struct gen__extent {
    uintptr_t begin, end; /* all of it; end is 0 where there is none */
    const char *name;
    bool written;
    uint8_t rank;
    const void *may_be; /* written: the tensor that it may be, place for place; or NULL */
    const void *at;
    int64_t width, count[GEN__EXTENT_RANK], stride[GEN__EXTENT_RANK];
};

/* Contiguous bytes. Every launch writes extents, so what is not asked of one is left as it was. */
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

/* Errors: INVALID_ARGUMENT, naming two that overlap, one of them written. */
enum gen_status gen__check_apart(const char *family, const struct gen__extent *extents,
                                 uint32_t count);

#endif /* GEN_OVERLAP_H */
