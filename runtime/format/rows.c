/* The rows of a tuning table, whose text format/table.h takes apart, against a product. */
#include "format/rows.h"
#include "format/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Variants that were found, by a hash of the name: few win the many rows of a table. */
#define RECENT 256

/* A good row, with what rows are sorted by. */
struct pending {
    struct gen_pack_row row;
    const struct gen_pack_group *group;
    const char *values; /* of the group */
    uint32_t line;
};

struct parser {
    const struct gen_pack_view *view;
    struct gen_table *table;
    struct pending *rows;
    size_t num_rows;
    struct gen__table_text text;
    uint32_t num_columns;
    int position[GEN__NUM_COLUMNS]; /* of a column in a row; -1: not there */
    char reason[128];               /* why the last row was bad */
    uint32_t recent[RECENT];        /* UINT32_MAX: none */
};

/* ---- the header -------------------------------------------------------- */

/* Notes why the table cannot be used. */
__attribute__((format(printf, 2, 3))) static enum gen_table_result refuse(struct parser *p,
                                                                          const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(p->table->reason, sizeof(p->table->reason), format, list);
    va_end(list);
    p->table->about.refused = 1;
    p->table->about.reason_line = p->text.line;
    return GEN_TABLE_REFUSED;
}

/* What a header must say, in the order in which messages name what is missing. */
enum { FORMAT, CAPABILITY, SMS, GBPS, L2, NUM_NUMBERS };
static const char *const numbers[NUM_NUMBERS] = {"format", "compute_capability", "num_sms",
                                                 "memory_gbps", "l2_bytes"};

static enum gen_table_result read_header_line(struct parser *p, struct gen__span line,
                                              uint32_t values[NUM_NUMBERS])
{
    struct gen__span key, value;
    if (!gen__table_comment(line, &key, &value))
        return GEN_TABLE_READ;
    const int shown = (int)(value.length < 40 ? value.length : 40);
    for (int i = 0; i < NUM_NUMBERS; i++)
        if (gen__span_is(key, numbers[i]) &&
            (!gen__parse_unsigned(value, &values[i]) || values[i] == 0))
            return refuse(p, "%s is \"%.*s\", expected a number of at least 1", numbers[i], shown,
                          value.at);
    if (gen__span_is(key, "class"))
        snprintf(p->table->class_name, sizeof(p->table->class_name), "%.*s", shown, value.at);
    return GEN_TABLE_READ;
}

static enum gen_table_result check_header(struct parser *p, const uint32_t values[NUM_NUMBERS])
{
    struct gen_table *t = p->table;
    char class[sizeof(t->class_name)];
    if (values[FORMAT] != 1)
        return refuse(p, "table format %u, this runtime reads format 1", values[FORMAT]);
    for (int i = 0; i < NUM_NUMBERS; i++)
        if (!values[i])
            return refuse(p, "the header has no \"# %s: ...\" line", numbers[i]);
    t->about.compute_capability = values[CAPABILITY];
    t->about.num_sms = values[SMS];
    t->about.memory_gbps = values[GBPS];
    t->about.l2_bytes = values[L2];
    snprintf(class, sizeof(class), "sm%u_%usm", t->about.compute_capability, t->about.num_sms);
    if (!t->class_name[0])
        return refuse(p, "the header has no \"# class: ...\" line");
    if (strcmp(class, t->class_name) != 0)
        return refuse(p, "the class is \"%s\", but compute_capability and num_sms say \"%s\"",
                      t->class_name, class);
    return GEN_TABLE_READ;
}

static enum gen_table_result read_columns(struct parser *p, struct gen__span line)
{
    struct gen__span fields[GEN__TABLE_MAX_COLUMNS];
    p->num_columns = gen__table_fields(line, fields);
    if (p->num_columns > GEN__TABLE_MAX_COLUMNS)
        return refuse(p, "more than %d columns", GEN__TABLE_MAX_COLUMNS);
    for (enum gen__column c = 0; c < GEN__NUM_COLUMNS; c++) {
        p->position[c] = gen__table_column(fields, p->num_columns, c);
        if (c < GEN__NUM_NEEDED_COLUMNS && p->position[c] < 0)
            return refuse(p, "the line of column names has no \"%s\"", gen__table_columns[c]);
    }
    return GEN_TABLE_READ;
}

