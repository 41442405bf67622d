/*
 * Kimi Delta Attention decode on the host: which problems are allowed, the
 * geometry of a launch, and an estimate of its time. Arguments are in
 * args.c, tensors and forms in inputs.c.
 */
#include "families/common/arguments.h"
#include "families/kda/decode.h"

#include "families/common/mathf.h"
#include "family/occupancy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The most blocks per state that any variant has: a problem that passes
 * check() can be launched by each of them. */
#define MAX_BLOCKS 16
/* Far beyond any model; a kernel's offset within a token stays in 32 bits. */
#define MAX_HEADS 65536
#define TEXT_OF(number) TEXT(number)
#define TEXT(number) #number
/* Of a ring: what the kernels have shared memory for. */
#define MAX_RECORDS 32
/* Batch that a batch-invariant choice is made for. */
#define INVARIANT_BATCH 64

static const char *const dtype_names[] = {"bf16", "fp16", "fp32"};
static const char *const layout_names[] = {"vk", "kv"};
static const char *const head_dim_names[] = {"64", "128"};
static const char *const tokens_names[] = {"one",    "many",   "onepool",  "manypool", "one16",
                                           "many16", "replay", "replay16", "verify",   "verify16"};
static const char *const state_names[] = {"fp32", "bf16", "fp16"};

const struct gen__axis gen__kda_decode_required[] = {
    {"head_dim", head_dim_names, 2},
    {"layout", layout_names, 2},
    {"tokens", tokens_names, 10},
};

const struct gen__axis gen__gdn_decode_required[] = {
    {"head_dim", head_dim_names, 2},
    {"layout", layout_names, 2},
    {"tokens", tokens_names, 8},
};

const char *const gen__kda_decode_coords[] = {"states", "num_tokens"};

#define FIELD(name) #name, offsetof(gen_kda_decode_problem, name)
const struct gen__field gen__kda_decode_fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_tokens), NULL, 0, 1},
    {FIELD(num_qk_heads), NULL, 0, 32},
    {FIELD(num_v_heads), NULL, 0, GEN__PRESET_SAME},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
    {FIELD(gate_dtype), dtype_names, 3, GEN__PRESET_SAME},
    {FIELD(beta_dtype), dtype_names, 3, GEN__PRESET_SAME},
    {"layout", offsetof(gen_kda_decode_problem, state_layout), layout_names, 2, GEN_KDA_STATE_VK},
    {FIELD(state_dtype), state_names, 3, GEN_STATE_FP32},
    {FIELD(ring_len), NULL, 0, 0},
    {FIELD(ring_size), NULL, 0, 0},
    {FIELD(ring_dtype), state_names, 3, GEN_STATE_FP32},
    {FIELD(pool), NULL, 0, 0},
    GEN__INDEX_FIELD(gen_kda_decode_problem),
};
#undef FIELD

/* ---- the problem ------------------------------------------------------- */

/* One number is not what it may be. */
static enum gen_status invalid(const gen_kda_decode_problem *p, const char *name, int64_t value,
                               const char *allowed)
{
    return gen__invalid(gen__kda_decode_name(p->base.family), name, value, allowed);
}

/* Rows x value heads that selection goes by, of a problem that is allowed. */
static int32_t tuning_states(const gen_kda_decode_problem *p)
{
    const int32_t batch = p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_BATCH : p->batch;
    return batch * p->num_v_heads;
}

static bool is_side_dtype(const gen_kda_decode_problem *p, int32_t dtype)
{
    return (dtype == p->dtype) | (dtype == GEN_DTYPE_FP32); /* a coin's toss: no branch */
}

