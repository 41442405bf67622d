/* Reading prepared tuning tables: every number is checked before it is followed. */
#include "product/prepared.h"
#include "product/grid.h"
#include "product/rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define GEN__STEP_BITS 11 /* of a number: its sign and what gen__cell_of() keeps */

/* ---- the maker --------------------------------------------------------- */

static uint64_t mix_text(uint64_t h, const char *text)
{
    return gen_pack_mix(h, gen_pack_hash(text, strlen(text)));
}

static uint64_t mix_family(uint64_t h, const struct gen__family *family)
{
    h = mix_text(h, family->name);
    for (uint32_t c = 0; c < family->num_coords; c++)
        h = mix_text(h, family->coords[c]);
    for (uint32_t a = 0; a < family->num_required; a++) {
        h = mix_text(h, family->required[a].name);
        for (uint32_t v = 0; v < family->required[a].num_values; v++)
            h = mix_text(h, family->required[a].values[v]);
    }
    h = gen_pack_mix(h, family->choosy != NULL);
    return gen_pack_mix(h, (uint64_t)family->num_coords << 32 | family->num_required);
}

uint64_t gen__prepared_maker(void)
{
    const uint32_t layout[] = {GEN__PREPARED_VERSION,
                               sizeof(struct gen__prepared_head),
                               sizeof(struct gen__prepared_row),
                               sizeof(struct gen__prepared_range),
                               sizeof(struct gen__prepared_grid),
                               sizeof(struct gen__step),
                               GEN__MAX_COORDS,
                               GEN__GRID_BLOCK,
                               GEN__GRID_BLOCKS,
                               GEN__GRID_BLOCK_BITS,
                               GEN__GRID_ALL,
                               GEN__GRID_NOWHERE};
    uint64_t h = gen_pack_hash(layout, sizeof(layout));
    /* The logarithms that grids are made of. */
    gen__int_lanes logs[16];
    for (uint32_t i = 0; i < 16; i++) {
        const float x = 1.0f + (float)i / 16;
        logs[i] = gen__lanes_log2((gen__lanes){x, 3.7f * x, 0.3f * x, 40960.0f * x});
    }
    h = gen_pack_mix(h, gen_pack_hash(logs, sizeof(logs)));
    for (uint32_t i = 0; i < gen__num_families; i++)
        h = mix_family(h, gen__families[i]);
    return h;
}

/* ---- grids ------------------------------------------------------------- */

/* Of a grid: its parts, in bytes, and where they begin. */
struct parts {
    size_t block;        /* one */
    size_t cells, size;  /* of all: where the cells are, and where its bytes end */
    size_t lists, steps; /* from the cells on */
    uint32_t num_steps;
};

static uint32_t steps_of(const struct gen__prepared_grid *grid, uint32_t c)
{
    return (uint32_t)(grid->high[c] - grid->low[c]) + 1;
}

/* Once its numbers are bounded. */
static struct parts parts_of(const struct gen__prepared_grid *grid)
{
    struct parts p = {.block = gen__block_size(grid->num_coords)};
    p.cells = gen__blocks_of(grid->num_rows) * p.block;
    p.lists = gen__grid_cells_size(grid->num_cells);
    p.steps = p.lists + grid->num_blocks * p.block;
    for (uint32_t c = 0; c < grid->num_coords; c++)
        p.num_steps += steps_of(grid, c);
    p.size = p.cells + p.steps + p.num_steps * sizeof(struct gen__step);
    p.size = (p.size + GEN__LINE - 1) / GEN__LINE * GEN__LINE;
    return p;
}

static bool grid_bounded(const struct gen__prepared_grid *grid)
{
    if (grid->num_coords < 2 || grid->num_coords > GEN__MAX_COORDS || grid->num_rows < 1 ||
        grid->num_rows > GEN__GRID_MAX_ROWS || grid->num_cells < 1 ||
        grid->num_cells > GEN__MAX_CELLS ||
        grid->num_blocks > GEN__MAX_LISTS(grid->num_coords) / gen__block_size(grid->num_coords))
        return false;
    for (uint32_t c = 0; c < grid->num_coords; c++)
        if (grid->low[c] < 0 || grid->high[c] < grid->low[c] ||
            grid->high[c] >= 1 << GEN__STEP_BITS)
            return false;
    const struct parts p = parts_of(grid);
    return p.steps / sizeof(struct gen__step) + p.num_steps <= UINT16_MAX;
}

/* Do the blocks hold rows there are, at places of the space of coordinates? */
static bool blocks_ok(const unsigned char *blocks, size_t count, uint32_t num_coords,
                      uint32_t num_rows)
{
    const size_t num_logs = GEN__GRID_BLOCK * (size_t)num_coords;
    const size_t size = gen__block_size(num_coords);
    uint32_t most_log = 0, most_row = 0;
    for (size_t b = 0; b < count; b++, blocks += size) {
        const uint32_t *logs = (const uint32_t *)(const void *)blocks;
        const uint16_t *rows = (const uint16_t *)(const void *)(logs + num_logs);
        for (size_t i = 0; i < num_logs; i++)
            most_log = logs[i] > most_log ? logs[i] : most_log;
        for (size_t i = 0; i < GEN__GRID_BLOCK; i++)
            most_row = rows[i] > most_row ? rows[i] : most_row;
    }
    return most_log <= GEN__GRID_NOWHERE && most_row < num_rows;
}

