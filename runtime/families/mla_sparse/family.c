/*
 * Sparse MLA decode on the host: which problems are allowed, how a batch is partitioned, what that
 * is estimated to take, and the plan. The arguments are in launch.c, what the tuner and the tests
 * need in inputs.c.
 */
#include "families/mla/mla.h"
#include "families/mla_sparse/mla_sparse.h"
#include "families/common/arguments.h"
#include "family/occupancy.h"

#include <math.h>
#include <string.h>

#define MAX_TOKENS (1 << 24)
#define MAX_TOPK (1 << 20)
#define MAX_PAGE_SIZE (1 << 16)
/* Entries of a batch: 2^29 blocks and, with visits, less than the 2^31 that the device counts. */
#define MAX_LINE (INT64_C(1) << 35)
#define MAX_GRID_Y 46340 /* squared, below 2^31: mla_decode/schedule.cuh */
/* Where results may not depend on the batch: tokens that a choice is made for, and blocks that
 * lists are cut by. */
#define INVARIANT_TOKENS 64
#define INVARIANT_CHUNK 8

static const char *const dtype_names[] = {"bf16", "fp16"};
static const char *const cache_names[] = {"same", "ds"};
static const char *const rope_names[] = {"64", "0"};
static const char *const flag_names[] = {"no", "yes"};

static const struct gen__axis required[] = {
    {"dtype", dtype_names, 2},
    {"cache", cache_names, 2},
    {"rope", rope_names, 2},
};

/* entries: of all lists, the work that there is to partition. rows: heads, as tiles hold them. */
static const char *const coords[] = {"entries", "tokens", "rows"};

#define FIELD(name) #name, offsetof(gen_mla_sparse_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_heads), NULL, 0, 16},
    {FIELD(q_len), NULL, 0, 1},
    {FIELD(topk), NULL, 0, 2048},
    {FIELD(page_size), NULL, 0, 64},
    {"rope", offsetof(gen_mla_sparse_problem, rope_dim), NULL, 0, MLA_ROPE},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
    {FIELD(cache), cache_names, 2, GEN_MLA_SPARSE_SAME},
    {FIELD(sink), flag_names, 2, 0},
};
#undef FIELD

static const char family[] = "mla_sparse";

/* ---- the problem ------------------------------------------------------- */

static enum gen_status invalid(const char *name, int64_t value, const char *allowed)
{
    return gen__invalid(family, name, value, allowed);
}

static enum gen_status check_sizes(const gen_mla_sparse_problem *p)
{
    if (p->batch < 0 || p->batch > MAX_TOKENS)
        return invalid("batch", p->batch, "0 to 16777216");
    if (p->num_heads < 1 || p->num_heads > MLA_MAX_HEADS)
        return invalid("head count num_heads", p->num_heads, "1 to 128");
    if (p->q_len < 1 || p->q_len > MLA_MAX_Q_LEN)
        return invalid("q_len", p->q_len, "1 to 1024");
    if (p->topk < 1 || p->topk > MAX_TOPK)
        return invalid("topk", p->topk, "1 to 1048576");
    if (p->page_size < 1 || p->page_size > MAX_PAGE_SIZE)
        return invalid("page_size", p->page_size, "1 to 65536");
    const int64_t tokens = (int64_t)p->batch * p->q_len;
    if (tokens > MAX_TOKENS)
        return invalid("batch * q_len", tokens, "0 to 16777216");
    if (tokens * p->topk > MAX_LINE)
        return invalid("batch * q_len * topk", tokens * p->topk, "0 to 34359738368");
    return GEN_OK;
}

static int32_t at_least_1(int32_t x)
{
    return x > 1 ? x : 1;
}

static int32_t tokens_of(const gen_mla_sparse_problem *p)
{
    return p->batch * p->q_len;
}

