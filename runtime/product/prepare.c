/* Making a prepared tuning table of what a library was opened with. */
#include "product/prepare.h"
#include "product/grid.h"
#include "product/prepared.h"

#include <stdlib.h>
#include <string.h>

static struct gen__prepared_head head_of(const gen_library *library)
{
    const struct gen__table *t = &library->tables[0];
    struct gen__prepared_head head = {.maker = gen__prepared_maker(),
                                      .num_rows = library->num_rows,
                                      .num_ranges = library->num_ranges,
                                      .compute_capability = t->compute_capability,
                                      .num_sms = t->num_sms,
                                      .memory_gbps = t->memory_gbps,
                                      .l2_bytes = t->l2_bytes,
                                      .num_bad = t->num_bad,
                                      .num_expired = t->num_expired,
                                      .num_ptx = t->num_ptx,
                                      .reason_line = t->reason_line};
    memcpy(head.class_name, t->class_name, sizeof(head.class_name));
    memcpy(head.reason, t->reason, sizeof(head.reason));
    /* Behind the NULs, too, so that the same table is the same bytes. */
    memset(head.class_name + strlen(head.class_name), 0,
           sizeof(head.class_name) - strlen(head.class_name));
    memset(head.reason + strlen(head.reason), 0, sizeof(head.reason) - strlen(head.reason));
    return head;
}

/* The lists' bytes stand between the cells and the steps. */
static struct gen__prepared_grid grid_of(const struct gen__grid *grid)
{
    const size_t steps = grid->place.steps[0] * sizeof(struct gen__step);
    struct gen__prepared_grid out = {
        .num_coords = grid->num_coords, .num_rows = grid->num_rows, .num_cells = grid->num_cells};
    out.num_blocks = (uint32_t)((steps - gen__grid_cells_size(grid->num_cells)) /
                                gen__block_size(grid->num_coords));
    memcpy(out.low, grid->place.low, sizeof(out.low));
    memcpy(out.high, grid->place.high, sizeof(out.high));
    return out;
}

/* In whole lines; the grid's own head left out. */
static size_t bytes_of(const struct gen__grid *grid)
{
    return (grid->bytes - sizeof(*grid) + GEN__LINE - 1) / GEN__LINE * GEN__LINE;
}

static uint32_t place_of(const gen_library *library, const struct gen__range *range)
{
    uint32_t i = 0;
    for (const struct gen__grid *grid = library->grids; grid; grid = grid->next, i++)
        if (range->place.at && grid->place.at == range->place.at)
            return i;
    return GEN__NO_GRID;
}

static void write_rows(const gen_library *library, struct gen__prepared_row *rows)
{
    for (uint32_t i = 0; i < library->num_rows; i++) {
        const struct gen__row *row = &library->rows[i];
        rows[i] = (struct gen__prepared_row){.us = row->us,
                                             .runner_up_us = row->runner_up_us,
                                             .variant = row->facts->index,
                                             .runner_up = row->runner_up};
        memcpy(rows[i].counts, row->counts, sizeof(rows[i].counts));
    }
}

static void write_ranges(const gen_library *library, struct gen__prepared_range *ranges)
{
    const struct gen__pack *pack = &library->pack;
    for (uint32_t i = 0; i < library->num_ranges; i++) {
        const struct gen__range *range = &library->ranges[i];
        const uint32_t variant = library->rows[range->first_row].facts->index;
        ranges[i] = (struct gen__prepared_range){.group = pack->variants[variant].group,
                                                 .num_rows = range->num_rows,
                                                 .grid = place_of(library, range),
                                                 .plain = place_of(library, &library->plain[i])};
    }
}

/* Of a library that holds the one table. NULL: out of memory. */
static void *write_table(const gen_library *library, size_t *size)
{
    struct gen__prepared_head head = head_of(library);
    size_t grids_size = 0;
    for (const struct gen__grid *grid = library->grids; grid; grid = grid->next) {
        head.num_grids++;
        grids_size += bytes_of(grid);
    }
    const size_t rows = sizeof(head);
    const size_t ranges = rows + head.num_rows * sizeof(struct gen__prepared_row);
    const size_t grids = ranges + head.num_ranges * sizeof(struct gen__prepared_range);
    size_t at = grids + head.num_grids * sizeof(struct gen__prepared_grid);
    at = (at + GEN__LINE - 1) / GEN__LINE * GEN__LINE;
    unsigned char *out = calloc(1, at + grids_size);
    if (!out)
        return NULL;
    memcpy(out, &head, sizeof(head));
    write_rows(library, (struct gen__prepared_row *)(void *)(out + rows));
    write_ranges(library, (struct gen__prepared_range *)(void *)(out + ranges));
    struct gen__prepared_grid *next = (struct gen__prepared_grid *)(void *)(out + grids);
    for (const struct gen__grid *grid = library->grids; grid; grid = grid->next) {
        *next++ = grid_of(grid);
        memcpy(out + at, grid + 1, grid->bytes - sizeof(*grid));
        at += bytes_of(grid);
    }
    *size = at;
    return out;
}

enum gen_status gen__prepare(const void *data, size_t size, uint32_t table, void **prepared,
                             size_t *prepared_size)
{
    const gen_open_options options = {.size = sizeof(options), .data = data, .data_size = size};
    gen_library *library = NULL;
    enum gen_status status = gen__open_only(&options, table, &library);
    *prepared = NULL;
    *prepared_size = 0;
    if (status)
        return status == GEN_STATUS_OUT_OF_MEMORY ? status : GEN_OK;
    if (!library->tables[0].refused) {
        *prepared = write_table(library, prepared_size);
        if (!*prepared)
            status = gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to prepare table %u", table);
    }
    gen_close(library);
    return status;
}
