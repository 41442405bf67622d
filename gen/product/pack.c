#include "product/pack.h"

#include "format/rows.h"
#include "format/table.h"
#include "util/error.h"
#include "util/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The structs are written as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

/* ---- tables ------------------------------------------------------------------------ */

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

static void add_table(struct session *session, struct pack_tables *tables, const char *path)
{
    struct pack_table table;
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    if (!file_exists(path))
        fail(session, "--tables: %s: cannot read it: %s", path, strerror(errno));
    if (!has_suffix(base, ".tsv"))
        fail(session, "--tables: %s is no table; allowed: files named <class>.tsv, folders of them",
             path);
    table.path = path;
    table.name = arena_copy(&session->arena, base, strlen(base) - 4);
    table.text = file_read(&session->arena, path, &table.size);
    if (table.text == NULL)
        fail(session, "--tables: %s: cannot read it: %s", path, strerror(errno));
    tables->items = arena_grow(&session->arena, tables->items, tables->count, tables->count + 1,
                               sizeof *tables->items);
    tables->items[tables->count++] = table;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct pack_table *)a)->name, ((const struct pack_table *)b)->name);
}

void pack_read_tables(struct session *session, const char *const *paths, size_t count,
                      struct pack_tables *tables)
{
    for (size_t i = 0; i < count; i++) {
        if (!file_is_folder(paths[i])) {
            add_table(session, tables, paths[i]);
            continue;
        }
        size_t num_names;
        char **names = file_list(&session->arena, paths[i], &num_names);
        if (names == NULL)
            fail(session, "--tables: %s: cannot read the folder: %s", paths[i], strerror(errno));
        for (size_t j = 0; j < num_names; j++)
            if (has_suffix(names[j], ".tsv"))
                add_table(session, tables,
                          arena_printf(&session->arena, "%s/%s", paths[i], names[j]));
    }
    if (tables->count > 0)
        qsort(tables->items, tables->count, sizeof *tables->items, by_name);
    for (size_t i = 1; i < tables->count; i++)
        if (strcmp(tables->items[i - 1].name, tables->items[i].name) == 0)
            fail(session, "--tables: two tables are named %s", tables->items[i].name);
}

/* ---- strings ------------------------------------------------------------------------- */

/* Each string once; a hash table of offsets finds those that are there. */
struct strings_area {
    struct text text;
    uint32_t *slots;
    size_t num_slots; /* a power of two; 0 in a slot: free */
};

static void strings_open(struct session *session, struct strings_area *area, size_t expected)
{
    area->num_slots = 64;
    while (area->num_slots < 2 * expected)
        area->num_slots *= 2;
    area->slots = arena_alloc(&session->arena, area->num_slots * sizeof *area->slots);
    text_add(&area->text, "", 1);
}

static uint32_t strings_add(struct strings_area *area, const char *string)
{
    size_t size = strlen(string);
    if (size == 0)
        return 0;
    size_t slot = (size_t)gen_pack_hash(string, size) & (area->num_slots - 1);
    while (area->slots[slot] != 0) {
        if (strcmp(area->text.data + area->slots[slot], string) == 0)
            return area->slots[slot];
        slot = (slot + 1) & (area->num_slots - 1);
    }
    area->slots[slot] = (uint32_t)area->text.size;
    text_add(&area->text, string, size + 1);
    return area->slots[slot];
}

/* ---- the index ------------------------------------------------------------------------- */

static void align(struct text *out, size_t to)
{
    static const char zeros[GEN_PACK_IMAGE_ALIGNMENT];
    text_add(out, zeros, (to - out->size % to) % to);
}

struct packer {
    struct session *session;
    struct variant *const *variants;
    size_t count;
    struct strings_area strings;
    struct gen_pack_index index;
    struct text families, targets, groups, variant_rows, tables, table_rows;
};

static void pack_families(struct packer *p)
{
    const struct session *session = p->session;
    for (size_t i = 0; i < session->num_families; i++) {
        const struct family *family = &session->families[i];
        struct gen_pack_family row = {.name = strings_add(&p->strings, family->name),
                                      .required = strings_add(&p->strings, family->required),
                                      .facts = strings_add(&p->strings, family->facts),
                                      .coords = strings_add(&p->strings, family->coords)};
        text_add(&p->families, (const char *)&row, sizeof row);
    }
    p->index.num_families = (uint32_t)session->num_families;
    for (size_t i = 0; i < session->num_targets; i++) {
        const struct arch *arch = session->targets[i];
        struct gen_pack_target row = {.name = strings_add(&p->strings, arch->name),
                                      .compute_capability = (uint32_t)arch->cc,
                                      .kind = (uint32_t)arch->kind};
        text_add(&p->targets, (const char *)&row, sizeof row);
    }
    p->index.num_targets = (uint32_t)session->num_targets;
}

