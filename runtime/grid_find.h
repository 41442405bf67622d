/*
 * The grid's share of gen_select()'s path: inline, so that what is known of a
 * family when it is compiled is known here. Lists of several blocks are grid.c's.
 */
#ifndef GEN_GRID_FIND_H
#define GEN_GRID_FIND_H

#include "grid.h"
#include "rows.h"

#define GEN__GRID_VECTORS (GEN__GRID_BLOCK / 4)
/* Rows are looked for up to here, in units; the second nearest is no farther than twice that, where
 * the rules at length have exact distances, too. */
#define GEN__GRID_FAR (1 << 23)
/* Behind a distance the place of its row in the block: the least of them say which row it is. */
#define GEN__GRID_PLACE_BITS 3

/* The two nearest rows; of equal distances the one that comes first. */
struct gen__nearest {
    uint32_t row[2];
    float distance[2]; /* any unit */
    bool far[2];
};

/* The cell that a problem is in. Its coordinates' bits alone say so, while their logarithms are
 * still being worked out. */
__attribute__((always_inline)) static inline uint32_t
gen__grid_cell(const struct gen__place *grid, uint32_t num_coords, gen__lanes counts)
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
__attribute__((always_inline)) static inline void
gen__grid_look(const unsigned char *block, uint32_t num_coords, gen__int_lanes logs,
               gen__int_lanes d[GEN__GRID_VECTORS])
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

/* Of four lanes the least and the second, of which `next` has candidates, too: in every lane. */
__attribute__((always_inline)) static inline void gen__grid_least_two(gen__int_lanes *least,
                                                                      gen__int_lanes *next)
{
    gen__int_lanes other = gen__lanes_int_halves(*least);
    *next = gen__lanes_least(*next, gen__lanes_int_halves(*next));
    gen__lanes_sort(least, &other);
    *next = gen__lanes_least(*next, other);
    other = gen__lanes_int_pairs(*least);
    *next = gen__lanes_least(*next, gen__lanes_int_pairs(*next));
    gen__lanes_sort(least, &other);
    *next = gen__lanes_least(*next, other);
}

/* Of keys, times 2 ^ GEN__GRID_PLACE_BITS. */
static inline float gen__grid_distance(gen__int_lanes keys)
{
    const int32_t places = (1 << GEN__GRID_PLACE_BITS) - 1;
    const gen__int_lanes mask = {~places, ~places, ~places, ~places};
    return __builtin_convertvector(keys & mask, gen__lanes)[0];
}

__attribute__((always_inline)) static inline struct gen__nearest
gen__nearest_of_block(const unsigned char *block, uint32_t num_coords, gen__int_lanes logs)
{
    enum { PLACES = (1 << GEN__GRID_PLACE_BITS) - 1 };
    static const gen__int_lanes place[GEN__GRID_VECTORS] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    gen__int_lanes d[GEN__GRID_VECTORS] = {{0}};
    gen__grid_look(block, num_coords, logs, d);
    gen__int_lanes least = d[0] << GEN__GRID_PLACE_BITS | place[0];
    gen__int_lanes next = d[1] << GEN__GRID_PLACE_BITS | place[1];
    gen__lanes_sort(&least, &next);
    gen__grid_least_two(&least, &next);
    const uint16_t *rows = gen__grid_rows(block, num_coords);
    const uint32_t first = (uint32_t)least[0], second = (uint32_t)next[0];
    return (struct gen__nearest){
        .row = {rows[first & PLACES], rows[second & PLACES]},
        .distance = {gen__grid_distance(least), gen__grid_distance(next)},
        .far = {first >= (uint32_t)GEN__GRID_FAR << GEN__GRID_PLACE_BITS,
                second >= (uint32_t)GEN__GRID_FAR << GEN__GRID_PLACE_BITS}};
}

/* All rows of a range that has few of them, in blocks one behind the other: looking at each takes
 * less than asking a cell which of them are near. */
#define GEN__FEW_BLOCKS 4
#define GEN__FEW_PLACE_BITS 5

