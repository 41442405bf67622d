/* gen_explain(): the whole of a selection as text. */
#include "select/select.h"
#include "core/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    uint32_t variant;
    float us; /* 0: nothing is known */
    bool measured;
    enum gen__reject reject;
    const char *why;
};

/* What fits before what does not, the faster first, the unknown last, then by
 * name. */
static int order_candidates(const void *x, const void *y)
{
    const struct candidate *a = x;
    const struct candidate *b = y;
    if (!a->reject != !b->reject)
        return a->reject ? 1 : -1;
    const float s = a->us > 0.0f ? a->us : INFINITY;
    const float t = b->us > 0.0f ? b->us : INFINITY;
    if (!a->reject && s != t)
        return s < t ? -1 : 1;
    return (a->variant > b->variant) - (a->variant < b->variant);
}

static void put_head(struct gen__text *out, const struct gen__ask *ask)
{
    const gen_device *d = ask->device;
    char problem[512];
    gen__problem_format(ask->family, ask->problem, problem, sizeof(problem));
    gen__text_add(out, "problem   %s %s\n", ask->family->name, problem);
    if (ask->problem->flags & GEN_DETERMINISTIC)
        gen__text_add(out, "wish      deterministic\n");
    if (ask->problem->flags & GEN_BATCH_INVARIANT)
        gen__text_add(out, "wish      batch-invariant\n");
    if (ask->problem->flags & GEN_SERIAL_LAUNCH)
        gen__text_add(out, "wish      serial launch\n");
    if (ask->problem->max_workspace_mib)
        gen__text_add(out, "wish      at most %u MiB of workspace\n",
                      ask->problem->max_workspace_mib);
    if (d->backend == GEN_BACKEND_CPU) {
        gen__text_add(out, "device    %.63s\n", d->name);
        return;
    }
    gen__text_add(out,
                  "device    %.63s: sm_%u, %u SMs, %u GB/s, %.1f MiB L2, %u bytes shared a block\n",
                  d->name, d->compute_capability, d->num_sms, d->memory_gbps,
                  d->l2_bytes / 1048576.0, d->shared_per_block);
    for (uint32_t c = 0; !ask->key.empty && c < ask->family->num_coords; c++)
        gen__text_add(out, "%s%s=%.0f%s", c ? " " : "tuned by  ", ask->family->coords[c],
                      (double)ask->key.counts[c], c + 1 < ask->family->num_coords ? "" : "\n");
}

static void put_tables(struct gen__text *out, const gen_library *library)
{
    for (uint32_t i = 0; i < library->num_tables; i++) {
        const struct gen__table *t = &library->tables[i];
        const struct gen_table *read = &t->read;
        if (read->refused) {
            gen__text_add(out, "table     %s refused: line %u: %s\n", t->name, read->reason_line,
                          read->reason);
            continue;
        }
        gen__text_add(
            out, "table     %s (%s): %u rows in use, %u behind another table, %u expired, %u bad",
            t->name, read->class_name, t->num_used, t->num_shadowed, read->num_expired,
            read->num_bad);
        if (read->num_bad)
            gen__text_add(out, " (the first: line %u: %s)", read->reason_line, read->reason);
        if (read->num_ptx)
            gen__text_add(out, ", %u of PTX beside machine code", read->num_ptx);
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
        for (uint32_t c = 0; c < ask->family->num_coords; c++)
            gen__text_add(out, "%s%s=%.0f", c ? "," : "", ask->family->coords[c],
                          (double)choice->row->counts[c]);
        gen__text_add(out, ", %.2f octaves away", (double)choice->octaves);
    } else if (isfinite(ask->family->max_distance) && ask->entry->classes &&
               choice->why == GEN_WHY_MODEL) {
        gen__text_add(out, ": no row is within %.2g octaves", (double)ask->family->max_distance);
    }
    gen__text_add(out, "\n");
}

/* Where nobody measured: a coordinate outside of what the class has rows for, or no row at all. */
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

