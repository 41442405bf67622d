/*
 * Dense attention, forward, on the host: which problems are allowed, the geometry
 * of a launch. The estimate of its time is in estimate.c, the arguments are in
 * launch.c, what the tuner and the tests need in inputs.c.
 */
#include "families/common/arguments.h"
#include "families/attn_fwd/attn_fwd.h"

#include "family/occupancy.h"

#include <inttypes.h>
#include <string.h>

#define MAX_LEN (1 << 24)
#define MAX_WINDOW (MAX_LEN + 1)
#define MAX_HEADS 1024
#define MAX_BATCH (1 << 24)
/* Four times as many are counted with 31 bits on the device. */
#define MAX_TILES (INT64_C(1) << 28)
/* Requests that a batch-invariant choice is made for, and the rows of each where they are packed:
 * q_len and kv_len are then those of the longest one. */
#define INVARIANT_BATCH 4
#define INVARIANT_LEN 4096

/* The values of dtype, of which the key has those that there are kernels for. */
static const char *const dtype_names[] = {"bf16", "fp16", "fp32", "int32", "e4m3", "e5m2"};
static const char *const key_names[] = {"bf16", "fp16", "e4m3", "e5m2"};
static const char *const dim_names[] = {"64", "128", "256"};
static const char *const mask_names[] = {"full", "causal", "any"};
static const char *const flag_names[] = {"no", "yes"};

static const struct gen__axis required[] = {
    {"dtype", key_names, sizeof key_names / sizeof *key_names},
    {"head_dim", dim_names, 3},
    {"mask", mask_names, 3},
};

/* heads: of all requests. */
static const char *const coords[] = {"heads", "q_len", "kv_len"};

/* Octaves. How tiles fill the GPU changes within less than one: rows of other sizes say little
 * that the estimate does not know. */
#define MAX_DISTANCE 0.5f

#define FIELD(name) #name, offsetof(gen_attn_fwd_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_q_heads), NULL, 0, 32},
    {FIELD(num_kv_heads), NULL, 0, GEN__PRESET_SAME},
    {FIELD(q_len), NULL, 0, 1024},
    {FIELD(kv_len), NULL, 0, GEN__PRESET_SAME},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), dtype_names, sizeof dtype_names / sizeof *dtype_names, GEN_DTYPE_BF16},
    {FIELD(causal), flag_names, 2, 0},
    /* Text has FlashAttention's window_size, which is one less. */
    {"window_left", offsetof(gen_attn_fwd_problem, left_window), NULL, 0, GEN__PRESET_UNBOUNDED},
    {"window_right", offsetof(gen_attn_fwd_problem, right_window), NULL, 0, GEN__PRESET_UNBOUNDED},
    {FIELD(varlen), flag_names, 2, 0},
    {FIELD(softcap), flag_names, 2, 0},
    {FIELD(o_dtype), dtype_names, 2, GEN_DTYPE_BF16},
    GEN__INDEX_FIELD(gen_attn_fwd_problem),
};
#undef FIELD

static const char family[] = "attn_fwd";

/* ---- the problem ------------------------------------------------------- */

static enum gen_status invalid(const char *name, int64_t value, const char *allowed)
{
    return gen__invalid(family, name, value, allowed);
}

static enum gen_status check_sizes(const gen_attn_fwd_problem *p)
{
    if (p->batch < 0 || p->batch > MAX_BATCH)
        return invalid("batch", p->batch, "0 to 16777216");
    if (p->num_q_heads < 1 || p->num_q_heads > MAX_HEADS)
        return invalid("head count num_q_heads", p->num_q_heads, "1 to 1024");
    if (p->num_kv_heads < 1 || p->num_kv_heads > MAX_HEADS)
        return invalid("head count num_kv_heads", p->num_kv_heads, "1 to 1024");
    if (p->num_q_heads % p->num_kv_heads)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_q_heads = %" PRId32 ", num_kv_heads = %" PRId32
                         "; allowed: a multiple of num_kv_heads",
                         family, p->num_q_heads, p->num_kv_heads);
    if (p->q_len < 0 || p->q_len > MAX_LEN)
        return invalid("q_len", p->q_len, "0 to 16777216");
    if (p->kv_len < 0 || p->kv_len > MAX_LEN)
        return invalid("kv_len", p->kv_len, "0 to 16777216");
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return invalid("head_dim", p->head_dim, "64, 128, 256");
    const int64_t tiles = (int64_t)p->batch * p->num_q_heads *
                          ((p->q_len + ATTN_FWD_LEAST_ROWS - 1) / ATTN_FWD_LEAST_ROWS);
    if (tiles > MAX_TILES)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: batch * num_q_heads * ceil(q_len / 64) = %" PRId64
                         "; allowed: <= %" PRId64,
                         family, tiles, MAX_TILES);
    return GEN_OK;
}

