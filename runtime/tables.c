/* Reading all tables of a library and laying their rows out for selection. */
#include "grid.h"
#include "rows.h"
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TABLE_BYTES (64u << 20)

static enum gen_status read_stream(FILE *file, const char *path, char **text, size_t *size)
{
    struct stat about;
    size_t capacity = 1u << 16;
    /* Room at once for what is likely to come, and to see that no more does. */
    if (fstat(fileno(file), &about) == 0 && about.st_size >= 0 && about.st_size < MAX_TABLE_BYTES)
        capacity = (size_t)about.st_size + 1;
    char *buffer = malloc(capacity);
    size_t length = 0;
    while (buffer) {
        length += fread(buffer + length, 1, capacity - length, file);
        if (length < capacity)
            break;
        if (capacity >= MAX_TABLE_BYTES) {
            free(buffer);
            return gen__fail(GEN_STATUS_FORMAT, "%s: longer than %u bytes, no tuning table", path,
                             MAX_TABLE_BYTES);
        }
        capacity *= 2;
        char *larger = realloc(buffer, capacity);
        if (!larger)
            free(buffer);
        buffer = larger;
    }
    if (!buffer)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to read it", path);
    if (ferror(file)) {
        free(buffer);
        return gen__fail(GEN_STATUS_IO, "%s: cannot be read: %s", path, strerror(errno));
    }
    *text = buffer;
    *size = length;
    return GEN_OK;
}

static enum gen_status read_file(const char *path, char **text, size_t *size)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return gen__fail(GEN_STATUS_IO, "%s: cannot be opened: %s", path, strerror(errno));
    enum gen_status status = read_stream(file, path, text, size);
    fclose(file);
    return status;
}

static enum gen_status add_table(gen_library *library, const char *name, uint32_t *index)
{
    char *copy = strdup(name);
    if (!copy)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to read it", name);
    *index = library->num_tables++;
    library->tables[*index].name = copy;
    return GEN_OK;
}

/* What a caller's table is made of, until all are read. */
struct text {
    char *at;
    size_t size;
};

static enum gen_status parse_user(gen_library *library, const char *path, struct text *text,
                                  struct gen__pending_list *list)
{
    uint32_t index = 0;
    enum gen_status status = add_table(library, path, &index);
    if (!status)
        status = read_file(path, &text->at, &text->size);
    if (!status)
        status = gen__table_parse(library, index, text->at, text->size, list);
    if (text->at && status == GEN_STATUS_FORMAT)
        gen__fail(status, "%s:%u: %s", path, library->tables[index].reason_line,
                  library->tables[index].reason);
    return status;
}

/* A table that the caller has passed, too, need not be read again: what was found in it holds here
 * as well, but that every good row is shadowed. */
static void same_table(struct gen__table *table, const struct gen__table *passed, uint32_t index)
{
    char *name = table->name;
    *table = *passed;
    table->name = name;
    table->same_as = index + 1;
}

static enum gen_status parse_builtin(gen_library *library, uint32_t i, const struct text *passed,
                                     size_t num_passed, struct gen__pending_list *list)
{
    const struct gen__pack *pack = &library->pack;
    const struct gen_pack_table *t = &pack->tables[i];
    uint32_t index = 0;
    const char *text = (const char *)pack->data + t->offset;
    enum gen_status status = add_table(library, gen__pack_string(pack, t->name), &index);
    for (size_t k = 0; !status && k < num_passed; k++) {
        if (passed[k].size != t->size || memcmp(passed[k].at, text, passed[k].size) != 0)
            continue;
        same_table(&library->tables[index], &library->tables[k], (uint32_t)k);
        return GEN_OK;
    }
    if (!status)
        status = gen__table_parse(library, index, text, (size_t)t->size, list);
    /* Without its table a product is slower, not broken. */
    return status == GEN_STATUS_FORMAT ? GEN_OK : status;
}

static int order_numbers(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

/* By entry, class, table, coordinates, line. */
static int order_pending(const void *x, const void *y)
{
    const struct gen__pending *a = x;
    const struct gen__pending *b = y;
    int order = order_numbers(a->entry, b->entry);
    if (!order)
        order = order_numbers(a->compute_capability, b->compute_capability);
    if (!order)
        order = order_numbers(a->num_sms, b->num_sms);
    if (!order)
        order = order_numbers(a->table, b->table);
    for (int c = 0; !order && c < GEN__MAX_COORDS; c++)
        order = (a->row.counts[c] > b->row.counts[c]) - (a->row.counts[c] < b->row.counts[c]);
    return order ? order : order_numbers(a->line, b->line);
}

/* Are they of one entry and class? */
static bool same_range(const struct gen__pending *a, const struct gen__pending *b)
{
    return a->entry == b->entry && a->compute_capability == b->compute_capability &&
           a->num_sms == b->num_sms;
}

/* Copies the rows; of the rows of one entry and class only those of the first
 * table that has any. */
static void lay_out(gen_library *library, const struct gen__pending_list *list)
{
    struct gen__range *last = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct gen__pending *p = &list->rows[i];
        struct gen__table *t = &library->tables[p->table];
        const bool same_class = i > 0 && same_range(&list->rows[i - 1], p);
        if (same_class && last->table != p->table) {
            t->num_shadowed++;
            continue;
        }
        struct gen__entry *entry = &library->entries[p->entry];
        if (!same_class) {
            last = &library->ranges[library->num_ranges++];
            *last = (struct gen__range){.compute_capability = p->compute_capability,
                                        .num_sms = p->num_sms,
                                        .memory_gbps = t->memory_gbps,
                                        .table = p->table,
                                        .sms = t->num_sms,
                                        .gbps = t->memory_gbps,
                                        .l2_bytes = t->l2_bytes,
                                        .first_row = library->num_rows};
            if (entry->num_ranges++ == 0)
                entry->ranges = last;
        }
        last->num_rows++;
        library->rows[library->num_rows++] = p->row;
        t->num_used++;
    }
}

