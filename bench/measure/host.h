/*
 * host.h - the parts of what `attngen bench host` measures.
 */
#ifndef BENCH_BENCH_HOST_H
#define BENCH_BENCH_HOST_H

#include "measure/bench.h"

/* A clock of few cycles. */
uint64_t ticks(void);

struct tick_clock {
    double ns_per_tick, overhead_ns; /* of reading it twice */
};
/* Takes 50 ms. */
struct tick_clock tick_clock(void);
/* Nanoseconds between two readings, less the clock's own. */
double tick_ns(const struct tick_clock *clock, uint64_t before, uint64_t after);

/* Adds a row of host.csv and prints it; sorts the samples. A note holds no comma. */
void host_row(struct text *text, const char *what, double *sample, size_t count, const char *note);

/* gen_select() on one thread and on eight at once. */
void host_select(struct bench_options *options, const struct tick_clock *clock, struct text *text);

#endif /* BENCH_BENCH_HOST_H */
