/*
 * The rules of selection: what can run, and which of it is preferred.
 *
 * Eligibility (gen__eligible) says what can run: the target's code runs on the device's compute
 * capability, shared memory suffices, the family has no objection, the workspace is allowed.
 * Preference only orders what is eligible; the first rule that finds something decides:
 *
 *   TABLE     the device's own class (compute capability and number of SMs): the row nearest in the
 *             sum of |log2| distances of the coordinates, if it is within the family's max_distance
 *             (and within an octave, where rows of the key name variants that the product lacks)
 *   NEAREST   the nearest measured class of the same compute capability, by the sum of |log2|
 *             ratios of SMs, bandwidth and L2, that has a row within max_distance. The first
 *             coordinate counts the work that there is to partition, so the row is looked up where
 *             as much of it falls to an SM as here
 *   MODEL     the least estimate of the family, over the variants of the best target that has an
 *             eligible one
 *   FALLBACK  the group's fallback, where the family has no estimate
 *
 * PTX is never preferred to machine code: no row names it where the product has
 * machine code for the row's class and key (format/rows.c drops such rows), and of
 * targets text is the last, which MODEL and FALLBACK reach where no variant of the
 * others is eligible. The driver would have to compile it when it is first used.
 *
 * Rows whose variant is not eligible are passed over. Nothing here allocates, locks, calls the
 * system or writes but to *choice; MODEL asks the family's fits() and predict() once for each
 * variant of the group, some microseconds for 240 variants.
 */
#include "family/gpus.h"
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

enum gen_status gen__ask_family(const gen_library *library, const gen_device *device,
                                const gen_problem *problem, const struct gen__family *family,
                                struct gen__ask *ask)
{
    if (problem->size != family->problem_size || problem->flags & ~GEN__PROBLEM_FLAGS)
        return wrong_problem(family, problem);
    ask->library = library;
    ask->device = device;
    ask->problem = problem;
    ask->family = family;
    ask->untimed = false;
    ask->key = (struct gen__key){{0}, {0}, false};
    const enum gen_status status = family->check(problem, &ask->key);
    if (!status)
        ask->entry = gen__key_entry_find(library, family, gen__key_codes(&ask->key));
    return status;
}

enum gen_status gen__ask(const gen_library *library, const gen_device *device,
                         const gen_problem *problem, struct gen__ask *ask)
{
    if (!library || !problem)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL",
                         library ? "problem" : "library");
    const enum gen_status status = gen__device_check(device);
    if (status)
        return status;
    const struct gen__family *family = gen__family_find(library, problem->family);
    if (!family)
        return unknown_family(problem);
    if (problem->size != family->problem_size &&
        gen__struct_fit(&ask->resized, family->problem_size, family->problem_least, problem,
                        problem->size, sizeof(ask->resized)))
        problem = &ask->resized.base;
    return gen__ask_family(library, device, problem, family, ask);
}

/* ---- eligibility ------------------------------------------------------- */

static bool workspace_allowed(const struct gen__ask *ask, const struct gen__facts *facts)
{
    gen_plan plan;
    memset(&plan, 0, sizeof(plan));
    ask->family->plan(ask->problem, ask->device, facts, &plan);
    return plan.workspace_bytes <= (uint64_t)ask->problem->max_workspace_mib << 20;
}

static bool shared_fits(const struct gen__ask *ask, const struct gen__facts *facts)
{
    return (uint64_t)facts->shared_dynamic + facts->shared_static <= ask->device->shared_per_block;
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
    if (!shared_fits(ask, facts))
        return GEN__REJECT_SHARED;
    const enum gen__reject reject = others_fit(ask, facts, &reason);
    if (why)
        *why = reason;
    return reject;
}

/* gen__eligible() but for the target, which all of a group have in common. */
static bool runs_here(const struct gen__ask *ask, const struct gen__facts *facts)
{
    const char *why;
    return shared_fits(ask, facts) && others_fit(ask, facts, &why) == GEN__FITS;
}

/* ---- tables ------------------------------------------------------------ */

/* gen__eligible() of a slot's variant. */
static bool slot_fits(const struct gen__ask *ask, const struct gen__class_rows *rows, uint32_t slot)
{
    return rows->facts[slot] && runs_here(ask, rows->facts[slot]);
}

/* The nearest row among those whose variant is eligible: each variant is asked once. */
static struct gen__nearest nearest_eligible(const struct gen__ask *ask,
                                            const struct gen__class_rows *rows,
                                            const struct gen__position *at)
{
    uint32_t refused[GEN__MAX_SLOTS];
    for (uint32_t slot = 0; slot < rows->num_slots; slot++)
        refused[slot] = slot_fits(ask, rows, slot) ? 0 : UINT32_MAX;
    return gen__nearest_rows(rows, at, refused);
}

/* a / b or b / a, whichever is at least 1. What is not known of the device counts as equal. */
static double class_ratio(uint32_t device, uint32_t measured)
{
    if (!device)
        return 1.0;
    return device > measured ? (double)device / measured : (double)measured / device;
}

/* The product of the ratios of SMs, bandwidth and L2 orders classes as the sum of their |log2|
 * does. */
