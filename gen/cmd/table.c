/* `attngen table`: tuning tables as files, without a GPU. */
#include "cmd/table.h"
#include "cmd/commands.h"
#include "options.h"
#include "spec/space.h"
#include "spec/spec.h"
#include "expand/expand.h"
#include "util/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is known of variants ------------------------------------------------------- */

static int by_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct catalog_row *)item)->name);
}

static int names_in_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted; a name may stand there often. */
static const char **names_of(struct session *session, const struct tuning_table *tables,
                             size_t count, size_t *num_names)
{
    size_t room = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        room += 2 * tables[i].count;
    const char **names = arena_alloc(&session->arena, (room + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < tables[i].count; k++) {
            names[n++] = tables[i].rows[k].field[GEN__COLUMN_VARIANT];
            names[n++] = tables[i].rows[k].field[GEN__COLUMN_RUNNER_UP];
        }
    if (n > 0)
        qsort(names, n, sizeof *names, names_in_order);
    *num_names = n;
    return names;
}

/* Of all legal variants those that a row names: only these are expanded. */
static void know_templates(struct session *session, const struct tuning_table *tables, size_t count,
                           struct catalog *known)
{
    size_t num_names, kept = 0;
    const char **names = names_of(session, tables, count, &num_names);
    spec_enumerate(session);
    for (size_t i = 0; i < session->num_variants; i++)
        if (num_names > 0 && bsearch(&session->variants[i]->name, names, num_names, sizeof *names,
                                     names_in_order) != NULL)
            session->variants[kept++] = session->variants[i];
    session->num_variants = kept;
    space_expand(session);
    *known = (struct catalog){.path = session->templates, .count = kept};
    known->rows = arena_alloc(&session->arena, (kept + 1) * sizeof *known->rows);
    for (size_t i = 0; i < kept; i++) {
        const struct variant *v = session->variants[i];
        known->rows[i] = (struct catalog_row){.name = v->name, .source_digest = v->source_digest};
        catalog_plan(session, v, known->rows[i].planned);
    }
}

void table_know(struct session *session, const struct tuning_table *tables, size_t count,
                struct catalog *known)
{
    space_open(session, true);
    if (session->options->catalog != NULL)
        catalog_read(session, session->options->catalog, known);
    else
        know_templates(session, tables, count, known);
}

const struct catalog_row *table_variant(const struct catalog *known, const char *name)
{
    return known->count == 0
               ? NULL
               : bsearch(name, known->rows, known->count, sizeof *known->rows, by_name);
}

enum table_state table_state(const struct catalog *known, const struct tuning_row *row)
{
    const struct catalog_row *variant = table_variant(known, row->field[GEN__COLUMN_VARIANT]);
    if (variant == NULL)
        return TABLE_UNKNOWN;
    if (variant->source_digest == row->source ||
        (row->code != 0 && row->code == variant->code_digest))
        return TABLE_FRESH;
    return row->code != 0 && variant->code_digest == 0 ? TABLE_OTHER : TABLE_EXPIRED;
}

/* ---- diff ---------------------------------------------------------------------------- */

static int rows_in_order(const void *a, const void *b)
{
    return tuning_order(a, b);
}

static void add_row(struct output_table *rows, const char *what, const struct tuning_row *a,
                    const struct tuning_row *b)
{
    const struct tuning_row *any = a != NULL ? a : b;
    output_text(rows, what);
    output_text(rows, any->field[GEN__COLUMN_REQUIRED]);
    output_text(rows, any->field[GEN__COLUMN_PROBLEM]);
    output_text(rows, a != NULL ? a->field[GEN__COLUMN_VARIANT] : "-");
    output_text(rows, a != NULL ? a->field[GEN__COLUMN_US] : "-");
    output_text(rows, b != NULL ? b->field[GEN__COLUMN_VARIANT] : "-");
    output_text(rows, b != NULL ? b->field[GEN__COLUMN_US] : "-");
    output_decimal(rows, a != NULL && b != NULL ? b->us / a->us : NAN, 3);
}

struct differences {
    size_t added, gone, changed, same, renewed;
    double logs;
};

static void compare_rows(struct output_table *rows, struct differences *n,
                         const struct tuning_row *a, const struct tuning_row *b)
{
    const bool same = strcmp(a->field[GEN__COLUMN_VARIANT], b->field[GEN__COLUMN_VARIANT]) == 0;
    n->logs += log(b->us / a->us);
    n->same += same;
    n->changed += !same;
    n->renewed += same && (a->source != b->source || a->code != b->code);
    if (!same)
        add_row(rows, "winner", a, b);
}

static int table_diff(struct session *session)
{
    static const char *const columns[] = {"what", "required",  "problem", "variant_a",
                                          "us_a", "variant_b", "us_b",    "ratio"};
    const struct strings *words = &session->options->words;
    struct tuning_table a, b;
    struct output_table rows;
    struct differences n = {0};
    if (words->count != 3)
        fail(session, "table diff: %zu files; allowed: two", words->count - 1);
    tuning_read(session, words->items[1], &a);
    tuning_read(session, words->items[2], &b);
    tuning_good_rows(session, &a);
    tuning_good_rows(session, &b);
    if (a.count > 0)
        qsort(a.rows, a.count, sizeof *a.rows, rows_in_order);
    if (b.count > 0)
        qsort(b.rows, b.count, sizeof *b.rows, rows_in_order);
    output_begin(&rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0, k = 0; i < a.count || k < b.count;) {
        const int order = i == a.count   ? 1
                          : k == b.count ? -1
                                         : tuning_order(&a.rows[i], &b.rows[k]);
        if (order < 0)
            add_row(&rows, "gone", &a.rows[i], NULL);
        else if (order > 0)
            add_row(&rows, "added", NULL, &b.rows[k]);
        else
            compare_rows(&rows, &n, &a.rows[i], &b.rows[k]);
        n.gone += order < 0;
        n.added += order > 0;
        i += order <= 0;
        k += order >= 0;
    }
    output_print(&rows, session->options->format);
    const size_t shared = n.same + n.changed;
    fprintf(stderr,
            "attngen: table diff: %zu rows added, %zu gone, %zu of another winner, %zu of the same "
            "(%zu of another digest); times of shared rows: %.3f (geometric mean of b over a)\n",
            n.added, n.gone, n.changed, n.same, n.renewed,
            shared > 0 ? exp(n.logs / (double)shared) : 1.0);
    return 0;
}

/* ---- the command --------------------------------------------------------------------- */

int command_table(struct session *session)
{
    const struct strings *words = &session->options->words;
    const char *what = words->count > 0 ? words->items[0] : "";
    if (session->options->output != NULL && strcmp(what, "merge") != 0)
        fail(session, "table %s: --output is of merge alone", what);
    if (strcmp(what, "merge") == 0)
        return table_merge(session);
    if (strcmp(what, "check") == 0)
        return table_check(session);
    if (strcmp(what, "diff") == 0)
        return table_diff(session);
    fail(session, "table: found '%s'; allowed: merge A B, check FILE..., diff A B", what);
}
