/*
 * A stage of Kimi Delta Attention prefill, inside a chunk, on the host: the geometry
 * of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda/stage.h"

#include <math.h>
#include <string.h>

static const char family[] = "kda_chunk_intra";

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, (uint32_t)gen__kda_stage_dims(base)[KDA_SAFE_GATE],
                                key);
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tokens = (double)gen__kda_tokens(dims);
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    *bytes = tokens * (dims[KDA_QK_HEADS] * 4 * d + heads * (d * (2 + 4 + 6) + 4 * KDA_CHUNK +
                                                             (double)gen__kda_beta_bytes(dims)));
    /* Ten of the sixteen blocks of both score matrices and of the inverse's products. */
    *flops = tiles * (10 * 256 * d * 2 * 4 + 2 * 64 * 64 * 16);
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

/* w, u, kg: all of them, or A_qk and A_kk alone. */
static enum gen_status check_together(const gen_kda_chunk_intra_args *a)
{
    const bool wanted = a->w != NULL;
    if ((a->u != NULL) == wanted && (a->kg != NULL) == wanted && (a->v != NULL || !wanted))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: w = %p, u = %p, kg = %p, v = %p; allowed: all of them, or w, u and kg "
                     "all NULL",
                     family, a->w, a->u, a->kg, a->v);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_chunk_intra_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, false},
        {"k", a->k, 16, false},
        {"v", a->v, 16, true},
        {"gk", a->gk, 16, false},
        {"beta", a->beta, gen__kda_beta_bytes(dims), false},
        {"a_qk", a->a_qk, 16, false},
        {"a_kk", a->a_kk, 16, false},
        {"w", a->w, 16, true},
        {"u", a->u, 16, true},
        {"kg", a->kg, 16, true},
        {"qg", a->qg, 16, true},
    };
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    enum gen_status status;
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if ((status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                sizeof list / sizeof *list)) != GEN_OK ||
        (status = check_together(a)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "q_stride", dims, a->q_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "k_stride", dims, a->k_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "v_stride", dims, a->v_stride, 8, v)) != GEN_OK)
        return status;
    return gen__kda_check_stride(family, "beta_stride", dims, a->beta_stride, 1, dims[KDA_V_HEADS]);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_chunk_intra_args *a = (const gen_kda_chunk_intra_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    const struct gen_kda_chunk_intra_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .gk = a->gk,
        .beta = a->beta,
        .a_qk = a->a_qk,
        .a_kk = a->a_kk,
        .w = a->w,
        .u = a->u,
        .kg = a->kg,
        .qg = a->qg,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .v_stride = a->v_stride ? a->v_stride : v,
        .beta_stride = a->beta_stride ? a->beta_stride : dims[KDA_V_HEADS],
        .scale = a->scale,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/*
 * Relative Frobenius errors. A_qk has bf16 operands; so has A, of which A_kk comes,
 * and w and u are products with that. 0.008 and 0.005 are what public tests of this
 * operator allow.
 */
static const double score_tolerance = 0.006, product_tolerance = 0.006, operand_tolerance = 0.004;
/* What a state adds up where keys are constant: rounding each entry by itself gives 0.0007. */
static const double inverse_bias = 0.0003;

#define TENSOR(...) GEN__TENSOR(gen_kda_chunk_intra_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = tokens * gen__kda_qk_width(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t scores = tokens * heads * KDA_CHUNK;
    const enum gen_dtype beta = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const double unit = 1.0 / sqrt((double)dims[KDA_HEAD_DIM]); /* rows as the norm leaves them */
    const uint32_t row = (uint32_t)(KDA_CHUNK * gen__kda_v_width(dims)); /* about a chunk */
    const struct gen__tensor list[KDA_CHUNK_INTRA_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_UNIFORM, 1, tokens * heads), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(a_qk, dtype, GEN__OUT, GEN__FILL_POISON, 0, scores), .tolerance = score_tolerance,
         .cold = true},
        {TENSOR(a_kk, dtype, GEN__OUT, GEN__FILL_POISON, 0, scores), .tolerance = score_tolerance,
         .cold = true},
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
    return KDA_CHUNK_INTRA_NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_chunk_intra_args *a = (gen_kda_chunk_intra_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_CHUNK_INTRA;
    a->scale = 1.0f / sqrtf((float)gen__kda_stage_dims(base)[KDA_HEAD_DIM]);
}