static enum gen_status refuse_types(const gen_kda_decode_problem *p)
{
    static const char side[] = "that of q, k, v, or GEN_DTYPE_FP32 (2)";
    if (p->dtype != GEN_DTYPE_BF16 && p->dtype != GEN_DTYPE_FP16)
        return invalid(p, "dtype", p->dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    if (!is_side_dtype(p, p->gate_dtype))
        return invalid(p, "gate_dtype", p->gate_dtype, side);
    if (!is_side_dtype(p, p->beta_dtype))
        return invalid(p, "beta_dtype", p->beta_dtype, side);
    if ((uint32_t)p->state_dtype > GEN_STATE_FP16)
        return invalid(p, "state_dtype", p->state_dtype,
                       "GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), GEN_STATE_FP16 (2)");
    if ((uint32_t)p->pool > 1)
        return invalid(p, "pool", p->pool, "0, 1");
    return invalid(p, "state_layout", p->state_layout,
                   "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
}

/* In a ring that has room for the steps between two folds, and where these are of several tokens
 * for two steps. */
static bool is_ring(const gen_kda_decode_problem *p)
{
    const int32_t size = p->ring_size ? p->ring_size : p->ring_len;
    return p->ring_len >= 2 && p->ring_len <= MAX_RECORDS && size >= p->ring_len - 1 &&
           size <= MAX_RECORDS &&
           (p->ring_dtype == GEN_STATE_FP32 || p->ring_dtype == GEN_STATE_FP16) &&
           (uint32_t)p->num_tokens <= GEN_KDA_DECODE_MAX_TOKENS &&
           (p->num_tokens <= 1 ||
            (2 * p->num_tokens <= size && !gen__kda_decode_scalar(p->base.family)));
}

static bool is_no_ring(const gen_kda_decode_problem *p)
{
    return !(p->ring_len | p->ring_size | p->ring_dtype);
}

static enum gen_status refuse_ring(const gen_kda_decode_problem *p)
{
    if (p->ring_len != 0 && (p->ring_len < 2 || p->ring_len > MAX_RECORDS))
        return invalid(p, "ring_len", p->ring_len, "0 (no ring), 2 to " TEXT_OF(MAX_RECORDS));
    if (!p->ring_len && p->ring_size)
        return invalid(p, "ring_size without ring_len", p->ring_size, "0");
    if (p->ring_size && (p->ring_size < p->ring_len - 1 || p->ring_size > MAX_RECORDS))
        return invalid(p, "ring_size", p->ring_size,
                       "0 (ring_len), ring_len - 1 to " TEXT_OF(MAX_RECORDS));
    if (!p->ring_len)
        return invalid(p, "ring_dtype without ring_len", p->ring_dtype, "GEN_STATE_FP32 (0)");
    if (p->num_tokens > 1 && gen__kda_decode_scalar(p->base.family))
        return invalid(p, "num_tokens with a ring", p->num_tokens, "0 (fold alone), 1");
    if (p->num_tokens > 1 && 2 * p->num_tokens > (p->ring_size ? p->ring_size : p->ring_len))
        return invalid(p, "num_tokens with a ring", p->num_tokens,
                       "0 (fold alone), 1, 2 to half of ring_size");
    return invalid(p, "ring_dtype", p->ring_dtype, "GEN_STATE_FP32 (0), GEN_STATE_FP16 (2)");
}

/* Which field of a problem that check() refuses is wrong. */
__attribute__((noinline, cold)) static enum gen_status refuse(const gen_kda_decode_problem *p)
{
    if (p->batch < 0)
        return invalid(p, "batch", p->batch, ">= 0");
    if (p->num_tokens < (p->ring_len == 0) || p->num_tokens > GEN_KDA_DECODE_MAX_TOKENS)
        return invalid(p, "num_tokens", p->num_tokens, "1 to " TEXT_OF(GEN_KDA_DECODE_MAX_TOKENS));
    if (p->num_qk_heads < 1 || p->num_qk_heads > MAX_HEADS)
        return invalid(p, "head count num_qk_heads", p->num_qk_heads, "1 to " TEXT_OF(MAX_HEADS));
    if (p->num_v_heads < 1 || p->num_v_heads > MAX_HEADS)
        return invalid(p, "head count num_v_heads", p->num_v_heads, "1 to " TEXT_OF(MAX_HEADS));
    if (p->num_v_heads % p->num_qk_heads)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: head count num_v_heads = %" PRId32
                         "; allowed: a multiple of num_qk_heads = %" PRId32,
                         gen__kda_decode_name(p->base.family), p->num_v_heads, p->num_qk_heads);
    if (p->head_dim != 64 && p->head_dim != 128)
        return invalid(p, "head_dim", p->head_dim, "64, 128");
    if (!is_no_ring(p) && !is_ring(p))
        return refuse_ring(p);
    if ((int64_t)p->batch * p->num_v_heads <= INT32_MAX / MAX_BLOCKS)
        return refuse_types(p);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: batch * num_v_heads = %" PRId32 " * %" PRId32 " = %" PRId64
                     "; allowed: <= %" PRId32,
                     gen__kda_decode_name(p->base.family), p->batch, p->num_v_heads,
                     (int64_t)p->batch * p->num_v_heads, INT32_MAX / MAX_BLOCKS);
}

