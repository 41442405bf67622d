/* Reading all tables of a library and giving its required keys their rows. */
#include "product/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TABLE_BYTES (64u << 20)

static enum gen_status read_file(const char *path, const void **text, size_t *size, void **owned)
{
    struct gen__source source;
    enum gen_status status = gen__source_open(path, &source);
    if (status)
        return status;
    *size = (size_t)source.size;
    if (source.size > MAX_TABLE_BYTES)
        status = gen__fail(GEN_STATUS_FORMAT, "%s: longer than %u bytes, no tuning table", path,
                           MAX_TABLE_BYTES);
    else
        status = gen__source_read(&source, 0, source.size, path, text, owned);
    gen__source_close(&source);
    return status;
}

static enum gen_status no_memory(const char *name)
{
    return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory for its rows", name);
}

static enum gen_status read_user(gen_library *library, const char *path)
{
    const struct gen_pack_view view = gen__pack_view(&library->pack);
    struct gen__table *table = &library->tables[library->num_tables];
    const void *text = NULL;
    void *owned = NULL;
    size_t size = 0;
    table->name = strdup(path);
    if (!table->name)
        return no_memory(path);
    library->num_tables++;
    enum gen_status status = read_file(path, &text, &size, &owned);
    if (!status) {
        const enum gen_table_result result = gen_table_read(&view, text, size, &table->read);
        if (result == GEN_TABLE_REFUSED)
            status = gen__fail(GEN_STATUS_FORMAT, "%s:%u: %s", path, table->read.about.reason_line,
                               table->read.reason);
        if (result == GEN_TABLE_NO_MEMORY)
            status = no_memory(path);
    }
    free(owned);
    return status;
}

static void take_builtin(gen_library *library, const struct gen_pack_table *packed)
{
    const struct gen__pack *pack = &library->pack;
    struct gen__table *table = &library->tables[library->num_tables++];
    *table = (struct gen__table){
        .name = gen__pack_string(pack, packed->name),
        .builtin = true,
        .read = {.about = *packed,
                 .rows = (struct gen_pack_row *)(uintptr_t)(pack->rows + packed->first_row)}};
    snprintf(table->read.class_name, sizeof(table->read.class_name), "%s",
             gen__pack_string(pack, packed->class_name));
    snprintf(table->read.reason, sizeof(table->read.reason), "%s",
             gen__pack_string(pack, packed->reason));
}

/* ---- rows -------------------------------------------------------------- */

/* The rows of one key, unless an earlier table has any for it and the class. */
static bool add_rows(gen_library *library, struct gen__table *t, struct gen__key_entry *entry,
                     const struct gen_pack_row *rows, uint32_t count)
{
    const struct gen_pack_table *read = &t->read.about;
    struct gen__class_rows **at = &entry->classes;
    while (*at && ((*at)->compute_capability < read->compute_capability ||
                   ((*at)->compute_capability == read->compute_capability &&
                    (*at)->num_sms < read->num_sms)))
        at = &(*at)->next;
    if (*at && (*at)->compute_capability == read->compute_capability &&
        (*at)->num_sms == read->num_sms) {
        t->num_shadowed += count;
        return true;
    }
    struct gen__class_rows *class_rows = gen__class_rows_new(entry->family, rows, count);
    if (!class_rows)
        return false;
    class_rows->table = (uint32_t)(t - library->tables);
    class_rows->compute_capability = read->compute_capability;
    class_rows->num_sms = read->num_sms;
    class_rows->memory_gbps = read->memory_gbps;
    class_rows->l2_bytes = read->l2_bytes;
    class_rows->next = *at;
    *at = class_rows;
    t->num_used += count;
    return true;
}

/* All rows of a table; those of keys that this runtime does not know are bad. */
static bool add_table_rows(gen_library *library, struct gen__table *table)
{
    struct gen_pack_table *t = &table->read.about;
    const struct gen_pack_row *rows = table->read.rows;
    const struct gen_pack_variant *variants = library->pack.variants;
    for (uint32_t i = 0, end; i < t->num_rows; i = end) {
        struct gen__key_entry *entry = library->group_entry[variants[rows[i].variant].group];
        for (end = i + 1; end < t->num_rows; end++)
            if (library->group_entry[variants[rows[end].variant].group] != entry)
                break;
        if (entry) {
            if (!add_rows(library, table, entry, rows + i, end - i))
                return false;
            continue;
        }
        if (t->num_bad == 0)
            snprintf(table->read.reason, sizeof(table->read.reason),
                     "a required key that this runtime does not know");
        t->num_bad += end - i;
    }
    /* A refused table counts as a bad row, so that it is noticed. */
    library->info.num_tables += !t->refused;
    library->info.num_rows += table->num_used;
    library->info.num_rows_bad += t->num_bad + t->refused;
    library->info.num_rows_expired += t->num_expired;
    library->info.num_rows_ptx += t->num_ptx;
    return true;
}

enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths)
{
    const uint32_t num_builtin = library->pack.index->num_tables;
    enum gen_status status = GEN_OK;
    library->tables = calloc(num_paths + num_builtin + 1, sizeof(*library->tables));
    if (!library->tables)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for %zu tuning tables", num_paths);
    for (size_t i = 0; !status && i < num_paths; i++)
        status = read_user(library, paths[i]);
    for (uint32_t i = 0; !status && i < num_builtin; i++)
        take_builtin(library, &library->pack.tables[i]);
    for (uint32_t i = 0; !status && i < library->num_tables; i++)
        if (!add_table_rows(library, &library->tables[i]))
            status = no_memory(library->tables[i].name);
    return status;
}

void gen__tables_free(gen_library *library)
{
    for (uint32_t i = 0; i < library->num_tables; i++) {
        if (library->tables[i].builtin)
            continue;
        free((void *)(uintptr_t)library->tables[i].name);
        free(library->tables[i].read.rows);
    }
    free(library->tables);
    for (uint32_t e = 0; e < library->num_entries; e++)
        for (struct gen__class_rows *next, *rows = library->entries[e].classes; rows; rows = next) {
            next = rows->next;
            free(rows);
        }
}
