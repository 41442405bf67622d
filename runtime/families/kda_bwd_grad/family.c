/*
 * All gradients of the backward pass of Kimi Delta Attention from a chunk's states, on the host:
 * the geometry of a launch, and its parameters. inputs.c has what the tuner and the tests need.
 */
#include "families/kda_bwd_grad/kda_bwd_grad.h"

#include "kda_bwd_grad/args.h"

static const char family[] = "kda_bwd_grad";
/* A group's heads pass sums on, for which there are variants of their own. */
static const char *const coords[] = {"tiles", "group"};

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const enum gen_status status = gen__kda_stage_check(family, base, 0, key);
    const int32_t *dims = gen__kda_stage_dims(base);
    if (status)
        return status;
    if (!dims[KDA_SAFE_GATE])
        return gen__invalid(family, "safe_gate", 0, "1");
    const uint32_t group = (uint32_t)(dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]);
    key->counts[1] = (float)group;
    return GEN_OK;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    double bytes, flops;
    (void)variant;
    gen__kda_bwd_grad_cost(base, &bytes, &flops);
    return gen__kda_stage_us(device, bytes);
}

/* Blocks take chunks in turn. */
static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    gen__kda_stage_plan(base, variant, dims[KDA_V_HEADS], plan);
    if (!variant || !plan->num_launches)
        return;
    const uint32_t per_sm = gen__blocks_per_sm(device, variant);
    const uint32_t blocks =
        (per_sm ? per_sm : 1) * (uint32_t)(device->num_sms ? device->num_sms : 1);
    if (plan->launch[0].grid[0] > blocks)
        plan->launch[0].grid[0] = blocks;
    if (plan->launch[0].grid[0] > GEN_KDA_BWD_GRAD_BLOCKS)
        plan->launch[0].grid[0] = GEN_KDA_BWD_GRAD_BLOCKS;
}

static enum gen_status check_forms(const gen_kda_bwd_grad_args *a)
{
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if (a->gate_form < GEN_KDA_GATE_GIVEN || a->gate_form > GEN_KDA_GATE_LOWER_BOUND)
        return gen__invalid(family, "gate_form", a->gate_form,
                            "GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
                            "GEN_KDA_GATE_LOWER_BOUND (2)");
    if (a->beta_form < GEN_KDA_BETA_GIVEN || a->beta_form > GEN_KDA_BETA_TWO_SIGMOID)
        return gen__invalid(family, "beta_form", a->beta_form,
                            "GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
                            "GEN_KDA_BETA_TWO_SIGMOID (2)");
    if (a->qk_l2norm != 0 && a->qk_l2norm != 1)
        return gen__invalid(family, "qk_l2norm", a->qk_l2norm, "0, 1");
    if (a->state_layout != GEN_KDA_STATE_KV && a->state_layout != GEN_KDA_STATE_VK)
        return gen__invalid(family, "state_layout", a->state_layout,
                            "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    if (a->num_chunks < 0)
        return gen__invalid(family, "num_chunks", a->num_chunks, "0 (all), or more");
    if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND &&
        !(a->lower_bound >= -5.0f && a->lower_bound < 0.0f))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: lower_bound = %g; allowed: -5 <= lower_bound < 0", family,
                         (double)a->lower_bound);
    return GEN_OK;
}

static enum gen_status check_gate(const gen_kda_bwd_grad_args *a)
{
    if (a->gate_form == GEN_KDA_GATE_GIVEN && (a->A_log || a->dt_bias || a->partials))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log = %p, dt_bias = %p, partials = %p with the gate "
                         "GEN_KDA_GATE_GIVEN; allowed: NULL",
                         family, (const void *)a->A_log, (const void *)a->dt_bias,
                         (const void *)a->partials);
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: "
                         "num_v_heads numbers",
                         family);
    return GEN_OK;
}

