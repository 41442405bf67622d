/*
 * How attn_paged shares a batch out over a GPU's blocks, and what that is estimated to take. For
 * family.c alone, whose selection is one function with this in it: hence static, and no .c.
 */
#ifndef GEN_FAMILIES_ATTN_PAGED_SHARING_H
#define GEN_FAMILIES_ATTN_PAGED_SHARING_H

#include "families/attn_paged/attn_paged.h"
#include "families/common/arguments.h"
#include "family/occupancy.h"

#include <math.h>

#define LEAST_ROWS 8    /* of a tile, of any variant */
#define LEAST_KEYS 16   /* of a block of keys */
#define MOST_VISIT 16   /* blocks */
#define MOST_PARTS 4096 /* GEN_ATTN_PAGED_GROUP to the power of GEN_ATTN_PAGED_LEVELS */
/* Requests and keys that a batch-invariant choice is made for. */
#define INVARIANT_BATCH 64
#define INVARIANT_KV_LEN 8192

/* ---- what there is ----------------------------------------------------- */

/* What selection and estimates go by. */
struct usual {
    int64_t units; /* requests times key heads */
    int32_t keys;  /* of one, the mean of those that count */
};

static struct usual usual_of(const gen_attn_paged_problem *p)
{
    const bool invariant = p->base.flags & GEN_BATCH_INVARIANT;
    const int64_t batch = invariant ? INVARIANT_BATCH : p->batch > 1 ? p->batch : 1;
    const int32_t keys = invariant ? INVARIANT_KV_LEN : p->kv_len;
    const int32_t seen = p->left_window ? p->left_window + p->q_len - 1 : keys;
    return (struct usual){batch * p->num_kv_heads, seen < keys ? seen : keys};
}

static int64_t packed_rows(const gen_attn_paged_problem *p)
{
    return (int64_t)p->q_len * (p->num_q_heads / p->num_kv_heads);
}

/* As tiles hold them: 8, 16, 32 and multiples of 64. */
static int64_t tiled_rows(const gen_attn_paged_problem *p)
{
    const int64_t rows = packed_rows(p);
    return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : (rows + 63) / 64 * 64;
}

/* ---- time -------------------------------------------------------------- */

/*
 * What a block of keys costs a tile of rows, and a visit of a unit. From these follow the cut and
 * the estimate:
 *
 *     memory: the block's bytes at the SM's share of the bandwidth; row tiles behind the first find
 *         them in L2, perhaps
 *     tensor: instructions of mma.sync, at their rate
 *
 * Both overlap. Times in microseconds, fitted to an H200's; what decides between whole units and
 * cut ones (merges, visits, the SMs that draw all of the bandwidth) is as it was when these were
 * measured.
 */
static const float launch_us = 8.6f; /* an empty grid, lengths, pages, the memory's start */
/* What else there is to it, of the whole. */
static const float stream_scale = 1.01f, wgmma_scale = 1.14f;
static const float split_scale = 0.92f, split_launch_us = 6.1f;
static const float wgmma_launch_us = 4.1f, wgmma_visit_us = 2.0f, wgmma_merge_us = 8.0f;
static const float visit_us = 0.8f; /* outputs out, the pipeline going on */
static const float merge_us = 3.0f; /* an arrival, and partial results from L2 */
/* The same for each row of a tile but eight. */
static const float visit_row_us = 0.12f, merge_row_us = 0.55f;
static const float achieved_bandwidth = 0.91f; /* of the peak: 4.4 of 4.8 TB/s on an H200 */
static const float again = 0.8f;               /* of a row tile behind the first, of the bytes */
static const float enough_sms = 0.65f;         /* that draw all of the memory's bandwidth */
static const float latency_us = 1.0f;          /* of DRAM under load */
static const float clock_mhz = 1700.0f;
static const float cut_visit_us = 2.5f; /* as the line weighs it: a part ends without help */
static const float piece_us = 3.5f; /* the least of a piece: latencies from queries to outputs */
/* Cycles that a warp takes for 16 keys of 128 columns, and for each of its rows; 8-bit keys are
 * converted. */
