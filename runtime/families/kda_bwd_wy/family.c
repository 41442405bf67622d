/*
 * A stage of the backward pass of Kimi Delta Attention, gradients of a chunk's inputs from
 * those of its states, on the host: the geometry of a launch, its parameters, and what the tuner
 * and the tests need.
 */
#include "families/kda_bwd_wy/api.h"
#include "kda_bwd_wy/args.h"
#include "families/kda/stage.h"
#include "reference/data.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_bwd_wy_reference(const gen_plan *plan, const gen_args *args);

enum fact { DEPENDENT, WGMMA };

static const char family[] = "kda_bwd_wy";

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, 0, key);
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    /* q, k; v, v_new, d_o, d_v_new, d_v; gk, d_q, d_k, d_g; A_kk and A's gradient; both states */
    *bytes = (double)gen__kda_tokens(dims) *
                 (dims[KDA_QK_HEADS] * 4 * d + heads * ((5 * 2 + 4 * 4) * d + KDA_CHUNK * (2 + 4) +
                                                        4 + (double)gen__kda_beta_bytes(dims))) +
             tiles * d * d * 4;
    *flops = tiles * (2 * 10 * 256 * d * 2 + 3 * KDA_CHUNK * d * d * 2);
}

/* On an H200 the mma kernel has half of the rate that memory is seen to reach: it waits for its
 * states. The wgmma kernel loads them ahead. */
