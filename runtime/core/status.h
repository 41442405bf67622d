/* How a function fails: a status to its caller, a message to its thread. */
#ifndef GEN_STATUS_H
#define GEN_STATUS_H

#include "gen.h"

/* Sets the thread's message (printf-like) and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
enum gen_status
gen__fail(enum gen_status status, const char *format, ...);

/* A struct that a call fills must be of this library's size, which its caller says, lest what is
 * behind a smaller one be overwritten. */
#define GEN__CHECK_SIZE(pointer, type) \
    ((pointer)->size == sizeof(type)   \
         ? GEN_OK                      \
         : gen__bad_size(#pointer, #type, (pointer)->size, sizeof(type)))
enum gen_status gen__bad_size(const char *name, const char *type, uint32_t size, size_t expected);

#endif /* GEN_STATUS_H */
