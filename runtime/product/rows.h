/*
 * Searching the tuning rows of one required key and class of GPU. Everything
 * inline here is on gen_select()'s path and free of branches that the problem
 * decides.
 *
 * Families with one coordinate have spots: for each row where it is the nearest
 * and its time there, found by the leading bits of the coordinate. Distances are
 * those of the logarithms, but none is taken: x is nearer to a than to b > a
 * where x * x < a * b.
 *
 * Families with several have grids (grid.h). For both where these do not tell, and where the
 * nearest row is not eligible, the first coordinates of a range's rows stand by themselves, in
 * doublings and sorted, between -infinity and at least 8 times +infinity, so that a search needs no
 * bounds.
 */
#ifndef GEN_ROWS_H
#define GEN_ROWS_H

#include "core/mathf.h"
#include "core/simd.h"
#include "product/library.h"

#include <math.h>
#include <string.h>

#define GEN__NO_ROW UINT32_MAX
#define GEN__KEY_BLOCK 8 /* keys compared at once */

/* Keys that a range of `count` rows takes. */
static inline size_t gen__keys_of(uint32_t count)
{
    return 1 + ((size_t)count + GEN__KEY_BLOCK) / GEN__KEY_BLOCK * GEN__KEY_BLOCK + GEN__KEY_BLOCK;
}

/* The order of a range's rows: by the first coordinate upwards, as they are looked for, by the
 * others downwards. Of rows that are equally near the first counts, and what was tuned for more
 * serves fewer better than the other way round: tiles for fewer rows read again what these share.
 */
static inline int gen__order_counts(uint32_t coord, float a, float b)
{
    const int order = (a > b) - (a < b);
    return coord ? -order : order;
}

/* ---- one coordinate ---------------------------------------------------- */

/* The eighth of a doubling that a positive number is in, of all there are. */
static inline uint32_t gen__cell_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits >> 20;
}

/* The spot that x is in, where many end in one cell. */
const struct gen__spot *gen__spot_search(const struct gen__range *range, float x);

/* The spot of the nearest row; of equal distances that of the smaller. */
static inline const struct gen__spot *gen__spot_at(const struct gen__range *range, float x)
{
    uint32_t cell = gen__cell_of(x);
    cell = cell > range->first_cell ? cell : range->first_cell;
    cell = cell < range->last_cell ? cell : range->last_cell;
    const struct gen__cell *c = &range->cells[cell - range->first_cell];
    const struct gen__spot *spot = range->spots + c->spot + (x > c->upto); /* a coin's toss */
    if (__builtin_expect(x > spot->upto, 0))
        return gen__spot_search(range, x);
    return spot;
}

/* The time at x to the last digit, by logarithms. */
float gen__spot_time_exact(const struct gen__spot *spot, float x);

/*
 * The measured time: between the two neighbouring rows linear where both axes
 * are logarithmic, constant below the first row (there the launch is all there
 * is), proportional to the coordinate above the last one. To 0.05 %.
 */
static inline float gen__spot_time(const struct gen__spot *spot, float x)
{
    const float d = x - spot->count;
    const size_t side = d > 0.0f;
    const float us = spot->us + d * (spot->slope[side] + d * spot->curve[side]);
    if (__builtin_expect(!(us > 0.0f), 0))
        return gen__spot_time_exact(spot, x);
    return us;
}

/* ---- any number of coordinates ----------------------------------------- */

/* A position in the space of coordinates, to be compared with a range. */
struct gen__probe {
    const struct gen__row *rows;
    const float *keys; /* of rows[0]; keys[-1] is -infinity */
    uint32_t count, num_coords;
    uint32_t bound; /* the first row whose first coordinate is not below logs[0] */
    float logs[GEN__MAX_COORDS];
};

/* `scale` multiplies the first coordinate. */
void gen__probe_set(struct gen__probe *probe, const gen_library *library,
                    const struct gen__range *range, uint32_t num_coords,
                    const float counts[GEN__MAX_COORDS], float scale);

/* How far from a row a problem is, in doublings: the sum over the coordinates. `first` is the first
 * one to look it up by. */
static inline float gen__row_distance(const struct gen__row *row, uint32_t num_coords,
                                      const float *counts, float first)
{
    float sum = fabsf(gen__doublings(first) - row->logs[0]);
    for (uint32_t c = 1; c < num_coords; c++)
        sum += fabsf(gen__doublings(counts[c]) - row->logs[c]);
    return sum;
}

/* Whether it is near enough for the row to decide. */
static inline bool gen__row_reaches(const struct gen__row *row, const struct gen__family *family,
                                    const float *counts, float first)
{
    return family->reach == 0.0f ||
           gen__row_distance(row, family->num_coords, counts, first) <= family->reach;
}

/* The next best behind row `last` at *distance; GEN__NO_ROW at the end. */
uint32_t gen__rows_next(const struct gen__probe *probe, uint32_t last, float *distance);

/* What the second row's time counts beside the nearest's, by their distances: 0 where both are 0.
 */
static inline float gen__part(float nearest, float second)
{
    /* Added to the first, which is known earlier. */
    return nearest / (nearest + 1e-30f + second);
}

/* The time by the two nearest rows: the mean, weighted by the inverse of the distances, all
 * logarithmic. To 1e-5 of it; the second may be the first, at any distance. */
static inline float gen__mean_time(const struct gen__row *nearest, const struct gen__row *second,
                                   float part)
{
    return nearest->us * gen__exp2_small(part * (second->log2_us - nearest->log2_us));
}

/* The time by the rows around, and the nearest. */
float gen__rows_time(const struct gen__probe *probe, uint32_t *nearest);

/* ---- building ---------------------------------------------------------- */

/* Sets a range's first and last cell, and how many spots it takes, from its rows;
 * how many cells that is. A range with several coordinates has one spot, which no
 * problem fits. */
uint32_t gen__rows_cells(const gen_library *library, const struct gen__family *family,
                         struct gen__range *range);
/* Fills the keys, the rows' `shared`, the cells and the spots. */
void gen__rows_index(gen_library *library, const struct gen__family *family,
                     struct gen__range *range, struct gen__cell *cells, struct gen__spot *spots);

#endif /* GEN_ROWS_H */
