/*
 * Searching the tuning rows of one required key and class of GPU. Everything
 * here is on gen_select()'s path and free of branches that the problem decides.
 *
 * The first coordinates of a range's rows stand by themselves, sorted, between
 * -infinity and at least 8 times +infinity, so that a search needs no bounds.
 */
#ifndef GEN_ROWS_H
#define GEN_ROWS_H

#include "library.h"

#include <math.h>
#include <string.h>

#define GEN__NO_ROW UINT32_MAX
#define GEN__KEY_BLOCK 8 /* keys compared at once */

/* Keys that a range of `count` rows takes. */
static inline size_t gen__keys_of(uint32_t count)
{
    return 1 + ((size_t)count + GEN__KEY_BLOCK) / GEN__KEY_BLOCK * GEN__KEY_BLOCK + GEN__KEY_BLOCK;
}

/* A position in the space of coordinates, to be compared with a range. */
struct gen__probe {
    const struct gen__row *rows;
    const float *keys; /* of rows[0]; keys[-1] is -infinity */
    uint32_t count, num_coords;
    uint32_t bound; /* the first row whose first coordinate is not below coords[0] */
    float coords[GEN__MAX_COORDS];
};

/* How many of the sorted keys are below x. */
static inline uint32_t gen__keys_below(const float *keys, uint32_t count, float x)
{
    typedef float floats __attribute__((vector_size(4 * sizeof(float))));
    typedef int32_t ints __attribute__((vector_size(4 * sizeof(int32_t))));
    uint32_t base = 0;
    while (count > 8 * GEN__KEY_BLOCK) {
        const uint32_t half = count / 2;
        base += keys[base + half - 1] < x ? half : 0;
        count -= half;
    }
    const floats all = {x, x, x, x};
    ints sum = {0, 0, 0, 0};
    for (uint32_t i = 0; i < count; i += GEN__KEY_BLOCK) {
        floats a, b;
        memcpy(&a, keys + base + i, sizeof(a));
        memcpy(&b, keys + base + i + 4, sizeof(b));
        sum -= (ints)(a < all) + (ints)(b < all); /* a true lane is -1 */
    }
    return base + (uint32_t)(sum[0] + sum[1] + sum[2] + sum[3]);
}

static inline void gen__probe_set(struct gen__probe *probe, const gen_library *library,
                                  const struct gen__range *range, uint32_t num_coords,
                                  const float coords[GEN__MAX_COORDS], float shift)
{
    probe->rows = library->rows + range->first_row;
    probe->keys = library->keys + range->first_key;
    probe->count = range->num_rows;
    probe->num_coords = num_coords;
    memcpy(probe->coords, coords, sizeof(probe->coords));
    probe->coords[0] += shift;
    probe->bound = gen__keys_below(probe->keys, probe->count, probe->coords[0]);
}

/* One coordinate: the knot of the interval that x is in. */
static inline const struct gen__knot *gen__knot_at(const gen_library *library,
                                                   const struct gen__range *range, float x)
{
    const float *keys = library->keys + range->first_key;
    const float last = GEN__NUM_CELLS - 1;
    float cell = x * GEN__CELLS_PER_DOUBLING;
    cell = cell > 0.0f ? cell : 0.0f;
    cell = cell < last ? cell : last;
    const uint32_t *below = library->cells + range->first_cell + (int32_t)cell;
    uint32_t bound = below[0];
    if (__builtin_expect(below[1] - bound <= 1, 1))
        bound += keys[bound] < x; /* none in the cell: the key is behind it */
    else
        bound += gen__keys_below(keys + bound, below[1] - bound, x);
    return &library->knots[range->first_knot + bound];
}

/* The nearest row, at *distance; of equal distances the first. */
static inline uint32_t gen__knot_nearest(const struct gen__knot *knot, float x, float *distance)
{
    const float left = x - knot->left;
    const float right = knot->right - x;
    *distance = left < right ? left : right;
    return knot->side[left > right]; /* an index, since a branch would be a coin's toss */
}

/* The next best behind row `last` at *distance; GEN__NO_ROW at the end. */
uint32_t gen__rows_next(const struct gen__probe *probe, uint32_t last, float *distance);

/*
 * log2 of the measured time. One coordinate: linear between the two
 * neighbouring rows (both axes logarithmic), constant below the first row
 * (there the launch is all there is), proportional to the coordinate above the
 * last one. More coordinates: the mean of the nearest two rows, weighted by
 * the inverse of their distances.
 */
static inline float gen__knot_time(const struct gen__knot *knot, float x)
{
    return knot->log2_us + knot->slope * (x - knot->coord);
}

float gen__rows_time(const struct gen__probe *probe);

/* Fills the keys, knots and cells of a range from its rows, and the rows' `shared`. */
void gen__rows_index(gen_library *library, const struct gen__range *range);

#endif /* GEN_ROWS_H */
