/*
 * The #include lines of a text, found without a preprocessor: what is spelled
 * plainly is named, every other spelling that a compiler would follow is refused.
 */
#ifndef INCLUDES_H
#define INCLUDES_H

#include <stdbool.h>
#include <stddef.h>

struct include {
    const char *name; /* as in "name" or <name>; not NUL-terminated */
    size_t name_size;
    const char *refusal; /* NULL, or why it is refused; then there is no name */
    const char *text;    /* the line it begins in */
    size_t size;
    int line; /* as #line counts */
};

struct includes {
    const char *at, *end; /* what is left */
    const char *has;      /* the next __has_include, or NULL */
    int line;
    bool digraphs; /* the text holds "%:" or "??" */
    bool spliced;  /* the line before ends in a backslash */
};

void includes_begin(struct includes *includes, const char *text, size_t size);
/* False at the end. */
bool includes_next(struct includes *includes, struct include *found);

#endif /* INCLUDES_H */
