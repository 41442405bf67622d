/*
 * Text files of tab-separated fields, taken apart in place.
 */
#ifndef TSV_H
#define TSV_H

#include <stddef.h>

struct tsv {
    char *rest; /* what is not read yet; the text to begin with */
    int number; /* of the line that was read last, from 1 */
};

/* The next line without its end (\n or \r\n); NULL behind the last one. */
char *tsv_next(struct tsv *lines);
/* Splits a line at its tabs; returns the number of fields, at most `capacity`. */
size_t tsv_split(char *line, char **fields, size_t capacity);

#endif /* TSV_H */
