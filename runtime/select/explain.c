/* gen_explain(): the whole of a selection as text. And the log's lines of selections. */
#include "family/index.h"
#include "select/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    uint32_t variant;
    float us; /* INFINITY: nothing is known */
    bool measured;
    enum gen__reject reject;
    const char *why;
};

/* What fits before what does not, the faster first, the unknown last, then by name. */
static int order_candidates(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    if (!a->reject != !b->reject)
        return a->reject ? 1 : -1;
    if (a->us != b->us)
        return a->us < b->us ? -1 : 1;
    return (a->variant > b->variant) - (a->variant < b->variant);
}

static void put_problem(struct gen__text *out, const struct gen__ask *ask)
{
    char problem[512];
    gen__problem_format(ask->family, ask->problem, problem, sizeof(problem));
    gen__text_add(out, "%s", problem);
}

/* "batch=8,heads=2", by which rows are near or far. */
static void put_counts(struct gen__text *out, const struct gen__family *family, const float *counts,
                       const char *separator)
{
    for (uint32_t c = 0; c < family->num_coords; c++)
        gen__text_add(out, "%s%s=%.0f", c ? separator : "", family->coords[c], (double)counts[c]);
}

static void put_head(struct gen__text *out, const struct gen__ask *ask)
{
    const gen_device *d = ask->device;
    const uint32_t flags = ask->problem->flags;
    gen__text_add(out, "problem   %s ", ask->family->name);
    put_problem(out, ask);
    gen__text_add(out, "\n%s%s%s", flags & GEN_DETERMINISTIC ? "wish      deterministic\n" : "",
                  flags & GEN_BATCH_INVARIANT ? "wish      batch-invariant\n" : "",
                  flags & GEN_SERIAL_LAUNCH ? "wish      serial launch\n" : "");
    if (ask->problem->max_workspace_mib)
        gen__text_add(out, "wish      at most %u MiB of workspace\n",
                      ask->problem->max_workspace_mib);
    gen__text_add(out, "device    %.63s", d->name);
    if (d->backend == GEN_BACKEND_CPU) {
        gen__text_add(out, "\n");
        return;
    }
    gen__text_add(out, ": sm_%u, %u SMs, %u GB/s, %.1f MiB L2, %u bytes shared a block\n",
                  d->compute_capability, d->num_sms, d->memory_gbps, d->l2_bytes / 1048576.0,
                  d->shared_per_block);
    if (ask->key.empty || !ask->family->num_coords)
        return;
    gen__text_add(out, "tuned by  ");
    put_counts(out, ask->family, ask->key.counts, " ");
    gen__text_add(out, "\n");
}

static void put_tables(struct gen__text *out, const gen_library *library)
{
    for (uint32_t i = 0; i < library->num_tables; i++) {
        const struct gen__table *t = &library->tables[i];
        const struct gen_table *read = &t->read;
        gen__text_add(out, "table     %s ", t->name);
        if (read->about.refused) {
            gen__text_add(out, "refused: line %u: %s\n", read->about.reason_line, read->reason);
            continue;
        }
        gen__text_add(out, "(%s): %u rows in use, %u behind another table, %u expired, %u bad",
                      read->class_name, t->num_used, t->num_shadowed, read->about.num_expired,
                      read->about.num_bad);
        if (read->about.num_bad)
            gen__text_add(out, " (the first: line %u: %s)", read->about.reason_line, read->reason);
        if (read->about.num_ptx)
            gen__text_add(out, ", %u of PTX beside machine code", read->about.num_ptx);
        gen__text_add(out, "\n");
    }
}

static void put_rule(struct gen__text *out, const struct gen__ask *ask,
                     const struct gen__choice *choice)
{
    gen__text_add(out, "rule      %s", gen_why_string(choice->why));
    if (choice->row) {
        const struct gen__table *t = &ask->library->tables[choice->rows->table];
        gen__text_add(out, ": %s (%s), row ", t->read.class_name, t->name);
        put_counts(out, ask->family, choice->row->counts, ",");
        gen__text_add(out, ", %.2f octaves away", (double)choice->octaves);
    } else if (isfinite(ask->family->max_distance) && ask->entry->classes &&
               choice->why == GEN_WHY_MODEL) {
        gen__text_add(out, ": no row is within %.2g octaves", (double)ask->family->max_distance);
    }
    gen__text_add(out, "\n");
}

/* Where nothing was measured: a coordinate outside of what the class has rows for, or no row at
 * all. */
