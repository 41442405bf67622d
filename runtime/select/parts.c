/* Launches of a plan that are left to other families: each is a question of its
 * own, answered by the rules of any selection. */
#include "select/select.h"

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
    gen_plan plan;
    gen__plan_clear(&plan);
    ask.family->plan(ask.problem, ask.device, choice.facts, &plan);
    if (plan.num_launches != 1 || plan.workspace_bytes)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "%.200s takes %u launches and %llu bytes of workspace; allowed for a part "
                         "of a plan: 1 and 0",
                         gen__variant_name(&ask.library->pack, choice.facts->index),
                         plan.num_launches, (unsigned long long)plan.workspace_bytes);
    *launch = plan.launch[0];
    return GEN_OK;
}

enum gen_status gen__add_parts(const struct gen__ask *ask, const struct gen__facts *facts,
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
