#include "product/catalog.h"

#include "util/error.h"
#include "util/file.h"
#include "util/tsv.h"
#include "options.h"
#include "version.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "# attngen catalog 2";
static const char columns[] = "name\tfamily\trequired\ttarget\taxes\tthreads\tshared_dynamic\t"
                              "shared_static\tregisters\tcluster\tfallback\tdigest\tcode";

/* ---- what is planned ---------------------------------------------------------------- */

const char *const planned_names[NUM_PLANNED] = {"family",  "required",       "target",  "axes",
                                                "threads", "shared_dynamic", "cluster", "fallback",
                                                "symbol",  "values",         "facts"};

static const char *number_text(struct session *session, int64_t value)
{
    return arena_printf(&session->arena, "%" PRId64, value);
}

static const char *facts_text(struct session *session, const char *names, size_t count,
                              const int32_t *facts)
{
    struct text text = {0};
    text_printf(&text, "%s:", names);
    for (size_t i = 0; i < count; i++)
        text_printf(&text, "%s%" PRId32, i > 0 ? "," : "", facts[i]);
    const char *copy = arena_string(&session->arena, text.data);
    text_free(&text);
    return copy;
}

void catalog_plan(struct session *session, const struct variant *v,
                  const char *planned[NUM_PLANNED])
{
    struct arena *arena = &session->arena;
    planned[PLANNED_FAMILY] = v->family->name;
    planned[PLANNED_REQUIRED] = v->group;
    planned[PLANNED_TARGET] = v->arch->name;
    planned[PLANNED_AXES] =
        arena_printf(arena, "%s%s%s", v->required,
                     v->required[0] != '\0' && v->free[0] != '\0' ? ";" : "", v->free);
    planned[PLANNED_THREADS] = number_text(session, v->threads);
    planned[PLANNED_SHARED] = number_text(session, v->shared);
    planned[PLANNED_CLUSTER] = number_text(session, v->cluster);
    planned[PLANNED_FALLBACK] = v->fallback ? "1" : "0";
    planned[PLANNED_SYMBOL] = v->symbol;
    planned[PLANNED_VALUES] = arena_printf(arena, "%s:%s", v->family->required, v->group_values);
    planned[PLANNED_FACTS] = facts_text(session, v->family->facts, v->family->num_facts, v->facts);
}

/* ---- writing ------------------------------------------------------------------------ */

static void add_list(struct text *out, const char *head, const struct strings *list,
                     const char *separator)
{
    for (size_t i = 0; i < list->count; i++)
        text_printf(out, "%s%s", i == 0 ? head : separator, list->items[i]);
}

static void add_selection(struct session *session, struct text *out)
{
    const struct options *options = session->options;
    text_string(out, "# selection:");
    add_list(out, " families=", &options->families, ",");
    for (size_t i = 0; i < session->num_targets; i++)
        text_printf(out, "%s%s", i == 0 ? " targets=" : ",", session->targets[i]->name);
    add_list(out, " only=", &options->only, ",");
    text_printf(out, "%s%s%s\n", options->full ? " full" : "",
                options->line_info ? " line-info" : "",
                options->from_tables.count + options->winners.count > 0 ? " from-table" : "");
    text_string(out, "# regenerate: attngen build");
    add_list(out, " --families ", &options->families, ",");
    if (session->num_targets == num_archs)
        text_string(out, " --targets all");
    for (size_t i = 0; i < session->num_targets && session->num_targets < num_archs; i++)
        text_printf(out, "%s%s", i == 0 ? " --targets " : ",", session->targets[i]->name);
    for (size_t i = 0; i < options->only.count; i++)
        text_printf(out, " --only '%s'", options->only.items[i]);
    text_printf(out, "%s%s%s", options->full ? " --full" : "",
                options->line_info ? " --line-info" : "",
                options->from_tables.count > 0 ? " --from-table TABLE" : "");
    add_list(out, " --winners ", &options->winners, ",");
    if (options->winners.count > 0)
        text_printf(out, " --max-regret %g", options->max_regret);
    text_string(out, " --catalog FILE\n");
}

static void add_row(struct session *session, const struct variant *v, struct text *out)
{
    const char *planned[NUM_PLANNED];
    catalog_plan(session, v, planned);
    text_string(out, v->name);
    for (int i = PLANNED_FAMILY; i <= PLANNED_SHARED; i++)
        text_printf(out, "\t%s", planned[i]);
    const char *code =
        v->code_digest != 0 ? arena_printf(&session->arena, "%016" PRIx64, v->code_digest) : "-";
    text_printf(out, "\t%d\t%d\t%s\t%s\t%016" PRIx64 "\t%s\n", v->report.shared_static,
                v->report.registers, planned[PLANNED_CLUSTER], planned[PLANNED_FALLBACK],
                v->source_digest, code);
}