static void put_hint(struct gen__text *out, const struct gen__ask *ask,
                     const struct gen__choice *choice)
{
    const struct gen__class_rows *rows = choice->rows;
    const char *separator = "hint      ";
    if (!choice->row && gen__lacks_rows(ask))
        gen__text_add(out, "hint      the product lacks variants of rows near by\n");
    else if (!choice->row && !ask->entry->classes)
        gen__text_add(out, "hint      no problem of this required key was measured\n");
    for (uint32_t c = 0; choice->row && c < ask->family->num_coords; c++) {
        const float asked = ask->key.counts[c];
        float least = INFINITY, most = 0.0f;
        for (uint32_t i = 0; i < rows->num_rows; i++) {
            least = fminf(least, rows->rows[i].counts[c]);
            most = fmaxf(most, rows->rows[i].counts[c]);
        }
        if (asked >= least && asked <= most)
            continue;
        gen__text_add(out, "%s%s=%.0f was never measured, rows have %.0f to %.0f", separator,
                      ask->family->coords[c], (double)asked, (double)least, (double)most);
        separator = "; ";
    }
    if (*separator == ';')
        gen__text_add(out, "\n");
}

/* The row that decided tells the time of its runner-up too, as far behind the winner as it was at
 * the row; the rest is the family's estimate. */
static void put_time(struct candidate *c, const struct gen__ask *ask,
                     const struct gen__choice *choice)
{
    const struct gen_pack_row *row = choice ? choice->row : NULL;
    const bool winner = row && c->variant == row->variant;
    c->measured = winner || (row && c->variant == row->runner_up && row->runner_up_us > 0.0f);
    const float us = winner        ? choice->us
                     : c->measured ? choice->us * row->runner_up_us / row->us
                                   : gen__predict(ask, c->variant);
    c->us = us > 0.0f ? us : INFINITY;
}

/* Every variant of the problem's key. Text comes last, and is passed over where machine code
 * fits. */
static void collect(const struct gen__ask *ask, const struct gen__choice *choice,
                    struct candidate *c)
{
    const gen_library *library = ask->library;
    const char *code = NULL; /* the target of machine code that fits */
    for (uint32_t g = ask->entry->first_group; g != GEN__NO_GROUP; g = library->next_group[g]) {
        const struct gen_pack_group *group = &library->pack.groups[g];
        const struct gen_pack_target *target = &library->pack.targets[group->target];
        for (uint32_t i = 0; i < group->num_variants; i++, c++) {
            *c = (struct candidate){.variant = group->first_variant + i, .us = INFINITY};
            c->reject = gen__eligible(ask, c->variant, &c->why);
            if (!c->reject && target->kind == GEN_PACK_PTX && code) {
                c->reject = GEN__REJECT_PTX;
                c->why = code;
            }
            if (c->reject)
                continue;
            if (target->kind != GEN_PACK_PTX && !code)
                code = gen__pack_string(&library->pack, target->name);
            put_time(c, ask, choice);
        }
    }
}

static void put_candidates(struct gen__text *out, const struct gen__ask *ask,
                           const struct gen__choice *choice, const struct candidate *candidates)
{
    for (uint32_t i = 0; i < ask->entry->num_variants; i++) {
        const struct candidate *c = &candidates[i];
        const char *name = gen__variant_name(&ask->library->pack, c->variant);
        if (!i || !candidates[i - 1].reject != !c->reject)
            gen__text_add(out, c->reject ? "rejected:\n" : "candidates, us:\n");
        if (c->reject) {
            gen__text_add(out, "  %s ", name);
            gen__reject_text(out, ask, c->variant, c->reject, c->why);
            gen__text_add(out, "\n");
            continue;
        }
        gen__text_add(out, choice && c->variant == choice->facts->index ? "* " : "  ");
        if (isinf(c->us))
            gen__text_add(out, "%12s unknown   %s\n", "-", name);
        else
            gen__text_add(out, "%12.3f %s  %s\n", (double)c->us,
                          c->measured ? "measured" : "estimate", name);
    }
}

/* The rule that decides and every candidate; without facts in *choice nothing was found. Sets no
 * message, since the answer may be a success's; false where there is no memory to list the
 * candidates. */
static bool put_choice(struct gen__text *out, const struct gen__ask *ask,
                       struct gen__choice *choice)
{
    const bool found = gen__choose(ask, choice);
    if (found) {
        put_rule(out, ask, choice);
        put_hint(out, ask, choice);
    } else {
        choice->facts = NULL;
        gen__text_add(out, "rule      none: ");
        gen__unsupported_text(out, ask);
        gen__text_add(out, "\n");
    }
    if (!ask->entry)
        return true;
    struct candidate *candidates = calloc(ask->entry->num_variants, sizeof(*candidates));
    if (!candidates)
        return false;
    collect(ask, found ? choice : NULL, candidates);
    qsort(candidates, ask->entry->num_variants, sizeof(*candidates), order_candidates);
    put_candidates(out, ask, found ? choice : NULL, candidates);
    free(candidates);
    return true;
}

