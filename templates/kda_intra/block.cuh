// kda_intra: what a block has in shared memory, and what it reads. What includes these headers says before: element, threads,
// head_dim and safe.
#pragma once

#include "kda_intra/args.h"
#include "kda_intra/limits.cuh"
#include "kda_intra/sequences.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"

namespace {

constexpr int rows = KDA_CHUNK, cell = rows * 128; // bytes of 64 rows x 64 columns
constexpr int tile = head_dim / 64 * cell;
constexpr int own = rows / (threads / 32); // rows of a warp
constexpr int channels = head_dim / 32;    // of a lane, of each of its rows
constexpr int words = channels / 2;
static_assert(own == 8, "two warps to 16 rows");

// Shared memory. What is behind a slash comes later.
constexpr int q_rows = 0;                // q; q 2^(G - b) / k 2^G
constexpr int k_rows = q_rows + tile;    // k; k 2^(G - b)
constexpr int k_columns = k_rows + tile; // k 2^(b - G) / -w
constexpr int values = k_columns + tile; // v
constexpr int scores = values + tile;    // A_qk
constexpr int lower = scores + cell;     // A_kk; its diagonal blocks hold those of X'; above them, wide: rests of A_kk
constexpr int inverse = lower + cell;    // diag(beta) X'
constexpr int sums = inverse + cell;     // of gates, by warp and channel / A_kk' of diagonal blocks, fp32 / rests of X'
constexpr int middle = sums + 4096;      // 7 vectors of middle factors
constexpr int betas = middle + 7 * head_dim * 4;
// fp32, in row 0 above the diagonal: not 0 where the chunk takes the wide form.
constexpr int wide_flag = lower + 7 * 16;
// Diagonal blocks of unbounded gates are worked out element by element, of q and k as they came and of the gates' sums.
constexpr int norm_factors = betas + rows * 4;     // of q, of k
constexpr int gates = norm_factors + 2 * rows * 4; // fp32 [64][head_dim]
constexpr int q_in = safe ? q_rows : (gates + rows * head_dim * 4 + 1023) / 1024 * 1024;
constexpr int k_in = safe ? k_rows : q_in + tile;

// Vectors of middle factors: block r with itself at r, then (2, 0), (3, 1), (3, 0); -1: 1.
__device__ __forceinline__ int middle_vector(int r, int s)
{
    return r == s ? r : r - s == 1 ? -1 : r == 2 ? 4 : s == 1 ? 5 : 6;
}

// Of a matrix of rows of 128 bytes, in cells of 64 rows, chunk of 16 bytes `chunk` of row `row`.
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

// A lane's channels of one row.
struct lane_channels {
    unsigned word[words];
};

__device__ __forceinline__ lane_channels load_channels(const void *from, bool valid)
{
    lane_channels x;
    if constexpr (words == 2) {
        uint2 both = make_uint2(0, 0);
        if (valid)
            both = ld_global_v2_u32(from);
        x.word[0] = both.x, x.word[1] = both.y;
    } else {
        x.word[0] = valid ? static_cast<unsigned>(ld_global(static_cast<const int *>(from))) : 0;
    }
    return x;
}

template <class T> __device__ __forceinline__ void unpack(const lane_channels &from, float (&x)[channels])
{
#pragma unroll
    for (int i = 0; i < words; i++) {
        const float2 both = to_float2<T>(from.word[i]);
        x[2 * i] = both.x, x[2 * i + 1] = both.y;
    }
}

template <class T> __device__ __forceinline__ lane_channels pack(const float (&x)[channels])
{
    lane_channels to;
#pragma unroll
    for (int i = 0; i < words; i++)
        to.word[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
    return to;
}

// Where a lane's channels of the warp's first row lie in a matrix. Of its i-th row it is that, XORed with 16 i, + 128 i.
__device__ __forceinline__ unsigned lane_offset()
{
    const int byte = threadIdx.x % 32 * channels * 2;
    return byte / 128 * cell + threadIdx.x / 32 * (own * 128) + byte % 128;
}

__device__ __forceinline__ void store_channels(unsigned base, unsigned offset, int i, const lane_channels &x)
{
    const unsigned at = base + (offset ^ i * 16) + i * 128;
    if constexpr (words == 2)
        st_shared_v2_u32(at, x.word[0], x.word[1]);
    else
        st_shared_u32(at, x.word[0]);
}

__device__ __forceinline__ lane_channels load_shared_channels(unsigned base, unsigned offset, int i)
{
    const unsigned at = base + (offset ^ i * 16) + i * 128;
    lane_channels x;
    if constexpr (words == 2)
        ld_shared_v2_u32(at, x.word[0], x.word[1]);
    else
        x.word[0] = ld_shared_u32(at);
    return x;
}

// To a tile in global memory.
__device__ __forceinline__ void store_channels(void *base, unsigned offset, int i, const lane_channels &x)
{
    unsigned char *const at = static_cast<unsigned char *>(base) + (offset ^ i * 16) + i * 128;
    if constexpr (words == 2)
        st_global_v2_f32(reinterpret_cast<float *>(at), __uint_as_float(x.word[0]), __uint_as_float(x.word[1]));
    else
        *reinterpret_cast<unsigned *>(at) = x.word[0];
}

__device__ __forceinline__ void load_floats(const float *from, float (&x)[channels])
{
    if constexpr (channels == 4) {
        const float4 all = ld_global_v4_f32<false>(from);
        x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
    } else {
        const uint2 both = ld_global_v2_u32(from);
        x[0] = __uint_as_float(both.x), x[1] = __uint_as_float(both.y);
    }
}

__device__ __forceinline__ void load_shared_floats(unsigned from, float (&x)[channels])
{
#pragma unroll
    for (int i = 0; i < channels; i += 2) {
        const float2 both = ld_shared_v2_f32(from + 4 * i);
        x[i] = both.x, x[i + 1] = both.y;
    }
}

__device__ __forceinline__ void store_shared_floats(unsigned to, const float (&x)[channels])
{
#pragma unroll
    for (int i = 0; i < channels; i += 2)
        st_shared_v2_f32(to + 4 * i, x[i], x[i + 1]);
}

__device__ __forceinline__ float activate_beta(const gen_kda_intra_params &p, float x)
{
    if (p.beta_activation == 0)
        return x;
    return (p.beta_activation == 2 ? 2.f : 1.f) * rcp_fast(1.f + exp2_fast(-log2_e * x));
}

// What A_kk and X are multiplied as: fp16 is the more exact; bf16, with the rest in another bf16, has the range of fp32.
template <bool wide> struct factor_of {
    using type = fp16;
};
template <> struct factor_of<true> {
    using type = bf16;
};
template <bool wide> using factor = typename factor_of<wide>::type;
template <bool wide> constexpr float factor_scale = wide ? 1.f : narrow_scale;

// What two floats' first parts leave of them.
__device__ __forceinline__ unsigned rest2(unsigned first, float lo, float hi)
{
    const float2 both = to_float2<bf16>(first);
    return pack2<bf16>(lo - both.x, hi - both.y);
}

// What a block works on.
struct block_work {
    unsigned base; // shared address
    kda_chunk chunk;
    int head;
    long long record; // slot and head
};

// The warp's rows of q, k or v, or zeros, on their way to where the operand made of them will be.
__device__ __forceinline__ void copy_rows(unsigned to, const void *from, long long stride, const block_work &b,
                                          int head)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * own;
    constexpr int chunks = head_dim / 8, at_once = 32 / chunks; // of a row; rows
    const int row = first + lane / chunks;
    const unsigned short *x = static_cast<const unsigned short *>(from) + (b.chunk.first + row) * stride +
                              head * head_dim + lane % chunks * 8;
#pragma unroll
    for (int i = 0; i < own; i += at_once, x += at_once * stride) // beyond the last row nothing is read
        cp_async_16_or_zero(chunk_at(to, row + i, lane % chunks), x, row + i < b.chunk.rows);
}

// What the gates of the warp's rows are made of.
struct gate_inputs {
    lane_channels packed[own];
    float x[own][channels], bias[channels], log_rate; // exp(log_rate) multiplies x + bias
};

__device__ __forceinline__ void load_gates(const gen_kda_intra_params &p, const block_work &b, gate_inputs &g)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * own;
    const long long at = (b.chunk.first + first) * p.g_stride + b.head * head_dim + lane * channels;
    const int valid = b.chunk.rows - first; // of the warp's rows
    if (p.gate_fp32) {
        const float *from = static_cast<const float *>(p.g) + at;
#pragma unroll
        for (int i = 0; i < own; i++, from += p.g_stride) {
#pragma unroll
            for (int c = 0; c < channels; c++)
                g.x[i][c] = 0.f;
            if (i < valid)
                load_floats(from, g.x[i]);
        }
    } else {
        const unsigned short *from = static_cast<const unsigned short *>(p.g) + at;
#pragma unroll
        for (int i = 0; i < own; i++, from += p.g_stride)
            g.packed[i] = load_channels(from, i < valid);
    }
    g.log_rate = p.A_log ? ld_global(p.A_log + b.head) : 0.f;
#pragma unroll
    for (int c = 0; c < channels; c++)
        g.bias[c] = 0.f;
    if (p.dt_bias)
        load_floats(p.dt_bias + b.head * head_dim + lane * channels, g.bias);
}

