/*
 * What the library says of its work: lines of the levels that GEN_LOG names for a library and
 * gen_set_log() for the process, to the process' callback or to stderr.
 */
#ifndef GEN_LOG_H
#define GEN_LOG_H

#include "gen.h"

#include <stdatomic.h>
#include <stdbool.h>

#define GEN__LOG_LEVELS ((uint32_t)(GEN_LOG_SELECT | GEN_LOG_LOAD | GEN_LOG_EXPLAIN))

/* The levels of gen_set_log(), and above them how often it was called. */
extern _Atomic(uint32_t) gen__log_state;

static inline uint32_t gen__log_now(void)
{
    return atomic_load_explicit(&gen__log_state, memory_order_relaxed);
}

/* The levels that GEN_LOG names; other words are named on stderr, once a process. */
uint32_t gen__log_levels_of_environment(void);

/* One line (of GEN_LOG_EXPLAIN: several), without a newline at the end. Nothing that the callback
 * calls is logged. */
void gen__log(enum gen_log_level level, const char *text);

#endif /* GEN_LOG_H */
