/* `attngen table merge`: one table of two runs on GPUs of one kind. */
#include "cmd/table.h"
#include "options.h"
#include "util/error.h"
#include "util/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merge {
    struct session *session;
    struct tuning_table table[2], out;
    struct catalog known; /* of --catalog; empty without it */
    size_t alone[2], equal, won[2], failed;
};

/* Times of GPUs of another bandwidth or L2 are not comparable, of one class or not. */
static void check_heads(struct merge *m)
{
    static const char *const keys[] = {"compute_capability", "num_sms", "memory_gbps", "l2_bytes"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const uint32_t a = tuning_number(m->session, &m->table[0], keys[i]);
        const uint32_t b = tuning_number(m->session, &m->table[1], keys[i]);
        if (a != b)
            fail(m->session,
                 "table merge: %s is %" PRIu32 " in %s and %" PRIu32
                 " in %s; allowed: tables of one class and one kind of GPU",
                 keys[i], a, m->table[0].path, b, m->table[1].path);
    }
    const char *rest[2];
    for (int i = 0; i < 2; i++) {
        rest[i] = tuning_head(m->session, &m->table[i], "rest_ms");
        rest[i] = rest[i] != NULL ? rest[i] : "0";
    }
    if (strcmp(rest[0], rest[1]) != 0 && !m->session->options->quiet)
        fprintf(stderr,
                "attngen: table merge: rest_ms is %s in %s and %s in %s: rows of another cool-down "
                "stand side by side\n",
                rest[0], m->table[0].path, rest[1], m->table[1].path);
}

static bool same_kernel(const struct tuning_row *a, const struct tuning_row *b)
{
    return a->source == b->source || (a->code != 0 && a->code == b->code);
}

static int by_variant(const void *a, const void *b)
{
    const struct tuning_row *x = *(const struct tuning_row *const *)a,
                            *y = *(const struct tuning_row *const *)b;
    int order = strcmp(x->field[GEN__COLUMN_VARIANT], y->field[GEN__COLUMN_VARIANT]);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* Without a catalog nothing says which of two kernels of one name is today's. */
static void check_kernels(struct merge *m)
{
    const size_t count = m->table[0].count + m->table[1].count;
    const struct tuning_row **rows = arena_alloc(&m->session->arena, (count + 1) * sizeof *rows);
    size_t n = 0;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < m->table[t].count; i++)
            rows[n++] = &m->table[t].rows[i];
    if (n > 0)
        qsort(rows, n, sizeof *rows, by_variant);
    for (size_t i = 1; i < n; i++) {
        const char *name = rows[i]->field[GEN__COLUMN_VARIANT];
        if (strcmp(rows[i - 1]->field[GEN__COLUMN_VARIANT], name) == 0 &&
            !same_kernel(rows[i - 1], rows[i]))
            fail(m->session,
                 "table merge: %s:%u and %s:%u measured two kernels of the name %s: both digests "
                 "differ; give --catalog FILE, whose kernels win",
                 rows[i - 1]->path, rows[i - 1]->line, rows[i]->path, rows[i]->line, name);
    }
}

/* Did the variant fail where the other table was measured? */
static bool has_failed(const struct tuning_table *table, const struct tuning_row *row)
{
    const char *name = row->field[GEN__COLUMN_VARIANT];
    const size_t size = strlen(name);
    for (size_t i = 0; i < table->num_failed; i++) {
        const struct gen__span value = table->failed[i].value;
        if (value.length > size && memcmp(value.at, name, size) == 0 && value.at[size] == ':')
            return true;
    }
    return false;
}

/* 0 or 1: the table whose row of a bucket is kept. */
static int better(const struct merge *m, const struct tuning_row *const rows[2])
{
    const enum gen__column newer[] = {GEN__COLUMN_DRIVER, GEN__COLUMN_TOOLKIT};
    if (m->known.count > 0) {
        const bool a = table_state(&m->known, rows[0]) == TABLE_FRESH;
        const bool b = table_state(&m->known, rows[1]) == TABLE_FRESH;
        if (a != b)
            return b;
    }
    for (int i = 0; i < 2; i++) {
        const int order = strverscmp(rows[0]->field[newer[i]], rows[1]->field[newer[i]]);
        if (order != 0)
            return order < 0;
    }
    return rows[1]->spread < rows[0]->spread;
}

