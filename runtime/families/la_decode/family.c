/*
 * Lightning Attention decode on the host: which problems are allowed, the
 * geometry of a launch, its parameters, and an estimate of its time. Tensors and
 * forms are in inputs.c.
 */
#include "families/la_decode/la_decode.h"

#include "families/common/mathf.h"
#include "family/arguments.h"
#include "families/common/fastdiv.h"
#include "family/occupancy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The most blocks per state that any variant has: a problem that passes
 * check() can be launched by each of them. */
#define MAX_BLOCKS 16
/* Far beyond any model; a kernel's offset within a row stays in 32 bits. */
#define MAX_HEADS 65536
#define TEXT_OF(number) TEXT(number)
#define TEXT(number) #number
/* Batch that a batch-invariant choice is made for. */
#define INVARIANT_BATCH 64

static const char *const dtype_names[] = {"bf16", "fp16"};
static const char *const layout_names[] = {"vk", "kv"};
static const char *const head_dim_names[] = {"64", "128", "256"};

static const struct gen__axis required[] = {
    {"dtype", dtype_names, 2},
    {"head_dim", head_dim_names, 3},
    {"layout", layout_names, 2},
};

static const char *const coords[] = {"states"};

#define FIELD(name) #name, offsetof(gen_la_decode_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_qk_heads), NULL, 0, 64},
    {FIELD(num_v_heads), NULL, 0, GEN__PRESET_SAME},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
    {"layout", offsetof(gen_la_decode_problem, state_layout), layout_names, 2, GEN_LA_STATE_VK},
};
#undef FIELD

/* ---- the problem ------------------------------------------------------- */

/* One number is not what it may be. */
static enum gen_status invalid(const char *name, int64_t value, const char *allowed)
{
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "la_decode: %s = %" PRId64 "; allowed: %s", name,
                     value, allowed);
}

/* Rows x value heads that selection goes by, of a problem that is allowed. */
static int32_t tuning_states(const gen_la_decode_problem *p)
{
    const int32_t batch = p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_BATCH : p->batch;
    return batch * p->num_v_heads;
}

/* Which field of a problem that check() refuses is wrong. */
__attribute__((noinline, cold)) static enum gen_status refuse(const gen_la_decode_problem *p)
{
    if (p->batch < 0)
        return invalid("batch", p->batch, ">= 0");
    if (p->num_qk_heads < 1 || p->num_qk_heads > MAX_HEADS)
        return invalid("head count num_qk_heads", p->num_qk_heads, "1 to " TEXT_OF(MAX_HEADS));
    if (p->num_v_heads < 1 || p->num_v_heads > MAX_HEADS)
        return invalid("head count num_v_heads", p->num_v_heads, "1 to " TEXT_OF(MAX_HEADS));
    if (p->num_v_heads % p->num_qk_heads)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: head count num_v_heads = %" PRId32
                         "; allowed: a multiple of num_qk_heads = %" PRId32,
                         p->num_v_heads, p->num_qk_heads);
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return invalid("head_dim", p->head_dim, "64, 128, 256");
    if (p->dtype != GEN_DTYPE_BF16 && p->dtype != GEN_DTYPE_FP16)
        return invalid("dtype", p->dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    if (p->state_layout != GEN_LA_STATE_VK && p->state_layout != GEN_LA_STATE_KV)
        return invalid("state_layout", p->state_layout, "GEN_LA_STATE_VK (0), GEN_LA_STATE_KV (1)");
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "la_decode: batch * num_v_heads = %" PRId32 " * %" PRId32 " = %" PRId64
                     "; allowed: <= %" PRId32,
                     p->batch, p->num_v_heads, (int64_t)p->batch * p->num_v_heads,
                     INT32_MAX / MAX_BLOCKS);
}

/* Few comparisons, since every selection makes them; refuse() tells them apart.
 * A limit that is a power of two holds for several numbers where it holds for
 * their bits together, and a negative number is a large one. */
