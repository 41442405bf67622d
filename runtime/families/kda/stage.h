/*
 * What the host files of the stages of Kimi Delta Attention prefill share (kda_gate,
 * kda_chunk_intra, kda_recompute_wu, kda_chunk_h, kda_chunk_o): the problem, its
 * geometry, checks, and inputs for tests. Defined in stage.c. The
 * problem's fields are a plan's dims, as chunk.h has them.
 */
#ifndef GEN_FAMILIES_KDA_STAGE_H
#define GEN_FAMILIES_KDA_STAGE_H

#include "families/kda/chunk.h"
#include "families/kda_chunk_intra/api.h"
#include "family/occupancy.h"
#include "kda_chunk_intra/args.h"

#include <math.h>
#include <string.h>

/* Launch facts, in the order of the families' family.lua. */
enum kda_stage_fact { KDA_STAGE_DEPENDENT };
#define KDA_STAGE_FACTS "dependent"

enum { KDA_CHAIN_COLUMNS = 64 }; /* of V, of a block of kda_chunk_h and kda_bwd_dhu */

/* The tensors of kda_chunk_intra. */
enum gen__kda_chunk_intra_tensor {
    KDA_CHUNK_INTRA_Q,
    KDA_CHUNK_INTRA_K,
    KDA_CHUNK_INTRA_V,
    KDA_CHUNK_INTRA_GK,
    KDA_CHUNK_INTRA_BETA,
    KDA_CHUNK_INTRA_CU_SEQLENS,
    KDA_CHUNK_INTRA_A_QK,
    KDA_CHUNK_INTRA_A_KK,
    KDA_CHUNK_INTRA_W,
    KDA_CHUNK_INTRA_U,
    KDA_CHUNK_INTRA_KG,
    KDA_CHUNK_INTRA_QG,
    KDA_CHUNK_INTRA_NUM_TENSORS
};
enum gen_status gen__kda_chunk_intra_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_chunk_intra_exact(const gen_plan *plan, const gen_args *args,
                                           double *const *exact);

enum { KDA_STAGE_NUM_FIELDS = 11 };
extern const struct gen__field gen__kda_stage_fields[];
extern const char *const gen__kda_stage_coords[]; /* one: tiles */
#define KDA_STAGE_RESULTS "kda_stages"            /* the result file of them all */

