/*
 * Text files of tab-separated fields, taken apart in place.
 */
#ifndef LINES_H
#define LINES_H

#include <stddef.h>

struct lines {
    char *rest; /* what is not read yet; the text to begin with */
    int number; /* of the line that was read last, from 1 */
};

/* The next line without its end (\n or \r\n); NULL behind the last one. */
char *lines_next(struct lines *lines);
/* Splits a line at its tabs; returns the number of fields, at most `capacity`. */
size_t lines_split(char *line, char **fields, size_t capacity);

#endif /* LINES_H */
