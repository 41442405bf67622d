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

/* The nearest row; of equal distances the first. */
uint32_t gen__rows_nearest_of_many(const struct gen__probe *probe, float *distance);

static inline uint32_t gen__rows_nearest(const struct gen__probe *probe, float *distance)
{
    if (probe->num_coords != 1)
        return gen__rows_nearest_of_many(probe, distance);
    const float x = probe->coords[0];
    const float left = x - probe->keys[(ptrdiff_t)probe->bound - 1];
    const float right = probe->keys[probe->bound] - x;
    const bool go_left = left <= right;
    uint32_t row = probe->bound - go_left;
    row = row < probe->count ? row : probe->count - 1;
    while (__builtin_expect(row > 0 && probe->keys[(ptrdiff_t)row - 1] == probe->keys[row], 0))
        row--;
    *distance = go_left ? left : right;
    return row;
}

/* The next best behind row `last` at *distance; GEN__NO_ROW at the end. */
uint32_t gen__rows_next(const struct gen__probe *probe, uint32_t last, float *distance);

/*
 * log2 of the measured time at the probe. One coordinate: linear between the
 * two neighbouring rows (both axes logarithmic), constant below the first row
 * (there the launch is all there is), proportional to the coordinate above the
 * last one. More coordinates: the mean of the nearest two rows, weighted by
 * the inverse of their distances.
 */
float gen__rows_time_of_many(const struct gen__probe *probe, uint32_t nearest, float distance);

static inline float gen__rows_time(const gen_library *library, const struct gen__range *range,
                                   const struct gen__probe *probe, uint32_t nearest, float distance)
{
    if (probe->num_coords != 1)
        return gen__rows_time_of_many(probe, nearest, distance);
    const struct gen__knot *knot = &library->knots[range->first_knot + probe->bound];
    return knot->log2_us + knot->slope * (probe->coords[0] - knot->coord);
}

/* Fills the keys and knots of a range from its rows. */
void gen__rows_index(gen_library *library, const struct gen__range *range);

#endif /* GEN_ROWS_H */
