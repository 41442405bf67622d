/* Reading all tables of a library and laying their rows out for selection. */
#include "product/grid.h"
#include "product/prepared.h"
#include "product/rows.h"
#include "product/table.h"

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

/* All that was read, before it is laid out. */
struct reading {
    gen_library *library;
    struct text *texts; /* of the caller's tables */
    size_t num_texts;
    struct gen__pending_list rows;  /* of tables that were parsed */
    struct gen__prepared *prepared; /* by table of the library, where it was not */
    size_t num_prepared_ranges, prepared_bytes;
};

/* A prepared table in place of its text; false where there is none. */
static bool use_prepared(struct reading *r, uint32_t builtin, uint32_t index,
                         enum gen_status *status)
{
    struct gen__prepared *prepared = &r->prepared[index];
    *status = gen__prepared_open(r->library, builtin, prepared);
    const struct gen__prepared_head *head = prepared->head;
    if (*status || !head)
        return false;
    struct gen__table *t = &r->library->tables[index];
    t->compute_capability = head->compute_capability;
    t->num_sms = head->num_sms;
    t->memory_gbps = head->memory_gbps;
    t->l2_bytes = head->l2_bytes;
    t->num_bad = head->num_bad;
    t->num_expired = head->num_expired;
    t->num_ptx = head->num_ptx;
    t->reason_line = head->reason_line;
    memcpy(t->class_name, head->class_name, sizeof(t->class_name));
    memcpy(t->reason, head->reason, sizeof(t->reason));
    r->num_prepared_ranges += head->num_ranges;
    r->prepared_bytes += prepared->data_size;
    return true;
}

static const char *builtin_text(const gen_library *library, uint32_t i, size_t *size)
{
    *size = (size_t)library->pack.tables[i].size;
    return (const char *)library->pack.data + library->pack.tables[i].offset;
}

/* The built-in table with the same text; num_tables where there is none. */
static uint32_t same_builtin(const gen_library *library, const struct text *text)
{
    const uint32_t num_builtin = library->pack.index->num_tables;
    uint32_t i = 0;
    for (; i < num_builtin; i++) {
        size_t size;
        const char *at = builtin_text(library, i, &size);
        if (size == text->size && memcmp(at, text->at, size) == 0)
            break;
    }
    return i;
}

