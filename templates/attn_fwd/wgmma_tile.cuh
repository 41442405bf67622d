// What both Hopper kernels of attn_fwd ask of the tile that is told, and how they give back what a barrier guards. The template gives
// shapes and types.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_fwd/work.cuh"
#include "lib/tma.cuh"

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

// What is told at `told`, once it is.
__device__ __forceinline__ next_kind next_tile(const block_state &b, const attn_place &told, int group)
{
    mbarrier_wait(shared_address(&b.c->told.full[told.place()]), told.phase());
    const attn_tile &t = b.c->told.tile[told.place()];
    const next_kind kind = t.last < 0 ? next_none : t.last <= t.first ? next_empty : group * 64 >= t.num_rows ? next_idle : next_work;
    return static_cast<next_kind>(uniform(kind));
}

// The key from which on keys are masked for the first of the group's rows, but for the length; a row later it is one later.
__device__ __forceinline__ int edge_of(const gen_attn_fwd_params &p, const attn_tile &t, int group)
{
    return t.first_row + group * 64 + t.shift + 1 + (mask == mask_any ? p.right : 0);
}

} // namespace
