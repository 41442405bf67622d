/*
 * tune.h - one bucket of a tuning table: which variant is fastest for a problem.
 */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "common/problems.h"
#include "common/session.h"
#include "common/timing.h"
#include "tune/halving.h"
#include "tune/tuning_table.h"
#include "common/worker.h"

struct tuner {
    struct session *session;
    struct worker *worker;
    struct table *table;
    struct arena arena;
    const struct option_list *only; /* variants by name */
    bool quick;                     /* fewer samples */
    long rest_ms;                   /* before a sample, of problems that shape_rest_ms() names */
    double tie_band;                /* 0.005: half a percent */
    /* One byte a variant: verified, refused. */
    uint8_t *good, *refused;
};

enum tune_outcome {
    TUNE_DONE,  /* the table has a row for this bucket */
    TUNE_NONE,  /* no variant fits */
    TUNE_ERROR, /* gen_last_error() says what */
    TUNE_LOST   /* the GPU's context is gone */
};

/* The passes of a race whose fastest launch is expected to take `us` (0: nothing is known). Each
 * look at long launches costs much and shows much: fewer of them get as many samples in the end.
 * A row that is refreshed has the last one alone, which settles who is the fastest. */
const struct halving_pass *tune_passes(bool quick, bool refresh, double us, int *count);

/* The seconds that a bucket's samples take, by the families' estimates, and the number of its
 * candidates (0: nothing fits): the least, because verification, loading and filling memory come on
 * top. Needs no GPU. */
double tune_estimate(struct session *session, const struct shape *shape,
                     const struct option_list *only, bool quick, long rest_ms, size_t *candidates);

/* The first of the `small` problems of the shape's key, or of none the shape itself, that the
 * variant fits: not each fits each, for pages of five rows are in no TMA box. NULL where there is
 * none. */
const struct shape *tune_case(struct session *session, const struct shape_list *small,
                              const struct shape *shape, const char *variant);
/* Verifies what is not yet verified, on the first of the `small` problems of the same key that it
 * fits, times the candidates and puts the row. */
enum tune_outcome tune_bucket(struct tuner *tuner, const struct shape *shape,
                              const struct shape_list *small);
/* The variants that refreshing a row is between: its own and its runner-up, as far as the product
 * has them, selection takes such (session_passes_over()) and they may take part. None where the
 * row's own is not the product's. */
void tune_pair(const struct tuner *tuner, const struct shape *shape, const struct table_row *row,
               struct option_list *pair);
/* Measures the bucket's row `row` anew, between its variant and its runner-up alone, or, where the
 * one is PTX and the other machine code, of the latter alone: it was the fastest of what may win.
 * Where the row's variant is not one of this product's, does not fit or is refused: as
 * tune_bucket(). */
enum tune_outcome tune_refresh(struct tuner *tuner, const struct shape *shape,
                               const struct shape_list *small, const struct table_row *row);

#endif /* BENCH_TUNE_H */
