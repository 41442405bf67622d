/*
 * contest.h - times the variants that fit one problem against each other on the
 * GPU. The tuner and the regret benchmark share it.
 */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include "common/session.h"
#include "common/timing.h"
#include "tune/halving.h"
#include "common/worker.h"

struct candidate {
    uint32_t variant; /* index in the library */
    gen_plan plan;
    unsigned groups; /* as contestant.groups; the caller's */
    struct runner runner;
};

struct contest {
    struct session *session;
    struct worker *worker; /* may be NULL */
    const struct shape *shape;
    struct stage stage;
    bool staged;
    struct candidate *candidate;
    struct contestant *contestant; /* parallel to it */
    size_t count;
    double rest_ms; /* before each sample, see runner_sample(); the caller's */
    int last_pass;
    bool lost;         /* the GPU's context is gone */
    char failure[256]; /* why the last candidate failed that did */
    /* Told about a candidate that fails to run; may be NULL. */
    void (*on_failure)(struct contest *contest, uint32_t variant, const char *reason);
    void *context; /* the caller's */
};

/* Lists the variants that fit, by name globs and without those that `skip`
 * (one byte a variant, may be NULL) marks. Returns their number. */
size_t contest_find(struct contest *c, struct session *session, const struct shape *shape,
                    const struct option_list *only, const uint8_t *skip);
/* Strikes off the variants that selection never takes (session_passes_over()), fast or not.
 * Returns the number of those that remain. */
size_t contest_strike(struct contest *c);
/* Launches this long, in us: a first look tells more of them, and each costs more. */
#define LONG_US 8000
/* The least time that is predicted of a candidate; 0 where nothing is known of one. */
double contest_predicted(const struct contest *c);
/* Puts the problem on the GPU. */
enum gen_status contest_stage(struct contest *c, struct arena *arena);
/* Launches of one replay in a pass: a first look is short, unless it is the last as well. */
uint32_t contest_launches(const struct contest *c, int pass);
/* Measures; as tournament_run(). Candidate `keep` (-1: none) stays to the last
 * pass however slow. */
int contest_run(struct contest *c, const struct tournament_pass *passes, int num_passes,
                double tie_band, int keep, int *runner_up);
void contest_close(struct contest *c);

#endif /* BENCH_CONTEST_H */