/* Few comparisons, since every selection makes them; refuse() tells them apart.
 * A limit that is a power of two holds for several numbers where it holds for
 * their bits together, and a negative number is a large one. */
enum gen_status gen__kda_decode_check(const gen_problem *base, struct gen__key *key)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const uint32_t qk_heads = (uint32_t)p->num_qk_heads, v_heads = (uint32_t)p->num_v_heads;
    const uint32_t dtype = (uint32_t)p->dtype, layout = (uint32_t)p->state_layout;
    const uint32_t head_dim = (uint32_t)p->head_dim, tokens = (uint32_t)p->num_tokens;
    const uint64_t states = (uint64_t)(uint32_t)p->batch * v_heads;
    _Static_assert((MAX_HEADS & (MAX_HEADS - 1)) == 0, "a power of two");
    if (((qk_heads - 1) | (v_heads - 1)) >= MAX_HEADS || (dtype | layout | (uint32_t)p->pool) > 1 ||
        (is_no_ring(p) ? tokens - 1 >= GEN_KDA_DECODE_MAX_TOKENS : !is_ring(p)) ||
        (head_dim != 64 && head_dim != 128) || !is_side_dtype(p, p->gate_dtype) ||
        !is_side_dtype(p, p->beta_dtype) || (uint32_t)p->state_dtype > GEN_STATE_FP16 ||
        states > INT32_MAX / MAX_BLOCKS)
        return refuse(p);
    /* No branch spares the division: nothing waits for its result. */
    if (v_heads % qk_heads)
        return refuse(p);

    const uint32_t half = p->state_dtype != GEN_STATE_FP32;
    const uint32_t pool = p->pool || tokens > GEN_KDA_DECODE_PLAIN_TOKENS;
    gen__set_codes(key, head_dim >> 7, layout,
                   p->ring_len ? 6 + half + (tokens > 1 ? 2u : 0)
                               : (tokens > 1) + (half ? 4 : 2 * pool));
    key->empty = states == 0;
    key->counts[0] = (float)(int32_t)states;
    key->counts[1] = (float)(int32_t)(tokens + (tokens == 0));
    if (__builtin_expect(p->base.flags & GEN_BATCH_INVARIANT, 0))
        key->counts[0] = (float)tuning_states(p);
    return GEN_OK;
}

const char *gen__kda_decode_fits(const gen_problem *base, const gen_device *device,
                                 const struct gen__facts *variant)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    (void)device;
    if ((int64_t)p->batch * p->num_v_heads * variant->fact[KDA_DECODE_BLOCKS] > INT32_MAX)
        return "batch * num_v_heads * blocks is more than a grid holds (2147483647)";
    return NULL;
}

/* ---- time -------------------------------------------------------------- */