/* What their gen__family have in common, but for kda_chunk_h's coordinates. */
#define GEN__KDA_STAGE(family_tag, name_)                                                  \
    GEN__KDA_FAMILY(family_tag, name_), GEN__ONE_INDEX(name_, cu_seqlens),                 \
        .params_size = sizeof(struct gen_##name_##_params), .facts = KDA_STAGE_FACTS,      \
        .coords = gen__kda_stage_coords, .num_coords = 1, .fields = gen__kda_stage_fields, \
        .num_fields = KDA_STAGE_NUM_FIELDS, .results = KDA_STAGE_RESULTS

static inline const int32_t *gen__kda_stage_dims(const gen_problem *problem)
{
    return (const int32_t *)(const void *)((const char *)problem +
                                           offsetof(gen_kda_stage_problem, batch));
}

enum gen_status gen__kda_stage_refuse(const char *family, int64_t blocks);

/* gen__family.check, counting chunks and value heads; key->codes[2] is `third`. */
static inline enum gen_status gen__kda_stage_check(const char *family, const gen_problem *problem,
                                                   uint32_t third, struct gen__key *key)
{
    const int32_t *dims = gen__kda_stage_dims(problem);
    const enum gen_status status = gen__kda_check(family, dims, third, key);
    if (status)
        return status;
    /* kda_gate has blocks for the query heads, too. */
    const int64_t blocks =
        gen__kda_slots(dims) * (dims[KDA_V_HEADS] + 2 * (int64_t)dims[KDA_QK_HEADS]);
    if (__builtin_expect(blocks > INT32_MAX, 0))
        return gen__kda_stage_refuse(family, blocks);
    const int64_t chunks = gen__kda_usual_chunks(problem, dims);
    key->empty = gen__kda_slots(dims) == 0;
    key->counts[0] = (float)((chunks ? chunks : 1) * dims[KDA_V_HEADS]);
    return GEN_OK;
}

/* Bytes at the rate that memory is seen to reach. */
static inline float gen__kda_stage_us(const gen_device *device, double bytes)
{
    const double launch_us = 3.0, achieved = 0.85;
    const double per_us = (device->memory_gbps ? (double)device->memory_gbps : 1000.0) * 1e3;
    return (float)(launch_us + bytes / (per_us * achieved));
}

/* gen__family.plan of a kernel with `units` blocks for each slot of chunks. */
static inline void gen__kda_stage_plan(const gen_problem *base, const struct gen__facts *variant,
                                       int64_t units, gen_plan *plan)
{
    gen__kda_slots_plan(gen__kda_stage_dims(base), base->flags, variant, units,
                        variant && variant->fact[KDA_STAGE_DEPENDENT], plan);
}

/* Of a kernel that takes a sequence's chunks in turn: as many as the longest sequence has, or as
 * come to a place of an SM, of `chunk_us` each. Beside another block on the SM that is a third
 * longer. */
static inline float gen__kda_stage_chain_us(const gen_device *device,
                                            const struct gen__facts *variant, const int32_t *dims,
                                            float chunk_us)
{
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float per_sm = (float)gen__blocks_per_sm(device, variant);
    const float places = per_sm > 0.0f ? per_sm : 1.0f;
    const float blocks = (float)dims[KDA_V_HEADS] * (float)dims[KDA_HEAD_DIM] / KDA_CHAIN_COLUMNS;
    const float wanted = ceilf((float)dims[KDA_BATCH] * blocks / sms);
    const float beside = (wanted < places ? wanted : places) - 1.0f;
    const float longest = (float)gen__kda_chunks(gen__kda_longest(dims));
    const float work = (float)gen__kda_all_chunks(dims) * blocks / (sms * places);
    return (work > longest ? work : longest) * chunk_us *
           (1.0f + 0.3f * (beside > 0.0f ? beside : 0.0f));
}

/* gen__family.plan of a kernel that takes a sequence's chunks in turn, with 64 columns of V a
 * block. */
static inline void gen__kda_chain_plan(const gen_problem *base, const struct gen__facts *variant,
                                       gen_plan *plan)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    memcpy(plan->dims, dims, KDA_NUM_DIMS * sizeof *dims);
    plan->num_launches = dims[KDA_BATCH] > 0;
    if (!variant || !plan->num_launches)
        return;
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {(uint32_t)(dims[KDA_V_HEADS] * (dims[KDA_HEAD_DIM] / KDA_CHAIN_COLUMNS)),
                 (uint32_t)dims[KDA_BATCH], 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(base->flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_STAGE_DEPENDENT],
    };
}

struct gen_kda_stage_shape gen__kda_stage_shape(const int32_t *dims, const int32_t *cu_seqlens,
                                                int64_t units);
/* "chunk_intra-B1-T8192-H64": the family's name without "kda_", and the problem's. */
void gen__kda_stage_case_name(const char *family, const gen_problem *problem, char *text,
                              size_t capacity);

/* ---- checks ------------------------------------------------------------ */

/* A pointer argument: its name, value and alignment; whether it may be NULL. */
struct gen__kda_pointer {
    const char *name;
    const void *pointer;
    uintptr_t alignment;
    bool optional;
};
/* All of them, and cu_seqlens. Without tokens none is read. */
enum gen_status gen__kda_stage_check_pointers(const char *family, const int32_t *dims,
                                              const int32_t *cu_seqlens,
                                              const struct gen__kda_pointer *list, uint32_t count);

static inline uintptr_t gen__kda_beta_bytes(const int32_t *dims)
{
    return dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
}

/* Elements of a token. */
static inline int64_t gen__kda_qk_width(const int32_t *dims)
{
    return (int64_t)dims[KDA_QK_HEADS] * dims[KDA_HEAD_DIM];
}

static inline int64_t gen__kda_v_width(const int32_t *dims)
{
    return (int64_t)dims[KDA_V_HEADS] * dims[KDA_HEAD_DIM];
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Inputs that the other stages' outputs are like, on the host; NULL where not there. */
struct gen__kda_stage_inputs {
    const struct gen__tensor *cu_tensor; /* of cu_seqlens */
    int32_t *cu_seqlens;
    float *gk;      /* cumulated gates of all kinds, from hardly any decay to the bound */
    void *a_kk;     /* unit lower triangular */
    bool a_kk_open; /* with non_finite NaN above the diagonal, as it is never read there */
    void *a_qk;     /* lower triangular; with non_finite NaN above the diagonal */
};
void gen__kda_stage_fill(const int32_t *dims, const struct gen__fill_options *options,
                         const struct gen__kda_stage_inputs *inputs);

#endif /* GEN_FAMILIES_KDA_STAGE_H */