static uint32_t target_index(const struct session *session, const struct arch *arch)
{
    uint32_t i = 0;
    while (session->targets[i] != arch)
        i++;
    return i;
}

static bool same_group(const struct variant *a, const struct variant *b)
{
    return a->arch == b->arch && a->family == b->family && strcmp(a->group, b->group) == 0;
}

static void pack_group(struct packer *p, size_t first, size_t end)
{
    const struct variant *v = p->variants[first];
    struct gen_pack_group row = {
        .name = strings_add(&p->strings, v->group),
        .values = strings_add(&p->strings, v->group_values),
        .family = (uint32_t)(v->family - p->session->families),
        .target = target_index(p->session, v->arch),
        .first_variant = (uint32_t)first,
        .num_variants = (uint32_t)(end - first),
        .fallback_variant = (uint32_t)first,
    };
    for (size_t i = first; i < end; i++)
        if (p->variants[i]->fallback)
            row.fallback_variant = (uint32_t)i;
    for (size_t i = 0; i < p->groups.size; i += sizeof row) {
        struct gen_pack_group other;
        memcpy(&other, p->groups.data + i, sizeof other);
        if (other.name == row.name && other.target == row.target && other.family == row.family)
            fail(p->session,
                 "%s: the names of %s on %s do not stand together when sorted, as the "
                 "product needs it; change the tags or values",
                 v->family->path, v->group, v->arch->name);
    }
    text_add(&p->groups, (const char *)&row, sizeof row);
    p->index.num_groups++;
}

static void pack_variant(struct packer *p, const struct variant *v, uint64_t image_offset,
                         uint64_t image_hash)
{
    struct gen_pack_variant row = {
        .name = strings_add(&p->strings, v->name),
        .symbol = strings_add(&p->strings, v->symbol),
        .group = p->index.num_groups - 1,
        .threads = (uint32_t)v->threads,
        .shared_dynamic = (uint32_t)v->shared,
        .shared_static = (uint32_t)v->report.shared_static,
        .registers = (uint32_t)v->report.registers,
        .cluster = (uint32_t)v->cluster,
        .source_digest = v->source_digest,
        .code_digest = v->code_digest,
        .image_offset = image_offset,
        .image_size = v->image_size,
        .image_hash = image_hash,
    };
    memcpy(row.facts, v->facts, sizeof row.facts);
    text_add(&p->variant_rows, (const char *)&row, sizeof row);
}

/* What is packed so far, as a reader of tables finds names in it. */
static struct gen_pack_view view_of(const struct packer *p)
{
    return (struct gen_pack_view){
        .families = (const struct gen_pack_family *)(const void *)p->families.data,
        .targets = (const struct gen_pack_target *)(const void *)p->targets.data,
        .groups = (const struct gen_pack_group *)(const void *)p->groups.data,
        .variants = (const struct gen_pack_variant *)(const void *)p->variant_rows.data,
        .strings = p->strings.text.data,
        .num_groups = p->index.num_groups,
        .num_variants = (uint32_t)p->count};
}

/* The groups of the key that run on the table's class. They are written, but not yet part of `out`.
 */
static void mark_groups(struct packer *p, struct gen__span required, uint32_t compute_capability)
{
    struct gen_pack_group *groups = (struct gen_pack_group *)(void *)p->groups.data;
    const struct gen_pack_view view = view_of(p);
    for (uint32_t i = 0; i < p->index.num_groups; i++) {
        const struct gen_pack_target *target = &view.targets[groups[i].target];
        if (gen__span_is(required, view.strings + groups[i].name) &&
            gen_pack_runs(target, compute_capability))
            groups[i].lacks_rows = 1;
    }
}

/* Marks the groups of which rows name variants that the product lacks: where these rows stood, a
 * row that is left is no measurement. */
static void mark_holes(struct packer *p, const struct pack_table *source,
                       uint32_t compute_capability)
{
    const struct gen_pack_view view = view_of(p);
    struct gen__table_text text = {source->text, source->text + source->size, 0};
    struct gen__span line, fields[GEN__TABLE_MAX_COLUMNS];
    int variant = -1, required = -1;
    while (gen__table_line(&text, &line)) {
        if (line.length == 0 || line.at[0] == '#')
            continue;
        const uint32_t count = gen__table_fields(line, fields);
        if (variant < 0) {
            variant = gen__table_column(fields, count, GEN__COLUMN_VARIANT);
            required = gen__table_column(fields, count, GEN__COLUMN_REQUIRED);
        } else if (variant < (int)count && required < (int)count &&
                   gen_pack_find(&view, fields[variant].at, fields[variant].length) ==
                       view.num_variants) {
            mark_groups(p, fields[required], compute_capability);
        }
    }
}

