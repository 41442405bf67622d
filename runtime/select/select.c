/*
 * gen_select(): which variant for this problem on this device, as a plan.
 *
 * The rules are those of choose.c. gen_select() has a short way for nearly every
 * selection (short.h), and leaves everything else to them. Nothing
 * here allocates, locks, calls the system or writes but to *plan.
 */
#include "select/select.h"
#include "select/short.h"

/* ---- the plan ---------------------------------------------------------- */

static void make_plan_for(const struct gen__ask *ask, const struct gen__facts *facts,
                          enum gen_why why, float us, gen_plan *plan)
{
    gen__make_plan(ask->library, ask->device, ask->problem, ask->family, facts, why, us, plan);
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

enum gen_status gen__select_at_length(const gen_library *library, const gen_device *device,
                                      const gen_problem *problem, gen_plan *plan)
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

/* ---- the short way ----------------------------------------------------- */

/* Each of the range's few variants is asked once. NULL where none fits, or that is to be asked at
 * length. */
static const struct gen__row *find_eligible(const struct gen__range *range,
                                            const struct gen__family *family,
                                            const gen_problem *problem, const gen_device *device,
                                            const float *counts, float first)
{
    uint32_t eligible = 0;
    if (problem->max_workspace_mib)
        return NULL;
    for (uint32_t i = 0; i < range->slots->count; i++)
        if (gen__row_fits(&range->rows[range->slots->row[i]], family, problem, device))
            eligible |= 1u << i;
    return eligible ? gen__grid_find_eligible(range, family->num_coords, counts, first, eligible)
                    : NULL;
}

const struct gen__row *gen__short_other(const struct gen__range *range,
                                        const struct gen__family *family,
                                        const gen_problem *problem, const gen_device *device,
                                        const float *counts, float first)
{
    if (range->plain && family->refuses_choosy(problem)) {
        const struct gen__row *row =
            gen__grid_find_scaled(range->plain, family->num_coords, counts, first);
        if (row && gen__row_fits(row, family, problem, device))
            return row;
    }
    return find_eligible(range, family, problem, device, counts, first);
}

/* For families that have none of their own. */
__attribute__((noinline)) static enum gen_status
select_any(const struct gen__family *family, const gen_library *library, const gen_device *device,
           const gen_problem *problem, gen_plan *plan)
{
    if (gen__short_select(family, library, device, problem, plan))
        return GEN_OK;
    return gen__select_at_length(library, device, problem, plan);
}

__attribute__((noinline)) static bool
launch_any(const struct gen__family *family, const gen_library *library, const gen_device *device,
           const gen_problem *problem, gen_plan_launch *launch)
{
    return gen__short_launch(family, library, device, problem, launch);
}

bool gen__short_parts(const gen_library *library, const gen_device *device,
                      const struct gen__part *parts, uint32_t count, gen_plan *plan)
{
    for (uint32_t i = 0; i < count; i++) {
        const gen_problem *problem = &parts[i].problem.base;
        gen_plan_launch *launch = &plan->launch[parts[i].launch];
        const struct gen__known *known = gen__known_find(library, problem->family);
        const bool found =
            known && (known->launch ? known->launch(library, device, problem, launch)
                                    : launch_any(known->family, library, device, problem, launch));
        if (!found && gen__choose_part(library, device, problem, launch) != GEN_OK)
            return false;
    }
    return true;
}

enum gen_status gen_select(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, gen_plan *plan)
{
    static const uint32_t device_head[2] = {sizeof(gen_device), GEN_BACKEND_CUDA};
#define NEED(condition)                    \
    if (__builtin_expect(!(condition), 0)) \
        goto at_length;
    NEED(library && !(library->log & GEN__LOG_SELECT))
    /* The rest of gen__device_check() holds for the device of a class; gen__short_choose() asks
     * where there is none. */
    NEED(device && gen__same_words(device, device_head) && device->shared_per_block != 0)
    NEED(problem && plan)
    const struct gen__known *known = gen__known_find(library, problem->family);
    NEED(known && problem->size == known->problem_size && !(problem->flags & ~GEN__PROBLEM_FLAGS))
#undef NEED
    return known->select ? known->select(library, device, problem, plan)
                         : select_any(known->family, library, device, problem, plan);

at_length:
    return gen__select_at_length(library, device, problem, plan);
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
