/*
 * Parsing a tuning table. Lines starting with '#' are the header and comments
 * ("# key: value"), the first other line names the columns, the rest are rows
 * of tab-separated fields. Numbers are read without regard to the locale.
 */
#include "product/table.h"
#include "core/simd.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "# attngen tuning table"
#define MAX_COLUMNS 32

/* Variants that were found, by a hash of the name: few win the many rows of a table. */
#define RECENT 256

/* A piece of the text, without a NUL. */
struct span {
    const char *at;
    size_t length;
};

enum column {
    FAMILY,
    REQUIRED,
    PROBLEM,
    VARIANT,
    US,
    DIGEST,
    SPREAD,
    RUNNER_UP,
    RUNNER_UP_US,
    NUM_COLUMNS
};
#define NUM_NEEDED SPREAD /* the columns before it must be there */

static const char *const column_names[NUM_COLUMNS] = {
    "family", "required", "problem",   "variant",      "us",
    "digest", "spread",   "runner_up", "runner_up_us",
};

struct parser {
    const gen_library *library;
    struct gen__table *table;
    const char *at, *end;
    uint32_t line;
    uint32_t num_columns;
    int position[NUM_COLUMNS]; /* of a column in a row; -1: not there */
    char reason[128];          /* why the last row was bad */
    uint32_t recent[RECENT];   /* UINT32_MAX: none */
    /* The last row's, which this one's often are, too. */
    const struct gen__family *family;
    uint32_t group;
    const struct gen__entry *entry; /* of the group */
};

static bool same(struct span span, const char *text)
{
    return strlen(text) == span.length && !memcmp(span.at, text, span.length);
}

/* Absent values are written as "" or "-". */
static bool absent(struct span span)
{
    return span.length == 0 || (span.length == 1 && *span.at == '-');
}

static bool next_line(struct parser *p, struct span *line)
{
    if (p->at == p->end)
        return false;
    const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
    const char *stop = newline ? newline : p->end;
    line->at = p->at;
    line->length = (size_t)(stop - p->at);
    if (line->length && stop[-1] == '\r')
        line->length--;
    p->at = newline ? newline + 1 : p->end;
    p->line++;
    return true;
}

static bool parse_unsigned(struct span span, uint32_t *value)
{
    uint64_t v = 0;
    if (span.length == 0 || span.length > 10)
        return false;
    for (size_t i = 0; i < span.length; i++) {
        if (span.at[i] < '0' || span.at[i] > '9')
            return false;
        v = 10 * v + (uint64_t)(span.at[i] - '0');
    }
    *value = (uint32_t)v;
    return v <= UINT32_MAX;
}

/* Digits, with a point and an exponent if wished; never negative. */
static bool parse_number(struct span span, double *value)
{
    double v = 0.0;
    int scale = 0;
    size_t digits = 0;
    bool point = false;
    size_t i = 0;
    for (; i < span.length; i++) {
        char c = span.at[i];
        if (c == '.' && !point) {
            point = true;
        } else if (c >= '0' && c <= '9') {
            v = 10.0 * v + (c - '0');
            scale -= point;
            digits++;
        } else {
            break;
        }
    }
    if (digits == 0 || digits > 40)
        return false;
    if (i < span.length && (span.at[i] == 'e' || span.at[i] == 'E')) {
        bool negative = ++i < span.length && span.at[i] == '-';
        if (i < span.length && (span.at[i] == '-' || span.at[i] == '+'))
            i++;
        uint32_t exponent;
        if (span.length - i > 3 ||
            !parse_unsigned((struct span){span.at + i, span.length - i}, &exponent))
            return false;
        scale += negative ? -(int)exponent : (int)exponent;
        i = span.length;
    }
    static const double powers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0};
    *value = v * (scale >= -6 && scale <= 0 ? powers[scale + 6] : pow(10.0, scale));
    return i == span.length && isfinite(*value);
}

static bool parse_digest(struct span span, uint64_t *digest)
{
    uint64_t v = 0;
    if (span.length != 16)
        return false;
    for (size_t i = 0; i < span.length; i++) {
        char c = span.at[i];
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (unsigned)(c - 'A') + 10;
        else
            return false;
        v = v << 4 | digit;
    }
    *digest = v;
    return true;
}

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
    p->table->reason_line = p->line;
    return GEN_STATUS_FORMAT;
}