/* Cumulated gates where every token's is the same, `each` in base 2. */
static void fill_gates(const int32_t *dims, const int32_t *cu_seqlens, double each, float *gk)
{
    const int64_t width = gen__kda_v_width(dims);
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        for (int64_t at = 0; at < s.length * width; at++)
            gk[s.first * width + at] = (float)(each * (double)(at / width % KDA_CHUNK + 1));
    }
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const struct gen__kda_stage_inputs inputs = {.cu_tensor = &list[KDA_CHUNK_INTRA_CU_SEQLENS],
                                                 .cu_seqlens = data[KDA_CHUNK_INTRA_CU_SEQLENS],
                                                 .gk = data[KDA_CHUNK_INTRA_GK]};
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    gen__kda_fill_hard(gen__kda_stage_dims(base), options->seed, &list[KDA_CHUNK_INTRA_K],
                       data[KDA_CHUNK_INTRA_K], &list[KDA_CHUNK_INTRA_BETA],
                       data[KDA_CHUNK_INTRA_BETA]);
    if (data[KDA_CHUNK_INTRA_GK] && list[KDA_CHUNK_INTRA_GK].amount > 0)
        fill_gates(gen__kda_stage_dims(base), data[KDA_CHUNK_INTRA_CU_SEQLENS],
                   log2(list[KDA_CHUNK_INTRA_GK].amount), data[KDA_CHUNK_INTRA_GK]);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form {
    FORM_SCORES,
    FORM_QG,
    FORM_STRIDES,
    FORM_LOOSE,
    FORM_LARGE_KEYS,
    FORM_MIXED_KEYS,
    FORM_STEEP_KEYS,
    FORM_STRETCHING_KEYS,
    FORM_SMALL_BETA,
    FORM_LOW_BETA,
    FORM_CONSTANT_BETA,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {
    "scores",     "qg",         "strides",      "loose",
    "large_keys", "mixed_keys", "steep_keys",   "stretching_keys",
    "small_beta", "low_beta",   "constant_beta"};

/* Nothing but the scores and their inverse. */
static void scores_form(struct gen__tensor *t)
{
    t[KDA_CHUNK_INTRA_V].count = t[KDA_CHUNK_INTRA_W].count = 0;
    t[KDA_CHUNK_INTRA_U].count = t[KDA_CHUNK_INTRA_KG].count = 0;
}

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_chunk_intra_args *a = (gen_kda_chunk_intra_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    struct gen__tensor none = {0};
    const struct gen__kda_hard hard = {&t[KDA_CHUNK_INTRA_Q],
                                       &t[KDA_CHUNK_INTRA_K],
                                       &t[KDA_CHUNK_INTRA_V],
                                       &none,
                                       &t[KDA_CHUNK_INTRA_BETA],
                                       &none,
                                       &none};
    switch ((enum form)index) {
    case FORM_SCORES:
        scores_form(t);
        return true;
    case FORM_QG:
        t[KDA_CHUNK_INTRA_QG].count = t[KDA_CHUNK_INTRA_KG].count;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->q_stride = a->k_stride = a->v_stride = s.qkv;
        a->beta_stride = s.beta;
        t[KDA_CHUNK_INTRA_Q].count = t[KDA_CHUNK_INTRA_K].count = s.qk_count;
        t[KDA_CHUNK_INTRA_V].count = s.v_count;
        t[KDA_CHUNK_INTRA_BETA].count = s.beta_count;
        return true;
    }
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[KDA_CHUNK_INTRA_CU_SEQLENS]);
    case FORM_LARGE_KEYS:
        t[KDA_CHUNK_INTRA_GK].amount = 1;
        return gen__kda_large_keys(dims, &hard);
    case FORM_MIXED_KEYS:
        t[KDA_CHUNK_INTRA_GK].amount = 1;
        return gen__kda_mixed_keys(dims, &hard);
    case FORM_STEEP_KEYS:
        t[KDA_CHUNK_INTRA_GK].amount = exp(-5.0);
        return gen__kda_steep_keys(dims, &hard);
    case FORM_STRETCHING_KEYS:
        t[KDA_CHUNK_INTRA_GK].amount = 1;
        return gen__kda_stretching_keys(dims, &hard);
    case FORM_SMALL_BETA: /* every other token's rows of w and u are as small, and right by
                             themselves */
    case FORM_LOW_BETA:   /* not that small */
        t[KDA_CHUNK_INTRA_GK].amount = 1;
        t[KDA_CHUNK_INTRA_BETA].fill = GEN__FILL_FAMILY;
        t[KDA_CHUNK_INTRA_BETA].amount = index == FORM_SMALL_BETA ? -0x1p-30 : -0x1p-19;
        t[KDA_CHUNK_INTRA_W].row = t[KDA_CHUNK_INTRA_U].row = (uint32_t)dims[KDA_HEAD_DIM];
        return dims[KDA_DTYPE] == GEN_DTYPE_BF16;
    case FORM_CONSTANT_BETA:
        gen__kda_constant_beta(&hard);
        t[KDA_CHUNK_INTRA_K].amount = 1.0 / sqrt((double)dims[KDA_HEAD_DIM]);
        t[KDA_CHUNK_INTRA_GK].amount = 1;
        scores_form(t);
        t[KDA_CHUNK_INTRA_A_KK].bias = inverse_bias;
        return true;
    default:
        return false;
    }
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_chunk_intra_args *a = (const gen_kda_chunk_intra_args *)base;
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
    gen__writes(&list[6], "a_qk", a->a_qk, matrix);
    gen__writes(&list[7], "a_kk", a->a_kk, matrix);
    gen__writes(&list[8], "w", a->w, tokens * v);
    gen__writes(&list[9], "u", a->u, tokens * v);
    gen__writes(&list[10], "kg", a->kg, tokens * v);
    gen__writes(&list[11], "qg", a->qg, tokens * v);
    return 12;
}

const struct gen__family gen__family_kda_chunk_intra = {
    GEN__KDA_STAGE(GEN_KDA_CHUNK_INTRA, kda_chunk_intra),
    .extents = extents,
    .num_required = KDA_INTRA_NUM_REQUIRED,
    .exact = gen__kda_chunk_intra_exact,
};
