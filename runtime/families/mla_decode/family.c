/*
 * MLA decode on the host: which problems are allowed, which variants fit, and the
 * plan. How a batch is partitioned and what that takes is in mla_decode/sharing.h, the
 * arguments in launch.c, what the tuner and the tests need in inputs.c.
 */
#include "families/mla_decode/sharing.h"

#include <string.h>

#define MAX_BATCH (1 << 24)
#define MAX_KV_LEN (1 << 24)
#define MAX_PAGE_SIZE (1 << 16)
/* Cache rows of a batch: 2^29 blocks and, with visits, less than the 2^31 that the device counts.
 */
#define MAX_LINE (INT64_C(1) << 35)
/* Blocks of the cache by which lengths may differ where clusters take requests whole. */
#define TEAM_SLACK 1
/* Meetings of pieces in the workspace, and pieces of a request that one block adds up. */
#define MAX_MEETINGS (1 << 20)
#define MOST_MET 64
/* Rows of a page beyond which its size no longer matters: a tile's. */
#define LARGE_PAGE 64

static const char *const dtype_names[] = {"bf16", "fp16"};
static const char *const cache_names[] = {"same", "e4m3", "e4m3q"};
static const char *const rope_names[] = {"64", "0"};
static const char *const flag_names[] = {"no", "yes"};

static const struct gen__axis required[] = {
    {"dtype", dtype_names, 2},
    {"cache", cache_names, 3},
    {"rope", rope_names, 2},
};

/* cache_rows: of all requests, the work that there is to partition. Over it and the requests
 * problems lie nearer to what they have in common than over requests and lengths
 * (docs/perf/mla_decode.md). rows: of a request, query tokens x heads, as tiles hold them: 17 cost
 * what 32 do. page: rows of one, at most 64, as TMA boxes have them; 1 where they
 * cannot, for then rows are looked up one by one. */
static const char *const coords[] = {"cache_rows", "requests", "rows", "page"};

#define FIELD(name) #name, offsetof(gen_mla_decode_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_heads), NULL, 0, 16},
    {FIELD(q_len), NULL, 0, 1},
    {FIELD(kv_len), NULL, 0, 1024},
    {FIELD(max_kv_len), NULL, 0, GEN__PRESET_SAME},
    {FIELD(page_size), NULL, 0, 64},
    {"rope", offsetof(gen_mla_decode_problem, rope_dim), NULL, 0, MLA_ROPE},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
    {FIELD(cache), cache_names, 3, GEN_MLA_CACHE_SAME},
    {FIELD(causal), flag_names, 2, 0},
    GEN__INDEX_FIELD(gen_mla_decode_problem),
};
#undef FIELD

static const char family[] = "mla_decode";

/* ---- the problem ------------------------------------------------------- */

static enum gen_status invalid(const char *name, int64_t value, const char *allowed)
{
    return gen__invalid(family, name, value, allowed);
}

/* Which field of a problem that check() refuses is wrong. */
__attribute__((noinline, cold)) static enum gen_status refuse(const gen_mla_decode_problem *p)
{
    if (p->batch < 0 || p->batch > MAX_BATCH)
        return invalid("batch", p->batch, "0 to 16777216");
    if (p->num_heads < 1 || p->num_heads > MLA_MAX_HEADS)
        return invalid("head count num_heads", p->num_heads, "1 to 128");
    if (p->q_len < 1 || p->q_len > MLA_MAX_Q_LEN)
        return invalid("q_len", p->q_len, "1 to 1024");
    if (p->max_kv_len < 1 || p->max_kv_len > MAX_KV_LEN)
        return invalid("max_kv_len", p->max_kv_len, "1 to 16777216");
    if (p->kv_len < 0 || p->kv_len > p->max_kv_len)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "mla_decode: kv_len = %" PRId32 "; allowed: 0 to max_kv_len = %" PRId32,
                         p->kv_len, p->max_kv_len);
    if (p->page_size < 1 || p->page_size > MAX_PAGE_SIZE)
        return invalid("page_size", p->page_size, "1 to 65536");
    if ((int64_t)p->batch * p->max_kv_len > MAX_LINE)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "mla_decode: batch * max_kv_len = %" PRId32 " * %" PRId32 " = %" PRId64
                         "; allowed: <= %" PRId64,
                         p->batch, p->max_kv_len, (int64_t)p->batch * p->max_kv_len, MAX_LINE);
    if ((int64_t)p->batch * p->q_len > INT32_MAX)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "mla_decode: batch * q_len = %" PRId32 " * %" PRId32 " = %" PRId64
                         "; allowed: <= %" PRId32,
                         p->batch, p->q_len, (int64_t)p->batch * p->q_len, INT32_MAX);
    if (p->rope_dim != MLA_ROPE && p->rope_dim != 0)
        return invalid("rope_dim", p->rope_dim, "64, 0");
    if (p->dtype != GEN_DTYPE_BF16 && p->dtype != GEN_DTYPE_FP16)
        return invalid("dtype", p->dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    if (p->cache < GEN_MLA_CACHE_SAME || p->cache > GEN_MLA_CACHE_E4M3_Q)
        return invalid("cache", p->cache,
                       "GEN_MLA_CACHE_SAME (0), GEN_MLA_CACHE_E4M3 (1), GEN_MLA_CACHE_E4M3_Q (2)");
    return invalid("causal", p->causal, "0, 1");
}

