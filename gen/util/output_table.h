/*
 * Tabular output on stdout: aligned for people, TSV and JSON for programs.
 */
#ifndef OUTPUT_TABLE_H
#define OUTPUT_TABLE_H

#include "util/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum output_format { OUTPUT_TABLE, OUTPUT_TSV, OUTPUT_JSON };

bool output_format_parse(const char *name, enum output_format *format);

struct cell {
    const char *text;
    bool number; /* JSON: without quotes; aligned to the right */
};

struct output_table {
    struct arena *arena;
    const char *const *columns;
    size_t num_columns;
    struct cell *cells;
    size_t count, capacity;
};

void output_begin(struct output_table *rows, struct arena *arena, const char *const *columns,
                  size_t num_columns);
/* Cells are added from left to right, row after row. The text is kept. */
void output_text(struct output_table *rows, const char *text);
void output_integer(struct output_table *rows, int64_t value);
void output_decimal(struct output_table *rows, double value, int digits);
void output_print(const struct output_table *rows, enum output_format format);

#endif /* OUTPUT_TABLE_H */