static enum gen_table_result read_header(struct parser *p)
{
    struct gen__span line;
    uint32_t values[NUM_NUMBERS] = {0};
    enum gen_table_result result = GEN_TABLE_READ;
    if (!gen__table_line(&p->text, &line) || !gen__span_is(line, GEN__TABLE_MAGIC))
        return refuse(p, "the first line is not \"" GEN__TABLE_MAGIC "\"");
    while (!result && gen__table_line(&p->text, &line)) {
        if (line.length && line.at[0] != '#') {
            result = check_header(p, values);
            return result ? result : read_columns(p, line);
        }
        if (line.length)
            result = read_header_line(p, line, values);
    }
    return result ? result : refuse(p, "the text ends before the line of column names");
}

/* ---- rows -------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static bool bad(struct parser *p, struct gen__span found,
                                                      const char *format, ...)
{
    char text[80];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    snprintf(p->reason, sizeof(p->reason), "\"%.*s\": %s",
             (int)(found.length < 40 ? found.length : 40), found.at, text);
    return false;
}

/* Where the name stands among those of a list separated by commas, or how many these are. */
static uint32_t position_in(const char *names, struct gen__span name)
{
    uint32_t i = 0;
    for (; *names; i++) {
        const size_t length = strcspn(names, ",");
        if (length == name.length && !memcmp(names, name.at, length))
            return i;
        names += length + (names[length] == ',');
    }
    return i;
}

/* Numbers are never negative. */
static bool parse_positive(struct parser *p, struct gen__span text, const char *reason,
                           float *positive)
{
    double value;
    if (!gen__parse_number(text, &value) || !isnormal((float)value))
        return bad(p, text, "%s", reason);
    *positive = (float)value;
    return true;
}

/* "states=4096", several separated by commas or spaces: every coordinate of the family once. */
static bool parse_problem(struct parser *p, const struct gen_pack_family *family,
                          struct gen__span text, float counts[GEN_PACK_MAX_COORDS])
{
    const char *at = text.at, *end = text.at + text.length;
    const char *coords = p->view->strings + family->coords;
    const char *family_name = p->view->strings + family->name;
    const uint32_t count = position_in(coords, (struct gen__span){",", 1});
    uint32_t seen = 0;
    for (int c = 0; c < GEN_PACK_MAX_COORDS; c++)
        counts[c] = 1.0f;
    while (at < end) {
        const char *stop = at;
        while (stop < end && *stop != ',' && *stop != ' ')
            stop++;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (!equals)
            return bad(p, text, "expected coordinate=value");
        const struct gen__span name = {at, (size_t)(equals - at)};
        const uint32_t c = position_in(coords, name);
        if (c >= count || c >= GEN_PACK_MAX_COORDS)
            return bad(p, name, "not a coordinate of %.40s", family_name);
        if (seen & 1u << c)
            return bad(p, name, "the coordinate is given twice");
        seen |= 1u << c;
        const struct gen__span number = {equals + 1, (size_t)(stop - equals - 1)};
        if (!parse_positive(p, number, "the coordinate is not a number > 0", &counts[c]))
            return false;
        at = stop < end ? stop + 1 : end;
    }
    if (seen != (1u << count) - 1)
        return bad(p, text, "a coordinate of %.40s is missing", family_name);
    return true;
}

static bool parse_us(struct parser *p, struct gen__span text, float *us)
{
    return parse_positive(p, text, "not a finite number of microseconds > 0", us);
}

