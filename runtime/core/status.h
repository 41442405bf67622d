/* How a function fails: a status to its caller, a message to its thread. */
#ifndef GEN_STATUS_H
#define GEN_STATUS_H

#include "gen.h"

/* Sets the thread's message (printf-like) and returns `status`. */
__attribute__((format(printf, 2, 3))) enum gen_status gen__fail(enum gen_status status,
                                                                const char *format, ...);

/* "TABLE" */
const char *gen__why_name(enum gen_why why);

/* Structs that a call fills. A caller's has the size that it says, of this version or another: what
 * it lacks of this library's is left out, what it has more is set to 0. The least is the size that
 * the struct had when callers of other sizes were let in. */
#define GEN__LEAST_gen_device 100
#define GEN__LEAST_gen_library_info 56
#define GEN__LEAST_gen_variant_info 80
#define GEN__LEAST_gen_plan 432
#define GEN__MOST_OUTPUT 1024 /* bytes; more is no size, but what was in memory before */

#define GEN__CHECK_STRUCT(pointer, type)                                                      \
    ((pointer) && (pointer)->size >= GEN__LEAST_##type && (pointer)->size <= GEN__MOST_OUTPUT \
         ? GEN_OK                                                                             \
         : gen__bad_struct((pointer), #pointer, sizeof(type), #type))
enum gen_status gen__bad_struct(const void *pointer, const char *name, size_t expected,
                                const char *type);
/* Gives the caller this library's struct of `full` bytes, after that check. */
void gen__give(void *to, const void *from, uint32_t full);

#endif /* GEN_STATUS_H */
