/*
 * race.h - times the variants that fit one problem against each other on the
 * GPU. The tuner and the regret benchmark share it.
 */
#ifndef BENCH_RACE_H
#define BENCH_RACE_H

#include "common/session.h"
#include "common/timing.h"
#include "tune/halving.h"
#include "common/worker.h"

struct candidate {
    uint32_t variant; /* index in the library */
    gen_plan plan;
    unsigned groups; /* as halving_candidate.groups; the caller's */
    struct runner runner;
};

struct race {
    struct session *session;
    struct worker *worker; /* may be NULL */
    const struct shape *shape;
    struct stage stage;
    bool staged;
    struct candidate *candidate;
    struct halving_candidate *measured; /* parallel to it */
    size_t count;
    double rest_ms; /* before each sample, see runner_sample(); the caller's */
    int last_pass;
    bool lost;         /* the GPU's context is gone */
    char failure[256]; /* why the last candidate failed that did */
    /* Called for a candidate that fails to run; may be NULL. */
    void (*on_failure)(struct race *race, uint32_t variant, const char *reason);
    void *context; /* the caller's */
};

/* Lists the variants that fit, by name globs and without those that `skip`
 * (one byte a variant, may be NULL) marks. Returns their number. */
size_t race_find(struct race *c, struct session *session, const struct shape *shape,
                 const struct option_list *only, const uint8_t *skip);
/* Strikes off the variants that selection never takes (session_passes_over()), fast or not.
 * Returns the number of those that remain. */
size_t race_strike(struct race *c);
/* Launches this long, in us: a first look says more of them, and each costs more. */
#define LONG_US 8000
/* The least time that is predicted of a candidate; 0 where nothing is known of one. */
double race_predicted(const struct race *c);
/* Puts the problem on the GPU. */
enum gen_status race_stage(struct race *c, struct arena *arena);
/* Launches of one replay in a pass: a first look is short, unless it is the last as well. */
uint32_t race_launches(const struct race *c, int pass);
/* Measures; as halving_run(). Candidate `keep` (-1: none) stays to the last
 * pass however slow. */
int race_run(struct race *c, const struct halving_pass *passes, int num_passes, double tie_band,
             int keep, int *runner_up);
/* Up to three candidates of the last pass behind the first two, the fastest first, as
 * "name=us,name=us"; "-": there is none. `attngen build --winners` may take them in place of the
 * winner. To be freed. */
char *race_others(const struct race *c, int winner, int runner_up);
/* The least time that the samples of a pass take of each variant, in us, where a launch takes
 * `us`. */
double race_sample_us(double us, bool first, bool last);
void race_close(struct race *c);

#endif /* BENCH_RACE_H */