/* Rows of a page that TMA boxes have, which are whole pages or equal parts of one;
 * 1 where they do not divide it. */
static int32_t boxed_rows(int32_t page)
{
    return page % LARGE_PAGE == 0 ? LARGE_PAGE : page == 16 || page == 32 ? page : 1;
}

/* A tile holds 16, 32 or 64 of them. */
static int32_t tiled_rows(const gen_mla_decode_problem *p)
{
    const int32_t rows = rows_of(p);
    return rows <= 16 ? 16 : rows <= 32 ? 32 : (rows + 63) & ~63;
}

/* In few comparisons; refuse() tells them apart. */
static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const uint32_t dtype = (uint32_t)p->dtype, cache = (uint32_t)p->cache;
    const uint32_t rope = (uint32_t)p->rope_dim, batch = (uint32_t)p->batch;
    const uint32_t above =
        gen__mla_above(p->num_heads, MLA_MAX_HEADS) | gen__mla_above(p->q_len, MLA_MAX_Q_LEN) |
        gen__mla_above(p->max_kv_len, MAX_KV_LEN) | gen__mla_above(p->page_size, MAX_PAGE_SIZE) |
        (dtype | (uint32_t)p->causal) >> 1 | (rope & ~(uint32_t)MLA_ROPE);
    _Static_assert((MLA_ROPE & (MLA_ROPE - 1)) == 0, "a power of two");
    if (above || cache > GEN_MLA_CACHE_E4M3_Q || batch > MAX_BATCH ||
        (uint32_t)p->kv_len > (uint32_t)p->max_kv_len ||
        (uint64_t)batch * (uint32_t)p->max_kv_len > MAX_LINE ||
        (uint64_t)batch * (uint32_t)p->q_len > INT32_MAX)
        return refuse(p);
    gen__set_codes(key, dtype, cache, rope == 0);
    key->empty = batch == 0;
    const float requests = (float)at_least_1(tuned_batch(p));
    key->counts[0] = requests * (float)at_least_1(tuned_length(p));
    key->counts[1] = requests;
    key->counts[2] = (float)tiled_rows(p);
    key->counts[3] = (float)boxed_rows(p->page_size);
    return GEN_OK;
}

/* Clusters that run at once. Those of two fill a GPU; of larger ones some SMs of each of its parts
 * are left over: of an H200's 132 SMs, clusters of 3 and 6 use 117 and 102. */
static int64_t clusters_of(const gen_device *device, int32_t team)
{
    const int64_t sms = device->num_sms;
    return (team == 2 ? sms : sms * 3 / 4) / team;
}

static bool lengths_differ(const gen_mla_decode_problem *p)
{
    const int32_t blocks = blocks_of(p->kv_len);
    return blocks_of(p->max_kv_len) > blocks + blocks / 8 + TEAM_SLACK;
}

/* Why so many clusters are too few. On an H200 one takes some 10 us and then 28 to 33 us for 1,024
 * rows, partitioned among its SMs; requests that are cut take 12 and 0.27 for 1,024 of all
 * requests' rows, for which memory is what counts from some 100 SMs on. So with a third of the SMs
 * idle clusters save the second launch, and lose more than that with more than four blocks an SM.
 */
