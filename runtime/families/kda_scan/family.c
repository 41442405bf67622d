/*
 * Kimi Delta Attention, what segments do to states, on the host: the geometry of a
 * launch, its parameters, and what the tuner and the tests need.
 */
#include "families/kda/pools.h"
#include "families/kda/segments.h"

#include "reference/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "kda_scan";
/* Chunks of all heads; how long a segment is hardly matters to which variant is best. */
static const char *const coords[] = {"tiles"};

#define FIELD(name) #name, offsetof(gen_kda_scan_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(seq_len), NULL, 0, 1024},
    {FIELD(num_tokens), NULL, 0, 0},
    {FIELD(num_v_heads), NULL, 0, 8},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), gen__kda_dtypes, 2, GEN_DTYPE_BF16},
    {FIELD(segment_chunks), NULL, 0, 4},
    {FIELD(state_pool), gen__kda_state_pools, 2, 0},
    {FIELD(state_dtype), gen__kda_state_dtypes, 3, GEN_STATE_FP32},
};
#undef FIELD

/* As the other families have them; each by itself, for what is stored so is read so. */
static void dims_of(const gen_problem *base, int32_t *dims)
{
    const gen_kda_scan_problem *p = (const gen_kda_scan_problem *)base;
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
    dims[KDA_SEGMENT_CHUNKS] = p->segment_chunks;
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    enum gen_status status;
    if ((status = gen__kda_check(family, dims, (uint32_t)dims[KDA_STATE_POOL] & 1, key)) !=
            GEN_OK ||
        (status = gen__kda_check_segments(family, dims)) != GEN_OK ||
        (status = gen__kda_check_state_fields(family, dims[KDA_STATE_POOL],
                                              dims[KDA_STATE_DTYPE])) != GEN_OK)
        return status;
    key->empty = gen__kda_slots(dims) == 0;
    const int64_t chunks = gen__kda_usual_chunks(base, dims);
    key->counts[0] = (float)((chunks ? chunks : 1) * dims[KDA_V_HEADS]);
    return GEN_OK;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    gen__kda_make_usual(base, dims);
    return gen__kda_scan_us(dims, dims[KDA_SEGMENT_CHUNKS], device, variant);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    (void)device;
    dims_of(base, plan->dims);
    plan->num_launches = gen__kda_slots(plan->dims) > 0;
    if (!variant || !plan->num_launches)
        return;
    const uint32_t groups =
        variant->fact[KDA_INTER_GROUPS] > 1 ? (uint32_t)variant->fact[KDA_INTER_GROUPS] : 1;
    const uint32_t units = (uint32_t)plan->dims[KDA_HEAD_DIM] / 32;
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {(uint32_t)plan->dims[KDA_V_HEADS] * (units / groups),
                 (uint32_t)gen__kda_segment_slots(plan->dims, plan->dims[KDA_SEGMENT_CHUNKS]), 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(base->flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_INTER_DEPENDENT],
    };
}

