/*
 * compare.h - sums of what a tensor's elements are off from the expected ones.
 */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

struct sums {
    double difference, reference; /* of squares, where both are finite */
    double worst;                 /* greatest difference */
    uint64_t worst_index;         /* of the first one so far off */
    uint64_t misplaced;           /* first element that is not finite in one alone */
    bool any_misplaced;
};

/* Element `i`: `r` is expected, `a` was found. */
void sums_add(struct sums *s, uint64_t i, double r, double a);

/* Elements `first` onwards, `count` of them: as sums_add() of each in turn, but for the order in
 * which the squares are added, and several times as fast. */
void sums_add_floats(struct sums *s, uint64_t first, const float *r, const float *a,
                     uint64_t count);

#endif /* BENCH_COMPARE_H */
