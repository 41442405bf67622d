/*
 * gen_select(): which variant for this problem on this device, as a plan. A plan that the library
 * made lately is copied (memo.h); else the rules of choose.c decide. Nothing here allocates, locks,
 * calls the system or writes but to *plan and the memo.
 */
#include "family/index.h"
#include "select/memo.h"
#include "select/select.h"

#include <string.h>

/* ---- the plan ---------------------------------------------------------- */

static inline void make_plan(const struct gen__query *query, const struct gen__choice *choice,
                             gen_plan *plan)
{
    gen__plan_clear(plan);
    plan->size = sizeof(*plan);
    plan->family = query->family->tag;
    plan->backend = query->device->backend;
    plan->why = (uint32_t)choice->why;
    plan->predicted_us = choice->us;
    plan->library_digest = query->library->pack.digest;
    query->family->plan(query->problem, query->device, choice->facts, plan);
    if (query->key.empty && plan->backend != GEN_BACKEND_CPU)
        plan->num_launches = 0;
}

uint32_t gen__parts(const struct gen__query *query, const struct gen__facts *facts,
                    const gen_plan *plan, struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    return query->family->parts
               ? query->family->parts(query->problem, query->device, facts, plan, parts)
               : 0;
}

static enum gen_status unsupported(const struct gen__query *query)
{
    char message[1600];
    struct gen__text text = gen__text_over(message, sizeof(message));
    gen__unsupported_text(&text, query);
    return gen__fail(GEN_STATUS_UNSUPPORTED, "%s", message);
}

/* The launch of the best variant for a part's problem. Errors: UNSUPPORTED, and *launch is left
 * alone. */
