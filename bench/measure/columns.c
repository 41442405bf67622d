/*
 * Kinds of variants side by side: of each case, the fastest variant of every
 * column (a name and a glob of variant names), whatever selection would pick.
 */
#include "measure/bench.h"
#include "tune/race.h"
#include "common/problems.h"

#include <stdlib.h>
#include <string.h>

static const char method[] =
    "of every column (a glob of variants) the fastest variant of each case: all columns' variants "
    "that fit are timed by graph replay, rotated through buffer sets of more than twice the L2, in "
    "turn (launches above 8 ms once), the best of each column again, interleaved, median of 11 (5 "
    "with --quick); gbps, "
    "tflops: bytes that must move and operations that must be done, by ms";

/* The head of a file says what its rows were measured behind. */
static char *method_of(long rest_ms)
{
    if (rest_ms <= 0)
        return xasprintf("%s; no rests: samples follow each other, and the board's power limit "
                         "lowers the clock of rows that draw more",
                         method);
    return xasprintf(
        "%s; every sample of every row after %ld ms of rest and an untimed replay, for "
        "the power limit sets in after tens of milliseconds: what rows reach in "
        "sustained runs may be less",
        method, rest_ms);
}

static const struct halving_pass passes[] = {{2, 1.10, 6}, {11, 1, 0}};
static const struct halving_pass long_passes[] = {{1, 1.05, 3}, {11, 1, 0}};
static const struct halving_pass quick_passes[] = {{1, 1.10, 4}, {5, 1, 0}};

static const struct halving_pass *passes_for(const struct bench_options *o, const struct race *c)
{
    return o->quick ? quick_passes : race_predicted(c) > LONG_US ? long_passes : passes;
}

struct column {
    char name[48];
    const char *glob; /* of what selection takes the case's variant, or NULL */
    bool found;       /* a case that it has variants for */
};

/* "shard=*_mma_*_shard_*" */
static void read_column(const char *text, struct column *column)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    if (!length || length >= sizeof column->name || !equals[1] || strpbrk(text, ",\n"))
        die(1, "--column takes NAME=GLOB without commas, found '%s'", text);
    memset(column, 0, sizeof *column);
    memcpy(column->name, text, length);
    column->glob = equals + 1;
}

/* Rows of a file are told apart by their columns' names. */
static void check_names(const struct column *column, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(column[i].name, column[k].name) == 0)
                die(1,
                    "columns: two are called '%s'; allowed: names that differ, and 'picked' for "
                    "--picked's alone",
                    column[i].name);
}

/* The variant that selection takes; NULL where it takes none. */
static const char *picked(const struct session *s, const struct shape *shape)
{
    gen_plan plan = {.size = sizeof plan};
    if (gen_select(s->library, &s->gpu.device, shape->problem, &plan) != GEN_OK ||
        plan.num_launches == 0)
        return NULL;
    return session_main(s, &plan).name;
}

/* The variants of all columns that fit; which columns each is of. */
static size_t find_all(struct race *c, struct bench_options *o, const struct shape *shape,
                       struct column *column, int count)
{
    struct option_list all = {0};
    if (o->picked)
        column[count - 1].glob = picked(&o->session, shape);
    for (int k = 0; k < count; k++)
        if (column[k].glob)
            all.item[all.count++] = column[k].glob;
    race_find(c, &o->session, shape, &all, NULL);
    for (size_t i = 0; i < c->count; i++)
        for (int k = 0; k < count; k++)
            if (column[k].glob &&
                glob_match(column[k].glob,
                           session_variant(&o->session, c->candidate[i].variant).name)) {
                c->candidate[i].groups |= 1u << k;
                column[k].found = true;
            }
    return c->count;
}

/* The fastest of a column, of those that came to the last pass; NULL if there is none. `has`: the
 * column has variants for the case. */
static const struct halving_candidate *fastest_of(const struct race *c, int k, bool *has)
{
    const struct halving_candidate *best = NULL;
    *has = false;
    for (size_t i = 0; i < c->count; i++) {
        const struct halving_candidate *x = c->measured ? &c->measured[i] : NULL;
        if (!(c->candidate[i].groups >> k & 1))
            continue;
        *has = true;
        if (x && !x->failed && x->passes > c->last_pass && (!best || x->us < best->us))
            best = x;
    }
    return best;
}

