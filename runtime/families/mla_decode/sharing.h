/*
 * How mla_decode shares a batch out over a GPU's blocks, and what that is estimated to take. For
 * family.c alone, whose selection is one function with this in it: hence static, and no .c.
 */
#ifndef GEN_FAMILIES_MLA_DECODE_SHARING_H
#define GEN_FAMILIES_MLA_DECODE_SHARING_H

#include "families/mla/mla.h"
#include "families/mla_decode/mla_decode.h"
#include "family/occupancy.h"

#include <math.h>

#define MAX_GRID_Y 46340 /* squared, below 2^31: schedule.cuh */
/* Requests that a batch-invariant choice is made for, and their cache rows: kv_len is the mean of
 * the batch, max_kv_len the most of any request in it. */
#define INVARIANT_BATCH 64
#define INVARIANT_KV_LEN 8192
/* Blocks of a chunk, where results may not depend on the batch: always as many, for where a request
 * is cut decides its last bits. So long requests have many chunks, and the workspace grows with
 * max_kv_len. */
#define INVARIANT_CHUNK 8

/* ---- what there is ----------------------------------------------------- */

static int32_t at_least_1(int32_t x)
{
    return x > 1 ? x : 1;
}

/* The length that a batch is partitioned by. */
static int32_t usual_length(const gen_mla_decode_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? p->max_kv_len : p->kv_len;
}

/* The requests and the length that selection goes by. */
static int32_t tuned_batch(const gen_mla_decode_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_BATCH : p->batch;
}

static int32_t tuned_length(const gen_mla_decode_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_KV_LEN : p->kv_len;
}

static int32_t rows_of(const gen_mla_decode_problem *p)
{
    return p->q_len * p->num_heads;
}

static int32_t row_tiles(const gen_mla_decode_problem *p, const struct gen__facts *variant)
{
    return (rows_of(p) - 1) / at_least_1(variant->fact[MLA_DECODE_Q_ROWS]) + 1;
}

