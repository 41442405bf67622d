#include "product/catalog.h"
#include "product/refusals.h"
#include "cmd/commands.h"
#include "util/error.h"
#include "util/file.h"
#include "options.h"
#include "spec/space.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct findings {
    struct session *session;
    struct output_table rows;
    size_t errors, warnings;
};

static void found(struct findings *f, bool error, const char *where, const char *what)
{
    output_text(&f->rows, error ? "error" : "warning");
    output_text(&f->rows, where);
    output_text(&f->rows, what);
    if (error)
        f->errors++;
    else
        f->warnings++;
}

/* ---- lint ------------------------------------------------------------------------ */

/* `$if` is text; that it should be `$ if` is a fair guess. */
static void lint_dollars(struct findings *f, const struct template *t)
{
    for (int i = 0; i < t->num_lines; i++) {
        const char *p = t->lines[i], *end = t->lines[i + 1];
        while (p < end && (*p == ' ' || *p == '\t'))
            p++;
        if (p + 1 < end && p[0] == '$' && (isalpha((unsigned char)p[1]) || p[1] == '-'))
            found(f, false, arena_printf(&f->session->arena, "%s:%d", t->path, i + 1),
                  "a line that starts with '$' but not with '$ ' is text, not Lua");
    }
}

static void lint_templates(struct findings *f)
{
    struct session *session = f->session;
    enum { MOST_LINES = 300, MOST_PERCENT = 15 };
    for (size_t i = 0; i < session->num_sources; i++) {
        const struct template *t = session->sources[i];
        int percent = t->num_lines > 0 ? 100 * t->num_directives / t->num_lines : 0;
        if (percent > MOST_PERCENT)
            found(
                f, false, t->path,
                arena_printf(&session->arena,
                             "%d of %d lines are directives (%d%%); more than %d%% wants a helper",
                             t->num_directives, t->num_lines, percent, MOST_PERCENT));
        if (t->num_lines > MOST_LINES)
            found(f, false, t->path,
                  arena_printf(&session->arena, "%d lines; more than %d wants splitting",
                               t->num_lines, MOST_LINES));
        lint_dollars(f, t);
    }
}

/* Values of an axis that no legal variant of any checked target has. */
static void lint_axes(struct findings *f, const struct family *family)
{
    struct session *session = f->session;
    for (size_t a = 0; a < family->num_axes; a++) {
        const char *equals = strchr(family->axes[a], '=');
        for (const char *value = equals + 1; *value != '\0';) {
            size_t size = strcspn(value, ",");
            const char *pair =
                arena_printf(&session->arena, ";%.*s=%.*s;", (int)(equals - family->axes[a]),
                             family->axes[a], (int)size, value);
            bool used = false;
            for (size_t i = 0; i < session->num_variants && !used; i++) {
                const struct variant *v = session->variants[i];
                if (v->family != family)
                    continue;
                char all[1024];
                snprintf(all, sizeof all, ";%s;%s;", v->required, v->free);
                used = strstr(all, pair) != NULL;
            }
            if (!used)
                found(f, false, family->path,
                      arena_printf(&session->arena, "axis value %.*s is in no legal variant",
                                   (int)strlen(pair) - 2, pair + 1));
            value += size + (value[size] == ',');
        }
    }
}

/* Two variants of one group and the same source: an axis that changes nothing
 * but the name. */
struct twin {
    const struct variant *variant;
    const char *text;
};

static const char *without_name(struct session *session, const struct variant *v)
{
    struct text text = {0};
    const char *p = v->source;
    size_t n = strlen(v->symbol);
    for (const char *hit; (hit = strstr(p, v->symbol)) != NULL; p = hit + n)
        text_add(&text, p, (size_t)(hit - p));
    text_string(&text, p);
    struct hash hash;
    unsigned char digest[HASH_BYTES];
    hash_begin(&hash);
    hash_string(&hash, v->group);
    hash_string(&hash, v->arch->name);
    hash_add(&hash, &v->threads, sizeof v->threads);
    hash_add(&hash, &v->shared, sizeof v->shared);
    hash_add(&hash, &v->cluster, sizeof v->cluster);
    hash_add(&hash, v->facts, sizeof v->facts);
    hash_field(&hash, text.data, text.size);
    hash_end(&hash, digest);
    text_free(&text);
    char *hex = arena_alloc(&session->arena, 2 * HASH_BYTES + 1);
    hash_hex(digest, hex);
    return hex;
}

static int by_text(const void *a, const void *b)
{
    const struct twin *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order != 0 ? order : strcmp(x->variant->name, y->variant->name);
}

static void lint_twins(struct findings *f)
{
    struct session *session = f->session;
    enum { MOST = 5 };
    size_t count = session->num_variants, twins = 0;
    struct twin *list = arena_alloc(&session->arena, (count + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct twin){session->variants[i], without_name(session, session->variants[i])};
    qsort(list, count, sizeof *list, by_text);
    for (size_t i = 1; i < count; i++)
        if (strcmp(list[i - 1].text, list[i].text) == 0 && ++twins <= MOST)
            found(f, false, list[i].variant->family->path,
                  arena_printf(&session->arena, "%s and %s are the same kernel by two names",
                               list[i - 1].variant->name, list[i].variant->name));
    if (twins > MOST)
        found(f, false, "", arena_printf(&session->arena, "%zu more such pairs", twins - MOST));
}

/* ---- freshness --------------------------------------------------------------------- */

static int by_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct catalog_row *)item)->name);
}

