/*
 * gen_select(): which variant for this problem on this device, as a plan.
 *
 * The rules are those of choose.c. gen_select() has a short way for nearly every
 * selection, some 300 instructions or, with several coordinates, 450, and leaves
 * everything else to them. Nothing
 * here allocates, locks, calls the system or writes but to *plan.
 */
#include "classes.h"
#include "grid.h"
#include "rows.h"
#include "select.h"

#include <string.h>

/* ---- the plan ---------------------------------------------------------- */

/* All that a family fills. In vectors, written out: gcc turns a memset or loop
 * of this size into `rep stos`, which takes longer than all the rest of a plan. */
static inline void clear_rest(gen_plan *plan)
{
    typedef uint64_t words __attribute__((vector_size(16)));
    const words zero = {0, 0};
    const size_t first = offsetof(gen_plan, launch);
    _Static_assert((sizeof(*plan) - offsetof(gen_plan, launch)) % sizeof(zero) == 8,
                   "whole vectors and a half");
    unsigned char *at = (unsigned char *)plan;
    memcpy(at + first, &zero, 8);
#pragma GCC unroll 64
    for (size_t i = first + 8; i < sizeof(*plan); i += sizeof(zero))
        memcpy(at + i, &zero, sizeof(zero));
}

static inline void make_plan(const gen_library *library, const gen_device *device,
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
    clear_rest(plan);
    family->plan(problem, device, facts, plan);
}

static void make_plan_for(const struct gen__ask *ask, const struct gen__facts *facts,
                          enum gen_why why, float us, gen_plan *plan)
{
    make_plan(ask->library, ask->device, ask->problem, ask->family, facts, why, us, plan);
}

/* The same with the launches that the family leaves to others (parts.c); *plan is
 * left alone where one of them cannot be done. */
__attribute__((noinline)) static enum gen_status finish_plan(const struct gen__ask *ask,
                                                             const struct gen__facts *facts,
                                                             enum gen_why why, float us,
                                                             gen_plan *plan)
{
    if (!ask->family->parts || ask->key.empty) {
        make_plan_for(ask, facts, why, us, plan);
        return GEN_OK;
    }
    gen_plan whole;
    make_plan_for(ask, facts, why, us, &whole);
    const enum gen_status status = gen__add_parts(ask, facts, &whole);
    if (!status)
        *plan = whole;
    return status;
}

/* ---- gen_select() ------------------------------------------------------ */

/* By every rule. */
__attribute__((noinline)) static enum gen_status select_at_length(const gen_library *library,
                                                                  const gen_device *device,
                                                                  const gen_problem *problem,
                                                                  gen_plan *plan)
{
    struct gen__ask ask;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "plan is NULL");
    if (library->log & GEN__LOG_SELECT)
        gen__log_select(&ask);
    if (device->backend == GEN_BACKEND_CPU) {
        make_plan_for(&ask, NULL, GEN_WHY_REFERENCE, 0.0f, plan);
        return GEN_OK;
    }
    if (ask.key.empty) {
        /* Needs no kernel, so whatever the product holds. */
        make_plan_for(&ask, NULL, GEN_WHY_FALLBACK, 0.0f, plan);
        plan->num_launches = 0;
        return GEN_OK;
    }
    struct gen__choice choice;
    if (!gen__choose(&ask, &choice))
        return gen__unsupported(&ask);
    return finish_plan(&ask, choice.facts, choice.why, choice.us, plan);
}

/* Can the spot's or row's variant run the problem? False also where that has to be asked
 * at length. */
static inline bool spot_fits(const struct gen__spot *spot, const struct gen__family *family,
                             const gen_problem *problem, const gen_device *device)
{
    return spot->shared <= device->shared_per_block && problem->max_workspace_mib == 0 &&
           (spot->fits_all || !family->fits(problem, device, spot->facts));
}

static inline bool row_fits(const struct gen__row *row, const struct gen__family *family,
                            const gen_problem *problem, const gen_device *device)
{
    return row->shared <= device->shared_per_block && problem->max_workspace_mib == 0 &&
           (gen__row_fits_all(row) || !family->fits(problem, device, row->facts));
}

/*
 * The rules TABLE and NEAREST where the nearest row is found by its spot or grid and
 * eligible: nearly every selection. Its steps are those of select_at_length(),
 * to which everything else is left.
 */
