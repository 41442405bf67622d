/*
 * A line on stderr that says how far a long job is: rewritten in place on a
 * terminal, now and then a plain line elsewhere.
 */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct progress {
    size_t done, total;
    double start, shown; /* monotonic seconds */
    double slowest;
    const char *slowest_name;
    bool terminal, quiet, open;
};

double progress_clock(void);
void progress_begin(struct progress *progress, size_t total, bool quiet);
void progress_step(struct progress *progress, const char *name, double seconds);
void progress_end(struct progress *progress);

#endif /* PROGRESS_H */
