/* Reading the fields of a tuning table. */
#include "table_fields.h"

#include <math.h>
#include <string.h>

bool gen__span_is(struct gen__span span, const char *text)
{
    return strlen(text) == span.length && !memcmp(span.at, text, span.length);
}

bool gen__span_absent(struct gen__span span)
{
    return span.length == 0 || (span.length == 1 && *span.at == '-');
}

bool gen__span_unsigned(struct gen__span span, uint32_t *value)
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

bool gen__span_number(struct gen__span span, double *value)
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
            !gen__span_unsigned((struct gen__span){span.at + i, span.length - i}, &exponent))
            return false;
        scale += negative ? -(int)exponent : (int)exponent;
        i = span.length;
    }
    static const double powers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0};
    *value = v * (scale >= -6 && scale <= 0 ? powers[scale + 6] : pow(10.0, scale));
    return i == span.length && isfinite(*value);
}

bool gen__span_digest(struct gen__span span, uint64_t *digest)
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

uint32_t gen__span_split(struct gen__span line, struct gen__span fields[GEN__MAX_COLUMNS])
{
    uint32_t count = 0;
    const char *at = line.at;
    const char *end = line.at + line.length;
    for (;;) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        const char *stop = tab ? tab : end;
        if (count == GEN__MAX_COLUMNS)
            return GEN__MAX_COLUMNS + 1;
        fields[count++] = (struct gen__span){at, (size_t)(stop - at)};
        if (!tab)
            return count;
        at = tab + 1;
    }
}
