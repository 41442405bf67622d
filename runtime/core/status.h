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

/* "TABLE" */
const char *gen__why_name(enum gen_why why);

/* Is there a struct of this library's size, which its caller says, lest what is behind a smaller
 * one be overwritten? */
#define GEN__CHECK_STRUCT(pointer, type)          \
    ((pointer) && (pointer)->size == sizeof(type) \
         ? GEN_OK                                 \
         : gen__bad_struct((pointer), #pointer, sizeof(type), #type))
enum gen_status gen__bad_struct(const void *pointer, const char *name, size_t expected,
                                const char *type);

#endif /* GEN_STATUS_H */
