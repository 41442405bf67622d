/*
 * inplace_copy.h - the peer "inplace-copy": what this GPU needs to read, scale
 * and write back the bytes that a problem updates in place.
 */
#ifndef BENCH_INPLACE_COPY_H
#define BENCH_INPLACE_COPY_H

#include "common/timing.h"

struct inplace_copy {
    const struct gpu *gpu;
    void *library;
    void *kernel[32]; /* CUfunction, in the order of the forms */
};

/* One form with its launch geometry, on one stage. */
struct inplace_runner {
    struct runner runner;
    void *function;
    uint32_t threads, blocks;
    uint64_t num_vectors; /* of 16 bytes */
    uint64_t *address;    /* of each set */
    char name[48];
};

enum gen_status inplace_copy_open(struct inplace_copy *peer, const struct gpu *gpu);
void inplace_copy_close(struct inplace_copy *peer);

/* Tries every form on the stage's in-place tensor and sets *best up with the
 * fastest, captured for `launches`. `bytes`: what the problem updates. Errors:
 * UNSUPPORTED where the problem updates nothing in place. */
enum gen_status inplace_copy_best(struct inplace_copy *peer, const struct stage *stage,
                                  uint64_t bytes, uint32_t launches, struct inplace_runner *best);
void inplace_runner_free(struct inplace_runner *runner, const struct gpu *gpu);

#endif /* BENCH_INPLACE_COPY_H */