/* The source may stay the same while what is launched with it changes. */
static void compare_plan(struct findings *f, const struct catalog *catalog,
                         const struct catalog_row *row, const struct variant *v)
{
    struct arena *arena = &f->session->arena;
    const char *planned[NUM_PLANNED], *changes = "";
    catalog_plan(f->session, v, planned);
    for (int i = 0; i < NUM_PLANNED; i++)
        if (row->planned[i] != NULL && strcmp(row->planned[i], planned[i]) != 0)
            changes = arena_printf(arena, "%s%s %s is %s, planned is %s", changes,
                                   changes[0] != '\0' ? ";" : "", planned_names[i], row->planned[i],
                                   planned[i]);
    if (changes[0] != '\0')
        found(f, true, catalog->path, arena_printf(arena, "stale: %s:%s", v->name, changes));
}

/* What a product may have: of its families and targets, but for what the compiler is known to
 * refuse. */
struct part {
    struct strings families, targets;
    struct catalog known; /* empty: nothing is */
};

static bool is_among(const struct strings *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

/* `part` NULL: all is expected. */
static bool is_expected(const struct part *part, const struct variant *v)
{
    const struct catalog_row *row = NULL;
    if (part == NULL)
        return true;
    if (!is_among(&part->families, v->family->name) || !is_among(&part->targets, v->arch->name))
        return false;
    if (part->known.count > 0)
        row = bsearch(v->name, part->known.rows, part->known.count, sizeof *row, by_name);
    return row == NULL || row->reason == NULL || row->source_digest != v->source_digest;
}

static void compare(struct findings *f, struct catalog *catalog, bool partial,
                    const struct part *part)
{
    struct session *session = f->session;
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        struct catalog_row *row = NULL;
        if (catalog->count > 0)
            row = bsearch(v->name, catalog->rows, catalog->count, sizeof *row, by_name);
        if (row == NULL) {
            if (!partial && is_expected(part, v))
                found(f, true, catalog->path,
                      arena_printf(&session->arena, "missing: %s", v->name));
            continue;
        }
        row->seen = true;
        if (row->source_digest != v->source_digest)
            found(f, true, catalog->path,
                  arena_printf(&session->arena, "stale: %s has changed since", v->name));
        compare_plan(f, catalog, row, v);
    }
    for (size_t i = 0; i < catalog->count; i++)
        if (!catalog->rows[i].seen)
            found(f, true, catalog->path,
                  arena_printf(&session->arena, "orphan: there is no variant %s",
                               catalog->rows[i].name));
}

/* ---- the command ---------------------------------------------------------------------- */

/* Each value once. */
static void collect(struct session *session, struct strings *list, const struct catalog *product,
                    enum planned which)
{
    for (size_t i = 0; i < product->count; i++)
        if (!is_among(list, product->rows[i].planned[which]))
            options_add_commas(session, list, product->rows[i].planned[which]);
}

/* A product's variants say of what families and targets it is. Other families are read as well: one
 * of the product may be gone. */
static void adopt_product(struct session *session, const struct catalog *product, struct part *part)
{
    struct options *options = arena_copy(&session->arena, session->options, sizeof *options);
    collect(session, &part->families, product, PLANNED_FAMILY);
    collect(session, &part->targets, product, PLANNED_TARGET);
    if (options->targets.count == 0 && options->catalog == NULL)
        options->targets = part->targets;
    session->options = options;
    (void)refusals_known(session, &part->known);
}

/* A catalog says what it was made of; options given now go first. */
static void adopt_selection(struct session *session, const struct catalog *catalog)
{
    struct options *options = arena_copy(&session->arena, session->options, sizeof *options);
    if (options->families.count == 0 && catalog->families != NULL)
        options_add_commas(session, &options->families, catalog->families);
    if (options->targets.count == 0 && catalog->targets != NULL)
        options_add_commas(session, &options->targets, catalog->targets);
    if (options->only.count == 0 && catalog->only != NULL)
        options_add_commas(session, &options->only, catalog->only);
    options->full = options->full || catalog->full;
    options->line_info = options->line_info || catalog->line_info;
    session->options = options;
}

int command_check(struct session *session)
{
    static const char *const columns[] = {"kind", "where", "what"};
    const struct options *options = session->options;
    struct findings f = {.session = session};
    struct catalog catalog = {0}, product = {0};
    struct part part = {0};
    struct pack_tables tables = {0};
    if (options->words.count > 0)
        fail(session, "check: unexpected word '%s'; allowed: options", options->words.items[0]);
    if (options->catalog != NULL) {
        catalog_read(session, options->catalog, &catalog);
        adopt_selection(session, &catalog);
    }
    if (options->product != NULL) {
        catalog_read_product(session, options->product, &product);
        adopt_product(session, &product, &part);
    }
    space_open(session, true);
    space_enumerate(session);
    output_begin(&f.rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    lint_templates(&f);
    for (size_t i = 0; i < session->num_families; i++)
        lint_axes(&f, &session->families[i]);
    space_subset(session, true);
    context_expand(session, &tables);
    lint_twins(&f);
    space_default(session);
    if (options->catalog != NULL)
        compare(&f, &catalog, catalog.partial, NULL);
    if (options->product != NULL)
        compare(&f, &product, false, &part);
    output_print(&f.rows, options->format);
    fprintf(stderr, "attngen: check: %zu variants, %zu templates, %zu errors, %zu warnings\n",
            session->num_variants, session->num_sources, f.errors, f.warnings);
    if (f.errors > 0 && options->catalog != NULL)
        fprintf(stderr, "attngen: the catalog's line '# regenerate:' says how to make it anew\n");
    return f.errors > 0 ? 1 : 0;
}
