#include "compile/estimate.h"

#include <stdlib.h>
#include <string.h>

/* Variants that cost about the same: of one family, target and template. */
struct stratum {
    struct variant **variants;
    size_t count;
};

static int by_stratum(const void *a, const void *b)
{
    const struct variant *x = *(struct variant *const *)a, *y = *(struct variant *const *)b;
    int order = strcmp(x->family->name, y->family->name);
    if (order == 0)
        order = (x->arch > y->arch) - (x->arch < y->arch);
    if (order == 0)
        order = strcmp(x->template->path, y->template->path);
    return order != 0 ? order : strcmp(x->name, y->name);
}

static bool same_stratum(const struct variant *a, const struct variant *b)
{
    return a->family == b->family && a->arch == b->arch && a->template == b->template;
}

static bool known(const struct variant *v)
{
    return v->state != VARIANT_NEW;
}

/* Multiples of the golden ratio fill the range evenly and, unlike a constant
 * stride, do not keep step with an axis that alternates. */
static size_t pick_samples(const struct stratum *s, size_t wanted, struct variant **samples)
{
    size_t count = 0, have = 0;
    for (size_t i = 0; i < s->count; i++)
        have += known(s->variants[i]);
    double at = 0.5;
    for (size_t tries = 0; have + count < wanted && tries < 8 * wanted; tries++) {
        struct variant *v = s->variants[(size_t)(at * (double)s->count)];
        bool taken = known(v);
        for (size_t i = 0; i < count; i++)
            taken = taken || samples[i] == v;
        if (!taken)
            samples[count++] = v;
        at += 0.6180339887498949;
        at -= at >= 1 ? 1 : 0;
    }
    return count;
}

static void add_stratum(const struct stratum *s, struct estimate *e)
{
    double seconds = 0, bytes = 0;
    size_t have = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct variant *v = s->variants[i];
        if (!known(v))
            continue;
        have++;
        seconds += v->seconds;
        const size_t aligned = (v->image_size + 15) / 16 * 16;
        bytes += v->state == VARIANT_BUILT ? (double)aligned : 0;
    }
    double scale = have > 0 ? (double)s->count / (double)have : 0;
    e->variants += s->count;
    e->cached += have;
    e->cpu_seconds += seconds * scale;
    e->cpu_seconds_left += seconds * (scale - (have > 0 ? 1 : 0));
    e->bytes += bytes * scale;
}

static size_t find_strata(struct variant **variants, size_t count, struct stratum *strata)
{
    size_t num = 0;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && same_stratum(variants[first], variants[end]); end++)
            continue;
        strata[num++] = (struct stratum){variants + first, end - first};
    }
    return num;
}

static void add_total(struct estimate *total, const struct estimate *e)
{
    total->variants += e->variants;
    total->cached += e->cached;
    total->cpu_seconds += e->cpu_seconds;
    total->cpu_seconds_left += e->cpu_seconds_left;
    total->bytes += e->bytes;
}

size_t estimate_make(struct session *session, struct pool *pool, struct estimate **estimates)
{
    struct arena *arena = &session->arena;
    size_t count = session->num_variants, num_samples = 0, num = 0;
    struct variant **sorted = arena_copy(arena, session->variants, count * sizeof *sorted);
    struct variant **samples = arena_alloc(arena, (count + 1) * sizeof *samples);
    struct stratum *strata = arena_alloc(arena, (count + 1) * sizeof *strata);
    qsort(sorted, count, sizeof *sorted, by_stratum);
    size_t num_strata = find_strata(sorted, count, strata);
    /* Costs vary by a factor of two or so within a stratum: 24 samples leave an
     * error of about a tenth. Many strata average it out. */
    size_t wanted = num_strata > 8 ? 12 : 24;
    for (size_t i = 0; i < num_strata; i++)
        num_samples += pick_samples(&strata[i], wanted, samples + num_samples);
    pool_run(session, pool, samples, num_samples);

    struct estimate *list = arena_alloc(arena, (num_strata + 1) * sizeof *list);
    for (size_t i = 0; i < num_strata; i++) {
        const struct variant *v = strata[i].variants[0];
        if (num == 0 || list[num - 1].family != v->family || list[num - 1].arch != v->arch)
            list[num++] = (struct estimate){.family = v->family, .arch = v->arch};
        add_stratum(&strata[i], &list[num - 1]);
    }
    struct estimate *total = &list[num];
    for (size_t i = 0; i < num; i++)
        add_total(total, &list[i]);
    *estimates = list;
    return num + 1;
}
