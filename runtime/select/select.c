/*
 * gen_select(): which variant for this problem on this device, as a plan. A plan that the library
 * made lately is copied (memo.h); else the rules of choose.c decide. Nothing here allocates, locks,
 * calls the system or writes but to *plan and the memo.
 */
#include "family/gpus.h"
#include "select/select.h"

#include "product/plan.h"

#include <string.h>

/* ---- the plan ---------------------------------------------------------- */

static void make_plan(const struct gen__ask *ask, const struct gen__facts *facts, enum gen_why why,
                      float us, gen_plan *plan)
{
    gen__plan_clear(plan);
    plan->size = sizeof(*plan);
    plan->family = ask->family->tag;
    plan->backend = ask->device->backend;
    plan->why = (uint32_t)why;
    plan->predicted_us = us;
    plan->library_digest = ask->library->pack.digest;
    ask->family->plan(ask->problem, ask->device, facts, plan);
}

/* ---- launches that are left to other families --------------------------- */

uint32_t gen__parts(const struct gen__ask *ask, const struct gen__facts *facts,
                    const gen_plan *plan, struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    return ask->family->parts ? ask->family->parts(ask->problem, ask->device, facts, plan, parts)
                              : 0;
}

/* The launch of the best variant for a part's problem. Errors: UNSUPPORTED, and *launch is left
 * alone. */
static enum gen_status choose_part(const struct gen__ask *whole, const struct gen__part *part,
                                   gen_plan_launch *launch)
{
    struct gen__ask ask;
    struct gen__choice choice;
    enum gen_status status = gen__part_ask(whole, part, &ask);
    ask.untimed = true;
    if (!status && !gen__choose(&ask, &choice))
        status = gen__unsupported(&ask);
    if (status)
        return status;
    if (gen__logs_select(ask.library))
        gen__log_select(&ask, GEN_OK, choice.why, &choice, whole->family->name);
    gen_plan plan;
    make_plan(&ask, choice.facts, choice.why, choice.us, &plan);
    if (plan.num_launches != 1 || plan.workspace_bytes)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "%.200s takes %u launches and %llu bytes of workspace; allowed for a part "
                         "of a plan: 1 and 0",
                         gen__variant_name(&ask.library->pack, choice.facts->index),
                         plan.num_launches, (unsigned long long)plan.workspace_bytes);
    const gen_plan_launch *l = &plan.launch[0];
    *launch = (gen_plan_launch){
        .variant = GEN__FRESH(l->variant),
        .grid = {GEN__FRESH(l->grid[0]), GEN__FRESH(l->grid[1]), GEN__FRESH(l->grid[2])},
        .shared = GEN__FRESH(l->shared),
        .threads = GEN__FRESH(l->threads),
        .dependent = GEN__FRESH(l->dependent)};
    return GEN_OK;
}

/* Fills them. Errors: UNSUPPORTED, and the launch is named. */
static enum gen_status add_parts(const struct gen__ask *ask, const struct gen__facts *facts,
                                 gen_plan *plan)
{
    struct gen__part parts[GEN_PLAN_MAX_LAUNCHES];
    const uint32_t count = gen__parts(ask, facts, plan, parts);
    for (uint32_t i = 0; i < count; i++) {
        const enum gen_status status = choose_part(ask, &parts[i], &plan->launch[parts[i].launch]);
        if (status)
            return gen__fail(status, "%s, launch %u: %s", ask->family->name, parts[i].launch,
                             gen_last_error());
    }
    return GEN_OK;
}

/* The plan with the launches that the family leaves to others, each a question of its own that is
 * answered by the rules of any selection; *plan is left alone where one of them cannot be done. */
static enum gen_status finish_plan(const struct gen__ask *ask, const struct gen__facts *facts,
                                   enum gen_why why, float us, gen_plan *plan)
{
    if (!ask->family->parts || ask->key.empty) {
        make_plan(ask, facts, why, us, plan);
        return GEN_OK;
    }
    /* Copied now, it waits for nothing; a copy of the finished plan would wait for all that was
     * just written. */
    gen_plan before;
    gen__plan_copy(&before, plan);
    make_plan(ask, facts, why, us, plan);
    const enum gen_status status = add_parts(ask, facts, plan);
    if (status)
        gen__plan_copy(plan, &before);
    return status;
}