void catalog_make(struct session *session, const char *toolkit, struct text *out)
{
    text_printf(out, "%s\n", first_line);
    text_printf(out, "# generated by attngen %s with CUDA toolkit %s: do not edit\n",
                ATTNGEN_VERSION, toolkit);
    add_selection(session, out);
    text_string(out, "# digest is of the source and the options, code of what the compiler made\n"
                     "# a line '# refused' names a variant that the gates keep out, its digest "
                     "and the reason\n");
    text_printf(out, "%s\n", columns);
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        if (v->row != NULL)
            text_printf(out, "%s\n", v->row);
        else if (v->state == VARIANT_BUILT)
            add_row(session, v, out);
    }
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        if (v->state == VARIANT_REFUSED)
            text_printf(out, "# refused\t%s\t%016" PRIx64 "\t%s\n", v->name, v->source_digest,
                        v->reason);
    }
}

/* ---- reading ------------------------------------------------------------------------ */

static struct catalog_row *add(struct session *session, struct catalog *catalog, size_t *capacity,
                               const char *name, uint64_t source_digest, uint64_t code_digest)
{
    if (catalog->count == *capacity) {
        *capacity = *capacity > 0 ? 2 * *capacity : 256;
        catalog->rows = arena_grow(&session->arena, catalog->rows, catalog->count, *capacity,
                                   sizeof *catalog->rows);
    }
    struct catalog_row *row = &catalog->rows[catalog->count++];
    *row = (struct catalog_row){
        .name = name, .source_digest = source_digest, .code_digest = code_digest};
    return row;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct catalog_row *)a)->name, ((const struct catalog_row *)b)->name);
}

static void sort(struct session *session, struct catalog *catalog)
{
    if (catalog->count > 0)
        qsort(catalog->rows, catalog->count, sizeof *catalog->rows, by_name);
    for (size_t i = 1; i < catalog->count; i++)
        if (strcmp(catalog->rows[i - 1].name, catalog->rows[i].name) == 0)
            fail(session, "%s: %s stands twice", catalog->path, catalog->rows[i].name);
}

static void read_selection(struct catalog *catalog, char *line)
{
    char *rest = NULL;
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (strncmp(word, "families=", 9) == 0)
            catalog->families = word + 9;
        else if (strncmp(word, "targets=", 8) == 0)
            catalog->targets = word + 8;
        else if (strncmp(word, "only=", 5) == 0)
            catalog->only = word + 5;
        else if (strcmp(word, "full") == 0)
            catalog->full = true;
        else if (strcmp(word, "line-info") == 0)
            catalog->line_info = true;
        else if (strcmp(word, "from-table") == 0)
            catalog->partial = true;
    }
}

/* "... with CUDA toolkit 13.0: do not edit" */
static const char *read_toolkit(struct session *session, const char *line)
{
    static const char before[] = "with CUDA toolkit ";
    const char *name = strstr(line, before);
    if (name == NULL)
        return NULL;
    name += sizeof before - 1;
    return arena_copy(&session->arena, name, strcspn(name, ":"));
}

static uint64_t read_digest(struct session *session, const struct catalog *catalog, int line,
                            const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 16);
    if (strlen(text) != 16 || *end != '\0')
        fail(session, "%s:%d: digest '%s'; allowed: 16 hexadecimal digits", catalog->path, line,
             text);
    return value;
}

static void read_row(struct session *session, struct catalog *catalog, size_t *capacity, char *line,
                     int number)
{
    enum { FIELDS = 13, REFUSED_FIELDS = 4 };
    char *fields[FIELDS + 1];
    const char *whole = arena_string(&session->arena, line);
    size_t count = tsv_split(line, fields, FIELDS + 1);
    bool refused = strcmp(fields[0], "# refused") == 0;
    size_t expected = refused ? REFUSED_FIELDS : FIELDS;
    if (count != expected)
        fail(session, "%s:%d: %zu fields; allowed: %zu", catalog->path, number, count, expected);
    uint64_t source = read_digest(session, catalog, number, fields[refused ? 2 : 11]);
    bool knows_code = !refused && strcmp(fields[12], "-") != 0;
    uint64_t code = knows_code ? read_digest(session, catalog, number, fields[12]) : 0;
    struct catalog_row *row =
        add(session, catalog, capacity, refused ? fields[1] : fields[0], source, code);
    if (refused) {
        row->reason = fields[3];
        return;
    }
    row->line = whole;
    for (int i = PLANNED_FAMILY; i <= PLANNED_SHARED; i++)
        row->planned[i] = fields[1 + i];
    row->planned[PLANNED_CLUSTER] = fields[9];
    row->planned[PLANNED_FALLBACK] = fields[10];
}