static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    const uint32_t qk_heads = (uint32_t)p->num_qk_heads, v_heads = (uint32_t)p->num_v_heads;
    const uint32_t dtype = (uint32_t)p->dtype, layout = (uint32_t)p->state_layout;
    const uint32_t head_dim = (uint32_t)p->head_dim, code = head_dim >> 7;
    const uint64_t states = (uint64_t)(uint32_t)p->batch * v_heads;
    _Static_assert((MAX_HEADS & (MAX_HEADS - 1)) == 0, "a power of two");
    if (((qk_heads - 1) | (v_heads - 1)) >= MAX_HEADS || (dtype | layout) > 1 ||
        head_dim != 64u << (code & 31) || states > INT32_MAX / MAX_BLOCKS)
        return refuse(p);
    /* No branch spares the division: its result is waited for by nobody. */
    if (v_heads % qk_heads)
        return refuse(p);

    gen__set_codes(key, dtype, code, layout);
    key->empty = states == 0;
    key->counts[0] = (float)(int32_t)states;
    if (__builtin_expect(p->base.flags & GEN_BATCH_INVARIANT, 0))
        key->counts[0] = (float)tuning_states(p);
    return GEN_OK;
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    (void)device;
    if ((int64_t)p->batch * p->num_v_heads * variant->fact[LA_DECODE_BLOCKS] > INT32_MAX)
        return "batch * num_v_heads * blocks is more than a grid holds (2147483647)";
    return NULL;
}

/* ---- time -------------------------------------------------------------- */

/*
 * An estimate that orders the variants on a GPU without a table:
 *
 *     time = launch + (streaming^1.5 + chains^1.5)^(2/3) + tail + barriers
 *
 * streaming: the state's bytes, read and written, at the bandwidth that DRAM
 *     gives to equal reads and writes. Wide tiles spread the addresses in flight
 *     and cost bandwidth, and so does a cache policy that does not suit the size
 *     (streaming hints suit what L2 can hold, none suit what overflows it far), and so
 *     do the fixed shares of persistent blocks.
 *     With fewer blocks than the GPU holds, the fullest SM sets the pace.
 * chains: what a block takes if nobody disturbs it, as often as blocks follow each
 *     other: one memory latency for each `inflight_bytes` of its slice, its start
 *     with the loads of q, k and the slot, and a trip through shared memory where
 *     the tiles go through a ring.
 * tail: the last blocks leave the memory idle in part.
 * barriers: a block's last barrier waits for each of its warps.
 *
 * The constants are fitted to every variant of the shapes D = 64 and 128 on an H200, 8 to 16384
 * states (docs/perf/la_decode.md): over those the variant of least estimate is 3.1 % slower than
 * the best in the geometric mean, 11 % at worst. With GEN_BATCH_INVARIANT the estimate is that of a
 * batch of 64.
 */
static const float launch_us = 1.13f;
static const float latency_us = 0.77f;        /* of DRAM under load */
static const float block_us = 0.57f;          /* start, first loads, last sum of a block */
static const float ring_us = 0.48f;           /* a barrier and a trip through shared memory */
static const float warp_us = 0.008f;          /* each warp that a block's last barrier waits for */
static const float achieved_bandwidth = .89f; /* of the peak: 4.27 of 4.8 TB/s on an H200 */
static const float wide_tile = 0.01f;    /* bandwidth lost by doubling a warp's tile beyond 1 KiB */
static const float wrong_policy = 0.02f; /* bandwidth lost by the cache policy for other sizes */
static const float static_shares = 0.08f; /* bandwidth lost by persistent blocks' fixed shares */
static const float fullest_sm = 0.49f;    /* of its share of bandwidth, a lone SM's time */
static const float tail_share = 0.11f;    /* of the resident blocks' bytes, lost at the end */