static const float tile_cycles = 1400.0f, row_cycles = 10.0f, e4m3_cycles = 1.45f;
static const float mma_cycles = 6.3f / 4.0f;     /* of an SM, for one m16n8k16 */
static const float wgmma_rate = 2048.0f * 0.86f; /* multiply-adds a cycle of an SM */
/* Causality: of a tile's unseen blocks those that the parts of a cut line are apart. */
static const float uneven = 0.5f;
static const int32_t few_tokens = 64; /* for which causality is no matter */

struct costs {
    float block_us;  /* of a block of keys, where all blocks of the grid run */
    float tensor_us; /* of that */
    float tiles;     /* row tiles of a request */
    float blocks;    /* of keys, of a unit */
    float seen;      /* of them, by the mean row tile */
    float visit_us, merge_us;
    int32_t resident;
};

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static int32_t fact_of(const struct gen__facts *variant, enum attn_paged_fact fact)
{
    return variant->fact[fact] > 1 ? variant->fact[fact] : 1;
}

/* CTAs that do a part together; those of a direct kernel's cluster have parts of their own. */
static int32_t cluster_of(const struct gen__facts *variant)
{
    return variant->cluster > 1 && !variant->fact[ATTN_PAGED_DIRECT] ? (int32_t)variant->cluster
                                                                     : 1;
}

static struct costs costs_of(const gen_attn_paged_problem *p, const gen_device *device,
                             const struct gen__facts *variant)
{
    const struct usual u = usual_of(p);
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const uint32_t each = gen__blocks_per_sm(device, variant);
    const float rows = (float)fact_of(variant, ATTN_PAGED_ROWS);
    const float keys = (float)fact_of(variant, ATTN_PAGED_KEYS);
    const float dim = (float)p->head_dim, v_dim = (float)gen__attn_paged_v_dim(p->head_dim);
    const float width = p->cache ? 1.0f : 2.0f;
    struct costs c = {.tiles = ceilf((float)packed_rows(p) / rows),
                      .blocks = ceilf((float)u.keys / keys),
                      .resident = (int32_t)(device->num_sms * each) / cluster_of(variant)};
    c.blocks = larger(c.blocks, 1.0f);
    c.seen = 1.0f;
    if (p->causal && p->q_len >= few_tokens && !p->left_window && u.keys > 0)
        c.seen = larger(1.0f - (float)p->q_len / (2.0f * (float)u.keys), 0.5f);
    c.visit_us = visit_us + visit_row_us * (rows - LEAST_ROWS);
    c.merge_us = merge_us + merge_row_us * (rows - LEAST_ROWS);
    if (variant->fact[ATTN_PAGED_WGMMA]) {
        c.visit_us = wgmma_visit_us;
        c.merge_us = wgmma_merge_us;
    }
    c.resident = c.resident < 1 ? 1 : c.resident < MOST_PARTS ? c.resident : MOST_PARTS;
    const float bytes = keys * (dim + v_dim) * width;
    const float ctas = (float)cluster_of(variant);
    const float share_us = bytes * sms * (float)each / (gbps * 1e3f * achieved_bandwidth * ctas);
    const float memory_us = share_us * (1.0f + again * (c.tiles - 1.0f)) / c.tiles;
    const float flying =
        (float)(fact_of(variant, ATTN_PAGED_TEAMS) * fact_of(variant, ATTN_PAGED_STAGES));
    const float padded = larger(rows, 16.0f); /* of products with keys */
    const float products = keys / 8.0f * dim / 16.0f * (padded / 16.0f) +
                           v_dim / 16.0f * (keys / 16.0f) * (rows / 8.0f);
    const float cycles = variant->fact[ATTN_PAGED_WGMMA] ? rows * keys * (dim + v_dim) / wgmma_rate
                                                         : products * mma_cycles;
    const float teams = (float)fact_of(variant, ATTN_PAGED_TEAMS);
    const float own_rows = rows > 32.0f ? 32.0f : rows; /* of a warp */
    const float chain = (tile_cycles + row_cycles * own_rows) * keys / 16.0f * dim / 128.0f *
                        (p->cache ? e4m3_cycles : 1.0f) / teams;
    c.tensor_us = cycles * (float)each / (clock_mhz * ctas);
    if (!variant->fact[ATTN_PAGED_WGMMA])
        c.tensor_us = larger(c.tensor_us, chain / clock_mhz);
    c.block_us = larger(larger(memory_us, latency_us / flying), c.tensor_us);
    return c;
}