/* Do the steps lead to cells, and the cells to lists? */
static bool cells_ok(const struct gen__prepared_grid *grid, const struct parts *p,
                     const unsigned char *at)
{
    const uint32_t *cells = (const uint32_t *)(const void *)at;
    const struct gen__step *step = (const struct gen__step *)(const void *)(at + p->steps);
    uint32_t last = 0;
    for (uint32_t c = 0; c < grid->num_coords; c++) {
        uint32_t most = 0;
        for (uint32_t left = steps_of(grid, c); left > 0; left--, step++)
            most =
                step->add + (uint32_t)step->more > most ? step->add + (uint32_t)step->more : most;
        last += most;
    }
    if (last >= grid->num_cells)
        return false;
    for (uint32_t i = 0; i < grid->num_cells; i++) {
        const size_t begin = (size_t)(cells[i] >> GEN__GRID_BLOCK_BITS) * sizeof(gen__lanes);
        const size_t count = cells[i] % (1u << GEN__GRID_BLOCK_BITS) + 1;
        if (cells[i] == GEN__GRID_ALL)
            continue;
        if (begin < p->lists || (begin - p->lists) % p->block != 0 ||
            (begin - p->lists) / p->block + count > grid->num_blocks)
            return false;
    }
    return true;
}

static bool grids_ok(const struct gen__prepared *prepared)
{
    const unsigned char *data = prepared->data;
    size_t left = prepared->data_size;
    for (uint32_t i = 0; i < prepared->head->num_grids; i++) {
        const struct gen__prepared_grid *grid = &prepared->grids[i];
        if (!grid_bounded(grid))
            return false;
        const struct parts p = parts_of(grid);
        if (p.size > left || !cells_ok(grid, &p, data + p.cells) ||
            !blocks_ok(data, gen__blocks_of(grid->num_rows), grid->num_coords, grid->num_rows) ||
            !blocks_ok(data + p.cells + p.lists, grid->num_blocks, grid->num_coords,
                       grid->num_rows))
            return false;
        data += p.size;
        left -= p.size;
    }
    return left == 0;
}

void gen__prepared_places(const struct gen__prepared *prepared, const unsigned char *at,
                          struct gen__place *places)
{
    for (uint32_t i = 0; i < prepared->head->num_grids; i++) {
        const struct gen__prepared_grid *grid = &prepared->grids[i];
        const struct parts p = parts_of(grid);
        struct gen__place *place = &places[i];
        size_t step = p.steps / sizeof(struct gen__step);
        memset(place, 0, sizeof(*place));
        place->at = at + p.cells;
        for (uint32_t c = 0; c < grid->num_coords; c++) {
            place->low[c] = grid->low[c];
            place->high[c] = grid->high[c];
            place->steps[c] = (uint16_t)step;
            step += steps_of(grid, c);
        }
        at += p.size;
    }
}

/* ---- rows -------------------------------------------------------------- */

static bool positive(float x)
{
    return isnormal(x) && x > 0.0f;
}

/* Is the row as gen__table_parse() lets one through for this compute capability, of the entry, and
 * not before the one in front of it? */
static bool row_ok(const gen_library *library, const struct gen__entry *entry,
                   uint32_t compute_capability, const struct gen__prepared_row *row,
                   const struct gen__prepared_row *before)
{
    const struct gen__pack *pack = &library->pack;
    int order = before ? 0 : 1;
    for (uint32_t c = 0; c < GEN__MAX_COORDS; c++) {
        const float x = row->counts[c];
        if (c < entry->family->num_coords ? !positive(x) : x != 0.0f)
            return false;
        if (order == 0)
            order = gen__order_counts(c, x, before->counts[c]);
    }
    return order >= 0 && positive(row->us) &&
           (row->runner_up_us == 0.0f || positive(row->runner_up_us)) &&
           row->variant < pack->index->num_variants &&
           row->runner_up <= pack->index->num_variants &&
           gen__entry_of_group(library, pack->variants[row->variant].group) == entry &&
           !gen__is_passed_over(library, entry, row->variant, compute_capability);
}

static bool grid_ok(const struct gen__prepared *prepared, uint32_t grid, uint32_t num_coords,
                    uint32_t num_rows)
{
    return grid == GEN__NO_GRID ||
           (grid < prepared->head->num_grids && prepared->grids[grid].num_coords == num_coords &&
            prepared->grids[grid].num_rows == num_rows);
}

/* Of an entry whose family has choosy variants; 0 of others. */
static uint32_t num_plain(const gen_library *library, const struct gen__family *family,
                          const struct gen__prepared_row *rows, uint32_t num_rows)
{
    uint32_t count = 0;
    for (uint32_t i = 0; family->choosy && i < num_rows; i++)
        count += gen__is_plain(family, gen__facts_of(library, rows[i].variant));
    return count;
}

