/*
 * Gated DeltaNet inside a chunk, on the host: the geometry of a launch, its parameters, and what
 * the tuner and the tests need.
 */
#include "families/kda/gdn_intra.h"

#include "families/common/fastdiv.h"
#include "family/occupancy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char family[] = "gdn_intra";
/* One for each chunk and value head. */
static const char *const coords[] = {"tiles"};

static const struct gen__field fields[] = {
    GEN__KDA_FIELDS(gen_gdn_intra_problem),
};
GEN__KDA_FIELDS_ARE_DIMS(gen_gdn_intra_problem);

static const int32_t *dims_of(const gen_problem *base)
{
    return (const int32_t *)(const void *)((const char *)base +
                                           offsetof(gen_gdn_intra_problem, batch));
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const int32_t *dims = dims_of(base);
    const enum gen_status status = gen__kda_check(family, dims, 0, key);
    if (status)
        return status;
    key->empty = gen__kda_slots(dims) == 0;
    const int64_t chunks = gen__kda_usual_chunks(base, dims);
    key->counts[0] = (float)((chunks ? chunks : 1) * dims[KDA_V_HEADS]);
    return GEN_OK;
}

/* ---- time -------------------------------------------------------------- */

/* As kda_intra's (kda/shape.c), for what a chunk reads and writes here. */
static const float launch_us = 3.0f, chunk_us = 6.0f, achieved_bandwidth = 0.85f;

float gen__gdn_intra_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant)
{
    const float tiles = (float)gen__kda_all_chunks(dims) * (float)dims[KDA_V_HEADS];
    const float group = (float)dims[KDA_V_HEADS] / (float)dims[KDA_QK_HEADS];
    const float bytes = KDA_CHUNK * (4.0f * (float)dims[KDA_HEAD_DIM] / group + 280.0f);
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float per_sm = (float)gen__blocks_per_sm(device, variant);
    const float chain = ceilf(tiles / (sms * (per_sm > 0.0f ? per_sm : 1.0f))) * chunk_us;
    const float stream = tiles * bytes / (gbps * 1e3f * achieved_bandwidth);
    return launch_us + (chain > stream ? chain : stream);
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t usual[KDA_NUM_DIMS];
    return gen__gdn_intra_us(gen__kda_usual(base, dims_of(base), usual), device, variant);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const int32_t *dims = dims_of(base);
    (void)device;
    gen__kda_slots_plan(dims, base->flags, variant, dims[KDA_V_HEADS],
                        variant && variant->fact[KDA_INTRA_DEPENDENT], plan);
}

/* ---- arguments --------------------------------------------------------- */

static enum gen_status check_numbers(const char *name, const gen_gdn_intra_args *a)
{
    const gen_kda_intra_args numbers = {
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
    };
    const enum gen_status status = gen__kda_check_numbers(name, &numbers);
    if (!status && a->gate_form == GEN_KDA_GATE_SOFTPLUS && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: "
                         "num_v_heads numbers",
                         name);
    return status;
}