static double class_distance(const gen_device *device, const struct gen__class_rows *rows)
{
    return class_ratio(device->num_sms, rows->num_sms) *
           class_ratio(device->memory_gbps, rows->memory_gbps) *
           class_ratio(device->l2_bytes, rows->l2_bytes);
}

static bool is_own_class(const gen_device *device, const struct gen__class_rows *rows)
{
    return rows->compute_capability == device->compute_capability &&
           rows->num_sms == device->num_sms;
}

/* What makes as much work fall to an SM of the device as to one of the class. */
static float per_sm_scale(const gen_device *device, const struct gen__class_rows *rows)
{
    return (float)((double)rows->num_sms * (1.0 / device->num_sms));
}

/* A class's time on the device: by bandwidth. */
static float by_bandwidth(float us, const gen_device *device, const struct gen__class_rows *rows)
{
    if (!device->memory_gbps || device->memory_gbps == rows->memory_gbps)
        return us;
    return us * ((float)rows->memory_gbps / (float)device->memory_gbps);
}

bool gen__lacks_rows(const struct gen__ask *ask)
{
    const gen_library *library = ask->library;
    bool lacks = false;
    for (uint32_t i = 0; i < ask->entry->num_groups; i++) {
        const struct gen_pack_group *group =
            &library->pack.groups[library->group_order[ask->entry->first_group + i]];
        lacks |= group->lacks_rows && gen__target_runs(&library->pack.targets[group->target],
                                                       ask->device->compute_capability);
    }
    return lacks;
}

/* May a row decide at this distance? Where the product lacks the variants of other rows, the
 * nearest of those that are left may be far from what was measured. */
static bool reaches(const struct gen__ask *ask, float octaves)
{
    return octaves <= ask->family->max_distance &&
           (octaves <= GEN__REACH_WITH_HOLES || !gen__lacks_rows(ask));
}

/* The nearest eligible row of a class, if it is within the family's max_distance. The first
 * coordinate is multiplied by `scale` where the row is looked up, not where its time is. */
static bool choose_row(const struct gen__ask *ask, const struct gen__class_rows *rows, float scale,
                       struct gen__choice *choice)
{
    struct gen__position at = gen__position_of(ask->key.counts, 1.0f);
    struct gen__nearest nearest = gen__nearest_rows(rows, &at, NULL);
    if (nearest.row == GEN__NO_ROW)
        return false;
    const float us = ask->untimed ? 0.0f : gen__rows_time(rows, &at, &nearest);
    if (scale != 1.0f) {
        at = gen__position_of(ask->key.counts, scale);
        nearest = gen__nearest_rows(rows, &at, NULL);
    }
    if (nearest.row == GEN__NO_ROW || !slot_fits(ask, rows, rows->slots[nearest.row])) {
        /* Often the second fits. */
        nearest.row = nearest.second;
        nearest.distance = nearest.second_distance;
        if (nearest.row == GEN__NO_ROW || !slot_fits(ask, rows, rows->slots[nearest.row]))
            nearest = nearest_eligible(ask, rows, &at);
    }
    const float octaves = (float)nearest.distance / GEN__OCTAVE;
    if (nearest.row == GEN__NO_ROW || !reaches(ask, octaves))
        return false;
    choice->facts = rows->facts[rows->slots[nearest.row]];
    choice->rows = rows;
    choice->row = &rows->rows[nearest.row];
    choice->octaves = octaves;
    choice->us = by_bandwidth(us, ask->device, rows);
    return true;
}

static bool choose_own(const struct gen__ask *ask, struct gen__choice *choice)
{
    const struct gen__class_rows *rows = ask->entry->classes;
    while (rows && !is_own_class(ask->device, rows))
        rows = rows->next;
    choice->why = GEN_WHY_TABLE;
    return rows && choose_row(ask, rows, 1.0f, choice);
}

/* The nearest class of the device's compute capability behind `last` (NULL: of all), which is at
 * *distance; the device's own class aside. Of equally near ones the one with fewer SMs counts. */
static const struct gen__class_rows *
next_class(const struct gen__ask *ask, const struct gen__class_rows *last, double *distance)
{
    const double last_distance = *distance;
    const struct gen__class_rows *best = NULL;
    bool behind = false; /* in the list, of `last` */
    for (const struct gen__class_rows *rows = ask->entry->classes; rows; rows = rows->next) {
        behind |= rows == last;
        if (rows == last || rows->compute_capability != ask->device->compute_capability ||
            rows->num_sms == ask->device->num_sms)
            continue;
        const double d = class_distance(ask->device, rows);
        if (last && (d < last_distance || (d == last_distance && !behind)))
            continue;
        if (!best || d < *distance) {
            best = rows;
            *distance = d;
        }
    }
    return best;
}

/* Classes in the order of their distance until one has an eligible row that is near enough. */
static bool choose_nearest(const struct gen__ask *ask, struct gen__choice *choice)
{
    const struct gen__class_rows *rows = NULL;
    double distance = 0.0;
    choice->why = GEN_WHY_NEAREST;
    while ((rows = next_class(ask, rows, &distance)) != NULL)
        if (choose_row(ask, rows, per_sm_scale(ask->device, rows), choice))
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
    choice->rows = NULL;
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
    return ask->entry && (choose_own(ask, choice) || choose_nearest(ask, choice) ||
                          choose_unmeasured(ask, choice));
}