/* "# key: value" */
static bool split_header(struct span line, struct span *key, struct span *value)
{
    const char *end = line.at + line.length;
    const char *at = line.at + 1;
    while (at < end && *at == ' ')
        at++;
    const char *colon = memchr(at, ':', (size_t)(end - at));
    if (!colon)
        return false;
    *key = (struct span){at, (size_t)(colon - at)};
    at = colon + 1;
    while (at < end && *at == ' ')
        at++;
    while (end > at && end[-1] == ' ')
        end--;
    *value = (struct span){at, (size_t)(end - at)};
    return true;
}

static enum gen_status read_header_line(struct parser *p, struct span line, uint32_t *format)
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
    struct span key, value;
    if (!split_header(line, &key, &value))
        return GEN_OK;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!same(key, numbers[i].key))
            continue;
        if (!parse_unsigned(value, numbers[i].value) || *numbers[i].value == 0)
            return refuse(p, "%s is \"%.*s\", expected a number of at least 1", numbers[i].key,
                          (int)(value.length < 40 ? value.length : 40), value.at);
    }
    if (same(key, "class"))
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

/* Splits at tabs; the number of fields, at most MAX_COLUMNS + 1. */
static uint32_t split_fields(struct span line, struct span fields[MAX_COLUMNS])
{
    uint32_t count = 0;
    const char *at = line.at;
    const char *end = line.at + line.length;
    for (;;) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        const char *stop = tab ? tab : end;
        if (count == MAX_COLUMNS)
            return MAX_COLUMNS + 1;
        fields[count++] = (struct span){at, (size_t)(stop - at)};
        if (!tab)
            return count;
        at = tab + 1;
    }
}

static enum gen_status read_columns(struct parser *p, struct span line)
{
    struct span fields[MAX_COLUMNS];
    p->num_columns = split_fields(line, fields);
    if (p->num_columns > MAX_COLUMNS)
        return refuse(p, "more than %d columns", MAX_COLUMNS);
    for (int c = 0; c < NUM_COLUMNS; c++) {
        p->position[c] = -1;
        for (uint32_t i = 0; i < p->num_columns; i++)
            if (same(fields[i], column_names[c]))
                p->position[c] = (int)i;
        if (c < NUM_NEEDED && p->position[c] < 0)
            return refuse(p, "the line of column names has no \"%s\"", column_names[c]);
    }
    return GEN_OK;
}