/* The tokens that selection goes by. */
static int32_t tuned_tokens(const gen_mla_sparse_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_TOKENS : at_least_1(tokens_of(p));
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    const enum gen_status status = check_sizes(p);
    if (status)
        return status;
    if (p->rope_dim != MLA_ROPE && p->rope_dim != 0)
        return invalid("rope_dim", p->rope_dim, "64, 0");
    if (p->cache != GEN_MLA_SPARSE_SAME && p->cache != GEN_MLA_SPARSE_DS)
        return invalid("cache", p->cache, "GEN_MLA_SPARSE_SAME (0), GEN_MLA_SPARSE_DS (1)");
    if (p->dtype != GEN_DTYPE_BF16 && p->dtype != GEN_DTYPE_FP16)
        return invalid("dtype", p->dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    if (p->sink != 0 && p->sink != 1)
        return invalid("sink", p->sink, "0, 1");
    gen__set_codes(key, (uint32_t)p->dtype, (uint32_t)p->cache, p->rope_dim == 0);
    key->empty = p->batch == 0;
    const int32_t heads = p->num_heads;
    key->counts[0] = (float)tuned_tokens(p) * (float)p->topk;
    key->counts[1] = (float)tuned_tokens(p);
    key->counts[2] = (float)(heads <= 16 ? 16 : heads <= 32 ? 32 : (heads + 63) & ~63);
    return GEN_OK;
}

/* ---- time -------------------------------------------------------------- */

/*
 * What a block of 64 entries costs one row tile, and a visit of a list; as in
 * mla_decode/sharing.h, whose kernels these are. Times in microseconds, fitted to an H200.
 */
static const float launch_us = 2.2f;           /* an empty grid, and the memory's start */
static const float visit_us = 1.5f;            /* queries in, outputs out, the pipeline anew */
static const float merge_us = 2.5f;            /* launch and latency of mla_merge */
static const float latency_us = 0.8f;          /* of DRAM under load */
static const float achieved_bandwidth = 0.86f; /* of the peak, of rows one by one */
static const float l2_bandwidth = 1.2f;        /* of the memory's: partial results */
static const float enough_sms = 0.6f;          /* that draw all of the memory's bandwidth */
static const float clock_mhz = 1700.0f;
static const float wgmma_rate = 2048.0f * 0.64f; /* multiply-adds a cycle of an SM, achieved */
static const float mma_rate = 1024.0f * 0.6f;
static const float ds_mma = 1.5f;       /* converted at once, not ahead */
static const float ds_wgmma_us = 2.85f; /* in which two groups of threads convert a block */
static const float mma_rows_us = 4.4f;  /* in which the threads that multiply bring a block */
enum { MMA_SLAB = 16, MMA_WARPS = 8 };

struct costs {
    float block_us, tensor_us; /* of one row tile; of that the tensor cores' */
    float bytes_per_us;        /* of the memory */
};

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static int32_t row_tiles(const gen_mla_sparse_problem *p, const struct gen__facts *variant)
{
    return (p->num_heads - 1) / at_least_1(variant->fact[MLA_SPARSE_Q_ROWS]) + 1;
}

static float row_bytes(const gen_mla_sparse_problem *p)
{
    if (p->cache == GEN_MLA_SPARSE_SAME)
        return 2.0f * (float)(MLA_LATENT + p->rope_dim);
    return (float)(MLA_SPARSE_ROPE_AT + 2 * p->rope_dim);
}

static struct costs costs_of(const gen_mla_sparse_problem *p, const gen_device *device,
                             const struct gen__facts *variant, uint32_t each)
{
    const bool wgmma = variant->fact[MLA_SPARSE_WGMMA];
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f, blocks = (float)each;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float stages = (float)at_least_1(variant->fact[MLA_SPARSE_STAGES]);
    const float tile = (float)at_least_1(variant->fact[MLA_SPARSE_KV_ROWS]);
    const float q_rows = (float)at_least_1(variant->fact[MLA_SPARSE_Q_ROWS]);
    const float owners =
        variant->fact[MLA_SPARSE_SHARD] ? 1.0f : larger(MMA_WARPS * MMA_SLAB / q_rows, 1.0f);
    const float products =
        q_rows * 64.0f * (owners * (float)(MLA_LATENT + p->rope_dim) + MLA_LATENT);
    const float converts = p->cache == GEN_MLA_SPARSE_DS && !wgmma ? ds_mma : 1.0f;
    struct costs c = {.bytes_per_us = gbps * 1e3f * achieved_bandwidth};
    const float of_block = c.bytes_per_us / (sms * blocks) * (float)row_tiles(p, variant);
    const float memory_us =
        larger(MLA_BLOCK * row_bytes(p) / of_block, latency_us * MLA_BLOCK / (stages * tile));
    c.tensor_us = converts * products * blocks / ((wgmma ? wgmma_rate : mma_rate) * clock_mhz);
    if (!wgmma)
        c.tensor_us = larger(c.tensor_us, mma_rows_us);
    else if (p->cache == GEN_MLA_SPARSE_DS)
        c.tensor_us = larger(c.tensor_us, ds_wgmma_us);
    c.block_us = stages > 1.0f ? larger(memory_us, c.tensor_us) : memory_us + c.tensor_us;
    return c;
}

/* ---- shares ------------------------------------------------------------ */

/* How a batch is partitioned; docs in templates/mla_decode/args.h. */
struct sharing {
    int32_t row_tiles, num_parts, snap, chunk, max_chunks, by_request;
    int32_t num_records, num_slots; /* 0: nothing is cut */
    float us;                       /* of it all */
};

/* A cut that would leave less than this of a list is moved to its end. */
enum { MOST_SNAP = 2, SNAP_SHARE = 8 };

static int32_t parts_of(const gen_mla_sparse_problem *p, const gen_device *device, uint32_t each,
                        int32_t tiles)
{
    const int64_t resident = (int64_t)device->num_sms * each / tiles;
    const int64_t work = (int64_t)tokens_of(p) * gen__mla_sparse_blocks(p->topk);
    int64_t parts = resident < work ? resident : work;
    parts = parts < MAX_GRID_Y ? parts : MAX_GRID_Y;
    return parts > 1 ? (int32_t)parts : 1;
}

/* Whole lists, some parts one more than others; in the last round fewer SMs share the memory. */
static float whole_us(const gen_mla_sparse_problem *p, const struct costs *c, int32_t parts)
{
    const float list_us = (float)gen__mla_sparse_blocks(p->topk) * c->block_us + visit_us;
    const float rounds = (float)tuned_tokens(p) / (float)parts;
    const float full = floorf(rounds), rest = rounds - full;
    const float least = larger(enough_sms, c->tensor_us / c->block_us);
    return (full + (rest > 0.0f ? larger(rest, least) : 0.0f)) * list_us;
}

/* The merge: its launch, the partial results of the pieces, and the outputs. */
static float merged_us(const gen_mla_sparse_problem *p, const struct costs *c, int32_t pieces)
{
    const float bytes = (float)p->num_heads * MLA_LATENT * 2.0f;
    const int32_t tokens = tuned_tokens(p);
    const float merged = (float)(tokens < pieces ? tokens : pieces);
    return merge_us + (2.0f * (float)pieces + merged) * bytes / (c->bytes_per_us * l2_bandwidth);
}

/* Equal work ranges, one visit more each. */
static float cut_us(const gen_mla_sparse_problem *p, const struct costs *c, int32_t parts)
{
    const int32_t tokens = tuned_tokens(p);
    const float lists = (float)tokens / (float)parts;
    const float visits = larger(lists, tokens > 1 ? 1.0f : 0.0f) + 1.0f;
    return lists * (float)gen__mla_sparse_blocks(p->topk) * c->block_us + visits * visit_us +
           merged_us(p, c, tokens < parts ? tokens + parts : 2 * parts);
}

/* Every list in `each` pieces of one length, a visit each. */
static float even_us(const gen_mla_sparse_problem *p, const struct costs *c, int32_t parts,
                     int32_t each)
{
    const int32_t used = each * tuned_tokens(p);
    const float share = larger((float)used / (float)parts, enough_sms);
    const int32_t rounds = (gen__mla_sparse_blocks(p->topk) - 1) / each + 1;
    return (float)rounds * larger(c->block_us * share, c->tensor_us) + visit_us +
           merged_us(p, c, used);
}

static bool partials_allowed(const gen_mla_sparse_problem *p, int64_t slots)
{
    const int64_t bytes = MLA_LATENT * INT64_C(2) + (int64_t)sizeof(struct gen_mla_partial_row);
    return !p->base.max_workspace_mib ||
           slots * p->num_heads * bytes + (1 << 16) <= (int64_t)p->base.max_workspace_mib << 20;
}

/* Chunks of every list, whatever the batch; a list of one chunk is whole. */
static void share_by_chunks(const gen_mla_sparse_problem *p, struct sharing *s)
{
    const int32_t chunks = (gen__mla_sparse_blocks(p->topk) - 1) / INVARIANT_CHUNK + 1;
    if (chunks == 1 || p->sink) {
        s->snap = INT32_MAX;
        return;
    }
    s->chunk = INVARIANT_CHUNK;
    s->max_chunks = chunks;
    s->by_request = 1;
    s->num_records = tokens_of(p);
    s->num_slots = tokens_of(p) * chunks;
}

static struct sharing share_out(const gen_mla_sparse_problem *p, const gen_device *device,
                                const struct gen__facts *variant)
{
    const uint32_t each_sm = gen__blocks_per_sm(device, variant);
    const struct costs c = costs_of(p, device, variant, each_sm);
    struct sharing s = {.row_tiles = row_tiles(p, variant)};
    const int32_t tokens = tokens_of(p), parts = parts_of(p, device, each_sm, s.row_tiles);
    const int32_t for_whole = at_least_1(parts < tokens ? parts : tokens);
    const float whole = whole_us(p, &c, for_whole);
    float cut = cut_us(p, &c, parts);
    s.num_parts = parts;
    const int32_t each = tokens > 0 ? parts / tokens : 1;
    if (each > 1) {
        const float even = even_us(p, &c, parts, each);
        if (even <= cut) {
            cut = even;
            s.num_parts = each * tokens;
        }
    }
    if (p->base.flags & GEN_BATCH_INVARIANT) {
        share_by_chunks(p, &s);
        s.us = s.chunk ? cut : whole;
    } else if (!p->sink && s.num_parts > 1 && cut < whole &&
               partials_allowed(p, INT64_C(2) * s.num_parts)) {
        const int64_t blocks = (int64_t)tokens * gen__mla_sparse_blocks(p->topk);
        while (s.snap < MOST_SNAP && blocks >= (s.snap + 1) * (int64_t)SNAP_SHARE * s.num_parts)
            s.snap++;
        s.by_request = tokens <= s.num_parts;
        s.num_records = s.by_request ? tokens : s.num_parts;
        s.num_slots = 2 * s.num_parts;
        s.us = cut;
    } else {
        s.snap = INT32_MAX;
        s.num_parts = for_whole;
        s.us = whole;
    }
    return s;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    gen_mla_sparse_problem p = *(const gen_mla_sparse_problem *)base;
    if (p.base.flags & GEN_BATCH_INVARIANT) {
        p.batch = INVARIANT_TOKENS;
        p.q_len = 1;
    }
    return launch_us + share_out(&p, device, variant).us;
}

/* ---- the launch -------------------------------------------------------- */

/* The first dims are the problem's fields, copied whole. */
_Static_assert(offsetof(gen_mla_sparse_problem, sink) ==
                   offsetof(gen_mla_sparse_problem, batch) + MLA_SPARSE_SINK * sizeof(int32_t),
               "dims in the order of the problem's fields");

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    int32_t *const dims = plan->dims;
    memcpy(dims, (const char *)p + offsetof(gen_mla_sparse_problem, batch),
           MLA_SPARSE_NUM_FIELDS * sizeof dims[0]);
    plan->num_launches = p->batch > 0;
    if (!variant || !p->batch)
        return;
    const struct sharing s = share_out(p, device, variant);
    dims[MLA_SPARSE_NUM_PARTS] = s.num_parts;
    dims[MLA_SPARSE_SNAP] = s.snap;
    dims[MLA_SPARSE_CHUNK] = s.chunk;
    dims[MLA_SPARSE_MAX_CHUNKS] = s.max_chunks;
    dims[MLA_SPARSE_BY_REQUEST] = s.by_request;
    dims[MLA_SPARSE_NUM_RECORDS] = s.num_records;
    dims[MLA_SPARSE_NUM_SLOTS] = s.num_slots;
    plan->workspace_bytes = gen__mla_sparse_workspace(dims).size;
    plan->num_launches = s.num_records ? 2 : 1;
    gen_plan_launch *launch = &plan->launch[MLA_SPARSE_MAIN];
    launch->variant = variant->index;
    launch->grid[0] = (uint32_t)s.row_tiles;
    launch->grid[1] = (uint32_t)s.num_parts;
    launch->grid[2] = 1;
    launch->threads = (uint16_t)variant->threads;
    launch->shared = variant->shared_dynamic;
    launch->dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[MLA_SPARSE_DEPENDENT];
}