enum gen_status gen_select(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, gen_plan *plan)
{
    static const uint32_t device_head[2] = {sizeof(gen_device), GEN_BACKEND_CUDA};
#define NEED(condition)                    \
    if (__builtin_expect(!(condition), 0)) \
        goto at_length;
    NEED(library && !(library->log & GEN__LOG_SELECT))
    /* The rest of gen__device_check() holds for the device of a class. */
    NEED(device && gen__same_words(device, device_head) && device->shared_per_block != 0)
    NEED(problem)
    const struct gen__family *family = gen__families[0];
    for (uint32_t i = 1; __builtin_expect(family->tag != problem->family, 0); i++) {
        NEED(i < gen__num_families)
        family = gen__families[i];
    }
    NEED(problem->size == family->problem_size && !(problem->flags & ~GEN__PROBLEM_FLAGS))
    struct gen__key key;
    NEED(family->check(problem, &key) == GEN_OK)
    const struct gen__entry *entry = gen__entry_find(library, family, gen__key_codes(&key));
    NEED(entry && !key.empty && plan)

    enum gen_why why = GEN_WHY_TABLE;
    const float x = key.counts[0];
    float at = x;
    const struct gen__range *range = gen__own_class(entry, device);
    if (!range) {
        const struct gen__features features = gen__features_of(device);
        NEED(device->num_sms && device->memory_gbps && device->l2_bytes)
        range = gen__nearest_class(entry, device, features);
        NEED(range)
        at *= gen__per_sm_scale(features, range);
        why = GEN_WHY_NEAREST;
    }
    const struct gen__facts *facts;
    float us;
    if (__builtin_expect(range->place.at != NULL, 0)) {
        const uint32_t num_coords = family->num_coords;
        const struct gen__row *row =
            why == GEN_WHY_TABLE ? gen__grid_find(range, num_coords, key.counts, &us)
                                 : gen__grid_find_scaled(range, num_coords, key.counts, at, &us);
        NEED(row && row_fits(row, family, problem, device))
        facts = row->facts;
    } else {
        const struct gen__spot *spot = gen__spot_at(range, at);
        NEED(spot_fits(spot, family, problem, device))
        facts = spot->facts;
        if (why != GEN_WHY_TABLE)
            spot = gen__spot_at(range, x);
        us = gen__spot_time(spot, x);
    }
#undef NEED
    us = gen__by_bandwidth(us, device, range);
    if (__builtin_expect(family->parts != NULL, 0)) {
        const struct gen__ask ask = {library, device, problem, family, entry, key};
        return finish_plan(&ask, facts, why, us, plan);
    }
    make_plan(library, device, problem, family, facts, why, us, plan);
    return GEN_OK;

at_length:
    return select_at_length(library, device, problem, plan);
}

enum gen_status gen_select_variant(const gen_library *library, const gen_device *device,
                                   const gen_problem *problem, const char *variant, gen_plan *plan)
{
    struct gen__ask ask;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!variant || !plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL", variant ? "plan" : "variant");
    const struct gen__pack *pack = &library->pack;
    const uint32_t index = gen__pack_find(pack, variant, strlen(variant));
    if (index == pack->index->num_variants)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "variant \"%.200s\" is not among the %u of the product", variant,
                         pack->index->num_variants);
    if (device->backend == GEN_BACKEND_CPU)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s runs on a GPU, the device is the CPU reference", variant);
    if (!ask.entry || gen__entry_of_group(library, pack->variants[index].group) != ask.entry)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s is for required key %s, the problem has another", variant,
                         gen__pack_string(pack, pack->groups[pack->variants[index].group].name));
    const char *why = NULL;
    const enum gen__reject reject = gen__eligible(&ask, index, &why);
    if (reject) {
        char text[256];
        gen__reject_text(&ask, index, reject, why, text, sizeof(text));
        return gen__fail(GEN_STATUS_UNSUPPORTED, "variant %.200s %s", variant, text);
    }
    status = finish_plan(&ask, gen__facts_of(library, index), GEN_WHY_ASKED,
                         gen__predict(&ask, index), plan);
    if (!status && ask.key.empty)
        plan->num_launches = 0;
    return status;
}
