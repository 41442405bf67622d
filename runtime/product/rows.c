/* Indexing tuning rows, and the parts of searching them that are not on the
 * shortest path. */
#include "product/rows.h"

#define ALL(x)     \
    {              \
        x, x, x, x \
    }
const struct gen__lanes_terms gen__lanes_terms = {
    .terms = {ALL(65536 * 0.44191703f), ALL(65536 * -0.26717935f), ALL(65536 * 0.14842653f),
              ALL(65536 * -0.04514898f)},
    .mantissa = ALL(0x7fff80u),
    .one = ALL(0x3f800000u),
    .distance = ALL(0x7fffffffu),
};

/* ---- building ---------------------------------------------------------- */

/* A curve further from the time than this is not used. */
#define CURVE_ERROR 5e-4

/* What a row's variant needs of a device of the row's class. */
static uint64_t shared_of(const gen_library *library, const struct gen__row *row,
                          uint32_t compute_capability)
{
    const struct gen__facts *facts = row->facts;
    if (!gen__target_runs(gen__variant_target(&library->pack, facts->index), compute_capability))
        return GEN__NEVER;
    return (uint64_t)facts->shared_dynamic + facts->shared_static;
}

/* The greatest number that is not nearer to b than to a < b. Products of two
 * floats are exact in double. */
static float halfway(float a, float b)
{
    const double product = (double)a * (double)b;
    float x = (float)sqrt(product);
    while ((double)x * (double)x > product)
        x = nextafterf(x, 0.0f);
    for (;;) {
        const float next = nextafterf(x, INFINITY);
        if ((double)next * (double)next > product)
            return x;
        x = next;
    }
}

/* The next row with another coordinate; num_rows at the end. Of rows with the
 * same coordinate the first counts. */
static uint32_t next_distinct(const struct gen__range *range, const struct gen__row *rows,
                              uint32_t row)
{
    uint32_t next = row + 1;
    while (next < range->num_rows && rows[next].counts[0] == rows[row].counts[0])
        next++;
    return next;
}

uint32_t gen__rows_cells(const gen_library *library, const struct gen__family *family,
                         struct gen__range *range)
{
    if (family->num_coords != 1) {
        range->num_spots = 1;
        return 1;
    }
    const struct gen__row *rows = library->rows + range->first_row;
    float first = rows[0].counts[0], last = first;
    range->num_spots = 0;
    for (uint32_t i = 0; i < range->num_rows;) {
        const uint32_t next = next_distinct(range, rows, i);
        if (next < range->num_rows) {
            last = halfway(rows[i].counts[0], rows[next].counts[0]);
            first = i == 0 ? last : first;
        }
        range->num_spots++;
        i = next;
    }
    /* One cell more than the last end needs: there the last spot is alone. */
    range->first_cell = gen__cell_of(first);
    range->last_cell = gen__cell_of(last) + 1;
    return range->last_cell - range->first_cell + 1;
}

/* us * (x / count) ^ power as a parabola from the row to `end`, `growth` times
 * its time: true at both and in the middle, if it is near enough in between. Its
 * error is the third derivative's greatest value, over 6, times the greatest
 * t (t - T/2) (t - T) of the relative distance t in [0, T]. */
static void fit_curve(struct gen__spot *spot, int side, float end, double power, double growth)
{
    const double count = (double)spot->count, us = (double)spot->us;
    const double t = (double)end / count - 1;
    spot->power[side] = (float)power;
    if (t == 0.0) { /* the row alone */
        spot->slope[side] = spot->curve[side] = 0.0f;
        return;
    }
    const double half = ((double)powf((float)(1 + t / 2), (float)power) - 1) / (t / 2);
    const double whole = (growth - 1) / t;
    const double curve = (whole - half) / (t / 2);
    const double error = 0.3849 / 6 * fabs(t * t * t / 8 * power * (power - 1) * (power - 2)) *
                         fmax(growth, 1 / growth) * fmax(1, 1 / ((1 + t) * (1 + t) * (1 + t)));
    spot->slope[side] = error <= CURVE_ERROR ? (float)(us / count * (half - curve * t / 2)) : NAN;
    spot->curve[side] = (float)(us / count / count * curve);
}