__attribute__((always_inline)) static inline struct gen__nearest
gen__nearest_of_few(const unsigned char *block, uint32_t count, uint32_t num_coords,
                    gen__int_lanes logs)
{
    enum { PLACES = (1 << GEN__FEW_PLACE_BITS) - 1 };
    gen__int_lanes place[GEN__GRID_VECTORS] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    const size_t size = gen__block_size(num_coords);
    gen__int_lanes least = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, next = least;
    for (uint32_t i = 0; i < count; i++) {
        gen__int_lanes d[GEN__GRID_VECTORS] = {{0}};
        gen__grid_look(block + i * size, num_coords, logs, d);
        gen__int_lanes low = d[0] << GEN__FEW_PLACE_BITS | place[0];
        gen__int_lanes high = d[1] << GEN__FEW_PLACE_BITS | place[1];
        gen__lanes_sort(&low, &high);
        next = gen__lanes_least(next, high);
        gen__lanes_sort(&least, &low);
        next = gen__lanes_least(next, low);
        place[0] += GEN__GRID_BLOCK;
        place[1] += GEN__GRID_BLOCK;
    }
    gen__grid_least_two(&least, &next);
    const uint32_t first = (uint32_t)least[0], second = (uint32_t)next[0];
    const uint32_t a = first & PLACES, b = second & PLACES;
    const unsigned char *in_a = block + a / GEN__GRID_BLOCK * size;
    const unsigned char *in_b = block + b / GEN__GRID_BLOCK * size;
    return (struct gen__nearest){
        .row = {gen__grid_rows(in_a, num_coords)[a % GEN__GRID_BLOCK],
                gen__grid_rows(in_b, num_coords)[b % GEN__GRID_BLOCK]},
        .distance = {(float)(first - a) , (float)(second - b)},
        .far = {first >= (uint32_t)GEN__GRID_FAR << GEN__FEW_PLACE_BITS,
                second >= (uint32_t)GEN__GRID_FAR << GEN__FEW_PLACE_BITS}};
}

#ifndef FEWB
#define FEWB 4
#endif
/* One by one, as the family has written them: a vector would wait until the last of them is in the
 * cache. */
__attribute__((always_inline)) static inline gen__lanes gen__grid_counts(const float *counts,
                                                                         uint32_t num_coords)
{
    return (gen__lanes){counts[0], counts[1], num_coords > 2 ? counts[2] : 1.0f,
                        num_coords > 3 ? counts[3] : 1.0f};
}

/* The nearest row, in *us the time by the two nearest and in *next the second; NULL where they are
 * too far for exact distances, or there is none. `at` are the problem's coordinates. */
__attribute__((always_inline)) static inline const struct gen__row *
gen__grid_find(const struct gen__range *range, uint32_t num_coords, const float *at, float *us,
               const struct gen__row **next)
{
    const struct gen__place *grid = &range->place;
    const gen__lanes counts = gen__grid_counts(at, num_coords);
    const gen__int_lanes logs = gen__lanes_log2(counts);
    struct gen__nearest near;
    const uint32_t blocks = gen__blocks_of(range->num_rows);
    if (num_coords == 2 && blocks <= FEWB) {
        near = gen__nearest_of_few(gen__grid_all(range, num_coords), blocks, num_coords, logs);
    } else {
        const uint32_t cell = gen__grid_cell(grid, num_coords, counts);
        if (__builtin_expect(cell % (1u << GEN__GRID_BLOCK_BITS) != 0, 0))
            near = gen__nearest_of_list(range, num_coords, cell, logs);
        else
            near = gen__nearest_of_block(gen__grid_list(grid, cell), num_coords, logs);
    }
    const struct gen__row *row = &range->rows[near.row[0]], *second = &range->rows[near.row[1]];
    *us = gen__mean_time(row, second, near.distance[0], near.distance[1]);
    *next = near.far[1] ? NULL : second;
    return __builtin_expect(near.far[0], 0) ? NULL : row;
}

#endif /* GEN_GRID_FIND_H */
