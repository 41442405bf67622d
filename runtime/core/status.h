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

#endif /* GEN_STATUS_H */
