/*
 * A decode step of KDA or Gated DeltaNet on the host: which problems are allowed, the geometry of a
 * launch, and an estimate of its time. Arguments are in args.c, tensors in inputs.c, forms in
 * forms.c.
 */
#include "families/common/arguments.h"
#include "families/kda/step.h"

#include "families/common/mathf.h"
#include "family/occupancy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The most blocks per query head that any variant has: a problem that passes check() can be
 * launched by each of them. */
#define MAX_BLOCKS 16
/* Far beyond any model; a kernel's offset within a slot stays in 32 bits. */
#define MAX_HEADS 65536
#define TEXT_OF(number) TEXT(number)
#define TEXT(number) #number
/* Batch that a batch-invariant choice is made for. */
#define INVARIANT_BATCH 64

static const char *const dtype_names[] = {"bf16", "fp16", "fp32"};
static const char *const state_names[] = {"fp32", "bf16", "fp16"};
static const char *const bits_names[] = {"32", "16"};
static const char *const layout_names[] = {"vk"};
static const char *const group_names[] = {"one", "many"};

const struct gen__axis gen__kda_step_required[] = {
    {"layout", layout_names, 1},
    {"state", bits_names, 2},
    {"group", group_names, 2},
};

const char *const gen__kda_step_coords[] = {"states"};

#define FIELD(name) #name, offsetof(gen_kda_step_problem, name)
const struct gen__field gen__kda_step_fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_qk_heads), NULL, 0, 12},
    {FIELD(num_v_heads), NULL, 0, GEN__PRESET_SAME},
    {FIELD(head_dim), NULL, 0, KDA_STEP_HEAD_DIM},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
    {FIELD(gate_dtype), dtype_names, 3, GEN__PRESET_SAME},
    {FIELD(beta_dtype), dtype_names, 3, GEN__PRESET_SAME},
    {"layout", offsetof(gen_kda_step_problem, state_layout), layout_names, 1, GEN_KDA_STATE_VK},
    {FIELD(state_dtype), state_names, 3, GEN_STATE_FP32},
};
#undef FIELD

/* ---- the problem ------------------------------------------------------- */

/* One number is not what it may be. */
static enum gen_status invalid(const gen_kda_step_problem *p, const char *name, int64_t value,
                               const char *allowed)
{
    return gen__invalid(gen__kda_step_name(p->base.family), name, value, allowed);
}

/* Rows x value heads that selection goes by, of a problem that is allowed. */
static int32_t tuning_states(const gen_kda_step_problem *p)
{
    const int32_t batch = p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_BATCH : p->batch;
    return batch * p->num_v_heads;
}

static bool is_side_dtype(const gen_kda_step_problem *p, int32_t dtype)
{
    return dtype == p->dtype || dtype == GEN_DTYPE_FP32;
}

static enum gen_status check_types(const gen_kda_step_problem *p)
{
    static const char side[] = "that of x, or GEN_DTYPE_FP32 (2)";
    if (p->dtype != GEN_DTYPE_BF16 && p->dtype != GEN_DTYPE_FP16)
        return invalid(p, "dtype", p->dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    if (!is_side_dtype(p, p->gate_dtype))
        return invalid(p, "gate_dtype", p->gate_dtype, side);
    if (!is_side_dtype(p, p->beta_dtype))
        return invalid(p, "beta_dtype", p->beta_dtype, side);
    if (p->state_layout != GEN_KDA_STATE_VK)
        return invalid(p, "state_layout", p->state_layout, "GEN_KDA_STATE_VK (0)");
    if (p->state_dtype < GEN_STATE_FP32 || p->state_dtype > GEN_STATE_FP16)
        return invalid(p, "state_dtype", p->state_dtype,
                       "GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), GEN_STATE_FP16 (2)");
    return GEN_OK;
}

static enum gen_status check_sizes(const gen_kda_step_problem *p)
{
    if (p->batch < 0)
        return invalid(p, "batch", p->batch, ">= 0");
    if (p->num_qk_heads < 1 || p->num_qk_heads > MAX_HEADS)
        return invalid(p, "head count num_qk_heads", p->num_qk_heads, "1 to " TEXT_OF(MAX_HEADS));
    if (p->num_v_heads < 1 || p->num_v_heads > MAX_HEADS)
        return invalid(p, "head count num_v_heads", p->num_v_heads, "1 to " TEXT_OF(MAX_HEADS));
    if (p->num_v_heads % p->num_qk_heads)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: head count num_v_heads = %" PRId32
                         "; allowed: a multiple of num_qk_heads = %" PRId32,
                         gen__kda_step_name(p->base.family), p->num_v_heads, p->num_qk_heads);
    if (p->head_dim != KDA_STEP_HEAD_DIM)
        return invalid(p, "head_dim", p->head_dim, TEXT_OF(KDA_STEP_HEAD_DIM));
    if ((int64_t)p->batch * p->num_v_heads > INT32_MAX / MAX_BLOCKS)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: batch * num_v_heads = %" PRId32 " * %" PRId32 " = %" PRId64
                         "; allowed: <= %" PRId32,
                         gen__kda_step_name(p->base.family), p->batch, p->num_v_heads,
                         (int64_t)p->batch * p->num_v_heads, INT32_MAX / MAX_BLOCKS);
    return GEN_OK;
}

enum gen_status gen__kda_step_check(const gen_problem *base, struct gen__key *key)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    enum gen_status status;
    if ((status = check_sizes(p)) != GEN_OK || (status = check_types(p)) != GEN_OK)
        return status;
    gen__set_codes(key, 0, p->state_dtype != GEN_STATE_FP32, p->num_v_heads != p->num_qk_heads);
    key->empty = p->batch == 0;
    key->counts[0] = (float)tuning_states(p);
    return GEN_OK;
}