static void pack_table(struct packer *p, const struct pack_table *source)
{
    const struct gen_pack_view view = view_of(p);
    struct gen_table table;
    if (gen_table_read(&view, source->text, source->size, &table) == GEN_TABLE_NO_MEMORY)
        fail(p->session, "--tables: %s: no memory for its rows", source->name);
    struct gen_pack_table row = table.about;
    row.name = strings_add(&p->strings, source->name);
    row.class_name = strings_add(&p->strings, table.class_name);
    row.reason = strings_add(&p->strings, table.reason);
    row.first_row = p->index.num_rows;
    text_add(&p->tables, (const char *)&row, sizeof row);
    if (row.num_rows > 0)
        text_add(&p->table_rows, (const char *)table.rows, row.num_rows * sizeof *table.rows);
    if (!row.refused)
        mark_holes(p, source, row.compute_capability);
    p->index.num_rows += row.num_rows;
    p->index.num_tables++;
    free(table.rows);
}

/* Where the part will stand: after what `at` already counts. */
static uint64_t place(uint64_t *at, const struct text *part)
{
    uint64_t offset = *at;
    *at += (part->size + 7) / 8 * 8;
    return offset;
}

static void add_part(struct text *out, const struct text *part)
{
    text_add(out, part->data, part->size);
    align(out, 8);
}

/* Of all that a plan depends on: before the tables and the toolkit's name go in. */
static uint64_t product_digest(const struct packer *p)
{
    const struct text *parts[] = {&p->families, &p->targets, &p->groups, &p->variant_rows,
                                  &p->strings.text};
    struct text all = {0};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        add_part(&all, parts[i]);
    uint64_t digest = gen_pack_hash(all.data, all.size);
    text_free(&all);
    return digest;
}

static void finish(struct packer *p, const char *toolkit, uint64_t digest, struct text *out)
{
    struct gen_pack_footer footer = {.magic = {0}, .version = GEN_PACK_VERSION};
    memcpy(footer.magic, GEN_PACK_MAGIC, sizeof footer.magic);
    p->index.num_variants = (uint32_t)p->count;
    p->index.toolkit = strings_add(&p->strings, toolkit);
    footer.index_offset = out->size;
    uint64_t at = out->size + sizeof p->index;
    p->index.families_offset = place(&at, &p->families);
    p->index.targets_offset = place(&at, &p->targets);
    p->index.groups_offset = place(&at, &p->groups);
    p->index.variants_offset = place(&at, &p->variant_rows);
    p->index.tables_offset = place(&at, &p->tables);
    p->index.rows_offset = place(&at, &p->table_rows);
    p->index.strings_offset = place(&at, &p->strings.text);
    p->index.strings_size = p->strings.text.size;
    text_add(out, (const char *)&p->index, sizeof p->index);
    add_part(out, &p->families);
    add_part(out, &p->targets);
    add_part(out, &p->groups);
    add_part(out, &p->variant_rows);
    add_part(out, &p->tables);
    add_part(out, &p->table_rows);
    add_part(out, &p->strings.text);
    footer.index_size = out->size - footer.index_offset;
    footer.product_digest = digest;
    footer.hash = gen_pack_seal(&footer, out->data + footer.index_offset);
    text_add(out, (const char *)&footer, sizeof footer);
}

void pack_make(struct session *session, struct variant *const *variants, size_t count,
               const struct pack_tables *tables, const char *toolkit, struct text *out)
{
    struct packer *p = arena_alloc(&session->arena, sizeof *p);
    p->session = session;
    p->variants = variants;
    p->count = count;
    strings_open(session, &p->strings, 4 * count + 3 * session->num_families + tables->count + 64);
    pack_families(p);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && same_group(variants[first], variants[end]); end++)
            continue;
        pack_group(p, first, end);
        for (size_t i = first; i < end; i++) {
            const uint64_t at = out->size;
            text_add(out, variants[i]->image, variants[i]->image_size);
            align(out, GEN_PACK_IMAGE_ALIGNMENT);
            pack_variant(p, variants[i], at, gen_pack_hash(out->data + at, out->size - at));
        }
    }
    uint64_t digest = product_digest(p);
    for (size_t i = 0; i < tables->count; i++)
        pack_table(p, &tables->items[i]);
    finish(p, toolkit, digest, out);
    struct text *parts[] = {&p->families, &p->targets,    &p->groups,      &p->variant_rows,
                            &p->tables,   &p->table_rows, &p->strings.text};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        text_free(parts[i]);
}