/* What is cut is merged, every token a request. */
static uint32_t parts(const gen_problem *base, const gen_device *device,
                      const struct gen__facts *variant, const gen_plan *plan,
                      struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    const int32_t *dims = plan->dims;
    (void)device, (void)variant;
    if (!dims[MLA_SPARSE_NUM_RECORDS])
        return 0;
    const int32_t tokens = tokens_of(p), num_parts = dims[MLA_SPARSE_NUM_PARTS];
    const int32_t pieces = dims[MLA_SPARSE_CHUNK] ? dims[MLA_SPARSE_MAX_CHUNKS]
                           : tokens < num_parts   ? num_parts / tokens + 1
                                                  : 2;
    int32_t *const to = parts[0].problem.fields;
    _Static_assert(sizeof(gen_mla_merge_problem) <= sizeof parts->problem, "a part holds it");
#define TO(field) to[offsetof(gen_mla_merge_problem, field) / sizeof(int32_t)]
    parts[0].launch = MLA_SPARSE_MERGE;
    parts[0].problem.base =
        (gen_problem){sizeof(gen_mla_merge_problem), GEN_MLA_MERGE, p->base.flags, 0};
    TO(num_records) = dims[MLA_SPARSE_NUM_RECORDS];
    TO(num_heads) = p->num_heads;
    TO(q_len) = 1;
    TO(num_pieces) = pieces;
    TO(dtype) = p->dtype;
#undef TO
    return 1;
}