static enum gen_status choose_part(const struct gen__query *whole, const struct gen__part *part,
                                   gen_plan_launch *launch)
{
    struct gen__query query;
    struct gen__choice choice;
    enum gen_status status = gen__query(whole->library, whole->device, &part->problem.base, &query);
    query.untimed = true;
    if (!status && !gen__choose(&query, &choice))
        status = unsupported(&query);
    if (status)
        return status;
    if (gen__logs_select(query.library))
        gen__log_select(&query, GEN_OK, &choice, whole->family->name);
    gen_plan plan;
    make_plan(&query, &choice, &plan);
    if (plan.num_launches != 1 || plan.workspace_bytes)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "%.200s takes %u launches and %llu bytes of workspace; allowed for a part "
                         "of a plan: 1 and 0",
                         gen__variant_name(&query.library->pack, choice.facts->index),
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

/* Fills the launches that the family leaves to others, each a question of its own that is answered
 * by the rules of any selection. Errors: UNSUPPORTED, and the launch is named. */
static enum gen_status add_parts(const struct gen__query *query, const struct gen__facts *facts,
                                 gen_plan *plan)
{
    struct gen__part parts[GEN_PLAN_MAX_LAUNCHES];
    const uint32_t count = gen__parts(query, facts, plan, parts);
    for (uint32_t i = 0; i < count; i++) {
        const enum gen_status status =
            choose_part(query, &parts[i], &plan->launch[parts[i].launch]);
        if (status)
            return gen__fail(status, "%s, launch %u: %s", query->family->name, parts[i].launch,
                             gen_last_error());
    }
    return GEN_OK;
}

/* *plan is left alone where a part cannot be done. */
static inline enum gen_status finish_family(const struct gen__query *query,
                                            const struct gen__choice *choice, gen_plan *plan)
{
    const bool parts = query->family->parts && choice->facts && !query->key.empty;
    gen_plan before;
    /* Copied now, it waits for nothing; a copy of the finished plan would wait for all that was
     * just written. */
    if (parts)
        gen__plan_copy(&before, plan);
    make_plan(query, choice, plan);
    const enum gen_status status = parts ? add_parts(query, choice->facts, plan) : GEN_OK;
    if (status)
        gen__plan_copy(plan, &before);
    else
        gen__plan_seal(plan);
    return status;
}

/* The plan begins with index32's launch, which stands in its last dims: all launches may be the
 * family's. Errors: UNSUPPORTED. */
static enum gen_status add_index(const struct gen__query *query, gen_plan *plan)
{
    struct gen__part part;
    gen_plan_launch launch = {0};
    gen__index_problem(query->family, query->problem, plan->dims, &part);
    if (plan->num_launches == 0)
        return GEN_OK;
    if (plan->backend != GEN_BACKEND_CPU) {
        const enum gen_status status = choose_part(query, &part, &launch);
        if (status)
            return gen__fail(status, "%s, the launch for lists of 64-bit indices: %s",
                             query->family->name, gen_last_error());
    }
    plan->dims[GEN__DIM_INDEX] = (int32_t)launch.variant + 1;
    plan->dims[GEN__DIM_INDEX_DEPENDENT] = launch.dependent;
    plan->workspace_bytes = gen__index_workspace(query->family, plan->dims, plan->workspace_bytes);
    return GEN_OK;
}

__attribute__((noinline, cold)) static enum gen_status
finish_indexed(const struct gen__query *query, const struct gen__choice *choice, gen_plan *plan)
{
    gen_plan made = {0};
    enum gen_status status = finish_family(query, choice, &made);
    if (!status)
        status = add_index(query, &made);
    if (status)
        return status;
    gen__plan_seal(&made);
    gen__plan_copy(plan, &made);
    return GEN_OK;
}

static inline enum gen_status finish_plan(const struct gen__query *query,
                                          const struct gen__choice *choice, gen_plan *plan)
{
    return gen__index_dtype(query->family, query->problem) == GEN_INDEX_INT64
               ? finish_indexed(query, choice, plan)
               : finish_family(query, choice, plan);
}

/* ---- gen_select() ------------------------------------------------------ */

static inline enum gen_status select_by_rules(const struct gen__query *query, gen_plan *plan)
{
    const bool reference = query->device->backend == GEN_BACKEND_CPU;
    /* An empty problem needs no kernel, so whatever the product holds. */
    struct gen__choice choice = {.why = reference ? GEN_WHY_REFERENCE : GEN_WHY_FALLBACK};
    const bool found = reference || query->key.empty || gen__choose(query, &choice);
    const enum gen_status status = found ? finish_plan(query, &choice, plan) : unsupported(query);
    if ((reference || !query->key.empty) && gen__logs_select(query->library))
        gen__log_select(query, status, found ? &choice : NULL, NULL);
    return status;
}

/* The seal covers the size that the caller said, so that a call that gets the plan back looks
 * behind this library's part only where it was longer from the beginning. */
static void give_plan(gen_plan *plan, gen_plan *made)
{
    made->size = plan->size;
    gen__plan_seal(made);
    gen__give(plan, made, sizeof(*made));
}

/* Into the plan of a caller whose struct has another size, or for a device that has. */
__attribute__((noinline, cold)) static enum gen_status
select_resized(const struct gen__query *query, gen_plan *plan)
{
    gen_plan made = {0};
    const enum gen_status status = select_by_rules(query, &made);
    if (!status)
        give_plan(plan, &made);
    return status;
}

enum gen_status gen_select(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, gen_plan *plan)
{
    struct gen__memo_key key;
    struct gen__query query;
    const bool own = library && device && device->size == sizeof(*device) && problem && plan &&
                     plan->size == sizeof(*plan);
    /* What gen_set_log() asks for goes by the rules once, though a plan was kept before. */
    if (own && gen__memo_get(&key, library->identity ^ (uint64_t)gen__log_now() << 32, device,
                             problem, plan))
        return GEN_OK;
    enum gen_status status = gen__query(library, device, problem, &query);
    if (!status)
        status = GEN__CHECK_STRUCT(plan, gen_plan);
    if (!status)
        status = own ? select_by_rules(&query, plan) : select_resized(&query, plan);
    if (own && !status)
        gen__memo_put(&key, plan, gen__logs_select(library));
    return status;
}

enum gen_status gen_select_variant(const gen_library *library, const gen_device *device,
                                   const gen_problem *problem, const char *variant, gen_plan *plan)
{
    struct gen__query query;
    enum gen_status status = gen__query(library, device, problem, &query);
    if (status)
        return status;
    if (!variant)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "variant is NULL");
    status = GEN__CHECK_STRUCT(plan, gen_plan);
    if (status)
        return status;
    const struct gen__pack *pack = &library->pack;
    const struct gen_pack_view view = gen__pack_view(pack);
    const uint32_t index = gen_pack_find(&view, variant, strlen(variant));
    if (index == pack->index->num_variants)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "variant \"%.200s\" is not among the %u of the product", variant, index);
    if (device->backend == GEN_BACKEND_CPU)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s runs on a GPU, the device is the CPU reference", variant);
    const uint32_t group = pack->variants[index].group;
    if (!query.entry || library->group_entry[group] != query.entry)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s is for required key %s, the problem has another", variant,
                         gen__pack_string(pack, pack->groups[group].name));
    const char *why;
    const enum gen__reject reject = gen__eligible(&query, index, &why);
    if (reject) {
        char message[512];
        struct gen__text text = gen__text_over(message, sizeof(message));
        gen__text_add(&text, "variant %.200s ", variant);
        gen__reject_text(&text, &query, index, reject, why);
        return gen__fail(GEN_STATUS_UNSUPPORTED, "%s", message);
    }
    const struct gen__choice choice = {.facts = &library->variants[index],
                                       .why = GEN_WHY_ASKED,
                                       .us = gen__predict(&query, index)};
    gen_plan made = {0};
    status = finish_plan(&query, &choice, &made);
    if (!status)
        give_plan(plan, &made);
    return status;
}