/* Lengths may be far from their mean. */
static bool is_ragged(const gen_attn_paged_problem *p)
{
    return p->max_kv_len > p->kv_len + p->kv_len / 8 + 256 && !p->left_window;
}

/* ---- shares ------------------------------------------------------------ */

/* How a batch is partitioned; docs in templates/attn_paged/args.h. */
struct sharing {
    int32_t num_parts, visit, whole;
    float us;
};

/* A whole unit. */
static float piece_of(const struct costs *c)
{
    return larger(c->blocks * c->seen * c->block_us, piece_us) + c->visit_us;
}

/* Whole units, some parts one more than others. In the last round fewer SMs share the memory's
 * bandwidth: what it bounds gets faster, down to what enough SMs draw of it. */
static float whole_us(const struct costs *c, float units)
{
    const float rounds = units / (float)c->resident, full = floorf(rounds), rest = rounds - full;
    const float least = larger(enough_sms, c->tensor_us / c->block_us);
    return (full + (rest > 0.0f ? larger(rest, least) : 0.0f)) * piece_of(c);
}

/* Equal lengths; pieces of a part are one more than units, if these are not cut evenly. */
static float cut_us(const struct costs *c, float units, int32_t parts, bool even, int32_t teams)
{
    const float share = units / (float)parts;
    const float visits = even ? 1.0f : share + 1.0f;
    const float used = larger((float)parts / (float)c->resident, enough_sms);
    /* The teams' tiles: what does not divide is waited for. */
    const float blocks = ceilf(share * c->blocks / (float)teams) * (float)teams * c->seen +
                         (1.0f - c->seen) * c->blocks * uneven;
    return larger(blocks * larger(c->block_us * used, c->tensor_us), visits * piece_us) +
           visits * c->visit_us + c->merge_us * (share * GEN_ATTN_PAGED_GROUP < 1.0f ? 2.0f : 1.0f);
}

static bool partials_allowed(const gen_attn_paged_problem *p, const struct gen__facts *variant,
                             int64_t parts)
{
    const int64_t rows = fact_of(variant, ATTN_PAGED_ROWS);
    const int64_t bytes =
        parts * (2 * rows * (gen__attn_paged_v_dim(p->head_dim) * INT64_C(4) + 4) + 24) + 1024;
    return !p->base.max_workspace_mib || bytes <= (int64_t)p->base.max_workspace_mib << 20;
}

/* ---- direct kernels ---------------------------------------------------- */

static const float direct_launch_us = 1.9f; /* as launch_us, lengths and pages side by side */
static const float direct_round_us = 0.8f;  /* latencies of a round of blocks, one an SM */
static const float clusters_us = 2.6f;      /* an arrival, results from L2 */
static const float rank_us = 0.037f;        /* a block of a cluster, whose blocks start together */

/* Clusters that run at once. Processing clusters of SMs differ in size: of an H200's 132 SMs
 * clusters of 4 and 8 find 120, of 16 112 (cudaOccupancyMaxActiveClusters). One more would wait for
 * one.
 */
static int32_t clusters_at_once(const gen_device *device, const struct gen__facts *variant)
{
    const int32_t blocks = (int32_t)variant->cluster, sms = (int32_t)device->num_sms;
    const int32_t each = (int32_t)gen__blocks_per_sm(device, variant);
    const int32_t clusters = each * ((blocks < 4 ? sms : sms * 10 / 11) / blocks);
    return clusters < 1 ? 1 : clusters;
}

/* How many clusters a unit has: as many as run at once, of a tile of keys for each warp at least.
 */
static int32_t clusters_of(const gen_attn_paged_problem *p, const struct gen__facts *variant,
                           const struct costs *c, float units, int32_t at_once)
{
    const int64_t rows = fact_of(variant, ATTN_PAGED_ROWS), blocks = variant->cluster;
    const float each = (float)blocks * (float)fact_of(variant, ATTN_PAGED_TEAMS);
    const float room = (float)at_once / units;
    const float work = c->blocks / each, most = room < work ? room : work;
    const int32_t clusters = most < 1.0f                   ? 1
                             : most > GEN_ATTN_PAGED_GROUP ? GEN_ATTN_PAGED_GROUP
                                                           : (int32_t)most;
    const int64_t bytes = (int64_t)units * clusters * blocks * (rows * p->head_dim * 4 + 8) + 1024;
    if (blocks == 1 || (p->base.flags & GEN_BATCH_INVARIANT) ||
        (p->base.max_workspace_mib && bytes > (int64_t)p->base.max_workspace_mib << 20))
        return 1;
    return clusters;
}