static enum gen_status check_dtypes(const gen_attn_fwd_problem *p)
{
    if (gen__attn_of_8_bits(p->dtype)) {
        if (p->o_dtype != GEN_DTYPE_BF16 && p->o_dtype != GEN_DTYPE_FP16)
            return invalid("o_dtype", p->o_dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
        return GEN_OK;
    }
    if (p->dtype != GEN_DTYPE_BF16 && p->dtype != GEN_DTYPE_FP16)
        return invalid("dtype", p->dtype,
                       "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1), GEN_DTYPE_E4M3 (4), "
                       "GEN_DTYPE_E5M2 (5)");
    if (p->o_dtype != GEN_DTYPE_BF16 && p->o_dtype != p->dtype)
        return invalid("o_dtype", p->o_dtype,
                       "0, or what dtype is; another only where dtype has 8 bits");
    return GEN_OK;
}

static enum gen_status check_masks(const gen_attn_fwd_problem *p)
{
    if (p->causal != 0 && p->causal != 1)
        return invalid("causal", p->causal, "0, 1");
    if (p->left_window < 0 || p->left_window > MAX_WINDOW)
        return invalid("left_window", p->left_window,
                       "0 (none), 1 (the query's own key alone) to 16777217");
    if (p->right_window < 0 || p->right_window > MAX_WINDOW)
        return invalid("right_window", p->right_window,
                       "0 (none), 1 (the query's own key alone) to 16777217");
    if (p->causal && p->right_window > 1)
        return invalid("right_window", p->right_window, "0 (none), 1 with causal");
    if (p->varlen != 0 && p->varlen != 1)
        return invalid("varlen", p->varlen, "0, 1");
    if (p->softcap != 0 && p->softcap != 1)
        return invalid("softcap", p->softcap, "0, 1");
    return GEN_OK;
}

static int mask_of(const gen_attn_fwd_problem *p)
{
    const bool right = p->right_window && !p->causal; /* with causality it is 1: no bound more */
    if (p->left_window || right || p->varlen || p->softcap)
        return ATTN_FWD_MASK_ANY;
    return p->causal ? ATTN_FWD_MASK_CAUSAL : ATTN_FWD_MASK_FULL;
}

static float at_least_1(int64_t x)
{
    return x > 1 ? (float)x : 1.0f;
}

/* The problem that selection goes by: itself, or in `usual` one that says nothing of the batch. */
static inline const gen_attn_fwd_problem *usual_problem(const gen_attn_fwd_problem *p,
                                                        gen_attn_fwd_problem *usual)
{
    if (__builtin_expect(!(p->base.flags & GEN_BATCH_INVARIANT), 1))
        return p;
    *usual = *p;
    usual->batch = INVARIANT_BATCH;
    if (p->varlen)
        usual->q_len = usual->kv_len = INVARIANT_LEN;
    return usual;
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    enum gen_status status = check_sizes(p);
    if (!status)
        status = check_dtypes(p);
    if (!status)
        status = check_masks(p);
    if (status)
        return status;
    /* In the order of key_names and dim_names. */
    const int32_t dtype = gen__attn_of_8_bits(p->dtype) ? p->dtype - GEN_DTYPE_E4M3 + 2 : p->dtype;
    gen__set_codes(key, (uint32_t)dtype, (uint32_t)p->head_dim >> 7, (uint32_t)mask_of(p));
    key->empty = p->batch == 0 || p->q_len == 0;
    gen_attn_fwd_problem usual;
    p = usual_problem(p, &usual);
    key->counts[0] = at_least_1((int64_t)p->batch * p->num_q_heads);
    key->counts[1] = at_least_1(p->q_len);
    key->counts[2] = at_least_1(p->kv_len);
    return GEN_OK;
}

/*
 * Where requests are packed, a TMA box that reaches beyond a request's end brings
 * the next one's queries. Their rows are not written, but they decide with the others of their warp
 * when the reference of the softmax moves (attn_softmax() in tiles.cuh), and so how the others'
 * probabilities are rounded.
 */
static const char *fits(const gen_problem *problem, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)problem;
    (void)device;
    if (p->varlen && p->base.flags & GEN_BATCH_INVARIANT && variant->fact[ATTN_FWD_WGMMA])
        return "with varlen a request's last bits depend on the next request's queries: not "
               "batch-invariant";
    return NULL;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    gen_attn_fwd_problem usual;
    const gen_attn_fwd_problem *p = usual_problem((const gen_attn_fwd_problem *)base, &usual);
    return gen__attn_fwd_predict(p, device, variant, mask_of(p));
}