const char *gen__kda_step_fits(const gen_problem *base, const gen_device *device,
                               const struct gen__facts *variant)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    (void)device;
    if ((int64_t)p->batch * p->num_qk_heads * variant->fact[KDA_STEP_BLOCKS] > INT32_MAX)
        return "batch * num_qk_heads * blocks is more than a grid holds (2147483647)";
    return NULL;
}

/* ---- time -------------------------------------------------------------- */

/*
 * An estimate that orders the variants on a GPU without a table:
 *
 *     time = launch + (streaming^1.5 + chains^1.5)^(2/3) + tail
 *
 * as kda_decode's (families/kda_decode/family.c), whose constants these are but for what a block's
 * chain has more: the convolution, and meeting the cluster's other blocks. Value heads of a query
 * head come one after the other.
 */
static const float launch_us = 1.13f;
static const float early_us = 0.4f;           /* of it, where the next kernel is placed early */
static const float block_us = 1.6f;           /* start, first loads, the state, sums, norm */
static const float cluster_us = 0.2f;         /* of several blocks */
static const float achieved_bandwidth = .89f; /* of the peak: 4.27 of 4.8 TB/s on an H200 */
static const float inputs_share = 0.1f; /* of a block's time, that its inputs take once more */
static const float fullest_sm = 0.49f;  /* of its share of bandwidth, a lone SM's time */
static const float tail_share = 0.11f;  /* of the resident blocks' bytes, lost at the end */

float gen__kda_step_predict(const gen_problem *base, const gen_device *device,
                            const struct gen__facts *variant)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    const float blocks = (float)variant->fact[KDA_STEP_BLOCKS];
    const float element = p->state_dtype == GEN_STATE_FP32 ? 4.0f : 2.0f;
    const float slice_bytes = element * KDA_STEP_HEAD_DIM * KDA_STEP_HEAD_DIM / blocks;
    const int32_t heads = p->num_v_heads / p->num_qk_heads;
    const float group = (float)heads;
    const float slices = (float)tuning_states(p) * blocks;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float bytes_per_us = gbps * 1e3f * achieved_bandwidth;
    const uint32_t per_sm = gen__blocks_per_sm(device, variant);
    const float resident = sms * (float)(per_sm ? per_sm : 1);

    const float bytes = 2 * slices * slice_bytes;
    float streaming_us = bytes / bytes_per_us;
    float chains_us = block_us * (1 + inputs_share) * group + (blocks > 1 ? cluster_us * group : 0);
    float us = launch_us - (variant->fact[KDA_STEP_EARLY] ? early_us : 0);
    if (slices <= resident * group) {
        const float deepest_sm = ceilf(slices / group / sms) * group; /* slices on the fullest SM */
        const float alone_us = fullest_sm * 2 * slice_bytes * deepest_sm * sms / bytes_per_us;
        streaming_us = alone_us > streaming_us ? alone_us : streaming_us;
    } else {
        /* Inputs of q and k are each block's: more blocks read more of them. */
        chains_us *= slices / group / resident;
        streaming_us *= 1 + 0.002f * blocks;
        us += tail_share * 2 * slice_bytes * resident / bytes_per_us;
        us += variant->fact[KDA_STEP_EARLY] ? 2 * early_us : 0; /* its blocks are in the way */
    }
    const float root = gen__cbrt(streaming_us * sqrtf(streaming_us) + chains_us * sqrtf(chains_us));
    return us + root * root;
}

/* ---- the launch -------------------------------------------------------- */

/* The dims are the problem's fields, copied whole. */
#define SAME_PLACE(dim, field)                                                          \
    _Static_assert(offsetof(gen_kda_step_problem, field) ==                             \
                       offsetof(gen_kda_step_problem, batch) + (dim) * sizeof(int32_t), \
                   "dims in the order of the problem's fields")
SAME_PLACE(KDA_STEP_QK_HEADS, num_qk_heads);
SAME_PLACE(KDA_STEP_V_HEADS, num_v_heads);
SAME_PLACE(KDA_STEP_WIDTH_OF_HEAD, head_dim);
SAME_PLACE(KDA_STEP_DTYPE, dtype);
SAME_PLACE(KDA_STEP_GATE_DTYPE, gate_dtype);
SAME_PLACE(KDA_STEP_BETA_DTYPE, beta_dtype);
SAME_PLACE(KDA_STEP_LAYOUT, state_layout);
SAME_PLACE(KDA_STEP_STATE_DTYPE, state_dtype);
#undef SAME_PLACE

void gen__kda_step_plan(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant, gen_plan *plan)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    memcpy(plan->dims, (const char *)p + offsetof(gen_kda_step_problem, batch),
           KDA_STEP_NUM_DIMS * sizeof plan->dims[0]);
    plan->num_launches = p->batch != 0;
    if (!variant || !p->batch)
        return;

    const uint32_t blocks =
        (uint32_t)p->batch * (uint32_t)p->num_qk_heads * (uint32_t)variant->fact[KDA_STEP_BLOCKS];
    const uint32_t resident =
        (device->num_sms ? device->num_sms : 1) * gen__blocks_per_sm(device, variant);
    gen_plan_launch *launch = &plan->launch[0];
    launch->variant = variant->index;
    launch->grid[0] = variant->fact[KDA_STEP_LOOP] && resident < blocks ? resident : blocks;
    launch->grid[1] = 1;
    launch->grid[2] = 1;
    launch->threads = (uint16_t)variant->threads;
    launch->shared = variant->shared_dynamic;
    launch->dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_STEP_DEPENDENT];
}

const struct gen__family gen__family_kda_step = {
    GEN__KDA_STEP_FAMILY,
    .name = "kda_step",
    .tag = GEN_KDA_STEP,
};
