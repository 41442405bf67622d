// The Hopper kernel of attn_fwd for 8 bits: what a group that calculates knows of its tile, and does with a block's scores. The template
// gives shapes and types.
#pragma once

#include "attn_fwd/fp8.cuh"
#include "attn_fwd/output.cuh"
#include "attn_fwd/tiles.cuh"
#include "attn_fwd/wgmma_tile.cuh"
#include "attn_fwd/work.cuh"

namespace {

struct group_state {
    float s[parts][part / 2];         // scores of the block at work
    float o[dim / 2];
    unsigned packed[parts][part / 8]; // probabilities
    attn_rows_state r;

    __device__ __forceinline__ void reset()
    {
        r.reset();
#pragma unroll
        for (int i = 0; i < dim / 2; i++)
            o[i] = 0.f;
    }
};

// What a group keeps of a tile; the rest it reads again at the end.
struct group_tile {
    unsigned slot; // where the tile is told
    int first;     // of its blocks of keys
    int kv_len;
    int edge;      // of the group's first row: keys from here on are masked, but for the length
    float scale;   // of the raw products, to base 2; with softcap: of those, for tanh
};

// Scores of the keys from `key` on as they count.
__device__ __forceinline__ void mask_scores(const gen_attn_fwd_params &p, const group_tile &w, float (&s)[part / 2], int key)
{
    if (mask == mask_any && p.cap_scale != 0.f)
        attn_cap_scaled(s, w.scale);
    hide_keys(p, w.kv_len, w.edge, s, key);
}

// 1 where none of the group's rows sees the last of the tile's blocks; one is left.
__device__ __forceinline__ int left_out(const gen_attn_fwd_params &p, const block_state &b, const attn_place &told, int group)
{
    const attn_tile &t = b.c->told.tile[told.place()];
    return leaves_out && t.last > t.first + 1 && (t.last - 1) * keys >= edge_of(p, t, group) + 63;
}

// The tile that is told at `told`; returns the block that it begins with, the last one that the group works out.
__device__ __forceinline__ int enter_tile(const gen_attn_fwd_params &p, const block_state &b, attn_place &told, int group, group_tile &w)
{
    const attn_tile &t = b.c->told.tile[told.place()];
    const int j = t.last - 1 - left_out(p, b, told, group);
    w = {told.place(), mask == mask_any ? t.first : 0, mask == mask_any ? t.kv_len : p.kv_len, edge_of(p, t, group), b.c->scale[told.place()]};
    told.next();
    return j;
}

// What scores, as mask_scores() leaves them, are multiplied by.
__device__ __forceinline__ float softmax_scale(const gen_attn_fwd_params &p, const group_tile &w)
{
    return mask == mask_any && p.cap_scale != 0.f ? p.scale_log2 : w.scale;
}

// Sums, divides, writes.
__device__ __forceinline__ void finish_tile(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w, group_state &g)
{
    float factor[2], lse[2];
    attn_end_rows(g.r, b.c->descale[w.slot], factor, lse);
    attn_stage_even_odd(p, b.c->told.results[w.slot], b.c->told.tile[w.slot].num_rows, threadIdx.x / 32 * 16, g.o, factor, lse, b.staged());
    __syncwarp(); // one lane tells for all
    release(b.c->told.empty[w.slot]);
}

// The tile's queries have landed: has them where products take them from.
__device__ __forceinline__ void take_queries(const block_state &b, group_queries &q, int group, const q_ring &at)
{
    mbarrier_wait(shared_address(&b.c->q_full[at.place()][group]), at.phase());
    q.take(b.q(at.place(), group));
}

// A tile of which the group has nothing to work out: what comes for it goes back, and rows that see no key are written.
__device__ __forceinline__ void pass_tile(const gen_attn_fwd_params &p, const block_state &b, attn_place &told, int group,
                                          q_ring &at, unsigned &block)
{
    const attn_tile &t = b.c->told.tile[told.place()];
    const int count = t.last - t.first;
    if (count > 0) {
        mbarrier_wait(shared_address(&b.c->q_full[at.place()][group]), at.phase());
        __syncwarp(); // one lane tells for all
        release(b.c->q_empty[at.place()][group]);
        at.next();
    } else {
        attn_write_nothing<bf16, dim / 2>(p, t, threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4); // zeros of either type
    }
#pragma unroll 1
    for (int i = 0; i < count; i++, block++) {
        mbarrier_wait(shared_address(&b.c->k_full[block % stages]), block / stages & 1);
        __syncwarp();
        release(b.c->k_empty[block % stages]);
        mbarrier_wait(shared_address(&b.c->turned_full[block % stages]), block / stages & 1);
        __syncwarp();
        release(b.c->turned_empty[block % stages]);
    }
    __syncwarp();
    release(b.c->told.empty[told.place()]);
    told.next();
}

// Where a group is.
struct group_place {
    unsigned block = 0; // counts keys and values
    q_ring queries;
    attn_place told;
};

// The part's scores to probabilities. `first`: of the tile's parts.
__device__ __forceinline__ void exponentiate(group_state &g, int which, float scale, bool first)
{
    attn_softmax<attn_e4m3>(g.r, g.s[which], scale, g.packed[which], first, first,
                           [&g](const float (&factor)[2]) { attn_scale_rows(g.o, factor); });
}

} // namespace
