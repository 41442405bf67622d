/*
 * A stage of the backward pass of Kimi Delta Attention, gradients of raw gates, on the host: the
 * geometry of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda_gate_bwd/api.h"
#include "kda_gate_bwd/args.h"
#include "families/kda/stage.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_gate_bwd_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_gate_bwd";

/* Without tokens there are sums to be written. */
static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const enum gen_status status = gen__kda_stage_check(family, base, 0, key);
    if (!status)
        key->empty = false;
    return status;
}

static uintptr_t gate_bytes(const int32_t *dims)
{
    return dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double gates = (double)gen__kda_tokens(dims) * (double)gen__kda_v_width(dims);
    /* The gate and its gradient, that of the activated one; a chunk's sums, written and read */
    *bytes = gates * (4 + 2 * (double)gate_bytes(dims)) +
             8.0 * (double)gen__kda_all_chunks(dims) * (double)gen__kda_v_width(dims);
    *flops = gates * 10;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    double bytes, flops;
    (void)variant;
    cost(base, &bytes, &flops);
    return gen__kda_stage_us(device, bytes);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const int64_t slots = gen__kda_slots(dims);
    (void)device;
    memcpy(plan->dims, dims, KDA_NUM_DIMS * sizeof *dims);
    plan->num_launches = 1;
    if (!variant)
        return;
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {(uint32_t)((slots ? slots : 1) * dims[KDA_V_HEADS]), 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(base->flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_STAGE_DEPENDENT],
    };
}

static enum gen_status check_form(const gen_kda_gate_bwd_args *a)
{
    if (a->gate_form < GEN_KDA_GATE_GIVEN || a->gate_form > GEN_KDA_GATE_LOWER_BOUND)
        return gen__invalid(family, "gate_form", a->gate_form,
                            "GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
                            "GEN_KDA_GATE_LOWER_BOUND (2)");
    if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND &&
        !(a->lower_bound >= -5.0f && a->lower_bound < 0.0f))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: lower_bound = %g; allowed: -5 <= lower_bound < 0", family,
                         (double)a->lower_bound);
    if (a->suffix_sum != 0 && a->suffix_sum != 1)
        return gen__invalid(family, "suffix_sum", a->suffix_sum, "0, 1");
    if (a->gate_form == GEN_KDA_GATE_GIVEN && (a->A_log || a->dt_bias))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log = %p, dt_bias = %p with the gate GEN_KDA_GATE_GIVEN; allowed: "
                         "NULL",
                         family, (const void *)a->A_log, (const void *)a->dt_bias);
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: "
                         "num_v_heads numbers",
                         family);
    return GEN_OK;
}

