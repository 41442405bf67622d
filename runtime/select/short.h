/*
 * gen_select()'s short way: the rules TABLE and NEAREST where the nearest row is
 * found by its spot or grid, and MODEL (short_model.h): nearly every selection.
 * Its steps are those of the rules at length (choose.c), to which everything else
 * is left: false.
 *
 * Inline, for a family's file to compile with its own functions (GEN__SELECT_HERE):
 * that spares the calls, the registers they take and what is known beforehand.
 * For other families select.c does, by what the family's struct says.
 */
#ifndef GEN_SHORT_H
#define GEN_SHORT_H

#include "select/gpu_class.h"
#include "family/gpus.h"
#include "product/grid_find.h"
#include "select/short_model.h"

#define GEN__INLINE __attribute__((always_inline)) static inline

/* ---- the plan ---------------------------------------------------------- */

/* Plans are cleared and copied in vectors, written out: gcc turns a memset, memcpy or loop of this
 * size into `rep stos`, which takes longer than all the rest of a plan. */
typedef uint64_t gen__words __attribute__((vector_size(16)));

/* All that a family fills. */
GEN__INLINE void gen__clear_rest(gen_plan *plan)
{
    const gen__words zero = {0, 0};
    const size_t first = offsetof(gen_plan, launch);
    _Static_assert((sizeof(*plan) - offsetof(gen_plan, launch)) % sizeof(zero) == 8,
                   "whole vectors and a half");
    unsigned char *at = (unsigned char *)plan;
    memcpy(at + first, &zero, 8);
#pragma GCC unroll 64
    for (size_t i = first + 8; i < sizeof(*plan); i += sizeof(zero))
        memcpy(at + i, &zero, sizeof(zero));
}

GEN__INLINE void gen__copy_plan(gen_plan *to, const gen_plan *from)
{
    _Static_assert(sizeof(*to) % sizeof(gen__words) == 0, "whole vectors");
#pragma GCC unroll 64
    for (size_t i = 0; i < sizeof(*to); i += sizeof(gen__words)) {
        gen__words words;
        memcpy(&words, (const unsigned char *)from + i, sizeof(words));
        memcpy((unsigned char *)to + i, &words, sizeof(words));
    }
}

GEN__INLINE void gen__make_plan(const gen_library *library, const gen_device *device,
                                const gen_problem *problem, const struct gen__family *family,
                                const struct gen__facts *facts, enum gen_why why, float us,
                                gen_plan *plan)
{
    plan->size = sizeof(*plan);
    plan->family = family->tag;
    plan->backend = device->backend;
    plan->why = (uint32_t)why;
    plan->num_launches = 0;
    plan->predicted_us = us;
    plan->workspace_bytes = 0;
    plan->library_digest = library->pack.digest;
    gen__clear_rest(plan);
    family->plan(problem, device, facts, plan);
}

/* ---- the choice -------------------------------------------------------- */

struct gen__found {
    const struct gen__facts *facts;
    float us;
    enum gen_why why;
};

/* Can the spot's or row's variant run the problem? False also where that has to be asked
 * at length. */
GEN__INLINE bool gen__spot_fits(const struct gen__spot *spot, const struct gen__family *family,
                                const gen_problem *problem, const gen_device *device)
{
    return spot->shared <= device->shared_per_block && problem->max_workspace_mib == 0 &&
           (spot->fits_all || !family->fits(problem, device, spot->facts));
}

GEN__INLINE bool gen__row_fits(const struct gen__row *row, const struct gen__family *family,
                               const gen_problem *problem, const gen_device *device)
{
    return row->shared <= device->shared_per_block && problem->max_workspace_mib == 0 &&
           (gen__row_fits_all(row) || !family->fits(problem, device, row->facts));
}

/* The nearest row that fits where the nearest two do not; NULL where there is none, or that is to
 * be asked at length. `first` is the first coordinate to look it up by. */
const struct gen__row *gen__short_other(const struct gen__range *range,
                                        const struct gen__family *family,
                                        const gen_problem *problem, const gen_device *device,
                                        const float *counts, float first);

/* By several coordinates, of the device's own class or of another; NULL where that has to be asked
 * at length. */
GEN__INLINE const struct gen__row *gen__short_row(const struct gen__range *range,
                                                  const struct gen__family *family,
                                                  const gen_problem *problem,
                                                  const gen_device *device, const float *counts,
                                                  float first, struct gen__found *found)
{
    if (!range->place.at)
        return NULL;
    const struct gen__row *next;
    const struct gen__row *row =
        gen__grid_find(range, family->num_coords, counts, &found->us, &next);
    if (!row)
        return NULL;
    if (first != counts[0]) {
        row = gen__grid_find_scaled(range, family->num_coords, counts, first);
        next = NULL;
    }
    if (__builtin_expect(!row || !gen__row_fits(row, family, problem, device), 0)) {
        if (next && gen__row_fits(next, family, problem, device))
            row = next;
        else
            row = gen__short_other(range, family, problem, device, counts, first);
        if (!row)
            return NULL;
    }
    found->facts = row->facts;
    return row;
}

/* By the one coordinate. */
GEN__INLINE bool gen__short_spot(const struct gen__range *range, const struct gen__family *family,
                                 const gen_problem *problem, const gen_device *device, float x,
                                 float at, struct gen__found *found)
{
    const struct gen__spot *spot = gen__spot_at(range, at);
    if (!gen__spot_fits(spot, family, problem, device))
        return false;
    found->facts = spot->facts;
    if (found->why != GEN_WHY_TABLE)
        spot = gen__spot_at(range, x);
    found->us = gen__spot_time(spot, x);
    return true;
}

