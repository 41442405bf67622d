/* What selection loses on problems that were not tuned. */
#include "measure/bench.h"
#include "tune/race.h"
#include "common/problems.h"

#include <stdlib.h>
#include <string.h>

#define METHOD                                                                             \
    "every eligible variant is timed by graph replay rotated beyond the L2, the best ten " \
    "and the chosen one again, interleaved, median of 9; ratio = ms / best_ms"
static const char method[] =
    "random problems (seeded) within the ranges of the shape file and 2 GB, none in a tuned "
    "bucket; " METHOD;
static const char list_method[] = "the problems of a list; " METHOD;

static const struct halving_pass passes[] = {{2, 1.10, 10}, {9, 1, 0}};
static const struct halving_pass quick_passes[] = {{1, 1.10, 6}, {5, 1, 0}};

/* One problem's row; false, and a warning, if it could not be measured. */
static bool regret_of(struct bench_options *o, struct arena *arena, const struct shape *shape,
                      struct text *text, double *ratio)
{
    struct session *s = &o->session;
    struct race c = {.rest_ms = shape_rest_ms(shape, o->rest_ms)};
    struct option_list all = {0};
    gen_plan plan = {.size = sizeof plan};
    int chosen = -1, best = -1;
    char problem[512];
    if (gen_select(s->library, &s->gpu.device, shape->problem, &plan) != GEN_OK) {
        warn("%s: %s", shape->name, gen_last_error());
        return false;
    }
    race_find(&c, s, shape, &all, NULL);
    race_strike(&c);
    const char *main_variant = session_main(s, &plan).name;
    for (size_t i = 0; i < c.count; i++)
        if (strcmp(session_variant(s, c.candidate[i].variant).name, main_variant) == 0)
            chosen = (int)i;
    bool ok = chosen >= 0 && race_stage(&c, arena) == GEN_OK;
    if (chosen >= 0 && !ok)
        snprintf(c.failure, sizeof c.failure, "%s", gen_last_error());
    if (ok)
        best = o->quick ? race_run(&c, quick_passes, 2, 0, chosen, NULL)
                        : race_run(&c, passes, 2, 0, chosen, NULL);
    ok = ok && best >= 0 && !c.measured[chosen].failed;
    if (ok) {
        const struct halving_candidate *x = &c.measured[chosen], *y = &c.measured[best];
        *ratio = x->us / y->us;
        gen__problem_format(shape->family, shape->problem, problem, sizeof problem);
        text_add(text, "%s,%s,%s,%.6f,%s,%.6f,%.4f\n", shape->family->name, problem, x->name,
                 x->us / 1e3, y->name, y->us / 1e3, *ratio);
    }
    if (c.lost)
        die(1, "%s: the GPU is lost: %s", shape->name, c.failure);
    if (!ok)
        warn("%s: %s", shape->name,
             c.failure[0] ? c.failure : "the chosen variant is not among those that fit");
    race_close(&c);
    return ok;
}

/* Those of the list that was asked for, or drawn ones that no row was tuned on. */
static void find_problems(const struct bench_options *o, const struct gen__family *family,
                          struct shape_list *problems)
{
    struct shape_list shapes = {0}, tuned = {0};
    if (o->list) {
        shapes_load(problems, family, SHAPES_TIMED, o->list);
        return;
    }
    shapes_load(&shapes, family, SHAPES_TIMED, NULL);
    for (size_t i = 0; i < shapes.count; i++)
        shapes_add(&tuned, family, shapes.item[i].problem);
    shapes_grid(&tuned, &shapes, family);
    shapes_random(problems, &shapes, &tuned, family, (size_t)o->count, (uint64_t)o->seed);
    shapes_free(&shapes);
    shapes_free(&tuned);
}

/* False where a problem could not be measured. */
static bool bench_family(struct bench_options *o, const struct gen__family *family,
                         struct text *text)
{
    struct shape_list problems = {0};
    struct arena arena = {0};
    size_t done = 0;
    find_problems(o, family, &problems);
    double *ratio = xmalloc((problems.count + 1) * sizeof *ratio);
    uint64_t start = clock_ns();
    for (size_t i = 0; i < problems.count; i++) {
        if (bench_out_of_time(o))
            continue;
        if (regret_of(o, &arena, &problems.item[i], text, &ratio[done]))
            done++;
        if ((i + 1) % 25 == 0)
            fprintf(stderr, "[%zu/%zu] %.0f s\n", i + 1, problems.count,
                    (double)(clock_ns() - start) / 1e9);
    }
    printf("%s: %zu problems, geometric mean %.4f, 95th percentile %.4f, worst %.4f\n",
           family->name, done, stats_geomean(ratio, done), stats_quantile(ratio, done, 0.95),
           stats_quantile(ratio, done, 1));
    free(ratio);
    const bool ok = done && done == problems.count;
    arena_free(&arena, &o->session.gpu);
    shapes_free(&problems);
    return ok;
}

static const char columns[] = "family,problem,chosen,ms,best,best_ms,ratio\n";

/* Replaces the family's block of the file. The column names come first: all that
 * stands before a row otherwise is a comment. */
static void write_block(const struct bench_options *o, const char *family, const struct text *rows)
{
    struct text text = {0};
    bench_other_families(&text, o, "regret", columns, family);
    const char *which = o->list ? list_method : method;
    char *how = o->rest_ms > 0 ? xasprintf("%s; samples of problems that the tensor cores bound "
                                           "after %ld ms of rest and an untimed replay",
                                           which, o->rest_ms)
                               : xasprintf("%s", which);
    bench_header(&text, o, how);
    free(how);
    if (o->left_out)
        text_add(&text, "# incomplete: out of time, %zu problems of %s are not measured\n",
                 o->left_out, family);
    text_add(&text, "%s", rows->data);
    bench_write(o, "regret", &text);
    text_free(&text);
}

int bench_regret(struct bench_options *o)
{
    const struct gen__family *family[64];
    uint32_t n = families_named(&o->session.families, family, 64);
    session_open_library(&o->session);
    session_open_gpu(&o->session);
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        struct text rows = {0};
        ok = bench_family(o, family[i], &rows) && ok;
        if (rows.length)
            write_block(o, family[i]->name, &rows);
        if (o->left_out)
            warn("%s: out of time, %zu problems are not measured", family[i]->name, o->left_out);
        o->left_out = 0;
        text_free(&rows);
    }
    session_close(&o->session);
    return ok ? 0 : 1;
}
