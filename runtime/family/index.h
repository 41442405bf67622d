/*
 * Lists of indices that a caller may have in 64 bits: cu_seqlens, where requests begin. Kernels
 * read
 * 32. A family names its lists (gen__family.indices), and where a problem says GEN_INDEX_INT64 a
 * launch of the family index32 stands in front of the plan's: it writes them as 32 bits behind the
 * family's own workspace, where the other launches find them. What 32 bits do not hold becomes the
 * nearest number that they do, so a bad list does no more harm than one of 32 bits would. The
 * family's code knows nothing of it.
 */
#ifndef GEN_INDEX_H
#define GEN_INDEX_H

#include "family/family.h"
#include "index32/args.h"

#define GEN__INDEX32 0x49583332u /* GEN_INDEX32, the family's tag */

static inline int32_t gen__index_dtype(const struct gen__family *family, const gen_problem *problem)
{
    int32_t dtype = 0;
    if (family->num_indices)
        memcpy(&dtype, (const char *)problem + family->index_dtype, sizeof dtype);
    return dtype;
}

/* Entries of each list, by a plan's or a problem's dims, which begin with the batch. */
static inline int64_t gen__index_count(const int32_t *dims)
{
    return dims[0] + INT64_C(1);
}

/* Bytes of a list in the workspace. */
static inline uint64_t gen__index_list_bytes(const int32_t *dims)
{
    return ((uint64_t)gen__index_count(dims) * sizeof(int32_t) + 255) & ~UINT64_C(255);
}

static inline uint64_t gen__index_bytes(const struct gen__family *family, const int32_t *dims)
{
    return family->num_indices * gen__index_list_bytes(dims);
}

/* The workspace of a plan without the lists, with them. */
static inline uint64_t gen__index_workspace(const struct gen__family *family, const int32_t *dims,
                                            uint64_t bytes)
{
    return ((bytes + 255) & ~UINT64_C(255)) + gen__index_bytes(family, dims);
}

/* The launch that a plan of these dims begins with, as a part. */
static inline void gen__index_problem(const struct gen__family *family, const gen_problem *problem,
                                      const int32_t *dims, struct gen__part *part)
{
    const int32_t count = (int32_t)gen__index_count(dims);
    part->launch = 0;
    part->problem.base = (gen_problem){sizeof(gen_problem) + 8, GEN__INDEX32, problem->flags, 0};
    part->problem.fields[sizeof(gen_problem) / 4] = count;
    part->problem.fields[sizeof(gen_problem) / 4 + 1] = (int32_t)family->num_indices;
}

/* Does a plan begin with index32? */
static inline bool gen__index_planned(const gen_plan *plan)
{
    return plan->dims[GEN__DIM_INDEX] != 0;
}

/* What such a plan's arguments are to the family: lists of 64 bits are where the launch writes
 * them. `full` gets the family's arguments, `k` the launch's parameters. Errors: INVALID_ARGUMENT.
 */
enum gen_status gen__index_args(const struct gen__family *family, const gen_plan *plan,
                                const gen_args *args, void *workspace, gen_args *full,
                                struct gen_index32_params *k);

/* The lists of 64 bits are none of a plan that does not begin with index32. Errors:
 * INVALID_ARGUMENT. */
enum gen_status gen__index_refuse(const struct gen__family *family, const gen_args *args);

/* Where that launch reads; and puts the lists where the caller has them, for the family's extents,
 * because the workspace is an extent of its own. Returns their number. */
uint32_t gen__index_extents(const struct gen__family *family, const gen_plan *plan,
                            const struct gen_index32_params *k, gen_args *full,
                            struct gen__extent *extents);

/* The launch, on the CPU. NULL is no list. */
void gen__index_narrow(const int64_t *from, int32_t *to, int64_t count);
static inline void gen__index_run(const struct gen_index32_params *k)
{
    for (int list = 0; list < GEN_INDEX32_LISTS; list++)
        gen__index_narrow((const int64_t *)(const void *)k->from[list], k->to[list], k->count);
}

#endif /* GEN_INDEX_H */
