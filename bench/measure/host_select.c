/* What a selection costs, alone and beside others. */
#define _GNU_SOURCE
#include "measure/host.h"
#include "common/problems.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SELECTIONS 1000000
#define PROBLEMS 4096
#define MAX_PROBLEM_BYTES 256
#define THREADS 8

/* ---- the clock --------------------------------------------------------- */

#if defined(__x86_64__)
#include <x86intrin.h>
uint64_t ticks(void)
{
    unsigned core;
    uint64_t t = __rdtscp(&core);
    _mm_lfence();
    return t;
}
#else
uint64_t ticks(void)
{
    return clock_ns();
}
#endif

struct tick_clock tick_clock(void)
{
    struct tick_clock c;
    double gap[2001];
    uint64_t ns = clock_ns(), t = ticks();
    while (clock_ns() - ns < 50000000u)
        ;
    uint64_t span = clock_ns() - ns;
    c.ns_per_tick = (double)span / (double)(ticks() - t);
    for (int i = 0; i < 2001; i++) {
        uint64_t before = ticks();
        gap[i] = (double)(ticks() - before) * c.ns_per_tick;
    }
    c.overhead_ns = stats_median(gap, 2001);
    return c;
}

double tick_ns(const struct tick_clock *c, uint64_t before, uint64_t after)
{
    double ns = (double)(after - before) * c->ns_per_tick - c->overhead_ns;
    return ns > 0 ? ns : 0;
}

void host_row(struct text *text, const char *what, double *sample, size_t count, const char *note)
{
    double p50 = stats_quantile(sample, count, 0.5), p999 = stats_quantile(sample, count, 0.999);
    text_add(text, "%s,%.1f,%.1f,%s\n", what, p50, p999, note);
    printf("%-18s p50 %12.1f ns   p99.9 %12.1f ns   %s\n", what, p50, p999, note);
    fflush(stdout);
}

/* ---- the problems ------------------------------------------------------ */

/* Of what is drawn from item `first` on, what the product serves: draws combine what no kernel is
 * for, and a failure costs more than a selection. */
static void keep_served(const struct session *s, struct shape_list *list, size_t first)
{
    gen_plan plan = {.size = sizeof plan};
    size_t kept = first;
    for (size_t i = first; i < list->count; i++) {
        if (gen_select(s->library, &s->gpu.device, list->item[i].problem, &plan) == GEN_OK)
            list->item[kept++] = list->item[i];
        else
            free(list->item[i].problem);
    }
    if (kept == first && list->count > first)
        die(1, "%s: %s", list->item[first].name, gen_last_error());
    list->count = kept;
}

static void list_problems(struct bench_options *o, struct shape_list *list)
{
    const struct gen__family *family[64];
    struct shape_list none = {0};
    uint32_t n = families_named(&o->session.families, family, 64);
    for (uint32_t i = 0; i < n; i++) {
        struct shape_list shapes = {0};
        shapes_load(&shapes, family[i], SHAPES_TIMED, NULL);
        const size_t first = list->count;
        shapes_random(list, &shapes, &none, family[i], PROBLEMS / n, (uint64_t)o->seed);
        keep_served(&o->session, list, first);
        shapes_free(&shapes);
    }
    /* Families mixed. */
    struct rng rng;
    rng_seed(&rng, (uint64_t)o->seed);
    for (size_t i = list->count; i > 1; i--) {
        size_t j = rng_below(&rng, (uint32_t)i);
        struct shape swap = list->item[j];
        list->item[j] = list->item[i - 1];
        list->item[i - 1] = swap;
    }
}

static void check_problems(const struct shape_list *list)
{
    if (!list->count)
        die(1, "the shape files give no random problem");
    for (size_t i = 0; i < list->count; i++) {
        if (list->item[i].family->problem_size > MAX_PROBLEM_BYTES)
            die(1, "%s: a problem of more than %d bytes", list->item[i].name, MAX_PROBLEM_BYTES);
    }
}

/* ---- the calls --------------------------------------------------------- */

/* One thread's share. */
struct selector {
    const struct session *session;
    const struct shape_list *list;
    const struct tick_clock *clock;
    size_t first; /* problem */
    double *sample;
    size_t count;
    pthread_barrier_t *start;
    pthread_t thread;
};

static void time_selections(struct selector *s)
{
    gen_plan plan = {.size = sizeof plan};
    for (size_t i = 0; i < s->count; i++) {
        const struct shape *shape = &s->list->item[(s->first + i) % s->list->count];
        _Alignas(max_align_t) unsigned char problem[MAX_PROBLEM_BYTES];
        memcpy(problem, shape->problem, shape->family->problem_size);
        const uint64_t before = ticks();
        (void)gen_select(s->session->library, &s->session->gpu.device, (const gen_problem *)problem,
                         &plan);
        s->sample[i] = tick_ns(s->clock, before, ticks());
    }
}

