/* The parts of searching tuning rows that are not on the shortest path. */
#include "rows.h"

/* What a row's variant needs of a device of the row's class. */
static uint64_t shared_of(const struct gen__row *row, uint32_t compute_capability)
{
    if (!gen__code_runs(row->target_kind, row->target_cc, compute_capability))
        return GEN__NEVER;
    return (uint64_t)row->facts.shared_dynamic + row->facts.shared_static;
}

static void index_cells(const struct gen__range *range, const float *keys, uint32_t *cells)
{
    uint32_t below = 0;
    for (uint32_t i = 1; i < GEN__NUM_CELLS; i++) {
        while (below < range->num_rows && keys[below] < (float)i / GEN__CELLS_PER_DOUBLING)
            below++;
        cells[i] = below;
    }
    cells[0] = 0;
    cells[GEN__NUM_CELLS] = range->num_rows;
}

/* The rows on both sides of each knot; of rows with the same coordinate the
 * first counts. */
static void index_sides(const struct gen__range *range, const float *keys, struct gen__knot *knots)
{
    const uint32_t count = range->num_rows;
    uint32_t left = 0;
    for (uint32_t i = 0; i <= count; i++) {
        if (i > 1 && keys[i - 1] != keys[i - 2])
            left = i - 1;
        knots[i].left = keys[(ptrdiff_t)i - 1];
        knots[i].right = keys[i];
        knots[i].side[0] = left;
        knots[i].side[1] = i == count || (i > 0 && keys[i] == keys[i - 1]) ? left : i;
    }
}

void gen__rows_index(gen_library *library, const struct gen__range *range)
{
    struct gen__row *rows = library->rows + range->first_row;
    float *keys = library->keys + range->first_key;
    struct gen__knot *knots = library->knots + range->first_knot;
    const uint32_t count = range->num_rows;
    keys[-1] = -INFINITY;
    for (uint32_t i = 0; i < gen__keys_of(count) - 1; i++)
        keys[i] = i < count ? rows[i].coords[0] : INFINITY;
    /* knots[i] tells the time from row i - 1 to row i. Of rows with the same
     * coordinate the first counts. */
    knots[0] = (struct gen__knot){.coord = rows[0].coords[0], .log2_us = rows[0].log2_us};
    for (uint32_t i = 0; i < count; i++) {
        struct gen__knot *k = &knots[i + 1];
        if (i > 0 && rows[i].coords[0] == rows[i - 1].coords[0]) {
            *k = *(k - 1);
            continue;
        }
        uint32_t next = i + 1;
        while (next < count && rows[next].coords[0] == rows[i].coords[0])
            next++;
        *k = (struct gen__knot){
            .coord = rows[i].coords[0], .log2_us = rows[i].log2_us, .slope = 1.0f};
        if (next < count)
            k->slope =
                (rows[next].log2_us - rows[i].log2_us) / (rows[next].coords[0] - rows[i].coords[0]);
    }
    for (uint32_t i = 0; i < count; i++)
        rows[i].shared = shared_of(&rows[i], range->compute_capability);
    index_cells(range, keys, library->cells + range->first_cell);
    index_sides(range, keys, knots);
}

static float distance_to(const struct gen__probe *probe, uint32_t row)
{
    float sum = 0.0f;
    for (uint32_t c = 0; c < probe->num_coords; c++)
        sum += fabsf(probe->rows[row].coords[c] - probe->coords[c]);
    return sum;
}

struct search {
    const struct gen__probe *probe;
    uint32_t last, best;
    float last_distance, best_distance;
};

static void look(struct search *s, uint32_t row)
{
    const float d = distance_to(s->probe, row);
    const bool behind =
        s->last == GEN__NO_ROW || d > s->last_distance || (d == s->last_distance && row > s->last);
    if (behind && (d < s->best_distance || (d == s->best_distance && row < s->best))) {
        s->best = row;
        s->best_distance = d;
    }
}

/* In the order of distance, and then of rows. Walks outwards from the bound and
 * stops where the first coordinate alone is too far. */
uint32_t gen__rows_next(const struct gen__probe *probe, uint32_t last, float *distance)
{
    struct search s = {probe, last, GEN__NO_ROW, *distance, INFINITY};
    const float x = probe->coords[0];
    for (uint32_t i = probe->bound; i < probe->count; i++) {
        if (probe->keys[i] - x > s.best_distance)
            break;
        look(&s, i);
    }
    for (uint32_t i = probe->bound; i-- > 0;) {
        if (x - probe->keys[i] > s.best_distance)
            break;
        look(&s, i);
    }
    *distance = s.best_distance;
    return s.best;
}

float gen__rows_time(const struct gen__probe *probe)
{
    const struct gen__row *rows = probe->rows;
    float distance = 0.0f;
    const uint32_t nearest = gen__rows_next(probe, GEN__NO_ROW, &distance);
    if (distance == 0.0f)
        return rows[nearest].log2_us;
    float second_distance = distance;
    const uint32_t second = gen__rows_next(probe, nearest, &second_distance);
    if (second == GEN__NO_ROW)
        return rows[nearest].log2_us;
    const float part = distance / (distance + second_distance);
    return rows[nearest].log2_us + part * (rows[second].log2_us - rows[nearest].log2_us);
}
