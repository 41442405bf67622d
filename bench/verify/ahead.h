/*
 * ahead.h - cases of a verify list made ready by threads of their own, a few ahead
 * of who takes them: the reference in double precision is one thread's work, and
 * most of the time that a list takes.
 */
#ifndef BENCH_AHEAD_H
#define BENCH_AHEAD_H

#include "verify/verify.h"

struct ahead;

/* The list's cases from `first` on that `wanted` says yes to; it is called by several threads at
 * once. The list, the context and the library must outlive it. */
struct ahead *ahead_open(const struct shape_list *cases, size_t first,
                         bool (*wanted)(void *context, const struct shape *shape), void *context,
                         const gen_library *library);

/* The next one of them that exists (verify_prepare()), in the list's order; the caller frees it.
 * False after the last. */
bool ahead_take(struct ahead *ahead, struct verify_case *c, size_t *at);

/* Ends the threads, and frees what was not taken. */
void ahead_close(struct ahead *ahead);

#endif /* BENCH_AHEAD_H */