/* Sums of what is there, and memory for them. They are written without tokens, too. */
static enum gen_status check_sums(const gen_kda_gate_bwd_args *a)
{
    const bool wanted = a->d_A_log || a->d_dt_bias;
    enum gen_status status;
    if (a->d_A_log && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: d_A_log = %p without A_log; allowed: NULL", family,
                         (const void *)a->d_A_log);
    if (a->d_dt_bias && !a->dt_bias)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: d_dt_bias = %p without dt_bias; allowed: NULL", family,
                         (const void *)a->d_dt_bias);
    if ((status = gen__check_pointer(family, "d_A_log", a->d_A_log, 4, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "d_dt_bias", a->d_dt_bias, 16, true)) != GEN_OK)
        return status;
    return gen__check_pointer(family, "partials", a->partials, 16, !wanted);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_gate_bwd_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"g", a->g, 16, a->gate_form == GEN_KDA_GATE_GIVEN},
        {"A_log", a->A_log, 4, true},
        {"dt_bias", a->dt_bias, 16, true},
        {"d_gk", a->d_gk, 16, false},
        {"d_g", a->d_g, 16, false},
    };
    const int64_t width = gen__kda_v_width(dims);
    enum gen_status status;
    if ((status = check_form(a)) != GEN_OK ||
        (status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                sizeof list / sizeof *list)) != GEN_OK ||
        (status = check_sums(a)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "g_stride", dims, a->g_stride, 8, width)) != GEN_OK)
        return status;
    return gen__kda_check_stride(family, "d_g_stride", dims, a->d_g_stride, 8, width);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_gate_bwd_args *a = (const gen_kda_gate_bwd_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const int64_t width = gen__kda_v_width(dims);
    const bool wanted = a->d_A_log || a->d_dt_bias;
    float *const sums = wanted ? a->partials : NULL;
    const int64_t count = gen__kda_slots(dims) * dims[KDA_V_HEADS] * (dims[KDA_HEAD_DIM] + 4);
    const struct gen_kda_gate_bwd_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .g = a->g,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .d_gk = a->d_gk,
        .d_g = a->d_g,
        .d_A_log = a->d_A_log,
        .d_dt_bias = a->d_dt_bias,
        .tickets = wanted ? (unsigned long long *)(void *)(sums + count) : NULL,
        .sums = sums,
        .g_stride = a->g_stride ? a->g_stride : width,
        .d_g_stride = a->d_g_stride ? a->d_g_stride : width,
        .lower_bound = a->lower_bound,
        .gate = a->gate_form,
        .gate_fp32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
        .suffix_sum = a->suffix_sum,
        .num_slots = (int32_t)gen__kda_slots(dims),
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: one rounding to 16 bits; sums in fp32 with fast functions. */
static const double rounded_tolerance = 0.0025, sum_tolerance = 2e-5;

enum tensor { G, A_LOG, DT_BIAS, D_GK, CU_SEQLENS, D_G, D_A_LOG, D_DT_BIAS, PARTIALS, NUM_TENSORS };

#define TENSOR(...) GEN__TENSOR(gen_kda_gate_bwd_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype g = (enum gen_dtype)dims[KDA_GATE_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t heads = dims[KDA_V_HEADS], width = gen__kda_v_width(dims);
    const int64_t v = gen__kda_tokens(dims) * width;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t bytes =
        GEN_KDA_GATE_BWD_PARTIALS(gen__kda_slots(dims), heads, dims[KDA_HEAD_DIM]);
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(g, g, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, width)},
        {TENSOR(d_gk, fp32, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_g, g, GEN__OUT, GEN__FILL_POISON, 0, v),
         .tolerance = g == GEN_DTYPE_FP32 ? sum_tolerance : rounded_tolerance, .cold = true},
        {TENSOR(d_A_log, fp32, GEN__OUT, GEN__FILL_POISON, 0, heads), .tolerance = sum_tolerance},
        {TENSOR(d_dt_bias, fp32, GEN__OUT, GEN__FILL_POISON, 0, width), .tolerance = sum_tolerance},
        {TENSOR(partials, fp32, GEN__OUT, GEN__FILL_POISON, 0, bytes / 4),
         .tolerance = sum_tolerance},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_gate_bwd_args *a = (gen_kda_gate_bwd_args *)args;
    (void)base;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_GATE_BWD;
    a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
    a->lower_bound = -5.0f;
    a->suffix_sum = 1;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    (void)args;
    gen__kda_fill(gen__kda_stage_dims(base), &list[CU_SEQLENS], options, data[CU_SEQLENS]);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form {
    FORM_SOFTPLUS,
    FORM_GIVEN,
    FORM_BARE,
    FORM_SUMMED,
    FORM_GREAT,
    FORM_STRIDES,
    FORM_LOOSE,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {"softplus", "given",   "bare", "summed",
                                             "great",    "strides", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_gate_bwd_args *a = (gen_kda_gate_bwd_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_SOFTPLUS:
        a->gate_form = GEN_KDA_GATE_SOFTPLUS;
        return true;
    case FORM_GIVEN:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        t[G].count = t[A_LOG].count = t[DT_BIAS].count = 0;
        t[D_A_LOG].count = t[D_DT_BIAS].count = t[PARTIALS].count = 0;
        return true;
    case FORM_BARE: /* the lower bound alone: a = 1, and no sums */
        t[A_LOG].count = t[DT_BIAS].count = 0;
        t[D_A_LOG].count = t[D_DT_BIAS].count = t[PARTIALS].count = 0;
        return true;
    case FORM_SUMMED:
        a->suffix_sum = 0;
        return true;
    case FORM_GREAT: /* gates at both ends of the sigmoid */
        t[G].amount = 30;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->g_stride = a->d_g_stride = s.g;
        t[G].count = t[D_G].count = s.g_count;
        return true;
    }
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* Gradients of one sign: nothing of the sums over tokens cancels. */
static bool hard_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                      struct gen__tensor *t)
{
    (void)base, (void)args;
    if (kind != GEN__DATA_MEAN1)
        return false;
    t[D_GK].mean = 1.0;
    return true;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_gate_bwd_args *a = (const gen_kda_gate_bwd_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t v = gen__kda_v_width(dims), g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    gen__reads_rows(&list[0], "g", a->g, v * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads(&list[1], "A_log", a->A_log, heads * 4);
    gen__reads(&list[2], "dt_bias", a->dt_bias, v * 4);
    gen__reads(&list[3], "d_gk", a->d_gk, tokens * v * 4);
    gen__reads(&list[4], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes_rows(&list[5], "d_g", a->d_g, v * g, tokens, gen__stride_bytes(a->d_g_stride, g));
    gen__writes(&list[6], "d_A_log", a->d_A_log, heads * 4);
    gen__writes(&list[7], "d_dt_bias", a->d_dt_bias, v * 4);
    gen__writes(
        &list[8], "partials", a->partials,
        (int64_t)GEN_KDA_GATE_BWD_PARTIALS(gen__kda_slots(dims), heads, dims[KDA_HEAD_DIM]));
    return 9;
}

const struct gen__family gen__family_kda_gate_bwd = {
    GEN__KDA_STAGE(GEN_KDA_GATE_BWD, kda_gate_bwd),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
    .data = hard_data,
};