static enum gen_status check_args(const int32_t *dims, const gen_kda_scan_args *a)
{
    enum gen_status status;
    if ((status = gen__check_pointer(family, "w", a->w, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "u", a->u, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "kg", a->kg, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "decay", a->decay, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "initial_state", a->initial_state, 16, true)) !=
            GEN_OK ||
        (status = gen__check_pointer(family, "added", a->added, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "transition", a->transition, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "segment_decay", a->segment_decay, 16, false)) !=
            GEN_OK ||
        (status = gen__kda_check_cu_seqlens(family, dims, a->cu_seqlens)) != GEN_OK)
        return status;
    if (a->state_layout != GEN_KDA_STATE_KV && a->state_layout != GEN_KDA_STATE_VK)
        return gen__invalid(family, "state_layout", a->state_layout,
                            "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    return gen__kda_check_pools(family, dims, &a->pools, a->initial_state, NULL);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_scan_args *a = (const gen_kda_scan_args *)base;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__kda_check_dims(family, plan->dims)) != GEN_OK)
        return status;
    if (gen__kda_check_segments(family, plan->dims))
        return gen__fail(GEN_STATUS_MISMATCH,
                         "%s: the plan's problem is not what gen_select() writes", family);
    if ((status = check_args(plan->dims, a)) != GEN_OK || !out)
        return status;
    gen__kda_scan_pool_params(plan->dims, a, out);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Relative Frobenius errors: states and vn are rounded to 16 bits before they are
 * multiplied. Of a transition, whose parts are compared by themselves, each element of the
 * rests may be off by what one of the first parts is rounded by. */
static const double added_tolerance = 0.005, transition_tolerance = 0.008, decay_tolerance = 1e-6;

#define TENSOR(...) GEN__TENSOR(gen_kda_scan_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype state = gen__state_element(dims[KDA_STATE_DTYPE]);
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const int64_t tiles = gen__kda_slots(dims) * heads, tile = tiles * KDA_CHUNK * d;
    const int64_t segments = gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]) * heads * d * d;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    /* w and kg so small that their product contracts. */
    const struct gen__tensor list[KDA_SCAN_NUM_TENSORS] = {
        {TENSOR(w, dtype, GEN__IN, GEN__FILL_NORMAL, 0.03, tile), .cold = true},
        {TENSOR(u, dtype, GEN__IN, GEN__FILL_NORMAL, 1, tile), .cold = true},
        {TENSOR(kg, dtype, GEN__IN, GEN__FILL_NORMAL, 0.03, tile), .cold = true},
        {TENSOR(decay, fp32, GEN__IN, GEN__FILL_UNIFORM, 1, tiles * d), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(initial_state, state, GEN__IN, GEN__FILL_NORMAL, 1,
                dims[KDA_BATCH] * heads * d * d),
         .cold = true},
        {TENSOR(added, fp32, GEN__OUT, GEN__FILL_POISON, 0, segments), .tolerance = added_tolerance,
         .cold = true},
        {TENSOR(transition, dtype, GEN__OUT, GEN__FILL_POISON, 0, 2 * segments),
         .tolerance = transition_tolerance, .cold = true},
        {TENSOR(segment_decay, fp32, GEN__OUT, GEN__FILL_POISON, 0, segments / d),
         .tolerance = decay_tolerance, .cold = true},
        {TENSOR(pools.slots_in, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},
    };
    memcpy(tensors, list, sizeof list);
    return KDA_SCAN_NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_scan_args *a = (gen_kda_scan_args *)args;
    (void)base;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_SCAN;
    a->state_layout = GEN_KDA_STATE_KV;
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    (void)args;
    gen__kda_fill(dims, &list[KDA_SCAN_CU_SEQLENS], options, data[KDA_SCAN_CU_SEQLENS]);
    int32_t *const slots = data[KDA_SCAN_SLOTS_IN];
    for (int32_t n = 0; slots && n < dims[KDA_BATCH]; n++)
        slots[n] = n % 3 == 2 ? 0 : 2 * (dims[KDA_BATCH] - n);
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    const double segments = (double)gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]) * heads;
    *bytes = tiles * (KDA_CHUNK * d * 6 + d * 4) + 8 * segments * d * d + 4 * segments * d;
    *flops = tiles * (4 * 2 * KDA_CHUNK * d * d);
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    char name[96];
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    dims[KDA_QK_HEADS] = dims[KDA_V_HEADS];
    gen__kda_case_name(dims, name, sizeof name);
    snprintf(text, capacity, "%s-S%" PRId32, name, dims[KDA_SEGMENT_CHUNKS]);
}

enum form { FORM_VK, FORM_NO_STATE, FORM_LOOSE, FORM_SLOTS, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"vk", "no_state", "loose", "slots"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_scan_args *a = (gen_kda_scan_args *)args;
    int32_t dims[KDA_ALL_DIMS];
    dims_of(base, dims);
    switch ((enum form)index) {
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_NO_STATE:
        t[KDA_SCAN_INITIAL_STATE].count = 0;
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[KDA_SCAN_CU_SEQLENS]);
    case FORM_SLOTS: /* twice as many, and the first one null */
        a->pools.num_slots = 2 * dims[KDA_BATCH] + 1;
        a->pools.null_slot = 1;
        a->pools.stride_in = gen__kda_state_size(dims) + 64;
        t[KDA_SCAN_SLOTS_IN].count = (uint64_t)dims[KDA_BATCH];
        t[KDA_SCAN_INITIAL_STATE].count = (uint64_t)(a->pools.num_slots * a->pools.stride_in);
        return dims[KDA_STATE_POOL] == 1;
    case NUM_FORMS:
        break;
    }
    return false;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_scan_args *a = (const gen_kda_scan_args *)base;
    const int64_t tiles = gen__kda_slots(dims) * dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const int64_t tile = tiles * KDA_CHUNK * d * 2;
    const int64_t states = dims[KDA_V_HEADS] * d * d * 4;
    const int64_t segments = gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]) * states;
    gen__reads(&list[0], "w", a->w, tile);
    gen__reads(&list[1], "u", a->u, tile);
    gen__reads(&list[2], "kg", a->kg, tile);
    gen__reads(&list[3], "decay", a->decay, tiles * d * 4);
    gen__reads(&list[4], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes(&list[5], "added", a->added, segments);
    gen__writes(&list[6], "transition", a->transition, segments);
    gen__writes(&list[7], "segment_decay", a->segment_decay, segments / d);
    return 8 + gen__kda_pool_extents(dims, &a->pools, a->initial_state, NULL, list + 8);
}

const struct gen__family gen__family_kda_scan = {
    GEN__KDA_FAMILY_OF(GEN_KDA_SCAN, kda_scan, gen__kda_pool_required),
    .problem_least = offsetof(gen_kda_scan_problem, state_pool),
    .args_least = offsetof(gen_kda_scan_args, pools),
    .params_size = sizeof(struct gen_kda_inter_pool_params),
    .extents = extents,
    .num_required = KDA_POOL_NUM_REQUIRED,
    .facts = KDA_INTER_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .grid_steps = gen__kda_tiles_grid,
};
