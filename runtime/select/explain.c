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

static void put_problem(struct gen__text *out, const struct gen__query *query)
{
    char problem[512];
    gen__problem_format(query->family, query->problem, problem, sizeof(problem));
    gen__text_add(out, "%s", problem);
}

/* "batch=8,heads=2", by which rows are near or far. */
static void put_counts(struct gen__text *out, const struct gen__family *family, const float *counts,
                       const char *separator)
{
    for (uint32_t c = 0; c < family->num_coords; c++)
        gen__text_add(out, "%s%s=%.0f", c ? separator : "", family->coords[c], (double)counts[c]);
}

static void put_head(struct gen__text *out, const struct gen__query *query)
{
    const gen_device *d = query->device;
    const uint32_t flags = query->problem->flags;
    gen__text_add(out, "problem   %s ", query->family->name);
    put_problem(out, query);
    gen__text_add(out, "\n%s%s%s", flags & GEN_DETERMINISTIC ? "flag      deterministic\n" : "",
                  flags & GEN_BATCH_INVARIANT ? "flag      batch-invariant\n" : "",
                  flags & GEN_SERIAL_LAUNCH ? "flag      serial launch\n" : "");
    if (query->problem->max_workspace_mib)
        gen__text_add(out, "limit     %u MiB of workspace\n", query->problem->max_workspace_mib);
    gen__text_add(out, "device    %.63s", d->name);
    if (d->backend == GEN_BACKEND_CPU) {
        gen__text_add(out, "\n");
        return;
    }
    gen__text_add(out, ": sm_%u, %u SMs, %u GB/s, %.1f MiB L2, %u bytes shared a block\n",
                  d->compute_capability, d->num_sms, d->memory_gbps, d->l2_bytes / 1048576.0,
                  d->shared_per_block);
    if (query->key.empty || !query->family->num_coords)
        return;
    gen__text_add(out, "tuned by  ");
    put_counts(out, query->family, query->key.counts, " ");
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

static void put_rule(struct gen__text *out, const struct gen__query *query,
                     const struct gen__choice *choice)
{
    gen__text_add(out, "rule      %s", gen_why_string(choice->why));
    if (choice->row) {
        const struct gen__table *t = &query->library->tables[choice->rows->table];
        gen__text_add(out, ": %s (%s), row ", t->read.class_name, t->name);
        put_counts(out, query->family, choice->row->counts, ",");
        gen__text_add(out, ", %.2f octaves away", (double)choice->octaves);
    } else if (isfinite(query->family->max_distance) && query->entry->classes &&
               choice->why == GEN_WHY_MODEL) {
        gen__text_add(out, ": no row is within %.2g octaves", (double)query->family->max_distance);
    }
    gen__text_add(out, "\n");
}

/* Where nothing was measured: a coordinate outside of what the class has rows for, or no row at
 * all. */
static void put_hint(struct gen__text *out, const struct gen__query *query,
                     const struct gen__choice *choice)
{
    const struct gen__class_rows *rows = choice->rows;
    const char *separator = "hint      ";
    if (!choice->row && gen__lacks_rows(query))
        gen__text_add(out, "hint      the product lacks variants of rows near by\n");
    else if (!choice->row && !query->entry->classes)
        gen__text_add(out, "hint      no problem of this required key was measured\n");
    for (uint32_t c = 0; choice->row && c < query->family->num_coords; c++) {
        const float asked = query->key.counts[c];
        float least = INFINITY, most = 0.0f;
        for (uint32_t i = 0; i < rows->num_rows; i++) {
            least = fminf(least, rows->rows[i].counts[c]);
            most = fmaxf(most, rows->rows[i].counts[c]);
        }
        if (asked >= least && asked <= most)
            continue;
        gen__text_add(out, "%s%s=%.0f was never measured, rows have %.0f to %.0f", separator,
                      query->family->coords[c], (double)asked, (double)least, (double)most);
        separator = "; ";
    }
    if (*separator == ';')
        gen__text_add(out, "\n");
}

/* The row that decided has the time of its runner-up too, as far behind the winner as it was at
 * the row; the rest is the family's estimate. */
static void put_time(struct candidate *c, const struct gen__query *query,
                     const struct gen__choice *choice)
{
    const struct gen_pack_row *row = choice ? choice->row : NULL;
    const bool winner = row && c->variant == row->variant;
    c->measured = winner || (row && c->variant == row->runner_up && row->runner_up_us > 0.0f);
    const float us = winner        ? choice->us
                     : c->measured ? choice->us * row->runner_up_us / row->us
                                   : gen__predict(query, c->variant);
    c->us = us > 0.0f ? us : INFINITY;
}

/* Every variant of the problem's key. Text comes last, and is passed over where machine code
 * fits. */
static void collect(const struct gen__query *query, const struct gen__choice *choice,
                    struct candidate *c)
{
    const gen_library *library = query->library;
    const char *code = NULL; /* the target of machine code that fits */
    for (uint32_t g = query->entry->first_group; g != GEN__NO_GROUP; g = library->next_group[g]) {
        const struct gen_pack_group *group = &library->pack.groups[g];
        const struct gen_pack_target *target = &library->pack.targets[group->target];
        for (uint32_t i = 0; i < group->num_variants; i++, c++) {
            *c = (struct candidate){.variant = group->first_variant + i, .us = INFINITY};
            c->reject = gen__eligible(query, c->variant, &c->why);
            if (!c->reject && target->kind == GEN_PACK_PTX && code) {
                c->reject = GEN__REJECT_PTX;
                c->why = code;
            }
            if (c->reject)
                continue;
            if (target->kind != GEN_PACK_PTX && !code)
                code = gen__pack_string(&library->pack, target->name);
            put_time(c, query, choice);
        }
    }
}

static void put_candidates(struct gen__text *out, const struct gen__query *query,
                           const struct gen__choice *choice, const struct candidate *candidates)
{
    for (uint32_t i = 0; i < query->entry->num_variants; i++) {
        const struct candidate *c = &candidates[i];
        const char *name = gen__variant_name(&query->library->pack, c->variant);
        if (!i || !candidates[i - 1].reject != !c->reject)
            gen__text_add(out, c->reject ? "rejected:\n" : "candidates, us:\n");
        if (c->reject) {
            gen__text_add(out, "  %s ", name);
            gen__reject_text(out, query, c->variant, c->reject, c->why);
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
static bool put_choice(struct gen__text *out, const struct gen__query *query,
                       struct gen__choice *choice)
{
    const bool found = gen__choose(query, choice);
    if (found) {
        put_rule(out, query, choice);
        put_hint(out, query, choice);
    } else {
        choice->facts = NULL;
        gen__text_add(out, "rule      none: ");
        gen__unsupported_text(out, query);
        gen__text_add(out, "\n");
    }
    if (!query->entry)
        return true;
    struct candidate *candidates = calloc(query->entry->num_variants, sizeof(*candidates));
    if (!candidates)
        return false;
    collect(query, found ? choice : NULL, candidates);
    qsort(candidates, query->entry->num_variants, sizeof(*candidates), order_candidates);
    put_candidates(out, query, found ? choice : NULL, candidates);
    free(candidates);
    return true;
}

/* The same for a launch of another family. */
static bool put_part(struct gen__text *out, const struct gen__query *whole,
                     const struct gen__part *part, const char *place)
{
    struct gen__query query;
    struct gen__choice choice;
    if (gen__query(whole->library, whole->device, &part->problem.base, &query))
        return true; /* a family does not name problems that another refuses */
    gen__text_add(out, "%s %u  %s ", place, part->launch, query.family->name);
    put_problem(out, &query);
    gen__text_add(out, "\n");
    return put_choice(out, &query, &choice);
}

/* The launch that lists of 64-bit indices take, and those that the chosen variant leaves to other
 * families. */
static bool put_parts(struct gen__text *out, const struct gen__query *query,
                      const struct gen__choice *choice)
{
    struct gen__part parts[GEN_PLAN_MAX_LAUNCHES], index;
    gen_plan plan;
    bool room = true;
    memset(&plan, 0, sizeof(plan));
    query->family->plan(query->problem, query->device, choice->facts, &plan);
    if (gen__index_dtype(query->family, query->problem)) {
        gen__index_problem(query->family, query->problem, plan.dims, &index);
        room = put_part(out, query, &index, "before launch");
    }
    const uint32_t count = gen__parts(query, choice->facts, &plan, parts);
    for (uint32_t i = 0; room && i < count; i++)
        room = put_part(out, query, &parts[i], "launch");
    return room;
}

static bool explain(struct gen__text *out, const struct gen__query *query)
{
    struct gen__choice choice;
    put_head(out, query);
    if (query->device->backend == GEN_BACKEND_CPU) {
        gen__text_add(out, "rule      %s\n", gen_why_string(GEN_WHY_REFERENCE));
        return true;
    }
    put_tables(out, query->library);
    if (query->key.empty) {
        gen__text_add(out, "rule      the problem is empty: nothing to launch\n");
        return true;
    }
    return put_choice(out, query, &choice) && (!choice.facts || put_parts(out, query, &choice));
}

enum gen_status gen_explain(const gen_library *library, const gen_device *device,
                            const gen_problem *problem, char *text, size_t capacity, size_t *needed)
{
    struct gen__query query;
    enum gen_status status = gen__query(library, device, problem, &query);
    if (status)
        return status;
    if (!text && capacity)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "text is NULL, and capacity is %zu",
                         capacity);
    struct gen__text out = gen__text_over(text, capacity);
    if (!explain(&out, &query))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to list the candidates");
    if (needed)
        *needed = out.length;
    return GEN_OK;
}

static void log_explanation(const struct gen__query *query)
{
    struct gen__text measure = gen__text_over(NULL, 0);
    char *text = explain(&measure, query) ? malloc(measure.length + 1) : NULL;
    struct gen__text out = gen__text_over(text, text ? measure.length + 1 : 0);
    if (text && explain(&out, query)) {
        if (out.length && text[out.length - 1] == '\n')
            text[out.length - 1] = '\0';
        gen__log(GEN_LOG_EXPLAIN, text);
    }
    free(text);
}

void gen__log_select(const struct gen__query *query, enum gen_status status,
                     const struct gen__choice *choice, const char *part_of)
{
    char text[1536], class[32] = "cpu", us[32] = "-", octaves[32] = "-";
    const gen_problem *problem = query->problem;
    if (query->device->backend != GEN_BACKEND_CPU)
        snprintf(class, sizeof(class), "sm%u_%usm", query->device->compute_capability,
                 query->device->num_sms);
    if (choice && choice->us > 0.0f && !query->untimed)
        snprintf(us, sizeof(us), "%.3f", (double)choice->us);
    if (choice && choice->row)
        snprintf(octaves, sizeof(octaves), "%.2f", (double)choice->octaves);
    struct gen__text line = gen__text_over(text, sizeof(text));
    gen__text_add(&line, "select family=%s class=%s status=%s variant=%s us=%s why=%s octaves=%s ",
                  query->family->name, class, gen_status_name(status),
                  choice && choice->facts
                      ? gen__variant_name(&query->library->pack, choice->facts->index)
                      : "-",
                  us, status ? "-" : gen__why_name(choice->why), octaves);
    gen__text_add(&line, "part_of=%s flags=%#x workspace_mib=%u problem=", part_of ? part_of : "-",
                  problem->flags, problem->max_workspace_mib);
    put_problem(&line, query);
    /* The words that shape files have for flags. */
    gen__text_add(&line, "%s%s", problem->flags & GEN_SERIAL_LAUNCH ? " @serial" : "",
                  problem->flags & GEN_BATCH_INVARIANT ? " @invariant" : "");
    if (gen__logs(query->library, GEN_LOG_SELECT))
        gen__log(GEN_LOG_SELECT, text);
    if (!part_of && gen__logs(query->library, GEN_LOG_EXPLAIN))
        log_explanation(query);
}
