#include "util/tsv.h"

#include <string.h>

char *tsv_next(struct tsv *lines)
{
    char *line = lines->rest;
    if (line == NULL || *line == '\0')
        return NULL;
    char *end = strchr(line, '\n');
    lines->rest = end != NULL ? end + 1 : NULL;
    if (end != NULL)
        *end = '\0';
    line[strcspn(line, "\r")] = '\0';
    lines->number++;
    return line;
}

size_t tsv_split(char *line, char **fields, size_t capacity)
{
    size_t count = 0;
    for (char *p = line; p != NULL && count < capacity;) {
        fields[count++] = p;
        p = strchr(p, '\t');
        if (p != NULL)
            *p++ = '\0';
    }
    return count;
}