bool catalog_is_current(struct session *session, const char *path)
{
    size_t size;
    const char *text = file_read(&session->arena, path, &size);
    return text != NULL && strncmp(text, first_line, sizeof first_line - 1) == 0;
}

void catalog_read(struct session *session, const char *path, struct catalog *catalog)
{
    size_t size, capacity = 0;
    *catalog = (struct catalog){.path = path};
    struct tsv lines = {.rest = file_read(&session->arena, path, &size)};
    if (lines.rest == NULL)
        fail(session, "%s: cannot read it: %s", path, strerror(errno));
    bool header = false;
    for (char *line; (line = tsv_next(&lines)) != NULL;) {
        if (lines.number == 1 && strcmp(line, first_line) != 0)
            fail(session, "%s:1: found '%.40s'; allowed: '%s'", path, line, first_line);
        if (strncmp(line, "# selection:", 12) == 0)
            read_selection(catalog, line + 12);
        if (lines.number == 2)
            catalog->toolkit = read_toolkit(session, line);
        if (line[0] == '\0' || (line[0] == '#' && strncmp(line, "# refused\t", 10) != 0))
            continue;
        if (!header && line[0] != '#') {
            header = true;
            if (strcmp(line, columns) != 0)
                fail(session, "%s:%d: not the column names of a catalog", path, lines.number);
            continue;
        }
        read_row(session, catalog, &capacity, line, lines.number);
    }
    if (!header)
        fail(session, "%s: no column names: it is cut short", path);
    sort(session, catalog);
}

/* ---- keeping ------------------------------------------------------------------------ */

static bool same_plan(struct session *session, const struct catalog_row *row,
                      const struct variant *v)
{
    const char *planned[NUM_PLANNED];
    catalog_plan(session, v, planned);
    for (int i = 0; i < NUM_PLANNED; i++)
        if (row->planned[i] != NULL && strcmp(row->planned[i], planned[i]) != 0)
            return false;
    return true;
}

size_t catalog_keep(struct session *session, const struct catalog *catalog, const char *toolkit)
{
    size_t kept = 0;
    if (catalog->count == 0 || catalog->toolkit == NULL || strcmp(catalog->toolkit, toolkit) != 0)
        return 0;
    for (size_t i = 0; i < session->num_variants; i++) {
        struct variant *v = session->variants[i];
        const struct catalog_row key = {.name = v->name};
        if (v->state != VARIANT_NEW)
            continue;
        const struct catalog_row *row =
            bsearch(&key, catalog->rows, catalog->count, sizeof *catalog->rows, by_name);
        if (row == NULL || row->source_digest != v->source_digest || !same_plan(session, row, v))
            continue;
        v->state = row->reason != NULL ? VARIANT_REFUSED : VARIANT_BUILT;
        v->row = row->line;
        v->reason = row->reason;
        kept++;
    }
    return kept;
}

/* ---- a product ------------------------------------------------------------------------ */

struct product {
    struct session *session;
    const char *path, *data;
    uint64_t size;
    struct gen_pack_index index;
    uint64_t images_end;
};

static bool inside(uint64_t offset, uint64_t count, uint64_t item, uint64_t size)
{
    return offset <= size && count <= (size - offset) / item;
}

static void open_product(struct product *p)
{
    struct gen_pack_footer footer;
    struct session *session = p->session;
    size_t size;
    p->data = file_read(&session->arena, p->path, &size);
    if (p->data == NULL)
        fail(session, "%s: cannot read it: %s", p->path, strerror(errno));
    if (size < sizeof footer)
        fail(session, "%s: no product of attngen: %zu bytes", p->path, size);
    p->size = size;
    memcpy(&footer, p->data + size - sizeof footer, sizeof footer);
    if (memcmp(footer.magic, GEN_PACK_MAGIC, sizeof footer.magic) != 0)
        fail(session, "%s: no product of attngen, or cut short", p->path);
    if (footer.version != GEN_PACK_VERSION)
        fail(session, "%s: product format %" PRIu32 "; allowed: %u; `attngen build` makes it anew",
             p->path, footer.version, GEN_PACK_VERSION);
    const uint64_t end = size - sizeof footer;
    if (footer.index_size < sizeof p->index || footer.index_size > end ||
        footer.index_offset != end - footer.index_size ||
        gen_pack_seal(&footer, p->data + footer.index_offset) != footer.hash)
        fail(session, "%s: damaged: its index and footer do not match their hash", p->path);
    memcpy(&p->index, p->data + footer.index_offset, sizeof p->index);
    p->images_end = footer.index_offset;
}

