/*
 * Gated DeltaNet, prefill, on the host: a plan of two launches, gdn_intra's and the recurrence
 * between chunks, with what the first makes in the workspace; and, where sequences are cut into
 * segments, one more of the recurrence's kernel between these, which computes what segments do to
 * states. The problem, the tensors, the forms and the reference are kda_prefill's.
 */
#include "families/kda/gdn_intra.h"
#include "families/kda/pools.h"
#include "families/kda/prefill.h"

#include "families/common/fastdiv.h"
#include "families/common/tensor_map.h"
#include "gdn_prefill/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "gdn_prefill";

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t usual[KDA_NUM_DIMS];
    const int32_t *dims = gen__kda_usual(base, gen__kda_prefill_dims(base), usual);
    const struct gen__facts intra = {
        .threads = 256, .registers = 64, .occupancy = {55 << 10, {4, 4, 4, 4}}};
    float us;
    gen__kda_prefill_cut(base, dims, device, variant, &us);
    return gen__gdn_intra_us(dims, device, &intra) + us;
}

/* ---- the plan ---------------------------------------------------------- */

/* What gdn_intra makes of all slots, one kind behind the other, and of segments, each 256-byte
 * aligned. */
struct workspace {
    uint64_t x, a_qk, factors, added, transition, segment_decay, size; /* offsets in bytes */
};

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static struct workspace workspace_of(const int32_t *dims)
{
    const uint64_t tiles = (uint64_t)gen__kda_slots(dims) * (uint64_t)dims[KDA_V_HEADS];
    const uint64_t cells = tiles * KDA_CHUNK * KDA_CHUNK * 2;
    struct workspace w = {.a_qk = cells, .factors = 2 * cells};
    w.added = w.factors + aligned(tiles * GDN_FACTORS * 4);
    w.transition = w.segment_decay = w.size = w.added;
    if (dims[KDA_SEGMENT_CHUNKS]) {
        const uint64_t segments = gen__kda_segment_bytes(dims);
        w.transition += segments;
        w.segment_decay = w.transition + segments;
        w.size = w.segment_decay + segments / (uint64_t)dims[KDA_HEAD_DIM];
    }
    return w;
}

/* No more than the problem allows, where whole sequences would do. */
static bool too_much(const gen_problem *base, const int32_t *dims)
{
    return base->max_workspace_mib && !gen__kda_prefill_wanted(base) &&
           workspace_of(dims).size > (uint64_t)base->max_workspace_mib << 20;
}

/* The recurrence's launch as what segments do: of what is added and of the transition, which have
 * as many columns, a block has 64 a group, of two groups with wgmma. */
static void scan_launch(const int32_t *dims, const struct gen__facts *variant,
                        const gen_plan_launch *last, gen_plan_launch *launch)
{
    const uint32_t groups = variant->fact[KDA_INTER_WGMMA] ? 2 : 1;
    *launch = *last;
    launch->grid[0] = (uint32_t)dims[KDA_V_HEADS] * (uint32_t)(dims[KDA_HEAD_DIM] / 32) / groups;
    launch->grid[1] = (uint32_t)gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]);
}

/* Without tokens there is nothing to do but to hand the states on. */
static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    int32_t *dims = plan->dims;
    memcpy(dims, gen__kda_prefill_dims(base), KDA_NUM_DIMS * sizeof *dims);
    dims[KDA_SEGMENT_CHUNKS] = 0;
    gen__kda_prefill_state_dims(base, dims);
    plan->num_launches = dims[KDA_BATCH] > 0;
    if (!variant || !dims[KDA_BATCH])
        return;
    const bool tokens = gen__kda_slots(dims) > 0;
    dims[KDA_TENSOR_MAPS] = variant->fact[KDA_INTER_WGMMA] && tokens;
    if (tokens) {
        int32_t usual[KDA_NUM_DIMS];
        const int32_t *for_all = gen__kda_usual(base, gen__kda_prefill_dims(base), usual);
        dims[KDA_SEGMENT_CHUNKS] = gen__kda_prefill_cut(base, for_all, device, variant, NULL);
    }
    if (dims[KDA_SEGMENT_CHUNKS] && too_much(base, dims))
        dims[KDA_SEGMENT_CHUNKS] = 0;
    const bool cut = dims[KDA_SEGMENT_CHUNKS] > 0;
    const uint32_t last = (uint32_t)tokens + cut;
    plan->num_launches = last + 1;
    plan->workspace_bytes = workspace_of(dims).size;
    gen__kda_inter_launch(dims, variant, base->flags, &plan->launch[last]);
    if (!cut)
        return;
    scan_launch(dims, variant, &plan->launch[last], &plan->launch[1]);
    plan->launch[last].grid[1] = plan->launch[1].grid[1];
}

