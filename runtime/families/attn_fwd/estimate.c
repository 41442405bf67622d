/*
 * Dense attention, forward: an estimate of a launch's time. Tiles of rows take a start and a time
 * for each key that they walk over; a launch takes what a block's share of them takes, and a part
 * of the longest one, because blocks do not end together. Constants are fitted to every variant's
 * time of 880 random problems and the published ones on an H200
 * (docs/log/2026-11-23-attn-estimate.md).
 */
#include "families/attn_fwd/attn_fwd.h"

#include "family/occupancy.h"

#include <math.h>

/* Who takes which tile. */
enum order { ORDER_ONE, ORDER_STATIC, ORDER_DYNAMIC, ORDER_TWIN, NUM_ORDERS };
/* The kernels: mma.sync, and wgmma with two and three warpgroups that compute. */
enum kind { KIND_MMA, KIND_TWO_GROUPS, KIND_THREE_GROUPS, NUM_KINDS };
enum width { WIDTH_64, WIDTH_128, WIDTH_256, WIDTH_64_FP8, WIDTH_128_FP8, NUM_WIDTHS };

/* Of a tile, of a kernel that has an SM for itself. */
struct tile_cost {
    float key_ns[ATTN_FWD_NUM_MASKS]; /* a key */
    float masked_ns;                  /* more of a key of a block that a mask cuts */
    float start_us[NUM_ORDERS];
    float unseen_us[NUM_ORDERS]; /* a tile that sees no key */
};

/* Width 256 of 8 bits has the constants of 128. */
static const struct tile_cost cost[NUM_WIDTHS][NUM_KINDS] = {
    /* 64 */ {
        {{8.18f, 7.86f, 7.8f}, 1.31f, {1.45f, 0.0f, 0.0f, 0.0f}, {1.17f, 0.0f, 0.0f, 0.0f}},
        {{8.24f, 8.24f, 8.24f}, 0.0f, {2.85f, 1.04f, 0.634f, 0.0f}, {2.09f, 1.08f, 1.22f, 0.0f}},
        {{10.2f, 9.98f, 11.9f}, 1.66f, {2.98f, 1.03f, 0.599f, 0.0f}, {2.09f, 1.08f, 1.22f, 0.0f}}},
    /* 128 */
    {{{18.1f, 17.3f, 16.0f}, 2.45f, {2.32f, 0.0f, 0.0f, 0.0f}, {0.728f, 0.0f, 0.0f, 0.0f}},
     {{11.2f, 11.2f, 12.3f}, 0.682f, {3.82f, 1.37f, 1.18f, 1.11f}, {1.91f, 1.09f, 0.997f, 0.0226f}},
     {{16.2f, 16.2f, 18.3f}, 2.69f, {3.88f, 2.01f, 1.51f, 0.0f}, {1.91f, 1.09f, 0.997f, 0.0226f}}},
    /* 256 */
    {{{66.2f, 55.9f, 71.5f}, 0.0869f, {6.22f, 0.0f, 0.0f, 0.0f}, {0.74f, 0.0f, 0.0f, 0.0f}},
     {{21.8f, 21.4f, 27.1f}, 2.52f, {5.43f, 3.43f, 3.13f, 0.0f}, {3.0f, 2.55f, 2.15f, 0.0f}},
     {{0}, 0.0f, {0}, {0}}},
    /* 8 bits, 64 */
    {{{9.27f, 9.25f, 10.9f}, 0.0f, {4.15f, 0.0f, 0.0f, 0.0f}, {0.738f, 0.0f, 0.0f, 0.0f}},
     {{0}, 0.0f, {0}, {0}},
     {{9.94f, 9.08f, 11.4f}, 5.16f, {2.7f, 0.137f, 0.0f, 0.0f}, {2.22f, 1.05f, 1.27f, 0.0f}}},
    /* 8 bits, 128 */
    {{{16.6f, 18.4f, 19.5f}, 0.0f, {3.65f, 0.0f, 0.0f, 0.0f}, {0.9f, 0.0f, 0.0f, 0.0f}},
     {{8.93f, 9.1f, 9.21f}, 4.25f, {3.63f, 1.13f, 0.905f, 0.0f}, {1.96f, 0.933f, 1.16f, 0.0f}},
     {{0}, 0.0f, {0}, {0}}},
};
static const float mma_launch_us = 1.44f, launch_us[NUM_ORDERS] = {4.32f, 6.78f, 7.21f, 7.62f};
/* Of the longest tile, beside a block's share: tiles of unequal length, which no full mask has. */
static const float unequal_part[NUM_ORDERS][ATTN_FWD_NUM_MASKS] = {
    {0.0f, 0.186f, 0.261f}, {0.0f, 0.598f, 0.36f}, {0.0f, 0.32f, 0.412f}, {0.0f}};
/* How much of the last round, which does not fill the GPU, later rounds make up for. */
static const float filled_part[NUM_ORDERS][ATTN_FWD_NUM_MASKS] = {
    {0.318f, 0.391f, 0.0f}, {0.0f}, {0.0624f, 0.838f, 0.352f}, {0.0f}};
