/*
 * A stage of the backward pass of Kimi Delta Attention, gradients of raw q, k and beta, on the
 * host: the geometry of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda_qk_bwd/api.h"
#include "kda_qk_bwd/args.h"
#include "families/kda/stage.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_qk_bwd_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_qk_bwd";

/* Blocks of a chunk: query heads' q and k, and all betas. */
static int64_t units(const int32_t *dims)
{
    return 2 * (int64_t)dims[KDA_QK_HEADS] + 1;
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, 0, key);
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double tokens = (double)gen__kda_tokens(dims);
    const double qk = 2 * tokens * (double)gen__kda_qk_width(dims);
    const double v = 2 * tokens * (double)gen__kda_v_width(dims);
    /* Rows and their gradients, those of value heads; beta, its gradients */
    *bytes =
        4 * qk + 4 * v + tokens * dims[KDA_V_HEADS] * (4 + 2 * (double)gen__kda_beta_bytes(dims));
    *flops = v + 6 * qk;
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

static enum gen_status check_forms(const gen_kda_qk_bwd_args *a)
{
    if (a->qk_l2norm != 0 && a->qk_l2norm != 1)
        return gen__invalid(family, "qk_l2norm", a->qk_l2norm, "0, 1");
    if (a->beta_form < GEN_KDA_BETA_GIVEN || a->beta_form > GEN_KDA_BETA_TWO_SIGMOID)
        return gen__invalid(family, "beta_form", a->beta_form,
                            "GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
                            "GEN_KDA_BETA_TWO_SIGMOID (2)");
    if ((a->q_rstd || a->k_rstd) && !a->qk_l2norm)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: q_rstd = %p, k_rstd = %p without qk_l2norm; allowed: NULL", family,
                         (const void *)a->q_rstd, (const void *)a->k_rstd);
    return GEN_OK;
}

static enum gen_status check_strides(const int32_t *dims, const gen_kda_qk_bwd_args *a)
{
    const int64_t qk = gen__kda_qk_width(dims), heads = dims[KDA_V_HEADS];
    const struct {
        const char *name;
        int64_t stride, unit, width;
    } list[] = {
        {"q_stride", a->q_stride, 8, qk},          {"k_stride", a->k_stride, 8, qk},
        {"beta_stride", a->beta_stride, 1, heads}, {"d_q_stride", a->d_q_stride, 8, qk},
        {"d_k_stride", a->d_k_stride, 8, qk},      {"d_beta_stride", a->d_beta_stride, 1, heads},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const enum gen_status status = gen__kda_check_stride(
            family, list[i].name, dims, list[i].stride, list[i].unit, list[i].width);
        if (status)
            return status;
    }
    return GEN_OK;
}

/* What is not wanted needs no inputs. */
static enum gen_status check_args(const int32_t *dims, const gen_kda_qk_bwd_args *a)
{
    const bool norm = a->qk_l2norm == 1, active = a->beta_form != GEN_KDA_BETA_GIVEN;
    const uintptr_t beta = gen__kda_beta_bytes(dims);
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, !a->d_q || !norm},
        {"k", a->k, 16, !a->d_k || !norm},
        {"q_rstd", a->q_rstd, 4, true},
        {"k_rstd", a->k_rstd, 4, true},
        {"beta", a->beta, beta, !a->d_beta || !active},
        {"d_q_heads", a->d_q_heads, 16, !a->d_q},
        {"d_k_heads", a->d_k_heads, 16, !a->d_k},
        {"d_beta_heads", a->d_beta_heads, 4, !a->d_beta},
        {"d_q", a->d_q, 16, true},
        {"d_k", a->d_k, 16, true},
        {"d_beta", a->d_beta, beta, true},
    };
    enum gen_status status;
    if ((status = check_forms(a)) != GEN_OK ||
        (status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                sizeof list / sizeof *list)) != GEN_OK)
        return status;
    return check_strides(dims, a);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_qk_bwd_args *a = (const gen_kda_qk_bwd_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const int64_t qk = gen__kda_qk_width(dims), heads = dims[KDA_V_HEADS];
    const struct gen_kda_qk_bwd_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, units(dims)),
        .q = {.x = a->qk_l2norm ? a->q : NULL,
              .rstd = a->q_rstd,
              .d_heads = a->d_q_heads,
              .d_x = a->d_q,
              .stride = a->q_stride ? a->q_stride : qk,
              .d_stride = a->d_q_stride ? a->d_q_stride : qk},
        .k = {.x = a->qk_l2norm ? a->k : NULL,
              .rstd = a->k_rstd,
              .d_heads = a->d_k_heads,
              .d_x = a->d_k,
              .stride = a->k_stride ? a->k_stride : qk,
              .d_stride = a->d_k_stride ? a->d_k_stride : qk},
        .beta = a->beta,
        .d_beta_heads = a->d_beta_heads,
        .d_beta = a->d_beta,
        .beta_stride = a->beta_stride ? a->beta_stride : heads,
        .d_beta_stride = a->d_beta_stride ? a->d_beta_stride : heads,
        .beta_form = a->beta_form,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
        .group = dims[KDA_V_HEADS] / dims[KDA_QK_HEADS],
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: one rounding to 16 bits, and that of y, whose multiple is taken away;
 * fp32 with fast functions. */
static const double rounded_tolerance = 0.003, exact_tolerance = 1e-5;

enum tensor {
    Q,
    K,
    Q_RSTD,
    K_RSTD,
    BETA,
    D_Q_HEADS,
    D_K_HEADS,
    D_BETA_HEADS,
    CU_SEQLENS,
    D_Q,
    D_K,
    D_BETA,
    NUM_TENSORS
};

