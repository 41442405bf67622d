/*
 * The rules of selection: what can run, and which of it is preferred.
 *
 * Two layers. Eligibility (gen__eligible) says what can run: the target's code
 * runs on the device's compute capability, shared memory suffices, the family
 * has no objection, the workspace is allowed. Preference only orders what is
 * eligible; the first rule that finds something decides:
 *
 *   TABLE     the device's own class (compute capability and number of SMs):
 *             the row nearest in the sum of |log2| distances of the coordinates,
 *             if the family lets it reach so far
 *   NEAREST   the nearest measured class of the same compute capability, by
 *             the sum of |log2| ratios of SMs, bandwidth and L2, of which a row
 *             reaches. The first coordinate counts the work that there is to
 *             share out, so the row is looked up where as much of it falls to
 *             an SM as here
 *   MODEL     the least estimate of the family, over the variants of the best
 *             target that has an eligible one
 *   FALLBACK  the group's fallback, where the family has no estimate
 *
 * PTX is never preferred to machine code: no row names it where the product has
 * machine code for the row's class and key (product/table.c drops such rows), and of
 * targets text is the last, which MODEL and FALLBACK reach where no variant of the
 * others is eligible. The driver would have to compile it when it is first used.
 *
 * The launches that a family leaves to others are chosen by the same rules
 * (parts.c).
 *
 * Rows whose variant is not eligible are passed over. Nothing here allocates,
 * locks, calls the system or writes but to *plan; the rules TABLE and NEAREST
 * cost tens of nanoseconds, MODEL the family's fits() and predict() once per
 * variant of the group (some 4 us for 240 variants of la_decode; attn_fwd, whose
 * rows reach to near problems alone, has few): a GPU that nobody has tuned on
 * wants its plans kept, or a table.
 */
#include "select/gpu_class.h"
#include "family/gpus.h"
#include "product/rows.h"
#include "select/select.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the question ------------------------------------------------------ */

static enum gen_status unknown_family(const gen_problem *problem)
{
    char known[256] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < gen__num_families && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s (%#010x)",
                                   i ? ", " : "", gen__families[i]->name, gen__families[i]->tag);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "problem->family is %#010x, this runtime knows %s", problem->family, known);
}

static enum gen_status wrong_problem(const struct gen__family *family, const gen_problem *problem)
{
    if (problem->size != family->problem_size)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "problem->size is %u, expected %u (sizeof(gen_%s_problem))", problem->size,
                         family->problem_size, family->name);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "problem->flags is %#x, allowed are the bits of enum gen_problem_flag (%#x)",
                     problem->flags, GEN__PROBLEM_FLAGS);
}

enum gen_status gen__ask(const gen_library *library, const gen_device *device,
                         const gen_problem *problem, struct gen__ask *ask)
{
    if (!library || !problem)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL",
                         library ? "problem" : "library");
    enum gen_status status = gen__device_check(device);
    if (status)
        return status;
    const struct gen__family *family = gen__family_by_tag(problem->family);
    if (!family)
        return unknown_family(problem);
    if (problem->size != family->problem_size || problem->flags & ~GEN__PROBLEM_FLAGS)
        return wrong_problem(family, problem);
    ask->library = library;
    ask->device = device;
    ask->problem = problem;
    ask->family = family;
    memset(&ask->key, 0, sizeof(ask->key));
    status = family->check(problem, &ask->key);
    if (status)
        return status;
    ask->entry = gen__entry_find(library, family, gen__key_codes(&ask->key));
    return GEN_OK;
}

/* ---- eligibility ------------------------------------------------------- */

static bool workspace_allowed(const struct gen__ask *ask, const struct gen__facts *facts)
{
    gen_plan plan;
    memset(&plan, 0, sizeof(plan));
    ask->family->plan(ask->problem, ask->device, facts, &plan);
    return plan.workspace_bytes <= (uint64_t)ask->problem->max_workspace_mib << 20;
}