/* Static shares of unequal tiles: how much of whole rounds counts beside the even share. */
static const float static_part = 0.199f;
/* Of the time of long launches, where the board's power decides: blocks that run all the time do
 * worse there. */
static const float long_persistent = 1.025f;
/* The same source under a symbol that ptxas knows, or mixed probabilities: a table may choose it,
 * the estimate does not. */
static const float renamed_part = 1.02f;

static enum order order_of(const struct gen__facts *variant)
{
    if (variant->cluster > 1)
        return ORDER_TWIN;
    if (variant->fact[ATTN_FWD_DYNAMIC])
        return ORDER_DYNAMIC;
    return variant->fact[ATTN_FWD_PERSISTENT] ? ORDER_STATIC : ORDER_ONE;
}

static const struct tile_cost *cost_of(const gen_attn_fwd_problem *p,
                                       const struct gen__facts *variant)
{
    const bool fp8 = gen__attn_of_8_bits(p->dtype);
    const bool narrow = p->head_dim == 64;
    const enum width width = fp8      ? (narrow ? WIDTH_64_FP8 : WIDTH_128_FP8)
                             : narrow ? WIDTH_64
                                      : (p->head_dim == 128 ? WIDTH_128 : WIDTH_256);
    const enum kind kind = !variant->fact[ATTN_FWD_WGMMA]          ? KIND_MMA
                           : variant->fact[ATTN_FWD_Q_ROWS] >= 192 ? KIND_THREE_GROUPS
                                                                   : KIND_TWO_GROUPS;
    return &cost[width][kind];
}

/* What a head's tiles walk over, in blocks of keys. */
struct walk {
    float tiles, seen;    /* all; those that see a key */
    float blocks, masked; /* of all tiles; of these, blocks that a mask cuts */
    float longest, cut;   /* of the longest tile; of these, such blocks */
    bool equal;           /* all tiles are as long */
};

/* x / y rounded down, of whole numbers from 0 on, by 1 / y: a division takes longer. */
static inline float whole(float x, float inverse)
{
    return (float)(int32_t)((x + 0.5f) * inverse);
}

static inline float whole_up(float x, float y, float inverse)
{
    return whole(x + y - 1.0f, inverse);
}

static inline float least_of(float x, float y)
{
    return x < y ? x : y;
}

static inline float at_least_0(float x)
{
    return x > 0.0f ? x : 0.0f;
}

/* A tile's rows and a block's keys. */
struct tile_shape {
    float rows, keys, of_rows, of_keys; /* and 1 / rows, 1 / keys */
    bool aligned;                       /* a tile's rows are whole blocks */
};

static struct tile_shape shape_of(const struct gen__facts *variant)
{
    const int32_t rows = gen__attn_tile_rows(variant);
    const int32_t keys = variant->fact[ATTN_FWD_KV_ROWS] > 0 ? variant->fact[ATTN_FWD_KV_ROWS] : 64;
    return (struct tile_shape){(float)rows, (float)keys, 1.0f / (float)rows, 1.0f / (float)keys,
                               (uint32_t)rows % (uint32_t)keys == 0};
}

/* Blocks that tiles end before the last one, and those that they begin behind the first one. Sums
 * over the tiles from the last one up are arithmetic progressions, cut where the keys end; an edge
 * that moves by whole blocks is rounded alike in all. `top`, `before`: the edge of a tile that ends
 * with the last row. */
static float blocks_to(const struct tile_shape *t, float kv, float top, float seen)
{
    const float all = whole_up(kv, t->keys, t->of_keys);
    const float last = least_of(whole(at_least_0(top - kv), t->of_rows) + 1.0f, seen); /* tiles */
    const float up =
        t->aligned ? whole_up(top, t->keys, t->of_keys) * t->keys : top + 0.5f * (t->keys - 1.0f);
    const float mean = up - 0.5f * t->rows * (last + seen - 1.0f);
    return last * all + (seen - last) * mean * t->of_keys;
}

static float blocks_before(const struct tile_shape *t, float before, float seen)
{
    const float up = at_least_0(whole_up(before, t->rows, t->of_rows) - 1.0f);
    const float cut = least_of(up, seen); /* tiles */
    const float down =
        t->aligned ? whole(before, t->of_keys) * t->keys : before - 0.5f * (t->keys - 1.0f);
    return at_least_0(cut * (down - 0.5f * t->rows * (cut + 1.0f)) * t->of_keys);
}