static enum gen_status read_header(struct parser *p)
{
    struct span line;
    uint32_t format = 0;
    if (!next_line(p, &line) || !same(line, MAGIC))
        return refuse(p, "the first line is not \"" MAGIC "\"");
    while (next_line(p, &line)) {
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
bad(struct parser *p, struct span found, const char *format, ...)
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
static bool parse_problem(struct parser *p, const struct gen__family *family, struct span text,
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
        const struct span name = {at, (size_t)(equals - at)};
        uint32_t c = 0;
        while (c < family->num_coords && !same(name, family->coords[c]))
            c++;
        if (c == family->num_coords)
            return bad(p, name, "not a coordinate of %.40s", family->name);
        if (seen & 1u << c)
            return bad(p, name, "the coordinate is given twice");
        seen |= 1u << c;
        double value;
        const struct span number = {equals + 1, (size_t)(stop - equals - 1)};
        if (!parse_number(number, &value) || value <= 0.0 || !isnormal((float)value))
            return bad(p, number, "the coordinate is not a number > 0");
        row->counts[c] = (float)value;
        row->logs[c] = gen__doublings((float)value);
        at = stop < end ? stop + 1 : end;
    }
    if (seen != (1u << family->num_coords) - 1)
        return bad(p, text, "a coordinate of %.40s is missing", family->name);
    return true;
}

static bool parse_us(struct parser *p, struct span text, float *us)
{
    double value;
    if (!parse_number(text, &value) || !isnormal((float)value))
        return bad(p, text, "not a finite number of microseconds > 0");
    *us = (float)value;
    return true;
}

static struct span field(const struct parser *p, const struct span *fields, enum column column)
{
    if (p->position[column] < 0)
        return (struct span){"", 0};
    return fields[p->position[column]];
}

/* By name; num_variants where the product has none. */
static uint32_t find_variant(struct parser *p, struct span name)
{
    const struct gen__pack *pack = &p->library->pack;
    uint32_t *recent = &p->recent[gen_pack_hash(name.at, name.length) % RECENT];
    if (*recent < pack->index->num_variants &&
        same(name, gen__pack_string(pack, pack->variants[*recent].name)))
        return *recent;
    return *recent = gen__pack_find(pack, name.at, name.length);
}

static const struct gen__family *find_family(struct parser *p, struct span name)
{
    if (p->family && same(name, p->family->name))
        return p->family;
    for (uint32_t i = 0; i < gen__num_families; i++)
        if (same(name, gen__families[i]->name))
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

static bool parse_optional(struct parser *p, const struct span *fields, struct gen__row *row)
{
    double spread;
    struct span text = field(p, fields, SPREAD);
    if (!absent(text) && !parse_number(text, &spread))
        return bad(p, text, "the spread is not a number");
    const struct gen__pack *pack = &p->library->pack;
    row->runner_up = pack->index->num_variants;
    row->runner_up_us = 0.0f;
    text = field(p, fields, RUNNER_UP);
    if (absent(text))
        return true;
    /* A product may hold the table's winners alone, so a runner-up that it
     * lacks is no fault. */
    row->runner_up = find_variant(p, text);
    text = field(p, fields, RUNNER_UP_US);
    return absent(text) || parse_us(p, text, &row->runner_up_us);
}

/* A good row into *pending; else false with the reason, or with *expired. */
static bool parse_row(struct parser *p, struct span line, struct gen__pending *pending,
                      bool *expired)
{
    const gen_library *library = p->library;
    const struct gen__pack *pack = &library->pack;
    struct span fields[MAX_COLUMNS];
    uint32_t count = split_fields(line, fields);
    if (count != p->num_columns)
        return bad(p, line, "%u fields, expected %u", count, p->num_columns);

    struct span text = field(p, fields, FAMILY);
    const struct gen__family *family = find_family(p, text);
    if (!family)
        return bad(p, text, "this runtime has no such family");

    text = field(p, fields, VARIANT);
    const uint32_t variant = find_variant(p, text);
    if (variant == pack->index->num_variants)
        return bad(p, text, "the product has no such variant");
    const uint32_t group = pack->variants[variant].group;
    if (library->families[pack->groups[group].family] != family)
        return bad(p, text, "the variant is not of family %.40s", family->name);
    const struct span required = field(p, fields, REQUIRED);
    if (!same(required, gen__pack_string(pack, pack->groups[group].name)))
        return bad(p, required, "not the required key of the row's variant");
    const struct gen__entry *entry = find_entry(p, group);
    if (!entry)
        return bad(p, required, "this runtime does not know a required value");
    pending->entry = (uint32_t)(entry - library->entries);

    struct gen__row *row = &pending->row;
    memset(row, 0, sizeof(*row));
    row->facts = gen__facts_of(library, variant);
    uint64_t digest;
    text = field(p, fields, DIGEST);
    if (!parse_problem(p, family, field(p, fields, PROBLEM), row) ||
        !parse_us(p, field(p, fields, US), &row->us) || !parse_optional(p, fields, row))
        return false;
    if (!parse_digest(text, &digest))
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
        .library = library, .table = t, .at = text, .end = text + size, .group = UINT32_MAX};
    memset(p.recent, 0xff, sizeof(p.recent));
    enum gen_status status = read_header(&p);
    if (status)
        return status;
    struct span line;
    while (next_line(&p, &line)) {
        if (line.length == 0 || line.at[0] == '#')
            continue;
        struct gen__pending pending = {.compute_capability = t->compute_capability,
                                       .num_sms = t->num_sms,
                                       .table = table,
                                       .line = p.line};
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
            t->reason_line = p.line;
        }
    }
    return GEN_OK;
}