/* Everything but target and shared memory. */
static enum gen__reject others_fit(const struct gen__ask *ask, const struct gen__facts *facts,
                                   const char **why)
{
    const char *reason = ask->family->fits(ask->problem, ask->device, facts);
    if (reason) {
        *why = reason;
        return GEN__REJECT_FAMILY;
    }
    if (ask->problem->max_workspace_mib && !workspace_allowed(ask, facts))
        return GEN__REJECT_WORKSPACE;
    return GEN__FITS;
}

enum gen__reject gen__eligible(const struct gen__ask *ask, uint32_t variant, const char **why)
{
    const char *reason = NULL;
    if (!gen__target_runs(gen__variant_target(&ask->library->pack, variant),
                          ask->device->compute_capability))
        return GEN__REJECT_TARGET;
    const struct gen__facts *facts = gen__facts_of(ask->library, variant);
    if ((uint64_t)facts->shared_dynamic + facts->shared_static > ask->device->shared_per_block)
        return GEN__REJECT_SHARED;
    const enum gen__reject reject = others_fit(ask, facts, &reason);
    if (why)
        *why = reason;
    return reject;
}

/* Everything but target, which the row's `shared` tells, too. */
static bool row_fits(const struct gen__ask *ask, const struct gen__row *row)
{
    const char *why;
    return row->shared <= ask->device->shared_per_block &&
           others_fit(ask, row->facts, &why) == GEN__FITS;
}

/* ---- tables ------------------------------------------------------------ */

/* The next eligible rows by distance, where the nearest is not eligible or
 * there are several coordinates. */
static const struct gen__row *search_rows(const struct gen__ask *ask,
                                          const struct gen__range *range, float scale)
{
    struct gen__probe probe;
    gen__probe_set(&probe, ask->library, range, ask->family->num_coords, ask->key.counts, scale);
    uint32_t row = GEN__NO_ROW;
    float distance = 0.0f;
    do {
        row = gen__rows_next(&probe, row, &distance);
        if (row == GEN__NO_ROW)
            return NULL;
    } while (!row_fits(ask, &probe.rows[row]));
    return &probe.rows[row];
}

/* The time by the rows around, and the nearest row. */
static float time_of_many(const struct gen__ask *ask, const struct gen__range *range,
                          const struct gen__row **nearest)
{
    struct gen__probe probe;
    uint32_t row;
    gen__probe_set(&probe, ask->library, range, ask->family->num_coords, ask->key.counts, 1.0f);
    const float us = gen__rows_time(&probe, &row);
    *nearest = &probe.rows[row];
    return us;
}

/* The nearest eligible row of a range, if it reaches to the problem. The first coordinate is
 * multiplied by `scale` where the row is looked up, not where its time is. */
static bool choose_row(const struct gen__ask *ask, const struct gen__range *range, float scale,
                       struct gen__choice *choice)
{
    const gen_library *library = ask->library;
    const struct gen__row *row = NULL;
    float us;
    if (ask->family->num_coords == 1) {
        const float x = ask->key.counts[0];
        const struct gen__spot *spot = gen__spot_at(range, x * scale);
        row = library->rows + range->first_row + spot->row;
        us = gen__spot_time(gen__spot_at(range, x), x);
    } else {
        us = time_of_many(ask, range, &row);
        row = scale == 1.0f ? row : NULL;
    }
    if (!row || !row_fits(ask, row))
        row = search_rows(ask, range, scale);
    if (!row || !gen__row_reaches(row, ask->family, ask->key.counts, ask->key.counts[0] * scale))
        return false;
    choice->facts = row->facts;
    choice->range = range;
    choice->row = row;
    choice->scale = scale;
    choice->us = gen__by_bandwidth(us, ask->device, range);
    return true;
}

/* The same behind `last` (NULL: from the first), which is at *distance; the
 * device's own class aside. What is not known of the device counts as equal. */
