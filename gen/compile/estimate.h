/*
 * What a build will take, from what the cache holds and a few sample compiles.
 */
#ifndef ESTIMATE_H
#define ESTIMATE_H

#include "spec/model.h"
#include "compile/pool.h"

struct estimate {
    const struct family *family; /* NULL: the total */
    const struct arch *arch;
    size_t variants, cached;
    double cpu_seconds;      /* of the whole set */
    double cpu_seconds_left; /* of what the cache does not hold */
    double bytes;            /* of images */
};

/* Compiles samples (they go to the cache) and fills one estimate for each
 * family and target, in that order, with the total behind them. Returns how
 * many there are, the total included. */
size_t estimate_make(struct session *session, struct pool *pool, struct estimate **estimates);

#endif /* ESTIMATE_H */
