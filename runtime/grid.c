/* Finding the nearest rows by a grid. */
#include "grid.h"
#include "rows.h"

#include <math.h>
#include <stdlib.h>

#define VECTORS (GEN__GRID_BLOCK / 4)
/* Below this distances in floats are exact; infinite ones say that the grid does not tell. */
#define EXACT 16777216.0f

/* The cell that a problem is in. Its coordinates' bits alone say so, while their logarithms are
 * still being worked out. */
__attribute__((always_inline)) static inline uint32_t
cell_at(const struct gen__place *grid, uint32_t num_coords, gen__lanes counts)
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
    const uint16_t *cells =
        (const uint16_t *)(const void *)(grid->at + gen__block_size(num_coords));
    return cells[cell];
}

static inline const unsigned char *block_at(const struct gen__place *grid, uint32_t cell)
{
    return grid->at + (size_t)(cell / GEN__GRID_BLOCKS) * sizeof(gen__lanes);
}

/* How far the rows of a block are, and which they are. */
__attribute__((always_inline)) static inline const uint16_t *
look(const unsigned char *block, uint32_t num_coords, gen__lanes logs, gen__lanes d[VECTORS])
{
    block = __builtin_assume_aligned(block, sizeof(gen__lanes));
#pragma GCC unroll 4
    for (uint32_t c = 0; c < num_coords; c++) {
        const gen__lanes x = gen__lanes_all(logs[c]);
        gen__lanes more[VECTORS];
        memcpy(more, block + c * sizeof(more), sizeof(more));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < VECTORS; v++) {
            more[v] = gen__lanes_distance(more[v], x);
            d[v] = c ? d[v] + more[v] : more[v];
        }
    }
    return (const uint16_t *)(const void *)(block + num_coords * VECTORS * sizeof(gen__lanes));
}

/* The two nearest rows; of equal distances the one that comes first. */
struct nearest {
    uint32_t row[2];
    float distance[2]; /* of units; infinite where there is no row */
};

/* A bit for each place where it holds. */
static inline uint32_t places(gen__int_lanes first, gen__int_lanes second)
{
    return gen__lanes_bits(first) | gen__lanes_bits(second) << 4;
}

__attribute__((always_inline)) static inline struct nearest
nearest_of_block(const unsigned char *block, uint32_t num_coords, gen__lanes logs)
{
    gen__lanes d[VECTORS] = {{0}};
    const uint16_t *rows = look(block, num_coords, logs, d);
    /* The least and the next of 2, of 4 and of 8. */
    gen__lanes least = gen__lanes_min(d[0], d[1]), next = gen__lanes_max(d[0], d[1]);
    gen__lanes other = gen__lanes_halves(least), other_next = gen__lanes_halves(next);
    next = gen__lanes_min(gen__lanes_max(least, other), gen__lanes_min(next, other_next));
    least = gen__lanes_min(least, other);
    other = gen__lanes_pairs(least), other_next = gen__lanes_pairs(next);
    next = gen__lanes_min(gen__lanes_max(least, other), gen__lanes_min(next, other_next));
    least = gen__lanes_min(least, other);

    const uint32_t nearest = places(d[0] == least, d[1] == least);
    const uint32_t near = places(d[0] <= next, d[1] <= next);
    const uint32_t first = nearest & -nearest;
    return (struct nearest){
        .row = {rows[(unsigned)__builtin_ctz(first)], rows[(unsigned)__builtin_ctz(near ^ first)]},
        .distance = {least[0], next[0]}};
}

/* The rows of `b` come later: of equal distances the first's count. */
static struct nearest nearer_two(struct nearest a, struct nearest b)
{
    const bool other = b.distance[0] < a.distance[0];
    const struct nearest x = other ? b : a, y = other ? a : b;
    const bool swap = other ? !(x.distance[1] < y.distance[0]) : y.distance[0] < x.distance[1];
    return (struct nearest){{x.row[0], swap ? y.row[0] : x.row[1]},
                            {x.distance[0], swap ? y.distance[0] : x.distance[1]}};
}

