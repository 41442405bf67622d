/*
 * The grid's share of gen_select()'s path: inline, so that what is known of a
 * family when it is compiled is known here. Lists of several blocks are grid.c's.
 */
#ifndef GEN_GRID_FIND_H
#define GEN_GRID_FIND_H

#include "product/grid.h"
#include "product/rows.h"

#define GEN__GRID_INLINE __attribute__((always_inline)) static inline
#define GEN__GRID_VECTORS (GEN__GRID_BLOCK / 4)
/* Rows are looked for up to here, in units; the second nearest is no farther than twice that, where
 * the rules at length have exact distances, too. */
#define GEN__GRID_FAR (1 << 23)
/* The two nearest rows; of equal distances the one that comes first. */
struct gen__nearest {
    uint32_t row[2];
    float part; /* gen__part() of their distances */
    bool far[2];
};

/* The cell that a problem is in. Its coordinates' bits alone say so, while their logarithms are
 * still being worked out. */
GEN__GRID_INLINE uint32_t gen__grid_cell(const struct gen__place *grid, uint32_t num_coords,
                                         gen__lanes counts)
{
    const gen__places places = gen__lanes_places(counts, grid->low, grid->high);
    const gen__bit_lanes bits = gen__bits_of_lanes(counts);
    uint32_t cell = 0;
#pragma GCC unroll 4
    for (uint32_t c = 0; c < num_coords; c++) {
        const struct gen__step *step =
            (const struct gen__step *)(const void *)grid->at + grid->steps[c] + places[c];
        /* A coin's toss, so not by a branch. */
        const int64_t left = (int64_t)step->upto - (int64_t)bits[c];
        cell += step->add + (step->more & (uint32_t)(left >> 32));
    }
    return ((const uint32_t *)(const void *)grid->at)[cell];
}

/* Where the list of a cell begins that has one. */
static inline const unsigned char *gen__grid_list(const struct gen__place *grid, uint32_t cell)
{
    return grid->at + (size_t)(cell >> GEN__GRID_BLOCK_BITS) * sizeof(gen__lanes);
}

/* How far the rows of a block are. */
GEN__GRID_INLINE void gen__grid_look(const unsigned char *block, uint32_t num_coords,
                                     gen__int_lanes logs, gen__int_lanes d[GEN__GRID_VECTORS])
{
    block = __builtin_assume_aligned(block, sizeof(gen__lanes));
#pragma GCC unroll 4
    for (uint32_t c = 0; c < num_coords; c++) {
        const gen__int_lanes x = {logs[c], logs[c], logs[c], logs[c]};
        gen__int_lanes more[GEN__GRID_VECTORS];
        memcpy(more, block + c * sizeof(more), sizeof(more));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < GEN__GRID_VECTORS; v++) {
            more[v] = gen__lanes_apart(more[v], x);
            d[v] = c ? d[v] + more[v] : more[v];
        }
    }
}

/* Which they are. */
static inline const uint16_t *gen__grid_rows(const unsigned char *block, uint32_t num_coords)
{
    return (const uint16_t *)(const void *)(block + num_coords * GEN__GRID_BLOCK * sizeof(int32_t));
}

/* Keys: a distance above the place of its row. */

/* Of a block; `place` is that of its first row. */
GEN__GRID_INLINE void gen__keys_at(const unsigned char *block, uint32_t num_coords,
                                   gen__int_lanes logs, int place_bits, int32_t place,
                                   gen__int_lanes keys[GEN__GRID_VECTORS])
{
    gen__int_lanes d[GEN__GRID_VECTORS] = {{0}}, places = {0, 1, 2, 3};
    places += place;
    gen__grid_look(block, num_coords, logs, d);
#pragma GCC unroll 2
    for (uint32_t v = 0; v < GEN__GRID_VECTORS; v++, places += 4)
        keys[v] = d[v] << place_bits | places;
    gen__lanes_sort(&keys[0], &keys[1]);
}

struct gen__two_keys {
    gen__int_lanes least, next; /* in every lane */
};

/* Of four lanes the least and the second, of which `next` has candidates, too. */
GEN__GRID_INLINE struct gen__two_keys gen__keys_least(gen__int_lanes least, gen__int_lanes next)
{
    gen__int_lanes other = gen__lanes_int_halves(least);
    next = gen__lanes_least(next, gen__lanes_int_halves(next));
    gen__lanes_sort(&least, &other);
    next = gen__lanes_least(next, other);
    other = gen__lanes_int_pairs(least);
    next = gen__lanes_least(next, gen__lanes_int_pairs(next));
    gen__lanes_sort(&least, &other);
    return (struct gen__two_keys){least, gen__lanes_least(next, other)};
}

/* gen__part() of the two distances: whole numbers are added and then converted, which for floats
 * takes longer. */
GEN__GRID_INLINE float gen__keys_part(struct gen__two_keys keys, int place_bits)
{
    const gen__int_lanes a = keys.least >> place_bits, sum = a + (keys.next >> place_bits);
    const gen__int_lanes both = sum - (sum == 0); /* not 0 */
    return __builtin_convertvector(a, gen__lanes)[0] / __builtin_convertvector(both, gen__lanes)[0];
}

