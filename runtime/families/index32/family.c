/* Lists of 64-bit indices as 32 bits, on the host: checks, geometry, parameters, and what the tuner
 * and the tests need. */
#include "families/index32/api.h"
#include "families/common/arguments.h"
#include "family/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum gen_status gen__index32_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "index32";

static const char *const from_names[] = {"int64"};
static const struct gen__axis required[] = {{"from", from_names, 1}};
static const char *const coords[] = {"entries"};
static const struct gen__field fields[] = {
    {"count", offsetof(gen_index32_problem, count), NULL, 0, 65},
    {"num_lists", offsetof(gen_index32_problem, num_lists), NULL, 0, 1},
};

enum { COUNT, NUM_LISTS }; /* gen_plan.dims */
enum { DEPENDENT };        /* launch facts */

_Static_assert(GEN_INDEX32 == GEN__INDEX32, "the family that selection names");

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_index32_problem *p = (const gen_index32_problem *)base;
    if (p->count < 0)
        return gen__invalid(family, "count", p->count, ">= 0");
    if (p->num_lists < 1 || p->num_lists > GEN_INDEX32_LISTS)
        return gen__invalid(family, "num_lists", p->num_lists, "1, 2");
    gen__set_codes(key, 0, 0, 0);
    key->empty = p->count == 0;
    key->counts[0] = (float)(key->empty ? 1 : p->count) * (float)p->num_lists;
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_index32_problem *p = (const gen_index32_problem *)base;
    *bytes = 12.0 * p->count * p->num_lists;
    *flops = 0;
}

/* A launch behind another, and the lists' bytes at the memory's bandwidth. */
static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    double bytes, flops;
    (void)variant;
    cost(base, &bytes, &flops);
    return 1.0f + (float)bytes / (1e3f * (float)(device->memory_gbps ? device->memory_gbps : 1000));
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_index32_problem *p = (const gen_index32_problem *)base;
    (void)device;
    plan->dims[COUNT] = p->count;
    plan->dims[NUM_LISTS] = p->num_lists;
    plan->num_launches = p->count > 0;
    if (!variant || !p->count)
        return;
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {((uint32_t)p->count - 1) / variant->threads + 1, 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(base->flags & GEN_SERIAL_LAUNCH) && variant->fact[DEPENDENT],
    };
}

static enum gen_status check_args(const int32_t *dims, const gen_index32_args *a)
{
    const bool two = dims[NUM_LISTS] == 2;
    enum gen_status status;
    if ((status = gen__check_pointer(family, "from", a->from, 8, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "to", a->to, 4, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "from_2", a->from_2, 8, !two)) != GEN_OK ||
        (status = gen__check_pointer(family, "to_2", a->to_2, 4, !two)) != GEN_OK)
        return status;
    if (two || (!a->from_2 && !a->to_2))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: from_2 = %p, to_2 = %p with num_lists 1; allowed: NULL", family,
                     (const void *)a->from_2, (void *)a->to_2);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_index32_args *a = (const gen_index32_args *)base;
    const enum gen_status status = check_args(plan->dims, a);
    (void)launch, (void)workspace;
    if (status || !out)
        return status;
    const struct gen_index32_params k = {.from = {(const void *)a->from, (const void *)a->from_2},
                                         .to = {a->to, a->to_2},
                                         .count = plan->dims[COUNT]};
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_index32_args *a = (const gen_index32_args *)base;
    const int64_t count = dims[COUNT];
    gen__reads(&list[0], "from", a->from, count * 8);
    gen__reads(&list[1], "from_2", a->from_2, count * 8);
    gen__writes(&list[2], "to", a->to, count * 4);
    gen__writes(&list[3], "to_2", a->to_2, count * 4);
    return 4;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

#define TENSOR(...) GEN__TENSOR(gen_index32_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const gen_index32_problem *p = (const gen_index32_problem *)base;
    const int64_t count = p->count, second = p->num_lists == 2 ? count : 0;
    const struct gen__tensor list[] = {
        {TENSOR(from, GEN_DTYPE_INT64, GEN__IN, GEN__FILL_FAMILY, 0, count)},
        {TENSOR(from_2, GEN_DTYPE_INT64, GEN__IN, GEN__FILL_FAMILY, 0, second)},
        {TENSOR(to, GEN_DTYPE_INT32, GEN__OUT, GEN__FILL_POISON, 0, count)},
        {TENSOR(to_2, GEN_DTYPE_INT32, GEN__OUT, GEN__FILL_POISON, 0, second)},
    };
    memcpy(tensors, list, sizeof list);
    return sizeof list / sizeof *list;
}

#undef TENSOR

static void default_args(const gen_problem *problem, gen_args *args)
{
    (void)problem;
    *(gen_index32_args *)args = (gen_index32_args){.base = {sizeof(gen_index32_args), GEN_INDEX32}};
}

/* Numbers of any size: what 32 bits hold, its ends and what lies beyond them. */
static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    static const int64_t ends[] = {INT32_MAX, INT64_C(1) << 31, INT32_MIN, -(INT64_C(1) << 31) - 1,
                                   INT64_MAX, INT64_MIN,        -1,        INT64_C(1) << 32};
    uint64_t state = options->seed * 2 + 1;
    (void)base, (void)args;
    for (int t = 0; t < 2; t++)
        for (uint64_t i = 0; data[t] && i < list[t].count; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const int64_t number = (int64_t)state >> (state >> 58);
            ((int64_t *)data[t])[i] = i % 3 ? number : ends[i / 3 % 8];
        }
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_index32_problem *p = (const gen_index32_problem *)base;
    snprintf(text, capacity, "N%" PRId32 "-L%" PRId32, p->count, p->num_lists);
}

const struct gen__family gen__family_index32 = {
    .name = family,
    .tag = GEN_INDEX32,
    .problem_size = sizeof(gen_index32_problem),
    .args_size = sizeof(gen_index32_args),
    .params_size = sizeof(struct gen_index32_params),
    .required = required,
    .num_required = 1,
    .facts = "dependent",
    .coords = coords,
    .num_coords = 1,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = gen__fits_always,
    .predict = predict,
    .plan = plan,
    .params = params,
    .extents = extents,
    .reference = gen__index32_reference,
    .tensors = tensors,
    .default_args = default_args,
    .fill = fill,
    .cost = cost,
    .case_name = case_name,
};
