/* Text put together piece by piece. */
#include "core/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

void gen__text_add(struct gen__text *text, const char *format, ...)
{
    const bool room = text->length < text->capacity;
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(room ? text->at + text->length : NULL,
                                 room ? text->capacity - text->length : 0, format, list);
    va_end(list);
    if (length > 0)
        text->length += (size_t)length;
}