/*
 * An estimate that orders the variants on a GPU without a table:
 *
 *     time = launch + (streaming^1.5 + chains^1.5)^(2/3) + tail
 *
 * as la_decode's (families/la_decode/family.c), of whose kernels these are the
 * siblings and whose constants these are. streaming: the states read once and
 * written once a token at the bandwidth that DRAM gives to equal reads and writes.
 * chains: what a block takes alone, as often as blocks follow each
 * other; each token adds a trip through the lanes, and a store. tail: the last
 * blocks leave the memory idle in part.
 */
static const float launch_us = 1.13f;
static const float block_us = 1.34f;          /* start, first loads, the state, last sum */
static const float token_us = 0.25f;          /* sums, correction, stores of a token */
static const float achieved_bandwidth = .89f; /* of the peak: 4.27 of 4.8 TB/s on an H200 */
static const float wide_thread = 0.01f; /* bandwidth lost by doubling a thread's part beyond 64 B */
static const float wrong_policy = 0.02f; /* bandwidth lost by the cache policy for other sizes */
static const float fullest_sm = 0.49f;   /* of its share of bandwidth, a lone SM's time */
static const float tail_share = 0.11f;   /* of the resident blocks' bytes, lost at the end */

/* The share of bandwidth that a variant's way of streaming costs. */
static float streaming_loss(const gen_device *device, const struct gen__facts *variant, float bytes)
{
    const float width = (float)variant->fact[KDA_DECODE_THREAD_BYTES] / 64.0f;
    const float l2_bytes = device->l2_bytes ? (float)device->l2_bytes : 40e6f;
    float loss = width > 1 ? wide_thread * gen__log2(width) : 0;
    if ((variant->fact[KDA_DECODE_STREAMING] != 0) == (bytes > 10.0f * l2_bytes))
        loss += wrong_policy;
    return loss;
}

float gen__kda_decode_predict(const gen_problem *base, const gen_device *device,
                              const struct gen__facts *variant)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const float blocks = (float)variant->fact[KDA_DECODE_BLOCKS];
    const float element = p->state_dtype == GEN_STATE_FP32 ? 4.0f : 2.0f;
    const float slice_bytes = (float)p->head_dim * (float)p->head_dim * element / blocks;
    /* Of a slice, to and fro; of a ring half of it is read on the average, a record of 16 bits. */
    const float moves = p->ring_len ? 1.0f + 1.0f / (float)p->ring_len + (float)p->ring_len / 128.0f
                                    : 1.0f + (float)p->num_tokens;
    const float slices = (float)tuning_states(p) * blocks;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float bytes_per_us = gbps * 1e3f * achieved_bandwidth;
    const uint32_t per_sm = gen__blocks_per_sm(device, variant);
    const float resident = sms * (float)(per_sm ? per_sm : 1);

    const float bytes = moves * slices * slice_bytes;
    float streaming_us = bytes / bytes_per_us * (1 + streaming_loss(device, variant, bytes));
    float chains_us = block_us + token_us * (float)p->num_tokens;
    float us = launch_us;
    if (slices <= resident) {
        const float deepest_sm = ceilf(slices / sms); /* blocks on the fullest SM */
        const float alone_us = fullest_sm * moves * slice_bytes * deepest_sm * sms / bytes_per_us;
        streaming_us = alone_us > streaming_us ? alone_us : streaming_us;
    } else {
        chains_us *= slices / resident;
        us += tail_share * moves * slice_bytes * resident / bytes_per_us;
    }
    const float root = gen__cbrt(streaming_us * sqrtf(streaming_us) + chains_us * sqrtf(chains_us));
    return us + root * root;
}

/* ---- the launch -------------------------------------------------------- */

/* The dims are the problem's fields, copied whole. */
#define SAME_PLACE(dim, field)                                                            \
    _Static_assert(offsetof(gen_kda_decode_problem, field) ==                             \
                       offsetof(gen_kda_decode_problem, batch) + (dim) * sizeof(int32_t), \
                   "dims in the order of the problem's fields")
