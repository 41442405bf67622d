/*
 * The pool of compiler processes. A crash or a hang of the compiler costs the
 * variant it worked on, not the build.
 */
#ifndef POOL_H
#define POOL_H

#include "spec/model.h"
#include "compile/toolkit.h"

struct pool {
    const struct toolkit *toolkit;
    const char *cache; /* folder; results go there as they come */
    int jobs;          /* processes; 0: as many as CPUs and memory allow */
    double time_limit; /* seconds a variant may take */
    bool line_info, quiet;

    /* What it did. */
    size_t compiled, crashed;
    double cpu_seconds; /* of variants and of starting the compilers */
    int interrupted;    /* the signal that ended it, or 0 */
};

/* Compiles `count` variants; sets their state, report and image. Stops early
 * at the first source that the compiler rejects (its state is VARIANT_BROKEN)
 * and at SIGINT, SIGTERM and SIGHUP. */
void pool_run(struct session *session, struct pool *pool, struct variant **variants, size_t count);
/* Fills a variant from the cache, if it is there. */
bool pool_from_cache(struct session *session, const char *cache, struct variant *variant);

int pool_default_jobs(void);

#endif /* POOL_H */