static struct walk walk_of(const gen_attn_fwd_problem *p, const struct tile_shape *t)
{
    const bool right_open = !p->causal && !p->right_window, left_open = !p->left_window;
    const float kv = (float)p->kv_len, q = (float)p->q_len;
    const float right = p->causal ? 0.0f : (float)(p->right_window - 1);
    const float left = (float)(p->left_window - 1);
    const float tiles = whole_up(q, t->rows, t->of_rows), grid = tiles * t->rows;
    /* With causality the last tile ends with the last row, in groups of 64, else the grid does. */
    const float end = p->causal ? whole_up(q, 64.0f, 1.0f / 64.0f) * 64.0f : grid;
    const float unseen = right_open ? 0.0f : at_least_0(q - kv - right); /* rows */
    const float hidden = unseen > 0.0f ? whole(unseen + grid - end, t->of_rows) : 0.0f;
    const float seen = hidden < tiles ? tiles - hidden : 1.0f;
    const float all = whole_up(kv, t->keys, t->of_keys);
    float blocks = right_open ? seen * all : blocks_to(t, kv, kv + end - q + right, seen);
    if (!left_open)
        blocks -= blocks_before(t, at_least_0(kv + end - q - left), seen);

    const float row = at_least_0(end - t->rows) + kv - q; /* what the last tile's first row sees */
    const float from = left_open ? 0.0f : at_least_0(row - left);
    const float longest = all - whole(from, t->of_keys);
    const float to = right_open ? kv : least_of(at_least_0(row + right + 1.0f), kv); /* all rows */
    const float after = left_open ? 0.0f : at_least_0(kv - 1.0f - left);
    const float uncut = whole(to, t->of_keys) - whole_up(after, t->keys, t->of_keys);
    const float masked = longest - at_least_0(uncut);
    const bool equal = tiles <= 1.0f || (right_open && left_open);
    blocks = equal ? seen * longest : blocks > seen ? blocks : seen;
    return (struct walk){tiles,   seen,   blocks, least_of(seen * masked, blocks),
                         longest, masked, equal};
}

/* Rounds of blocks that run at once; many even out. */
static float rounds_of(float tiles)
{
    return tiles < 24.0f ? (float)(int32_t)(tiles + 0.9999f) : tiles + 0.5f;
}

/* What a block's tiles take. `heads`: as many as there are for a block of those that run at once.
 */
static float share_of(enum order order, int mask, const struct walk *w, float heads, float tiles_us,
                      float longest_us)
{
    const float share = tiles_us * heads, all = w->tiles * heads;
    const float uneven = share + unequal_part[order][mask] * longest_us;
    const float units = whole(w->tiles + 1.0f, 0.5f); /* of two tiles */
    if (order == ORDER_TWIN)
        return rounds_of(2.0f * units * heads) * longest_us;
    if (order == ORDER_STATIC && mask == ATTN_FWD_MASK_CAUSAL)
        return w->seen < w->tiles ? uneven : rounds_of(units * heads) * tiles_us / units;
    if (order == ORDER_STATIC) {
        if (w->equal)
            return rounds_of(all) * longest_us;
        if (all <= 1.0f)
            return longest_us;
        return uneven + static_part * (rounds_of(all) * tiles_us / w->tiles - share);
    }
    if (w->seen * heads <= 1.0f)
        return share;
    if (!w->equal)
        return uneven;
    const float filled = filled_part[order][mask];
    return longest_us * ((1.0f - filled) * rounds_of(all) + filled * all);
}

/* From how long a launch on that is seen; width 256 is not measured. */
static float long_us(const gen_attn_fwd_problem *p)
{
    if (gen__attn_of_8_bits(p->dtype))
        return p->head_dim == 64 ? 20000.0f : INFINITY;
    if (p->head_dim == 128)
        return 6000.0f;
    return p->head_dim == 64 && !p->causal ? 20000.0f : INFINITY;
}

float gen__attn_fwd_predict(const gen_attn_fwd_problem *p, const gen_device *device,
                            const struct gen__facts *variant, int mask)
{
    const float blocks = (float)gen__blocks_per_sm(device, variant);
    const float resident = blocks * (device->num_sms ? (float)device->num_sms : 1.0f);
    const float batch = p->batch > 1 ? (float)p->batch : 1.0f;
    const float heads = batch * (float)p->num_q_heads / resident;
    const enum order order = order_of(variant);
    const struct tile_cost *c = cost_of(p, variant);
    const struct tile_shape shape = shape_of(variant);
    const struct walk w = walk_of(p, &shape);
    const float keys_us = 1e-3f * blocks * shape.keys;
    const float block_us = keys_us * c->key_ns[mask], masked_us = keys_us * c->masked_ns;
    const float tiles_us = w.seen * c->start_us[order] + w.blocks * block_us +
                           w.masked * masked_us + (w.tiles - w.seen) * c->unseen_us[order];
    const float longest_us = c->start_us[order] + w.longest * block_us + w.cut * masked_us;
    const float share = share_of(order, mask, &w, heads, tiles_us, longest_us);
    float us = variant->fact[ATTN_FWD_WGMMA] ? launch_us[order] : mma_launch_us;
    us += share > longest_us ? share : longest_us;
    if (order != ORDER_ONE && us > long_us(p))
        us *= long_persistent;
    return variant->fact[ATTN_FWD_RENAMED] ? renamed_part * us : us;
}
