/* The parts of searching tuning rows that are not on the shortest path. */
#include "rows.h"

void gen__rows_index(gen_library *library, const struct gen__range *range)
{
    const struct gen__row *rows = library->rows + range->first_row;
    float *keys = library->keys + range->first_key;
    struct gen__knot *knots = library->knots + range->first_knot;
    const uint32_t count = range->num_rows;
    keys[-1] = -INFINITY;
    for (uint32_t i = 0; i < gen__keys_of(count) - 1; i++)
        keys[i] = i < count ? rows[i].coords[0] : INFINITY;
    /* knots[i] tells the time from row i - 1 to row i. Of rows with the same
     * coordinate the first counts. */
    knots[0] = (struct gen__knot){rows[0].coords[0], rows[0].log2_us, 0.0f};
    for (uint32_t i = 0; i < count; i++) {
        struct gen__knot *k = &knots[i + 1];
        if (i > 0 && rows[i].coords[0] == rows[i - 1].coords[0]) {
            *k = *(k - 1);
            continue;
        }
        uint32_t next = i + 1;
        while (next < count && rows[next].coords[0] == rows[i].coords[0])
            next++;
        *k = (struct gen__knot){rows[i].coords[0], rows[i].log2_us, 1.0f};
        if (next < count)
            k->slope =
                (rows[next].log2_us - rows[i].log2_us) / (rows[next].coords[0] - rows[i].coords[0]);
    }
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

uint32_t gen__rows_nearest_of_many(const struct gen__probe *probe, float *distance)
{
    return gen__rows_next(probe, GEN__NO_ROW, distance);
}

float gen__rows_time_of_many(const struct gen__probe *probe, uint32_t nearest, float distance)
{
    const struct gen__row *rows = probe->rows;
    if (distance == 0.0f)
        return rows[nearest].log2_us;
    float second_distance = distance;
    const uint32_t second = gen__rows_next(probe, nearest, &second_distance);
    if (second == GEN__NO_ROW)
        return rows[nearest].log2_us;
    const float part = distance / (distance + second_distance);
    return rows[nearest].log2_us + part * (rows[second].log2_us - rows[nearest].log2_us);
}
