/*
 * Kimi Delta Attention between chunks, on the host: the geometry of a launch, its
 * parameters, and what the tuner and the tests need.
 */
#include "families/kda/pools.h"

#include "reference/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "kda_inter";
static const char *const coords[] = {"states", "seq_len"};

#define FIELD(name) #name, offsetof(gen_kda_inter_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(seq_len), NULL, 0, 1024},
    {FIELD(num_tokens), NULL, 0, 0},
    {FIELD(num_v_heads), NULL, 0, 64},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), gen__kda_dtypes, 2, GEN_DTYPE_BF16},
    {FIELD(state_pool), gen__kda_state_pools, 2, 0},
    {FIELD(state_dtype), gen__kda_state_dtypes, 3, GEN_STATE_FP32},
};
#undef FIELD

/* As the other families have them; each by itself, for what is stored so is read so. */
static void dims_of(const gen_problem *base, int32_t *dims)
{
    const gen_kda_inter_problem *p = (const gen_kda_inter_problem *)base;
    dims[KDA_BATCH] = p->batch;
    dims[KDA_SEQ_LEN] = p->seq_len;
    dims[KDA_NUM_TOKENS] = p->num_tokens;
    dims[KDA_QK_HEADS] = 1;
    dims[KDA_V_HEADS] = p->num_v_heads;
    dims[KDA_HEAD_DIM] = p->head_dim;
    dims[KDA_DTYPE] = p->dtype;
    dims[KDA_GATE_DTYPE] = GEN_DTYPE_FP32;
    dims[KDA_BETA_DTYPE] = GEN_DTYPE_FP32;
    dims[KDA_SAFE_GATE] = 1;
    dims[KDA_STATE_POOL] = p->state_pool;
    dims[KDA_STATE_DTYPE] = p->state_dtype;
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    enum gen_status status;
    if ((status = gen__kda_check(family, dims, (uint32_t)dims[KDA_STATE_POOL] & 1, key)) !=
            GEN_OK ||
        (status = gen__kda_check_state_fields(family, dims[KDA_STATE_POOL],
                                              dims[KDA_STATE_DTYPE])) != GEN_OK)
        return status;
    key->empty = dims[KDA_BATCH] == 0;
    gen__kda_chain_counts(base, dims, key);
    return GEN_OK;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    gen__kda_make_usual(base, dims);
    return gen__kda_inter_us(dims, device, variant);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    (void)device;
    dims_of(base, plan->dims);
    plan->num_launches = plan->dims[KDA_BATCH] > 0;
    if (variant && plan->num_launches)
        gen__kda_inter_launch(plan->dims, variant, base->flags, &plan->launch[0]);
}

static enum gen_status check_operands(const int32_t *dims, const gen_kda_inter_args *a)
{
    const bool none = !gen__kda_tokens(dims);
    enum gen_status status;
    if ((status = gen__check_pointer(family, "w", a->w, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "u", a->u, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "qg", a->qg, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "kg", a->kg, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "a_qk", a->a_qk, 16, none)) != GEN_OK)
        return status;
    return gen__check_pointer(family, "decay", a->decay, 16, none);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_inter_args *a = (const gen_kda_inter_args *)base;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, plan->dims)) != GEN_OK ||
        (status = gen__kda_check_inter(family, plan->dims, a)) != GEN_OK ||
        (status = check_operands(plan->dims, a)) != GEN_OK || !out)
        return status;
    gen__kda_inter_pool_params(plan->dims, a, out);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: the state and vn are rounded to 16 bits before they are
 * multiplied, and the output once more. 0.005 is what public tests allow. */
static const double output_tolerance = 0.005, state_tolerance = 0.005;

#define TENSOR(...) GEN__TENSOR(gen_kda_inter_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype state = gen__state_element(dims[KDA_STATE_DTYPE]);
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const int64_t tiles = gen__kda_slots(dims) * heads, tile = tiles * KDA_CHUNK * d;
    const int64_t states = dims[KDA_BATCH] * heads * d * d;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t v = gen__kda_tokens(dims) * heads * d;
    /* w and kg so small that their product contracts. */
    const struct gen__tensor list[KDA_INTER_NUM_TENSORS] = {
        {TENSOR(w, dtype, GEN__IN, GEN__FILL_NORMAL, 0.03, tile), .cold = true},
        {TENSOR(u, dtype, GEN__IN, GEN__FILL_NORMAL, 1, tile), .cold = true},
        {TENSOR(qg, dtype, GEN__IN, GEN__FILL_NORMAL, 0.1, tile), .cold = true},
        {TENSOR(kg, dtype, GEN__IN, GEN__FILL_NORMAL, 0.03, tile), .cold = true},
        {TENSOR(a_qk, dtype, GEN__IN, GEN__FILL_NORMAL, 0.1, tiles * KDA_CHUNK * KDA_CHUNK),
         .cold = true},
        {TENSOR(decay, fp32, GEN__IN, GEN__FILL_UNIFORM, 1, tiles * d), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(initial_state, state, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(final_state, state, GEN__OUT, GEN__FILL_POISON, 0, states),
         .tolerance = state_tolerance, .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = output_tolerance,
         .row_tolerance = 4 * output_tolerance, .row = (uint32_t)d, .cold = true},
        {TENSOR(states, dtype, GEN__OUT, GEN__FILL_POISON, 0, 0), .tolerance = state_tolerance},
        GEN__KDA_POOL_TENSORS(gen_kda_inter_args, state, state_tolerance),
    };
    memcpy(tensors, list, sizeof list);
    return KDA_INTER_NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_inter_args *a = (gen_kda_inter_args *)args;
    (void)base;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_INTER;
    a->state_layout = GEN_KDA_STATE_KV;
}