static const struct gen__family *family_of(const gen_library *library,
                                           const struct gen__range *range)
{
    const uint32_t variant = library->rows[range->first_row].facts->index;
    const struct gen__pack *pack = &library->pack;
    return library->families[pack->groups[pack->variants[variant].group].family];
}

/* The search structures of every range, in three arrays. */
static bool index_ranges(gen_library *library)
{
    size_t num_keys = 0, num_spots = 0, num_cells = 0, slots_size = 0;
    for (uint32_t i = 0; i < library->num_ranges; i++) {
        struct gen__range *range = &library->ranges[i];
        range->first_key = (uint32_t)num_keys + 1;
        num_keys += gen__keys_of(range->num_rows);
        num_cells += gen__rows_cells(library, family_of(library, range), range);
        num_spots += range->num_spots;
        if (family_of(library, range)->num_coords > 1)
            slots_size += gen__slots_size(range->num_rows, family_of(library, range)->num_coords);
    }
    library->keys = calloc(num_keys + 1, sizeof(*library->keys));
    library->cells = calloc(num_cells + 1, sizeof(*library->cells));
    library->spots = gen__calloc_lines(num_spots + 1, sizeof(*library->spots));
    library->slots = gen__calloc_lines(slots_size + 1, 1);
    if (!library->keys || !library->spots || !library->cells || !library->slots)
        return false;
    struct gen__cell *cells = library->cells;
    struct gen__spot *spots = library->spots;
    unsigned char *slots = library->slots;
    for (uint32_t i = 0; i < library->num_ranges; i++) {
        struct gen__range *range = &library->ranges[i];
        gen__rows_index(library, family_of(library, range), range, cells, spots);
        const uint32_t num_coords = family_of(library, range)->num_coords;
        if (num_coords > 1 && !gen__grid_index(library, num_coords, range))
            return false;
        if (range->place.at) {
            range->slots = (struct gen__slots *)(void *)slots;
            slots += gen__slots_fill(range, num_coords, (struct gen__slots *)(void *)slots);
        }
        cells += range->last_cell - range->first_cell + 1;
        spots += range->num_spots;
    }
    return true;
}

static enum gen_status keep_rows(gen_library *library, struct gen__pending_list *list)
{
    size_t num_ranges = 0;
    if (list->count)
        qsort(list->rows, list->count, sizeof(*list->rows), order_pending);
    for (size_t i = 0; i < list->count; i++)
        num_ranges += i == 0 || !same_range(&list->rows[i - 1], &list->rows[i]);
    library->rows = gen__calloc_lines(list->count + 1, sizeof(*library->rows));
    library->ranges = gen__calloc_lines(num_ranges + 1, sizeof(*library->ranges));
    if (!library->rows || !library->ranges)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for %zu tuning rows", list->count);
    lay_out(library, list);
    for (uint32_t i = 0; i < library->num_tables; i++) {
        struct gen__table *t = &library->tables[i];
        if (t->same_as)
            t->num_shadowed = library->tables[t->same_as - 1].num_used +
                              library->tables[t->same_as - 1].num_shadowed;
    }
    if (!index_ranges(library))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for %zu tuning rows", list->count);
    for (uint32_t i = 0; i < library->num_tables; i++) {
        /* A refused table counts as a bad row, so that somebody may notice. */
        library->num_rows_bad += library->tables[i].num_bad + library->tables[i].refused;
        library->num_rows_expired += library->tables[i].num_expired;
    }
    return GEN_OK;
}

enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths)
{
    const uint32_t num_builtin = library->pack.index->num_tables;
    struct text *texts = calloc(num_paths + 1, sizeof(*texts));
    library->tables = calloc(num_paths + num_builtin + 1, sizeof(*library->tables));
    struct gen__pending_list list = {NULL, 0, 0};
    enum gen_status status = GEN_OK;
    if (!library->tables || !texts)
        status = gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for %zu tuning tables",
                           num_paths + num_builtin);
    for (size_t i = 0; !status && i < num_paths; i++)
        status = parse_user(library, paths[i], &texts[i], &list);
    for (uint32_t i = 0; !status && i < num_builtin; i++)
        status = parse_builtin(library, i, texts, num_paths, &list);
    if (!status)
        status = keep_rows(library, &list);
    free(list.rows);
    for (size_t i = 0; texts && i < num_paths; i++)
        free(texts[i].at);
    free(texts);
    return status;
}
