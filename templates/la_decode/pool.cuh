// States in pools as engines keep them: a stride from slot to slot, a null slot, other slots to write to, fp32 or 16 bits;
// and states brought to L2 before their blocks come (cache = ahead).
#pragma once

#include "la_decode/common.cuh"
#include "lib/prefetch.cuh"
#include "lib/state.cuh"

__device__ __forceinline__ bool in_pool(const gen_la_decode_pool_params &p, int slot)
{
    return static_cast<unsigned>(slot) < p.num_slots && slot != p.null_slot;
}

// The first element of a head's state in a slot; head_dim x head_dim of them are contiguous.
template <int head_dim, class element>
__device__ __forceinline__ element *state_of(const gen_la_decode_pool_params &p, int slot, unsigned v_head)
{
    return reinterpret_cast<element *>(p.state) + slot * p.state_stride + v_head * (head_dim * head_dim);
}

// A warp's part of a slice in registers: lane l has vector j of row i * rows_per_load + l / lanes, `width` elements from
// (j * lanes + l % lanes) * width on, which are quads of fp32 once they are widened. A row is LANES lanes wide.
template <int BITS, int LANES, int LOADS, int VECTORS> struct la_decode_slice {
    using memory = state_memory<BITS>;
    using element = typename memory::element;
    static constexpr int ROWS_PER_LOAD = 32 / LANES, QUADS = VECTORS * memory::QUADS, WIDTH = 4 * memory::QUADS;

    float4 loaded[LOADS][VECTORS];
    float4 state[LOADS][QUADS];

    static __device__ __forceinline__ unsigned row(int i) { return i * ROWS_PER_LOAD + threadIdx.x % 32 / LANES; }
    // The first element of quad n within its row.
    static __device__ __forceinline__ unsigned column(int n)
    {
        return (n / memory::QUADS * LANES + threadIdx.x % LANES) * WIDTH + n % memory::QUADS * 4;
    }

    template <bool STREAM> __device__ __forceinline__ void load(const element *first, int row_stride)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
#pragma unroll
            for (int j = 0; j < VECTORS; j++)
                loaded[i][j] = ld_global_v4_f32<STREAM>(
                    reinterpret_cast<const float *>(first + row(i) * row_stride + column(j * memory::QUADS)));
    }
    __device__ __forceinline__ void widen(bool is_fp16)
    {
        widen_state<BITS>(state, loaded, is_fp16);
    }

    template <bool STREAM> __device__ __forceinline__ void store(element *first, int row_stride, bool is_fp16)
    {
        narrow_state<BITS>(loaded, state, is_fp16);
#pragma unroll
        for (int i = 0; i < LOADS; i++)
#pragma unroll
            for (int j = 0; j < VECTORS; j++)
                st_global_v4_f32<STREAM>(
                    reinterpret_cast<float *>(first + row(i) * row_stride + column(j * memory::QUADS)), loaded[i][j]);
    }
};

// ---- reading ahead ----
// As kda_decode/ahead.cuh has it: hints, and L2 is where other kernels' stores arrive, so what comes too early is not
// stale. Where the kernel before is still writing the slot's number, another slot's part may come, or none.

template <int head_dim, int parts, class element>
__device__ __forceinline__ void prefetch_part(const gen_la_decode_pool_params &p, unsigned index, unsigned part)
{
    const unsigned row = quotient(index, p.heads_mul, p.heads_shift), v_head = index - row * p.num_v_heads;
    const int slot = p.slots ? ld_global_cg(p.slots + row) : static_cast<int>(row);
    if (!in_pool(p, slot))
        return;
    constexpr int elements = head_dim * head_dim / parts;
    prefetch_bulk(state_of<head_dim, element>(p, slot, v_head) + part * elements,
                  elements * static_cast<int>(sizeof(element)));
}

// Before grid_dependency_wait(): this block's part of its state, if that is among the grid's first.
template <int head_dim, int blocks, int states, class element>
__device__ __forceinline__ void prefetch_first(const gen_la_decode_pool_params &p)
{
    if (threadIdx.x == 0 && blockIdx.x < states * blocks)
        prefetch_part<head_dim, blocks, element>(p, blockIdx.x / blocks, blockIdx.x % blocks);
}

// As large a part of the state that comes `states` later.
template <int head_dim, int blocks, int states, int threads, class element>
__device__ __forceinline__ void prefetch_later(const gen_la_decode_pool_params &p)
{
    if (threadIdx.x == threads - 32 && blockIdx.x + states * blocks < gridDim.x)
        prefetch_part<head_dim, blocks, element>(p, blockIdx.x / blocks + states, blockIdx.x % blocks);
}