static void fill_spots(const struct gen__range *range, const struct gen__row *rows,
                       struct gen__spot *spots)
{
    struct gen__spot *spot = spots;
    for (uint32_t i = 0; i < range->num_rows; spot++) {
        const uint32_t next = next_distinct(range, rows, i);
        spot->count = rows[i].counts[0];
        spot->us = rows[i].us;
        spot->row = i;
        spot->shared = rows[i].shared;
        spot->facts = rows[i].facts;
        spot->fits_all = gen__row_fits_all(&rows[i]);
        spot->upto = INFINITY;
        /* Constant before the first row and proportional behind the last. */
        spot->power[1] = 1.0f;
        spot->slope[1] = spot->us / spot->count;
        if (next < range->num_rows)
            spot->upto = halfway(spot->count, rows[next].counts[0]);
        i = next;
    }
    for (struct gen__spot *a = spots; a + 1 < spot; a++) {
        struct gen__spot *b = a + 1;
        const double rise = (double)b->us / (double)a->us;
        const double power = log(rise) / log((double)b->count / (double)a->count);
        fit_curve(a, 1, a->upto, power, sqrt(rise));
        fit_curve(b, 0, a->upto, power, 1 / sqrt(rise));
    }
}

static void fill_cells(const struct gen__range *range, struct gen__cell *cells,
                       const struct gen__spot *spots)
{
    uint32_t spot = 0;
    for (uint32_t cell = range->first_cell; cell <= range->last_cell; cell++) {
        while (gen__cell_of(spots[spot].upto) < cell)
            spot++;
        cells[cell - range->first_cell] = (struct gen__cell){spots[spot].upto, spot};
    }
}

void gen__rows_index(gen_library *library, const struct gen__family *family,
                     struct gen__range *range, struct gen__cell *cells, struct gen__spot *spots)
{
    struct gen__row *rows = library->rows + range->first_row;
    float *keys = library->keys + range->first_key;
    const uint32_t count = range->num_rows;
    keys[-1] = -INFINITY;
    for (uint32_t i = 0; i < gen__keys_of(count) - 1; i++)
        keys[i] = i < count ? rows[i].logs[0] : INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        const struct gen__facts *facts = rows[i].facts;
        rows[i].shared = shared_of(library, &rows[i], range->compute_capability);
        library->variants[facts->index].fits_all = family->fits_all && family->fits_all(facts);
    }
    range->cells = cells;
    range->spots = spots;
    range->rows = rows;
    if (family->num_coords != 1) {
        spots[0] = (struct gen__spot){.upto = INFINITY, .shared = GEN__NEVER};
        cells[0] = (struct gen__cell){INFINITY, 0};
        return;
    }
    fill_spots(range, rows, spots);
    fill_cells(range, cells, spots);
}

/* ---- one coordinate ---------------------------------------------------- */

const struct gen__spot *gen__spot_search(const struct gen__range *range, float x)
{
    uint32_t low = 0, high = range->num_spots - 1; /* whose upto is infinite */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (x > range->spots[middle].upto)
            low = middle + 1;
        else
            high = middle;
    }
    return &range->spots[low];
}

float gen__spot_time_exact(const struct gen__spot *spot, float x)
{
    const double power = (double)spot->power[x > spot->count];
    return (float)((double)spot->us * pow((double)x / (double)spot->count, power));
}

/* ---- any number of coordinates ----------------------------------------- */

/* How many of the sorted keys are below x. */
static uint32_t keys_below(const float *keys, uint32_t count, float x)
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

void gen__probe_set(struct gen__probe *probe, const gen_library *library,
                    const struct gen__range *range, uint32_t num_coords,
                    const float counts[GEN__MAX_COORDS], float scale)
{
    probe->rows = library->rows + range->first_row;
    probe->keys = library->keys + range->first_key;
    probe->count = range->num_rows;
    probe->num_coords = num_coords;
    for (uint32_t c = 0; c < num_coords; c++)
        probe->logs[c] = gen__doublings(c ? counts[c] : counts[c] * scale);
    probe->bound = keys_below(probe->keys, probe->count, probe->logs[0]);
}

static float distance_to(const struct gen__probe *probe, uint32_t row)
{
    float sum = 0.0f;
    for (uint32_t c = 0; c < probe->num_coords; c++)
        sum += fabsf(probe->rows[row].logs[c] - probe->logs[c]);
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
    const float x = probe->logs[0];
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

float gen__rows_time(const struct gen__probe *probe, uint32_t *nearest)
{
    const struct gen__row *rows = probe->rows;
    float distance = 0.0f;
    *nearest = gen__rows_next(probe, GEN__NO_ROW, &distance);
    float second_distance = distance;
    const uint32_t second = gen__rows_next(probe, *nearest, &second_distance);
    const uint32_t other = second == GEN__NO_ROW ? *nearest : second;
    return gen__mean_time(&rows[*nearest], &rows[other], gen__part(distance, second_distance));
}
