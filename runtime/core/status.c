/* Status strings, the version, and the calling thread's error message. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

static _Thread_local char message[2048];

enum gen_status gen__fail(enum gen_status status, const char *format, ...)
{
    /* Through a second buffer, so that a message may quote the one before. */
    char text[sizeof(message)];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (length < 0)
        text[0] = '\0';
    else if ((size_t)length >= sizeof(text))
        memcpy(text + sizeof(text) - 4, "...", 4);
    memcpy(message, text, strlen(text) + 1);
    return status;
}

const char *gen_last_error(void)
{
    return message;
}

/* A function that gives a text for each value of an enum. */
#define NAME(name, text) #name,
#define SENTENCE(name, text) text,
#define TEXTS(function, type, MAP, what, count, other)           \
    const char *function(enum type value)                        \
    {                                                            \
        static const char *const texts[] = {MAP(what)};          \
        return (unsigned)value < (count) ? texts[value] : other; \
    }
TEXTS(gen_status_name, gen_status, GEN_STATUS_MAP, NAME, GEN_STATUS_COUNT, "UNKNOWN")
TEXTS(gen_status_string, gen_status, GEN_STATUS_MAP, SENTENCE, GEN_STATUS_COUNT, "unknown status")
TEXTS(gen_why_string, gen_why, GEN_WHY_MAP, SENTENCE, GEN_WHY_COUNT, "unknown rule")
TEXTS(gen__why_name, gen_why, GEN_WHY_MAP, NAME, GEN_WHY_COUNT, "UNKNOWN")

const char *gen_version(void)
{
    return VERSION_TEXT(GEN_VERSION_MAJOR, GEN_VERSION_MINOR, GEN_VERSION_PATCH);
}

enum gen_status gen__bad_struct(const void *pointer, const char *name, size_t expected,
                                const char *type)
{
    uint32_t size;
    if (!pointer)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL", name);
    memcpy(&size, pointer, sizeof(size));
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s->size is %u, expected %zu (sizeof(%s)); set it before the call", name,
                     size, expected, type);
}

void gen__give(void *to, const void *from, uint32_t full)
{
    uint32_t size;
    memcpy(&size, to, sizeof(size));
    memcpy(to, from, size < full ? size : full);
    if (size > full)
        memset((char *)to + full, 0, size - full);
    memcpy(to, &size, sizeof(size));
}
