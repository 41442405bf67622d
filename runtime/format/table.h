/*
 * The text of a tuning table, as the generator, the tuner and the runtime read it.
 * Lines that start with '#' are the header and comments ("# key: value"), the
 * first other line names the columns, the rest are rows of tab-separated fields.
 * Nothing is copied: what is read points into the text.
 */
#ifndef GEN_FORMAT_TABLE_H
#define GEN_FORMAT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GEN__TABLE_MAGIC "# attngen tuning table"
#define GEN__TABLE_MAX_COLUMNS 32

/* A piece of the text, without a NUL. */
struct gen__span {
    const char *at;
    size_t length;
};

/* The columns by name; a table may have others, and in any order. Each table has those before
 * SPREAD. */
enum gen__column {
    GEN__COLUMN_FAMILY,
    GEN__COLUMN_REQUIRED,
    GEN__COLUMN_PROBLEM,
    GEN__COLUMN_VARIANT,
    GEN__COLUMN_US,
    GEN__COLUMN_DIGEST,
    GEN__COLUMN_SPREAD,
    GEN__COLUMN_RUNNER_UP,
    GEN__COLUMN_RUNNER_UP_US,
    GEN__COLUMN_TOOLKIT,
    GEN__COLUMN_DRIVER,
    GEN__COLUMN_CODE,
    GEN__COLUMN_OTHERS, /* variant=us of further ones near the fastest, comma-separated */
    GEN__NUM_COLUMNS
};
#define GEN__NUM_NEEDED_COLUMNS GEN__COLUMN_SPREAD

extern const char *const gen__table_columns[GEN__NUM_COLUMNS];

struct gen__table_text {
    const char *at, *end;
    uint32_t line; /* the number of the line that was read last, from 1 */
};

/* The next line without its end (\n or \r\n); false behind the last one. */
bool gen__table_line(struct gen__table_text *text, struct gen__span *line);
/* Splits "# key: value"; false for another line. */
bool gen__table_comment(struct gen__span line, struct gen__span *key, struct gen__span *value);
/* Splits a line at its tabs; returns the number of fields, at most GEN__TABLE_MAX_COLUMNS + 1. */
uint32_t gen__table_fields(struct gen__span line, struct gen__span fields[GEN__TABLE_MAX_COLUMNS]);
/* Finds a column among the names on a line: the last of its name, or -1. */
int gen__table_column(const struct gen__span *fields, uint32_t count, enum gen__column column);

static inline bool gen__span_is(struct gen__span span, const char *text)
{
    return strlen(text) == span.length && !memcmp(span.at, text, span.length);
}

/* Absent values are written as "" or "-". */
static inline bool gen__span_absent(struct gen__span span)
{
    return span.length == 0 || (span.length == 1 && *span.at == '-');
}

/* Digits alone, at most 32 bits. */
bool gen__parse_unsigned(struct gen__span span, uint32_t *value);
/* Digits, with a point and an exponent if wished; never negative. */
bool gen__parse_number(struct gen__span span, double *value);
/* 16 hexadecimal digits. */
bool gen__parse_digest(struct gen__span span, uint64_t *digest);

#endif /* GEN_FORMAT_TABLE_H */