static int32_t tile_rows_of(const struct gen__facts *variant)
{
    return (int32_t)variant->fact[MLA_DECODE_Q_ROWS];
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
 *         scores each owner of output columns computes all of them
 *
 * Both overlap where there are at least two stages. Times in microseconds; to be fitted.
 */
static const float launch_us = 2.2f;           /* an empty grid, and the memory's start */
static const float visit_us = 1.5f;            /* queries in, outputs out, the pipeline anew */
static const float merge_us = 2.5f;            /* launch and latency of mla_merge */
static const float last_us = 4.0f;             /* a piece arrives, the others' first bytes come */
static const float last_bytes_per_us = 5e4f;   /* of partial results, that a block reads */
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
    int32_t last_rows;  /* that a block merges; 0: mla_merge does */
};

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Multiply-adds of a block for one row tile. */
static float multiply_adds(const gen_mla_decode_problem *p, const struct gen__facts *variant,
                           bool wgmma)
{
    /* Transposed products of few columns wait for their left operands: as long as for 32. */
    const float tile_rows = (float)variant->fact[MLA_DECODE_Q_ROWS];
    const float q_rows = variant->fact[MLA_DECODE_WGMMA] == 2 ? larger(tile_rows, 32.0f)
                         : wgmma                              ? 64.0f
                                                              : tile_rows;
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
        (float)(MLA_LATENT + p->rope_dim) * (p->cache == GEN_MLA_CACHE_SAME ? 2.0f : 1.0f);
    const float stages = (float)at_least_1(variant->fact[MLA_DECODE_STAGES]);
    const float tile_rows = (float)at_least_1(variant->fact[MLA_DECODE_KV_ROWS]);
    const float blocks = (float)each; /* of the grid, on an SM */
    const float rate = (wgmma ? wgmma_rate : mma_rate) * clock_mhz / blocks;
    struct costs c = {.bytes_per_us = gbps * 1e3f * achieved_bandwidth};
    if (variant->fact[MLA_DECODE_LAST])
        c.last_rows =
            rows_of(p) < (int32_t)tile_rows_of(variant) ? rows_of(p) : tile_rows_of(variant);
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

/* How a batch is partitioned; docs in templates/mla_decode/args.h. */
struct sharing {
    int32_t row_tiles, num_parts;
    int32_t visit, snap, chunk, max_chunks, by_request;
    int32_t num_records, num_slots; /* 0: nothing is cut */
    float us;                       /* of it all */
};

/* A cut that would leave less than this of a request is moved to its end: a piece
 * costs a visit, and its partial results are written and read. */
enum { MOST_SNAP = 2, SNAP_SHARE = 8, RAGGED_SNAP_SHARE = 64, VISIT_BLOCKS = 1 };

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

/* The merge: its launch, the partial results of the pieces, and the outputs; or what the last
 * block of a request reads of its pieces. */
static float merged_us(const gen_mla_decode_problem *p, const struct costs *c, int32_t pieces)
{
    if (c->last_rows) {
        const float mean = (float)at_least_1(p->batch) * (float)blocks_of(usual_length(p));
        const float each = (float)pieces * (float)blocks_of(p->max_kv_len) / mean + 1.0f;
        return last_us + each * (float)c->last_rows * MLA_LATENT * 2.0f / last_bytes_per_us;
    }
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
 * of them than others (one of two): those are the last to end, and what bounds them is their own.
 */
static float even_us(const gen_mla_decode_problem *p, const gen_device *device,
                     const struct costs *c, const struct sharing *s, int32_t each)
{
    const int32_t used = each * p->batch;
    const bool uneven = used > (int32_t)device->num_sms / s->row_tiles;
    const float share = uneven ? 1.0f : larger((float)used / (float)s->num_parts, enough_sms);
    const int32_t rounds = (blocks_of(usual_length(p)) - 1) / each + 1;
    const float blocks = (float)rounds;
    return blocks * larger(c->block_us * share, c->tensor_us) + visit_us + merged_us(p, c, used);
}

/* Requests whole, shared by the blocks of a cluster each. */
static float team_us(const gen_mla_decode_problem *p, const struct costs *c, int32_t team,
                     int32_t resident)
{
    const float share = larger((float)(p->batch * team) / (float)resident, enough_sms);
    const int32_t rounds = (blocks_of(usual_length(p)) - 1) / team + 1;
    const float blocks = (float)rounds;
    return blocks * larger(c->block_us * share, c->tensor_us) + visit_us + meet_us;
}

static bool partials_allowed(const gen_mla_decode_problem *p, int64_t slots)
{
    const int64_t row_bytes = MLA_LATENT * INT64_C(2) + (int64_t)sizeof(struct gen_mla_partial_row);
    const int64_t bytes = slots * rows_of(p) * row_bytes;
    return !p->base.max_workspace_mib || bytes + (1 << 16) <= (int64_t)p->base.max_workspace_mib
                                                                  << 20;
}

/* Chunks of every request, whatever the batch and its longest one. */
static void share_by_chunks(const gen_mla_decode_problem *p, struct sharing *s)
{
    s->chunk = INVARIANT_CHUNK;
    s->max_chunks = (blocks_of(p->max_kv_len) - 1) / s->chunk + 1;
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
        const float even = even_us(p, device, &c, &s, each);
        if (even <= cut) {
            cut = even;
            s.num_parts = each * p->batch;
        }
    }
    if (p->base.flags & GEN_BATCH_INVARIANT) {
        share_by_chunks(p, &s);
        s.us = s.chunk ? cut : whole;
    } else if (s.num_parts > 1 && (ragged || cut < whole) &&
               partials_allowed(p, INT64_C(2) * s.num_parts)) {
        const int64_t blocks = (int64_t)p->batch * blocks_of(p->kv_len);
        /* Where lengths differ, the part that a moved cut makes longest is what a launch ends with:
         * two blocks of twenty cost 3 to 4 % (simulated), and save 5 % of the partial results. */
        const int64_t share = (ragged ? RAGGED_SNAP_SHARE : SNAP_SHARE) * (int64_t)s.num_parts;
        while (s.snap < MOST_SNAP && blocks >= (s.snap + 1) * share)
            s.snap++;
        s.by_request = p->batch <= s.num_parts;
        s.num_records = variant->fact[MLA_DECODE_LAST] ? p->batch * s.row_tiles
                        : s.by_request                 ? p->batch
                                                       : s.num_parts;
        s.num_slots = 2 * s.num_parts;
        s.us = cut;
    } else {
        s.snap = INT32_MAX;
        s.num_parts = parts_for_whole;
        s.us = whole;
    }
    return s;
}

#endif /* GEN_FAMILIES_MLA_DECODE_SHARING_H */
