/*
 * A stage of the backward pass of Kimi Delta Attention, what the scores' gradients make of a
 * chunk's inputs, on the host: the geometry of a launch, its parameters, and what the tuner and
 * the tests need.
 */
#include "families/kda_bwd_intra/api.h"
#include "kda_bwd_intra/args.h"
#include "families/kda/stage.h"
#include "reference/data.h"
#include "reference/scatter.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_bwd_intra_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_bwd_intra";

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, (uint32_t)gen__kda_stage_dims(base)[KDA_SAFE_GATE],
                                key);
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    /* q, k; gk, and three gradients twice; half of two of scores; beta and its gradients */
    *bytes = (double)gen__kda_tokens(dims) *
             (dims[KDA_QK_HEADS] * 4 * d +
              heads * (7 * 4 * d + 4 * KDA_CHUNK + 8 + (double)gen__kda_beta_bytes(dims)));
    /* Ten of sixteen blocks of four products. */
    *flops = (double)gen__kda_all_chunks(dims) * heads * 4 * 10 * 256 * d * 2;
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

static enum gen_status check_args(const int32_t *dims, const gen_kda_bwd_intra_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, false},
        {"k", a->k, 16, false},
        {"gk", a->gk, 16, false},
        {"beta", a->beta, gen__kda_beta_bytes(dims), false},
        {"d_a_qk", a->d_a_qk, 16, false},
        {"d_a_kk", a->d_a_kk, 16, false},
        {"d_q_states", a->d_q_states, 16, false},
        {"d_k_states", a->d_k_states, 16, false},
        {"d_beta_states", a->d_beta_states, 4, false},
        {"d_g_states", a->d_g_states, 16, false},
        {"d_q", a->d_q, 16, false},
        {"d_k", a->d_k, 16, false},
        {"d_beta", a->d_beta, 4, false},
        {"d_g", a->d_g, 16, false},
    };
    return gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                         sizeof list / sizeof *list);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_bwd_intra_args *a = (const gen_kda_bwd_intra_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen_kda_bwd_intra_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .q = a->q,
        .k = a->k,
        .gk = a->gk,
        .beta = a->beta,
        .d_a_qk = a->d_a_qk,
        .d_a_kk = a->d_a_kk,
        .d_q_states = a->d_q_states,
        .d_k_states = a->d_k_states,
        .d_beta_states = a->d_beta_states,
        .d_g_states = a->d_g_states,
        .d_q = a->d_q,
        .d_k = a->d_k,
        .d_beta = a->d_beta,
        .d_g = a->d_g,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius error: of operands rounded to bf16. */
static const double tolerance = 0.005;

enum tensor {
    Q,
    K,
    GK,
    BETA,
    D_A_QK,
    D_A_KK,
    D_Q_STATES,
    D_K_STATES,
    D_BETA_STATES,
    D_G_STATES,
    CU_SEQLENS,
    D_Q,
    D_K,
    D_BETA,
    D_G,
    NUM_TENSORS
};

#define TENSOR(...) GEN__TENSOR(gen_kda_bwd_intra_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype beta_dtype = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const int64_t tokens = gen__kda_tokens(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t qk = tokens * gen__kda_qk_width(dims), betas = tokens * dims[KDA_V_HEADS];
    const int64_t scores = betas * KDA_CHUNK, cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const double unit = 1.0 / sqrt((double)dims[KDA_HEAD_DIM]); /* rows of length 1 */
    const double little = 0.02; /* what is added hides nothing of the sums */
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(beta, beta_dtype, GEN__IN, GEN__FILL_UNIFORM, 1, betas), .cold = true},
        {TENSOR(d_a_qk, fp32, GEN__IN, GEN__FILL_NORMAL, 1, scores), .cold = true},
        {TENSOR(d_a_kk, fp32, GEN__IN, GEN__FILL_NORMAL, 1, scores), .cold = true},
        {TENSOR(d_q_states, fp32, GEN__IN, GEN__FILL_NORMAL, little, v), .cold = true},
        {TENSOR(d_k_states, fp32, GEN__IN, GEN__FILL_NORMAL, little, v), .cold = true},
        {TENSOR(d_beta_states, fp32, GEN__IN, GEN__FILL_NORMAL, little, betas), .cold = true},
        {TENSOR(d_g_states, fp32, GEN__IN, GEN__FILL_NORMAL, little * unit, v), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_q, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = tolerance, .cold = true},
        {TENSOR(d_k, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = tolerance, .cold = true},
        {TENSOR(d_beta, fp32, GEN__OUT, GEN__FILL_POISON, 0, betas), .tolerance = tolerance,
         .cold = true},
        {TENSOR(d_g, fp32, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = tolerance, .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    (void)base;
    memset(args, 0, sizeof(gen_kda_bwd_intra_args));
    args->size = sizeof(gen_kda_bwd_intra_args);
    args->family = GEN_KDA_BWD_INTRA;
}

/* Gates of the forms: all the same, or a fifth of them -1000. They are cumulated. */
enum { GATES_OF_STAGE, GATES_STRONG, GATES_STILL, GATES_CUTS };

static double gate(double kind, uint64_t seed, int64_t at)
{
    const double log2_e = 1.4426950408889634;
    if (kind == GATES_STRONG)
        return -5.0 * log2_e;
    if (kind == GATES_STILL)
        return 0.0;
    return log2_e * (gen__scatter(seed, at) < 0.2 ? -1000.0 : -gen__scatter(seed + 1, at));
}

/* A chunk's gates of one of the forms, and NaN where no kernel may read. */
static void fill_chunk(const int32_t *dims, const struct gen__tensor *list,
                       const struct gen__fill_options *options, int64_t first, int64_t count,
                       void *const *data)
{
    const int64_t width = gen__kda_v_width(dims), scores = (int64_t)dims[KDA_V_HEADS] * KDA_CHUNK;
    const double kind = list[GK].amount;
    float *const gk = data[GK];
    for (int64_t c = 0; gk && kind != GATES_OF_STAGE && c < width; c++) {
        double sum = 0.0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = (first + i) * width + c;
            gk[at] = (float)(sum += gate(kind, options->seed, at));
        }
    }
    for (int64_t t = D_A_QK; options->non_finite && t <= D_A_KK; t++)
        for (int64_t i = 0; data[t] && i < count; i++)
            for (int64_t at = 0; at < scores; at++)
                if (at % KDA_CHUNK >= i + (t == D_A_QK))
                    ((float *)data[t])[(first + i) * scores + at] = NAN;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const struct gen__kda_stage_inputs inputs = {
        .cu_tensor = &list[CU_SEQLENS], .cu_seqlens = data[CU_SEQLENS], .gk = data[GK]};
    (void)args;
    gen__kda_stage_fill(dims, options, &inputs);
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, data[CU_SEQLENS], n);
        for (int64_t row = 0; row < s.length; row += KDA_CHUNK) {
            const int64_t left = s.length - row;
            fill_chunk(dims, list, options, s.first + row, left < KDA_CHUNK ? left : KDA_CHUNK,
                       data);
        }
    }
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form { FORM_STRONG, FORM_STILL, FORM_CUTS, FORM_ALONE, FORM_LOOSE, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"strong", "still", "cuts", "alone", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    (void)args;
    switch ((enum form)index) {
    case FORM_STRONG:
        t[GK].amount = GATES_STRONG;
        return true;
    case FORM_STILL:
        t[GK].amount = GATES_STILL;
        return true;
    case FORM_CUTS:
        t[GK].amount = GATES_CUTS;
        return !dims[KDA_SAFE_GATE];
    case FORM_ALONE: /* nothing is added, and what there is shows all of its rounding */
        for (int i = D_Q_STATES; i <= D_G_STATES; i++)
            t[i].amount = 0;
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* Keys that are much alike and gradients of one sign, or gradients as a loss scale makes them. */
static bool hard_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                      struct gen__tensor *t)
{
    (void)base, (void)args;
    switch (kind) {
    case GEN__DATA_MEAN1:
        t[Q].fill = t[K].fill = GEN__FILL_UNIFORM;
        t[D_A_QK].mean = t[D_A_KK].mean = 1.0;
        return true;
    case GEN__DATA_EXTREME:
        for (int i = D_A_QK; i <= D_G_STATES; i++)
            t[i].amount *= 0x1p60;
        return true;
    default:
        return false;
    }
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_bwd_intra_args *a = (const gen_kda_bwd_intra_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = tokens * gen__kda_qk_width(dims) * 2,
                  v = tokens * gen__kda_v_width(dims) * 4;
    const int64_t beta = tokens * heads * (int64_t)gen__kda_beta_bytes(dims);
    const int64_t matrix = tokens * heads * KDA_CHUNK * 4;
    gen__reads(&list[0], "q", a->q, qk);
    gen__reads(&list[1], "k", a->k, qk);
    gen__reads(&list[2], "gk", a->gk, v);
    gen__reads(&list[3], "beta", a->beta, beta);
    gen__reads(&list[4], "d_a_qk", a->d_a_qk, matrix);
    gen__reads(&list[5], "d_a_kk", a->d_a_kk, matrix);
    gen__reads(&list[6], "d_q_states", a->d_q_states, v);
    gen__reads(&list[7], "d_k_states", a->d_k_states, v);
    gen__reads(&list[8], "d_beta_states", a->d_beta_states, tokens * heads * 4);
    gen__reads(&list[9], "d_g_states", a->d_g_states, v);
    gen__reads(&list[10], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[11], "d_q", a->d_q, v);
    list[11].may_be = a->d_q_states;
    gen__writes(&list[12], "d_k", a->d_k, v);
    list[12].may_be = a->d_k_states;
    gen__writes(&list[13], "d_beta", a->d_beta, tokens * heads * 4);
    list[13].may_be = a->d_beta_states;
    gen__writes(&list[14], "d_g", a->d_g, v);
    list[14].may_be = a->d_g_states;
    return 15;
}

const struct gen__family gen__family_kda_bwd_intra = {
    GEN__KDA_STAGE(GEN_KDA_BWD_INTRA, kda_bwd_intra),
    .extents = extents,
    .num_required = KDA_INTRA_NUM_REQUIRED,
    .data = hard_data,
};
