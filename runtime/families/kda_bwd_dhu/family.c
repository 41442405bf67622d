/*
 * A stage of the backward pass of Kimi Delta Attention, the state's gradient from chunk to chunk,
 * on the host: the geometry of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda_bwd_dhu/api.h"
#include "kda_bwd_dhu/args.h"
#include "families/kda/stage.h"
#include "reference/data.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_bwd_dhu_reference(const gen_plan *plan, const gen_args *args);

enum fact { WGMMA = KDA_STAGE_DEPENDENT + 1 };

static const char family[] = "kda_bwd_dhu";
static const char *const coords[] = {"states", "seq_len"};

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_status status = gen__kda_stage_check(family, base, 0, key);
    if (status)
        return status;
    key->empty = dims[KDA_BATCH] == 0; /* else there are states to copy */
    gen__kda_chain_counts(base, dims, key);
    return GEN_OK;
}

static void cost_of(const int32_t *dims, double *bytes, double *flops)
{
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    /* qg, kg, w, d_o, d_v, d_v_new; last gates, d_h; first and last states */
    *bytes = (double)gen__kda_tokens(dims) * heads * d * 12 + tiles * (d * 4 + d * d * 2) +
             dims[KDA_BATCH] * heads * d * d * 8;
    *flops = tiles * KDA_CHUNK * d * d * 6;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    cost_of(gen__kda_stage_dims(base), bytes, flops);
}

/* A chunk's time on an H200, in us. That of mma.sync was measured with 8 heads; that of wgmma is
 * what kda_chunk_h's two dependent products take, and an estimate for the third, which is partly
 * hidden. */
static float chunk_us(const struct gen__facts *variant)
{
    return variant->fact[WGMMA] ? 1.2f : 3.35f;
}

/* What a pipeline loses that holds fewer than three chunks: 0.356 ms for 0.291 of 64 heads. */
static float short_of_stages(const int32_t *dims, const struct gen__facts *variant)
{
    const uint32_t tile = KDA_CHUNK * (uint32_t)dims[KDA_HEAD_DIM] * 2;
    return variant->shared_dynamic < 3 * (3 * tile + 2 * KDA_CHUNK * KDA_CHUNK * 2) ? 1.2f : 1.0f;
}

/* The chain of chunks, or what memory takes; warps that copy and compute in alternation hide half
 * of the shorter of the two (H200: -3 to +11 %). */
