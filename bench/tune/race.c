#include "tune/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Device time that one replay fills, and its launches at least, but where these take long. */
#define FIRST_WINDOW_US 800
#define FIRST_LAUNCHES 4
#define LAST_WINDOW_US 2000
#define LAST_LAUNCHES 20

size_t race_find(struct race *c, struct session *s, const struct shape *shape,
                 const struct option_list *only, const uint8_t *skip)
{
    c->session = s;
    c->shape = shape;
    c->candidate = xmalloc(s->info.num_variants * sizeof *c->candidate);
    c->count = 0;
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        gen_variant_info v = session_variant(s, i);
        gen_plan plan = {.size = sizeof plan};
        if (strcmp(v.family, shape->family->name) != 0 || !glob_match_any(only, v.name) ||
            (skip && skip[i]) ||
            gen_select_variant(s->library, &s->gpu.device, shape->problem, v.name, &plan) !=
                GEN_OK ||
            plan.num_launches == 0)
            continue;
        struct candidate *x = &c->candidate[c->count++];
        memset(x, 0, sizeof *x);
        x->variant = i;
        x->plan = plan;
    }
    return c->count;
}

size_t race_strike(struct race *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        const gen_variant_info v = session_variant(c->session, c->candidate[i].variant);
        if (!session_passes_over(c->session, c->shape->problem, &v))
            c->candidate[kept++] = c->candidate[i];
    }
    return c->count = kept;
}

double race_predicted(const struct race *c)
{
    double us = INFINITY;
    for (size_t i = 0; i < c->count; i++)
        us = fmin(us, (double)c->candidate[i].plan.predicted_us);
    return isfinite(us) ? us : 0;
}

enum gen_status race_stage(struct race *c, struct arena *arena)
{
    uint64_t workspace = 0;
    for (size_t i = 0; i < c->count; i++)
        if (c->candidate[i].plan.workspace_bytes > workspace)
            workspace = c->candidate[i].plan.workspace_bytes;
    enum gen_status status = stage_open(&c->stage, &c->session->gpu, arena, c->shape, workspace);
    c->staged = status == GEN_OK;
    c->lost = !c->staged && gpu_is_lost(&c->session->gpu);
    return status;
}

static void note(struct race *c, const char *what)
{
    if (c->worker)
        worker_try(c->worker, what);
}

static enum gen_status sample(struct race *c, struct candidate *x, uint32_t launches)
{
    const struct gpu *gpu = &c->session->gpu;
    const uint32_t sets = c->stage.buffers.num_sets;
    enum gen_status status = GEN_OK;
    if (!x->runner.launch)
        status = runner_plan(&x->runner, c->session->library, &c->stage, &x->plan);
    double us = x->runner.num_samples ? x->runner.sample[0] : x->plan.predicted_us;
    if (status == GEN_OK && !x->runner.num_samples && us * launches > LONGEST_WINDOW_US)
        status = runner_first_us(&x->runner, gpu, sets, &us); /* the estimate may be far off */
    if (status == GEN_OK)
        status =
            runner_capture(&x->runner, gpu, sets, launches_within(LONGEST_WINDOW_US, us, launches));
    x->runner.num_samples = 0;
    return status == GEN_OK ? runner_sample(&x->runner, gpu, c->rest_ms) : status;
}

uint32_t race_launches(const struct race *c, int pass)
{
    const double expect = c->stage.floor_us * 1.2 + 2;
    if (pass == c->last_pass)
        return launches_for(LAST_WINDOW_US, expect, LAST_LAUNCHES);
    return launches_for(pass == 0 ? FIRST_WINDOW_US : LAST_WINDOW_US, expect, FIRST_LAUNCHES);
}

double race_sample_us(double us, bool first, bool last)
{
    const double window = first && !last ? FIRST_WINDOW_US : LAST_WINDOW_US;
    return fmax(
        us, fmin(LONGEST_WINDOW_US, fmax(window, us * (last ? LAST_LAUNCHES : FIRST_LAUNCHES))));
}

static bool measure(void *context, size_t index, int pass, double *us)
{
    struct race *c = context;
    struct candidate *x = &c->candidate[index];
    if (c->lost) /* by another, who is to blame */
        return false;
    note(c, c->measured[index].name);
    if (sample(c, x, race_launches(c, pass)) == GEN_OK) {
        note(c, "");
        *us = x->runner.sample[0];
        return true;
    }
    snprintf(c->failure, sizeof c->failure, "%s", gen_last_error());
    c->lost = c->lost || gpu_is_lost(&c->session->gpu);
    if (!c->lost) {
        note(c, "");
        if (c->on_failure)
            c->on_failure(c, x->variant, c->failure);
    }
    return false;
}

int race_run(struct race *c, const struct halving_pass *passes, int num_passes, double tie_band,
             int keep, int *runner_up)
{
    c->last_pass = num_passes - 1;
    c->measured = xmalloc(c->count * sizeof *c->measured);
    memset(c->measured, 0, c->count * sizeof *c->measured);
    for (size_t i = 0; i < c->count; i++) {
        c->measured[i].name = session_variant(c->session, c->candidate[i].variant).name;
        c->measured[i].stays = (int)i == keep;
        c->measured[i].groups = c->candidate[i].groups;
        c->measured[i].expected = (double)c->candidate[i].plan.predicted_us;
    }
    return halving_run(c->measured, c->count, passes, num_passes, tie_band, measure, c, runner_up);
}

char *race_others(const struct race *c, int winner, int runner_up)
{
    enum { MOST = 3 };
    int last = -1; /* that is written */
    char *text = xstrdup("");
    for (int written = 0; written < MOST; written++) {
        int next = -1;
        for (int i = 0; i < (int)c->count; i++) {
            const struct halving_candidate *m = &c->measured[i];
            const bool behind = last < 0 || m->us > c->measured[last].us ||
                                (!(m->us < c->measured[last].us) && i > last);
            if (i != winner && i != runner_up && !m->failed && behind &&
                m->passes == c->measured[winner].passes &&
                (next < 0 || m->us < c->measured[next].us))
                next = i;
        }
        if (next < 0)
            break;
        char *longer = xasprintf("%s%s%s=%.3f", text, written ? "," : "", c->measured[next].name,
                                 c->measured[next].us);
        free(text);
        text = longer;
        last = next;
    }
    if (!*text) {
        free(text);
        text = xstrdup("-");
    }
    return text;
}

void race_close(struct race *c)
{
    for (size_t i = 0; i < c->count && !c->lost; i++)
        runner_free(&c->candidate[i].runner, &c->session->gpu);
    if (c->staged)
        stage_close(&c->stage);
    free(c->candidate);
    free(c->measured);
    c->candidate = NULL;
    c->measured = NULL;
    c->count = 0;
}