/* Each unit a fixed number of blocks', whatever the others' lengths. */
static struct sharing share_direct(const gen_attn_paged_problem *p, const gen_device *device,
                                   const struct gen__facts *variant)
{
    const struct costs c = costs_of(p, device, variant);
    const float units = (float)usual_of(p).units * c.tiles;
    const int32_t at_once = clusters_at_once(device, variant);
    const int32_t clusters = clusters_of(p, variant, &c, units, at_once);
    const int32_t pieces = clusters * (int32_t)variant->cluster;
    const float teams = (float)fact_of(variant, ATTN_PAGED_TEAMS), each = teams * (float)pieces;
    const float rounds = units * (float)clusters / (float)at_once;
    const float used = larger(rounds < 1.0f ? rounds : 1.0f, enough_sms);
    /* All that there is to read, at the rate of the blocks that run; and the longest block's own.
     */
    const float block_us = larger(c.block_us * used, c.tensor_us);
    const float all = ceilf(c.blocks / each) * teams * block_us * larger(rounds, 1.0f);
    struct sharing s = {.visit = pieces,
                        .whole =
                            clusters > 1 ? ATTN_PAGED_DIRECT_CLUSTERS : ATTN_PAGED_DIRECT_CLUSTER};
    s.us = direct_launch_us + all +
           direct_round_us * ceilf(rounds) / (float)gen__blocks_per_sm(device, variant) +
           c.visit_us + (clusters > 1 ? clusters_us : 0.0f) + rank_us * (float)variant->cluster;
    return s;
}

static struct sharing share_out(const gen_attn_paged_problem *p, const gen_device *device,
                                const struct gen__facts *variant)
{
    if (variant->fact[ATTN_PAGED_DIRECT])
        return share_direct(p, device, variant);
    const struct costs c = costs_of(p, device, variant);
    const int32_t teams = fact_of(variant, ATTN_PAGED_TEAMS);
    const float units = (float)usual_of(p).units * c.tiles;
    const float whole = whole_us(&c, units);
    const int32_t whole_parts = units < (float)c.resident ? (int32_t)units : c.resident;
    struct sharing s = {.num_parts = whole_parts, .whole = 1, .us = whole};
    if (!(p->base.flags & GEN_BATCH_INVARIANT)) {
        const bool ragged = is_ragged(p);
        const float work = units * c.blocks / (float)teams; /* a tile for every team, at least */
        const float wanted = larger(work, units);
        int32_t parts = wanted < (float)c.resident ? (int32_t)wanted : c.resident;
        const int32_t each = (int32_t)((float)parts / units);
        float cut = cut_us(&c, units, parts, false, teams);
        bool even = false;
        if (!ragged && each > 1 && cut_us(&c, units, each * (int32_t)units, true, teams) <= cut) {
            parts = each * (int32_t)units;
            cut = cut_us(&c, units, parts, true, teams);
            even = true;
        }
        if (parts > 1 && (ragged || cut < whole) && partials_allowed(p, variant, parts)) {
            const float lost_us = variant->fact[ATTN_PAGED_WGMMA] ? c.visit_us : cut_visit_us;
            const int32_t visit = (int32_t)(lost_us / c.block_us + 0.5f);
            s = (struct sharing){.num_parts = parts, .us = cut};
            s.visit = even ? 0 : visit < MOST_VISIT ? visit : MOST_VISIT;
        }
    }
    if (!variant->fact[ATTN_PAGED_WGMMA])
        s.us = s.us * stream_scale + launch_us;
    else if (variant->fact[ATTN_PAGED_TEAMS] > 1) /* groups that take keys in turn */
        s.us = s.us * split_scale + split_launch_us;
    else
        s.us = s.us * wgmma_scale + wgmma_launch_us;
    return s;
}

#endif /* GEN_FAMILIES_ATTN_PAGED_SHARING_H */