static bool equal_rows(const struct tuning_row *a, const struct tuning_row *b)
{
    for (int c = 0; c < GEN__NUM_COLUMNS; c++)
        if (strcmp(a->field[c], b->field[c]) != 0)
            return false;
    return true;
}

static int rows_in_order(const void *a, const void *b)
{
    return tuning_order(a, b);
}

/* Both sorted. A row of a variant that failed on the other side is no row. */
static void merge_rows(struct merge *m)
{
    size_t at[2] = {0, 0};
    struct tuning_table *out = &m->out;
    out->rows = arena_alloc(&m->session->arena,
                            (m->table[0].count + m->table[1].count + 1) * sizeof *out->rows);
    for (;;) {
        const struct tuning_row *rows[2] = {NULL, NULL};
        for (int t = 0; t < 2; t++) {
            while (at[t] < m->table[t].count &&
                   has_failed(&m->table[!t], &m->table[t].rows[at[t]])) {
                at[t]++;
                m->failed++;
            }
            rows[t] = at[t] < m->table[t].count ? &m->table[t].rows[at[t]] : NULL;
        }
        if (rows[0] == NULL && rows[1] == NULL)
            return;
        const int order = rows[0] == NULL   ? 1
                          : rows[1] == NULL ? -1
                                            : tuning_order(rows[0], rows[1]);
        const int from = order != 0 ? order > 0 : better(m, rows);
        if (order != 0)
            m->alone[from]++;
        else if (equal_rows(rows[0], rows[1]))
            m->equal++;
        else
            m->won[from]++;
        out->rows[out->count++] = *rows[from];
        at[0] += order <= 0;
        at[1] += order >= 0;
    }
}

static void no_duplicates(struct merge *m, const struct tuning_table *table)
{
    for (size_t i = 1; i < table->count; i++)
        if (tuning_order(&table->rows[i - 1], &table->rows[i]) == 0)
            fail(m->session, "%s: lines %u and %u are rows of one bucket; allowed: one",
                 table->path, table->rows[i - 1].line, table->rows[i].line);
}

static void merge_failures(struct merge *m)
{
    struct tuning_table *out = &m->out;
    out->failed =
        arena_alloc(&m->session->arena,
                    (m->table[0].num_failed + m->table[1].num_failed + 1) * sizeof *out->failed);
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < m->table[t].num_failed; i++) {
            bool there = false;
            for (size_t k = 0; k < out->num_failed && !there; k++)
                there = strcmp(out->failed[k].text, m->table[t].failed[i].text) == 0;
            if (!there)
                out->failed[out->num_failed++] = m->table[t].failed[i];
        }
}

static void write(struct merge *m)
{
    const struct options *options = m->session->options;
    struct text text = {0};
    tuning_write(&m->out, &text);
    bool ok = options->output != NULL
                  ? file_write_changed(&m->session->arena, options->output, text.data, text.size)
                  : fwrite(text.data, 1, text.size, stdout) == text.size;
    int error = errno;
    text_free(&text);
    if (!ok)
        fail(m->session, "%s: cannot write it: %s",
             options->output != NULL ? options->output : "standard output", strerror(error));
    if (!options->quiet)
        fprintf(stderr,
                "attngen: table merge: %zu rows: %zu and %zu of one table alone, %zu equal, %zu "
                "and %zu that won over the other's; %zu left out because their variant failed in "
                "the other\n",
                m->out.count, m->alone[0], m->alone[1], m->equal, m->won[0], m->won[1], m->failed);
}

int table_merge(struct session *session)
{
    const struct strings *words = &session->options->words;
    struct merge *m = arena_alloc(&session->arena, sizeof *m);
    m->session = session;
    if (words->count != 3)
        fail(session, "table merge: %zu files; allowed: two", words->count - 1);
    for (int t = 0; t < 2; t++) {
        tuning_read(session, words->items[1 + t], &m->table[t]);
        tuning_good_rows(session, &m->table[t]);
        if (m->table[t].count > 0)
            qsort(m->table[t].rows, m->table[t].count, sizeof *m->table[t].rows, rows_in_order);
        no_duplicates(m, &m->table[t]);
    }
    check_heads(m);
    if (session->options->catalog != NULL)
        catalog_read(session, session->options->catalog, &m->known);
    else
        check_kernels(m);
    m->out.head = m->table[0].head;
    m->out.num_head = m->table[0].num_head;
    merge_rows(m);
    merge_failures(m);
    write(m);
    return 0;
}