/* The share of bandwidth that a variant's way of streaming costs. */
static float streaming_loss(const gen_device *device, const struct gen__facts *variant, float bytes)
{
    const float tiles = (float)variant->fact[LA_DECODE_WARP_BYTES] / 1024.0f;
    float loss = tiles > 1 ? wide_tile * gen__log2(tiles) : 0;
    const float l2_bytes = device->l2_bytes ? (float)device->l2_bytes : 40e6f;
    const bool overflows = bytes > 10.0f * l2_bytes;
    if ((variant->fact[LA_DECODE_STREAMING] != 0) == overflows)
        loss += wrong_policy;
    if (variant->fact[LA_DECODE_PERSISTENT])
        loss += static_shares;
    return loss;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    const float blocks = (float)variant->fact[LA_DECODE_BLOCKS];
    const float slice_bytes = (float)p->head_dim * (float)p->head_dim * 4.0f / blocks;
    const float slices = (float)tuning_states(p) * blocks;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float bytes_per_us = gbps * 1e3f * achieved_bandwidth;
    const float sm_bytes_per_us = bytes_per_us / sms;
    const uint32_t per_sm = gen__blocks_per_sm(device, variant);
    const float resident = sms * (float)(per_sm ? per_sm : 1);
    const float deepest_sm = ceilf(slices / sms); /* blocks on the fullest SM, all told */

    const float bytes = 2 * slices * slice_bytes;
    const float most = (float)variant->fact[LA_DECODE_INFLIGHT_BYTES];
    const float inflight = most < slice_bytes ? most : slice_bytes;
    float streaming_us = bytes / bytes_per_us * (1 + streaming_loss(device, variant, bytes));
    float chains_us = block_us + latency_us * slice_bytes / inflight;
    if (variant->shared_dynamic)
        chains_us += ring_us;
    float us = launch_us + warp_us * (float)variant->threads / 32;
    if (slices <= resident) {
        const float alone_us = fullest_sm * 2 * slice_bytes * deepest_sm / sm_bytes_per_us;
        streaming_us = alone_us > streaming_us ? alone_us : streaming_us;
    } else {
        chains_us *= slices / resident;
        us += tail_share * 2 * slice_bytes * resident / bytes_per_us;
    }
    const float root = gen__cbrt(streaming_us * sqrtf(streaming_us) + chains_us * sqrtf(chains_us));
    return us + root * root;
}

/* ---- the launch -------------------------------------------------------- */

/* The dims are the problem's fields, copied whole. */
#define SAME_PLACE(dim, field)                                                           \
    _Static_assert(offsetof(gen_la_decode_problem, field) ==                             \
                       offsetof(gen_la_decode_problem, batch) + (dim) * sizeof(int32_t), \
                   "dims in the order of the problem's fields")
SAME_PLACE(LA_DECODE_QK_HEADS, num_qk_heads);
SAME_PLACE(LA_DECODE_V_HEADS, num_v_heads);
SAME_PLACE(LA_DECODE_HEAD_DIM, head_dim);
SAME_PLACE(LA_DECODE_DTYPE, dtype);
SAME_PLACE(LA_DECODE_LAYOUT, state_layout);
#undef SAME_PLACE

/* No more persistent blocks than the GPU holds. Not inline, so that the others
 * need no registers for it. */
__attribute__((noinline)) static void
keep_resident(const gen_device *device, const struct gen__facts *variant, gen_plan_launch *launch)
{
    const uint64_t resident = (uint64_t)device->num_sms * gen__blocks_per_sm(device, variant);
    if (resident && resident < launch->grid[0])
        launch->grid[0] = (uint32_t)resident;
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    const uint32_t states = (uint32_t)p->batch * (uint32_t)p->num_v_heads;
    memcpy(plan->dims, (const char *)p + offsetof(gen_la_decode_problem, batch),
           LA_DECODE_NUM_DIMS * sizeof plan->dims[0]);
    plan->num_launches = states != 0;
    if (!variant || !states)
        return;

    gen_plan_launch *launch = &plan->launch[0];
    launch->variant = variant->index;
    launch->grid[0] = states * (uint32_t)variant->fact[LA_DECODE_BLOCKS];
    launch->grid[1] = 1;
    launch->grid[2] = 1;
    launch->threads = (uint16_t)variant->threads;
    launch->shared = variant->shared_dynamic;
    launch->dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[LA_DECODE_DEPENDENT];
    if (variant->fact[LA_DECODE_PERSISTENT])
        keep_resident(device, variant, launch);
}

