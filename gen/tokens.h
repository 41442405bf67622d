/*
 * What of a source the compiler sees: its text without comments and layout.
 */
#ifndef TOKENS_H
#define TOKENS_H

#include <stddef.h>

/* Writes the text without comments, every run of blanks and line ends as one space, and directives
 * on lines of their own; returns the size, at most `size`. `to` has room for size + 2 bytes. Two
 * texts that come out alike compile to the same code. A text that asks for its lines (__LINE__,
 * assert) or holds what this does not take apart (raw strings, literals with prefixes, one that
 * does not end on its line) comes out as it is. */
size_t tokens_of(const char *text, size_t size, char *to);

#endif /* TOKENS_H */
