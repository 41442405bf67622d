/*
 * Finding the two nearest of the tuning rows of several coordinates: a grid of
 * cells over the rows' box, in doublings, and for each cell the rows that are
 * among the two nearest of any problem in it: few, or all are looked at. Beyond the box all
 * distances grow alike, so its outermost cells have no end.
 *
 * A grid hangs on the rows' coordinates alone; ranges with the same have one
 * together. It is built when a product is made (prepared.h) or, of rows that are parsed, when a
 * library opens, in bounded time and memory.
 */
#ifndef GEN_GRID_H
#define GEN_GRID_H

#include "core/simd.h"
#include "product/library.h"

#define GEN__GRID_BLOCK 8      /* rows that are looked at together */
#define GEN__GRID_BLOCKS 8     /* of a cell, at most */
#define GEN__GRID_BLOCK_BITS 8 /* of a cell, for their number less one */
#define GEN__MAX_SLOTS 31      /* variants of a range */
#define GEN__GRID_ALL 255u     /* a cell without a list: all rows are */

/* An eighth (linearly) of a doubling of a coordinate: what the coordinate adds to the cell's
 * number, and how much more above the number with these bits. */
struct gen__step {
    uint32_t upto;
    uint16_t add, more;
};

/*
 * Behind it: the blocks of all rows, the cells (where `place` says that the grid is), the blocks of
 * their lists, the steps of every coordinate. A cell is where its list begins, in vectors, above
 * GEN__GRID_BLOCK_BITS of the number of its blocks less one. A block is
 *
 *     int32_t logs[num_coords][GEN__GRID_BLOCK]  as gen__lanes_log2() has them; far off: no row
 *     uint16_t rows[GEN__GRID_BLOCK]             ascending, as blocks are
 */
struct gen__grid {
    _Alignas(GEN__LINE) struct gen__grid *next;
    struct gen__place place; /* as in the ranges */
    uint32_t num_coords;
    const struct gen__row *rows; /* of the first range that has it */
    uint32_t num_rows;
    uint32_t num_cells;
    uint32_t bytes; /* that it takes */
};

/* Logarithms and rows: whole vectors. */
static inline size_t gen__block_size(uint32_t num_coords)
{
    return GEN__GRID_BLOCK * (num_coords * sizeof(int32_t) + sizeof(uint16_t));
}

static inline uint32_t gen__blocks_of(uint32_t num_rows)
{
    return (num_rows + GEN__GRID_BLOCK - 1) / GEN__GRID_BLOCK;
}

/* The blocks of all rows. */
static inline const unsigned char *gen__grid_all(const struct gen__range *range,
                                                 uint32_t num_coords)
{
    return range->place.at - gen__blocks_of(range->num_rows) * gen__block_size(num_coords);
}

/* The variants of a range's rows. Behind it: the blocks of each one's rows, in turn. */
struct gen__slots {
    _Alignas(GEN__LINE) uint32_t count; /* 0: too many */
    uint16_t row[GEN__MAX_SLOTS];       /* of each the first row */
    uint16_t end[GEN__MAX_SLOTS];       /* in blocks */
};

static inline size_t gen__slots_size(uint32_t num_rows, uint32_t num_coords)
{
    const uint32_t blocks = gen__blocks_of(num_rows) + GEN__MAX_SLOTS;
    const size_t size = sizeof(struct gen__slots) + blocks * gen__block_size(num_coords);
    return (size + GEN__LINE - 1) / GEN__LINE * GEN__LINE;
}

/* In whole vectors. */
static inline size_t gen__grid_cells_size(uint32_t num_cells)
{
    const size_t size = num_cells * sizeof(uint32_t);
    return (size + sizeof(gen__lanes) - 1) / sizeof(gen__lanes) * sizeof(gen__lanes);
}

struct gen__nearest;
/* The two nearest of a cell that has not one block. */
struct gen__nearest gen__nearest_of_list(const struct gen__range *range, uint32_t num_coords,
                                         uint32_t cell, gen__int_lanes logs);
/* The nearest row where the first coordinate is another; NULL where it is too far. */
const struct gen__row *gen__grid_find_scaled(const struct gen__range *range, uint32_t num_coords,
                                             const float *counts, float first);
/* The nearest of the rows whose variants' bits are set, with another first coordinate; NULL where
 * none is, or too far. */
const struct gen__row *gen__grid_find_eligible(const struct gen__range *range, uint32_t num_coords,
                                               const float *counts, float first, uint32_t eligible);

#define GEN__MAX_CELLS 512                                        /* of a grid */
#define GEN__MAX_LISTS(num_coords) ((num_coords) * (size_t)40960) /* bytes */
#define GEN__GRID_MAX_ROWS 4096
/* A row that is farther from any problem than any row that is looked for, and than twice that: it
 * stands for none. */
#define GEN__GRID_NOWHERE (1 << 25)

/* Fills the slots of a range, which come zeroed; the bytes they take. */
size_t gen__slots_fill(const struct gen__range *range, uint32_t num_coords,
                       struct gen__slots *slots);
/* Gives the range a grid, its own or one that the library has; none where its rows
 * are too many or too far apart. False: out of memory. */
bool gen__grid_index(gen_library *library, uint32_t num_coords, struct gen__range *range);
void gen__grids_free(gen_library *library);

#endif /* GEN_GRID_H */
