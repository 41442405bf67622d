/* The rows of a tuning table: what format/table.h reads, checked against the product. */
#include "product/table.h"
#include "core/simd.h"
#include "format/table.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Variants that were found, by a hash of the name: few win the many rows of a table. */
#define RECENT 256

struct parser {
    const gen_library *library;
    struct gen__table *table;
    struct gen__table_text text;
    uint32_t num_columns;
    int position[GEN__NUM_COLUMNS]; /* of a column in a row; -1: not there */
    char reason[128];               /* why the last row was bad */
    uint32_t recent[RECENT];        /* UINT32_MAX: none */
    /* The last row's, which this one's often are, too. */
    const struct gen__family *family;
    uint32_t group;
    const struct gen__entry *entry; /* of the group */
};

/* ---- the header -------------------------------------------------------- */

/* Notes why the table cannot be used. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static enum gen_status
refuse(struct parser *p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(p->table->reason, sizeof(p->table->reason), format, list);
    va_end(list);
    p->table->refused = true;
    p->table->reason_line = p->text.line;
    return GEN_STATUS_FORMAT;
}

static enum gen_status read_header_line(struct parser *p, struct gen__span line, uint32_t *format)
{
    struct gen__table *t = p->table;
    const struct {
        const char *key;
        uint32_t *value;
    } numbers[] = {
        {"format", format},         {"compute_capability", &t->compute_capability},
        {"num_sms", &t->num_sms},   {"memory_gbps", &t->memory_gbps},
        {"l2_bytes", &t->l2_bytes},
    };
    struct gen__span key, value;
    if (!gen__table_comment(line, &key, &value))
        return GEN_OK;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!gen__span_is(key, numbers[i].key))
            continue;
        if (!gen__parse_unsigned(value, numbers[i].value) || *numbers[i].value == 0)
            return refuse(p, "%s is \"%.*s\", expected a number of at least 1", numbers[i].key,
                          (int)(value.length < 40 ? value.length : 40), value.at);
    }
    if (gen__span_is(key, "class"))
        snprintf(t->class_name, sizeof(t->class_name), "%.*s",
                 (int)(value.length < 31 ? value.length : 31), value.at);
    return GEN_OK;
}

static enum gen_status check_header(struct parser *p, uint32_t format)
{
    struct gen__table *t = p->table;
    if (format != 1)
        return refuse(p, "table format %u, this runtime reads format 1", format);
    const char *missing = !t->compute_capability ? "compute_capability"
                          : !t->num_sms          ? "num_sms"
                          : !t->memory_gbps      ? "memory_gbps"
                          : !t->l2_bytes         ? "l2_bytes"
                          : !t->class_name[0]    ? "class"
                                                 : NULL;
    if (missing)
        return refuse(p, "the header has no \"# %s: ...\" line", missing);
    char class[sizeof(t->class_name)];
    snprintf(class, sizeof(class), "sm%u_%usm", t->compute_capability, t->num_sms);
    if (strcmp(class, t->class_name) != 0)
        return refuse(p, "the class is \"%s\", but compute_capability and num_sms say \"%s\"",
                      t->class_name, class);
    return GEN_OK;
}

static enum gen_status read_columns(struct parser *p, struct gen__span line)
{
    struct gen__span fields[GEN__TABLE_MAX_COLUMNS];
    p->num_columns = gen__table_fields(line, fields);
    if (p->num_columns > GEN__TABLE_MAX_COLUMNS)
        return refuse(p, "more than %d columns", GEN__TABLE_MAX_COLUMNS);
    for (int c = 0; c < GEN__NUM_COLUMNS; c++) {
        p->position[c] = gen__table_column(fields, p->num_columns, (enum gen__column)c);
        if (c < GEN__NUM_NEEDED_COLUMNS && p->position[c] < 0)
            return refuse(p, "the line of column names has no \"%s\"", gen__table_columns[c]);
    }
    return GEN_OK;
}

static enum gen_status read_header(struct parser *p)
{
    struct gen__span line;
    uint32_t format = 0;
    if (!gen__table_line(&p->text, &line) || !gen__span_is(line, GEN__TABLE_MAGIC))
        return refuse(p, "the first line is not \"" GEN__TABLE_MAGIC "\"");
    while (gen__table_line(&p->text, &line)) {
        if (line.length == 0)
            continue;
        enum gen_status status;
        if (line.at[0] == '#') {
            status = read_header_line(p, line, &format);
            if (status)
                return status;
            continue;
        }
        status = check_header(p, format);
        return status ? status : read_columns(p, line);
    }
    return refuse(p, "the text ends before the line of column names");
}

/* ---- rows -------------------------------------------------------------- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static bool
bad(struct parser *p, struct gen__span found, const char *format, ...)
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

/* "states=4096", several separated by commas or spaces: every coordinate of the
 * family once. */