static const struct gen__range *next_class(const struct gen__ask *ask,
                                           const struct gen__range *last, double *distance)
{
    const gen_device *device = ask->device;
    const double last_distance = *distance;
    const struct gen__range *best = NULL;
    for (uint32_t i = 0; i < ask->entry->num_ranges; i++) {
        const struct gen__range *range = &ask->entry->ranges[i];
        if (range->compute_capability != device->compute_capability ||
            range->num_sms == device->num_sms)
            continue;
        struct gen__features features = gen__features_of(device);
        features.gbps = device->memory_gbps ? features.gbps : range->gbps;
        features.l2_bytes = device->l2_bytes ? features.l2_bytes : range->l2_bytes;
        const double d = gen__class_distance(features, range);
        if (last && (d < last_distance || (d == last_distance && range <= last)))
            continue;
        if (!best || d < *distance) {
            best = range;
            *distance = d;
        }
    }
    return best;
}

/* Classes in the order of their distance until one has an eligible row that reaches. */
static bool choose_nearest(const struct gen__ask *ask, struct gen__choice *choice)
{
    const struct gen__range *range = NULL;
    double distance = 0.0;
    choice->why = GEN_WHY_NEAREST;
    while ((range = next_class(ask, range, &distance)) != NULL)
        if (choose_row(ask, range, gen__per_sm_scale(gen__features_of(ask->device), range), choice))
            return true;
    return false;
}

/* ---- model and fallback ------------------------------------------------ */

float gen__predict(const struct gen__ask *ask, uint32_t variant)
{
    if (!ask->family->predict)
        return 0.0f;
    const float us =
        ask->family->predict(ask->problem, ask->device, gen__facts_of(ask->library, variant));
    return isfinite(us) && us > 0.0f ? us : 0.0f;
}

/* gen__eligible() but for the target, which all of a group have in common. */
static inline bool runs_here(const struct gen__ask *ask, const struct gen__facts *facts)
{
    const char *why;
    if (facts->shared_dynamic + facts->shared_static > ask->device->shared_per_block)
        return false;
    return others_fit(ask, facts, &why) == GEN__FITS;
}

/* The best of one group; false where nothing in it is eligible. */
static bool choose_in_group(const struct gen__ask *ask, uint32_t group_index,
                            struct gen__choice *choice)
{
    const struct gen__pack *pack = &ask->library->pack;
    const struct gen_pack_group *group = &pack->groups[group_index];
    if (!gen__target_runs(&pack->targets[group->target], ask->device->compute_capability))
        return false;
    const uint32_t end = group->first_variant + group->num_variants;
    uint32_t first = end; /* eligible */
    uint32_t best = end;
    choice->us = 0.0f;
    choice->why = GEN_WHY_MODEL;
    for (uint32_t v = group->first_variant; v < end; v++) {
        if (!runs_here(ask, gen__facts_of(ask->library, v)))
            continue;
        if (first == end)
            first = v;
        const float us = gen__predict(ask, v);
        if (us > 0.0f && (choice->us == 0.0f || us < choice->us)) {
            choice->us = us;
            best = v;
        }
    }
    if (first == end)
        return false;
    if (choice->us == 0.0f) {
        const uint32_t fallback = group->fallback_variant;
        choice->why = GEN_WHY_FALLBACK;
        best = gen__eligible(ask, fallback, NULL) ? first : fallback;
    }
    choice->facts = gen__facts_of(ask->library, best);
    choice->range = NULL;
    choice->row = NULL;
    return true;
}

static bool choose_unmeasured(const struct gen__ask *ask, struct gen__choice *choice)
{
    const uint32_t *order = ask->library->group_order + ask->entry->first_group;
    for (uint32_t i = 0; i < ask->entry->num_groups; i++)
        if (choose_in_group(ask, order[i], choice))
            return true;
    return false;
}

bool gen__choose(const struct gen__ask *ask, struct gen__choice *choice)
{
    if (!ask->entry)
        return false;
    const struct gen__range *range = gen__own_class(ask->entry, ask->device);
    choice->why = GEN_WHY_TABLE;
    return (range && choose_row(ask, range, 1.0f, choice)) || choose_nearest(ask, choice) ||
           choose_unmeasured(ask, choice);
}

float gen__choice_distance(const struct gen__ask *ask, const struct gen__choice *choice)
{
    return gen__row_distance(choice->row, ask->family->num_coords, ask->key.counts,
                             ask->key.counts[0] * choice->scale);
}