GEN__GRID_INLINE struct gen__nearest gen__nearest_of_block(const unsigned char *block,
                                                           uint32_t num_coords, gen__int_lanes logs)
{
    enum { BITS = 3, PLACES = (1 << BITS) - 1 };
    gen__int_lanes keys[GEN__GRID_VECTORS];
    gen__keys_at(block, num_coords, logs, BITS, 0, keys);
    const struct gen__two_keys two = gen__keys_least(keys[0], keys[1]);
    const uint16_t *rows = gen__grid_rows(block, num_coords);
    const uint32_t first = (uint32_t)two.least[0], second = (uint32_t)two.next[0];
    return (struct gen__nearest){.row = {rows[first & PLACES], rows[second & PLACES]},
                                 .part = gen__keys_part(two, BITS),
                                 .far = {first >= (uint32_t)GEN__GRID_FAR << BITS,
                                         second >= (uint32_t)GEN__GRID_FAR << BITS}};
}

/* All rows of a range of two coordinates that has few, in blocks one behind the other: looking at
 * them takes less than finding out which of them are near. */
#define GEN__FEW_BLOCKS 4

GEN__GRID_INLINE uint32_t gen__few_row(const unsigned char *block, uint32_t place)
{
    block += place / GEN__GRID_BLOCK * gen__block_size(2);
    return gen__grid_rows(block, 2)[place % GEN__GRID_BLOCK];
}

GEN__GRID_INLINE struct gen__nearest gen__nearest_of_few(const unsigned char *block, uint32_t count,
                                                         gen__int_lanes logs)
{
    enum { BITS = 5, PLACES = (1 << BITS) - 1 };
    _Static_assert(GEN__FEW_BLOCKS * GEN__GRID_BLOCK == PLACES + 1, "a place each");
    gen__int_lanes keys[GEN__GRID_VECTORS], more[GEN__GRID_VECTORS];
    gen__keys_at(block, 2, logs, BITS, 0, keys);
    for (uint32_t i = 1; i < count; i++) {
        gen__keys_at(block + i * gen__block_size(2), 2, logs, BITS, (int32_t)i * GEN__GRID_BLOCK,
                     more);
        keys[1] = gen__lanes_least(keys[1], more[1]);
        gen__lanes_sort(&keys[0], &more[0]);
        keys[1] = gen__lanes_least(keys[1], more[0]);
    }
    const struct gen__two_keys two = gen__keys_least(keys[0], keys[1]);
    const uint32_t first = (uint32_t)two.least[0], second = (uint32_t)two.next[0];
    return (struct gen__nearest){
        .row = {gen__few_row(block, first & PLACES), gen__few_row(block, second & PLACES)},
        .part = gen__keys_part(two, BITS),
        .far = {first >= (uint32_t)GEN__GRID_FAR << BITS,
                second >= (uint32_t)GEN__GRID_FAR << BITS}};
}

/* One by one, as the family has written them: a vector would wait until the last of them is in the
 * cache. */
GEN__GRID_INLINE gen__lanes gen__grid_counts(const float *counts, uint32_t num_coords)
{
    return (gen__lanes){counts[0], counts[1], num_coords > 2 ? counts[2] : 1.0f,
                        num_coords > 3 ? counts[3] : 1.0f};
}

GEN__GRID_INLINE struct gen__nearest gen__nearest_of_cell(const struct gen__range *range,
                                                          uint32_t num_coords, gen__lanes counts,
                                                          gen__int_lanes logs)
{
    const struct gen__place *grid = &range->place;
    const uint32_t cell = gen__grid_cell(grid, num_coords, counts);
    if (__builtin_expect(cell % (1u << GEN__GRID_BLOCK_BITS) != 0, 0))
        return gen__nearest_of_list(range, num_coords, cell, logs);
    return gen__nearest_of_block(gen__grid_list(grid, cell), num_coords, logs);
}

/* The nearest row, in *us the time by the two nearest and in *next the second; NULL where they are
 * too far for exact distances, or there is none. `at` are the problem's coordinates. */
GEN__GRID_INLINE const struct gen__row *gen__grid_find(const struct gen__range *range,
                                                       uint32_t num_coords, const float *at,
                                                       float *us, const struct gen__row **next)
{
    const gen__lanes counts = gen__grid_counts(at, num_coords);
    const gen__int_lanes logs = gen__lanes_log2(counts);
    const uint32_t blocks = gen__blocks_of(range->num_rows);
    struct gen__nearest near;
    if (num_coords == 2 && blocks <= GEN__FEW_BLOCKS)
        near = gen__nearest_of_few(gen__grid_all(range, 2), blocks, logs);
    else
        near = gen__nearest_of_cell(range, num_coords, counts, logs);
    const struct gen__row *row = &range->rows[near.row[0]], *second = &range->rows[near.row[1]];
    *us = gen__mean_time(row, second, near.part);
    *next = near.far[1] ? NULL : second;
    return __builtin_expect(near.far[0], 0) ? NULL : row;
}

#endif /* GEN_GRID_FIND_H */
