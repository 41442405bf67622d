// Where the elements of products over a chunk lie that a lane has, in shared and in global memory: a warp has 16 columns
// of all rows, or of half of them where heads are small. Stages of the backward pass of Kimi Delta Attention share it.
#pragma once

#include "kda/tile.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

namespace kda_stage {

// What a warp has of products, and where a lane's elements lie: of block r two rows, of each four columns in two
// pairs.
struct place {
    int group, first_block, lane;

    __device__ __forceinline__ int row(int r, int h) const { return 16 * (first_block + r) + lane / 4 + 8 * h; }
    __device__ __forceinline__ int column(int n) const { return 16 * group + 8 * n + lane % 4 * 2; }
    // The n-th pair's address in a tile.
    __device__ __forceinline__ unsigned word(unsigned base, int row, int n) const
    {
        return chunk_at(base, row, 2 * group + n) + lane % 4 * 4;
    }
};

// The chunk's rows in tensors of value heads, and in those of query heads; `at` is row 0 in the former.
template <class T> struct chunk_rows {
    const float *gk;
    const unsigned short *q, *k;
    long long at, stride, qk_stride;
    int valid;

    __device__ __forceinline__ float2 pair(const float *x, int row, int column) const
    {
        const uint2 both = ld_global_v2_u32(x + row * stride + column);
        return make_float2(__uint_as_float(both.x), __uint_as_float(both.y));
    }

    __device__ __forceinline__ float2 gate(int row, int column) const
    {
        return row < valid ? pair(gk, row, column) : make_float2(0.f, 0.f);
    }

    __device__ __forceinline__ float2 load(const unsigned short *x, int row, int column) const
    {
        return row < valid ? to_float2<T>(static_cast<unsigned>(
                                 ld_global(reinterpret_cast<const int *>(x + row * qk_stride + column))))
                           : make_float2(0.f, 0.f);
    }
};

// Sums of a row's columns that four neighbouring lanes have.
__device__ __forceinline__ float sum_quad(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

} // namespace kda_stage
