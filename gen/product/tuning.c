#include "product/tuning.h"

#include "util/error.h"
#include "util/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As `attngen tune` writes them. */
static const enum gen__column columns[] = {
    GEN__COLUMN_FAMILY, GEN__COLUMN_REQUIRED, GEN__COLUMN_PROBLEM,   GEN__COLUMN_VARIANT,
    GEN__COLUMN_US,     GEN__COLUMN_SPREAD,   GEN__COLUMN_RUNNER_UP, GEN__COLUMN_RUNNER_UP_US,
    GEN__COLUMN_DIGEST, GEN__COLUMN_CODE,     GEN__COLUMN_TOOLKIT,   GEN__COLUMN_DRIVER,
    GEN__COLUMN_OTHERS};
enum { NUM_COLUMNS = sizeof columns / sizeof columns[0] };

struct reader {
    struct session *session;
    struct tuning_table *table;
    struct gen__table_text lines;
    size_t head_room, failed_room, rows_room;
    uint32_t num_columns; /* 0: not read yet */
    int at[GEN__NUM_COLUMNS];
};

static const char *text_of(struct reader *r, struct gen__span span)
{
    return arena_copy(&r->session->arena, span.at, span.length);
}

static void add_line(struct reader *r, struct tuning_line **list, size_t *count, size_t *room,
                     struct gen__span span)
{
    struct tuning_line line = {.text = text_of(r, span)};
    if (!gen__table_comment(span, &line.key, &line.value))
        line.key = line.value = (struct gen__span){"", 0};
    if (*count == *room) {
        *room = *room > 0 ? 2 * *room : 16;
        *list = arena_grow(&r->session->arena, *list, *count, *room, sizeof **list);
    }
    (*list)[(*count)++] = line;
}

static void read_comment(struct reader *r, struct gen__span span)
{
    struct tuning_table *t = r->table;
    struct gen__span key, value;
    if (gen__table_comment(span, &key, &value) && gen__span_is(key, "failed"))
        add_line(r, &t->failed, &t->num_failed, &r->failed_room, span);
    else if (r->num_columns == 0)
        add_line(r, &t->head, &t->num_head, &r->head_room, span);
}

static void read_columns(struct reader *r, struct gen__span line)
{
    struct gen__span names[GEN__TABLE_MAX_COLUMNS];
    r->num_columns = gen__table_fields(line, names);
    if (r->num_columns > GEN__TABLE_MAX_COLUMNS)
        fail(r->session, "%s:%u: more than %d columns", r->table->path, r->lines.line,
             GEN__TABLE_MAX_COLUMNS);
    for (enum gen__column c = 0; c < GEN__NUM_COLUMNS; c++) {
        r->at[c] = gen__table_column(names, r->num_columns, c);
        if (r->at[c] < 0 && c < GEN__NUM_NEEDED_COLUMNS)
            fail(r->session, "%s:%u: no column \"%s\"; allowed: a tuning table", r->table->path,
                 r->lines.line, gen__table_columns[c]);
    }
}

static const char *bad_number(struct reader *r, const struct tuning_row *row, enum gen__column c,
                              double least, double *value)
{
    const char *text = row->field[c];
    const struct gen__span span = {text, strlen(text)};
    *value = 0;
    if (c != GEN__COLUMN_US && gen__span_absent(span))
        return NULL;
    if (gen__parse_number(span, value) && *value >= least && *value <= 1e12)
        return NULL;
    return arena_printf(&r->session->arena, "%s is '%s'; allowed: a number %s 0",
                        gen__table_columns[c], text, least > 0 ? "above" : "from");
}

static const char *bad_digest(struct reader *r, const struct tuning_row *row, enum gen__column c,
                              uint64_t *digest)
{
    const char *text = row->field[c];
    const struct gen__span span = {text, strlen(text)};
    *digest = 0;
    if ((c == GEN__COLUMN_CODE && gen__span_absent(span)) || gen__parse_digest(span, digest))
        return NULL;
    return arena_printf(&r->session->arena, "%s is '%s'; allowed: 16 hexadecimal digits",
                        gen__table_columns[c], text);
}

static void read_row(struct reader *r, struct gen__span line)
{
    struct tuning_table *t = r->table;
    struct gen__span found[GEN__TABLE_MAX_COLUMNS];
    struct tuning_row row = {.path = t->path, .line = r->lines.line};
    const uint32_t count = gen__table_fields(line, found);
    for (enum gen__column c = 0; c < GEN__NUM_COLUMNS; c++)
        row.field[c] = r->at[c] >= 0 && r->at[c] < (int)count ? text_of(r, found[r->at[c]]) : "-";
    if (count != r->num_columns)
        row.bad = arena_printf(&r->session->arena, "%u fields; allowed: %u, as many as columns",
                               count, r->num_columns);
    const char *reasons[] = {bad_number(r, &row, GEN__COLUMN_US, 1e-9, &row.us),
                             bad_number(r, &row, GEN__COLUMN_SPREAD, 0, &row.spread),
                             bad_number(r, &row, GEN__COLUMN_RUNNER_UP_US, 0, &row.runner_up_us),
                             bad_digest(r, &row, GEN__COLUMN_DIGEST, &row.source),
                             bad_digest(r, &row, GEN__COLUMN_CODE, &row.code)};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0] && row.bad == NULL; i++)
        row.bad = reasons[i];
    if (t->count == r->rows_room) {
        r->rows_room = r->rows_room > 0 ? 2 * r->rows_room : 256;
        t->rows = arena_grow(&r->session->arena, t->rows, t->count, r->rows_room, sizeof *t->rows);
    }
    t->rows[t->count++] = row;
}