/* ---- gen_select() ------------------------------------------------------ */

static enum gen_status select_by_rules(const struct gen__ask *ask, gen_plan *plan)
{
    const bool logs = gen__logs_select(ask->library);
    if (ask->device->backend == GEN_BACKEND_CPU) {
        make_plan(ask, NULL, GEN_WHY_REFERENCE, 0.0f, plan);
        if (logs)
            gen__log_select(ask, GEN_OK, GEN_WHY_REFERENCE, NULL, NULL);
        return GEN_OK;
    }
    if (ask->key.empty) {
        /* Needs no kernel, so whatever the product holds. */
        make_plan(ask, NULL, GEN_WHY_FALLBACK, 0.0f, plan);
        plan->num_launches = 0;
        return GEN_OK;
    }
    struct gen__choice choice;
    const bool found = gen__choose(ask, &choice);
    const enum gen_status status =
        found ? finish_plan(ask, choice.facts, choice.why, choice.us, plan) : gen__unsupported(ask);
    if (logs)
        gen__log_select(ask, status, found ? choice.why : GEN_WHY_FALLBACK, found ? &choice : NULL,
                        NULL);
    return status;
}

/* The family, where both structs are of the sizes that they say and may be read; else NULL. */
static const struct gen__family *readable(const gen_library *library, const gen_device *device,
                                          const gen_problem *problem)
{
    if (!library || !device || device->size != sizeof(*device) || !problem)
        return NULL;
    const struct gen__family *family = gen__family_find(library, problem->family);
    return family && problem->size == family->problem_size ? family : NULL;
}

/* The seal covers the size that the caller said, so that whoever gets the plan back looks behind
 * this library's part only where it was longer from the beginning. */
static void give_plan(gen_plan *plan, gen_plan *made)
{
    made->size = plan->size;
    gen__plan_seal(made);
    gen__give(plan, made, sizeof(*made));
}

/* Without the memo. */
static enum gen_status select_checked(const gen_library *library, const gen_device *device,
                                      const gen_problem *problem, gen_plan *plan)
{
    struct gen__ask ask;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "plan is NULL");
    status = GEN__CHECK_SIZE(plan, gen_plan);
    gen_plan made = {0};
    if (!status)
        status = select_by_rules(&ask, &made);
    if (!status)
        give_plan(plan, &made);
    return status;
}

enum gen_status gen_select(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, gen_plan *plan)
{
    struct gen__memo_key key;
    struct gen__ask ask;
    const struct gen__family *family = readable(library, device, problem);
    if (!family || !plan || plan->size != sizeof(*plan))
        return select_checked(library, device, problem, plan);
    /* What gen_set_log() asks for goes by the rules once, though a plan was kept before. */
    const uint64_t identity = library->identity ^ (uint64_t)gen__log_now() << 32;
    if (gen__memo_get(&key, identity, device, problem, plan))
        return GEN_OK;
    enum gen_status status = gen__device_check(device);
    if (!status)
        status = gen__ask_family(library, device, problem, family, &ask);
    if (!status)
        status = select_by_rules(&ask, plan);
    if (status)
        return status;
    gen__plan_seal(plan);
    gen__memo_put(&key, plan);
    if (gen__logs_select(library))
        gen__memo_put(&key, plan); /* as if the problem came again: it is logged once */
    return GEN_OK;
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
    status = GEN__CHECK_SIZE(plan, gen_plan);
    if (status)
        return status;
    const struct gen__pack *pack = &library->pack;
    const struct gen_pack_view view = gen__pack_view(pack);
    const uint32_t index = gen_pack_find(&view, variant, strlen(variant));
    if (index == pack->index->num_variants)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "variant \"%.200s\" is not among the %u of the product", variant,
                         pack->index->num_variants);
    if (device->backend == GEN_BACKEND_CPU)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s runs on a GPU, the device is the CPU reference", variant);
    if (!ask.entry || gen__key_entry_of_group(library, pack->variants[index].group) != ask.entry)
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
    gen_plan made = {0};
    status = finish_plan(&ask, gen__facts_of(library, index), GEN_WHY_ASKED,
                         gen__predict(&ask, index), &made);
    if (status)
        return status;
    if (ask.key.empty)
        made.num_launches = 0;
    give_plan(plan, &made);
    return GEN_OK;
}
