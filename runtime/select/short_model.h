/*
 * gen_select()'s short way of the rule MODEL: the least estimate of a group's few variants,
 * with the family's fits() and predict() inline. Its steps are those of choose.c.
 */
#ifndef GEN_SHORT_MODEL_H
#define GEN_SHORT_MODEL_H

#include "product/library.h"

/* The best target's variants; none where no target runs on the device. */
__attribute__((always_inline)) static inline struct gen__group
gen__best_group(const gen_library *library, const struct gen__entry *entry,
                const gen_device *device)
{
    const uint32_t *order = library->group_order + entry->first_group;
    if (__builtin_expect(entry->best.compute_capability == device->compute_capability, 1))
        return entry->best;
    for (uint32_t i = 0; i < entry->num_groups; i++) {
        const struct gen_pack_group *group = &library->pack.groups[order[i]];
        if (gen__target_runs(&library->pack.targets[group->target], device->compute_capability))
            return gen__group_of(library, order[i]);
    }
    return (struct gen__group){NULL, 0, 0};
}

/* Its estimate; 0 where it cannot run the problem, or there is none. */
__attribute__((always_inline)) static inline float gen__estimate(const struct gen__family *family,
                                                                 const gen_device *device,
                                                                 const gen_problem *problem,
                                                                 const struct gen__facts *facts)
{
    if (facts->shared_dynamic + facts->shared_static > device->shared_per_block ||
        family->fits(problem, device, facts))
        return 0.0f;
    const float us = family->predict(problem, device, facts);
    return us > 0.0f && us < INFINITY ? us : 0.0f;
}

/* Where no class of the device's compute capability has rows, or none that reach. False where that
 * has to be asked at length: of the best target nothing fits, or nothing has an estimate. */
__attribute__((always_inline)) static inline bool
gen__short_model(const struct gen__family *family, const gen_library *library,
                 const gen_device *device, const gen_problem *problem,
                 const struct gen__entry *entry, const struct gen__facts **facts, float *us)
{
    if (!family->predict || problem->max_workspace_mib)
        return false;
    const struct gen__group group = gen__best_group(library, entry, device);
    if (!group.num_variants)
        return false;
    *facts = &group.variants->facts;
    *us = gen__estimate(family, device, problem, *facts);
    /* By a branch, so that nothing waits for the estimate of an only one. */
    if (__builtin_expect(group.num_variants == 1, 1))
        return *us > 0.0f;
    for (uint32_t i = 1; i < group.num_variants; i++) {
        const struct gen__facts *const other = &group.variants[i].facts;
        const float estimate = gen__estimate(family, device, problem, other);
        if (estimate > 0.0f && (*us == 0.0f || estimate < *us)) {
            *us = estimate;
            *facts = other;
        }
    }
    return *us > 0.0f;
}

#endif /* GEN_SHORT_MODEL_H */
