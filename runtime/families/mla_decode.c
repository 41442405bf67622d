/*
 * MLA decode on the host: which problems are allowed, how a batch is shared out
 * over a GPU's blocks, and an estimate of the time. The arguments are in
 * mla_decode/launch.c, what the tuner and the tests need in mla_decode/inputs.c.
 */
#include "families/mla_decode.h"
#include "families/mla.h"

#include "occupancy.h"
#include "short.h"

#include <math.h>
#include <string.h>

#define MAX_BATCH (1 << 24)
#define MAX_KV_LEN (1 << 24)
#define MAX_PAGE_SIZE (1 << 16)
/* Cache rows of a batch: 2^29 blocks and, with visits, less than the 2^31 that the device counts.
 */
#define MAX_LINE (INT64_C(1) << 35)
#define MAX_GRID_Y 46340 /* squared, below 2^31: schedule.cuh */
/* Batch that a batch-invariant choice is made for. */
#define INVARIANT_BATCH 64
/* Chunks of a request, where results may not hang on the batch, and blocks of one. */
#define MAX_CHUNKS 32
#define MIN_CHUNK 8
/* Blocks of the cache by which lengths may differ where clusters take requests whole. */
#define TEAM_SLACK 4
/* Rows of a page beyond which its size no longer matters: a tile's. */
#define LARGE_PAGE 64

static const char *const dtype_names[] = {"bf16", "fp16"};
static const char *const cache_names[] = {"same", "e4m3"};
static const char *const rope_names[] = {"64", "0"};
static const char *const flag_names[] = {"no", "yes"};

static const struct gen__axis required[] = {
    {"dtype", dtype_names, 2},
    {"cache", cache_names, 2},
    {"rope", rope_names, 2},
};

/* cache_rows: of all requests, the work that there is to share out. Over it and the requests
 * problems lie nearer to what they have in common than over requests and lengths
 * (docs/perf/mla_decode.md). rows: of a request, query tokens x heads, as tiles hold them: 17 cost
 * what 32 do. page: rows of one, at most 64, as boxes of the copy engine have them; 1 where they
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
    {FIELD(cache), cache_names, 2, GEN_MLA_CACHE_SAME},
    {FIELD(causal), flag_names, 2, 0},
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
    if (p->cache != GEN_MLA_CACHE_SAME && p->cache != GEN_MLA_CACHE_E4M3)
        return invalid("cache", p->cache, "GEN_MLA_CACHE_SAME (0), GEN_MLA_CACHE_E4M3 (1)");
    return invalid("causal", p->causal, "0, 1");
}

static int32_t at_least_1(int32_t x)
{
    return x > 1 ? x : 1;
}

/* The length that selection goes by; a batch-invariant one may not know the mean. */
static int32_t usual_length(const gen_mla_decode_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? p->max_kv_len : p->kv_len;
}

static int32_t usual_batch(const gen_mla_decode_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_BATCH : p->batch;
}

/* Rows of a page that boxes of the copy engine have, which are whole pages or equal parts of one;
 * 1 where they do not divide it. */
static int32_t boxed_rows(int32_t page)
{
    return page % LARGE_PAGE == 0 ? LARGE_PAGE : page == 16 || page == 32 ? page : 1;
}

/* In few comparisons; refuse() tells them apart. */
static int32_t rows_of(const gen_mla_decode_problem *p)
{
    return p->q_len * p->num_heads;
}

