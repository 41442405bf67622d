/* The fields of a tuning table's lines: pieces of its text. */
#ifndef GEN_TABLE_FIELDS_H
#define GEN_TABLE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GEN__MAX_COLUMNS 32

/* A piece of the text, without a NUL. */
struct gen__span {
    const char *at;
    size_t length;
};

bool gen__span_is(struct gen__span span, const char *text);
/* Absent values are written as "" or "-". */
bool gen__span_absent(struct gen__span span);
bool gen__span_unsigned(struct gen__span span, uint32_t *value);
/* Digits, with a point and an exponent if wished; never negative. Locales do not matter. */
bool gen__span_number(struct gen__span span, double *value);
/* 16 hexadecimal digits. */
bool gen__span_digest(struct gen__span span, uint64_t *digest);
/* Splits at tabs; the number of fields, at most GEN__MAX_COLUMNS + 1. */
uint32_t gen__span_split(struct gen__span line, struct gen__span fields[GEN__MAX_COLUMNS]);

#endif /* GEN_TABLE_FIELDS_H */