/* ---- the launch -------------------------------------------------------- */

/* The first dims are the problem's fields, copied whole. */
#define SAME_PLACE(dim, field)                                                          \
    _Static_assert(offsetof(gen_attn_fwd_problem, field) ==                             \
                       offsetof(gen_attn_fwd_problem, batch) + (dim) * sizeof(int32_t), \
                   "dims in the order of the problem's fields")
SAME_PLACE(ATTN_FWD_NUM_Q_HEADS, num_q_heads);
SAME_PLACE(ATTN_FWD_NUM_KV_HEADS, num_kv_heads);
SAME_PLACE(ATTN_FWD_Q_LEN, q_len);
SAME_PLACE(ATTN_FWD_KV_LEN, kv_len);
SAME_PLACE(ATTN_FWD_HEAD_DIM, head_dim);
SAME_PLACE(ATTN_FWD_DTYPE, dtype);
SAME_PLACE(ATTN_FWD_IS_CAUSAL, causal);
SAME_PLACE(ATTN_FWD_KEYS_BEFORE, left_window);
SAME_PLACE(ATTN_FWD_KEYS_BEHIND, right_window);
SAME_PLACE(ATTN_FWD_VARLEN, varlen);
SAME_PLACE(ATTN_FWD_SOFTCAP, softcap);
SAME_PLACE(ATTN_FWD_O_DTYPE, o_dtype);
#undef SAME_PLACE

static int32_t octaves(int64_t x)
{
    return 63 - __builtin_clzll((uint64_t)x | 1);
}

/* Query heads whose keys and values fit into the L2 cache together, with room for what passes
 * through: a power of two, times the heads that share keys. */
static int32_t section_of(const gen_attn_fwd_problem *p, const gen_device *device)
{
    const int64_t cache = device->l2_bytes ? (int64_t)device->l2_bytes / 8 * 5 : 16 << 20;
    const int64_t element = gen__attn_of_8_bits(p->dtype) ? 1 : 2;
    const int64_t bytes = 2 * element * p->head_dim * (p->kv_len > 0 ? p->kv_len : 1);
    const int64_t all = (int64_t)p->batch * p->num_q_heads;
    const int64_t heads = p->num_q_heads / p->num_kv_heads;
    /* As far as there is room, and no farther than to all of them. */
    const int32_t room = octaves(cache / bytes);
    int32_t enough = octaves(all) - octaves(heads);
    enough += heads << enough < all;
    const int64_t section = heads << (room < enough ? room : enough);
    return (int32_t)(section < all ? section : all);
}

/*
 * With causality a head's last units, not in pairs, are its shortest tiles. Where there are several
 * sections, each of which begins with long ones, some of every head come at the very end, so that
 * blocks end together, though each has taken its next tile before it has done the one at work: as
 * many as are two fifths of the longest one for each block. `units`: of a head, a tile each.
 */