/* A tile holds 16, 32 or 64 of them. */
static int32_t tiled_rows(const gen_mla_decode_problem *p)
{
    const int32_t rows = rows_of(p);
    return rows <= 16 ? 16 : rows <= 32 ? 32 : (rows + 63) & ~63;
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const uint32_t dtype = (uint32_t)p->dtype, cache = (uint32_t)p->cache;
    const uint32_t rope = (uint32_t)p->rope_dim, batch = (uint32_t)p->batch;
    const uint32_t above =
        gen__mla_above(p->num_heads, MLA_MAX_HEADS) | gen__mla_above(p->q_len, MLA_MAX_Q_LEN) |
        gen__mla_above(p->max_kv_len, MAX_KV_LEN) | gen__mla_above(p->page_size, MAX_PAGE_SIZE) |
        (dtype | cache | (uint32_t)p->causal) >> 1 | (rope & ~(uint32_t)MLA_ROPE);
    _Static_assert((MLA_ROPE & (MLA_ROPE - 1)) == 0, "a power of two");
    if (above || batch > MAX_BATCH || (uint32_t)p->kv_len > (uint32_t)p->max_kv_len ||
        (uint64_t)batch * (uint32_t)p->max_kv_len > MAX_LINE ||
        (uint64_t)batch * (uint32_t)p->q_len > INT32_MAX)
        return refuse(p);
    gen__set_codes(key, dtype, cache, rope == 0);
    key->empty = batch == 0;
    const float requests = (float)at_least_1(usual_batch(p));
    key->counts[0] = requests * (float)at_least_1(usual_length(p));
    key->counts[1] = requests;
    key->counts[2] = (float)tiled_rows(p);
    /* Where pages matter: no variant of 8-bit caches takes boxes. */
    key->counts[3] = cache == GEN_MLA_CACHE_SAME ? (float)boxed_rows(p->page_size) : 1.0f;
    return GEN_OK;
}

static int32_t row_tiles(const gen_mla_decode_problem *p, const struct gen__facts *variant)
{
    return (rows_of(p) - 1) / at_least_1(variant->fact[MLA_DECODE_Q_ROWS]) + 1;
}

static int32_t blocks_of(int32_t length)
{
    return length > 0 ? (length - 1) / MLA_BLOCK + 1 : 1;
}

/* Blocks of the grid that share every request of their part. */
static int32_t team_of(const struct gen__facts *variant)
{
    return variant->cluster > 1 ? (int32_t)variant->cluster : 1;
}

/* Clusters that run at once. Those of two fill a GPU; of larger ones some SMs of each of its parts
 * are left over: of an H200's 132 SMs, clusters of 3 and 6 use 117 and 102. */
static int32_t clusters_of(const gen_device *device, int32_t team)
{
    const int32_t sms = (int32_t)device->num_sms;
    return (team == 2 ? sms : sms * 3 / 4) / team;
}

static bool lengths_differ(const gen_mla_decode_problem *p)
{
    const int32_t blocks = blocks_of(p->kv_len);
    return blocks_of(p->max_kv_len) > blocks + blocks / 8 + TEAM_SLACK;
}

/* Why not by clusters that take requests whole, one each: not where some would take two, some
 * none, or much longer ones. */
static const char *team_fits(const gen_mla_decode_problem *p, const gen_device *device,
                             const struct gen__facts *variant)
{
    const int32_t team = team_of(variant), blocks = blocks_of(p->kv_len);
    const int64_t clusters = (int64_t)p->batch * row_tiles(p, variant);
    if (p->base.flags & GEN_BATCH_INVARIANT)
        return "how many clusters there are hangs on the batch, and the result may not";
    if (clusters > clusters_of(device, team))
        return "there are more requests than clusters that run at once";
    if (clusters * team * 2 < (int64_t)device->num_sms &&
        clusters * blocks > (int64_t)device->num_sms)
        return "a cluster for each request leaves more than half of the SMs idle";
    if (lengths_differ(p))
        return "a cluster takes a request whole, and max_kv_len is far above kv_len: lengths that "
               "differ are better cut";
    return NULL;
}

static bool choosy(const struct gen__facts *variant)
{
    return team_of(variant) > 1;
}

/* Two of team_fits()'s reasons hang on no variant. */
static bool refuses_choosy(const gen_problem *base)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    return (p->base.flags & GEN_BATCH_INVARIANT) || lengths_differ(p);
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const int32_t page = p->page_size;
    if (rows_of(p) > (int64_t)MLA_MAX_ROW_TILES * at_least_1(variant->fact[MLA_DECODE_Q_ROWS]))
        return "q_len * num_heads makes more than 2048 row tiles";
    if (variant->fact[MLA_DECODE_TENSOR_MAP] && boxed_rows(page) == 1)
        return "page_size is neither 16, 32, 64 nor a multiple of 64, as boxes of the copy engine "
               "want it";
    return team_of(variant) > 1 ? team_fits(p, device, variant) : NULL;
}

