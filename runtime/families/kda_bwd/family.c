/*
 * Kimi Delta Attention, the backward pass, on the host: a plan of launches, most of them stages'
 * (stages.c), with what they hand each other in the workspace. Where kda_bwd_grad has a kernel it
 * makes all gradients at once; elsewhere four stages do.
 */
#include "families/kda_bwd/kda_bwd.h"

#include <inttypes.h>
#include <string.h>

static const char family[] = "kda_bwd";

static const struct gen__field fields[] = {
    GEN__KDA_FIELDS(gen_kda_bwd_problem),
    {GEN__KDA_FIELD(gen_kda_bwd_problem, keep), NULL, 0, 0},
    GEN__INDEX_FIELD(gen_kda_bwd_problem),
};
GEN__KDA_FIELDS_ARE_DIMS(gen_kda_bwd_problem);
_Static_assert(offsetof(gen_kda_bwd_problem, batch) == offsetof(gen_kda_stage_problem, batch) &&
                   GEN__KDA_IS_DIM(gen_kda_bwd_problem, keep, KDA_BWD_KEEP),
               "a stage's problem, and `keep`");

/* No problem is empty: without tokens, too, sums are written. */
static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const int32_t *dims = gen__kda_bwd_dims(base), keep = dims[KDA_BWD_KEEP];
    const enum gen_status status =
        gen__kda_stage_check(family, base, (uint32_t)dims[KDA_SAFE_GATE], key);
    if (status)
        return status;
    if (keep != 0 && keep != 1)
        return gen__invalid(family, "keep", keep, "0, 1");
    key->empty = false;
    return GEN_OK;
}

/* kda_bwd_grad is for gates within -5, on compute capability 9.0. */
static bool is_fused(const int32_t *dims, const gen_device *device)
{
    return dims[KDA_SAFE_GATE] && device && device->compute_capability == 90;
}

/* Whether blocks of kda_bwd_grad take all heads of a group in turn and add their gradients: where
 * the groups fill them, or where the batch, which says how many there are, may decide nothing. */
static bool is_summed(const int32_t *dims, const gen_device *device, uint32_t flags)
{
    if (!is_fused(dims, device) || dims[KDA_QK_HEADS] == dims[KDA_V_HEADS])
        return false;
    const int64_t units = gen__kda_slots(dims) * dims[KDA_QK_HEADS],
                  blocks = (int64_t)device->num_sms * (dims[KDA_HEAD_DIM] == 64 ? 2 : 1);
    const int64_t rounds = blocks > 0 ? (units + blocks - 1) / blocks : 0;
    return flags & GEN_BATCH_INVARIANT || 6 * units >= 5 * rounds * blocks;
}

/* Bytes that all launches move: of a token's channel of a value head, and of a query head; of its
 * rows of 64 scores; and of the K x V elements of a chunk's states, h and d_h, each written and
 * read once. Beside them betas do not count. */
static const struct bytes {
    int v_channel, qk_channel, scores;
} staged_bytes = {112, 24, 24}, fused_bytes = {60, 12, 4}, fused_heads_bytes = {76, 16, 4};
enum { STATES = 4 * 2 };

/* All variants are for the same. */
static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t usual[KDA_NUM_DIMS];
    const int32_t *dims = gen__kda_usual(base, gen__kda_bwd_dims(base), usual);
    const bool fused = is_fused(dims, device),
               heads_apart =
                   dims[KDA_QK_HEADS] != dims[KDA_V_HEADS] && !is_summed(dims, device, base->flags);
    const struct bytes *x = !fused        ? &staged_bytes
                            : heads_apart ? &fused_heads_bytes
                                          : &fused_bytes;
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS],
                 tokens = (double)gen__kda_tokens(dims),
                 launches = !fused        ? 8
                            : heads_apart ? 6
                                          : 5;
    const double head = x->v_channel * d + x->scores * KDA_CHUNK + STATES * d * d / KDA_CHUNK;
    const double bytes = tokens * (heads * head + dims[KDA_QK_HEADS] * x->qk_channel * d);
    (void)variant;
    return (float)launches * gen__kda_stage_us(device, bytes / launches);
}