/* Every variant of the problem's key. The row that decided tells the time of its runner-up too; the
 * rest is the family's estimate. Text comes last, and is passed over where machine code fits. */
static uint32_t collect(const struct gen__ask *ask, const struct gen__choice *choice,
                        struct candidate *candidates)
{
    const gen_library *library = ask->library;
    const char *code = NULL; /* the target of machine code that fits */
    uint32_t count = 0;
    for (uint32_t i = 0; i < ask->entry->num_groups; i++) {
        const struct gen_pack_group *group =
            &library->pack.groups[library->group_order[ask->entry->first_group + i]];
        const struct gen_pack_target *target = &library->pack.targets[group->target];
        for (uint32_t v = group->first_variant; v < group->first_variant + group->num_variants;
             v++) {
            struct candidate *c = &candidates[count++];
            *c = (struct candidate){.variant = v};
            c->reject = gen__eligible(ask, v, &c->why);
            if (!c->reject && target->kind != GEN_PACK_PTX && !code)
                code = gen__pack_string(&library->pack, target->name);
            if (!c->reject && target->kind == GEN_PACK_PTX && code) {
                c->reject = GEN__REJECT_PTX;
                c->why = code;
            }
            if (c->reject)
                continue;
            c->us = gen__predict(ask, v);
            if (!choice || !choice->row)
                continue;
            if (v == choice->facts->index) {
                c->us = choice->us;
                c->measured = true;
            } else if (v == choice->row->runner_up && choice->row->runner_up_us > 0.0f) {
                /* As far behind the winner as it was at the row. */
                c->us = choice->us * choice->row->runner_up_us / choice->row->us;
                c->measured = true;
            }
        }
    }
    return count;
}

static void put_candidates(struct gen__text *out, const struct gen__ask *ask,
                           const struct gen__choice *choice, const struct candidate *candidates,
                           uint32_t count)
{
    const struct gen__pack *pack = &ask->library->pack;
    uint32_t i = 0;
    if (count && !candidates[0].reject)
        gen__text_add(out, "candidates, us:\n");
    for (; i < count && !candidates[i].reject; i++) {
        const struct candidate *c = &candidates[i];
        const char mark = choice && c->variant == choice->facts->index ? '*' : ' ';
        if (c->us > 0.0f)
            gen__text_add(out, "%c %12.3f %-9s %s\n", mark, (double)c->us,
                          c->measured ? "measured" : "estimate",
                          gen__variant_name(pack, c->variant));
        else
            gen__text_add(out, "%c %12s %-9s %s\n", mark, "-", "unknown",
                          gen__variant_name(pack, c->variant));
    }
    if (i < count)
        gen__text_add(out, "rejected:\n");
    for (; i < count; i++) {
        char text[256];
        gen__reject_text(ask, candidates[i].variant, candidates[i].reject, candidates[i].why, text,
                         sizeof(text));
        gen__text_add(out, "  %s %s\n", gen__variant_name(pack, candidates[i].variant), text);
    }
}

static uint32_t num_candidates(const struct gen__ask *ask)
{
    const gen_library *library = ask->library;
    uint32_t count = 0;
    for (uint32_t i = 0; ask->entry && i < ask->entry->num_groups; i++)
        count +=
            library->pack.groups[library->group_order[ask->entry->first_group + i]].num_variants;
    return count;
}

/* The rule that decides and every candidate. Sets no message, since the answer
 * may be a success's; false where there is no memory to list the candidates. */