static bool parse_problem(struct parser *p, const struct gen__family *family, struct gen__span text,
                          struct gen__row *row)
{
    const char *at = text.at;
    const char *end = text.at + text.length;
    uint32_t seen = 0;
    while (at < end) {
        const char *stop = at;
        while (stop < end && *stop != ',' && *stop != ' ')
            stop++;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (!equals)
            return bad(p, text, "expected coordinate=value");
        const struct gen__span name = {at, (size_t)(equals - at)};
        uint32_t c = 0;
        while (c < family->num_coords && !gen__span_is(name, family->coords[c]))
            c++;
        if (c == family->num_coords)
            return bad(p, name, "not a coordinate of %.40s", family->name);
        if (seen & 1u << c)
            return bad(p, name, "the coordinate is given twice");
        seen |= 1u << c;
        double value;
        const struct gen__span number = {equals + 1, (size_t)(stop - equals - 1)};
        if (!gen__parse_number(number, &value) || value <= 0.0 || !isnormal((float)value))
            return bad(p, number, "the coordinate is not a number > 0");
        row->counts[c] = (float)value;
        row->logs[c] = gen__doublings((float)value);
        at = stop < end ? stop + 1 : end;
    }
    if (seen != (1u << family->num_coords) - 1)
        return bad(p, text, "a coordinate of %.40s is missing", family->name);
    return true;
}

static bool parse_us(struct parser *p, struct gen__span text, float *us)
{
    double value;
    if (!gen__parse_number(text, &value) || !isnormal((float)value))
        return bad(p, text, "not a finite number of microseconds > 0");
    *us = (float)value;
    return true;
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
    const struct gen__pack *pack = &p->library->pack;
    uint32_t *recent = &p->recent[gen_pack_hash(name.at, name.length) % RECENT];
    if (*recent < pack->index->num_variants &&
        gen__span_is(name, gen__pack_string(pack, pack->variants[*recent].name)))
        return *recent;
    return *recent = gen__pack_find(pack, name.at, name.length);
}

static const struct gen__family *find_family(struct parser *p, struct gen__span name)
{
    if (p->family && gen__span_is(name, p->family->name))
        return p->family;
    for (uint32_t i = 0; i < gen__num_families; i++)
        if (gen__span_is(name, gen__families[i]->name))
            return p->family = gen__families[i];
    return NULL;
}

static const struct gen__entry *find_entry(struct parser *p, uint32_t group)
{
    if (group != p->group) {
        p->group = group;
        p->entry = gen__entry_of_group(p->library, group);
    }
    return p->entry;
}

static bool parse_optional(struct parser *p, const struct gen__span *fields, struct gen__row *row)
{
    double spread;
    struct gen__span text = field(p, fields, GEN__COLUMN_SPREAD);
    if (!gen__span_absent(text) && !gen__parse_number(text, &spread))
        return bad(p, text, "the spread is not a number");
    const struct gen__pack *pack = &p->library->pack;
    row->runner_up = pack->index->num_variants;
    row->runner_up_us = 0.0f;
    text = field(p, fields, GEN__COLUMN_RUNNER_UP);
    if (gen__span_absent(text))
        return true;
    /* A product may hold the table's winners alone, so a runner-up that it
     * lacks is no fault. */
    row->runner_up = find_variant(p, text);
    text = field(p, fields, GEN__COLUMN_RUNNER_UP_US);
    return gen__span_absent(text) || parse_us(p, text, &row->runner_up_us);
}

