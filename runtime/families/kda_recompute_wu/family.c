/*
 * A stage of Kimi Delta Attention prefill, w and u from the inverse, on the host: the
 * geometry of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda/stage.h"
#include "families/kda_recompute_wu/api.h"
#include "kda_recompute_wu/args.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_recompute_wu_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_recompute_wu";

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, 0, key);
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tokens = (double)gen__kda_tokens(dims);
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    *bytes = tokens * (dims[KDA_QK_HEADS] * 2 * d + heads * (d * (2 + 4 + 6) + 2 * KDA_CHUNK +
                                                             (double)gen__kda_beta_bytes(dims)));
    /* Ten of the sixteen blocks of the inverse. */
    *flops = tiles * (10 * 256 * d * 2 * 2);
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
    gen__kda_stage_plan(base, variant, gen__kda_stage_dims(base)[KDA_V_HEADS], plan);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_recompute_wu_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, !a->qg},
        {"k", a->k, 16, false},
        {"v", a->v, 16, false},
        {"gk", a->gk, 16, false},
        {"beta", a->beta, gen__kda_beta_bytes(dims), false},
        {"a_kk", a->a_kk, 16, false},
        {"w", a->w, 16, false},
        {"u", a->u, 16, false},
        {"kg", a->kg, 16, true},
        {"qg", a->qg, 16, true},
    };
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    enum gen_status status;
    if ((status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                sizeof list / sizeof *list)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "q_stride", dims, a->q_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "k_stride", dims, a->k_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "v_stride", dims, a->v_stride, 8, v)) != GEN_OK)
        return status;
    return gen__kda_check_stride(family, "beta_stride", dims, a->beta_stride, 1, dims[KDA_V_HEADS]);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_recompute_wu_args *a = (const gen_kda_recompute_wu_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    const struct gen_kda_recompute_wu_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .gk = a->gk,
        .beta = a->beta,
        .a_kk = a->a_kk,
        .w = a->w,
        .u = a->u,
        .kg = a->kg,
        .qg = a->qg,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .v_stride = a->v_stride ? a->v_stride : v,
        .beta_stride = a->beta_stride ? a->beta_stride : dims[KDA_V_HEADS],
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: two operands rounded to 16 bits and their product's rounding; one
 * rounding. */
static const double product_tolerance = 0.006, operand_tolerance = 0.004;

enum tensor { Q, K, V, GK, BETA, A_KK, CU_SEQLENS, W, U, KG, QG, NUM_TENSORS };

#define TENSOR(...) GEN__TENSOR(gen_kda_recompute_wu_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = tokens * gen__kda_qk_width(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const enum gen_dtype beta = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const double unit = 1.0 / sqrt((double)dims[KDA_HEAD_DIM]); /* rows as the norm leaves them */
    const uint32_t row = (uint32_t)(KDA_CHUNK * gen__kda_v_width(dims)); /* about a chunk */
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, unit, 0), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_UNIFORM, 1, tokens * heads), .cold = true},
        {TENSOR(a_kk, dtype, GEN__IN, GEN__FILL_FAMILY, 0, tokens * heads * KDA_CHUNK),
         .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(w, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = product_tolerance,
         .row_tolerance = 3 * product_tolerance, .row = row, .cold = true},
        {TENSOR(u, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = product_tolerance,
         .row_tolerance = 3 * product_tolerance, .row = row, .cold = true},
        {TENSOR(kg, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = operand_tolerance,
         .cold = true},
        {TENSOR(qg, dtype, GEN__OUT, GEN__FILL_POISON, 0, 0), .tolerance = operand_tolerance,
         .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_recompute_wu_args *a = (gen_kda_recompute_wu_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_RECOMPUTE_WU;
    (void)base;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const struct gen__kda_stage_inputs inputs = {
        .cu_tensor = &list[CU_SEQLENS],
        .cu_seqlens = data[CU_SEQLENS],
        .gk = data[GK],
        .a_kk = data[A_KK],
    };
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form { FORM_BARE, FORM_QG, FORM_STRIDES, FORM_LOOSE, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"bare", "qg", "strides", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_recompute_wu_args *a = (gen_kda_recompute_wu_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_BARE:
        t[KG].count = 0;
        return true;
    case FORM_QG:
        t[Q].count = t[K].count;
        t[QG].count = t[KG].count;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->q_stride = a->k_stride = a->v_stride = s.qkv;
        a->beta_stride = s.beta;
        t[Q].count = t[K].count = s.qk_count;
        t[QG].count = t[KG].count;
        t[V].count = s.v_count;
        t[BETA].count = s.beta_count;
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
    const gen_kda_recompute_wu_args *a = (const gen_kda_recompute_wu_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = gen__kda_qk_width(dims) * 2, v = gen__kda_v_width(dims) * 2;
    const int64_t beta = (int64_t)gen__kda_beta_bytes(dims),
                  matrix = tokens * heads * KDA_CHUNK * 2;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v, tokens, gen__stride_bytes(a->v_stride, 2));
    gen__reads(&list[3], "gk", a->gk, tokens * v * 2);
    gen__reads_rows(&list[4], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[5], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__reads(&list[6], "a_kk", a->a_kk, matrix);
    gen__writes(&list[7], "w", a->w, tokens * v);
    gen__writes(&list[8], "u", a->u, tokens * v);
    gen__writes(&list[9], "kg", a->kg, tokens * v);
    gen__writes(&list[10], "qg", a->qg, tokens * v);
    return 11;
}

const struct gen__family gen__family_kda_recompute_wu = {
    GEN__KDA_STAGE(GEN_KDA_RECOMPUTE_WU, kda_recompute_wu),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
};