/* ---- time -------------------------------------------------------------- */

/*
 * What a block of 64 cache rows costs one row tile, and a visit of a request. From these follow the
 * cuts and the estimate:
 *
 *     memory: the block's bytes at the SM's share of the bandwidth, of which the row tiles of a
 *         request need one share together, or, where tiles in flight are few, at one latency for
 *         each round of them
 *     tensor: multiply-adds of queries and keys, probabilities and values, at the rate of wgmma or
 *         of mma.sync. With wgmma 64 rows are multiplied whatever of them counts; without shared
 *         scores each owner of output columns works out all of them
 *
 * Both overlap where there are at least two stages. Times in microseconds; to be fitted.
 */
static const float launch_us = 2.2f;           /* an empty grid, and the memory's start */
static const float visit_us = 1.5f;            /* queries in, outputs out, the pipeline anew */
static const float merge_us = 2.5f;            /* launch and latency of mla_merge */
static const float meet_us = 1.0f;             /* a cluster's blocks put a request together */
static const float latency_us = 0.8f;          /* of DRAM under load */
static const float achieved_bandwidth = 0.91f; /* of the peak: 4.4 of 4.8 TB/s on an H200 */
static const float l2_bandwidth = 1.2f; /* of the memory's: partial results, written and read */
static const float enough_sms = 0.6f;   /* that draw all of the memory's bandwidth */
static const float clock_mhz = 1700.0f;
static const float wgmma_rate = 2048.0f * 0.75f; /* multiply-adds a cycle of an SM, achieved */
static const float mma_rate = 1024.0f * 0.6f;
/* Where threads copy what the tensor cores of wgmma take: the copies' instructions, and the fences
 * that show them. Of a memory-bound tile, and of one that the tensor cores bound. */
static const float gather_memory = 1.05f, gather_tensor = 1.2f;
enum { MMA_SLAB = 16, MMA_WARPS = 8 };

struct costs {
    float block_us;     /* of one row tile, as many at once as the GPU holds */
    float tensor_us;    /* of that */
    float bytes_per_us; /* of the memory */
};

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Multiply-adds of a block for one row tile. */
static float multiply_adds(const gen_mla_decode_problem *p, const struct gen__facts *variant,
                           bool wgmma)
{
    const float q_rows = wgmma ? 64.0f : (float)variant->fact[MLA_DECODE_Q_ROWS];
    const float slabs = larger(q_rows / MMA_SLAB, 1.0f);
    const float owners =
        wgmma || variant->fact[MLA_DECODE_SHARD] ? 1.0f : larger(MMA_WARPS / slabs, 1.0f);
    return q_rows * 64.0f * (owners * (float)(MLA_LATENT + p->rope_dim) + MLA_LATENT);
}

static struct costs costs_of(const gen_mla_decode_problem *p, const gen_device *device,
                             const struct gen__facts *variant, uint32_t each)
{
    const bool wgmma = variant->fact[MLA_DECODE_WGMMA];
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float row_bytes =
        (float)(MLA_LATENT + p->rope_dim) * (p->cache == GEN_MLA_CACHE_E4M3 ? 1.0f : 2.0f);
    const float stages = (float)at_least_1(variant->fact[MLA_DECODE_STAGES]);
    const float tile_rows = (float)at_least_1(variant->fact[MLA_DECODE_KV_ROWS]);
    const float blocks = (float)each; /* of the grid, on an SM */
    const float rate = (wgmma ? wgmma_rate : mma_rate) * clock_mhz / blocks;
    struct costs c = {.bytes_per_us = gbps * 1e3f * achieved_bandwidth};
    const float rate_of_block = c.bytes_per_us / (sms * blocks) * (float)row_tiles(p, variant);
    const float share_us = MLA_BLOCK * row_bytes / rate_of_block;
    const float wait_us = latency_us * MLA_BLOCK / (stages * tile_rows);
    const bool gathers = wgmma && !variant->fact[MLA_DECODE_TENSOR_MAP];
    const float memory_us = larger(share_us, wait_us) * (gathers ? gather_memory : 1.0f);
    c.tensor_us = multiply_adds(p, variant, wgmma) / rate * (gathers ? gather_tensor : 1.0f);
    c.block_us = stages > 1.0f ? larger(memory_us, c.tensor_us) : memory_us + c.tensor_us;
    return c;
}