static enum gen_status check_stride(const char *name, int64_t stride, int64_t width, int64_t max)
{
    if (stride == 0 || (stride >= width && stride <= max && stride % 8 == 0))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "la_decode: %s = %" PRId64
                     " elements; allowed: 0 (packed), or a multiple of 8 from %" PRId64
                     " (one row) to %" PRId64,
                     name, stride, width, max);
}

static enum gen_status check_pointers(const gen_la_decode_args *a)
{
    const char *const family = "la_decode";
    enum gen_status status;
    if ((status = gen__check_pointer(family, "q", a->q, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "k", a->k, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "v", a->v, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "o", a->o, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "decay", a->decay, 4, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "state", a->state, 16, false)) != GEN_OK)
        return status;
    return gen__check_pointer(family, "slots", a->slots, 4, true);
}

static int64_t qk_width(const int32_t *dims)
{
    return (int64_t)dims[LA_DECODE_QK_HEADS] * dims[LA_DECODE_HEAD_DIM];
}

static int64_t v_width(const int32_t *dims)
{
    return (int64_t)dims[LA_DECODE_V_HEADS] * dims[LA_DECODE_HEAD_DIM];
}

static enum gen_status check_strides(const int32_t *dims, const gen_la_decode_args *a)
{
    const int64_t qk = qk_width(dims), v = v_width(dims);
    /* rows * stride * 2 bytes stay below 2^63. */
    const int64_t max =
        (INT64_C(1) << 62) >> (32 - __builtin_clz((uint32_t)dims[LA_DECODE_BATCH] | 1));
    enum gen_status status;
    if ((status = check_stride("q_stride", a->q_stride, qk, max)) != GEN_OK ||
        (status = check_stride("k_stride", a->k_stride, qk, max)) != GEN_OK ||
        (status = check_stride("v_stride", a->v_stride, v, max)) != GEN_OK)
        return status;
    return check_stride("o_stride", a->o_stride, v, max);
}

static enum gen_status check_pool(const int32_t *dims, const gen_la_decode_args *a)
{
    /* slots * heads * head_dim^2 * 4 bytes stay below 2^63, and the most that
     * head_dim^2 * 4 can be is 2^18. */
    const int64_t addressable =
        (INT64_C(1) << 45) >> (32 - __builtin_clz((uint32_t)dims[LA_DECODE_V_HEADS]));
    const int64_t max = addressable < INT32_MAX ? addressable : INT32_MAX;
    if (a->num_slots < 1 || a->num_slots > max)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: num_slots = %" PRId32 "; allowed: 1 to %" PRId64, a->num_slots,
                         max);
    if (!a->slots && a->num_slots < dims[LA_DECODE_BATCH])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: num_slots = %" PRId32
                         " without slots; allowed: >= batch = %" PRId32,
                         a->num_slots, dims[LA_DECODE_BATCH]);
    return GEN_OK;
}

static enum gen_status check_scalars(const int32_t *dims, const gen_la_decode_args *a)
{
    if (a->num_decays != dims[LA_DECODE_QK_HEADS] && a->num_decays != dims[LA_DECODE_V_HEADS])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: num_decays = %" PRId32
                         "; allowed: one of the head counts num_qk_heads = %" PRId32
                         ", num_v_heads = %" PRId32,
                         a->num_decays, dims[LA_DECODE_QK_HEADS], dims[LA_DECODE_V_HEADS]);
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: scale = %g; allowed: a finite number", (double)a->scale);
    if (a->zero_padding != 0 && a->zero_padding != 1)
        return invalid("zero_padding", a->zero_padding, "0, 1");
    return GEN_OK;
}