static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    double bytes, flops;
    cost(base, &bytes, &flops);
    return gen__kda_stage_us(device, variant->fact[WGMMA] ? bytes : 2 * bytes);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    (void)device;
    gen__kda_stage_plan(base, variant, gen__kda_stage_dims(base)[KDA_V_HEADS], plan);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_bwd_wy_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, false},
        {"k", a->k, 16, false},
        {"v", a->v, 16, false},
        {"v_new", a->v_new, 16, false},
        {"gk", a->gk, 16, false},
        {"beta", a->beta, gen__kda_beta_bytes(dims), false},
        {"a_kk", a->a_kk, 16, false},
        {"h", a->h, 16, false},
        {"d_o", a->d_o, 16, false},
        {"d_h", a->d_h, 16, false},
        {"d_v_new", a->d_v_new, 16, false},
        {"d_q", a->d_q, 16, false},
        {"d_k", a->d_k, 16, false},
        {"d_v", a->d_v, 16, false},
        {"d_beta", a->d_beta, 4, false},
        {"d_g", a->d_g, 16, false},
        {"d_a_kk", a->d_a_kk, 16, false},
    };
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if (a->num_chunks < 0)
        return gen__invalid(family, "num_chunks", a->num_chunks, "0 (all), or more");
    if (a->state_layout != GEN_KDA_STATE_KV && a->state_layout != GEN_KDA_STATE_VK)
        return gen__invalid(family, "state_layout", a->state_layout,
                            "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    return gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                         sizeof list / sizeof *list);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_bwd_wy_args *a = (const gen_kda_bwd_wy_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen_kda_bwd_wy_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .v_new = a->v_new,
        .gk = a->gk,
        .beta = a->beta,
        .a_kk = a->a_kk,
        .h = a->h,
        .d_o = a->d_o,
        .d_h = a->d_h,
        .d_v_new = a->d_v_new,
        .d_q = a->d_q,
        .d_k = a->d_k,
        .d_v = a->d_v,
        .d_beta = a->d_beta,
        .d_g = a->d_g,
        .d_a_kk = a->d_a_kk,
        .scale = a->scale,
        .num_chunks = a->num_chunks ? a->num_chunks : (int32_t)gen__kda_slots(dims),
        .state_vk = a->state_layout == GEN_KDA_STATE_VK,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: of sums of exact products in fp32, and of what d_r is rounded for. */
static const double exact_tolerance = 1e-5, rounded_tolerance = 0.005;

enum tensor {
    Q,
    K,
    V,
    V_NEW,
    GK,
    BETA,
    A_KK,
    H,
    D_O,
    D_H,
    D_V_NEW,
    CU_SEQLENS,
    D_Q,
    D_K,
    D_V,
    D_BETA,
    D_G,
    D_A_KK,
    NUM_TENSORS
};

#define TENSOR(...) GEN__TENSOR(gen_kda_bwd_wy_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype beta_dtype = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const int64_t tokens = gen__kda_tokens(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t qk = tokens * gen__kda_qk_width(dims), betas = tokens * dims[KDA_V_HEADS];
    const int64_t scores = betas * KDA_CHUNK, cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t states = gen__kda_slots(dims) * gen__kda_v_width(dims) * dims[KDA_HEAD_DIM];
    const double unit = 1.0 / sqrt((double)dims[KDA_HEAD_DIM]); /* rows of length 1 */
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(v_new, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(beta, beta_dtype, GEN__IN, GEN__FILL_UNIFORM, 1, betas), .cold = true},
        {TENSOR(a_kk, dtype, GEN__IN, GEN__FILL_FAMILY, 0, scores), .cold = true},
        {TENSOR(h, dtype, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(d_o, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_h, dtype, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(d_v_new, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_q, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = exact_tolerance,
         .cold = true},
        {TENSOR(d_k, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = rounded_tolerance,
         .cold = true},
        {TENSOR(d_v, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = rounded_tolerance,
         .cold = true},
        {TENSOR(d_beta, fp32, GEN__OUT, GEN__FILL_POISON, 0, betas), .tolerance = rounded_tolerance,
         .cold = true},
        {TENSOR(d_g, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = rounded_tolerance,
         .cold = true},
        {TENSOR(d_a_kk, fp32, GEN__OUT, GEN__FILL_POISON, 0, scores),
         .tolerance = rounded_tolerance, .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_bwd_wy_args *a = (gen_kda_bwd_wy_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_BWD_WY;
    a->scale = 1.0f / sqrtf((float)gen__kda_stage_dims(base)[KDA_HEAD_DIM]);
    a->state_layout = GEN_KDA_STATE_KV;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const struct gen__kda_stage_inputs inputs = {.cu_tensor = &list[CU_SEQLENS],
                                                 .cu_seqlens = data[CU_SEQLENS],
                                                 .gk = data[GK],
                                                 .a_kk = data[A_KK],
                                                 .a_kk_open = true};
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form { FORM_VK, FORM_FEW, FORM_LOOSE, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"vk", "few", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_bwd_wy_args *a = (gen_kda_bwd_wy_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_FEW: /* there are two chunks' states */
        a->num_chunks = 2;
        t[H].count = t[D_H].count =
            2 * (uint64_t)(gen__kda_v_width(dims) * (int64_t)dims[KDA_HEAD_DIM]);
        return gen__kda_slots(dims) > 2;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* Values and gradients of one sign, or gradients scaled up as a loss scale does. */
static bool hard_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                      struct gen__tensor *t)
{
    (void)args;
    switch (kind) {
    case GEN__DATA_MEAN1:
        t[V].mean = t[V_NEW].mean = t[D_O].mean = t[D_V_NEW].mean = 1.0;
        return true;
    case GEN__DATA_EXTREME: { /* d_r stays below the type's greatest number */
        const enum gen_dtype dtype = (enum gen_dtype)gen__kda_stage_dims(base)[KDA_DTYPE];
        t[D_O].amount = t[D_H].amount = t[D_V_NEW].amount =
            gen__data_extreme(dtype) / (4 * GEN__DATA_MOST_NORMAL);
        return true;
    }
    default:
        return false;
    }
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_bwd_wy_args *a = (const gen_kda_bwd_wy_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = tokens * gen__kda_qk_width(dims) * 2,
                  v = tokens * gen__kda_v_width(dims) * 2;
    const int64_t chunks = a->num_chunks ? a->num_chunks : gen__kda_slots(dims);
    const int64_t states = chunks * heads * dims[KDA_HEAD_DIM] * dims[KDA_HEAD_DIM] * 2;
    const int64_t matrix = tokens * heads * KDA_CHUNK;
    gen__reads(&list[0], "q", a->q, qk);
    gen__reads(&list[1], "k", a->k, qk);
    gen__reads(&list[2], "v", a->v, v);
    gen__reads(&list[3], "v_new", a->v_new, v);
    gen__reads(&list[4], "gk", a->gk, v * 2);
    gen__reads(&list[5], "beta", a->beta, tokens * heads * (int64_t)gen__kda_beta_bytes(dims));
    gen__reads(&list[6], "a_kk", a->a_kk, matrix * 2);
    gen__reads(&list[7], "h", a->h, states);
    gen__reads(&list[8], "d_o", a->d_o, v);
    gen__reads(&list[9], "d_h", a->d_h, states);
    gen__reads(&list[10], "d_v_new", a->d_v_new, v);
    gen__reads(&list[11], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[12], "d_q", a->d_q, v * 2);
    gen__writes(&list[13], "d_k", a->d_k, v * 2);
    gen__writes(&list[14], "d_v", a->d_v, v);
    list[14].may_be = a->v;
    gen__writes(&list[15], "d_beta", a->d_beta, tokens * heads * 4);
    gen__writes(&list[16], "d_g", a->d_g, v * 2);
    gen__writes(&list[17], "d_a_kk", a->d_a_kk, matrix * 4);
    return 18;
}

const struct gen__family gen__family_kda_bwd_wy = {
    GEN__KDA_FAMILY(GEN_KDA_BWD_WY, kda_bwd_wy),
    GEN__ONE_INDEX(kda_bwd_wy, cu_seqlens),
    .facts = "dependent,wgmma",
    .coords = gen__kda_stage_coords,
    .num_coords = 1,
    .fields = gen__kda_stage_fields,
    .num_fields = KDA_STAGE_NUM_FIELDS,
    .results = KDA_STAGE_RESULTS,
    .params_size = sizeof(struct gen_kda_bwd_wy_params),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
    .data = hard_data,
};
