/*
 * gen_select()'s short way of the rule MODEL: the least estimate of a group's few variants,
 * with the family's fits() and predict() inline. Its steps are those of choose.c.
 */
#ifndef GEN_SHORT_MODEL_H
#define GEN_SHORT_MODEL_H

#include "library.h"

/* Where no class of the device's compute capability has rows. False where that has to be asked at
 * length: nothing fits, or there is no estimate. */
__attribute__((always_inline)) static inline bool
gen__short_model(const struct gen__family *family, const gen_library *library,
                 const gen_device *device, const gen_problem *problem,
                 const struct gen__entry *entry, const struct gen__facts **facts, float *us)
{
    if (!family->predict || problem->max_workspace_mib)
        return false;
    const struct gen__pack *pack = &library->pack;
    const uint32_t *order = library->group_order + entry->first_group;
    float least = INFINITY;
    *facts = NULL;
    for (uint32_t i = 0; i < entry->num_groups; i++) {
        const struct gen_pack_group *group = &pack->groups[order[i]];
        if (!gen__target_runs(&pack->targets[group->target], device->compute_capability))
            continue;
        const struct gen__variant *variant = &library->variants[group->first_variant];
        for (uint32_t left = group->num_variants; left > 0; left--, variant++) {
            const struct gen__facts *const of = &variant->facts;
            if (of->shared_dynamic + of->shared_static > device->shared_per_block ||
                family->fits(problem, device, of))
                continue;
            const float estimate = family->predict(problem, device, of);
            if (group->num_variants == 1) {
                if (__builtin_expect(!(estimate > 0.0f && estimate < INFINITY), 0))
                    return false;
                *facts = of;
                *us = estimate;
                return true;
            }
            if (estimate > 0.0f && estimate < least) { /* no NaN */
                least = estimate;
                *facts = of;
            }
        }
        /* Of the best target that has a variant, or by its fallback. */
        break;
    }
    *us = least;
    return *facts != NULL;
}

#endif /* GEN_SHORT_MODEL_H */