/* By the rule MODEL. */
GEN__INLINE bool gen__short_estimate(const struct gen__family *family, const gen_library *library,
                                     const gen_device *device, const gen_problem *problem,
                                     const struct gen__entry *entry, struct gen__found *found)
{
    found->why = GEN_WHY_MODEL;
    return gen__short_model(family, library, device, problem, entry, &found->facts, &found->us);
}

/* For a device that was checked, and a problem whose size and flags were. */
GEN__INLINE bool gen__short_choose(const struct gen__family *family, const gen_library *library,
                                   const gen_device *device, const gen_problem *problem,
                                   struct gen__found *found)
{
    struct gen__key key = {{0}, {0}, false}; /* where check() is inline it stays in registers */
    if (__builtin_expect(family->check(problem, &key) != GEN_OK, 0))
        return false;
    const struct gen__entry *entry = gen__entry_find(library, family, gen__key_codes(&key));
    if (__builtin_expect(!entry || key.empty, 0))
        return false;
    float at = key.counts[0];
    const struct gen__range *range = gen__own_class(entry, device);
    found->why = GEN_WHY_TABLE;
    if (!range) {
        const struct gen__features features = gen__features_of(device);
        if (!device->num_sms || !device->memory_gbps || !device->l2_bytes ||
            !gen__is_capability(device->compute_capability))
            return false;
        range = gen__nearest_class(entry, device, features);
        if (!range)
            return gen__short_estimate(family, library, device, problem, entry, found);
        at *= gen__per_sm_scale(features, range);
        found->why = GEN_WHY_NEAREST;
    }
    if (family->num_coords == 1) {
        if (!gen__short_spot(range, family, problem, device, key.counts[0], at, found))
            return false;
    } else {
        const struct gen__row *row =
            gen__short_row(range, family, problem, device, key.counts, at, found);
        if (!row)
            return false;
        if (!gen__row_reaches(row, family, key.counts, at))
            return entry->num_ranges == 1 &&
                   gen__short_estimate(family, library, device, problem, entry, found);
    }
    found->us = gen__by_bandwidth(found->us, device, range);
    return true;
}

/* ---- plans and parts --------------------------------------------------- */

/* A plan's launches that are left to others, in the short way or by every rule; false where one
 * cannot be done. */
bool gen__short_parts(const gen_library *library, const gen_device *device,
                      const struct gen__part *parts, uint32_t count, gen_plan *plan);

/* The part of another family's plan. */
GEN__INLINE bool gen__short_launch(const struct gen__family *family, const gen_library *library,
                                   const gen_device *device, const gen_problem *problem,
                                   gen_plan_launch *launch)
{
    struct gen__found found;
    if (!gen__short_choose(family, library, device, problem, &found))
        return false;
    gen_plan plan;
    plan.num_launches = 0;
    plan.workspace_bytes = 0;
    gen__clear_rest(&plan);
    family->plan(problem, device, found.facts, &plan);
    if (plan.num_launches != 1 || plan.workspace_bytes)
        return false;
    *launch = plan.launch[0];
    return true;
}

GEN__INLINE bool gen__short_select(const struct gen__family *family, const gen_library *library,
                                   const gen_device *device, const gen_problem *problem,
                                   gen_plan *plan)
{
    struct gen__found found;
    if (!gen__short_choose(family, library, device, problem, &found))
        return false;
    if (!family->parts) {
        gen__make_plan(library, device, problem, family, found.facts, found.why, found.us, plan);
        return true;
    }
    /* Left as it was where a part is not to be had. Copied now, it waits for nothing; a copy of the
     * finished plan would wait for all that was just written. */
    gen_plan before;
    gen__copy_plan(&before, plan);
    gen__make_plan(library, device, problem, family, found.facts, found.why, found.us, plan);
    struct gen__part parts[GEN_PLAN_MAX_LAUNCHES];
    const uint32_t count = family->parts(problem, device, found.facts, plan, parts);
    if (__builtin_expect(!gen__short_parts(library, device, parts, count, plan), 0)) {
        gen__copy_plan(plan, &before);
        return false;
    }
    return true;
}

/* By every rule. */
enum gen_status gen__select_at_length(const gen_library *library, const gen_device *device,
                                      const gen_problem *problem, gen_plan *plan);

/* A family's own, for its struct: `.select = select_here, .launch = launch_here`. The second is for
 * families that others leave launches to. */
#define GEN__SELECT_HERE(name)                                                              \
    __attribute__((flatten)) static enum gen_status select_here(                            \
        const gen_library *library, const gen_device *device, const gen_problem *problem,   \
        gen_plan *restrict plan)                                                            \
    {                                                                                       \
        if (__builtin_expect(                                                               \
                gen__short_select(&gen__family_##name, library, device, problem, plan), 1)) \
            return GEN_OK;                                                                  \
        return gen__select_at_length(library, device, problem, plan);                       \
    }
#define GEN__LAUNCH_HERE(name)                                                            \
    __attribute__((flatten)) static bool launch_here(                                     \
        const gen_library *library, const gen_device *device, const gen_problem *problem, \
        gen_plan_launch *launch)                                                          \
    {                                                                                     \
        return gen__short_launch(&gen__family_##name, library, device, problem, launch);  \
    }

#endif /* GEN_SHORT_H */
