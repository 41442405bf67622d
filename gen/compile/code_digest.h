/*
 * The digest of compiled code: what a measured time belongs to.
 */
#ifndef CODE_DIGEST_H
#define CODE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of machine code (a cubin): instructions, constants, shared memory and attributes such as the
 * number of registers. Of PTX: its statements. The kernel's name, names of variables, constants
 * that no instruction reads, line information and the compiler's notes do not count. Of bytes
 * that are neither: of these. */
uint64_t code_digest(const void *code, size_t size, bool ptx, const char *symbol);

#endif /* CODE_DIGEST_H */
