/* Lists of 64-bit indices: what a plan that begins with index32 makes of a call's arguments. */
#include "family/index.h"

_Static_assert(sizeof(long long) == sizeof(int64_t), "params are of C's own types");

static const void *pointer_at(const gen_args *args, uint32_t offset)
{
    const void *pointer;
    memcpy(&pointer, (const char *)args + offset, sizeof pointer);
    return pointer;
}

static void set_pointer(gen_args *args, uint32_t offset, const void *pointer)
{
    memcpy((char *)args + offset, &pointer, sizeof pointer);
}

enum gen_status gen__index_args(const struct gen__family *family, const gen_plan *plan,
                                const gen_args *args, void *workspace, gen_args *full,
                                struct gen_index32_params *k)
{
    char *at = (char *)workspace + plan->workspace_bytes - gen__index_bytes(family, plan->dims);
    memcpy(full, args, family->args_size);
    *k = (struct gen_index32_params){.count = gen__index_count(plan->dims)};
    for (uint32_t i = 0; i < family->num_indices; i++, at += gen__index_list_bytes(plan->dims)) {
        const struct gen__index *index = &family->indices[i];
        const void *from = pointer_at(args, index->wide), *other = pointer_at(args, index->narrow);
        if (!from)
            continue;
        if (other)
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "%s: %s = %p and %s_64 = %p; allowed: one of them, the other NULL",
                             family->name, index->name, other, index->name, from);
        if ((uintptr_t)from % sizeof(int64_t))
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "%s: %s_64 = %p; allowed: multiples of 8 bytes", family->name,
                             index->name, from);
        k->from[i] = from;
        k->to[i] = (int *)(void *)at;
        set_pointer(full, index->narrow, at);
        set_pointer(full, index->wide, NULL);
    }
    return GEN_OK;
}

enum gen_status gen__index_refuse(const struct gen__family *family, const gen_args *args)
{
    for (uint32_t i = 0; i < family->num_indices; i++)
        if (pointer_at(args, family->indices[i].wide))
            return gen__fail(
                GEN_STATUS_INVALID_ARGUMENT,
                "%s: %s_64 = %p, and the problem's index_dtype is GEN_INDEX_INT32 (0); "
                "allowed: NULL, or a problem with GEN_INDEX_INT64 (1)",
                family->name, family->indices[i].name, pointer_at(args, family->indices[i].wide));
    return GEN_OK;
}

uint32_t gen__index_extents(const struct gen__family *family, const gen_plan *plan,
                            const struct gen_index32_params *k, gen_args *full,
                            struct gen__extent *extents)
{
    for (uint32_t i = 0; i < family->num_indices; i++) {
        gen__extent(&extents[i], false, family->indices[i].name, k->from[i],
                    gen__index_count(plan->dims) * (int64_t)sizeof(int64_t));
        if (k->from[i])
            set_pointer(full, family->indices[i].narrow, k->from[i]);
    }
    return family->num_indices;
}

void gen__index_narrow(const int64_t *from, int32_t *to, int64_t count)
{
    for (int64_t i = 0; from && i < count; i++)
        to[i] = from[i] < INT32_MIN   ? INT32_MIN
                : from[i] > INT32_MAX ? INT32_MAX
                                      : (int32_t)from[i];
}