enum gen_status gen__gdn_check_intra(const char *name, const int32_t *dims,
                                     const gen_gdn_intra_args *a)
{
    const bool none = !gen__kda_tokens(dims); /* then the lists are not read */
    const uintptr_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const uintptr_t beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t qk = (int64_t)dims[KDA_QK_HEADS] * dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    enum gen_status status;
    if ((status = check_numbers(name, a)) != GEN_OK ||
        (status = gen__check_pointer(name, "q", a->q, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(name, "k", a->k, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(name, "g", a->g, g, none)) != GEN_OK ||
        (status = gen__check_pointer(name, "beta", a->beta, beta, none)) != GEN_OK ||
        (status = gen__check_pointer(name, "A_log", a->A_log, 4, true)) != GEN_OK ||
        (status = gen__check_pointer(name, "dt_bias", a->dt_bias, 4, true)) != GEN_OK ||
        (status = gen__kda_check_cu_seqlens(name, dims, a->cu_seqlens)) != GEN_OK ||
        (status = gen__kda_check_stride(name, "q_stride", dims, a->q_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(name, "k_stride", dims, a->k_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(name, "g_stride", dims, a->g_stride, 1, heads)) != GEN_OK)
        return status;
    return gen__kda_check_stride(name, "beta_stride", dims, a->beta_stride, 1, heads);
}

void gen__gdn_intra_params(const int32_t *dims, const gen_gdn_intra_args *a,
                           struct gen_gdn_intra_params *k)
{
    const int64_t qk = (int64_t)dims[KDA_QK_HEADS] * dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const struct gen__fastdiv by_heads = gen__fastdiv((uint32_t)heads);
    const struct gen__fastdiv group =
        gen__fastdiv((uint32_t)(dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]));
    *k = (struct gen_gdn_intra_params){
        .q = a->q,
        .k = a->k,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .x = a->x,
        .a_qk = a->a_qk,
        .factors = a->factors,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .g_stride = a->g_stride ? a->g_stride : heads,
        .beta_stride = a->beta_stride ? a->beta_stride : heads,
        .sequences = gen__kda_sequences(dims, a->cu_seqlens),
        .num_v_heads = dims[KDA_V_HEADS],
        .heads_mul = by_heads.mul,
        .heads_shift = by_heads.shift,
        .group_mul = group.mul,
        .group_shift = group.shift,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .gate_fp32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
        .beta_form = a->beta_form,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
        .l2_norm = a->qk_l2norm,
    };
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_gdn_intra_args *a = (const gen_gdn_intra_args *)base;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, plan->dims)) != GEN_OK ||
        (status = gen__gdn_check_intra(family, plan->dims, a)) != GEN_OK ||
        (status = gen__check_pointer(family, "x", a->x, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "a_qk", a->a_qk, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "factors", a->factors, 16, false)) != GEN_OK || !out)
        return status;
    gen__gdn_intra_params(plan->dims, a, out);
    return GEN_OK;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_gdn_intra_args *a = (const gen_gdn_intra_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = (int64_t)dims[KDA_QK_HEADS] * dims[KDA_HEAD_DIM] * 2;
    const int64_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t tiles = gen__kda_slots(dims) * heads, cells = tiles * KDA_CHUNK * KDA_CHUNK * 2;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "g", a->g, heads * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads_rows(&list[3], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[4], "A_log", a->A_log, heads * 4);
    gen__reads(&list[5], "dt_bias", a->dt_bias, heads * 4);
    gen__reads(&list[6], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[7], "x", a->x, cells);
    gen__writes(&list[8], "a_qk", a->a_qk, cells);
    gen__writes(&list[9], "factors", a->factors, tiles * GDN_FACTORS * 4);
    return 10;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: scores and X are rounded once, and X is made of factors of 16 bits.
 * Factors are exponentials of sums in fp32, of which the greatest here are some hundreds. */
static const double score_tolerance = 0.004, inverse_tolerance = 0.006, factor_tolerance = 1e-4;
/* Of keys that are not normalized terms cancel, or are all rounded the same way. */
static const double hard_tolerance = 0.016;

#define TENSOR(...) GEN__TENSOR(gen_gdn_intra_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = dims_of(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = tokens * dims[KDA_QK_HEADS] * dims[KDA_HEAD_DIM];
    const int64_t tiles = gen__kda_slots(dims) * heads, cells = tiles * KDA_CHUNK * KDA_CHUNK;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const enum gen_dtype g = (enum gen_dtype)dims[KDA_GATE_DTYPE];
    const enum gen_dtype beta = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const struct gen__tensor list[GDN_INTRA_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(g, g, GEN__IN, GEN__FILL_NORMAL, 1, tokens * heads), .cold = true},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_UNIFORM, 1, tokens * heads), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(x, dtype, GEN__OUT, GEN__FILL_POISON, 0, cells), .tolerance = inverse_tolerance},
        {TENSOR(a_qk, dtype, GEN__OUT, GEN__FILL_POISON, 0, cells), .tolerance = score_tolerance},
        {TENSOR(factors, fp32, GEN__OUT, GEN__FILL_POISON, 0, tiles * GDN_FACTORS),
         .tolerance = factor_tolerance},
    };
    memcpy(tensors, list, sizeof list);
    return GDN_INTRA_NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_gdn_intra_args *a = (gen_gdn_intra_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_GDN_INTRA;
    a->scale = 1.0f / sqrtf((float)dims_of(base)[KDA_HEAD_DIM]);
    a->gate_form = GEN_KDA_GATE_SOFTPLUS;
    a->lower_bound = -5.0f;
    a->qk_l2norm = 1;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    (void)args;
    gen__kda_fill(dims_of(base), &list[GDN_INTRA_CU_SEQLENS], options, data[GDN_INTRA_CU_SEQLENS]);
    gen__kda_fill_hard(dims_of(base), options->seed, &list[GDN_INTRA_K], data[GDN_INTRA_K],
                       &list[GDN_INTRA_BETA], data[GDN_INTRA_BETA]);
    gen__kda_fill_gates(&list[GDN_INTRA_G], data[GDN_INTRA_G]);
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = dims_of(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    const double g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const double beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    *bytes = (double)gen__kda_tokens(dims) * (dims[KDA_QK_HEADS] * 4 * d + heads * (g + beta)) +
             tiles * (2 * KDA_CHUNK * KDA_CHUNK * 2 + GDN_FACTORS * 4);
    /* Ten of the sixteen blocks of both score matrices. */
    *flops = tiles * (10 * 256 * d * 2 * 2 + 2 * 64 * 64 * 16);
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_case_name(dims_of(base), text, capacity);
}

enum form {
    FORM_ACTIVATED,
    FORM_BOUND,
    FORM_SIGMOID,
    FORM_NEGATIVE,
    FORM_STRIDES,
    FORM_BARE,
    FORM_LOOSE,
    FORM_UNIFORM_KEYS,
    FORM_LARGE_KEYS,
    FORM_MIXED_KEYS,
    FORM_STRETCHING_KEYS,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {
    "activated", "bound",        "sigmoid",    "negative",   "strides",        "bare",
    "loose",     "uniform_keys", "large_keys", "mixed_keys", "stretching_keys"};

/* Keys on which small errors add up or terms cancel. */
static bool hard_form(const gen_problem *base, enum form form, gen_gdn_intra_args *a,
                      struct gen__tensor *t)
{
    struct gen__tensor no_values = t[GDN_INTRA_Q];
    const struct gen__kda_hard hard = {
        &t[GDN_INTRA_Q],    &t[GDN_INTRA_K],     &no_values,           &t[GDN_INTRA_G],
        &t[GDN_INTRA_BETA], &t[GDN_INTRA_A_LOG], &t[GDN_INTRA_DT_BIAS]};
    a->gate_form = GEN_KDA_GATE_GIVEN;
    if (form == FORM_UNIFORM_KEYS) {
        gen__kda_uniform_keys(&hard);
        return true;
    }
    a->qk_l2norm = 0;
    if (form == FORM_LARGE_KEYS)
        return gen__kda_large_keys(dims_of(base), &hard);
    t[GDN_INTRA_X].tolerance = hard_tolerance;
    return form == FORM_MIXED_KEYS ? gen__kda_mixed_keys(dims_of(base), &hard)
                                   : gen__kda_stretching_keys(dims_of(base), &hard);
}

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_gdn_intra_args *a = (gen_gdn_intra_args *)args;
    switch ((enum form)index) {
    case FORM_ACTIVATED:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_activated_form(dims_of(base), &t[GDN_INTRA_G], &t[GDN_INTRA_A_LOG],
                                &t[GDN_INTRA_DT_BIAS]);
        return true;
    case FORM_BOUND:
        a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
        return true;
    case FORM_SIGMOID:
    case FORM_NEGATIVE:
        a->beta_form = index == FORM_SIGMOID ? GEN_KDA_BETA_SIGMOID : GEN_KDA_BETA_TWO_SIGMOID;
        t[GDN_INTRA_BETA].fill = GEN__FILL_NORMAL;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims_of(base));
        a->q_stride = a->k_stride = s.qkv;
        a->g_stride = a->beta_stride = s.beta;
        t[GDN_INTRA_Q].count = t[GDN_INTRA_K].count = s.qk_count;
        t[GDN_INTRA_G].count = t[GDN_INTRA_BETA].count = s.beta_count;
        return true;
    }
    case FORM_BARE: /* no norm, no A_log, no bias: keys small enough */
        a->qk_l2norm = 0;
        a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
        a->lower_bound = -0.25f;
        t[GDN_INTRA_K].amount = 0.1;
        t[GDN_INTRA_A_LOG].count = t[GDN_INTRA_DT_BIAS].count = 0;
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims_of(base), &t[GDN_INTRA_CU_SEQLENS]);
    default:
        return hard_form(base, (enum form)index, a, t);
    }
}

const struct gen__family gen__family_gdn_intra = {
    GEN__KDA_FAMILY(GEN_GDN_INTRA, gdn_intra),
    .params_size = sizeof(struct gen_gdn_intra_params),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
    .facts = KDA_INTRA_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .grid_steps = gen__kda_tiles_grid,
};
