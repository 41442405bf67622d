/* What building a grid takes: its slabs and limits (grid_build.c) and the lists of its
 * cells (grid_lists.c). */
#ifndef GEN_GRID_BUILD_H
#define GEN_GRID_BUILD_H

#include "product/grid.h"

#define GEN__MAX_SLABS 64 /* of a coordinate */
#define GEN__MAX_DEPTH 16 /* of halving boxes: GEN__MAX_CELLS, and a rest for each coordinate */

/* Rows that may be among the two nearest in a box of slabs, in their order. */
struct gen__candidates {
    uint32_t count;
    float *logs[GEN__MAX_COORDS]; /* room for whole vectors */
    uint16_t *rows;
};

struct gen__builder {
    uint32_t num_coords;
    float low[GEN__MAX_COORDS], high[GEN__MAX_COORDS];
    /* Where a coordinate's slabs begin, but for the first, which has no beginning: the least
     * logarithm, and the bits of the least number. The last slab has no end. */
    float begin[GEN__MAX_COORDS][GEN__MAX_SLABS];
    uint32_t begin_bits[GEN__MAX_COORDS][GEN__MAX_SLABS];
    uint32_t num_slabs[GEN__MAX_COORDS];
    uint32_t stride[GEN__MAX_COORDS]; /* of a slab, in cells */
    uint32_t num_cells;
    size_t lists_size;
    uint32_t cells[GEN__MAX_CELLS];
    unsigned char *lists;
    struct gen__candidates of_depth[GEN__MAX_DEPTH + 2];
    /* Of each candidate: how far from the box's two ends, and minus how often it loses. */
    float *from_low[GEN__MAX_COORDS], *from_high[GEN__MAX_COORDS];
    int32_t *lost;
    void *memory;
};

/* An empty block, and a row in its place. */
static inline void gen__grid_clear(unsigned char *block, uint32_t num_coords)
{
    int32_t *logs = (int32_t *)(void *)block;
    memset(block, 0, gen__block_size(num_coords));
    for (uint32_t i = 0; i < GEN__GRID_BLOCK; i++)
        logs[i] = GEN__GRID_NOWHERE;
}

/* A logarithm as blocks have it. */
static inline int32_t gen__grid_units(float log)
{
    return (int32_t)((log + GEN__LOG_BIAS) / GEN__LOG_UNIT);
}

static inline void gen__grid_set(unsigned char *block, uint32_t num_coords, uint32_t place,
                                 const float *row_logs, uint32_t row)
{
    int32_t *logs = (int32_t *)(void *)block;
    for (uint32_t c = 0; c < num_coords; c++)
        logs[c * GEN__GRID_BLOCK + place] = gen__grid_units(row_logs[c]);
    ((uint16_t *)(void *)(logs + num_coords * GEN__GRID_BLOCK))[place] = (uint16_t)row;
}

/* Writes the candidates as blocks. */
void gen__grid_write(const struct gen__builder *b, const struct gen__candidates *rows,
                     unsigned char *to);
/* Gives every cell its list, once slabs and `of_depth[0]`, all rows, are there. */
void gen__grid_fill(struct gen__builder *b);

#endif /* GEN_GRID_BUILD_H */
