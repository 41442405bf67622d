/*
 * attn_paged on the host: which problems are allowed, which variants fit, and the plan. How a batch
 * is partitioned and what that takes is in sharing.h, the arguments in launch.c, what the tuner and
 * the tests need in inputs.c.
 */
#include "families/attn_paged/sharing.h"

#include <string.h>

static const char family[] = "attn_paged";

static const char *const dtype_names[] = {"bf16", "fp16"};
static const char *const cache_names[] = {"same", "e4m3"};
static const char *const dim_names[] = {"64", "128", "192", "256"};
static const char *const flag_names[] = {"no", "yes"};

static const struct gen__axis required[] = {
    {"dtype", dtype_names, 2},
    {"cache", cache_names, 2},
    {"head_dim", dim_names, 4},
};

/* kv_rows: of all requests and key heads, the work that there is to share. units: requests and key
 * heads. rows: packed rows of one, as tiles hold them. */
static const char *const coords[] = {"kv_rows", "units", "rows"};

#define FIELD(name) #name, offsetof(gen_attn_paged_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_q_heads), NULL, 0, 32},
    {FIELD(num_kv_heads), NULL, 0, GEN__PRESET_SAME},
    {FIELD(q_len), NULL, 0, 1},
    {FIELD(kv_len), NULL, 0, 1024},
    {FIELD(max_kv_len), NULL, 0, GEN__PRESET_SAME},
    {FIELD(page_size), NULL, 0, 16},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
    {FIELD(cache), cache_names, 2, GEN_ATTN_PAGED_CACHE_SAME},
    {FIELD(causal), flag_names, 2, 1},
    {"window_left", offsetof(gen_attn_paged_problem, left_window), NULL, 0, GEN__PRESET_UNBOUNDED},
    {FIELD(softcap), flag_names, 2, 0},
    {FIELD(sink), flag_names, 2, 0},
    {FIELD(total_tokens), NULL, 0, 0},
};
#undef FIELD

/* ---- the problem ------------------------------------------------------- */

static enum gen_status check_range(const char *name, int32_t value, int32_t least, int32_t most)
{
    if (value >= least && value <= most)
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId32 "; allowed: %" PRId32 " to %" PRId32, family, name, value,
                     least, most);
}

static enum gen_status check_fields(const gen_attn_paged_problem *p)
{
    const struct {
        const char *name;
        int32_t value, least, most;
    } list[] = {
        {"batch", p->batch, 0, ATTN_PAGED_MAX_BATCH},
        {"num_kv_heads", p->num_kv_heads, 1, ATTN_PAGED_MAX_HEADS},
        {"num_q_heads", p->num_q_heads, 1, ATTN_PAGED_MAX_HEADS},
        {"q_len", p->q_len, 1, ATTN_PAGED_MAX_Q_LEN},
        {"max_kv_len", p->max_kv_len, 1, ATTN_PAGED_MAX_KV_LEN},
        {"page_size", p->page_size, 0, ATTN_PAGED_MAX_PAGE_SIZE},
        {"dtype", p->dtype, GEN_DTYPE_BF16, GEN_DTYPE_FP16},
        {"cache", p->cache, 0, 1},
        {"causal", p->causal, 0, 1},
        {"left_window", p->left_window, 0, ATTN_PAGED_MAX_KV_LEN + 1},
        {"softcap", p->softcap, 0, 1},
        {"sink", p->sink, 0, 1},
        {"total_tokens", p->total_tokens, 0, INT32_MAX},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status = check_range(list[i].name, list[i].value, list[i].least, list[i].most);
    if (status)
        return status;
    if (p->num_q_heads % p->num_kv_heads)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_q_heads = %" PRId32
                         "; allowed: multiples of num_kv_heads = %" PRId32,
                         family, p->num_q_heads, p->num_kv_heads);
    if (p->kv_len < 0 || p->kv_len > p->max_kv_len)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: kv_len = %" PRId32 "; allowed: 0 to max_kv_len = %" PRId32, family,
                         p->kv_len, p->max_kv_len);
    if (p->head_dim < 64 || p->head_dim > 256 || p->head_dim % 64)
        return gen__invalid(family, "head_dim", p->head_dim, "64, 128, 192, 256");
    return GEN_OK;
}

/* The line of the narrowest tiles is what the device counts in 31 bits. */
static enum gen_status check_line(const gen_attn_paged_problem *p)
{
    const int64_t tokens = (int64_t)p->batch * p->q_len;
    const int64_t most = p->total_tokens ? p->total_tokens : tokens;
    const int64_t group = p->num_q_heads / p->num_kv_heads;
    const int64_t tiles = (most < tokens ? most : tokens) * group / LEAST_ROWS + p->batch;
    const int64_t blocks = p->max_kv_len / LEAST_KEYS + MOST_VISIT + 2;
    if (tokens > INT32_MAX)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: batch * q_len = %" PRId32 " * %" PRId32 " = %" PRId64
                         "; allowed: <= %" PRId32,
                         family, p->batch, p->q_len, tokens, INT32_MAX);
    if (tiles * p->num_kv_heads <= INT32_MAX / blocks)
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: batch = %" PRId32 ", q_len = %" PRId32 ", max_kv_len = %" PRId32
                     ", num_q_heads = %" PRId32 " make %" PRId64 " row tiles of up to %" PRId64
                     " blocks of keys; allowed: a product below 2^31 (total_tokens bounds tokens)",
                     family, p->batch, p->q_len, p->max_kv_len, p->num_q_heads,
                     tiles * p->num_kv_heads, blocks);
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    enum gen_status status = check_fields(p);
    if (!status)
        status = check_line(p);
    if (status)
        return status;
    const struct usual u = usual_of(p);
    gen__set_codes(key, (uint32_t)p->dtype, (uint32_t)p->cache, (uint32_t)p->head_dim / 64 - 1);
    key->empty = p->batch == 0;
    key->counts[1] = (float)u.units;
    key->counts[0] = key->counts[1] * (float)(u.keys > 1 ? u.keys : 1);
    key->counts[2] = (float)tiled_rows(p);
    return GEN_OK;
}

