/*
 * Instructions of a compiled kernel, counted without a disassembler.
 */
#ifndef SASS_H
#define SASS_H

#include <stddef.h>

/* Of all kernels and functions in a cubin, without the padding behind each; 0 for what is none. */
int sass_count(const void *cubin, size_t size);

#endif /* SASS_H */
