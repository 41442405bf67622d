#include "util/output_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool output_format_parse(const char *name, enum output_format *format)
{
    static const char *const names[] = {"table", "tsv", "json"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *format = (enum output_format)i;
            return true;
        }
    return false;
}

void output_begin(struct output_table *rows, struct arena *arena, const char *const *columns,
                  size_t num_columns)
{
    *rows = (struct output_table){.arena = arena, .columns = columns, .num_columns = num_columns};
}

static void add(struct output_table *rows, const char *text, bool number)
{
    if (rows->count == rows->capacity) {
        size_t capacity = rows->capacity > 0 ? 2 * rows->capacity : 64;
        rows->cells =
            arena_grow(rows->arena, rows->cells, rows->count, capacity, sizeof *rows->cells);
        rows->capacity = capacity;
    }
    rows->cells[rows->count++] = (struct cell){text, number};
}

void output_text(struct output_table *rows, const char *text)
{
    add(rows, text, false);
}

void output_integer(struct output_table *rows, int64_t value)
{
    add(rows, arena_printf(rows->arena, "%" PRId64, value), true);
}

void output_decimal(struct output_table *rows, double value, int digits)
{
    if (isfinite(value))
        add(rows, arena_printf(rows->arena, "%.*f", digits, value), true);
    else
        add(rows, "null", true); /* JSON has no other number */
}

static void print_table(const struct output_table *rows)
{
    size_t n = rows->num_columns, widths[32] = {0};
    for (size_t i = 0; i < n; i++)
        widths[i] = strlen(rows->columns[i]);
    for (size_t i = 0; i < rows->count; i++)
        if (strlen(rows->cells[i].text) > widths[i % n])
            widths[i % n] = strlen(rows->cells[i].text);
    for (size_t i = 0; i < n + rows->count; i++) {
        bool head = i < n, last = i % n == n - 1;
        struct cell cell = head ? (struct cell){rows->columns[i], false} : rows->cells[i - n];
        bool right = head ? rows->count > 0 && rows->cells[i].number : cell.number;
        int width = (int)widths[i % n];
        printf("%*s%s", right ? width : last ? 0 : -width, cell.text, last ? "\n" : "  ");
    }
}

static void print_tsv_cell(const char *text)
{
    for (; *text != '\0'; text++)
        putchar(*text == '\t' || *text == '\n' || *text == '\r' ? ' ' : *text);
}

static void print_tsv(const struct output_table *rows)
{
    size_t n = rows->num_columns;
    for (size_t i = 0; i < n + rows->count; i++) {
        print_tsv_cell(i < n ? rows->columns[i] : rows->cells[i - n].text);
        putchar(i % n == n - 1 ? '\n' : '\t');
    }
}

/* The bytes of the character at p where it is well-formed UTF-8 beyond ASCII, else 0. */
static size_t utf8_size(const unsigned char *p)
{
    size_t size = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* Longer than need be, surrogates, beyond U+10FFFF. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return size;
}

/* A byte that is no UTF-8 becomes the replacement character: JSON has no bytes. */
static void print_json_string(const char *text)
{
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        size_t size = *p < 0x80 ? 1 : utf8_size(p);
        if (*p == '"' || *p == '\\')
            printf("\\%c", *p);
        else if (*p < ' ')
            printf("\\u%04x", *p);
        else if (size > 0)
            fwrite(p, 1, size, stdout);
        else
            printf("\\ufffd");
        p += size > 0 ? size : 1;
    }
    putchar('"');
}

static void print_json(const struct output_table *rows)
{
    size_t n = rows->num_columns;
    printf("[");
    for (size_t i = 0; i < rows->count; i++) {
        printf("%s", i % n == 0 ? (i == 0 ? "\n  {" : ",\n  {") : ", ");
        print_json_string(rows->columns[i % n]);
        printf(": ");
        if (rows->cells[i].number)
            printf("%s", rows->cells[i].text);
        else
            print_json_string(rows->cells[i].text);
        if (i % n == n - 1)
            printf("}");
    }
    printf("%s]\n", rows->count > 0 ? "\n" : "");
}

void output_print(const struct output_table *rows, enum output_format format)
{
    if (format == OUTPUT_TABLE)
        print_table(rows);
    else if (format == OUTPUT_TSV)
        print_tsv(rows);
    else
        print_json(rows);
}