/* Rows of a page that TMA boxes have: a part of a page and of what a CTA loads of a block of keys;
 * not paged, all of it. */
static int32_t boxed_rows(const gen_attn_paged_problem *p, const struct gen__facts *variant)
{
    const int32_t keys = variant->fact[ATTN_PAGED_KEYS] / fact_of(variant, ATTN_PAGED_WGMMA),
                  page = p->page_size;
    return page && (page & -page) < keys ? page & -page : keys;
}

#define DIRECT_TILES 8     /* row tiles of a unit, each of which reads all of its keys */
#define PORTABLE_CLUSTER 8 /* blocks of a cluster that every GPU with clusters has room for */
#define CLUSTER_16_SMS 132 /* of a GPU, below which some processing clusters have fewer than 16 */

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    if (variant->fact[ATTN_PAGED_DIRECT] &&
        packed_rows(p) > DIRECT_TILES * (int64_t)variant->fact[ATTN_PAGED_ROWS])
        return "more row tiles than blocks of a unit's each are for";
    if (variant->fact[ATTN_PAGED_DIRECT] && (base->flags & GEN_BATCH_INVARIANT))
        return "lengths that decide nothing may be far apart";
    if (variant->fact[ATTN_PAGED_DIRECT] && p->batch > 1 && is_ragged(p))
        return "lengths of several requests, far below max_kv_len in the mean, are cut along a "
               "line";
    if (variant->cluster > PORTABLE_CLUSTER && device->num_sms < CLUSTER_16_SMS)
        return "clusters of 16 blocks want processing clusters of 16 SMs each";
    if (variant->fact[ATTN_PAGED_WGMMA] && boxed_rows(p, variant) < 8)
        return "page_size is no multiple of 8 rows, as TMA boxes need it";
    return NULL;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    return share_out((const gen_attn_paged_problem *)base, device, variant).us;
}

/* ---- the launch -------------------------------------------------------- */

/* The first dims are the problem's fields, copied whole. */
_Static_assert(offsetof(gen_attn_paged_problem, total_tokens) ==
                   offsetof(gen_attn_paged_problem, batch) +
                       ATTN_PAGED_TOTAL_TOKENS * sizeof(int32_t),
               "dims in the order of the problem's fields");

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    memcpy(plan->dims, (const char *)p + offsetof(gen_attn_paged_problem, batch),
           ATTN_PAGED_NUM_FIELDS * sizeof plan->dims[0]);
    plan->num_launches = p->batch > 0;
    if (!variant || !p->batch)
        return;
    const struct sharing s = share_out(p, device, variant);
    const int64_t rows = variant->fact[ATTN_PAGED_ROWS];
    const uint32_t row_tiles = (uint32_t)((packed_rows(p) + rows - 1) / rows);
    const bool direct = variant->fact[ATTN_PAGED_DIRECT] != 0;
    const uint32_t grid = direct ? (uint32_t)(p->batch * p->num_kv_heads * s.visit)
                                 : (uint32_t)(s.num_parts * cluster_of(variant));
    plan->dims[ATTN_PAGED_NUM_PARTS] =
        !direct ? s.num_parts
                : (int32_t)(s.whole == ATTN_PAGED_DIRECT_CLUSTERS ? grid * row_tiles : grid);
    plan->dims[ATTN_PAGED_VISIT] = s.visit;
    plan->dims[ATTN_PAGED_WHOLE] = s.whole;
    plan->dims[ATTN_PAGED_TILE_ROWS] = variant->fact[ATTN_PAGED_ROWS];
    plan->dims[ATTN_PAGED_TENSOR_MAPS] = variant->fact[ATTN_PAGED_WGMMA];
    plan->dims[ATTN_PAGED_MAP_ROWS] =
        variant->fact[ATTN_PAGED_WGMMA] ? boxed_rows(p, variant)
                                        : boxed_rows(p, variant) == variant->fact[ATTN_PAGED_KEYS];
    plan->workspace_bytes = gen__attn_paged_workspace(plan->dims).size;
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {grid, direct ? row_tiles : 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(base->flags & GEN_SERIAL_LAUNCH) && variant->fact[ATTN_PAGED_DEPENDENT] != 0,
    };
}

const struct gen__family gen__family_attn_paged = {
    .name = family,
    .tag = GEN_ATTN_PAGED,
    .problem_size = sizeof(gen_attn_paged_problem),
    .args_size = sizeof(gen_attn_paged_args),
    .params_size = sizeof(struct gen_attn_paged_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = ATTN_PAGED_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = 0.25f, /* pages, lengths and windows are in no coordinate */
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = fits,
    .predict = predict,
    .plan = plan,
    .params = gen__attn_paged_params,
    .extents = gen__attn_paged_extents,
    .reference = gen__attn_paged_reference,
    .exact = gen__attn_paged_exact,
    .tensors = gen__attn_paged_tensors,
    .default_args = gen__attn_paged_default_args,
    .fill = gen__attn_paged_fill,
    .cost = gen__attn_paged_cost,
    .case_name = gen__attn_paged_case_name,
    .forms = gen__attn_paged_forms,
    .num_forms = ATTN_PAGED_NUM_FORMS,
    .form = gen__attn_paged_form,
    .data = gen__attn_paged_data,
};
