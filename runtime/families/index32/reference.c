/* Lists of 64-bit indices as 32 bits, in plain C. */
#include "families/index32/api.h"
#include "family/family.h"
#include "family/index.h"

enum gen_status gen__index32_reference(const gen_plan *plan, const gen_args *args);

enum gen_status gen__index32_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_index32_args *a = (const gen_index32_args *)base;
    gen__index_narrow(a->from, a->to, plan->dims[0]);
    gen__index_narrow(a->from_2, a->to_2, plan->dims[0]);
    return GEN_OK;
}
