/*
 * Kimi Delta Attention inside a chunk, on the host: the geometry of a launch, its
 * parameters, and what the tuner and the tests need.
 */
#include "families/kda/chunk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "kda_intra";
/* One for each chunk and value head. */
static const char *const coords[] = {"tiles"};

static const struct gen__field fields[] = {
    GEN__KDA_FIELDS(gen_kda_intra_problem),
};
GEN__KDA_FIELDS_ARE_DIMS(gen_kda_intra_problem);

static const int32_t *dims_of(const gen_problem *base)
{
    return (const int32_t *)(const void *)((const char *)base +
                                           offsetof(gen_kda_intra_problem, batch));
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const int32_t *dims = dims_of(base);
    const enum gen_status status = gen__kda_check(family, dims, (uint32_t)dims[KDA_SAFE_GATE], key);
    if (status)
        return status;
    key->empty = gen__kda_slots(dims) == 0;
    const int64_t chunks = gen__kda_usual_chunks(base, dims);
    key->counts[0] = (float)((chunks ? chunks : 1) * dims[KDA_V_HEADS]);
    return GEN_OK;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t usual[KDA_NUM_DIMS];
    return gen__kda_intra_us(gen__kda_usual(base, dims_of(base), usual), device, variant);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const int32_t *dims = dims_of(base);
    (void)device;
    gen__kda_slots_plan(dims, base->flags, variant, dims[KDA_V_HEADS],
                        variant && variant->fact[KDA_INTRA_DEPENDENT], plan);
}

static enum gen_status check_results(const gen_kda_intra_args *a)
{
    enum gen_status status;
    if ((status = gen__check_pointer(family, "w", a->w, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "u", a->u, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "qg", a->qg, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "kg", a->kg, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "a_qk", a->a_qk, 16, false)) != GEN_OK)
        return status;
    return gen__check_pointer(family, "decay", a->decay, 16, false);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_intra_args *a = (const gen_kda_intra_args *)base;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, plan->dims)) != GEN_OK ||
        (status = gen__kda_check_intra(family, plan->dims, a)) != GEN_OK ||
        (status = check_results(a)) != GEN_OK || !out)
        return status;
    gen__kda_intra_params(plan->dims, a, out);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/*
 * Relative Frobenius errors. w and u are products of operands that were rounded to
 * 16 bits, of which the inverse comes of scores with bf16 operands: about twice one
 * rounding. Those of bf16 are measured to be near 0.003, and 0.008 and 0.005 are what
 * public tests of this operator allow.
 */
static const double product_tolerance = 0.006, score_tolerance = 0.008, operand_tolerance = 0.004,
                    decay_tolerance = 1e-4;
/* Of keys that are not normalized terms cancel, or are all rounded the same way. */
static const double hard_tolerance = 0.016;