static bool ranges_ok(const gen_library *library, const struct gen__prepared *prepared)
{
    const struct gen__prepared_head *head = prepared->head;
    const struct gen__prepared_row *row = prepared->rows;
    uint32_t left = head->num_rows;
    for (uint32_t i = 0; i < head->num_ranges; i++) {
        const struct gen__prepared_range *range = &prepared->ranges[i];
        if (range->group >= library->pack.index->num_groups || range->num_rows < 1 ||
            range->num_rows > left)
            return false;
        const struct gen__entry *entry = gen__entry_of_group(library, range->group);
        if (!entry)
            return false;
        const struct gen__family *family = entry->family;
        const struct gen__prepared_row *const first = row;
        for (uint32_t k = 0; k < range->num_rows; k++, row++)
            if (!row_ok(library, entry, head->compute_capability, row, k ? row - 1 : NULL))
                return false;
        if (!grid_ok(prepared, range->grid, family->num_coords, range->num_rows) ||
            !grid_ok(prepared, range->plain, family->num_coords,
                     num_plain(library, family, first, range->num_rows)))
            return false;
        left -= range->num_rows;
    }
    return left == 0;
}

struct gen__row gen__prepared_row(const gen_library *library,
                                  const struct gen__prepared_row *prepared, uint32_t num_coords)
{
    struct gen__row row = {.us = prepared->us,
                           .log2_us = log2f(fmaxf(prepared->us, FLT_MIN)),
                           .runner_up_us = prepared->runner_up_us,
                           .runner_up = prepared->runner_up,
                           .facts = gen__facts_of(library, prepared->variant)};
    memcpy(row.counts, prepared->counts, sizeof(row.counts));
    const gen__int_lanes logs = gen__lanes_log2(gen__lanes_load(row.counts));
    for (uint32_t c = 0; c < num_coords; c++)
        row.logs[c] = (float)logs[c] * GEN__LOG_UNIT - GEN__LOG_BIAS;
    return row;
}

/* ---- the whole --------------------------------------------------------- */

static bool head_ok(const struct gen__prepared_head *head)
{
    return head->compute_capability && head->num_sms && head->memory_gbps && head->l2_bytes &&
           memchr(head->class_name, '\0', sizeof(head->class_name)) &&
           memchr(head->reason, '\0', sizeof(head->reason));
}

/* Takes `count` elements off the front of what is left. */
static const void *take(const unsigned char **at, size_t *left, size_t count, size_t size)
{
    const void *taken = *at;
    if (count > *left / size)
        return NULL;
    *at += count * size;
    *left -= count * size;
    return taken;
}

/* The parts; false where they do not fill it. Each element is a multiple of 4 bytes, as are the
 * alignments. */
static bool split(const unsigned char *at, size_t size, struct gen__prepared *p)
{
    const unsigned char *const begin = at;
    size_t left = size;
    p->head = take(&at, &left, 1, sizeof(*p->head));
    if (!p->head || !head_ok(p->head))
        return false;
    p->rows = take(&at, &left, p->head->num_rows, sizeof(*p->rows));
    p->ranges = take(&at, &left, p->head->num_ranges, sizeof(*p->ranges));
    p->grids = take(&at, &left, p->head->num_grids, sizeof(*p->grids));
    if (!p->rows || !p->ranges || !p->grids)
        return false;
    const size_t pad = (GEN__LINE - (size_t)(at - begin) % GEN__LINE) % GEN__LINE;
    if (!take(&at, &left, pad, 1))
        return false;
    p->data = at;
    p->data_size = left;
    return true;
}

enum gen_status gen__prepared_open(const gen_library *library, uint32_t table,
                                   struct gen__prepared *prepared)
{
    const struct gen__pack *pack = &library->pack;
    const struct gen_pack_table *t = &pack->tables[table];
    const unsigned char *at = pack->data + t->prepared_offset;
    const char *what = NULL;
    *prepared = (struct gen__prepared){.head = NULL};
    if (t->prepared_size == 0)
        return GEN_OK;
    if (gen_pack_hash(at, t->prepared_size) != t->prepared_hash)
        what = "is damaged (its hash differs)";
    else if (t->prepared_size < sizeof(uint64_t))
        what = "is malformed";
    if (!what) {
        uint64_t maker;
        memcpy(&maker, at, sizeof(maker));
        if (maker != gen__prepared_maker())
            return GEN_OK;
        if (!split(at, (size_t)t->prepared_size, prepared) || !grids_ok(prepared) ||
            !ranges_ok(library, prepared))
            what = "is malformed";
    }
    if (!what)
        return GEN_OK;
    *prepared = (struct gen__prepared){.head = NULL};
    return gen__fail(GEN_STATUS_FORMAT,
                     "the prepared tuning table %.40s %s; rebuild the product with `attngen build`",
                     gen__pack_string(pack, t->name), what);
}