static struct gen__span field(const struct parser *p, const struct gen__span *fields,
                              enum gen__column column)
{
    if (p->position[column] < 0)
        return (struct gen__span){"", 0};
    return fields[p->position[column]];
}

/* By name; num_variants where the product has none. */
static uint32_t find_variant(struct parser *p, struct gen__span name)
{
    const struct gen_pack_view *view = p->view;
    uint32_t *recent = &p->recent[gen_pack_hash(name.at, name.length) % RECENT];
    if (*recent < view->num_variants &&
        gen__span_is(name, view->strings + view->variants[*recent].name))
        return *recent;
    return *recent = gen_pack_find(view, name.at, name.length);
}

static bool parse_optional(struct parser *p, const struct gen__span *fields,
                           struct gen_pack_row *row)
{
    double spread;
    struct gen__span text = field(p, fields, GEN__COLUMN_SPREAD);
    if (!gen__span_absent(text) && !gen__parse_number(text, &spread))
        return bad(p, text, "the spread is not a number");
    row->runner_up = p->view->num_variants;
    row->runner_up_us = 0.0f;
    text = field(p, fields, GEN__COLUMN_RUNNER_UP);
    if (gen__span_absent(text))
        return true;
    /* A product may hold the winners of a table alone, so a runner-up that it
     * lacks is no fault. */
    row->runner_up = find_variant(p, text);
    text = field(p, fields, GEN__COLUMN_RUNNER_UP_US);
    return gen__span_absent(text) || parse_us(p, text, &row->runner_up_us);
}

/* A row holds as long as its variant's machine code stays, whatever becomes of the source, and
 * where another toolkit compiled the same source: what is fast there is fast here as a rule. */
static bool parse_digests(struct parser *p, const struct gen__span *fields,
                          const struct gen_pack_variant *variant, bool *expired)
{
    uint64_t source, code = 0;
    struct gen__span text = field(p, fields, GEN__COLUMN_DIGEST);
    if (!gen__parse_digest(text, &source))
        return bad(p, text, "the digest is not 16 hexadecimal digits");
    text = field(p, fields, GEN__COLUMN_CODE);
    if (!gen__span_absent(text) && !gen__parse_digest(text, &code))
        return bad(p, text, "the code's digest is not 16 hexadecimal digits");
    *expired = source != variant->source_digest && (!code || code != variant->code_digest);
    return !*expired;
}

/* A good row into *pending; else false with the reason, or with *expired. */
static bool parse_row(struct parser *p, struct gen__span line, struct pending *pending,
                      bool *expired)
{
    const struct gen_pack_view *view = p->view;
    struct gen__span fields[GEN__TABLE_MAX_COLUMNS];
    uint32_t count = gen__table_fields(line, fields);
    if (count != p->num_columns)
        return bad(p, line, "%u fields, expected %u", count, p->num_columns);

    struct gen__span text = field(p, fields, GEN__COLUMN_VARIANT);
    struct gen_pack_row *row = &pending->row;
    row->variant = find_variant(p, text);
    if (row->variant == view->num_variants)
        return bad(p, text, "the product has no such variant");
    const struct gen_pack_group *group = &view->groups[view->variants[row->variant].group];
    const struct gen_pack_family *family = &view->families[group->family];
    pending->group = group;
    pending->values = view->strings + group->values;
    text = field(p, fields, GEN__COLUMN_FAMILY);
    if (!gen__span_is(text, view->strings + family->name))
        return bad(p, text, "the variant is of family %.40s", view->strings + family->name);
    text = field(p, fields, GEN__COLUMN_REQUIRED);
    if (!gen__span_is(text, view->strings + group->name))
        return bad(p, text, "not the required key of the row's variant");
    if (!gen_pack_runs(&view->targets[group->target], p->table->about.compute_capability))
        return bad(p, field(p, fields, GEN__COLUMN_VARIANT), "its code does not run on the class");

    if (!parse_problem(p, family, field(p, fields, GEN__COLUMN_PROBLEM), row->counts) ||
        !parse_us(p, field(p, fields, GEN__COLUMN_US), &row->us) || !parse_optional(p, fields, row))
        return false;
    return parse_digests(p, fields, &view->variants[row->variant], expired);
}

