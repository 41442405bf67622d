/*
 * A stage of Kimi Delta Attention prefill, outputs from states, on the host: the
 * geometry of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda_chunk_o/api.h"
#include "kda_chunk_o/args.h"
#include "families/kda/stage.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_chunk_o_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_chunk_o";

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
    *bytes = tokens * (dims[KDA_QK_HEADS] * 2 * d + heads * (d * (2 + 4 + 2) + 2 * KDA_CHUNK)) +
             tiles * d * d * 2;
    *flops = tiles * (KDA_CHUNK * d * d * 2 + 10 * 256 * d * 2);
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

static enum gen_status check_args(const int32_t *dims, const gen_kda_chunk_o_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"q", a->q, 16, false},       {"v_new", a->v_new, 16, false}, {"gk", a->gk, 16, false},
        {"a_qk", a->a_qk, 16, false}, {"h", a->h, 16, false},         {"o", a->o, 16, false},
    };
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    enum gen_status status;
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if (a->num_chunks < 0)
        return gen__invalid(family, "num_chunks", a->num_chunks, "0 (all), or more");
    if (a->state_layout != GEN_KDA_STATE_KV && a->state_layout != GEN_KDA_STATE_VK)
        return gen__invalid(family, "state_layout", a->state_layout,
                            "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    if ((status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                sizeof list / sizeof *list)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "q_stride", dims, a->q_stride, 8, qk)) != GEN_OK)
        return status;
    return gen__kda_check_stride(family, "o_stride", dims, a->o_stride, 8, v);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_chunk_o_args *a = (const gen_kda_chunk_o_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen_kda_chunk_o_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .q = a->q,
        .v_new = a->v_new,
        .gk = a->gk,
        .a_qk = a->a_qk,
        .h = a->h,
        .o = a->o,
        .q_stride = a->q_stride ? a->q_stride : gen__kda_qk_width(dims),
        .o_stride = a->o_stride ? a->o_stride : gen__kda_v_width(dims),
        .scale = a->scale,
        .num_chunks = a->num_chunks ? a->num_chunks : (int32_t)gen__kda_slots(dims),
        .state_vk = a->state_layout == GEN_KDA_STATE_VK,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* A relative Frobenius error: q 2^gk is rounded, and the result. */
static const double output_tolerance = 0.005;

enum tensor { Q, V_NEW, GK, A_QK, H, CU_SEQLENS, O, NUM_TENSORS };

#define TENSOR(...) GEN__TENSOR(gen_kda_chunk_o_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const int64_t v = gen__kda_tokens(dims) * gen__kda_v_width(dims);
    const int64_t qk = gen__kda_tokens(dims) * gen__kda_qk_width(dims);
    const int64_t scores = gen__kda_tokens(dims) * heads * KDA_CHUNK;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const double unit = 1.0 / sqrt((double)d); /* rows as the norm leaves them */
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, unit, qk), .cold = true},
        {TENSOR(v_new, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(a_qk, dtype, GEN__IN, GEN__FILL_FAMILY, 0, scores), .cold = true},
        {TENSOR(h, dtype, GEN__IN, GEN__FILL_NORMAL, 1, gen__kda_slots(dims) * heads * d * d),
         .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = output_tolerance,
         .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_chunk_o_args *a = (gen_kda_chunk_o_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_CHUNK_O;
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
                                                 .a_qk = data[A_QK]};
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form { FORM_STRIDES, FORM_VK, FORM_FEW, FORM_LOOSE, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"strides", "vk", "few", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_chunk_o_args *a = (gen_kda_chunk_o_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    const uint64_t d = (uint64_t)dims[KDA_HEAD_DIM];
    switch ((enum form)index) {
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->q_stride = s.qkv;
        a->o_stride = s.o;
        t[Q].count = s.qk_count;
        t[O].count = s.o_count;
        return true;
    }
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_FEW: /* h has room for two */
        a->num_chunks = 2;
        t[H].count = 2 * (uint64_t)dims[KDA_V_HEADS] * d * d;
        return gen__kda_slots(dims) > 2;
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
    const gen_kda_chunk_o_args *a = (const gen_kda_chunk_o_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = gen__kda_qk_width(dims) * 2, v = gen__kda_v_width(dims) * 2;
    const int64_t state = heads * dims[KDA_HEAD_DIM] * dims[KDA_HEAD_DIM] * 2;
    const int64_t chunks = a->num_chunks ? a->num_chunks : gen__kda_slots(dims);
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads(&list[1], "v_new", a->v_new, tokens * v);
    gen__reads(&list[2], "gk", a->gk, tokens * v * 2);
    gen__reads(&list[3], "a_qk", a->a_qk, tokens * heads * KDA_CHUNK * 2);
    gen__reads(&list[4], "h", a->h, chunks * state);
    gen__reads(&list[5], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes_rows(&list[6], "o", a->o, v, tokens, gen__stride_bytes(a->o_stride, 2));
    return 7;
}

const struct gen__family gen__family_kda_chunk_o = {
    GEN__KDA_STAGE(GEN_KDA_CHUNK_O, kda_chunk_o),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
};
