/*
 * A stage of Kimi Delta Attention prefill, gates and norms, on the host: the geometry
 * of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda_gate/api.h"
#include "kda_gate/args.h"
#include "families/kda/stage.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_gate_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_gate";

/* Blocks of a chunk: value heads' gates, query heads' q and k. */
static int64_t units(const int32_t *dims)
{
    return dims[KDA_V_HEADS] + 2 * (int64_t)dims[KDA_QK_HEADS];
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, 0, key);
}

static uintptr_t gate_bytes(const int32_t *dims)
{
    return dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double tokens = (double)gen__kda_tokens(dims);
    const double gates = tokens * (double)gen__kda_v_width(dims);
    const double qk = tokens * (double)gen__kda_qk_width(dims);
    *bytes = gates * (4 + (double)gate_bytes(dims)) + 8 * qk + 8 * tokens * dims[KDA_QK_HEADS];
    *flops = gates * 5 + qk * 2 * 3;
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
    (void)device;
    gen__kda_stage_plan(base, variant, units(gen__kda_stage_dims(base)), plan);
}

static enum gen_status check_numbers(const gen_kda_gate_args *a)
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

/* q, k and what comes of them: all of them, or gates alone. */
static enum gen_status check_together(const gen_kda_gate_args *a)
{
    const bool wanted = a->q != NULL;
    if ((a->k != NULL) == wanted && (a->q_norm != NULL) == wanted && (a->k_norm != NULL) == wanted)
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: q = %p, k = %p, q_norm = %p, k_norm = %p; allowed: all of them or none",
                     family, a->q, a->k, a->q_norm, a->k_norm);
}

static enum gen_status check_rstd(const gen_kda_gate_args *a)
{
    if (a->q || (!a->q_rstd && !a->k_rstd))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: q_rstd = %p, k_rstd = %p without q and k; allowed: NULL", family,
                     (const void *)a->q_rstd, (const void *)a->k_rstd);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_gate_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"g", a->g, 16, false},
        {"A_log", a->A_log, 4, true},
        {"dt_bias", a->dt_bias, 16, true},
        {"q", a->q, 16, true},
        {"k", a->k, 16, true},
        {"gk", a->gk, 16, false},
        {"q_norm", a->q_norm, 16, true},
        {"k_norm", a->k_norm, 16, true},
        {"q_rstd", a->q_rstd, 4, true},
        {"k_rstd", a->k_rstd, 4, true},
    };
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    enum gen_status status;
    if ((status = check_numbers(a)) != GEN_OK ||
        (status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                sizeof list / sizeof *list)) != GEN_OK ||
        (status = check_together(a)) != GEN_OK || (status = check_rstd(a)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "g_stride", dims, a->g_stride, 8, v)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "q_stride", dims, a->q_stride, 8, qk)) != GEN_OK)
        return status;
    return gen__kda_check_stride(family, "k_stride", dims, a->k_stride, 8, qk);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_gate_args *a = (const gen_kda_gate_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    const struct gen_kda_gate_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, units(dims)),
        .g = a->g,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .q = a->q,
        .k = a->k,
        .gk = a->gk,
        .q_norm = a->q_norm,
        .k_norm = a->k_norm,
        .q_rstd = a->q_rstd,
        .k_rstd = a->k_rstd,
        .g_stride = a->g_stride ? a->g_stride : v,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .lower_bound = a->lower_bound,
        .gate = a->gate_form,
        .gate_fp32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: fp32 with fast functions; one rounding to 16 bits. */
static const double sum_tolerance = 1e-5, norm_tolerance = 0.0025;

enum tensor {
    G,
    A_LOG,
    DT_BIAS,
    Q,
    K,
    CU_SEQLENS,
    GK,
    Q_NORM,
    K_NORM,
    Q_RSTD,
    K_RSTD,
    NUM_TENSORS
};

#define TENSOR(...) GEN__TENSOR(gen_kda_gate_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = tokens * gen__kda_qk_width(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t qk_rows = tokens * dims[KDA_QK_HEADS];
    const enum gen_dtype g = (enum gen_dtype)dims[KDA_GATE_DTYPE];
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(g, g, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, gen__kda_v_width(dims))},
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(gk, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = sum_tolerance,
         .cold = true},
        {TENSOR(q_norm, dtype, GEN__OUT, GEN__FILL_POISON, 0, qk), .tolerance = norm_tolerance,
         .cold = true},
        {TENSOR(k_norm, dtype, GEN__OUT, GEN__FILL_POISON, 0, qk), .tolerance = norm_tolerance,
         .cold = true},
        {TENSOR(q_rstd, fp32, GEN__OUT, GEN__FILL_POISON, 0, qk_rows), .tolerance = sum_tolerance,
         .cold = true},
        {TENSOR(k_rstd, fp32, GEN__OUT, GEN__FILL_POISON, 0, qk_rows), .tolerance = sum_tolerance,
         .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_gate_args *a = (gen_kda_gate_args *)args;
    (void)base;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_GATE;
    a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
    a->lower_bound = -5.0f;
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
    FORM_ACTIVATED,
    FORM_BARE,
    FORM_GATES,
    FORM_STRIDES,
    FORM_LOOSE,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {"softplus", "activated", "bare",
                                             "gates",    "strides",   "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_gate_args *a = (gen_kda_gate_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_SOFTPLUS:
        a->gate_form = GEN_KDA_GATE_SOFTPLUS;
        return true;
    case FORM_ACTIVATED:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        t[G].fill = GEN__FILL_UNIFORM;
        t[G].amount = -5;
        t[A_LOG].count = t[DT_BIAS].count = 0;
        return true;
    case FORM_BARE:
        t[A_LOG].count = t[DT_BIAS].count = t[Q_RSTD].count = t[K_RSTD].count = 0;
        return true;
    case FORM_GATES:
        t[Q].count = t[K].count = t[Q_NORM].count = t[K_NORM].count = 0;
        t[Q_RSTD].count = t[K_RSTD].count = 0;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->q_stride = a->k_stride = s.qkv;
        a->g_stride = s.g;
        t[Q].count = t[K].count = s.qk_count;
        t[G].count = s.g_count;
        return true;
    }
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_gate_args *a = (const gen_kda_gate_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = gen__kda_qk_width(dims) * 2, v = gen__kda_v_width(dims) * 2;
    const int64_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t norms = tokens * dims[KDA_QK_HEADS] * 4;
    gen__reads_rows(&list[0], "g", a->g, v / 2 * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads(&list[1], "A_log", a->A_log, heads * 4);
    gen__reads(&list[2], "dt_bias", a->dt_bias, v * 2);
    gen__reads_rows(&list[3], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[4], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads(&list[5], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[6], "gk", a->gk, tokens * v * 2);
    gen__writes(&list[7], "q_norm", a->q_norm, tokens * qk);
    gen__writes(&list[8], "k_norm", a->k_norm, tokens * qk);
    gen__writes(&list[9], "q_rstd", a->q_rstd, norms);
    gen__writes(&list[10], "k_rstd", a->k_rstd, norms);
    return 11;
}

const struct gen__family gen__family_kda_gate = {
    GEN__KDA_STAGE(GEN_KDA_GATE, kda_gate),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
};
