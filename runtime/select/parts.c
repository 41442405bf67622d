/* Launches of a plan that are left to other families: each is a question of its
 * own, answered by the rules of any selection. */
#include "select/select.h"

#include <string.h>

uint32_t gen__parts(const struct gen__ask *ask, const struct gen__facts *facts,
                    const gen_plan *plan, struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    return ask->family->parts ? ask->family->parts(ask->problem, ask->device, facts, plan, parts)
                              : 0;
}

enum gen_status gen__choose_part(const gen_library *library, const gen_device *device,
                                 const gen_problem *problem, gen_plan_launch *launch)
{
    struct gen__ask ask;
    struct gen__choice choice;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (!status && !gen__choose(&ask, &choice))
        status = gen__unsupported(&ask);
    if (status)
        return status;
    gen_plan plan;
    memset(&plan, 0, sizeof(plan));
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
        const enum gen_status status = gen__choose_part(
            ask->library, ask->device, &parts[i].problem.base, &plan->launch[parts[i].launch]);
        if (status)
            return gen__fail(status, "%s, launch %u: %s", ask->family->name, parts[i].launch,
                             gen_last_error());
    }
    return GEN_OK;
}
