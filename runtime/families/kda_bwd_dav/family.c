/*
 * A stage of the backward pass of Kimi Delta Attention, an output's gradient inside a chunk, on the
 * host: the geometry of a launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda_bwd_dav/api.h"
#include "kda_bwd_dav/args.h"
#include "families/kda/stage.h"
#include "reference/data.h"

#include <math.h>
#include <string.h>

enum gen_status gen__kda_bwd_dav_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_bwd_dav";

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    return gen__kda_stage_check(family, base, 0, key);
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    /* v_new, d_o, d_v; A_qk and its gradient */
    *bytes = (double)gen__kda_tokens(dims) * heads * (3 * 2 * d + KDA_CHUNK * (2 + 4));
    *flops = tiles * 2 * 10 * 256 * d * 2; /* ten blocks of 16 x 16, twice */
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

static enum gen_status check_args(const int32_t *dims, const gen_kda_bwd_dav_args *a)
{
    const struct gen__kda_pointer list[] = {
        {"v_new", a->v_new, 16, false},   {"d_o", a->d_o, 16, false}, {"a_qk", a->a_qk, 16, false},
        {"d_a_qk", a->d_a_qk, 16, false}, {"d_v", a->d_v, 16, false},
    };
    const enum gen_status status = gen__kda_stage_check_pointers(family, dims, a->cu_seqlens, list,
                                                                 sizeof list / sizeof *list);
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    return status ? status
                  : gen__kda_check_stride(family, "d_o_stride", dims, a->d_o_stride, 8,
                                          gen__kda_v_width(dims));
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_bwd_dav_args *a = (const gen_kda_bwd_dav_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, dims)) != GEN_OK ||
        (status = check_args(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen_kda_bwd_dav_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .v_new = a->v_new,
        .d_o = a->d_o,
        .a_qk = a->a_qk,
        .d_a_qk = a->d_a_qk,
        .d_v = a->d_v,
        .d_o_stride = a->d_o_stride ? a->d_o_stride : gen__kda_v_width(dims),
        .scale = a->scale,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: sums of exact products in fp32, and one rounding to 16 bits. */
static const double score_tolerance = 1e-5, value_tolerance = 0.0025;

enum tensor { V_NEW, D_O, A_QK, CU_SEQLENS, D_A_QK, D_V, NUM_TENSORS };

#define TENSOR(...) GEN__TENSOR(gen_kda_bwd_dav_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t scores = tokens * dims[KDA_V_HEADS] * KDA_CHUNK;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(v_new, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_o, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(a_qk, dtype, GEN__IN, GEN__FILL_FAMILY, 0, scores), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_a_qk, fp32, GEN__OUT, GEN__FILL_POISON, 0, scores), .tolerance = score_tolerance,
         .cold = true},
        {TENSOR(d_v, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = value_tolerance,
         .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_bwd_dav_args *a = (gen_kda_bwd_dav_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_BWD_DAV;
    a->scale = 1.0f / sqrtf((float)gen__kda_stage_dims(base)[KDA_HEAD_DIM]);
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const struct gen__kda_stage_inputs inputs = {
        .cu_tensor = &list[CU_SEQLENS], .cu_seqlens = data[CU_SEQLENS], .a_qk = data[A_QK]};
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    return GEN_OK;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name(family, base, text, capacity);
}

enum form { FORM_STRIDES, FORM_LOOSE, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"strides", "loose"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_bwd_dav_args *a = (gen_kda_bwd_dav_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->d_o_stride = s.o;
        t[D_O].count = s.o_count;
        return true;
    }
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* Values and gradients of one sign, or of the type's size: a loss scale makes gradients large. */
static bool hard_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                      struct gen__tensor *t)
{
    (void)args;
    switch (kind) {
    case GEN__DATA_MEAN1:
        t[V_NEW].mean = t[D_O].mean = 1.0;
        return true;
    case GEN__DATA_EXTREME: /* sums of d_o stay below the type's greatest number */
        t[D_O].amount = gen__data_extreme((enum gen_dtype)gen__kda_stage_dims(base)[KDA_DTYPE]) /
                        (2 * GEN__DATA_MOST_NORMAL);
        return true;
    default:
        return false;
    }
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_bwd_dav_args *a = (const gen_kda_bwd_dav_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t v = gen__kda_v_width(dims) * 2, matrix = tokens * heads * KDA_CHUNK;
    gen__reads(&list[0], "v_new", a->v_new, tokens * v);
    gen__reads_rows(&list[1], "d_o", a->d_o, v, tokens, gen__stride_bytes(a->d_o_stride, 2));
    gen__reads(&list[2], "a_qk", a->a_qk, matrix * 2);
    gen__reads(&list[3], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[4], "d_a_qk", a->d_a_qk, matrix * 4);
    gen__writes(&list[5], "d_v", a->d_v, tokens * v);
    return 6;
}

const struct gen__family gen__family_kda_bwd_dav = {
    GEN__KDA_STAGE(GEN_KDA_BWD_DAV, kda_bwd_dav),
    .extents = extents,
    .num_required = KDA_NUM_REQUIRED,
    .data = hard_data,
};
