/*
 * Lightning Attention decode on the host: which problems are allowed, the
 * geometry of a launch, and an estimate of its time. Arguments are in args.c,
 * tensors and forms in inputs.c.
 */
#include "families/la_decode/la_decode.h"

#include "families/common/mathf.h"
#include "family/arguments.h"
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
static const char *const pool_names[] = {"none", "pool", "pool16"};
static const char *const state_names[] = {"fp32", "bf16", "fp16"};

static const struct gen__axis required[] = {
    {"dtype", dtype_names, 2},
    {"head_dim", head_dim_names, 3},
    {"layout", layout_names, 2},
    {"state_pool", pool_names, 3},
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
    {FIELD(state_dtype), state_names, 3, GEN_STATE_FP32},
    {FIELD(pool), NULL, 0, 0},
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
    if ((uint32_t)p->state_dtype > GEN_STATE_FP16)
        return invalid("state_dtype", p->state_dtype,
                       "GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), GEN_STATE_FP16 (2)");
    if ((uint32_t)p->pool > 1)
        return invalid("pool", p->pool, "0, 1");
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
    const uint32_t state_dtype = (uint32_t)p->state_dtype, pool = (uint32_t)p->pool;
    const uint32_t head_dim = (uint32_t)p->head_dim, code = head_dim >> 7;
    const uint64_t states = (uint64_t)(uint32_t)p->batch * v_heads;
    _Static_assert((MAX_HEADS & (MAX_HEADS - 1)) == 0, "a power of two");
    if (((qk_heads - 1) | (v_heads - 1)) >= MAX_HEADS || (dtype | layout | pool) > 1 ||
        state_dtype > GEN_STATE_FP16 || head_dim != 64u << (code & 31) ||
        states > INT32_MAX / MAX_BLOCKS)
        return refuse(p);
    /* No branch spares the division: nothing waits for its result. */
    if (v_heads % qk_heads)
        return refuse(p);

    gen__set_four_codes(key, dtype, code, layout, state_dtype ? 2 : pool);
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
 * chains: what a block takes alone, as often as blocks follow each
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
    const float element = (float)gen__la_decode_state_bytes(p->state_dtype);
    const float slice_bytes = (float)p->head_dim * (float)p->head_dim * element / blocks;
    const float slices = (float)tuning_states(p) * blocks;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float bytes_per_us = gbps * 1e3f * achieved_bandwidth;
    const float sm_bytes_per_us = bytes_per_us / sms;
    const uint32_t per_sm = gen__blocks_per_sm(device, variant);
    const float resident = sms * (float)(per_sm ? per_sm : 1);
    const float deepest_sm = ceilf(slices / sms); /* blocks on the fullest SM, all of them */

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
SAME_PLACE(LA_DECODE_STATE_DTYPE, state_dtype);
SAME_PLACE(LA_DECODE_POOL, pool);
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

const struct gen__family gen__family_la_decode = {
    .name = "la_decode",
    .tag = GEN_LA_DECODE,
    .problem_size = sizeof(gen_la_decode_problem),
    .args_size = sizeof(gen_la_decode_args),
    .params_size = sizeof(struct gen_la_decode_pool_params),
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
    .params = gen__la_decode_params,
    .extents = gen__la_decode_extents,
    .reference = gen__la_decode_reference,
    .exact = gen__la_decode_exact,
    .tensors = gen__la_decode_tensors,
    .default_args = gen__la_decode_default_args,
    .cost = gen__la_decode_cost,
    .fill = gen__la_decode_fill,
    .case_name = gen__la_decode_case_name,
    .forms = gen__la_decode_forms,
    .num_forms = LA_DECODE_NUM_FORMS,
    .form = gen__la_decode_form,
    .data = gen__la_decode_data,
};
