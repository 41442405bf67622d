// The Hopper kernels of attn_fwd for 8 bits: a block's barriers, and how products find their operands. The template gives shapes and
// types.
#pragma once

#include "attn_fwd/work.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/uniform.cuh"

namespace {

// Behind the tiles.
struct control {
    unsigned long long q_full[q_places][groups], q_empty[q_places][groups];
    unsigned long long k_full[stages], k_empty[stages], ready_full[stages], ready_empty[stages], v_full[v_stages],
        v_empty[v_stages];
    attn_published published;
    float scale[attn_slots];   // of a published tile's raw products, to base 2; with softcap: of those, for tanh
    float descale[attn_slots]; // of its values
};

using stage_ring = ring_place<stages>; // of keys, or of values ready for products
using raw_ring = ring_place<v_stages>; // of values as they come
using q_ring = ring_place<q_places>;

// Rows of 128 bytes, or of 64, along the summed dimension.
template <int width> __device__ __forceinline__ unsigned long long descriptor(unsigned low)
{
    static_assert(width == 128 || width == 64, "what is swizzled");
    return (wgmma_descriptor(0, 0, 8 * width) | low) + (width == 64 ? 1ull << 62 : 0); // 1: by 128 bytes, 2: by 64
}

// A group's queries, where products take them from.
struct group_queries {
    unsigned low; // their address as a descriptor has it

    __device__ __forceinline__ void take(unsigned from) { low = attn_low_of(from); }
    __device__ __forceinline__ unsigned long long at(int step) const
    {
        return descriptor<pitch>(low) + step / (pitch / 32) * (q_cell >> 4) + step % (pitch / 32) * (32 >> 4);
    }

    // So that descriptors are computed once a warp, and not kept.
    __device__ __forceinline__ void renew() { low = uniform(low); }
};

} // namespace