/* Every problem again and again: all calls but the first find the plan made. */
static void time_repeated(struct selector *s)
{
    gen_plan plan = {.size = sizeof plan};
    const size_t each = s->count / s->list->count;
    for (size_t i = 0; i < s->count; i++) {
        const struct shape *shape = &s->list->item[i / each % s->list->count];
        _Alignas(max_align_t) unsigned char problem[MAX_PROBLEM_BYTES];
        memcpy(problem, shape->problem, shape->family->problem_size);
        if (i % each == 0)
            (void)gen_select(s->session->library, &s->session->gpu.device,
                             (const gen_problem *)problem, &plan);
        const uint64_t before = ticks();
        (void)gen_select(s->session->library, &s->session->gpu.device, (const gen_problem *)problem,
                         &plan);
        s->sample[i] = tick_ns(s->clock, before, ticks());
    }
}

static void *selector_main(void *argument)
{
    struct selector *s = argument;
    (void)pthread_barrier_wait(s->start);
    time_selections(s);
    return NULL;
}

static int num_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/* Eight threads, an eighth of the calls each, each from another problem on. The
 * figures are of all calls together: what one thread's call costs while seven
 * others call. */
static void select_threads(const struct selector *whole, struct text *text)
{
    struct selector share[THREADS];
    pthread_barrier_t start;
    double low = 0, high = 0;
    char note[160];
    const size_t count = whole->count / THREADS;
    memset(whole->sample, 0,
           whole->count * sizeof *whole->sample); /* no page faults in the loops */
    if (pthread_barrier_init(&start, NULL, THREADS) != 0)
        die(2, "a barrier for %d threads cannot be made", THREADS);
    for (size_t t = 0; t < THREADS; t++) {
        share[t] = *whole;
        share[t].first = t * whole->list->count / THREADS;
        share[t].sample = whole->sample + t * count;
        share[t].count = count;
        share[t].start = &start;
        if (pthread_create(&share[t].thread, NULL, selector_main, &share[t]) != 0)
            die(2, "thread %zu of %d cannot be started", t + 1, THREADS);
    }
    for (size_t t = 0; t < THREADS; t++) {
        (void)pthread_join(share[t].thread, NULL);
        const double median = stats_median(share[t].sample, count);
        low = t == 0 || median < low ? median : low;
        high = median > high ? median : high;
    }
    (void)pthread_barrier_destroy(&start);
    snprintf(note, sizeof note,
             "%d threads at once on %d cores; %zu calls each; medians of the threads %.1f to %.1f",
             THREADS, num_cores(), count, low, high);
    host_row(text, "select_8_threads", whole->sample, THREADS * count, note);
}

/* The problems whose plans have `least` to `most` launches. */
static void keep_launches(const struct session *s, const struct shape_list *list, uint32_t least,
                          uint32_t most, struct shape_list *kept)
{
    gen_plan plan = {.size = sizeof plan};
    for (size_t i = 0; i < list->count; i++)
        if (gen_select(s->library, &s->gpu.device, list->item[i].problem, &plan) == GEN_OK &&
            plan.num_launches >= least && plan.num_launches <= most)
            shapes_add(kept, list->item[i].family, list->item[i].problem);
}

/* A row of the problems whose plans have `least` to `most` launches, where there are any. */
static void select_launches(const struct selector *all, const char *what, uint32_t least,
                            uint32_t most, struct text *text)
{
    struct shape_list kept = {0};
    struct selector some = *all;
    char note[128];
    keep_launches(all->session, all->list, least, most, &kept);
    if (kept.count) {
        some.list = &kept;
        time_selections(&some);
        snprintf(note, sizeof note, "%zu calls over %zu problems of %" PRIu32 " launches%s",
                 some.count, kept.count, least, most > least ? " or more" : "");
        host_row(text, what, some.sample, some.count, note);
    }
    shapes_free(&kept);
}

void host_select(struct bench_options *o, const struct tick_clock *clock, struct text *text)
{
    struct shape_list list = {0};
    struct selector all = {.session = &o->session, .list = &list, .clock = clock};
    char note[128];
    list_problems(o, &list);
    check_problems(&list);
    all.count = o->quick ? SELECTIONS / 20 : SELECTIONS;
    all.sample = xmalloc(all.count * sizeof *all.sample);
    time_selections(&all);
    snprintf(note, sizeof note,
             "%zu calls over %zu problems just written; %.1f ns of clock subtracted", all.count,
             list.count, clock->overhead_ns);
    host_row(text, "select", all.sample, all.count, note);
    time_repeated(&all);
    snprintf(note, sizeof note, "%zu calls; each problem %zu times in a row; all but the first",
             all.count, all.count / list.count);
    host_row(text, "select_repeat", all.sample, all.count, note);
    select_launches(&all, "select_pair", 2, 2, text);
    select_launches(&all, "select_chain", 3, GEN_PLAN_MAX_LAUNCHES, text);
    select_threads(&all, text);
    free(all.sample);
    shapes_free(&list);
}
