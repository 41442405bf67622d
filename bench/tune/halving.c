#include "tune/halving.h"
#include "common/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool in_pass(const struct halving_candidate *c, int pass)
{
    return !c->failed && c->passes > pass;
}

static void measure_pass(struct halving_candidate *c, size_t count, const struct halving_pass *pass,
                         int index, halving_measure *measure, void *context)
{
    for (size_t i = 0; i < count; i++)
        if (in_pass(&c[i], index))
            c[i].num_samples = 0;
    for (int round = 0; round < pass->rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            double us = 0;
            if (!in_pass(&c[i], index))
                continue;
            if (!measure(context, i, index, &us))
                c[i].failed = true;
            else if (c[i].num_samples < HALVING_MAX_SAMPLES)
                c[i].sample[c[i].num_samples++] = us;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!in_pass(&c[i], index))
            continue;
        c[i].us = stats_median(c[i].sample, c[i].num_samples);
        c[i].spread = stats_spread(c[i].sample, c[i].num_samples);
    }
}

static bool in_group(const struct halving_candidate *c, int group)
{
    return c->groups ? c->groups >> group & 1 : group == 0;
}

/* The fastest of a pass that is not `except`; -1 if there is none. */
static int fastest(const struct halving_candidate *c, size_t count, int pass, int except)
{
    int best = -1;
    for (size_t i = 0; i < count; i++)
        if (in_pass(&c[i], pass) && (int)i != except && (best < 0 || c[i].us < c[best].us))
            best = (int)i;
    return best;
}

/* Who of a group goes on to the next pass: within the limit of the fastest, and of the `keep_most`
 * fastest. */
static void cut(struct halving_candidate *c, size_t count, int index,
                const struct halving_pass *pass, int group)
{
    double *us = xmalloc((count + 1) * sizeof *us);
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (in_pass(&c[i], index) && in_group(&c[i], group))
            us[n++] = c[i].us;
    (void)stats_median(us, n); /* sorts */
    double limit = n ? us[0] * pass->keep_within : 0;
    if (pass->keep_most && n > pass->keep_most)
        limit = fmin(limit, us[pass->keep_most - 1]);
    for (size_t i = 0; i < count; i++)
        if (in_pass(&c[i], index) && in_group(&c[i], group) && (c[i].us <= limit || c[i].stays))
            c[i].passes = index + 2;
    free(us);
}

/* Of two that are equally fast. */
static bool preferred(const struct halving_candidate *a, const struct halving_candidate *b)
{
    return a->expected != b->expected ? a->expected < b->expected : strcmp(a->name, b->name) < 0;
}

int halving_run(struct halving_candidate *candidates, size_t count,
                const struct halving_pass *passes, int num_passes, double tie_band,
                halving_measure *measure, void *context, int *runner_up)
{
    int last = num_passes - 1, winner = -1;
    for (size_t i = 0; i < count; i++)
        candidates[i].passes = 1;
    for (int pass = 0; pass < num_passes; pass++) {
        measure_pass(candidates, count, &passes[pass], pass, measure, context);
        int best = fastest(candidates, count, pass, -1);
        if (best < 0)
            break;
        if (pass == last) {
            winner = best;
            break;
        }
        for (int group = 0; group < HALVING_GROUPS; group++)
            cut(candidates, count, pass, &passes[pass], group);
    }
    if (winner >= 0) {
        double limit = candidates[winner].us * (1 + tie_band);
        for (size_t i = 0; i < count; i++)
            if (in_pass(&candidates[i], last) && candidates[i].us <= limit &&
                preferred(&candidates[i], &candidates[winner]))
                winner = (int)i;
    }
    if (runner_up) {
        *runner_up = -1;
        for (int pass = last; winner >= 0 && pass >= 0 && *runner_up < 0; pass--)
            *runner_up = fastest(candidates, count, pass, winner);
    }
    return winner;
}
