/*
 * Name patterns: `*` any text, `?` any character, everything else itself.
 */
#ifndef GLOB_H
#define GLOB_H

#include <stdbool.h>

bool glob_match(const char *pattern, const char *name);

#endif /* GLOB_H */