/* Our own, at a place of the plan. */
static gen_plan_launch own_launch(const int32_t *dims, uint32_t flags,
                                  const struct gen__facts *variant)
{
    const int64_t tiles = gen__kda_slots(dims) * dims[KDA_V_HEADS];
    return (gen_plan_launch){
        .variant = variant->index,
        .grid = {tiles ? (uint32_t)tiles : 64, 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = tiles ? variant->shared_dynamic : 0,
        .dependent = !(flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_STAGE_DEPENDENT],
    };
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    int32_t *const dims = plan->dims;
    memcpy(dims, gen__kda_bwd_dims(base), KDA_BWD_FUSED * sizeof *dims);
    dims[KDA_BWD_FUSED] = is_fused(dims, device);
    dims[KDA_BWD_SUMMED] = is_summed(dims, device, base->flags);
    plan->num_launches = 1;
    if (!variant)
        return;
    plan->launch[0] = own_launch(dims, base->flags, variant);
    if (!gen__kda_slots(dims))
        return;
    plan->num_launches = gen__kda_bwd_num_launches(dims);
    plan->workspace_bytes = gen__kda_bwd_workspace(dims);
    for (uint32_t launch = 1; launch < plan->num_launches; launch++) {
        if (gen__kda_bwd_stage(dims, launch))
            continue;
        plan->launch[launch] = own_launch(dims, base->flags, variant);
        if (gen__kda_bwd_kind(dims, launch) == KDA_BWD_LAUNCH_SUMS)
            plan->launch[launch].grid[0] =
                (uint32_t)(gen__kda_v_width(dims) / KDA_BWD_SUM_CHANNELS);
    }
}

static uint32_t parts(const gen_problem *base, const gen_device *device,
                      const struct gen__facts *variant, const gen_plan *plan,
                      struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    const int32_t *dims = plan->dims;
    uint32_t count = 0;
    (void)device, (void)variant;
    _Static_assert(sizeof(gen_kda_stage_problem) <= sizeof parts->problem, "a part holds it");
    for (uint32_t launch = 0; launch < plan->num_launches; launch++) {
        const struct gen__family *stage = gen__kda_bwd_stage(dims, launch);
        if (!stage)
            continue;
        struct gen__part *part = &parts[count++];
        part->launch = launch;
        part->problem.base =
            (gen_problem){sizeof(gen_kda_stage_problem), stage->tag, base->flags, 0};
        int32_t *const to = part->problem.fields + offsetof(gen_kda_stage_problem, batch) / 4;
        memcpy(to, dims, KDA_NUM_DIMS * sizeof *to);
        if (!gen__kda_bwd_takes_betas(gen__kda_bwd_kind(dims, launch)))
            to[KDA_BETA_DTYPE] = GEN_DTYPE_FP32; /* as the first launch leaves it */
        part->problem.fields[offsetof(gen_kda_stage_problem, index_dtype) / 4] = GEN_INDEX_INT32;
    }
    return count;
}

static const uint32_t part_families[] = {
    GEN_KDA_CHUNK_H,   GEN_KDA_BWD_DAV,  GEN_KDA_BWD_DHU, GEN_KDA_BWD_WY,
    GEN_KDA_BWD_INTRA, GEN_KDA_GATE_BWD, GEN_KDA_QK_BWD,  GEN_KDA_BWD_GRAD,
};

/* ---- arguments --------------------------------------------------------- */

gen_kda_intra_args gen__kda_bwd_inputs(const gen_kda_bwd_args *a)
{
    return (gen_kda_intra_args){
        .base = {sizeof(gen_kda_intra_args), GEN_KDA_INTRA},
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .cu_seqlens = a->cu_seqlens,
        .q_stride = a->q_stride,
        .k_stride = a->k_stride,
        .v_stride = a->v_stride,
        .g_stride = a->g_stride,
        .beta_stride = a->beta_stride,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
    };
}

/* A sum over tokens of what there may not be. */
static enum gen_status check_sum(const char *name, const float *sum, uintptr_t alignment,
                                 const char *of, const float *input)
{
    if (sum && !input)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = %p without %s; allowed: NULL",
                         family, name, (const void *)sum, of);
    return gen__check_pointer(family, name, sum, alignment, true);
}