static const char *idle_sms(int64_t clusters, int32_t team, int32_t blocks, int64_t num_sms)
{
    if (clusters * team * 2 < num_sms)
        return clusters * blocks > num_sms
                   ? "a cluster for each request leaves more than half of the SMs idle"
                   : NULL;
    return clusters * team * 3 < num_sms * 2 && blocks > 4 * team
               ? "a cluster for each request leaves more than a third of the SMs idle"
               : NULL;
}

/* Why not by clusters that take requests whole, one each: not where some would take two, some
 * none, or much longer ones. */
static const char *team_fits(const gen_mla_decode_problem *p, const gen_device *device,
                             const struct gen__facts *variant)
{
    const int32_t team = team_of(variant), blocks = blocks_of(p->kv_len);
    const int64_t clusters = (int64_t)p->batch * row_tiles(p, variant);
    if (p->base.flags & GEN_BATCH_INVARIANT)
        return "how many clusters there are depends on the batch, and the result may not";
    if (clusters > clusters_of(device, team))
        return "there are more requests than clusters that run at once";
    if (lengths_differ(p))
        return "a cluster takes a request whole, and max_kv_len is far above kv_len: lengths that "
               "differ are better cut";
    return idle_sms(clusters, team, blocks, device->num_sms);
}

/* Why not by the block that ends a request's last piece. */
static const char *last_fits(const gen_mla_decode_problem *p, const gen_device *device,
                             const struct gen__facts *variant)
{
    const int64_t tiles = row_tiles(p, variant);
    if (p->base.flags & GEN_BATCH_INVARIANT)
        return "a request has a piece for every chunk, too many for a block to add up";
    if (p->batch * tiles > MAX_MEETINGS)
        return "requests and row tiles are more than the workspace has meetings for";
    if (p->batch * tiles * MOST_MET < (int64_t)device->num_sms)
        return "a request has more pieces than a block should add up";
    return NULL;
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const int32_t page = p->page_size;
    if (rows_of(p) > (int64_t)MLA_MAX_ROW_TILES * at_least_1(variant->fact[MLA_DECODE_Q_ROWS]))
        return "q_len * num_heads makes more than 2048 row tiles";
    if (variant->fact[MLA_DECODE_TENSOR_MAP] && boxed_rows(page) == 1)
        return "page_size is neither 16, 32, 64 nor a multiple of 64, as TMA boxes need it";
    if (variant->fact[MLA_DECODE_LAST])
        return last_fits(p, device, variant);
    return team_of(variant) > 1 ? team_fits(p, device, variant) : NULL;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    gen_mla_decode_problem p = *(const gen_mla_decode_problem *)base;
    if (p.base.flags & GEN_BATCH_INVARIANT)
        p.kv_len = p.max_kv_len = INVARIANT_KV_LEN;
    p.batch = at_least_1(tuned_batch(&p)); /* an empty problem is asked about, too */
    return launch_us + share_out(&p, device, variant).us;
}

/* ---- the launch -------------------------------------------------------- */

/* The first dims are the problem's fields, copied whole. */
#define SAME_PLACE(dim, field)                                                            \
    _Static_assert(offsetof(gen_mla_decode_problem, field) ==                             \
                       offsetof(gen_mla_decode_problem, batch) + (dim) * sizeof(int32_t), \
                   "dims in the order of the problem's fields")
SAME_PLACE(MLA_DECODE_NUM_HEADS, num_heads);
SAME_PLACE(MLA_DECODE_Q_LEN, q_len);
SAME_PLACE(MLA_DECODE_KV_LEN, kv_len);
SAME_PLACE(MLA_DECODE_MAX_KV_LEN, max_kv_len);
SAME_PLACE(MLA_DECODE_PAGE_SIZE, page_size);
SAME_PLACE(MLA_DECODE_ROPE_DIM, rope_dim);
SAME_PLACE(MLA_DECODE_DTYPE, dtype);
SAME_PLACE(MLA_DECODE_CACHE, cache);
SAME_PLACE(MLA_DECODE_CAUSAL, causal);
#undef SAME_PLACE