#define TENSOR(...) GEN__TENSOR(gen_kda_qk_bwd_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype beta = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const int64_t tokens = gen__kda_tokens(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t qk = tokens * gen__kda_qk_width(dims), betas = tokens * dims[KDA_V_HEADS];
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const double beta_tolerance = beta == fp32 ? exact_tolerance : rounded_tolerance;
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(q_rstd, fp32, GEN__IN, GEN__FILL_UNIFORM, 1, 0)}, /* of a form alone */
        {TENSOR(k_rstd, fp32, GEN__IN, GEN__FILL_UNIFORM, 1, 0)},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_NORMAL, 2, betas), .cold = true},
        {TENSOR(d_q_heads, fp32, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_k_heads, fp32, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_beta_heads, fp32, GEN__IN, GEN__FILL_NORMAL, 1, betas), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_q, dtype, GEN__OUT, GEN__FILL_POISON, 0, qk), .tolerance = rounded_tolerance,
         .cold = true},
        {TENSOR(d_k, dtype, GEN__OUT, GEN__FILL_POISON, 0, qk), .tolerance = rounded_tolerance,
         .cold = true},
        {TENSOR(d_beta, beta, GEN__OUT, GEN__FILL_POISON, 0, betas), .tolerance = beta_tolerance,
         .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_qk_bwd_args *a = (gen_kda_qk_bwd_args *)args;
    (void)base;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_QK_BWD;
    a->qk_l2norm = 1;
    a->beta_form = GEN_KDA_BETA_SIGMOID;
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
    FORM_GIVEN,
    FORM_RSTD,
    FORM_TWICE,
    FORM_KEYS,
    FORM_BETAS,
    FORM_ZEROS,
    FORM_STRIDES,
    FORM_LOOSE,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {"given", "rstd",  "twice",   "keys",
                                             "betas", "zeros", "strides", "loose"};

static void without(struct gen__tensor *t, const int *list, int count)
{
    for (int i = 0; i < count; i++)
        t[list[i]].count = 0;
}

static void strided(const int32_t *dims, gen_kda_qk_bwd_args *a, struct gen__tensor *t)
{
    const struct gen__kda_strides s = gen__kda_stride_form(dims);
    a->q_stride = a->k_stride = a->d_q_stride = a->d_k_stride = s.qkv;
    a->beta_stride = a->d_beta_stride = s.beta;
    t[Q].count = t[K].count = t[D_Q].count = t[D_K].count = s.qk_count;
    t[BETA].count = t[D_BETA].count = s.beta_count;
}

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_qk_bwd_args *a = (gen_kda_qk_bwd_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_GIVEN: /* sums over groups alone */
        a->qk_l2norm = 0;
        a->beta_form = GEN_KDA_BETA_GIVEN;
        without(t, (const int[]){Q, K, BETA}, 3);
        return true;
    case FORM_RSTD: /* rows whose norms are not 1 show which numbers count */
        t[Q_RSTD].count = t[K_RSTD].count = (uint64_t)(gen__kda_tokens(dims) * dims[KDA_QK_HEADS]);
        t[Q].amount = t[K].amount = 0.5 / sqrt((double)dims[KDA_HEAD_DIM]);
        return true;
    case FORM_TWICE: /* far on both sides, where a sigmoid has no digits below 1 */
        a->beta_form = GEN_KDA_BETA_TWO_SIGMOID;
        t[BETA].amount = 8;
        return true;
    case FORM_KEYS:
        without(t, (const int[]){Q, BETA, D_Q_HEADS, D_BETA_HEADS, D_Q, D_BETA}, 6);
        return true;
    case FORM_BETAS:
        without(t, (const int[]){Q, K, D_Q_HEADS, D_K_HEADS, D_Q, D_K}, 6);
        return true;
    case FORM_ZEROS: /* rows without a direction: rstd is 1000 */
        t[Q].amount = t[K].amount = 0;
        return true;
    case FORM_STRIDES:
        strided(dims, a, t);
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* A group's gradients of one sign, along rows that are one direction: the norm takes most of it
 * away. */
static bool hard_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                      struct gen__tensor *t)
{
    (void)base, (void)args;
    if (kind != GEN__DATA_MEAN1)
        return false;
    t[Q].mean = t[K].mean = 1.0;
    t[D_Q_HEADS].mean = t[D_K_HEADS].mean = 1.0;
    return true;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_qk_bwd_args *a = (const gen_kda_qk_bwd_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = gen__kda_qk_width(dims) * 2, v = gen__kda_v_width(dims) * 4;
    const int64_t beta = (int64_t)gen__kda_beta_bytes(dims),
                  norms = tokens * dims[KDA_QK_HEADS] * 4;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads(&list[2], "q_rstd", a->q_rstd, norms);
    gen__reads(&list[3], "k_rstd", a->k_rstd, norms);
    gen__reads_rows(&list[4], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[5], "d_q_heads", a->d_q_heads, tokens * v);
    gen__reads(&list[6], "d_k_heads", a->d_k_heads, tokens * v);
    gen__reads(&list[7], "d_beta_heads", a->d_beta_heads, tokens * heads * 4);
    gen__reads(&list[8], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes_rows(&list[9], "d_q", a->d_q, qk, tokens, gen__stride_bytes(a->d_q_stride, 2));
    gen__writes_rows(&list[10], "d_k", a->d_k, qk, tokens, gen__stride_bytes(a->d_k_stride, 2));
    gen__writes_rows(&list[11], "d_beta", a->d_beta, heads * beta, tokens,
                     gen__stride_bytes(a->d_beta_stride, beta));
    return 12;
}

const struct gen__family gen__family_kda_qk_bwd = {
    GEN__KDA_STAGE(GEN_KDA_QK_BWD, kda_qk_bwd),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
    .data = hard_data,
};