/* ---- shares ------------------------------------------------------------ */

/* How a batch is shared out; docs in templates/mla_decode/args.h. */
struct sharing {
    int32_t row_tiles, num_parts;
    int32_t visit, snap, chunk, max_chunks, by_request;
    int32_t num_records, num_slots; /* 0: nothing is cut */
    float us;                       /* of it all */
};

/* A cut that would leave less than this of a request is moved to its end: a piece
 * costs a visit, and its partial results are written and read. */
enum { MOST_SNAP = 2, SNAP_SHARE = 8, VISIT_BLOCKS = 1 };

/* As many parts as blocks of the grid run at once, `each` on a multiprocessor, but not more than
 * there are pieces of work. */
static int32_t parts_of(const gen_mla_decode_problem *p, const gen_device *device, uint32_t each,
                        int32_t tiles)
{
    const uint64_t resident = (uint64_t)device->num_sms * each;
    const int64_t work = (int64_t)p->batch * blocks_of(p->max_kv_len);
    /* As many as count: 32 bits are divided faster. */
    const uint32_t most = MAX_GRID_Y * MLA_MAX_ROW_TILES;
    int64_t parts = (resident < most ? (uint32_t)resident : most) / (uint32_t)tiles;
    parts = parts < work ? parts : work;
    parts = parts < MAX_GRID_Y ? parts : MAX_GRID_Y;
    return parts > 1 ? (int32_t)parts : 1;
}

/* Blocks of a multiprocessor, up to `each`, where requests of different lengths are cut. There may
 * be parts for the greatest length, though most requests are shorter: beside another one a part has
 * a block of rows, or else it would be a visit and partial results more and nothing gained. */
static uint32_t blocks_for_cut(const gen_mla_decode_problem *p, const gen_device *device,
                               uint32_t each, int32_t tiles)
{
    const uint64_t usual = (uint64_t)p->batch * (uint64_t)blocks_of(p->kv_len) * (uint64_t)tiles;
    while (each > 1 && usual < (uint64_t)each * device->num_sms)
        each--;
    return each;
}

/* Whole requests, some parts one more than others. In the last round fewer SMs
 * share the memory's bandwidth: what it bounds gets faster, down to what enough
 * SMs draw of it, or to what the tensor cores take. */
static float whole_us(const gen_mla_decode_problem *p, const struct costs *c, int32_t parts)
{
    const float request_us = (float)blocks_of(usual_length(p)) * c->block_us + visit_us;
    const float rounds = (float)p->batch / (float)parts;
    const float full = floorf(rounds), rest = rounds - full;
    const float least = larger(enough_sms, c->tensor_us / c->block_us);
    return (full + (rest > 0.0f ? larger(rest, least) : 0.0f)) * request_us;
}

/* The merge: its launch, the partial results of the pieces, and the outputs. */
static float merged_us(const gen_mla_decode_problem *p, const struct costs *c, int32_t pieces)
{
    const float row_bytes = (float)rows_of(p) * MLA_LATENT * 2.0f;
    const float merged = (float)(p->batch < pieces ? p->batch : pieces);
    return merge_us +
           (2.0f * (float)pieces + merged) * row_bytes / (c->bytes_per_us * l2_bandwidth);
}

/* Equal shares, one visit more each: that of few requests, too, for some parts end one
 * and begin the next, and the last to end is what counts. */
