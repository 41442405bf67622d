// The Hopper kernels of attn_paged: what a consumer group does with a block of keys. The template gives sizes and types.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_paged/row_group.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"

namespace {

// All lanes are done with what the barrier guards.
__device__ __forceinline__ void release(unsigned long long &barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(&barrier));
}

// Clears values beyond the request's end, which may not even be multiplied by zero. Every group clears them for itself.
__device__ __forceinline__ void clear_values(unsigned v, int valid, int group)
{
    for (int i = threadIdx.x % 128; i < (S::keys - valid) * (S::v_dim / 8); i += 128) {
        const int row = valid + i / (S::v_dim / 8), chunk = i % (S::v_dim / 8);
        st_shared_v4_f32(v + chunk / 8 * S::kv_cell + row * 128 + chunk % 8 * 16, make_float4(0.f, 0.f, 0.f, 0.f));
    }
    fence_proxy_async();
    barrier_sync(clear_barrier + group, 128);
}

// Turns finished scores of block `j` into probabilities. `first`: of the piece's blocks.
__device__ __forceinline__ void exponentiate(const gen_attn_paged_params &p, const group_masks &masks,
                                             const group_scale &scale, float factor, int j, bool first, group_state &g)
{
    mask_scores(p, masks, scale, g.s, j);
    attn_softmax<attn_16_bits<element>>(g.r, g.s, factor, g.packed, first, attn_lacks_reference(g.r),
                                        [&g](const float(&x)[2]) { attn_scale_rows(g.o, x); });
}

} // namespace