/* Names of classes are what rows are looked up by, so both must say the same. */
static void check_head(struct session *session, const struct tuning_table *table)
{
    static const char *const needed[] = {"compute_capability", "num_sms", "memory_gbps",
                                         "l2_bytes"};
    const char *class = tuning_head(session, table, "class");
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        (void)tuning_number(session, table, needed[i]);
    if (tuning_number(session, table, "format") != 1)
        fail(session, "%s: format %s; allowed: 1", table->path,
             tuning_head(session, table, "format"));
    const char *says = arena_printf(&session->arena, "sm%u_%usm",
                                    tuning_number(session, table, "compute_capability"),
                                    tuning_number(session, table, "num_sms"));
    if (class == NULL || strcmp(class, says) != 0)
        fail(session, "%s: class '%s'; allowed: %s, as compute_capability and num_sms say",
             table->path, class != NULL ? class : "", says);
}

void tuning_read(struct session *session, const char *path, struct tuning_table *table)
{
    size_t size;
    struct reader r = {.session = session, .table = table};
    struct gen__span line;
    *table = (struct tuning_table){.path = path};
    const char *text = file_read(&session->arena, path, &size);
    if (text == NULL)
        fail(session, "%s: cannot read it: %s", path, strerror(errno));
    r.lines = (struct gen__table_text){text, text + size, 0};
    if (!gen__table_line(&r.lines, &line) || !gen__span_is(line, GEN__TABLE_MAGIC))
        fail(session, "%s: the first line is not \"%s\"; allowed: a tuning table", path,
             GEN__TABLE_MAGIC);
    while (gen__table_line(&r.lines, &line)) {
        if (line.length == 0)
            continue;
        if (line.at[0] == '#') {
            read_comment(&r, line);
        } else if (r.num_columns == 0) {
            check_head(session, table);
            read_columns(&r, line);
        } else {
            read_row(&r, line);
        }
    }
    if (r.num_columns == 0)
        fail(session, "%s: no line of column names: it is cut short", path);
}

void tuning_good_rows(struct session *session, const struct tuning_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].bad != NULL)
            fail(session, "%s:%u: %s; `attngen table check` lists every such row", table->path,
                 table->rows[i].line, table->rows[i].bad);
}

const char *tuning_head(struct session *session, const struct tuning_table *table, const char *key)
{
    for (size_t i = 0; i < table->num_head; i++)
        if (gen__span_is(table->head[i].key, key))
            return arena_copy(&session->arena, table->head[i].value.at,
                              table->head[i].value.length);
    return NULL;
}

uint32_t tuning_number(struct session *session, const struct tuning_table *table, const char *key)
{
    uint32_t value = 0;
    const char *text = tuning_head(session, table, key);
    if (text == NULL || !gen__parse_unsigned((struct gen__span){text, strlen(text)}, &value) ||
        value == 0)
        fail(session, "%s: \"# %s:\" is '%s'; allowed: a number of at least 1", table->path, key,
             text != NULL ? text : "");
    return value;
}

int tuning_order(const struct tuning_row *a, const struct tuning_row *b)
{
    int order = strcmp(a->field[GEN__COLUMN_FAMILY], b->field[GEN__COLUMN_FAMILY]);
    if (order == 0)
        order = strverscmp(a->field[GEN__COLUMN_REQUIRED], b->field[GEN__COLUMN_REQUIRED]);
    if (order == 0)
        order = strverscmp(a->field[GEN__COLUMN_PROBLEM], b->field[GEN__COLUMN_PROBLEM]);
    return order;
}

static int by_bucket(const void *a, const void *b)
{
    return tuning_order(a, b);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct tuning_line *)a)->text, ((const struct tuning_line *)b)->text);
}

void tuning_write(struct tuning_table *table, struct text *out)
{
    if (table->count > 0)
        qsort(table->rows, table->count, sizeof *table->rows, by_bucket);
    if (table->num_failed > 0)
        qsort(table->failed, table->num_failed, sizeof *table->failed, by_text);
    int num_columns = NUM_COLUMNS - 1; /* others where a row has some */
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].field[GEN__COLUMN_OTHERS], "-") != 0)
            num_columns = NUM_COLUMNS;
    text_string(out, GEN__TABLE_MAGIC "\n");
    for (size_t i = 0; i < table->num_head; i++)
        text_printf(out, "%s\n", table->head[i].text);
    for (int c = 0; c < num_columns; c++)
        text_printf(out, "%s%c", gen__table_columns[columns[c]], c + 1 < num_columns ? '\t' : '\n');
    for (size_t i = 0; i < table->count; i++)
        for (int c = 0; c < num_columns; c++)
            text_printf(out, "%s%c", table->rows[i].field[columns[c]],
                        c + 1 < num_columns ? '\t' : '\n');
    for (size_t i = 0; i < table->num_failed; i++)
        text_printf(out, "%s\n", table->failed[i].text);
}
