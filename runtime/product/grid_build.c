/* Building a grid: where cells end, and the grid in one piece. */
#include "product/grid_build.h"

#include <stdlib.h>

#define MAX_SPAN 128.0f /* doublings of all coordinates together */
#define STEP_BITS 20    /* of a number, that its step does not hang on */

/* ---- slabs ------------------------------------------------------------- */

static int order_floats(const void *x, const void *y)
{
    const float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

/* Sorts `values` and drops what is there twice; how many remain. */
static uint32_t distinct(float *values, uint32_t count)
{
    uint32_t kept = 1;
    qsort(values, count, sizeof(*values), order_floats);
    for (uint32_t i = 1; i < count; i++)
        if (values[i] != values[kept - 1])
            values[kept++] = values[i];
    return kept;
}

static float number_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The bits of the least number whose logarithm is not below `log`. */
static uint32_t least_bits(float log)
{
    const float guess = exp2f(log);
    uint32_t bits;
    memcpy(&bits, &guess, sizeof(bits));
    bits &= ~127u; /* the logarithm is of the first 16 bits */
    while (gen__doublings(number_of(bits)) >= log)
        bits -= 128;
    do
        bits += 128;
    while (gen__doublings(number_of(bits)) < log);
    return bits;
}

/* Ends slabs half way between neighbouring values and, where `finer`, at the
 * values too; with too many of these, at some. A step has room for the beginning of
 * one slab. */
static void cut_slabs(struct gen__builder *b, uint32_t c, const float *values, uint32_t count,
                      uint32_t most, bool finer)
{
    const uint32_t wanted = count < 2 ? 1 : finer ? 2 * count - 2 : count;
    uint32_t num_slabs = 1, last_step = 0;
    for (uint32_t i = 1; i < wanted && num_slabs < most; i++) {
        /* Of `wanted` - 1 cuts the ones that come next when `most` - 1 are spread evenly. */
        if (wanted > most && i * most / wanted == (i - 1) * most / wanted)
            continue;
        const float left = values[finer ? i / 2 : i - 1], right = values[finer ? (i + 1) / 2 : i];
        /* Half way the left one is the nearer still. */
        const float begin =
            floorf((left + right) / 2 / GEN__LOG_UNIT) * GEN__LOG_UNIT + GEN__LOG_UNIT;
        const uint32_t bits = least_bits(begin), step = (bits - 1) >> STEP_BITS;
        if (step == last_step)
            continue;
        last_step = step;
        b->begin[c][num_slabs] = begin;
        b->begin_bits[c][num_slabs++] = bits;
    }
    b->num_slabs[c] = num_slabs;
}

static uint32_t product(const uint32_t *factors, uint32_t count)
{
    uint32_t all = 1;
    for (uint32_t c = 0; c < count; c++)
        all *= factors[c];
    return all;
}

/* As many slabs as rows and the limits allow. */
static void choose_slabs(struct gen__builder *b, float *const values[], const uint32_t *count)
{
    uint32_t most[GEN__MAX_COORDS];
    for (uint32_t c = 0; c < b->num_coords; c++)
        most[c] = count[c] < GEN__MAX_SLABS ? count[c] : GEN__MAX_SLABS;
    while (product(most, b->num_coords) > GEN__MAX_CELLS) {
        uint32_t largest = 0;
        for (uint32_t c = 1; c < b->num_coords; c++)
            largest = most[c] > most[largest] ? c : largest;
        most[largest]--;
    }
    for (uint32_t c = 0; c < b->num_coords; c++) {
        const uint32_t before = most[c];
        const bool finer = before == count[c] && 2 * before <= GEN__MAX_SLABS && before > 1 &&
                           2 * product(most, b->num_coords) <= GEN__MAX_CELLS;
        most[c] = finer ? 2 * before : before;
        cut_slabs(b, c, values[c], count[c], most[c], finer);
        most[c] = b->num_slabs[c];
    }
    b->num_cells = 1;
    for (uint32_t c = 0; c < b->num_coords; c++) {
        b->stride[c] = b->num_cells;
        b->num_cells *= b->num_slabs[c];
    }
}

/* ---- building ---------------------------------------------------------- */

static bool start(struct gen__builder *b, const struct gen__row *rows, uint32_t count)
{
    const size_t room = (size_t)(count + 3) / 4 * 4, C = b->num_coords;
    const size_t floats = room * ((GEN__MAX_DEPTH + 2) * C + 2 * C + 1);
    const size_t lists = GEN__MAX_LISTS(b->num_coords);
    unsigned char *memory =
        malloc(lists + floats * sizeof(float) + (GEN__MAX_DEPTH + 2) * room * sizeof(uint16_t));
    b->memory = memory;
    if (!memory)
        return false;
    b->lists = memory;
    float *f = (float *)(void *)(memory + lists);
    uint16_t *r = (uint16_t *)(void *)(f + floats);
    for (uint32_t c = 0; c < C; c++) {
        b->from_low[c] = f;
        b->from_high[c] = f + room;
        f += 2 * room;
    }
    b->lost = (int32_t *)(void *)f;
    f += room;
    for (uint32_t d = 0; d < GEN__MAX_DEPTH + 2; d++, r += room) {
        b->of_depth[d].rows = r;
        for (uint32_t c = 0; c < C; c++, f += room)
            b->of_depth[d].logs[c] = f;
    }
    struct gen__candidates *all = &b->of_depth[0];
    all->count = count;
    for (uint32_t i = 0; i < room; i++) {
        all->rows[i] = (uint16_t)i;
        for (uint32_t c = 0; c < C; c++)
            all->logs[c][i] = i < count ? rows[i].logs[c] : INFINITY;
    }
    return true;
}

/* Slabs, and the lists of all cells. */
static void build(struct gen__builder *b)
{
    struct gen__candidates *all = &b->of_depth[0];
    uint32_t num_values[GEN__MAX_COORDS];
    for (uint32_t c = 0; c < b->num_coords; c++) {
        float *values = b->of_depth[1].logs[c];
        memcpy(values, all->logs[c], all->count * sizeof(*values));
        num_values[c] = distinct(values, all->count);
        b->low[c] = values[0];
        b->high[c] = values[num_values[c] - 1];
    }
    choose_slabs(b, b->of_depth[1].logs, num_values);
    gen__grid_fill(b);
}

/* The steps of a coordinate: from where the second slab begins to where the last one
 * does. How many. */
static uint32_t fill_steps(const struct gen__builder *b, uint32_t c, struct gen__place *place,
                           struct gen__step *steps)
{
    const uint32_t last_slab = b->num_slabs[c] - 1;
    const uint32_t low = last_slab ? (b->begin_bits[c][1] - 1) >> STEP_BITS : 0;
    const uint32_t high = last_slab ? (b->begin_bits[c][last_slab] - 1) >> STEP_BITS : 0;
    uint32_t slab = 0;
    for (uint32_t step = low; step <= high && steps; step++) {
        const bool ends = slab < last_slab && (b->begin_bits[c][slab + 1] - 1) >> STEP_BITS == step;
        const uint32_t above = ends ? slab + 1 : slab;
        steps[step - low] =
            (struct gen__step){.upto = ends ? b->begin_bits[c][slab + 1] - 1 : UINT32_MAX,
                               .add = (uint16_t)(slab * b->stride[c]),
                               .more = (uint16_t)((above - slab) * b->stride[c])};
        slab = above;
    }
    place->low[c] = (int16_t)low;
    place->high[c] = (int16_t)high;
    return high - low + 1;
}

/* What was built, in one piece. */
static struct gen__grid *finish(const struct gen__builder *b)
{
    struct gen__place place = {0};
    const struct gen__candidates *rows = &b->of_depth[0];
    const size_t all = gen__blocks_of(rows->count) * gen__block_size(b->num_coords);
    const size_t cells = gen__grid_cells_size(b->num_cells), steps_at = cells + b->lists_size;
    size_t num_steps = 0;
    for (uint32_t c = 0; c < b->num_coords; c++)
        num_steps += fill_steps(b, c, &place, NULL);
    const size_t bytes =
        sizeof(struct gen__grid) + all + steps_at + num_steps * sizeof(struct gen__step);
    struct gen__grid *grid = gen__calloc_lines(1, bytes);
    if (!grid)
        return NULL;
    gen__grid_write(b, rows, (unsigned char *)(grid + 1));
    unsigned char *at = (unsigned char *)(grid + 1) + all;
    memcpy(at, b->cells, b->num_cells * sizeof(b->cells[0]));
    memcpy(at + cells, b->lists, b->lists_size);
    struct gen__step *steps = (struct gen__step *)(void *)at;
    size_t next = steps_at / sizeof(*steps);
    for (uint32_t c = 0; c < b->num_coords; c++) {
        place.steps[c] = (uint16_t)next;
        next += fill_steps(b, c, &place, steps + next);
    }
    place.at = at;
    grid->place = place;
    grid->num_coords = b->num_coords;
    grid->num_cells = b->num_cells;
    grid->bytes = (uint32_t)bytes;
    return grid;
}

/* A grid that was built for the same coordinates. */
static struct gen__grid *same_grid(const gen_library *library, uint32_t num_coords,
                                   const struct gen__range *range)
{
    const struct gen__row *rows = range->rows;
    for (struct gen__grid *grid = library->grids; grid; grid = grid->next) {
        const struct gen__row *others = grid->rows;
        uint32_t i = 0;
        if (grid->num_coords != num_coords || grid->num_rows != range->num_rows)
            continue;
        while (i < range->num_rows && !memcmp(rows[i].logs, others[i].logs, sizeof(rows[i].logs)))
            i++;
        if (i == range->num_rows)
            return grid;
    }
    return NULL;
}

/* Few enough rows, and near enough together for exact distances? */
static bool suits(const struct gen__row *rows, uint32_t count, uint32_t num_coords)
{
    float span = 0.0f;
    for (uint32_t c = 0; c < num_coords; c++) {
        float low = rows[0].logs[c], high = low;
        for (uint32_t i = 1; i < count; i++) {
            low = rows[i].logs[c] < low ? rows[i].logs[c] : low;
            high = rows[i].logs[c] > high ? rows[i].logs[c] : high;
        }
        span += high - low;
    }
    return count <= GEN__GRID_MAX_ROWS && span <= MAX_SPAN;
}

bool gen__grid_index(gen_library *library, uint32_t num_coords, struct gen__range *range)
{
    const struct gen__row *rows = range->rows;
    if (!suits(rows, range->num_rows, num_coords))
        return true;
    struct gen__grid *grid = same_grid(library, num_coords, range);
    if (!grid) {
        struct gen__builder *b = calloc(1, sizeof(*b));
        if (b) {
            b->num_coords = num_coords;
            if (start(b, rows, range->num_rows)) {
                build(b);
                grid = finish(b);
            }
            free(b->memory);
        }
        free(b);
        if (!grid)
            return false;
        grid->rows = rows;
        grid->num_rows = range->num_rows;
        grid->next = library->grids;
        library->grids = grid;
    }
    range->place = grid->place;
    return true;
}

/* ---- rows by variant --------------------------------------------------- */

/* The variants in the order of their first rows; false where they are too many. */
static bool list_variants(const struct gen__range *range, struct gen__slots *slots)
{
    for (uint32_t i = 0; i < range->num_rows; i++) {
        uint32_t slot = 0;
        while (slot < slots->count && range->rows[slots->row[slot]].facts != range->rows[i].facts)
            slot++;
        if (slot == GEN__MAX_SLOTS)
            return false;
        if (slot == slots->count)
            slots->row[slots->count++] = (uint16_t)i;
    }
    return true;
}

size_t gen__slots_fill(const struct gen__range *range, uint32_t num_coords,
                       struct gen__slots *slots)
{
    unsigned char *const blocks = (unsigned char *)(slots + 1);
    const size_t size = gen__block_size(num_coords);
    uint32_t end = 0;
    if (!list_variants(range, slots))
        slots->count = 0;
    for (uint32_t slot = 0; slot < slots->count; slot++) {
        const struct gen__facts *variant = range->rows[slots->row[slot]].facts;
        uint32_t count = 0;
        for (uint32_t i = slots->row[slot]; i < range->num_rows; i++) {
            if (range->rows[i].facts != variant)
                continue;
            const uint32_t place = count++ % GEN__GRID_BLOCK;
            end += place == 0;
            if (place == 0)
                gen__grid_clear(blocks + (end - 1) * size, num_coords);
            gen__grid_set(blocks + (end - 1) * size, num_coords, place, range->rows[i].logs, i);
        }
        slots->end[slot] = (uint16_t)end;
    }
    return (sizeof(*slots) + end * size + GEN__LINE - 1) / GEN__LINE * GEN__LINE;
}

void gen__grids_free(gen_library *library)
{
    while (library->grids) {
        struct gen__grid *next = library->grids->next;
        free(library->grids);
        library->grids = next;
    }
}
