/*
 * What of a source the compiler sees: its text without comments and layout.
 */
#ifndef TOKENS_H
#define TOKENS_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the text without comments and #line, a space only where two tokens would be one without
 * it, and directives on lines of their own: `*tokens` bytes, at most `size`, to where there is room
 * for size + 2. Texts whose every file comes out alike compile to the same code. False, where that
 * cannot be said: the text asks for its lines (__LINE__, assert), or holds what this does not take
 * apart (a NUL, raw strings, literals with prefixes, one that does not end on its line). */
bool tokens_of(const char *text, size_t size, char *to, size_t *tokens);

#endif /* TOKENS_H */