static enum gen_status check_states(const int32_t *dims, const gen_kda_bwd_args *a)
{
    const bool none = !gen__kda_tokens(dims);
    if (!dims[KDA_BWD_KEEP] && a->states)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: states = %p with keep = 0; allowed: NULL", family, a->states);
    if (a->state_layout != GEN_KDA_STATE_KV && a->state_layout != GEN_KDA_STATE_VK)
        return gen__invalid(family, "state_layout", a->state_layout,
                            "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    return gen__check_pointer(family, "states", a->states, 16, none || !dims[KDA_BWD_KEEP]);
}

static enum gen_status check_gradients(const int32_t *dims, const gen_kda_bwd_args *a)
{
    const bool none = !gen__kda_tokens(dims);
    const struct gen__kda_pointer list[] = {
        {"initial_state", a->initial_state, 16, true},
        {"d_o", a->d_o, 16, none},
        {"d_final_state", a->d_final_state, 16, true},
        {"d_q", a->d_q, 16, none},
        {"d_k", a->d_k, 16, none},
        {"d_v", a->d_v, 16, none},
        {"d_g", a->d_g, 16, none},
        {"d_beta", a->d_beta, gen__kda_beta_bytes(dims), none},
        {"d_initial_state", a->d_initial_state, 16, true},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status = gen__check_pointer(family, list[i].name, list[i].pointer, list[i].alignment,
                                    list[i].optional);
    if (!status)
        status = check_sum("d_A_log", a->d_A_log, 4, "A_log", a->A_log);
    if (!status)
        status = check_sum("d_dt_bias", a->d_dt_bias, 16, "dt_bias", a->dt_bias);
    if (!status)
        status = gen__kda_check_stride(family, "d_o_stride", dims, a->d_o_stride, 8,
                                       gen__kda_v_width(dims));
    return status;
}

static enum gen_status check_plan(const gen_plan *plan)
{
    const int32_t *dims = plan->dims, keep = dims[KDA_BWD_KEEP];
    const enum gen_status status = gen__kda_check_dims(family, dims);
    if (status)
        return status;
    const int32_t fused = dims[KDA_BWD_FUSED], summed = dims[KDA_BWD_SUMMED];
    if ((keep == 0 || keep == 1) && (fused == 0 || fused == 1) &&
        (summed == 0 || (summed == 1 && fused)) &&
        (plan->num_launches == 1 || plan->num_launches == gen__kda_bwd_num_launches(dims)))
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's launches are not what gen_select() writes", family);
}

static enum gen_status check_args(const gen_plan *plan, const gen_kda_bwd_args *a)
{
    const int32_t *dims = plan->dims;
    const gen_kda_intra_args inputs = gen__kda_bwd_inputs(a);
    enum gen_status status = check_plan(plan);
    if (!status)
        status = gen__kda_check_intra(family, dims, &inputs);
    if (!status)
        status = check_states(dims, a);
    if (!status)
        status = check_gradients(dims, a);
    return status ? status : gen__kda_check_lengths(family, dims, a->cu_seqlens_host);
}

/* Parameters of any launch. */
union any_params {
    struct gen_kda_bwd_params own;
    struct gen_kda_chunk_h_params chunk_h;
    struct gen_kda_bwd_dav_params dav;
    struct gen_kda_bwd_dhu_params dhu;
    struct gen_kda_bwd_wy_params wy;
    struct gen_kda_bwd_intra_params intra;
    struct gen_kda_gate_bwd_params gate_bwd;
    struct gen_kda_qk_bwd_params qk_bwd;
    struct gen_kda_bwd_grad_params grad;
};

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_bwd_args *a = (const gen_kda_bwd_args *)base;
    const int32_t *dims = plan->dims;
    const enum gen_status status = launch ? GEN_OK : check_args(plan, a);
    if (status || !out)
        return status;
    const struct gen__family *stage = gen__kda_bwd_stage(dims, launch);
    if (stage)
        return gen__kda_bwd_stage_params(stage, dims, launch, a, workspace, out);
    gen__kda_bwd_own_params(dims, launch, a, workspace, out);
    return GEN_OK;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_bwd_args *a = (const gen_kda_bwd_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t d = dims[KDA_HEAD_DIM], qk = dims[KDA_QK_HEADS] * d * 2, v = heads * d;
    const int64_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t beta = (int64_t)gen__kda_beta_bytes(dims), states = dims[KDA_BATCH] * v * d * 4;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v * 2, tokens, gen__stride_bytes(a->v_stride, 2));
    gen__reads_rows(&list[3], "g", a->g, v * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads_rows(&list[4], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[5], "A_log", a->A_log, heads * 4);
    gen__reads(&list[6], "dt_bias", a->dt_bias, v * 4);
    gen__reads(&list[7], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__reads(&list[8], "initial_state", a->initial_state, states);
    gen__reads(&list[9], "states", a->states, (int64_t)gen__kda_states_count(dims) * 2);
    gen__reads_rows(&list[10], "d_o", a->d_o, v * 2, tokens, gen__stride_bytes(a->d_o_stride, 2));
    gen__reads(&list[11], "d_final_state", a->d_final_state, states);
    gen__writes(&list[12], "d_q", a->d_q, tokens * qk);
    gen__writes(&list[13], "d_k", a->d_k, tokens * qk);
    gen__writes(&list[14], "d_v", a->d_v, tokens * v * 2);
    gen__writes(&list[15], "d_g", a->d_g, tokens * v * g);
    gen__writes(&list[16], "d_beta", a->d_beta, tokens * heads * beta);
    gen__writes(&list[17], "d_A_log", a->d_A_log, heads * 4);
    gen__writes(&list[18], "d_dt_bias", a->d_dt_bias, v * 4);
    gen__writes(&list[19], "d_initial_state", a->d_initial_state, states);
    return 20;
}

static const char *const coords[] = {"tiles"};

const struct gen__family gen__family_kda_bwd = {
    .name = family,
    .tag = GEN_KDA_BWD,
    .problem_size = sizeof(gen_kda_bwd_problem),
    .args_size = sizeof(gen_kda_bwd_args),
    GEN__ONE_INDEX(kda_bwd, cu_seqlens),
    .params_size = sizeof(union any_params),
    .required = gen__kda_required,
    .num_required = KDA_INTRA_NUM_REQUIRED,
    .facts = KDA_STAGE_FACTS,
    .coords = coords,
    .num_coords = 1,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = gen__fits_always,
    .predict = predict,
    .plan = plan,
    .parts = parts,
    .part_families = part_families,
    .num_part_families = sizeof part_families / sizeof *part_families,
    .params = params,
    .extents = extents,
    .reference = gen__kda_bwd_reference,
    .exact = gen__kda_bwd_exact,
    .tensors = gen__kda_bwd_tensors,
    .default_args = gen__kda_bwd_default_args,
    .fill = gen__kda_bwd_fill,
    .cost = gen__kda_bwd_cost,
    .case_name = gen__kda_bwd_case_name,
    .forms = gen__kda_bwd_forms,
    .num_forms = GEN__KDA_BWD_NUM_FORMS,
    .form = gen__kda_bwd_form,
    .data = gen__kda_bwd_data,
};