static void keep_sharing(const struct sharing *s, int32_t *dims)
{
    dims[MLA_DECODE_NUM_PARTS] = GEN__FRESH(s->num_parts);
    dims[MLA_DECODE_VISIT] = GEN__FRESH(s->visit);
    dims[MLA_DECODE_SNAP] = GEN__FRESH(s->snap);
    dims[MLA_DECODE_CHUNK] = GEN__FRESH(s->chunk);
    dims[MLA_DECODE_MAX_CHUNKS] = GEN__FRESH(s->max_chunks);
    dims[MLA_DECODE_BY_REQUEST] = GEN__FRESH(s->by_request);
    dims[MLA_DECODE_NUM_RECORDS] = GEN__FRESH(s->num_records);
    dims[MLA_DECODE_NUM_SLOTS] = GEN__FRESH(s->num_slots);
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    memcpy(plan->dims, (const char *)p + offsetof(gen_mla_decode_problem, batch),
           MLA_DECODE_NUM_FIELDS * sizeof plan->dims[0]);
    plan->num_launches = p->batch > 0;
    if (!variant || !p->batch)
        return;
    const struct sharing s = share_out(p, device, variant);
    keep_sharing(&s, plan->dims);
    if (variant->fact[MLA_DECODE_TENSOR_MAP])
        plan->dims[MLA_DECODE_MAP_ROWS] = p->page_size < 64 ? p->page_size : 64;
    plan->workspace_bytes = gen__mla_decode_workspace(plan->dims).size;
    plan->num_launches = s.num_records && !variant->fact[MLA_DECODE_LAST] ? 2 : 1;
    gen_plan_launch *launch = &plan->launch[MLA_DECODE_MAIN];
    launch->variant = variant->index;
    launch->grid[0] = (uint32_t)(s.row_tiles * team_of(variant));
    launch->grid[1] = (uint32_t)s.num_parts;
    launch->grid[2] = 1;
    launch->threads = (uint16_t)variant->threads;
    launch->shared = variant->shared_dynamic;
    launch->dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[MLA_DECODE_DEPENDENT];
}

/* What is cut is merged. */
static uint32_t parts(const gen_problem *base, const gen_device *device,
                      const struct gen__facts *variant, const gen_plan *plan,
                      struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const int32_t *dims = plan->dims;
    (void)device;
    if (!dims[MLA_DECODE_NUM_RECORDS] || variant->fact[MLA_DECODE_LAST])
        return 0;
    const int32_t batch = p->batch, num_parts = dims[MLA_DECODE_NUM_PARTS];
    const int32_t pieces = dims[MLA_DECODE_CHUNK] ? dims[MLA_DECODE_MAX_CHUNKS]
                           : batch < num_parts    ? num_parts / batch + 1
                                                  : 2;
    int32_t *const to = parts[0].problem.fields;
    _Static_assert(sizeof(gen_mla_merge_problem) <= sizeof parts->problem, "a part holds it");
#define TO(field) to[offsetof(gen_mla_merge_problem, field) / sizeof(int32_t)]
    parts[0].launch = MLA_DECODE_MERGE;
    parts[0].problem.base =
        (gen_problem){sizeof(gen_mla_merge_problem), GEN_MLA_MERGE, p->base.flags, 0};
    TO(num_records) = dims[MLA_DECODE_NUM_RECORDS];
    TO(num_heads) = p->num_heads;
    TO(q_len) = p->q_len;
    TO(num_pieces) = pieces;
    TO(dtype) = p->dtype;
#undef TO
    return 1;
}

static const uint32_t part_families[] = {GEN_MLA_MERGE};

const struct gen__family gen__family_mla_decode = {
    .name = family,
    .tag = GEN_MLA_DECODE,
    .problem_size = sizeof(gen_mla_decode_problem),
    .args_size = sizeof(gen_mla_decode_args),
    GEN__TWO_INDICES(mla_decode, page_indptr, q_indptr),
    .params_size = sizeof(struct gen_mla_decode_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = MLA_DECODE_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = fits,
    .predict = predict,
    .plan = plan,
    .parts = parts,
    .part_families = part_families,
    .num_part_families = sizeof part_families / sizeof *part_families,
    .params = gen__mla_decode_params,
    .extents = gen__mla_decode_extents,
    .reference = gen__mla_decode_reference,
    .exact = gen__mla_decode_exact,
    .tensors = gen__mla_decode_tensors,
    .default_args = gen__mla_decode_default_args,
    .fill = gen__mla_decode_fill,
    .cost = gen__mla_decode_cost,
    .case_name = gen__mla_decode_case_name,
    .forms = gen__mla_decode_forms,
    .num_forms = MLA_DECODE_NUM_FORMS,
    .form = gen__mla_decode_form,
    .data = gen__mla_decode_data,
    .grid_steps = gen__mla_decode_grid,
    .set_counts = gen__mla_decode_set_counts,
};
