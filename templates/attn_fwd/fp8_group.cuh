// The Hopper kernels of attn_fwd for 8 bits: what a consumer warpgroup keeps of its tile. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8.cuh"
#include "attn_fwd/output.cuh"
#include "attn_fwd/tiles.cuh"
#include "attn_fwd/wgmma_tile.cuh"
#include "attn_fwd/work.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"

namespace {

// What a group keeps of a tile; the rest it reads again at the end.
struct group_tile {
    unsigned slot; // where the tile is published
    int first;     // of its blocks of keys
    int kv_len;
    int edge;    // of the group's first row: keys from here on are masked, but for the length
    float scale; // of the raw products, to base 2; with softcap: of those, for tanh
};

// Scores of the keys from `key` on as they count.
template <int n>
__device__ __forceinline__ void mask_scores(const gen_attn_fwd_params &p, const group_tile &w, float (&s)[n], int key)
{
    if (mask == mask_any && p.cap_scale != 0.f)
        attn_cap_scaled(s, w.scale);
    mask_keys(p, w.kv_len, w.edge, s, key);
}

// The tile that is published at `published`, of which the group leaves out the last `out` blocks; returns the block that it begins with.
__device__ __forceinline__ int enter_tile(const gen_attn_fwd_params &p, const block_state &b, attn_place &published,
                                          int group, int out, group_tile &w)
{
    const attn_tile &t = b.c->published.tile[published.place()];
    const int j = t.last - 1 - out;
    w = {published.place(), mask == mask_any ? t.first : 0, mask == mask_any ? t.kv_len : p.kv_len,
         edge_of(p, t, group), b.c->scale[published.place()]};
    published.next();
    return j;
}

// What scores, as mask_scores() leaves them, are multiplied by.
__device__ __forceinline__ float softmax_scale(const gen_attn_fwd_params &p, const group_tile &w)
{
    return mask == mask_any && p.cap_scale != 0.f ? p.scale_log2 : w.scale;
}

// Waits until the tile's queries have arrived, and puts them where products take them from.
__device__ __forceinline__ void take_queries(const block_state &b, group_queries &q, int group, const q_ring &at)
{
    mbarrier_wait(shared_address(&b.c->q_full[at.place()][group]), at.phase());
    q.take(b.q(at.place(), group));
}

// A tile of which the group has nothing to compute: it releases what is loaded for it, and writes rows that see no key.
__device__ __forceinline__ void pass_tile(const gen_attn_fwd_params &p, const block_state &b, attn_place &published,
                                          int group, q_ring &at, unsigned &block)
{
    const attn_tile &t = b.c->published.tile[published.place()];
    const int count = t.last - t.first;
    if (count > 0) {
        mbarrier_wait(shared_address(&b.c->q_full[at.place()][group]), at.phase());
        __syncwarp(); // one lane arrives for all
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
        mbarrier_wait(shared_address(&b.c->ready_full[block % stages]), block / stages & 1);
        __syncwarp();
        release(b.c->ready_empty[block % stages]);
    }
    __syncwarp();
    release(b.c->published.empty[published.place()]);
    published.next();
}

// Where a group is.
struct group_place {
    unsigned block = 0; // counts keys and values
    q_ring queries;
    attn_place published;
};

} // namespace
