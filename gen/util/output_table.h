/*
 * Tabular output on stdout: aligned for people, TSV and JSON for programs.
 */
#ifndef ROWS_H
#define ROWS_H

#include "util/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum rows_format { ROWS_TABLE, ROWS_TSV, ROWS_JSON };

bool rows_format_parse(const char *name, enum rows_format *format);

struct cell {
    const char *text;
    bool number; /* JSON: without quotes; aligned to the right */
};

struct rows {
    struct arena *arena;
    const char *const *columns;
    size_t num_columns;
    struct cell *cells;
    size_t count, capacity;
};

void rows_begin(struct rows *rows, struct arena *arena, const char *const *columns,
                size_t num_columns);
/* Cells are added from left to right, row after row. The text is kept. */
void rows_text(struct rows *rows, const char *text);
void rows_integer(struct rows *rows, int64_t value);
void rows_decimal(struct rows *rows, double value, int digits);
void rows_print(const struct rows *rows, enum rows_format format);

#endif /* ROWS_H */
