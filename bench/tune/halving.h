/*
 * halving.h - finds the fastest of many candidates with few measurements:
 * each pass measures the survivors in turn, more often than the pass before,
 * and drops those too far behind. Knows nothing of GPUs.
 */
#ifndef BENCH_HALVING_H
#define BENCH_HALVING_H

#include <stdbool.h>
#include <stddef.h>

#define HALVING_MAX_SAMPLES 64
#define HALVING_GROUPS 32

struct halving_candidate {
    const char *name;
    double sample[HALVING_MAX_SAMPLES]; /* of the last pass it was in, us */
    size_t num_samples;
    double us, spread; /* median and interquartile range over median of those */
    int passes;        /* it took part in; fewer than the winner: dropped */
    bool failed;
    /* Set by the caller: */
    bool stays;      /* in every pass, however slow */
    unsigned groups; /* bits: each group has survivors of its own; 0 for all: they are one */
    double expected; /* an estimate of its time, by which ties are settled; 0 for all: none */
};

struct halving_pass {
    int rounds;         /* measurements of each survivor */
    double keep_within; /* of the fastest of a group: 1.15 keeps 15 % */
    size_t keep_most;   /* survivors of a group at most; 0: no limit */
};

/* One measurement in microseconds; false: this candidate cannot go on. */
typedef bool halving_measure(void *context, size_t candidate, int pass, double *us);

/* Runs the passes. Returns the winner's index: among the survivors of the last
 * pass within `tie_band` of the fastest the one of the least expected time, of
 * equal ones the first by name; -1 if all failed.
 * *runner_up (may be NULL) gets the fastest other one, or -1. */
int halving_run(struct halving_candidate *candidates, size_t count,
                const struct halving_pass *passes, int num_passes, double tie_band,
                halving_measure *measure, void *context, int *runner_up);

#endif /* BENCH_HALVING_H */