static void put_row(struct text *text, const struct shape *shape, const char *name,
                    const struct halving_candidate *x)
{
    double bytes, flops;
    shape->family->cost(shape->problem, &bytes, &flops);
    text_add(text, "%s,%s,%s,%.6f,%.1f,%.3f\n", shape->name, name, x->name, x->us / 1e3,
             bytes / x->us / 1e3, flops / x->us / 1e6);
    printf("%-28s %-16s %9.2f us %7.1f GB/s  %s\n", shape->name, name, x->us, bytes / x->us / 1e3,
           x->name);
    fflush(stdout);
}

/* False, and a warning, where a column's variants cannot be measured; a column
 * without a variant for the case has no row. */
static bool columns_of(struct bench_options *o, struct arena *arena, const struct shape *shape,
                       struct column *column, int count, struct text *text)
{
    struct race c = {.rest_ms = (double)o->rest_ms};
    bool ok = true;
    if (!find_all(&c, o, shape, column, count)) {
        race_close(&c);
        return true;
    }
    if (race_stage(&c, arena) != GEN_OK)
        snprintf(c.failure, sizeof c.failure, "%s", gen_last_error());
    else
        race_run(&c, passes_for(o, &c), 2, 0, -1, NULL);
    for (int k = 0; k < count; k++) {
        bool has;
        const struct halving_candidate *x = fastest_of(&c, k, &has);
        if (x)
            put_row(text, shape, column[k].name, x);
        else if (has)
            warn("%s, %s: nothing was measured; the case's last failure: %s", shape->name,
                 column[k].name, c.failure);
        ok = ok && (x || !has);
    }
    if (c.lost)
        die(1, "%s: the GPU is lost: %s", shape->name, c.failure);
    race_close(&c);
    return ok;
}

int bench_columns(struct bench_options *o)
{
    const struct gen__family *family[64];
    struct column column[HALVING_GROUPS];
    const int count = o->columns.count + (o->picked ? 1 : 0);
    struct shape_list shapes = {0};
    struct arena arena = {0};
    struct text text = {0};
    char *how = method_of(o->rest_ms);
    bool ok = true;
    size_t cases = 0;
    if (!o->columns.count)
        die(1, "columns: which? Give --column NAME=GLOB, one for each");
    if (count > HALVING_GROUPS)
        die(1, "columns: %d; allowed: %d, --picked among them", count, HALVING_GROUPS);
    for (int i = 0; i < o->columns.count; i++)
        read_column(o->columns.item[i], &column[i]);
    if (o->picked)
        column[count - 1] = (struct column){.name = "picked"};
    check_names(column, count);
    if (families_named(&o->session.families, family, 64) != 1)
        die(1, "columns: one family at a time; give --families");
    session_open_library(&o->session);
    session_open_gpu(&o->session);
    shapes_load(&shapes, family[0], SHAPES_TIMED, o->list);
    bench_header(&text, o, how);
    free(how);
    text_add(&text, "case,column,variant,ms,gbps,tflops\n");
    for (size_t i = 0; i < shapes.count; i++) {
        if (!glob_match(o->cases, shapes.item[i].name) || shapes.item[i].key.empty)
            continue;
        ok = columns_of(o, &arena, &shapes.item[i], column, count, &text) && ok;
        cases++;
    }
    for (int k = 0; k < o->columns.count && cases; k++)
        if (!column[k].found)
            warn("column %s: no variant that this GPU runs is named '%s' for any case",
                 column[k].name, column[k].glob);
    char *name = xasprintf("%s_columns", family[0]->name);
    if (cases)
        bench_write(o, name, &text);
    else
        warn("no case of %s is named '%s'", family[0]->name, o->cases ? o->cases : "*");
    free(name);
    arena_free(&arena, &o->session.gpu);
    shapes_free(&shapes);
    text_free(&text);
    session_close(&o->session);
    return ok && cases ? 0 : 1;
}
