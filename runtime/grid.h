/*
 * Finding the two nearest of the tuning rows of several coordinates: a grid of
 * cells over the rows' box, in doublings, and for each cell the rows that are
 * among the two nearest of any problem in it: few, or the cell tells nothing. Beyond the box all
 * distances grow alike, so its outermost cells have no end.
 *
 * A grid hangs on the rows' coordinates alone; ranges with the same have one
 * together. It is built when a library opens, in bounded time and memory.
 */
#ifndef GEN_GRID_H
#define GEN_GRID_H

#include "lanes.h"
#include "library.h"

#define GEN__GRID_BLOCK 8  /* rows that are looked at together */
#define GEN__GRID_BLOCKS 4 /* of a cell */

/* An eighth (linearly) of a doubling of a coordinate: what the coordinate adds to the cell's
 * number, and how much more above the number with these bits. */
struct gen__step {
    uint32_t upto;
    uint16_t add, more;
};

/*
 * Behind it: an empty block, the cells, the blocks of their lists, the steps of
 * every coordinate. A cell is where its list begins, in vectors, times
 * GEN__GRID_BLOCKS, and the number of its blocks less one. A block is
 *
 *     float logs[num_coords][GEN__GRID_BLOCK]    as gen__lanes_log2() has them; infinite: no row
 *     uint16_t rows[GEN__GRID_BLOCK]             ascending, as blocks are
 */
struct gen__grid {
    _Alignas(GEN__LINE) struct gen__grid *next;
    struct gen__place place; /* as in the ranges */
    uint32_t num_coords;
    uint32_t first_row, num_rows; /* of the first range that has it */
    uint32_t bytes;               /* that it takes */
};

/* Floats and rows: whole vectors. */
static inline size_t gen__block_size(uint32_t num_coords)
{
    return GEN__GRID_BLOCK * (num_coords * sizeof(float) + sizeof(uint16_t));
}

/* The nearest row, and in *us the time by the two nearest; NULL where the grid does not tell.
 * `counts` are the problem's coordinates. */
const struct gen__row *gen__grid_find(const struct gen__range *range, uint32_t num_coords,
                                      const float *counts, float *us);
/* The same where the row is looked up with another first coordinate. */
const struct gen__row *gen__grid_find_scaled(const struct gen__range *range, uint32_t num_coords,
                                             const float *counts, float first, float *us);

/* Gives the range a grid, its own or one that the library has; none where its rows
 * are too many or too far apart. False: out of memory. */
bool gen__grid_index(gen_library *library, uint32_t num_coords, struct gen__range *range);
void gen__grids_free(gen_library *library);

#endif /* GEN_GRID_H */