static bool put_choice(struct gen__text *out, const struct gen__ask *ask,
                       struct gen__choice *choice, bool *found)
{
    *found = gen__choose(ask, choice);
    if (*found) {
        put_rule(out, ask, choice);
        put_hint(out, ask, choice);
    } else {
        gen__text_add(out, "rule      none: ");
        gen__unsupported_text(ask, out);
        gen__text_add(out, "\n");
    }
    uint32_t count = num_candidates(ask);
    if (!count)
        return true;
    struct candidate *candidates = calloc(count, sizeof(*candidates));
    if (!candidates)
        return false;
    count = collect(ask, *found ? choice : NULL, candidates);
    qsort(candidates, count, sizeof(*candidates), order_candidates);
    put_candidates(out, ask, *found ? choice : NULL, candidates, count);
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
    for (uint32_t i = 0; i < count; i++) {
        struct gen__ask part;
        struct gen__choice part_choice;
        char problem[512];
        bool found;
        if (gen__part_ask(ask, &parts[i], &part))
            continue; /* a family does not name problems that another refuses */
        gen__problem_format(part.family, part.problem, problem, sizeof(problem));
        gen__text_add(out, "launch %u  %s %s\n", parts[i].launch, part.family->name, problem);
        if (!put_choice(out, &part, &part_choice, &found))
            return false;
    }
    return true;
}

static bool explain(struct gen__text *out, const struct gen__ask *ask)
{
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
    struct gen__choice choice;
    bool found;
    return put_choice(out, ask, &choice, &found) && (!found || put_parts(out, ask, &choice));
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
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to list %u candidates",
                         num_candidates(&ask));
    if (needed)
        *needed = out.length;
    return GEN_OK;
}

static void log_explanation(const struct gen__ask *ask)
{
    struct gen__text measure = gen__text_over(NULL, 0);
    if (!explain(&measure, ask))
        return;
    char *text = malloc(measure.length + 1);
    if (!text)
        return;
    struct gen__text out = gen__text_over(text, measure.length + 1);
    if (explain(&out, ask)) {
        if (out.length && text[out.length - 1] == '\n')
            text[out.length - 1] = '\0';
        gen__log(GEN_LOG_EXPLAIN, text);
    }
    free(text);
}

/* The problem with the words that shape files have for its flags. */
static void put_problem(struct gen__text *line, const struct gen__ask *ask)
{
    char problem[512];
    gen__problem_format(ask->family, ask->problem, problem, sizeof(problem));
    gen__text_add(line, "%s%s%s", problem,
                  ask->problem->flags & GEN_SERIAL_LAUNCH ? " @serial" : "",
                  ask->problem->flags & GEN_BATCH_INVARIANT ? " @invariant" : "");
}

void gen__log_select(const struct gen__ask *ask, enum gen_status status, enum gen_why why,
                     const struct gen__choice *choice, const char *part_of)
{
    static const char *const names[] = {
#define NAME(name, text) #name,
        GEN_WHY_MAP(NAME)
#undef NAME
    };
    char text[1536];
    struct gen__text line = gen__text_over(text, sizeof(text));
    gen__text_add(&line, "select family=%s ", ask->family->name);
    if (ask->device->backend == GEN_BACKEND_CPU)
        gen__text_add(&line, "class=cpu ");
    else
        gen__text_add(&line, "class=sm%u_%usm ", ask->device->compute_capability,
                      ask->device->num_sms);
    gen__text_add(&line, "status=%s variant=%s ", gen_status_name(status),
                  choice ? gen__variant_name(&ask->library->pack, choice->facts->index) : "-");
    if (choice && choice->us > 0.0f && !ask->untimed)
        gen__text_add(&line, "us=%.3f ", (double)choice->us);
    else
        gen__text_add(&line, "us=- ");
    gen__text_add(&line, "why=%s ", status ? "-" : names[why]);
    if (choice && choice->row)
        gen__text_add(&line, "octaves=%.2f ", (double)choice->octaves);
    else
        gen__text_add(&line, "octaves=- ");
    gen__text_add(&line, "part_of=%s flags=%#x workspace_mib=%u problem=", part_of ? part_of : "-",
                  ask->problem->flags, ask->problem->max_workspace_mib);
    put_problem(&line, ask);
    if (gen__logs(ask->library, GEN_LOG_SELECT))
        gen__log(GEN_LOG_SELECT, text);
    if (!part_of && gen__logs(ask->library, GEN_LOG_EXPLAIN))
        log_explanation(ask);
}