static enum gen_status read_user(struct reading *r, const char *path, struct text *text)
{
    gen_library *library = r->library;
    uint32_t index = 0;
    enum gen_status status = add_table(library, path, &index);
    if (!status)
        status = read_file(path, &text->at, &text->size);
    if (status)
        return status;
    const uint32_t builtin = same_builtin(library, text);
    if (builtin < library->pack.index->num_tables && use_prepared(r, builtin, index, &status))
        return GEN_OK;
    if (status)
        return status;
    status = gen__table_parse(library, index, text->at, text->size, &r->rows);
    if (status == GEN_STATUS_FORMAT)
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

static enum gen_status read_builtin(struct reading *r, uint32_t i)
{
    gen_library *library = r->library;
    size_t size;
    const char *text = builtin_text(library, i, &size);
    const char *name = gen__pack_string(&library->pack, library->pack.tables[i].name);
    uint32_t index = 0;
    enum gen_status status = add_table(library, name, &index);
    if (status)
        return status;
    for (size_t k = 0; k < r->num_texts; k++) {
        if (r->texts[k].size != size || memcmp(r->texts[k].at, text, size) != 0)
            continue;
        same_table(&library->tables[index], &library->tables[k], (uint32_t)k);
        return GEN_OK;
    }
    if (use_prepared(r, i, index, &status) || status)
        return status;
    status = gen__table_parse(library, index, text, size, &r->rows);
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
    for (uint32_t c = 0; !order && c < GEN__MAX_COORDS; c++)
        order = gen__order_counts(c, a->row.counts[c], b->row.counts[c]);
    return order ? order : order_numbers(a->line, b->line);
}

/* The rows of one table for one entry, parsed or prepared. */
struct bundle {
    uint32_t entry, compute_capability, num_sms, table;
    uint32_t num_rows;
    const struct gen__pending *parsed; /* or NULL */
    const struct gen__prepared_row *prepared;
    uint32_t grid;  /* of the prepared table's; or GEN__NO_GRID */
    uint32_t plain; /* likewise, of its plain rows (plain.c) */
};

struct bundle_list {
    struct bundle *items;
    size_t count, num_rows;
};

/* By entry, class, table: of each no two. */
static int order_bundles(const void *x, const void *y)
{
    const struct bundle *a = x;
    const struct bundle *b = y;
    int order = order_numbers(a->entry, b->entry);
    if (!order)
        order = order_numbers(a->compute_capability, b->compute_capability);
    if (!order)
        order = order_numbers(a->num_sms, b->num_sms);
    return order ? order : order_numbers(a->table, b->table);
}

static void bundle_prepared(const struct reading *r, uint32_t table, struct bundle_list *list)
{
    const struct gen__prepared *p = &r->prepared[table];
    const struct gen__prepared_row *row = p->rows;
    for (uint32_t i = 0; p->head && i < p->head->num_ranges; i++) {
        const struct gen__prepared_range *range = &p->ranges[i];
        list->items[list->count++] =
            (struct bundle){.entry = r->library->group_entry[range->group],
                            .compute_capability = p->head->compute_capability,
                            .num_sms = p->head->num_sms,
                            .table = table,
                            .num_rows = range->num_rows,
                            .prepared = row,
                            .grid = range->grid,
                            .plain = range->plain};
        row += range->num_rows;
        list->num_rows += range->num_rows;
    }
}

/* Sorts the parsed rows and lists all bundles: no more than there are rows and prepared ranges. */
static bool bundle_rows(struct reading *r, struct bundle_list *list)
{
    struct gen__pending *rows = r->rows.rows;
    const size_t most = r->rows.count + r->num_prepared_ranges;
    *list = (struct bundle_list){.items = calloc(most + 1, sizeof(*list->items))};
    if (!list->items)
        return false;
    if (r->rows.count)
        qsort(rows, r->rows.count, sizeof(*rows), order_pending);
    for (size_t i = 0; i < r->rows.count; i++) {
        struct bundle b = {.entry = rows[i].entry,
                           .compute_capability = rows[i].compute_capability,
                           .num_sms = rows[i].num_sms,
                           .table = rows[i].table,
                           .parsed = &rows[i],
                           .grid = GEN__NO_GRID,
                           .plain = GEN__NO_GRID};
        if (!list->count || order_bundles(&list->items[list->count - 1], &b) != 0)
            list->items[list->count++] = b;
        list->items[list->count - 1].num_rows++;
    }
    list->num_rows = r->rows.count;
    for (uint32_t i = 0; i < r->library->num_tables; i++)
        bundle_prepared(r, i, list);
    if (list->count)
        qsort(list->items, list->count, sizeof(*list->items), order_bundles);
    return true;
}

static bool same_class(const struct bundle *a, const struct bundle *b)
{
    return a->entry == b->entry && a->compute_capability == b->compute_capability &&
           a->num_sms == b->num_sms;
}

static void copy_rows(gen_library *library, const struct bundle *b)
{
    const uint32_t num_coords = library->entries[b->entry].family->num_coords;
    struct gen__row *rows = library->rows + library->num_rows;
    for (uint32_t i = 0; i < b->num_rows; i++)
        rows[i] =
            b->parsed ? b->parsed[i].row : gen__prepared_row(library, &b->prepared[i], num_coords);
    library->num_rows += b->num_rows;
}

/* Copies the rows; of the rows of one entry and class only those of the first
 * table that has any. places[t] are the grids of prepared table t. */
static void lay_out(gen_library *library, const struct bundle_list *list,
                    struct gen__place *const *places)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct bundle *b = &list->items[i];
        struct gen__table *t = &library->tables[b->table];
        if (i > 0 && same_class(&list->items[i - 1], b)) {
            t->num_shadowed += b->num_rows;
            continue;
        }
        struct gen__entry *entry = &library->entries[b->entry];
        struct gen__range *range = &library->ranges[library->num_ranges++];
        *range = (struct gen__range){.compute_capability = b->compute_capability,
                                     .num_sms = b->num_sms,
                                     .memory_gbps = t->memory_gbps,
                                     .table = b->table,
                                     .sms = t->num_sms,
                                     .gbps = t->memory_gbps,
                                     .l2_bytes = t->l2_bytes,
                                     .first_row = library->num_rows,
                                     .num_rows = b->num_rows};
        if (b->grid != GEN__NO_GRID)
            range->place = places[b->table][b->grid];
        if (b->plain != GEN__NO_GRID)
            library->plain[library->num_ranges - 1].place = places[b->table][b->plain];
        if (entry->num_ranges++ == 0)
            entry->ranges = range;
        copy_rows(library, b);
        t->num_used += b->num_rows;
    }
}