#define TENSOR(...) GEN__TENSOR(gen_kda_intra_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = dims_of(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t d = dims[KDA_HEAD_DIM], qk = tokens * dims[KDA_QK_HEADS] * d;
    const int64_t v = tokens * heads * d, tiles = gen__kda_slots(dims) * heads;
    const int64_t tile = tiles * KDA_CHUNK * d, cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const enum gen_dtype g = (enum gen_dtype)dims[KDA_GATE_DTYPE];
    const enum gen_dtype beta = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const uint32_t row = (uint32_t)(KDA_CHUNK * d);
    const struct gen__tensor list[KDA_INTRA_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(g, g, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_UNIFORM, 1, tokens * heads), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads * d)},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(w, dtype, GEN__OUT, GEN__FILL_POISON, 0, tile), .tolerance = product_tolerance,
         .row_tolerance = 3 * product_tolerance, .row = row},
        {TENSOR(u, dtype, GEN__OUT, GEN__FILL_POISON, 0, tile), .tolerance = product_tolerance,
         .row_tolerance = 3 * product_tolerance, .row = row},
        {TENSOR(qg, dtype, GEN__OUT, GEN__FILL_POISON, 0, tile), .tolerance = operand_tolerance},
        {TENSOR(kg, dtype, GEN__OUT, GEN__FILL_POISON, 0, tile), .tolerance = operand_tolerance},
        {TENSOR(a_qk, dtype, GEN__OUT, GEN__FILL_POISON, 0, tiles * KDA_CHUNK * KDA_CHUNK),
         .tolerance = score_tolerance},
        {TENSOR(decay, fp32, GEN__OUT, GEN__FILL_POISON, 0, tiles * d),
         .tolerance = decay_tolerance},
    };
    memcpy(tensors, list, sizeof list);
    return KDA_INTRA_NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_intra_args *a = (gen_kda_intra_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_INTRA;
    a->scale = 1.0f / sqrtf((float)dims_of(base)[KDA_HEAD_DIM]);
    a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
    a->lower_bound = -5.0f;
    a->qk_l2norm = 1;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    (void)args;
    gen__kda_fill(dims_of(base), &list[KDA_INTRA_CU_SEQLENS], options, data[KDA_INTRA_CU_SEQLENS]);
    gen__kda_fill_hard(dims_of(base), options->seed, &list[KDA_INTRA_K], data[KDA_INTRA_K],
                       &list[KDA_INTRA_BETA], data[KDA_INTRA_BETA]);
    gen__kda_fill_gates(&list[KDA_INTRA_G], data[KDA_INTRA_G]);
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = dims_of(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    const double tokens = (double)gen__kda_tokens(dims);
    const double g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const double beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    *bytes = tokens * (dims[KDA_QK_HEADS] * 4 * d + heads * (d * (2 + g) + beta)) +
             tiles * (KDA_CHUNK * d * 8 + KDA_CHUNK * KDA_CHUNK * 2 + d * 4);
    /* Ten of the sixteen blocks of both score matrices and of the inverse's products. */
    *flops = tiles * (10 * 256 * d * 2 * 4 + 2 * 64 * 64 * 16);
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_case_name(dims_of(base), text, capacity);
}

enum form {
    FORM_SOFTPLUS,
    FORM_ACTIVATED,
    FORM_SIGMOID,
    FORM_NEGATIVE,
    FORM_STRIDES,
    FORM_BARE,
    FORM_LOOSE,
    FORM_UNIFORM_KEYS,
    FORM_LARGE_KEYS,
    FORM_MIXED_KEYS,
    FORM_STEEP_KEYS,
    FORM_STRETCHING_KEYS,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {
    "softplus", "activated",    "sigmoid",    "negative",   "strides",    "bare",
    "loose",    "uniform_keys", "large_keys", "mixed_keys", "steep_keys", "stretching_keys"};

/* Keys on which small errors add up or terms cancel. */
static bool hard_form(const gen_problem *base, enum form form, gen_kda_intra_args *a,
                      struct gen__tensor *t)
{
    const struct gen__kda_hard hard = {
        &t[KDA_INTRA_Q],    &t[KDA_INTRA_K],     &t[KDA_INTRA_V],      &t[KDA_INTRA_G],
        &t[KDA_INTRA_BETA], &t[KDA_INTRA_A_LOG], &t[KDA_INTRA_DT_BIAS]};
    switch (form) {
    case FORM_UNIFORM_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_uniform_keys(&hard);
        return true;
    case FORM_LARGE_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        return gen__kda_large_keys(dims_of(base), &hard);
    case FORM_MIXED_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        t[KDA_INTRA_W].tolerance = t[KDA_INTRA_U].tolerance = hard_tolerance;
        return gen__kda_mixed_keys(dims_of(base), &hard);
    case FORM_STEEP_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        t[KDA_INTRA_W].tolerance = t[KDA_INTRA_U].tolerance = hard_tolerance;
        return gen__kda_steep_keys(dims_of(base), &hard);
    case FORM_STRETCHING_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        t[KDA_INTRA_W].tolerance = t[KDA_INTRA_U].tolerance = hard_tolerance;
        return gen__kda_stretching_keys(dims_of(base), &hard);
    default:
        return false;
    }
}

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_intra_args *a = (gen_kda_intra_args *)args;
    switch ((enum form)index) {
    case FORM_SOFTPLUS:
        a->gate_form = GEN_KDA_GATE_SOFTPLUS;
        gen__kda_softplus_form(dims_of(base), &t[KDA_INTRA_A_LOG]);
        return true;
    case FORM_ACTIVATED:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_activated_form(dims_of(base), &t[KDA_INTRA_G], &t[KDA_INTRA_A_LOG],
                                &t[KDA_INTRA_DT_BIAS]);
        return true;
    case FORM_SIGMOID:
    case FORM_NEGATIVE:
        a->beta_form = index == FORM_SIGMOID ? GEN_KDA_BETA_SIGMOID : GEN_KDA_BETA_TWO_SIGMOID;
        t[KDA_INTRA_BETA].fill = GEN__FILL_NORMAL;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims_of(base));
        a->q_stride = a->k_stride = a->v_stride = s.qkv;
        a->g_stride = s.g;
        a->beta_stride = s.beta;
        t[KDA_INTRA_Q].count = t[KDA_INTRA_K].count = s.qk_count;
        t[KDA_INTRA_V].count = s.v_count;
        t[KDA_INTRA_G].count = s.g_count;
        t[KDA_INTRA_BETA].count = s.beta_count;
        return true;
    }
    case FORM_BARE: /* no norm, no A_log, no bias: keys small enough */
        a->qk_l2norm = 0;
        a->lower_bound = -0.25f;
        t[KDA_INTRA_K].amount = 0.1;
        t[KDA_INTRA_A_LOG].count = t[KDA_INTRA_DT_BIAS].count = 0;
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims_of(base), &t[KDA_INTRA_CU_SEQLENS]);
    default:
        return hard_form(base, (enum form)index, a, t);
    }
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_intra_args *a = (const gen_kda_intra_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t d = dims[KDA_HEAD_DIM], qk = dims[KDA_QK_HEADS] * d * 2, v = heads * d;
    const int64_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t tiles = gen__kda_slots(dims) * heads, tile = tiles * KDA_CHUNK * d * 2;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v * 2, tokens, gen__stride_bytes(a->v_stride, 2));
    gen__reads_rows(&list[3], "g", a->g, v * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads_rows(&list[4], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[5], "A_log", a->A_log, heads * 4);
    gen__reads(&list[6], "dt_bias", a->dt_bias, v * 4);
    gen__reads(&list[7], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[8], "w", a->w, tile);
    gen__writes(&list[9], "u", a->u, tile);
    gen__writes(&list[10], "qg", a->qg, tile);
    gen__writes(&list[11], "kg", a->kg, tile);
    gen__writes(&list[12], "a_qk", a->a_qk, tiles * KDA_CHUNK * KDA_CHUNK * 2);
    gen__writes(&list[13], "decay", a->decay, tiles * d * 4);
    return 14;
}

const struct gen__family gen__family_kda_intra = {
    GEN__KDA_FAMILY(GEN_KDA_INTRA, kda_intra),
    .params_size = sizeof(struct gen_kda_intra_params),
    .extents = extents,
    .num_required = KDA_INTRA_NUM_REQUIRED,
    .facts = KDA_INTRA_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .grid_steps = gen__kda_tiles_grid,
};