/* A good row into *pending; else false with the reason, or with *expired. */
static bool parse_row(struct parser *p, struct gen__span line, struct gen__pending *pending,
                      bool *expired)
{
    const gen_library *library = p->library;
    const struct gen__pack *pack = &library->pack;
    struct gen__span fields[GEN__TABLE_MAX_COLUMNS];
    uint32_t count = gen__table_fields(line, fields);
    if (count != p->num_columns)
        return bad(p, line, "%u fields, expected %u", count, p->num_columns);

    struct gen__span text = field(p, fields, GEN__COLUMN_FAMILY);
    const struct gen__family *family = find_family(p, text);
    if (!family)
        return bad(p, text, "this runtime has no such family");

    text = field(p, fields, GEN__COLUMN_VARIANT);
    const uint32_t variant = find_variant(p, text);
    if (variant == pack->index->num_variants)
        return bad(p, text, "the product has no such variant");
    const uint32_t group = pack->variants[variant].group;
    if (library->families[pack->groups[group].family] != family)
        return bad(p, text, "the variant is not of family %.40s", family->name);
    const struct gen__span required = field(p, fields, GEN__COLUMN_REQUIRED);
    if (!gen__span_is(required, gen__pack_string(pack, pack->groups[group].name)))
        return bad(p, required, "not the required key of the row's variant");
    const struct gen__entry *entry = find_entry(p, group);
    if (!entry)
        return bad(p, required, "this runtime does not know a required value");
    pending->entry = (uint32_t)(entry - library->entries);

    struct gen__row *row = &pending->row;
    memset(row, 0, sizeof(*row));
    row->facts = gen__facts_of(library, variant);
    uint64_t digest;
    text = field(p, fields, GEN__COLUMN_DIGEST);
    if (!parse_problem(p, family, field(p, fields, GEN__COLUMN_PROBLEM), row) ||
        !parse_us(p, field(p, fields, GEN__COLUMN_US), &row->us) || !parse_optional(p, fields, row))
        return false;
    if (!gen__parse_digest(text, &digest))
        return bad(p, text, "the digest is not 16 hexadecimal digits");
    row->log2_us = log2f(fmaxf(row->us, FLT_MIN));
    *expired = digest != pack->variants[variant].digest;
    return !*expired;
}

static bool append(struct gen__pending_list *list, const struct gen__pending *row)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 256;
        struct gen__pending *rows = realloc(list->rows, capacity * sizeof(*rows));
        if (!rows)
            return false;
        list->rows = rows;
        list->capacity = capacity;
    }
    list->rows[list->count++] = *row;
    return true;
}

enum gen_status gen__table_parse(const gen_library *library, uint32_t table, const char *text,
                                 size_t size, struct gen__pending_list *list)
{
    struct gen__table *t = &library->tables[table];
    struct parser p = {
        .library = library, .table = t, .text = {text, text + size, 0}, .group = UINT32_MAX};
    memset(p.recent, 0xff, sizeof(p.recent));
    enum gen_status status = read_header(&p);
    if (status)
        return status;
    struct gen__span line;
    while (gen__table_line(&p.text, &line)) {
        if (line.length == 0 || line.at[0] == '#')
            continue;
        struct gen__pending pending = {.compute_capability = t->compute_capability,
                                       .num_sms = t->num_sms,
                                       .table = table,
                                       .line = p.text.line};
        bool expired = false;
        if (parse_row(&p, line, &pending, &expired)) {
            if (gen__is_passed_over(library, &library->entries[pending.entry],
                                    pending.row.facts->index, t->compute_capability))
                t->num_ptx++;
            else if (!append(list, &pending))
                return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory for its rows", t->name);
        } else if (expired) {
            t->num_expired++;
        } else if (t->num_bad++ == 0) {
            memcpy(t->reason, p.reason, sizeof(p.reason));
            t->reason_line = p.text.line;
        }
    }
    return GEN_OK;
}