/* The search structures of every range, in three arrays. */
static bool index_ranges(gen_library *library)
{
    size_t num_keys = 0, num_spots = 0, num_cells = 0, slots_size = 0;
    for (uint32_t i = 0; i < library->num_ranges; i++) {
        struct gen__range *range = &library->ranges[i];
        range->first_key = (uint32_t)num_keys + 1;
        num_keys += gen__keys_of(range->num_rows);
        num_cells += gen__rows_cells(library, gen__family_of_range(library, range), range);
        num_spots += range->num_spots;
        if (gen__family_of_range(library, range)->num_coords > 1)
            slots_size +=
                gen__slots_size(range->num_rows, gen__family_of_range(library, range)->num_coords);
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
        gen__rows_index(library, gen__family_of_range(library, range), range, cells, spots);
        const uint32_t num_coords = gen__family_of_range(library, range)->num_coords;
        if (num_coords > 1 && !range->place.at && !gen__grid_index(library, num_coords, range))
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

/* The bytes of all prepared grids in one piece, and where the grids of each table are, in another
 * (to be freed), of which places[t] is table t's. */
static bool copy_grids(const struct reading *r, struct gen__place **places, struct gen__place **all)
{
    gen_library *library = r->library;
    size_t num_grids = 0;
    for (uint32_t i = 0; i < library->num_tables; i++)
        num_grids += r->prepared[i].head ? r->prepared[i].head->num_grids : 0;
    unsigned char *at = aligned_alloc(GEN__LINE, r->prepared_bytes + GEN__LINE);
    struct gen__place *next = calloc(num_grids + 1, sizeof(*next));
    library->prepared = at;
    *all = next;
    if (!at || !next)
        return false;
    for (uint32_t i = 0; i < library->num_tables; i++) {
        const struct gen__prepared *p = &r->prepared[i];
        if (!p->head)
            continue;
        memcpy(at, p->data, p->data_size);
        gen__prepared_places(p, at, next);
        places[i] = next;
        next += p->head->num_grids;
        at += p->data_size;
    }
    return true;
}

static bool keep_rows(struct reading *r, struct gen__place **places)
{
    gen_library *library = r->library;
    struct gen__place *all = NULL;
    struct bundle_list list = {NULL, 0, 0};
    bool good = bundle_rows(r, &list) && copy_grids(r, places, &all);
    if (good) {
        library->rows = gen__calloc_lines(list.num_rows + 1, sizeof(*library->rows));
        library->ranges = gen__calloc_lines(list.count + 1, sizeof(*library->ranges));
        library->plain = gen__calloc_lines(list.count + 1, sizeof(*library->plain));
        good = library->rows && library->ranges && library->plain;
    }
    if (good)
        lay_out(library, &list, places);
    free(list.items);
    free(all);
    return good && index_ranges(library) && gen__plain_build(library);
}

/* Gives every entry a copy of its range with the most multiprocessors. */
static void copy_largest(gen_library *library)
{
    for (uint64_t e = 0; e <= library->entry_mask; e++) {
        struct gen__entry *entry = &library->entries[e];
        const struct gen__range *largest = entry->ranges;
        for (uint32_t i = 1; i < entry->num_ranges; i++)
            largest = entry->ranges[i].num_sms > largest->num_sms ? &entry->ranges[i] : largest;
        if (entry->num_ranges)
            entry->largest = *largest;
    }
}

/* What is told of the tables. */
static void sum_up(gen_library *library)
{
    for (uint32_t i = 0; i < library->num_tables; i++) {
        struct gen__table *t = &library->tables[i];
        if (t->same_as)
            t->num_shadowed = library->tables[t->same_as - 1].num_used +
                              library->tables[t->same_as - 1].num_shadowed;
        /* A refused table counts as a bad row, so that somebody may notice. */
        library->num_rows_bad += t->num_bad + t->refused;
        library->num_rows_expired += t->num_expired;
        library->num_rows_ptx += t->num_ptx;
    }
}

static enum gen_status read_all(struct reading *r, const char *const *paths, uint32_t only_table)
{
    const uint32_t num_builtin = r->library->pack.index->num_tables;
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < r->num_texts; i++)
        status = read_user(r, paths[i], &r->texts[i]);
    for (uint32_t i = 0; !status && i < num_builtin; i++)
        if (only_table == GEN__ALL_TABLES || only_table == i)
            status = read_builtin(r, i);
    return status;
}

enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths,
                                 uint32_t only_table)
{
    const size_t most = num_paths + library->pack.index->num_tables;
    struct reading r = {.library = library,
                        .texts = calloc(num_paths + 1, sizeof(*r.texts)),
                        .num_texts = num_paths,
                        .prepared = calloc(most + 1, sizeof(*r.prepared))};
    struct gen__place **places = calloc(most + 1, sizeof(struct gen__place *));
    library->tables = calloc(most + 1, sizeof(*library->tables));
    enum gen_status status = GEN_OK;
    if (!library->tables || !r.texts || !r.prepared || !places)
        status = gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for %zu tuning tables", most);
    if (!status)
        status = read_all(&r, paths, only_table);
    if (!status && !keep_rows(&r, places))
        status = gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for the rows of %zu tuning tables",
                           most);
    if (!status) {
        copy_largest(library);
        sum_up(library);
    }
    free(r.rows.rows);
    for (size_t i = 0; r.texts && i < num_paths; i++)
        free(r.texts[i].at);
    free(r.texts);
    free(r.prepared);
    free(places);
    return status;
}
