// What kernels of Kimi Delta Attention share: which chunk and head a block has, tiles of 64 tokens in shared memory, their way
// there and back, and products of them by mma.sync.
//
// A tile is 64 rows of head_dim (or 64) 16-bit elements: cells of 64 rows x 128 bytes, swizzled.
#pragma once

#include "kda_chunk_intra/args.h"
#include "kda/sequences.cuh"
#include "lib/divide.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"

namespace kda_stage {

constexpr int rows = KDA_CHUNK, cell = rows * 128; // bytes of 64 rows x 64 columns

// What a block works on.
struct block_work {
    unsigned base; // shared address
    kda_chunk chunk;
    int slot, head, qk_head;
};

// `units` blocks for each slot of a chunk; b.head is the number of this one.
__device__ __forceinline__ block_work block_at(const gen_kda_stage_shape &s, int units, const void *memory)
{
    block_work b;
    b.base = shared_address(memory);
    b.slot = quotient(blockIdx.x, s.heads_mul, s.heads_shift);
    b.head = blockIdx.x - b.slot * units;
    b.qk_head = quotient(b.head, s.group_mul, s.group_shift);
    b.chunk = kda_chunk_at(s.sequences, b.slot);
    return b;
}

// ---- shared memory ----

// Chunk of 16 bytes `chunk` of row `row`.
__device__ __forceinline__ unsigned chunk_at(unsigned base, int row, int chunk)
{
    return swizzled<128>(base + chunk / 8 * cell, row, chunk % 8);
}

// Four 8 x 8 matrices of 16-bit elements: rows row + 8 (i % 2), chunks chunk + i / 2 in matrix i ...
__device__ __forceinline__ void load_rows_first(unsigned (&x)[4], unsigned base, int row, int chunk)
{
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(x, chunk_at(base, row + lane % 16, chunk + lane / 16));
}

// ... or rows row + 8 (i / 2), chunks chunk + i % 2.
__device__ __forceinline__ void load_chunks_first(unsigned (&x)[4], unsigned base, int row, int chunk)
{
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(x, chunk_at(base, row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
}

__device__ __forceinline__ void load_rows_first_trans(unsigned (&x)[4], unsigned base, int row, int chunk)
{
    const int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(x, chunk_at(base, row + lane % 16, chunk + lane / 16));
}

__device__ __forceinline__ void load_chunks_first_trans(unsigned (&x)[4], unsigned base, int row, int chunk)
{
    const int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(x, chunk_at(base, row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
}

// ---- a lane's channels: head_dim / 32 of each row its warp has, 32 lanes to a row ----

template <int channels> struct lane_row {
    unsigned word[channels / 2];
};

template <int channels> __device__ __forceinline__ lane_row<channels> load_row(const void *from)
{
    lane_row<channels> x;
    if constexpr (channels == 4) {
        const uint2 both = ld_global_v2_u32(from);
        x.word[0] = both.x, x.word[1] = both.y;
    } else {
        x.word[0] = static_cast<unsigned>(ld_global(static_cast<const int *>(from)));
    }
    return x;
}

template <int channels> __device__ __forceinline__ void store_row(void *to, const lane_row<channels> &x)
{
    if constexpr (channels == 4)
        st_global_v2_f32(static_cast<float *>(to), __uint_as_float(x.word[0]), __uint_as_float(x.word[1]));
    else
        st_global_u32(to, x.word[0]);
}

template <int channels> __device__ __forceinline__ void load_row_floats(const float *from, float (&x)[channels])
{
    if constexpr (channels == 4) {
        const float4 all = ld_global_v4_f32<false>(from);
        x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
    } else {
        const uint2 both = ld_global_v2_u32(from);
        x[0] = __uint_as_float(both.x), x[1] = __uint_as_float(both.y);
    }
}

template <class T, int channels>
__device__ __forceinline__ void unpack(const lane_row<channels> &from, float (&x)[channels])
{
#pragma unroll
    for (int i = 0; i < channels / 2; i++) {
        const float2 both = to_float2<T>(from.word[i]);
        x[2 * i] = both.x, x[2 * i + 1] = both.y;
    }
}

template <class T, int channels> __device__ __forceinline__ lane_row<channels> pack(const float (&x)[channels])
{
    lane_row<channels> to;
#pragma unroll
    for (int i = 0; i < channels / 2; i++)
        to.word[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
    return to;
}

// Where the lane's channels of row `first` (a multiple of 8) of a tile lie. Of row first + i it is that, XORed with 16 i,
// + 128 i.
template <int channels> __device__ __forceinline__ unsigned lane_offset(int first)
{
    const int byte = threadIdx.x % 32 * channels * 2;
    return byte / 128 * cell + first * 128 + byte % 128;
}

template <int channels>
__device__ __forceinline__ void store_tile_row(unsigned base, unsigned offset, int i, const lane_row<channels> &x)
{
    const unsigned at = base + (offset ^ i * 16) + i * 128;
    if constexpr (channels == 4)
        st_shared_v2_u32(at, x.word[0], x.word[1]);
    else
        st_shared_u32(at, x.word[0]);
}

template <int channels>
__device__ __forceinline__ lane_row<channels> load_tile_row(unsigned base, unsigned offset, int i)
{
    const unsigned at = base + (offset ^ i * 16) + i * 128;
    lane_row<channels> x;
    if constexpr (channels == 4)
        ld_shared_v2_u32(at, x.word[0], x.word[1]);
    else
        x.word[0] = ld_shared_u32(at);
    return x;
}

// ---- tiles from and to global memory ----

// `count` rows of a matrix whose rows are `stride` elements apart, from tile row `first` on, by one warp; zeros for rows
// from `valid` on. `columns`: a row's elements.
template <int columns, int count>
__device__ __forceinline__ void copy_rows(unsigned to, const void *from, long long stride, int first, int valid)
{
    constexpr int chunks = columns / 8, at_once = 32 / chunks; // of a row; rows
    const int lane = threadIdx.x % 32, row = first + lane / chunks;
    const unsigned short *x = static_cast<const unsigned short *>(from) + row * stride + lane % chunks * 8;
#pragma unroll
    for (int i = 0; i < count; i += at_once, x += at_once * stride)
        cp_async_16_or_zero(chunk_at(to, row + i, lane % chunks), x, row + i < valid);
}

// The way back, of the rows below `valid`, by the block's `threads`.
template <int columns, int threads>
__device__ __forceinline__ void copy_out(void *to, unsigned from, long long stride, int valid, int thread)
{
    constexpr int chunks = columns / 8;
    const int chunk = thread % chunks;
    unsigned short *x = static_cast<unsigned short *>(to) + thread / chunks * stride + chunk * 8;
#pragma unroll
    for (int row = thread / chunks; row < rows; row += threads / chunks, x += threads / chunks * stride)
        if (row < valid) {
            unsigned word[4];
            ld_shared_v4_u32(chunk_at(from, row, chunk), word[0], word[1], word[2], word[3]);
            st_global_v4_u32(x, word);
        }
}

// ---- products: 64 rows of 16 columns are a warp's; those of the r-th 16 rows are d[r] ----

// Elements above the diagonal of a block of the left operand become zero.
__device__ __forceinline__ void lower_half(unsigned (&x)[4])
{
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const unsigned mask = row > column ? 0xffffffffu : row == column ? 0xffffu : 0;
    x[0] &= mask;
    x[2] = 0;
    x[3] &= mask;
}

// d += x y: x 64 x 64, lower triangular, y 64 rows of which the warp takes chunks chunk and chunk + 1.
template <class T, bool masked>
__device__ __forceinline__ void multiply_lower(float (&d)[4][2][4], unsigned x, unsigned y, int chunk)
{
#pragma unroll
    for (int s = 0; s < 4; s++) {
        unsigned right[4];
        load_rows_first_trans(right, y, 16 * s, chunk);
#pragma unroll
        for (int r = s; r < 4; r++) {
            unsigned left[4];
            load_rows_first(left, x, 16 * r, 2 * s);
            if (masked && r == s)
                lower_half(left);
            mma_m16n8k16<T>(d[r][0], left, right[0], right[1]);
            mma_m16n8k16<T>(d[r][1], left, right[2], right[3]);
        }
    }
}

// Rounded, over those columns of a tile.
template <class T> __device__ __forceinline__ void store_product(const float (&d)[4][2][4], unsigned to, int chunk)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                st_shared_u32(chunk_at(to, 16 * r + lane / 4 + 8 * h, chunk + n) + lane % 4 * 4,
                              pack2<T>(d[r][n][2 * h], d[r][n][2 * h + 1]));
}

// w and u are the lower triangular x times k's and v's tiles, in place, by eight warps.
template <class T, int head_dim> __device__ __forceinline__ void multiply_wu(unsigned x, unsigned k, unsigned v)
{
    constexpr int groups = head_dim / 16; // of columns, of each
#pragma unroll 1
    for (int i = threadIdx.x / 32; i < 2 * groups; i += 8) {
        float d[4][2][4] = {};
        const unsigned tile = i < groups ? k : v;
        const int chunk = 2 * (i % groups);
        multiply_lower<T, false>(d, x, tile, chunk);
        __syncwarp(); // no lane writes before all have read
        store_product<T>(d, tile, chunk);
    }
}

} // namespace kda_stage
