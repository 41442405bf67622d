/*
 * tournament.h - finds the fastest of many candidates with few measurements:
 * each pass measures the survivors in turn, more often than the pass before,
 * and drops those too far behind. Knows nothing of GPUs.
 */
#ifndef BENCH_TOURNAMENT_H
#define BENCH_TOURNAMENT_H

#include <stdbool.h>
#include <stddef.h>

#define TOURNAMENT_MAX_SAMPLES 64
#define TOURNAMENT_GROUPS 32

struct contestant {
    const char *name;
    double sample[TOURNAMENT_MAX_SAMPLES]; /* of the last pass it was in, us */
    size_t num_samples;
    double us, spread; /* median and interquartile range over median of those */
    int passes;        /* it took part in; fewer than the winner: dropped */
    bool failed;
    /* Set by the caller: */
    bool stays;      /* in every pass, however slow */
    unsigned groups; /* bits: each group has survivors of its own; 0 for all: they are one */
    double expected; /* an estimate of its time, by which ties are settled; 0 for all: none */
};

struct tournament_pass {
    int rounds;         /* measurements of each survivor */
    double keep_within; /* of the fastest of a group: 1.15 keeps 15 % */
    size_t keep_most;   /* survivors of a group at most; 0: no limit */
};

/* One measurement in microseconds; false: this contestant cannot go on. */
typedef bool tournament_measure(void *context, size_t contestant, int pass, double *us);

/* Runs the passes. Returns the winner's index: among the survivors of the last
 * pass within `tie_band` of the fastest the one of the least expected time, of
 * equal ones the first by name; -1 if all failed.
 * *runner_up (may be NULL) gets the fastest other one, or -1. */
int tournament_run(struct contestant *contestants, size_t count,
                   const struct tournament_pass *passes, int num_passes, double tie_band,
                   tournament_measure *measure, void *context, int *runner_up);

#endif /* BENCH_TOURNAMENT_H */