static int32_t short_units_of(const gen_attn_fwd_problem *p, const struct gen__facts *variant,
                              int32_t units, int32_t section, uint64_t resident)
{
    const int64_t heads = (int64_t)p->batch * p->num_q_heads;
    if (!p->causal || p->varlen || p->left_window || section >= heads)
        return 0;
    const int64_t rows = gen__attn_tile_rows(variant);
    int64_t room = 2 * (int64_t)p->kv_len * (int64_t)resident / 5;
    int64_t keys =
        (int64_t)p->kv_len - p->q_len - gen__attn_missing_rows(p, variant); /* before a tile */
    int64_t n = keys < 0 ? -keys / rows : 0;                                /* see none */
    n = n < units - 1 ? n : units - 1;
    for (keys += n * rows; n + 1 < units; n++) {
        keys += rows;
        room -= keys > 0 ? heads * keys : 0;
        if (room < 0)
            break;
    }
    return (int32_t)n;
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    memcpy(plan->dims, (const char *)p + offsetof(gen_attn_fwd_problem, batch),
           ATTN_FWD_NUM_FIELDS * sizeof plan->dims[0]);
    plan->dims[ATTN_FWD_KEYS_BEFORE] = p->left_window - 1;
    plan->dims[ATTN_FWD_KEYS_BEHIND] = p->right_window - 1;
    plan->num_launches = p->batch > 0 && p->q_len > 0;
    if (!variant || !plan->num_launches)
        return;
    const int32_t tiles = gen__attn_row_tiles(p, variant);
    const uint64_t size = variant->cluster > 1 ? variant->cluster : 1;
    const uint64_t resident =
        (uint64_t)device->num_sms * gen__blocks_per_sm(device, variant) / size * size;
    const bool persistent = variant->fact[ATTN_FWD_PERSISTENT] && resident > 0;
    const bool twins = size > 1; /* a unit's two tiles are for a block each */
    const bool in_pairs = persistent && !twins && !variant->fact[ATTN_FWD_DYNAMIC] &&
                          mask_of(p) == ATTN_FWD_MASK_CAUSAL;
    const int32_t units = in_pairs || twins ? (tiles + 1) / 2 : tiles;
    const uint64_t heads = (uint64_t)p->batch * (uint64_t)p->num_q_heads;
    const uint64_t all = heads * (uint64_t)units * size; /* blocks */
    plan->dims[ATTN_FWD_MAP_ROWS] =
        variant->fact[ATTN_FWD_WGMMA] ? variant->fact[ATTN_FWD_KV_ROWS] : 0;
    plan->dims[ATTN_FWD_ROW_TILES] = tiles;
    plan->dims[ATTN_FWD_HEAD_UNITS] = units;
    plan->dims[ATTN_FWD_PAIRED] = in_pairs;
    plan->dims[ATTN_FWD_SECTION] = section_of(p, device);
    plan->dims[ATTN_FWD_SHORT_UNITS] =
        in_pairs ? 0 : short_units_of(p, variant, units, plan->dims[ATTN_FWD_SECTION], resident);
    if (variant->fact[ATTN_FWD_DYNAMIC])
        plan->workspace_bytes = sizeof(unsigned long long);
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {(uint32_t)(persistent && resident < all ? resident : all), 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent =
            !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[ATTN_FWD_DEPENDENT] ? 1 : 0,
    };
}

const struct gen__family gen__family_attn_fwd = {
    .name = family,
    .tag = GEN_ATTN_FWD,
    .problem_size = sizeof(gen_attn_fwd_problem),
    .args_size = sizeof(gen_attn_fwd_args),
    GEN__TWO_INDICES(attn_fwd, cu_seqlens_q, cu_seqlens_k),
    .params_size = sizeof(struct gen_attn_fwd_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = ATTN_FWD_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = MAX_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = fits,
    .predict = predict,
    .plan = plan,
    .params = gen__attn_fwd_params,
    .extents = gen__attn_fwd_extents,
    .reference = gen__attn_fwd_reference,
    .exact = gen__attn_fwd_exact,
    .tensors = gen__attn_fwd_tensors,
    .default_args = gen__attn_fwd_default_args,
    .fill = gen__attn_fwd_fill,
    .cost = gen__attn_fwd_cost,
    .case_name = gen__attn_fwd_case_name,
    .forms = gen__attn_fwd_forms,
    .num_forms = ATTN_FWD_NUM_FORMS,
    .form = gen__attn_fwd_form,
    .data = gen__attn_fwd_data,
    .grid_steps = gen__attn_fwd_grid,
    .set_counts = gen__attn_fwd_set_counts,
};