/* ---- the table --------------------------------------------------------- */

bool gen_table_same_key(const struct gen_pack_view *view, const struct gen_pack_group *a,
                        const struct gen_pack_group *b)
{
    const uint32_t x = view->families[a->family].name, y = view->families[b->family].name;
    return strcmp(view->strings + x, view->strings + y) == 0 &&
           strcmp(view->strings + a->values, view->strings + b->values) == 0;
}

bool gen_table_passes_over(const struct gen_pack_view *view, const struct gen_pack_group *group,
                           uint32_t compute_capability)
{
    if (view->targets[group->target].kind != GEN_PACK_PTX)
        return false;
    for (uint32_t g = 0; g < view->num_groups; g++) {
        const struct gen_pack_target *target = &view->targets[view->groups[g].target];
        if (target->kind != GEN_PACK_PTX && gen_pack_runs(target, compute_capability) &&
            gen_table_same_key(view, &view->groups[g], group))
            return true;
    }
    return false;
}

int gen_table_order_keys(uint32_t family_a, const char *values_a, uint32_t family_b,
                         const char *values_b)
{
    const int order = (family_a > family_b) - (family_a < family_b);
    return order ? order : strcmp(values_a, values_b);
}

int gen_table_order_counts(const float *a, const float *b)
{
    int order = (a[0] > b[0]) - (a[0] < b[0]);
    for (int c = 1; !order && c < GEN_PACK_MAX_COORDS; c++)
        order = (a[c] < b[c]) - (a[c] > b[c]);
    return order;
}

static int order_pending(const void *x, const void *y)
{
    const struct pending *a = x, *b = y;
    int order = gen_table_order_keys(a->group->family, a->values, b->group->family, b->values);
    if (!order)
        order = gen_table_order_counts(a->row.counts, b->row.counts);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

static void read_rows(struct parser *p)
{
    struct gen_table *t = p->table;
    struct gen__span line;
    while (gen__table_line(&p->text, &line)) {
        if (line.length == 0 || line.at[0] == '#')
            continue;
        struct pending pending = {.line = p->text.line};
        bool expired = false;
        if (parse_row(p, line, &pending, &expired)) {
            if (gen_table_passes_over(p->view, pending.group, t->about.compute_capability))
                t->about.num_ptx++;
            else
                p->rows[p->num_rows++] = pending;
        } else if (expired) {
            t->about.num_expired++;
        } else if (t->about.num_bad++ == 0) {
            memcpy(t->reason, p->reason, sizeof(p->reason));
            t->about.reason_line = p->text.line;
        }
    }
}

enum gen_table_result gen_table_read(const struct gen_pack_view *view, const char *text,
                                     size_t size, struct gen_table *table)
{
    struct parser p = {.view = view, .table = table, .text = {text, text + size, 0}};
    memset(table, 0, sizeof(*table));
    memset(p.recent, 0xff, sizeof(p.recent));
    const enum gen_table_result result = read_header(&p);
    if (result)
        return result;
    /* A good row has 16 characters of digest alone, so there are fewer. */
    p.rows = malloc((size / 16 + 1) * sizeof(*p.rows));
    if (!p.rows)
        return GEN_TABLE_NO_MEMORY;
    read_rows(&p);
    qsort(p.rows, p.num_rows, sizeof(*p.rows), order_pending);
    table->rows = p.num_rows ? malloc(p.num_rows * sizeof(*table->rows)) : NULL;
    for (size_t i = 0; table->rows && i < p.num_rows; i++)
        table->rows[table->about.num_rows++] = p.rows[i].row;
    free(p.rows);
    return table->about.num_rows == p.num_rows ? GEN_TABLE_READ : GEN_TABLE_NO_MEMORY;
}