static float cut_us(const gen_mla_decode_problem *p, const struct costs *c, int32_t parts)
{
    const float requests = (float)p->batch / (float)parts;
    const float visits = larger(requests, p->batch > 1 ? 1.0f : 0.0f) + 1.0f;
    return requests * (float)blocks_of(usual_length(p)) * c->block_us + visits * visit_us +
           merged_us(p, c, p->batch < parts ? p->batch + parts : 2 * parts);
}

/* Every request in `each` pieces of one length, a visit each. The parts that are
 * not used leave the others more of the memory's bandwidth, unless some SMs have more
 * of them than others: those are the last to end, and what bounds them is their own. */
static float even_us(const gen_mla_decode_problem *p, const gen_device *device,
                     const struct costs *c, int32_t parts, int32_t each)
{
    const int32_t used = each * p->batch;
    const bool uneven = used > (int32_t)device->num_sms && used < parts;
    const float share = uneven ? 1.0f : larger((float)used / (float)parts, enough_sms);
    const float blocks = (float)((blocks_of(usual_length(p)) - 1) / each + 1);
    return blocks * larger(c->block_us * share, c->tensor_us) + visit_us + merged_us(p, c, used);
}

/* Requests whole, shared by the blocks of a cluster each. */
static float team_us(const gen_mla_decode_problem *p, const struct costs *c, int32_t team,
                     int32_t resident)
{
    const float share = larger((float)(p->batch * team) / (float)resident, enough_sms);
    const float blocks = (float)((blocks_of(usual_length(p)) - 1) / team + 1);
    return blocks * larger(c->block_us * share, c->tensor_us) + visit_us + meet_us;
}

static bool partials_allowed(const gen_mla_decode_problem *p, int64_t slots)
{
    const int64_t row_bytes = MLA_LATENT * 2 + (int64_t)sizeof(struct gen_mla_partial_row);
    const int64_t bytes = slots * rows_of(p) * row_bytes;
    return !p->base.max_workspace_mib || bytes + (1 << 16) <= (int64_t)p->base.max_workspace_mib
                                                                  << 20;
}

/* Chunks of every request, whatever the batch. */
static void share_by_chunks(const gen_mla_decode_problem *p, struct sharing *s)
{
    const int32_t most = blocks_of(p->max_kv_len);
    const int32_t chunk = (most - 1) / MAX_CHUNKS + 1;
    s->chunk = chunk > MIN_CHUNK ? chunk : MIN_CHUNK;
    s->max_chunks = (most - 1) / s->chunk + 1;
    s->by_request = 1;
    if (s->max_chunks > 1) {
        s->num_records = p->batch;
        s->num_slots = p->batch * s->max_chunks;
        return;
    }
    s->chunk = 0; /* a request of one chunk is whole */
    s->snap = INT32_MAX;
}