// As it stands in memory, in fp32.
__device__ __forceinline__ float load_beta(const gen_kda_intra_params &p, const block_work &b, int row)
{
    const long long at = (b.chunk.first + row) * p.beta_stride + b.head;
    return p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + at)
                       : to_float<element>(ld_global(static_cast<const unsigned short *>(p.beta) + at));
}

// 1 / |row| of the warp's rows of q and k, that of row i in lane 4 i + i / 2: the diagonals of q q' and k k'. Returns true in a lane
// whose row is not usual.
__device__ __forceinline__ bool norms(unsigned base, bool wanted, float &q, float &k)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * own + lane % 8;
    const unsigned from = base + (lane / 8 % 2 ? k_in : q_in); // of the four matrices: q, k, and the next chunks'
    float qq[4] = {}, kk[4] = {};
#pragma unroll
    for (int step = 0; step < head_dim / 16; step++) {
        unsigned x[4];
        ldmatrix_x4(x, chunk_at(from, row, 2 * step + lane / 16));
        mma_m16n8k16<element>(qq, x, x[0], x[2]);
        mma_m16n8k16<element>(kk, x, x[1], x[3]);
    }
    const bool odd = lane / 4 % 2;
    q = wanted ? rsqrt_fast((odd ? qq[1] : qq[0]) + 1e-6f) : 1.f;
    const float square = odd ? kk[3] : kk[2];
    k = wanted ? rsqrt_fast(square + 1e-6f) : 1.f;
    return element::is_bf16 && lane / 8 == lane % 4 &&
           !usual_row(wanted ? 1.f : square, ld_shared_f32(base + betas + row * 4));
}

} // namespace