static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t usual[KDA_NUM_DIMS];
    const int32_t *dims = gen__kda_usual(base, gen__kda_stage_dims(base), usual);
    const float chain = gen__kda_stage_chain_us(device, variant, dims, chunk_us(variant));
    double bytes, flops;
    cost_of(dims, &bytes, &flops);
    const float stream = gen__kda_stage_us(device, bytes);
    const float longer = chain > stream ? chain : stream, shorter = chain > stream ? stream : chain;
    return variant->fact[WGMMA] ? longer * short_of_stages(dims, variant) : longer + 0.5f * shorter;
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    (void)device;
    gen__kda_chain_plan(base, variant, plan);
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_bwd_dhu_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"qg", a->qg, 16, false},
        {"kg", a->kg, 16, false},
        {"w", a->w, 16, false},
        {"d_o", a->d_o, 16, false},
        {"d_v", a->d_v, 16, false},
        {"gk", a->gk, 16, false},
        {"d_final_state", a->d_final_state, 16, true},
        {"d_h", a->d_h, 16, false},
        {"d_v_new", a->d_v_new, 16, false},
        {"d_initial_state", a->d_initial_state, 16, true},
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
    const gen_kda_bwd_dhu_args *a = (const gen_kda_bwd_dhu_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen_kda_bwd_dhu_params k = {
        .states = {.shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
                   .kg = a->kg,
                   .w = a->w,
                   .u = a->d_v,
                   .gk = a->gk,
                   .initial_state = a->d_final_state,
                   .h = a->d_h,
                   .v_new = a->d_v_new,
                   .final_state = a->d_initial_state,
                   .num_chunks = a->num_chunks ? a->num_chunks : (int32_t)gen__kda_slots(dims),
                   .state_vk = a->state_layout == GEN_KDA_STATE_VK},
        .qg = a->qg,
        .d_o = a->d_o,
        .scale = a->scale,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors. The products' operands are rounded: the state's gradient and d_v_new.
 */
static const double value_tolerance = 0.005, state_tolerance = 0.005;

enum tensor {
    QG,
    KG,
    W,
    D_O,
    D_V,
    GK,
    D_FINAL_STATE,
    CU_SEQLENS,
    D_H,
    D_V_NEW,
    D_INITIAL_STATE,
    NUM_TENSORS
};

#define TENSOR(...) GEN__TENSOR(gen_kda_bwd_dhu_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const int64_t v = gen__kda_tokens(dims) * gen__kda_v_width(dims);
    const int64_t states = dims[KDA_BATCH] * heads * d * d;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const double small = 0.03; /* so that nothing grows from chunk to chunk */
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(qg, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(kg, dtype, GEN__IN, GEN__FILL_NORMAL, small, v), .cold = true},
        {TENSOR(w, dtype, GEN__IN, GEN__FILL_NORMAL, small, v), .cold = true},
        {TENSOR(d_o, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(d_final_state, fp32, GEN__IN, GEN__FILL_NORMAL, 3, states), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_h, dtype, GEN__OUT, GEN__FILL_POISON, 0, gen__kda_slots(dims) * heads * d * d),
         .tolerance = state_tolerance, .cold = true},
        {TENSOR(d_v_new, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = value_tolerance,
         .cold = true},
        {TENSOR(d_initial_state, fp32, GEN__OUT, GEN__FILL_POISON, 0, states),
         .tolerance = state_tolerance, .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_bwd_dhu_args *a = (gen_kda_bwd_dhu_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_BWD_DHU;
    a->scale = 1.0f / sqrtf((float)gen__kda_stage_dims(base)[KDA_HEAD_DIM]);
    a->state_layout = GEN_KDA_STATE_KV;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const struct gen__kda_stage_inputs inputs = {
        .cu_tensor = &list[CU_SEQLENS], .cu_seqlens = data[CU_SEQLENS], .gk = data[GK]};
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form { FORM_NO_STATE, FORM_VK, FORM_FEW, FORM_LOOSE, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"no_state", "vk", "few", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_bwd_dhu_args *a = (gen_kda_bwd_dhu_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_NO_STATE:
        t[D_FINAL_STATE].count = t[D_INITIAL_STATE].count = 0;
        return true;
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_FEW: /* d_h has room for two */
        a->num_chunks = 2;
        t[D_H].count = 2 * (uint64_t)(gen__kda_v_width(dims) * (int64_t)dims[KDA_HEAD_DIM]);
        return gen__kda_slots(dims) > 2;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* Gradients of one sign, or scaled up as a loss scale does. */
static bool hard_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                      struct gen__tensor *t)
{
    (void)args;
    switch (kind) {
    case GEN__DATA_MEAN1:
        t[D_O].mean = t[D_V].mean = 1.0;
        return true;
    case GEN__DATA_EXTREME: { /* the state's gradient stays below the type's greatest number */
        const enum gen_dtype dtype = (enum gen_dtype)gen__kda_stage_dims(base)[KDA_DTYPE];
        t[D_O].amount = t[D_V].amount = t[D_FINAL_STATE].amount =
            gen__data_extreme(dtype) / (64 * GEN__DATA_MOST_NORMAL);
        return true;
    }
    default:
        return false;
    }
}

static void set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS])
{
    (void)gen__kda_set_counts(counts, GEN__KDA_DIMS_OF(gen_kda_stage_problem, base));
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_bwd_dhu_args *a = (const gen_kda_bwd_dhu_args *)base;
    const int64_t heads = dims[KDA_V_HEADS], v = gen__kda_tokens(dims) * gen__kda_v_width(dims) * 2;
    const int64_t state = heads * dims[KDA_HEAD_DIM] * dims[KDA_HEAD_DIM];
    const int64_t chunks = a->num_chunks ? a->num_chunks : gen__kda_slots(dims);
    const int64_t states = dims[KDA_BATCH] * state * 4;
    gen__reads(&list[0], "qg", a->qg, v);
    gen__reads(&list[1], "kg", a->kg, v);
    gen__reads(&list[2], "w", a->w, v);
    gen__reads(&list[3], "d_o", a->d_o, v);
    gen__reads(&list[4], "d_v", a->d_v, v);
    gen__reads(&list[5], "gk", a->gk, v * 2);
    gen__reads(&list[6], "d_final_state", a->d_final_state, states);
    gen__reads(&list[7], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[8], "d_h", a->d_h, chunks * state * 2);
    gen__writes(&list[9], "d_v_new", a->d_v_new, v);
    gen__writes(&list[10], "d_initial_state", a->d_initial_state, states);
    return 11;
}

const struct gen__family gen__family_kda_bwd_dhu = {
    GEN__KDA_FAMILY(GEN_KDA_BWD_DHU, kda_bwd_dhu),
    GEN__ONE_INDEX(kda_bwd_dhu, cu_seqlens),
    .params_size = sizeof(struct gen_kda_bwd_dhu_params),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
    .facts = "dependent,wgmma",
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .fields = gen__kda_stage_fields,
    .num_fields = KDA_STAGE_NUM_FIELDS,
    .grid_steps = gen__kda_grid,
    .set_counts = set_counts,
    .results = KDA_STAGE_RESULTS,
    .data = hard_data,
};