static _Noreturn void points_outside(const struct product *p)
{
    fail(p->session, "%s: damaged: its index points outside the file", p->path);
}

/* Copies item `i` of a list of the index. */
static void get_item(const struct product *p, uint64_t offset, uint64_t count, uint64_t i,
                     void *item, size_t size)
{
    if (i >= count || !inside(offset, count, size, p->size))
        points_outside(p);
    memcpy(item, p->data + offset + i * size, size);
}

static const char *get_text(const struct product *p, uint32_t offset)
{
    const struct gen_pack_index *index = &p->index;
    const char *strings = p->data + index->strings_offset;
    if (!inside(index->strings_offset, index->strings_size, 1, p->size) ||
        offset >= index->strings_size || strings[index->strings_size - 1] != '\0')
        points_outside(p);
    return strings + offset;
}

/* Every byte in front of the index is of an image, and each image is what was packed. */
static void check_images(const struct product *p)
{
    const struct gen_pack_index *index = &p->index;
    uint64_t at = 0;
    for (uint32_t i = 0; i < index->num_variants; i++) {
        struct gen_pack_variant v;
        get_item(p, index->variants_offset, index->num_variants, i, &v, sizeof v);
        if (!gen_pack_image_follows(&v, p->images_end, &at))
            fail(p->session, "%s: damaged: the image of %s does not follow the one before it",
                 p->path, get_text(p, v.name));
        if (gen_pack_hash(p->data + v.image_offset, gen_pack_room(v.image_size)) != v.image_hash)
            fail(p->session, "%s: damaged: the image of %s does not match its hash", p->path,
                 get_text(p, v.name));
    }
    if (at != p->images_end)
        fail(p->session, "%s: damaged: %" PRIu64 " bytes in front of its index are of no image",
             p->path, p->images_end - at);
}

static size_t count_names(const char *names)
{
    size_t count = names[0] != '\0';
    for (; *names != '\0'; names++)
        count += *names == ',';
    return count;
}

static void read_variant(const struct product *p, uint32_t i, struct catalog *catalog,
                         size_t *capacity)
{
    const struct gen_pack_index *index = &p->index;
    struct session *session = p->session;
    struct gen_pack_variant variant;
    struct gen_pack_group group;
    struct gen_pack_family family;
    struct gen_pack_target target;
    get_item(p, index->variants_offset, index->num_variants, i, &variant, sizeof variant);
    get_item(p, index->groups_offset, index->num_groups, variant.group, &group, sizeof group);
    get_item(p, index->families_offset, index->num_families, group.family, &family, sizeof family);
    get_item(p, index->targets_offset, index->num_targets, group.target, &target, sizeof target);
    const char *facts = get_text(p, family.facts);
    size_t num_facts = count_names(facts);
    if (num_facts > GEN_PACK_MAX_FACTS)
        points_outside(p);
    struct catalog_row *row = add(session, catalog, capacity, get_text(p, variant.name),
                                  variant.source_digest, variant.code_digest);
    row->planned[PLANNED_FAMILY] = get_text(p, family.name);
    row->planned[PLANNED_REQUIRED] = get_text(p, group.name);
    row->planned[PLANNED_TARGET] = get_text(p, target.name);
    row->planned[PLANNED_THREADS] = number_text(session, variant.threads);
    row->planned[PLANNED_SHARED] = number_text(session, variant.shared_dynamic);
    row->planned[PLANNED_CLUSTER] = number_text(session, variant.cluster);
    row->planned[PLANNED_FALLBACK] = group.fallback_variant == i ? "1" : "0";
    row->planned[PLANNED_SYMBOL] = get_text(p, variant.symbol);
    row->planned[PLANNED_VALUES] = arena_printf(
        &session->arena, "%s:%s", get_text(p, family.required), get_text(p, group.values));
    row->planned[PLANNED_FACTS] = facts_text(session, facts, num_facts, variant.facts);
}

void catalog_read_product(struct session *session, const char *path, struct catalog *catalog)
{
    struct product product = {.session = session, .path = path};
    size_t capacity = 0;
    *catalog = (struct catalog){.path = path};
    open_product(&product);
    check_images(&product);
    for (uint32_t i = 0; i < product.index.num_variants; i++)
        read_variant(&product, i, catalog, &capacity);
    sort(session, catalog);
}
