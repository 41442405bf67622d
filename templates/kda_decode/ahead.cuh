// States brought to L2 before their blocks come (cache = ahead). In layout kv a block reads a piece of every row of its
// state, and between its sums and its stores it has no load under way; neither suits DRAM. Here every block, once it has
// issued the loads of its own slice, prefetches to L2 a part of a state that later blocks of the grid will want: in whole contiguous
// runs, whatever the slices' shape, and while this block's warps meet. The first blocks' states are loaded while the
// kernel before drains.
//
// These are hints: nothing is read into registers, and L2 is where other kernels' stores arrive, so what comes too early
// is not stale.
#pragma once

#include "kda_decode/common.cuh"
#include "lib/divide.cuh"
#include "lib/prefetch.cuh"
#include "lib/ptx/ldst.cuh"

// Prefetches part `part` of `parts`, equal and contiguous, of the index-th state. Where the kernel before is still writing
// the slot's number, this may prefetch another slot's part, or none.
template <int head_dim, int parts, class element>
__device__ __forceinline__ void prefetch_part(const gen_kda_decode_params &p, unsigned index, unsigned part)
{
    const unsigned row = quotient(index, p.heads_mul, p.heads_shift), v_head = index - row * p.num_v_heads;
    int slot = static_cast<int>(row);
    if (p.slots) {
        unsigned column = 0;
        if (p.accepted)
            column = static_cast<unsigned>(ld_global_cg(p.accepted + row)) - 1;
        if (column >= p.slots_stride)
            return;
        slot = ld_global_cg(p.slots + static_cast<long long>(row) * p.slots_stride + column);
    }
    if (!kda_place::in_pool(p, slot))
        return;
    constexpr int elements = head_dim * head_dim / parts;
    const long long state = slot * p.state_stride + v_head * (head_dim * head_dim);
    prefetch_bulk(static_cast<const element *>(p.state) + state + part * elements,
                  elements * static_cast<int>(sizeof(element)));
}

// Before grid_dependency_wait(): this block's part of its state, if that is among the grid's first.
template <int head_dim, int blocks, int states, class element>
__device__ __forceinline__ void prefetch_first(const gen_kda_decode_params &p)
{
    if (threadIdx.x == 0 && blockIdx.x < states * blocks)
        prefetch_part<head_dim, blocks, element>(p, blockIdx.x / blocks, blockIdx.x % blocks);
}

// As large a part of the state that comes `states` later. By a warp that has little else to do.
template <int head_dim, int blocks, int states, int threads, class element>
__device__ __forceinline__ void prefetch_later(const gen_kda_decode_params &p)
{
    if (threadIdx.x == threads - 32 && blockIdx.x + states * blocks < gridDim.x)
        prefetch_part<head_dim, blocks, element>(p, blockIdx.x / blocks + states, blockIdx.x % blocks);
}