/* The same for each launch that the chosen variant leaves to another family. */
static bool put_parts(struct gen__text *out, const struct gen__ask *ask,
                      const struct gen__choice *choice)
{
    struct gen__part parts[GEN_PLAN_MAX_LAUNCHES];
    gen_plan plan;
    memset(&plan, 0, sizeof(plan));
    ask->family->plan(ask->problem, ask->device, choice->facts, &plan);
    const uint32_t count = gen__parts(ask, choice->facts, &plan, parts);
    bool room = true;
    for (uint32_t i = 0; room && i < count; i++) {
        struct gen__ask part;
        struct gen__choice part_choice;
        if (gen__ask(ask->library, ask->device, &parts[i].problem.base, &part))
            continue; /* a family does not name problems that another refuses */
        gen__text_add(out, "launch %u  %s ", parts[i].launch, part.family->name);
        put_problem(out, &part);
        gen__text_add(out, "\n");
        room = put_choice(out, &part, &part_choice);
    }
    return room;
}

/* The same for the launch that lists of 64-bit indices take. */
static bool put_index(struct gen__text *out, const struct gen__ask *ask,
                      const struct gen__choice *choice)
{
    struct gen__part part;
    struct gen__ask index;
    struct gen__choice index_choice;
    gen_plan plan;
    if (!gen__index_dtype(ask->family, ask->problem))
        return true;
    memset(&plan, 0, sizeof(plan));
    ask->family->plan(ask->problem, ask->device, choice->facts, &plan);
    gen__index_problem(ask->family, ask->problem, plan.dims, &part);
    if (gen__ask(ask->library, ask->device, &part.problem.base, &index))
        return true;
    gen__text_add(out, "before launch 0  %s ", index.family->name);
    put_problem(out, &index);
    gen__text_add(out, "\n");
    return put_choice(out, &index, &index_choice);
}

static bool explain(struct gen__text *out, const struct gen__ask *ask)
{
    struct gen__choice choice;
    put_head(out, ask);
    if (ask->device->backend == GEN_BACKEND_CPU) {
        gen__text_add(out, "rule      %s\n", gen_why_string(GEN_WHY_REFERENCE));
        return true;
    }
    put_tables(out, ask->library);
    if (ask->key.empty) {
        gen__text_add(out, "rule      the problem is empty: nothing to launch\n");
        return true;
    }
    return put_choice(out, ask, &choice) &&
           (!choice.facts || (put_index(out, ask, &choice) && put_parts(out, ask, &choice)));
}

enum gen_status gen_explain(const gen_library *library, const gen_device *device,
                            const gen_problem *problem, char *text, size_t capacity, size_t *needed)
{
    struct gen__ask ask;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!text && capacity)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "text is NULL, and capacity is %zu",
                         capacity);
    struct gen__text out = gen__text_over(text, capacity);
    if (!explain(&out, &ask))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to list the candidates");
    if (needed)
        *needed = out.length;
    return GEN_OK;
}

static void log_explanation(const struct gen__ask *ask)
{
    struct gen__text measure = gen__text_over(NULL, 0);
    char *text = explain(&measure, ask) ? malloc(measure.length + 1) : NULL;
    struct gen__text out = gen__text_over(text, text ? measure.length + 1 : 0);
    if (text && explain(&out, ask)) {
        if (out.length && text[out.length - 1] == '\n')
            text[out.length - 1] = '\0';
        gen__log(GEN_LOG_EXPLAIN, text);
    }
    free(text);
}

void gen__log_select(const struct gen__ask *ask, enum gen_status status,
                     const struct gen__choice *choice, const char *part_of)
{
    char text[1536], class[32] = "cpu", us[32] = "-", octaves[32] = "-";
    const gen_problem *problem = ask->problem;
    if (ask->device->backend != GEN_BACKEND_CPU)
        snprintf(class, sizeof(class), "sm%u_%usm", ask->device->compute_capability,
                 ask->device->num_sms);
    if (choice && choice->us > 0.0f && !ask->untimed)
        snprintf(us, sizeof(us), "%.3f", (double)choice->us);
    if (choice && choice->row)
        snprintf(octaves, sizeof(octaves), "%.2f", (double)choice->octaves);
    struct gen__text line = gen__text_over(text, sizeof(text));
    gen__text_add(&line, "select family=%s class=%s status=%s variant=%s us=%s why=%s octaves=%s ",
                  ask->family->name, class, gen_status_name(status),
                  choice && choice->facts
                      ? gen__variant_name(&ask->library->pack, choice->facts->index)
                      : "-",
                  us, status ? "-" : gen__why_name(choice->why), octaves);
    gen__text_add(&line, "part_of=%s flags=%#x workspace_mib=%u problem=", part_of ? part_of : "-",
                  problem->flags, problem->max_workspace_mib);
    put_problem(&line, ask);
    /* The words that shape files have for flags. */
    gen__text_add(&line, "%s%s", problem->flags & GEN_SERIAL_LAUNCH ? " @serial" : "",
                  problem->flags & GEN_BATCH_INVARIANT ? " @invariant" : "");
    if (gen__logs(ask->library, GEN_LOG_SELECT))
        gen__log(GEN_LOG_SELECT, text);
    if (!part_of && gen__logs(ask->library, GEN_LOG_EXPLAIN))
        log_explanation(ask);
}