static struct nearest nearest_of_list(const struct gen__place *grid, uint32_t num_coords,
                                      uint32_t cell, gen__lanes logs)
{
    const unsigned char *block = block_at(grid, cell);
    struct nearest found = nearest_of_block(block, num_coords, logs);
    for (uint32_t i = 0; i < cell % GEN__GRID_BLOCKS; i++) {
        block += gen__block_size(num_coords);
        found = nearer_two(found, nearest_of_block(block, num_coords, logs));
    }
    return found;
}

/* The row and the time. */
static inline const struct gen__row *found(const struct gen__range *range, struct nearest near,
                                           float *us)
{
    const struct gen__row *row = &range->rows[near.row[0]];
    *us = gen__mean_time(row->log2_us, range->rows[near.row[1]].log2_us, near.distance[0],
                         near.distance[1]);
    return __builtin_expect(near.distance[0] < EXACT, 1) ? row : NULL;
}

__attribute__((noinline)) static const struct gen__row *find_in_list(const struct gen__range *range,
                                                                     uint32_t num_coords,
                                                                     uint32_t cell, gen__lanes logs,
                                                                     float *us)
{
    return found(range, nearest_of_list(&range->place, num_coords, cell, logs), us);
}

/* One by one, as the family has written them: a vector would wait until the last of them is in the
 * cache. */
__attribute__((always_inline)) static inline gen__lanes load_counts(const float *counts,
                                                                    uint32_t num_coords)
{
    return (gen__lanes){counts[0], counts[1], num_coords > 2 ? counts[2] : 1.0f,
                        num_coords > 3 ? counts[3] : 1.0f};
}

__attribute__((always_inline)) static inline const struct gen__row *
find(const struct gen__range *range, uint32_t num_coords, const float *at, float *us)
{
    const struct gen__place *grid = &range->place;
    const gen__lanes counts = load_counts(at, num_coords);
    const gen__lanes logs = gen__lanes_log2(counts);
    const uint32_t cell = cell_at(grid, num_coords, counts);
    if (__builtin_expect(cell % GEN__GRID_BLOCKS != 0, 0))
        return find_in_list(range, num_coords, cell, logs, us);
    return found(range, nearest_of_block(block_at(grid, cell), num_coords, logs), us);
}

#define FIND(num_coords)                                                       \
    __attribute__((noinline)) static const struct gen__row *find_##num_coords( \
        const struct gen__range *range, const float *counts, float *us)        \
    {                                                                          \
        return find(range, num_coords, counts, us);                            \
    }
FIND(2)
FIND(3)
FIND(4)

const struct gen__row *gen__grid_find(const struct gen__range *range, uint32_t num_coords,
                                      const float *counts, float *us)
{
    if (num_coords == 3)
        return find_3(range, counts, us);
    if (num_coords == 4)
        return find_4(range, counts, us);
    return find_2(range, counts, us);
}

__attribute__((always_inline)) static inline struct nearest
nearest_scaled(const struct gen__place *grid, uint32_t num_coords, const float *at, float first)
{
    gen__lanes counts = load_counts(at, num_coords);
    counts[0] = first;
    const uint32_t cell = cell_at(grid, num_coords, counts);
    return nearest_of_list(grid, num_coords, cell, gen__lanes_log2(counts));
}

const struct gen__row *gen__grid_find_scaled(const struct gen__range *range, uint32_t num_coords,
                                             const float *counts, float first, float *us)
{
    const struct gen__place *grid = &range->place;
    if (!gen__grid_find(range, num_coords, counts, us))
        return NULL;
    const struct nearest near = num_coords == 3   ? nearest_scaled(grid, 3, counts, first)
                                : num_coords == 4 ? nearest_scaled(grid, 4, counts, first)
                                                  : nearest_scaled(grid, 2, counts, first);
    return near.distance[0] < EXACT ? &range->rows[near.row[0]] : NULL;
}
