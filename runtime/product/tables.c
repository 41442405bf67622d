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

/* The next table of the library, without rows; NULL, with the message set, without memory. */
static struct gen__table *add_table(gen_library *library, const char *name)
{
    struct gen__table *table = &library->tables[library->num_tables];
    table->name = strdup(name);
    if (!table->name) {
        (void)gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to read it", name);
        return NULL;
    }
    library->num_tables++;
    return table;
}

static enum gen_status read_user(gen_library *library, const char *path)
{
    const struct gen_pack_view view = gen__pack_view(&library->pack);
    struct gen__table *table = add_table(library, path);
    const void *text = NULL;
    void *owned = NULL;
    size_t size = 0;
    if (!table)
        return GEN_STATUS_OUT_OF_MEMORY;
    const enum gen_status status = read_file(path, &text, &size, &owned);
    if (status) {
        free(owned);
        return status;
    }
    const enum gen_table_result result = gen_table_read(&view, text, size, &table->read);
    free(owned);
    if (result == GEN_TABLE_REFUSED)
        return gen__fail(GEN_STATUS_FORMAT, "%s:%u: %s", path, table->read.reason_line,
                         table->read.reason);
    if (result == GEN_TABLE_NO_MEMORY)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory for its rows", path);
    return GEN_OK;
}

static enum gen_status take_builtin(gen_library *library, const struct gen_pack_table *packed)
{
    const struct gen__pack *pack = &library->pack;
    struct gen__table *table = add_table(library, gen__pack_string(pack, packed->name));
    if (!table)
        return GEN_STATUS_OUT_OF_MEMORY;
    table->builtin = true;
    table->read = (struct gen_table){
        .reason_line = packed->reason_line,
        .compute_capability = packed->compute_capability,
        .num_sms = packed->num_sms,
        .memory_gbps = packed->memory_gbps,
        .l2_bytes = packed->l2_bytes,
        .num_bad = packed->num_bad,
        .num_expired = packed->num_expired,
        .num_ptx = packed->num_ptx,
        .refused = packed->refused != 0,
        .num_rows = packed->num_rows,
        .rows = (struct gen_pack_row *)(uintptr_t)(pack->rows + packed->first_row)};
    snprintf(table->read.class_name, sizeof(table->read.class_name), "%s",
             gen__pack_string(pack, packed->class_name));
    snprintf(table->read.reason, sizeof(table->read.reason), "%s",
             gen__pack_string(pack, packed->reason));
    return GEN_OK;
}

/* ---- rows -------------------------------------------------------------- */

/* What a class's code of a variant is; NULL where it does not run there. */
struct class_code {
    const gen_library *library;
    uint32_t compute_capability;
};

static const struct gen__facts *facts_on_class(const void *context, uint32_t variant)
{
    const struct class_code *code = context;
    const struct gen_pack_target *target = gen__variant_target(&code->library->pack, variant);
    return gen__target_runs(target, code->compute_capability)
               ? gen__facts_of(code->library, variant)
               : NULL;
}

/* Where the class is in the key's list, or belongs. */
static struct gen__class_rows **find_class(struct gen__key_entry *entry, const struct gen_table *t)
{
    struct gen__class_rows **at = &entry->classes;
    while (*at &&
           ((*at)->compute_capability < t->compute_capability ||
            ((*at)->compute_capability == t->compute_capability && (*at)->num_sms < t->num_sms)))
        at = &(*at)->next;
    return at;
}

/* The rows of one key, unless an earlier table has any for it and the class. */
static bool add_rows(gen_library *library, uint32_t table, uint32_t entry_index,
                     const struct gen_pack_row *rows, uint32_t count)
{
    struct gen__table *t = &library->tables[table];
    struct gen__key_entry *entry = &library->entries[entry_index];
    struct gen__class_rows **at = find_class(entry, &t->read);
    if (*at && (*at)->compute_capability == t->read.compute_capability &&
        (*at)->num_sms == t->read.num_sms) {
        t->num_shadowed += count;
        return true;
    }
    const struct class_code code = {library, t->read.compute_capability};
    struct gen__class_rows *class_rows =
        gen__class_rows_new(entry->family, rows, count, facts_on_class, &code);
    if (!class_rows)
        return false;
    class_rows->table = table;
    class_rows->compute_capability = t->read.compute_capability;
    class_rows->num_sms = t->read.num_sms;
    class_rows->memory_gbps = t->read.memory_gbps;
    class_rows->l2_bytes = t->read.l2_bytes;
    class_rows->next = *at;
    *at = class_rows;
    t->num_used += count;
    return true;
}

/* All rows of a table; those of keys that this runtime does not know are bad. */
static bool add_table_rows(gen_library *library, uint32_t table)
{
    struct gen_table *t = &library->tables[table].read;
    const struct gen_pack_variant *variants = library->pack.variants;
    for (uint32_t i = 0, end; i < t->num_rows; i = end) {
        const uint32_t entry = library->group_entry[variants[t->rows[i].variant].group];
        for (end = i + 1; end < t->num_rows; end++)
            if (library->group_entry[variants[t->rows[end].variant].group] != entry)
                break;
        if (entry != GEN__NO_ENTRY) {
            if (!add_rows(library, table, entry, t->rows + i, end - i))
                return false;
            continue;
        }
        if (t->num_bad == 0)
            snprintf(t->reason, sizeof(t->reason),
                     "a required key that this runtime does not know");
        t->num_bad += end - i;
    }
    return true;
}

static void sum_up(gen_library *library)
{
    for (uint32_t i = 0; i < library->num_tables; i++) {
        const struct gen__table *t = &library->tables[i];
        /* A refused table counts as a bad row, so that somebody may notice. */
        library->num_rows += t->num_used;
        library->num_rows_bad += t->read.num_bad + t->read.refused;
        library->num_rows_expired += t->read.num_expired;
        library->num_rows_ptx += t->read.num_ptx;
    }
}

enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths)
{
    const uint32_t num_builtin = library->pack.index->num_tables;
    library->tables = calloc(num_paths + num_builtin + 1, sizeof(*library->tables));
    enum gen_status status = GEN_OK;
    if (!library->tables)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for %zu tuning tables", num_paths);
    for (size_t i = 0; !status && i < num_paths; i++)
        status = read_user(library, paths[i]);
    for (uint32_t i = 0; !status && i < num_builtin; i++)
        status = take_builtin(library, &library->pack.tables[i]);
    for (uint32_t i = 0; !status && i < library->num_tables; i++)
        if (!add_table_rows(library, i))
            status = gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory for its rows",
                               library->tables[i].name);
    if (!status)
        sum_up(library);
    return status;
}

void gen__tables_free(gen_library *library)
{
    for (uint32_t i = 0; i < library->num_tables; i++) {
        free(library->tables[i].name);
        if (!library->tables[i].builtin)
            free(library->tables[i].read.rows);
    }
    free(library->tables);
    for (uint32_t e = 0; library->entries && e < library->num_entries; e++)
        for (struct gen__class_rows *next, *rows = library->entries[e].classes; rows; rows = next) {
            next = rows->next;
            free(rows);
        }
}
