// What a warpgroup of kda_bwd_wy's kernel for wgmma has: a thread's place, its inputs from global memory, and what needs no shared memory.
#pragma once

#include "kda/tile.cuh"
#include "kda_bwd_wy/args.h"
#include "kda_bwd_wy/chunk.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/uniform.cuh"

namespace kda_bwd_wy {

using namespace kda_stage;

constexpr int octets = 8; // of columns, of a warpgroup

// What a thread has of its group's columns: two rows and, of each 8 columns, two.
struct thread_place {
    int group, warp, lane;

    __device__ __forceinline__ int row(int h) const { return 16 * warp + lane / 4 + 8 * h; }
    __device__ __forceinline__ int column() const { return 64 * group + lane % 4 * 2; }
};

// What a stage computes anew: between stages registers are for accumulators, and addresses are not worth them.
__device__ __forceinline__ block_work again(block_work b)
{
    unsigned first = static_cast<unsigned>(b.chunk.first);
    opaque(first);
    opaque(b.base);
    b.chunk.first = static_cast<int>(first);
    return b;
}

__device__ __forceinline__ thread_place thread_again()
{
    unsigned thread = threadIdx.x;
    opaque(thread);
    const int warp = uniform(static_cast<int>(thread / 32));
    return {warp / 4, warp % 4, static_cast<int>(thread % 32)};
}

// Its elements in global memory. Rows beyond the chunk's stand for the last one: their operands are zeros.
struct thread_rows {
    long long at[2], qk_at[2];
    bool valid[2];
};

template <int head_dim>
__device__ __forceinline__ thread_rows rows_of(const gen_kda_bwd_wy_params &p, const block_work &b,
                                               const thread_place &t)
{
    const chunk_place c = place_of<head_dim>(p, b);
    thread_rows x;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = min(t.row(h), b.chunk.rows - 1);
        x.at[h] = c.at + row * c.stride + t.column();
        x.qk_at[h] = c.qk_at + row * c.qk_stride + t.column();
        x.valid[h] = t.row(h) < b.chunk.rows;
    }
    return x;
}

// Pairs of k or q, of one octet, and (gates) its gates.
template <bool gates> struct octet_inputs {
    unsigned pair[2];
    uint2 gate_pair[2];

    __device__ __forceinline__ void load(const float *gk, const void *qk, const thread_rows &x, int octet)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            pair[h] = static_cast<unsigned>(ld_global(
                reinterpret_cast<const int *>(static_cast<const unsigned short *>(qk) + x.qk_at[h] + 8 * octet)));
            if constexpr (gates)
                gate_pair[h] = ld_global_v2_u32(gk + x.at[h] + 8 * octet);
        }
    }

    __device__ __forceinline__ float gate(int h, int i) const
    {
        return __uint_as_float(i ? gate_pair[h].y : gate_pair[h].x);
    }
};

// f(octet, its inputs) of all octets, whose inputs are loaded `depth` octets ahead; begin() before, so that these loads
// are under way while a product is made.
template <bool gates, int depth> struct octet_stream {
    octet_inputs<gates> ahead[depth];

    __device__ __forceinline__ void begin(const float *gk, const void *qk, const thread_rows &x)
    {
#pragma unroll
        for (int i = 0; i < depth; i++)
            ahead[i].load(gk, qk, x, i);
    }

    template <class F> __device__ __forceinline__ void each(const float *gk, const void *qk, const thread_rows &x, F f)
    {
#pragma unroll
        for (int i = 0; i < octets; i++) {
            const octet_inputs<gates> now = ahead[i % depth];
            if (i + depth < octets)
                ahead[i % depth].load(gk, qk, x, i + depth);
            f(i, now);
        }
    }
};

// Of a transposed lower triangle, in a left operand, what belongs to the zeros: block (r, s) of 16 x 16. Selected, for it may
// be NaN, and without a branch, so that an array of them stays in registers.
__device__ __forceinline__ void upper_block(unsigned (&x)[4], int s, int r)
{
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const unsigned diagonal = row <= column ? 0xffffffffu : row == column + 1 ? 0xffff0000u : 0;
    const unsigned behind = s > r ? 0xffffffffu : 0, mask = s == r ? diagonal : behind;
    x[0] &= mask;
    x[1] &= behind;
    x[2] &= s < r ? 0 : 0xffffffffu;
    x[3] &= mask;
}

// What is below the diagonal, negative, to rows of 64 numbers.
__device__ __forceinline__ void store_scores(float *to, long long stride, const float (&d)[32], const thread_place &t,
                                             int valid)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = t.row(h);
        float *const x = to + row * stride + t.lane % 4 * 2;
        if (row < valid)
#pragma unroll
            for (int i = 0; i < octets; i++) {
                const int column = 8 * i + t.lane % 4 * 2;
                st_global_v2_f32(x + 8 * i, column < row ? -d[4 * i + 2 * h] : 0.f,
                                 column + 1 < row ? -d[4 * i + 2 * h + 1] : 0.f);
            }
    }
}

} // namespace kda_bwd_wy
