/*
 * worker.h - work on a GPU that survives its own accidents. A kernel that reads
 * where it must not ruins the process' context for good, so the work is done in
 * a child; when the child dies, hangs or loses the GPU, what it was trying is
 * noted as failed and another child goes on.
 */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKER_MAX_FAILURES 64

struct worker_failure {
    char what[192], reason[192];
};

/* Shared by the parent and its children, one after the other. */
struct worker {
    volatile uint64_t ticks; /* a sign of life */
    uint64_t next;           /* the body's: where to go on */
    uint64_t counter[8];     /* the body's: what it counts */
    char trying[192];        /* "": nothing that could be to blame */
    uint32_t num_failures;
    struct worker_failure failure[WORKER_MAX_FAILURES];
};

/* The body returns this when the GPU is lost. */
#define WORKER_LOST 86

/* Calls body(worker, context) in a child until it returns anything but
 * WORKER_LOST, and returns that. A child that dies by a signal or shows no sign
 * of life for `patience_s` seconds is replaced likewise; one that dies while
 * trying nothing, or the 64th, ends it all with status 2. in_process: no child
 * (for debuggers and sanitizers). */
int worker_run(int (*body)(struct worker *worker, void *context), void *context,
               unsigned patience_s, bool in_process);

/* Zeroed memory that the program and its children see alike. */
void *worker_share(size_t size);

/* Notes what is tried next; "" when it is over. */
void worker_try(struct worker *worker, const char *what);
/* Why an earlier child failed at this; NULL if none did. */
const char *worker_reason(const struct worker *worker, const char *what);

#endif /* BENCH_WORKER_H */