/* What is divided by below, in case the plan was not kept well: the group is a divisor, too. */
static enum gen_status check_dims(const int32_t *dims)
{
    if (dims[LA_DECODE_BATCH] >= 0 && dims[LA_DECODE_QK_HEADS] > 0 &&
        dims[LA_DECODE_V_HEADS] >= dims[LA_DECODE_QK_HEADS])
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "la_decode: the plan's batch, num_qk_heads, num_v_heads are %" PRId32
                     ", %" PRId32 ", %" PRId32 "; not what gen_select() writes",
                     dims[LA_DECODE_BATCH], dims[LA_DECODE_QK_HEADS], dims[LA_DECODE_V_HEADS]);
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_la_decode_args *a = (const gen_la_decode_args *)base;
    const int64_t rows = dims[LA_DECODE_BATCH], qk = qk_width(dims) * 2, v = v_width(dims) * 2;
    const int64_t slot = v_width(dims) * dims[LA_DECODE_HEAD_DIM] * 4;
    gen__reads_rows(&list[0], "q", a->q, qk, rows, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, rows, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v, rows, gen__stride_bytes(a->v_stride, 2));
    gen__writes_rows(&list[3], "o", a->o, v, rows, gen__stride_bytes(a->o_stride, 2));
    gen__reads(&list[4], "decay", a->decay, a->num_decays * INT64_C(4));
    gen__writes(&list[5], "state", a->state, a->num_slots * slot);
    gen__reads(&list[6], "slots", a->slots, rows * 4);
    return 7;
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    (void)launch;
    (void)workspace;
    const gen_la_decode_args *a = (const gen_la_decode_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    if ((status = check_dims(dims)) != GEN_OK || (status = check_pointers(a)) != GEN_OK ||
        (status = check_strides(dims, a)) != GEN_OK || (status = check_pool(dims, a)) != GEN_OK ||
        (status = check_scalars(dims, a)) != GEN_OK || !out)
        return status;

    const int64_t qk = qk_width(dims), v = v_width(dims);
    const uint32_t qk_heads = (uint32_t)dims[LA_DECODE_QK_HEADS];
    const uint32_t v_heads = (uint32_t)dims[LA_DECODE_V_HEADS];
    const struct gen__fastdiv one = {0, 0}, heads = gen__fastdiv(v_heads);
    const struct gen__fastdiv group = v_heads == qk_heads ? one : gen__fastdiv(v_heads / qk_heads);
    const struct gen__fastdiv decay = a->num_decays == dims[LA_DECODE_V_HEADS] ? one : group;

    struct gen_la_decode_params *k = out;
    *k = (struct gen_la_decode_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .o = a->o,
        .decay = a->decay,
        .state = a->state,
        .slots = a->slots,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .v_stride = a->v_stride ? a->v_stride : v,
        .o_stride = a->o_stride ? a->o_stride : v,
        .num_states = (unsigned)dims[LA_DECODE_BATCH] * v_heads,
        .num_v_heads = v_heads,
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .group_mul = group.mul,
        .group_shift = group.shift,
        .decay_mul = decay.mul,
        .decay_shift = decay.shift,
        .num_slots = (unsigned)a->num_slots,
        .zero_padding = a->zero_padding,
        .scale = a->scale,
    };
    return GEN_OK;
}

const struct gen__family gen__family_la_decode = {
    .name = "la_decode",
    .tag = GEN_LA_DECODE,
    .problem_size = sizeof(gen_la_decode_problem),
    .args_size = sizeof(gen_la_decode_args),
    .params_size = sizeof(struct gen_la_decode_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = LA_DECODE_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = fits,
    .predict = predict,
    .plan = plan,
    .params = params,
    .extents = extents,
    .reference = gen__la_decode_reference,
    .exact = gen__la_decode_exact,
    .tensors = gen__la_decode_tensors,
    .default_args = gen__la_decode_default_args,
    .cost = gen__la_decode_cost,
    .case_name = gen__la_decode_case_name,
    .forms = gen__la_decode_forms,
    .num_forms = LA_DECODE_NUM_FORMS,
    .form = gen__la_decode_form,
    .data = gen__la_decode_data,
};