/* Either the heads' gradients or those of q and k, of groups through `sums`. */
static enum gen_status check_heads(const int32_t *dims, const gen_kda_bwd_grad_args *a)
{
    const bool heads = a->d_q_heads || a->d_k_heads, sums = a->d_q || a->d_k;
    if (heads && sums)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: d_q = %p, d_k = %p with d_q_heads = %p, d_k_heads = %p; allowed: "
                         "NULL, or those NULL",
                         family, a->d_q, a->d_k, (void *)a->d_q_heads, (void *)a->d_k_heads);
    const bool grouped = dims[KDA_V_HEADS] != dims[KDA_QK_HEADS];
    if (a->sums && (heads || !grouped))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: sums = %p with %d value heads of %d query heads and d_q_heads = %p; "
                         "allowed: NULL, or several to a query head and d_q_heads NULL",
                         family, (void *)a->sums, (int)dims[KDA_V_HEADS], (int)dims[KDA_QK_HEADS],
                         (void *)a->d_q_heads);
    return gen__check_pointer(family, "sums", a->sums, 16, heads || !grouped);
}

static enum gen_status check_pointers(const int32_t *dims, const gen_kda_bwd_grad_args *a)
{
    const uintptr_t beta = gen__kda_beta_bytes(dims);
    const bool heads = a->d_q_heads || a->d_k_heads;
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, false},
        {"k", a->k, 16, false},
        {"v", a->v, 16, false},
        {"v_new", a->v_new, 16, false},
        {"gk", a->gk, 16, false},
        {"g", a->g, 16, a->gate_form == GEN_KDA_GATE_GIVEN},
        {"A_log", a->A_log, 4, true},
        {"dt_bias", a->dt_bias, 16, true},
        {"beta", a->beta, beta, false},
        {"a_kk", a->a_kk, 16, false},
        {"h", a->h, 16, false},
        {"d_o", a->d_o, 16, false},
        {"d_h", a->d_h, 16, false},
        {"d_v_new", a->d_v_new, 16, false},
        {"d_q", a->d_q, 16, heads},
        {"d_k", a->d_k, 16, heads},
        {"d_q_heads", a->d_q_heads, 16, !heads},
        {"d_k_heads", a->d_k_heads, 16, !heads},
        {"d_v", a->d_v, 16, false},
        {"d_g", a->d_g, 16, false},
        {"d_beta", a->d_beta, beta, false},
        {"partials", a->partials, 16, true},
    };
    return gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                         sizeof list / sizeof *list);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_bwd_grad_args *a)
{
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    const struct {
        const char *name;
        int64_t stride, unit, width;
    } strides[] = {
        {"q_stride", a->q_stride, 8, qk},
        {"k_stride", a->k_stride, 8, qk},
        {"g_stride", a->g_stride, 8, v},
        {"beta_stride", a->beta_stride, 1, dims[KDA_V_HEADS]},
    };
    enum gen_status status = check_forms(a);
    if (!status)
        status = check_gate(a);
    if (!status)
        status = check_heads(dims, a);
    if (!status)
        status = check_pointers(dims, a);
    for (size_t i = 0; !status && i < sizeof strides / sizeof *strides; i++)
        status = gen__kda_check_stride(family, strides[i].name, dims, strides[i].stride,
                                       strides[i].unit, strides[i].width);
    return status;
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_bwd_grad_args *a = (const gen_kda_bwd_grad_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t qk = gen__kda_qk_width(dims), slots = gen__kda_slots(dims);
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen_kda_bwd_grad_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .q = {a->q, a->d_q, a->d_q_heads, a->q_stride ? a->q_stride : qk},
        .k = {a->k, a->d_k, a->d_k_heads, a->k_stride ? a->k_stride : qk},
        .v = a->v,
        .v_new = a->v_new,
        .gk = a->gk,
        .g = a->g,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .beta = a->beta,
        .a_kk = a->a_kk,
        .h = a->h,
        .d_o = a->d_o,
        .d_h = a->d_h,
        .d_v_new = a->d_v_new,
        .d_v = a->d_v,
        .d_g = a->d_g,
        .d_beta = a->d_beta,
        .partials = a->partials,
        .sums = a->sums,
        .unit = a->sums ? dims[KDA_V_HEADS] / dims[KDA_QK_HEADS] : 1,
        .g_stride = a->g_stride ? a->g_stride : gen__kda_v_width(dims),
        .beta_stride = a->beta_stride ? a->beta_stride : dims[KDA_V_HEADS],
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .num_tiles = (int32_t)(slots * dims[KDA_V_HEADS]),
        .num_chunks = a->num_chunks ? a->num_chunks : (int32_t)slots,
        .state_vk = a->state_layout == GEN_KDA_STATE_VK,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
        .beta_form = a->beta_form,
        .gate = a->gate_form,
        .gate_fp32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
        .qk_l2norm = a->qk_l2norm,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_bwd_grad_args *a = (const gen_kda_bwd_grad_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t d = dims[KDA_HEAD_DIM], qk = gen__kda_qk_width(dims) * 2, v = heads * d;
    const int64_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t beta = (int64_t)gen__kda_beta_bytes(dims), slots = gen__kda_slots(dims);
    const int64_t states = (a->num_chunks ? a->num_chunks : slots) * v * d * 2;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads(&list[2], "v", a->v, tokens * v * 2);
    gen__reads(&list[3], "v_new", a->v_new, tokens * v * 2);
    gen__reads(&list[4], "gk", a->gk, tokens * v * 4);
    gen__reads_rows(&list[5], "g", a->g, v * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads(&list[6], "A_log", a->A_log, heads * 4);
    gen__reads(&list[7], "dt_bias", a->dt_bias, v * 4);
    gen__reads_rows(&list[8], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[9], "a_kk", a->a_kk, tokens * heads * KDA_CHUNK * 2);
    gen__reads(&list[10], "h", a->h, states);
    gen__reads(&list[11], "d_o", a->d_o, tokens * v * 2);
    gen__reads(&list[12], "d_h", a->d_h, states);
    gen__reads(&list[13], "d_v_new", a->d_v_new, tokens * v * 2);
    gen__reads(&list[14], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[15], "d_q", a->d_q, tokens * qk);
    gen__writes(&list[16], "d_k", a->d_k, tokens * qk);
    gen__writes(&list[17], "d_q_heads", a->d_q_heads, tokens * v * 4);
    gen__writes(&list[18], "d_k_heads", a->d_k_heads, tokens * v * 4);
    gen__writes(&list[19], "d_v", a->d_v, tokens * v * 2);
    list[19].may_be = a->v;
    gen__writes(&list[20], "d_g", a->d_g, tokens * v * g);
    gen__writes(&list[21], "d_beta", a->d_beta, tokens * heads * beta);
    gen__writes(&list[22], "partials", a->partials, GEN_KDA_BWD_GRAD_PARTIALS(slots, heads, d) * 4);
    gen__writes(&list[23], "sums", a->sums, GEN_KDA_BWD_GRAD_SUMS(d) * 4);
    return 24;
}

const struct gen__family gen__family_kda_bwd_grad = {
    .name = family,
    GEN__ONE_INDEX(kda_bwd_grad, cu_seqlens),
    .tag = GEN_KDA_BWD_GRAD,
    .problem_size = sizeof(gen_kda_bwd_grad_problem),
    .args_size = sizeof(gen_kda_bwd_grad_args),
    .params_size = sizeof(struct gen_kda_bwd_grad_params),
    .required = gen__kda_required,
    .num_required = KDA_NUM_REQUIRED,
    .facts = KDA_STAGE_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = gen__kda_stage_fields,
    .num_fields = KDA_STAGE_NUM_FIELDS,
    .check = check,
    .fits = gen__fits_always,
    .predict = predict,
    .plan = plan,
    .params = params,
    .extents = extents,
    .reference = gen__kda_bwd_grad_reference,
    .tensors = gen__kda_bwd_grad_tensors,
    .default_args = gen__kda_bwd_grad_default_args,
    .fill = gen__kda_bwd_grad_fill,
    .cost = gen__kda_bwd_grad_cost,
    .case_name = gen__kda_bwd_grad_case_name,
    .forms = gen__kda_bwd_grad_forms,
    .num_forms = GEN__KDA_BWD_GRAD_NUM_FORMS,
    .form = gen__kda_bwd_grad_form,
    .data = gen__kda_bwd_grad_data,
    .results = KDA_STAGE_RESULTS,
};