static const struct gen__kda_pool_places places = {KDA_INTER_INITIAL_STATE, KDA_INTER_FINAL_STATE,
                                                   KDA_INTER_CU_SEQLENS, KDA_INTER_CKPT_POOL};

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    gen__kda_fill(dims, &list[KDA_INTER_CU_SEQLENS], options, data[KDA_INTER_CU_SEQLENS]);
    gen__kda_fill_pools(dims, &places, &((const gen_kda_inter_args *)args)->pools, list, options,
                        data);
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    *bytes = tiles * (KDA_CHUNK * d * 8 + KDA_CHUNK * KDA_CHUNK * 2 + d * 4) +
             (double)gen__kda_tokens(dims) * heads * d * 2 + 8 * dims[KDA_BATCH] * heads * d * d;
    *flops = tiles * (3 * 2 * KDA_CHUNK * d * d + 2 * KDA_CHUNK * KDA_CHUNK * d);
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    dims[KDA_QK_HEADS] = dims[KDA_V_HEADS];
    gen__kda_case_name(dims, text, capacity);
}

enum form {
    FORM_VK,
    FORM_NO_STATE,
    FORM_STRIDES,
    FORM_LOOSE,
    FORM_STATES,
    FORM_STATES_VK,
    FORM_POOLS, /* and the others of pools */
    NUM_FORMS = FORM_POOLS + GEN__KDA_POOL_NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {
    "vk", "no_state", "strides", "loose", "states", "states_vk", GEN__KDA_POOL_FORM_NAMES};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_inter_args *a = (gen_kda_inter_args *)args;
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    switch ((enum form)index) {
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_NO_STATE:
        t[KDA_INTER_INITIAL_STATE].count = t[KDA_INTER_FINAL_STATE].count = 0;
        return true;
    case FORM_STRIDES: {
        const struct gen__kda_strides s = gen__kda_stride_form(dims);
        a->o_stride = s.o;
        t[KDA_INTER_O].count = s.o_count;
        t[KDA_INTER_O].row = 0;
        return true;
    }
    case FORM_LOOSE:
        t[KDA_INTER_STATES].count = gen__kda_states_count(dims);
        return gen__kda_loose_form(dims, &t[KDA_INTER_CU_SEQLENS]);
    case FORM_STATES_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        /* fall through */
    case FORM_STATES:
        t[KDA_INTER_STATES].count = gen__kda_states_count(dims);
        return true;
    default:
        break;
    }
    if (!dims[KDA_STATE_POOL])
        return false;
    gen__kda_pool_form(dims, (enum gen__kda_pool_form)(index - FORM_POOLS), &places, &a->pools, t);
    return true;
}

static void set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS])
{
    gen_kda_inter_problem *p = (gen_kda_inter_problem *)base;
    int32_t dims[KDA_ALL_DIMS];
    if (!gen__kda_set_counts(counts, dims))
        return;
    p->batch = dims[KDA_BATCH];
    p->seq_len = dims[KDA_SEQ_LEN];
    p->num_tokens = dims[KDA_NUM_TOKENS];
    p->num_v_heads = dims[KDA_V_HEADS];
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_inter_args *a = (const gen_kda_inter_args *)base;
    const int64_t tiles = gen__kda_slots(dims) * dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const int64_t tile = tiles * KDA_CHUNK * d * 2;
    const int64_t width = dims[KDA_V_HEADS] * d * 2;
    gen__reads(&list[0], "w", a->w, tile);
    gen__reads(&list[1], "u", a->u, tile);
    gen__reads(&list[2], "qg", a->qg, tile);
    gen__reads(&list[3], "kg", a->kg, tile);
    gen__reads(&list[4], "a_qk", a->a_qk, tiles * KDA_CHUNK * KDA_CHUNK * 2);
    gen__reads(&list[5], "decay", a->decay, tiles * d * 4);
    gen__reads(&list[6], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes_rows(&list[7], "o", a->o, width, gen__kda_tokens(dims),
                     gen__stride_bytes(a->o_stride, 2));
    gen__writes(&list[8], "states", a->states, (int64_t)gen__kda_states_count(dims) * 2);
    return 9 + gen__kda_pool_extents(dims, &a->pools, a->initial_state, a->final_state, list + 9);
}

const struct gen__family gen__family_kda_inter = {
    GEN__KDA_FAMILY_OF(GEN_KDA_INTER, kda_inter, gen__kda_pool_required),
    .problem_least = offsetof(gen_kda_inter_problem, state_pool),
    .args_least = offsetof(gen_kda_inter_args, pools),
    .params_size = sizeof(struct gen_kda_inter_pool_params),
    .extents = extents,
    .num_required = KDA_POOL_NUM_REQUIRED,
    .facts = KDA_INTER_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .grid_steps = gen__kda_grid,
    .set_counts = set_counts,
};