SAME_PLACE(KDA_DECODE_TOKENS, num_tokens);
SAME_PLACE(KDA_DECODE_QK_HEADS, num_qk_heads);
SAME_PLACE(KDA_DECODE_V_HEADS, num_v_heads);
SAME_PLACE(KDA_DECODE_HEAD_DIM, head_dim);
SAME_PLACE(KDA_DECODE_DTYPE, dtype);
SAME_PLACE(KDA_DECODE_GATE_DTYPE, gate_dtype);
SAME_PLACE(KDA_DECODE_BETA_DTYPE, beta_dtype);
SAME_PLACE(KDA_DECODE_LAYOUT, state_layout);
SAME_PLACE(KDA_DECODE_INDEX_DTYPE, index_dtype);
SAME_PLACE(KDA_DECODE_STATE_DTYPE, state_dtype);
SAME_PLACE(KDA_DECODE_RING_LEN, ring_len);
SAME_PLACE(KDA_DECODE_RING_SIZE, ring_size);
SAME_PLACE(KDA_DECODE_RING_DTYPE, ring_dtype);
SAME_PLACE(KDA_DECODE_POOL, pool);
#undef SAME_PLACE

/* Of a ring: a token and what is computed of the records, then the records (replay.cuh). */
static uint32_t shared_bytes(const gen_kda_decode_problem *p, const struct gen__facts *variant)
{
    const uint32_t token_bytes = (uint32_t)variant->fact[KDA_DECODE_TOKEN_BYTES];
    if (!p->ring_len)
        return (uint32_t)p->num_tokens * token_bytes;
    const uint32_t d = (uint32_t)p->head_dim;
    const uint32_t extent = d / (uint32_t)variant->fact[KDA_DECODE_BLOCKS];
    const uint32_t gate = p->gate_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    const uint32_t u = p->ring_dtype == GEN_STATE_FP32 ? 4 : 2;
    const uint32_t records = (uint32_t)gen__kda_decode_ring_size(p->ring_len, p->ring_size);
    if (p->num_tokens > 1) { /* verify.cuh: each token, and what is computed of the records */
        const uint32_t replay = 4 * ((3 + variant->threads / 32) * d + 2 * MAX_RECORDS + extent);
        return (uint32_t)p->num_tokens * token_bytes + replay +
               records * (d * (4 + 2 + gate) + extent * u);
    }
    return token_bytes + records * (d * (4 + 2 + gate) + extent * u);
}

void gen__kda_decode_plan(const gen_problem *base, const gen_device *device,
                          const struct gen__facts *variant, gen_plan *plan)
{
    (void)device;
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const uint32_t states = (uint32_t)p->batch * (uint32_t)p->num_v_heads;
    memcpy(plan->dims, (const char *)p + offsetof(gen_kda_decode_problem, batch),
           KDA_DECODE_NUM_DIMS * sizeof plan->dims[0]);
    plan->num_launches = states != 0;
    if (!variant || !states)
        return;

    gen_plan_launch *launch = &plan->launch[0];
    launch->variant = variant->index;
    launch->grid[0] = states * (uint32_t)variant->fact[KDA_DECODE_BLOCKS];
    launch->grid[1] = 1;
    launch->grid[2] = 1;
    launch->threads = (uint16_t)variant->threads;
    launch->shared = shared_bytes(p, variant);
    launch->dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_DECODE_DEPENDENT];
}

/* Half octaves: states doubled, tokens 1 and 4 (the shape file has others). */
const uint8_t gen__kda_decode_grid[] = {2, 4};

const struct gen__family gen__family_kda_decode = {
    GEN__KDA_DECODE_FAMILY(gen__kda_decode_required),
    .name = "kda_decode",
    .tag = GEN_KDA_DECODE,
};