/* The part's problem is written where it is read from, as kda_prefill's are. */
static uint32_t parts(const gen_problem *base, const gen_device *device,
                      const struct gen__facts *variant, const gen_plan *plan,
                      struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    (void)device, (void)variant;
    if (plan->num_launches < 2)
        return 0;
    _Static_assert(sizeof(gen_gdn_intra_problem) <= sizeof parts->problem, "a part holds it");
    parts[0].launch = 0;
    parts[0].problem.base =
        (gen_problem){sizeof(gen_gdn_intra_problem), GEN_GDN_INTRA, base->flags, 0};
    memcpy((char *)&parts[0].problem + offsetof(gen_gdn_intra_problem, batch),
           gen__kda_prefill_dims(base), KDA_NUM_DIMS * sizeof(int32_t));
    return 1;
}

union any_params {
    struct gen_gdn_intra_params intra;
    struct gen_gdn_prefill_pool_params prefill;
};

static const uint32_t part_families[] = {GEN_GDN_INTRA};

/* ---- arguments --------------------------------------------------------- */

static gen_gdn_intra_args intra_args(const int32_t *dims, const gen_gdn_prefill_args *a,
                                     char *workspace)
{
    const struct workspace w = workspace_of(dims);
    gen_gdn_intra_args intra = {
        .base = {sizeof intra, GEN_GDN_INTRA},
        .q = a->q,
        .k = a->k,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .cu_seqlens = a->cu_seqlens,
        .q_stride = a->q_stride,
        .k_stride = a->k_stride,
        .g_stride = a->g_stride,
        .beta_stride = a->beta_stride,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
    };
    if (workspace) {
        intra.x = workspace + w.x;
        intra.a_qk = workspace + w.a_qk;
        intra.factors = (float *)(void *)(workspace + w.factors);
    }
    return intra;
}

static enum gen_status check_args(const gen_plan *plan, const gen_gdn_prefill_args *a)
{
    const int32_t *dims = plan->dims;
    enum gen_status status = gen__kda_prefill_check_plan(family, plan);
    if (status)
        return status;
    const int64_t v = (int64_t)dims[KDA_V_HEADS] * dims[KDA_HEAD_DIM];
    const gen_gdn_intra_args intra = intra_args(dims, a, NULL);
    const gen_kda_inter_args inter = gen__kda_prefill_inter(a);
    if ((status = gen__gdn_check_intra(family, dims, &intra)) != GEN_OK ||
        (status = gen__check_pointer(family, "v", a->v, 16, !gen__kda_tokens(dims))) != GEN_OK ||
        (status = gen__kda_check_stride(family, "v_stride", dims, a->v_stride, 8, v)) != GEN_OK ||
        (status = gen__kda_check_inter(family, dims, &inter)) != GEN_OK)
        return status;
    return gen__kda_check_lengths(family, dims, a->cu_seqlens_host);
}

/* head_dim, tokens, heads, 1; 64 x 64 come at once. */
static enum gen_status encode_map(const struct gen__driver *driver, const char *name,
                                  const void *memory, const int32_t *dims, int32_t heads,
                                  int64_t stride, unsigned long long map[16])
{
    const uint64_t d = (uint64_t)dims[KDA_HEAD_DIM], row = 2 * (uint64_t)stride;
    const struct gen__boxed tensor = {
        .memory = memory,
        .extent = {d, (uint64_t)gen__kda_tokens(dims), (uint64_t)heads, 1},
        .strides = {row, 2 * d, row},
        .box = {64, KDA_CHUNK, 1, 1},
        .type = dims[KDA_DTYPE] == GEN_DTYPE_FP16 ? GEN__TENSOR_FP16 : GEN__TENSOR_BF16,
        .swizzle = GEN__TENSOR_SWIZZLE_128,
    };
    const int result = gen__tensor_map(driver, &tensor, map);
    if (!result)
        return GEN_OK;
    char what[160];
    snprintf(what, sizeof what, "%s: %s = %p, %" PRId32 " heads, stride %" PRId64 " elements",
             family, name, memory, heads, stride);
    return gen__driver_fail(driver, result, "cuTensorMapEncodeTiled", what);
}