static const uint32_t part_families[] = {GEN_MLA_MERGE};

const struct gen__family gen__family_mla_sparse = {
    .name = family,
    .tag = GEN_MLA_SPARSE,
    .problem_size = sizeof(gen_mla_sparse_problem),
    .args_size = sizeof(gen_mla_sparse_args),
    .params_size = sizeof(struct gen_mla_sparse_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = MLA_SPARSE_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = gen__fits_always,
    .predict = predict,
    .plan = plan,
    .parts = parts,
    .part_families = part_families,
    .num_part_families = sizeof part_families / sizeof *part_families,
    .params = gen__mla_sparse_params,
    .extents = gen__mla_sparse_extents,
    .reference = gen__mla_sparse_reference,
    .exact = gen__mla_sparse_exact,
    .tensors = gen__mla_sparse_tensors,
    .default_args = gen__mla_sparse_default_args,
    .fill = gen__mla_sparse_fill,
    .cost = gen__mla_sparse_cost,
    .case_name = gen__mla_sparse_case_name,
    .forms = gen__mla_sparse_forms,
    .num_forms = MLA_SPARSE_NUM_FORMS,
    .form = gen__mla_sparse_form,
    .data = gen__mla_sparse_data,
    .grid_steps = gen__mla_sparse_grid,
    .set_counts = gen__mla_sparse_set_counts,
};