static struct sharing share_out(const gen_mla_decode_problem *p, const gen_device *device,
                                const struct gen__facts *variant)
{
    const uint32_t blocks_per_sm = gen__blocks_per_sm(device, variant);
    const struct costs c = costs_of(p, device, variant, blocks_per_sm);
    struct sharing s = {.row_tiles = row_tiles(p, variant), .visit = VISIT_BLOCKS};
    s.num_parts = parts_of(p, device, blocks_per_sm, s.row_tiles);
    const int32_t team = team_of(variant);
    if (team > 1) { /* a part is a cluster, and there is one for every request: fits() */
        s.us = team_us(p, &c, team, s.num_parts);
        s.num_parts = at_least_1(p->batch);
        s.snap = INT32_MAX;
        return s;
    }
    const int32_t parts_for_whole = s.num_parts < p->batch ? s.num_parts : p->batch;
    const bool ragged = blocks_of(p->max_kv_len) > blocks_of(usual_length(p));
    const float whole = whole_us(p, &c, parts_for_whole);
    float cut = cut_us(p, &c, s.num_parts);
    const int32_t each = p->batch > 0 ? s.num_parts / p->batch : 1;
    if (ragged) {
        const uint32_t fewer = blocks_for_cut(p, device, blocks_per_sm, s.row_tiles);
        if (fewer < blocks_per_sm) {
            const struct costs of_fewer = costs_of(p, device, variant, fewer);
            s.num_parts = parts_of(p, device, fewer, s.row_tiles);
            cut = cut_us(p, &of_fewer, s.num_parts);
        }
    } else if (each > 1) {
        const float even = even_us(p, device, &c, s.num_parts, each);
        if (even <= cut) {
            cut = even;
            s.num_parts = each * p->batch;
        }
    }
    if (p->base.flags & GEN_BATCH_INVARIANT) {
        share_by_chunks(p, &s);
        s.us = s.chunk ? cut : whole;
    } else if (s.num_parts > 1 && (ragged || cut < whole) && partials_allowed(p, 2 * s.num_parts)) {
        const int64_t blocks = (int64_t)p->batch * blocks_of(p->kv_len);
        while (s.snap < MOST_SNAP && blocks >= (int64_t)(s.snap + 1) * SNAP_SHARE * s.num_parts)
            s.snap++;
        s.by_request = p->batch <= s.num_parts;
        s.num_records = s.by_request ? p->batch : s.num_parts;
        s.num_slots = 2 * s.num_parts;
        s.us = cut;
    } else {
        s.snap = INT32_MAX;
        s.num_parts = parts_for_whole;
        s.us = whole;
    }
    return s;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    gen_mla_decode_problem p = *(const gen_mla_decode_problem *)base;
    p.batch = at_least_1(usual_batch(&p)); /* an empty problem is asked about, too */
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
    dims[MLA_DECODE_NUM_PARTS] = s->num_parts;
    dims[MLA_DECODE_VISIT] = s->visit;
    dims[MLA_DECODE_SNAP] = s->snap;
    dims[MLA_DECODE_CHUNK] = s->chunk;
    dims[MLA_DECODE_MAX_CHUNKS] = s->max_chunks;
    dims[MLA_DECODE_BY_REQUEST] = s->by_request;
    dims[MLA_DECODE_NUM_RECORDS] = s->num_records;
    dims[MLA_DECODE_NUM_SLOTS] = s->num_slots;
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
    plan->num_launches = s.num_records ? 2 : 1;
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
    (void)device, (void)variant;
    if (!dims[MLA_DECODE_NUM_RECORDS])
        return 0;
    const int32_t batch = p->batch, num_parts = dims[MLA_DECODE_NUM_PARTS];
    const int32_t pieces = dims[MLA_DECODE_CHUNK] ? dims[MLA_DECODE_MAX_CHUNKS]
                           : batch < num_parts    ? num_parts / batch + 1
                                                  : 2;
    const gen_mla_merge_problem merge = {
        .base = {sizeof merge, GEN_MLA_MERGE, p->base.flags, 0},
        .num_records = dims[MLA_DECODE_NUM_RECORDS],
        .num_heads = p->num_heads,
        .q_len = p->q_len,
        .num_pieces = pieces,
        .dtype = p->dtype,
    };
    _Static_assert(sizeof merge <= sizeof parts->problem, "a part holds the problem");
    parts[0].launch = MLA_DECODE_MERGE;
    memcpy(&parts[0].problem, &merge, sizeof merge);
    return 1;
}

static const uint32_t part_families[] = {GEN_MLA_MERGE};

static enum gen_status select_here(const gen_library *library, const gen_device *device,
                                   const gen_problem *problem, gen_plan *plan);

const struct gen__family gen__family_mla_decode = {
    .name = family,
    .tag = GEN_MLA_DECODE,
    .problem_size = sizeof(gen_mla_decode_problem),
    .args_size = sizeof(gen_mla_decode_args),
    .params_size = sizeof(struct gen_mla_decode_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = MLA_DECODE_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = fits,
    .choosy = choosy,
    .refuses_choosy = refuses_choosy,
    .predict = predict,
    .plan = plan,
    .select = select_here,
    .parts = parts,
    .part_families = part_families,
    .num_part_families = sizeof part_families / sizeof *part_families,
    .params = gen__mla_decode_params,
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
    .grid_steps = gen__mla_decode_grid,
    .set_counts = gen__mla_decode_set_counts,
};

GEN__SELECT_HERE(mla_decode)
