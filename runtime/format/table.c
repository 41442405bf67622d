/* Taking a tuning table's text apart. Numbers are read without regard to the locale. */
#include "format/table.h"

#include <math.h>
#include <string.h>

const char *const gen__table_columns[GEN__NUM_COLUMNS] = {
    "family",    "required",     "problem", "variant", "us",   "digest", "spread",
    "runner_up", "runner_up_us", "toolkit", "driver",  "code", "others",
};

bool gen__table_line(struct gen__table_text *text, struct gen__span *line)
{
    if (text->at == text->end)
        return false;
    const char *newline = memchr(text->at, '\n', (size_t)(text->end - text->at));
    const char *stop = newline ? newline : text->end;
    line->at = text->at;
    line->length = (size_t)(stop - text->at);
    if (line->length && stop[-1] == '\r')
        line->length--;
    text->at = newline ? newline + 1 : text->end;
    text->line++;
    return true;
}

bool gen__parse_unsigned(struct gen__span span, uint32_t *value)
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

bool gen__parse_number(struct gen__span span, double *value)
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
            !gen__parse_unsigned((struct gen__span){span.at + i, span.length - i}, &exponent))
            return false;
        scale += negative ? -(int)exponent : (int)exponent;
        i = span.length;
    }
    static const double powers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0};
    *value = v * (scale >= -6 && scale <= 0 ? powers[scale + 6] : pow(10.0, scale));
    return i == span.length && isfinite(*value);
}

bool gen__parse_digest(struct gen__span span, uint64_t *digest)
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

bool gen__table_comment(struct gen__span line, struct gen__span *key, struct gen__span *value)
{
    const char *end = line.at + line.length;
    const char *at = line.at + 1;
    while (at < end && *at == ' ')
        at++;
    const char *colon = memchr(at, ':', (size_t)(end - at));
    if (!colon)
        return false;
    *key = (struct gen__span){at, (size_t)(colon - at)};
    at = colon + 1;
    while (at < end && *at == ' ')
        at++;
    while (end > at && end[-1] == ' ')
        end--;
    *value = (struct gen__span){at, (size_t)(end - at)};
    return true;
}

uint32_t gen__table_fields(struct gen__span line, struct gen__span fields[GEN__TABLE_MAX_COLUMNS])
{
    uint32_t count = 0;
    const char *at = line.at;
    const char *end = line.at + line.length;
    for (;;) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        const char *stop = tab ? tab : end;
        if (count == GEN__TABLE_MAX_COLUMNS)
            return GEN__TABLE_MAX_COLUMNS + 1;
        fields[count++] = (struct gen__span){at, (size_t)(stop - at)};
        if (!tab)
            return count;
        at = tab + 1;
    }
}

int gen__table_column(const struct gen__span *fields, uint32_t count, enum gen__column column)
{
    int found = -1;
    for (uint32_t i = 0; i < count; i++)
        if (gen__span_is(fields[i], gen__table_columns[column]))
            found = (int)i;
    return found;
}