static enum gen_status encode_maps(const int32_t *dims, struct gen_gdn_prefill_params *k)
{
    const struct gen__driver *driver;
    enum gen_status status =
        dims[KDA_TENSOR_MAPS] ? gen__tensor_maps_open(family, &driver) : GEN_OK;
    if (!dims[KDA_TENSOR_MAPS] || status)
        return status;
    const int32_t qk_heads = dims[KDA_QK_HEADS], v_heads = dims[KDA_V_HEADS];
    if ((status = encode_map(driver, "q", k->q, dims, qk_heads, k->q_stride, k->q_map)) != GEN_OK ||
        (status = encode_map(driver, "k", k->k, dims, qk_heads, k->k_stride, k->k_map)) != GEN_OK)
        return status;
    return encode_map(driver, "v", k->v, dims, v_heads, k->v_stride, k->v_map);
}

/* Of the recurrence's kernel, in either phase. */
static enum gen_status own_params(const int32_t *dims, const gen_gdn_prefill_args *a,
                                  char *workspace, bool scan,
                                  struct gen_gdn_prefill_pool_params *out)
{
    const struct workspace w = workspace_of(dims);
    const int64_t d = dims[KDA_HEAD_DIM], qk = dims[KDA_QK_HEADS] * d, v = dims[KDA_V_HEADS] * d;
    const struct gen__fastdiv group =
        gen__fastdiv((uint32_t)(dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]));
    gen_kda_inter_args inter = gen__kda_prefill_inter(a);
    if (workspace) {
        inter.w = workspace + w.x;
        inter.a_qk = workspace + w.a_qk;
        inter.decay = (const float *)(const void *)(workspace + w.factors);
    }
    struct gen_gdn_prefill_params *const k = &out->prefill;
    *k = (struct gen_gdn_prefill_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .v_stride = a->v_stride ? a->v_stride : v,
        .group_mul = group.mul,
        .group_shift = group.shift,
        .scan = scan,
    };
    gen__kda_inter_params(dims, &inter, &k->inter);
    /* Kernels without pools take the first part alone. */
    gen__kda_pool_params(dims, &a->pools, &out->pools);
    if (dims[KDA_SEGMENT_CHUNKS]) {
        k->inter.added = (float *)(void *)(workspace + w.added);
        k->inter.transition = workspace + w.transition;
        k->inter.segment_decay = (float *)(void *)(workspace + w.segment_decay);
        k->inter.segment_chunks = dims[KDA_SEGMENT_CHUNKS];
    }
    return encode_maps(dims, k);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_gdn_prefill_args *a = (const gen_gdn_prefill_args *)base;
    const int32_t *dims = plan->dims;
    const enum gen_status status = launch ? GEN_OK : check_args(plan, a);
    if (status || !out)
        return status;
    const bool last = launch + 1 == plan->num_launches;
    if (launch == 0 && !last) {
        const gen_gdn_intra_args intra = intra_args(dims, a, workspace);
        gen__gdn_intra_params(dims, &intra, out);
    } else {
        return own_params(dims, a, workspace, !last, out);
    }
    return GEN_OK;
}

const struct gen__family gen__family_gdn_prefill = {
    .name = family,
    .tag = GEN_GDN_PREFILL,
    .problem_size = sizeof(gen_gdn_prefill_problem),
    .args_size = sizeof(gen_gdn_prefill_args),
    GEN__ONE_INDEX(gdn_prefill, cu_seqlens),
    .params_size = sizeof(union any_params),
    .required = gen__kda_pool_required,
    .num_required = KDA_POOL_NUM_REQUIRED,
    .facts = KDA_INTER_FACTS,
    .coords = gen__kda_prefill_coords,
    .num_coords = KDA_PREFILL_NUM_COORDS,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = gen__kda_prefill_fields,
    .num_fields = KDA_PREFILL_NUM_FIELDS,
    .grid_steps = gen__kda_grid,
    .set_counts = gen__kda_prefill_set_counts,
    .check = gen__kda_prefill_check,
    .fits = gen__fits_always,
    .predict = predict,
    .plan = plan,
    .parts = parts,
    .part_families = part_families,
    .num_part_families = sizeof part_families / sizeof *part_families,
    .params = params,
    .extents = gen__kda_prefill_extents,
    .reference = gen__kda_prefill_reference,
    .exact = gen__kda_prefill_exact,
    .tensors = gen__kda_prefill_tensors,
    .default_args = gen__kda_prefill_default_args,
    .fill = gen__kda_prefill_fill,
    .cost = gen__kda_prefill_cost,
    .case_name = gen__kda_prefill_case_name,
    .forms = gen__kda_prefill_forms,
    .num_forms = GEN__KDA_PREFILL_NUM_FORMS,
    .form = gen__kda_prefill_form,
    .data = gen__kda_prefill_data,
};
