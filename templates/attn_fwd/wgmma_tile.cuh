// What both Hopper kernels of attn_fwd read from a work descriptor, and how they release what a barrier guards. The template gives
// shapes and types.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_fwd/work.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/uniform.cuh"

namespace {

// All lanes are done with what the barrier guards.
__device__ __forceinline__ void release(unsigned long long &barrier)
{
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(&barrier));
}

enum next_kind {
    next_none,
    next_empty, // none of its rows sees a key
    next_idle,  // the group has no rows of it
    next_work
};

// The work descriptor at `published`, once it is published.
__device__ __forceinline__ next_kind next_tile(const block_state &b, const attn_place &published, int group)
{
    mbarrier_wait(shared_address(&b.c->published.full[published.place()]), published.phase());
    const attn_tile &t = b.c->published.tile[published.place()];
    const next_kind kind = t.last < 0                 ? next_none
                           : t.last <= t.first        ? next_empty
                           : group * 64 >= t.num_rows ? next_idle
                                                      : next_work;
    return static_cast<next_kind>(uniform(kind));
}

// The first key that is masked for the group's first row, the length aside; each later row's is one key later.
__device__ __forceinline__ int edge_of(const gen_attn_fwd_params &p, const attn_tile &t, int group)
{
    return t.first_row + group * 64 + t.shift + 1 + (mask == mask_any ? p.right : 0);
}

// Whether a mask cuts the `count` keys from `key` on for one of the group's rows. `edge`: of the first of these.
__device__ __forceinline__ bool cuts(const gen_attn_fwd_params &p, int kv_len, int edge, int key, int count)
{
    const int to = mask == mask_full ? kv_len : min(kv_len, edge); // keys that all of the group's rows see
    return key + count > to || (mask == mask_any && key < edge + 63 - (p.left + 1 + p.right));
}

// Scores of the keys from `key` on that a row does not see become minus infinity.
template <int n>
__device__ __forceinline__ void mask_keys(const gen_attn_fwd_params &p, int kv_len, int group_edge, float (&s)[n],
                                          int key)
{
    if (cuts(p, kv_len, group_edge, key, 2 * n)) {
        const int width = p.left + 1 + p.right;                                           // keys that a row sees
        const int edge = group_edge + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; // of the thread's first row
        const int end[2] = {mask == mask_full ? kv_len : min(kv_len, edge),
                            mask == mask_full ? kv_len : min(kv_len, edge + 8)};
        const int begin[2] = {edge - width, edge + 8 - width};
        attn_mask_outside<mask>(s, key, begin, end);
    }
}

} // namespace
