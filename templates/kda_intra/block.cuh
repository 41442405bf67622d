// kda_intra: what a block has in shared memory, and what it reads.
#pragma once

#include "kda/scores.cuh"
#include "kda/sequences.cuh"
#include "kda/tile.cuh"
#include "kda_intra/args.h"
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_intra {

using namespace kda_stage;

// What follows from a variant's axes. `A` has the type `element`, threads and head_dim, and `safe`: no gate is below -5.
// Offsets in shared memory; what is behind a slash comes later:
//
//   q_rows      q; q 2^(G - b) / k 2^G             scores     A_qk
//   k_rows      k; k 2^(G - b)                     lower      A_kk; its diagonal blocks hold those of X'
//   k_columns   k 2^(b - G) / -w                   inverse    diag(beta) X'
//   values      v                                  diagonals  A_kk' of diagonal blocks, fp32 / rests of X'
template <class A> struct shape : scores_layout<A::head_dim> {
    using layout = scores_layout<A::head_dim>;
    using element = typename A::element;
    static constexpr int threads = A::threads, head_dim = A::head_dim;
    static constexpr bool safe = A::safe;
    static constexpr int own = rows / (threads / 32); // rows of a warp
    static constexpr int channels = head_dim / 32;    // of a lane, of each of its rows
    static_assert(own == 8, "two warps to 16 rows");

    static constexpr int sums = layout::diagonals; // of gates, by warp and channel, before diagonal blocks come there
    // 16 words in row 0 above the diagonal. One that is not 0 makes the chunk take the wide form: what rows_alike() says of each warp's
    // rows, and one for rows that are not usual.
    static constexpr int wide_flags = layout::lower + 4 * 16, wide_flag = wide_flags + 12 * 4;
    // Diagonal blocks of unbounded gates are computed element by element, of q and k as they came and of the gates' sums.
    static constexpr int norm_factors = layout::bytes;        // of q, of k
    static constexpr int gates = norm_factors + 2 * rows * 4; // fp32 [64][head_dim]
    static constexpr int q_in = safe ? layout::q_rows : (gates + rows * head_dim * 4 + 1023) / 1024 * 1024;
    static constexpr int k_in = safe ? layout::k_rows : q_in + layout::tile;
    static constexpr int bytes = safe ? layout::bytes : k_in + layout::tile;
};

// ---- a lane's channels ----

template <int channels> __device__ __forceinline__ lane_row<channels> load_row_or_zeros(const void *from, bool valid)
{
    lane_row<channels> x;
    if constexpr (channels == 4) {
        uint2 both = make_uint2(0, 0);
        if (valid)
            both = ld_global_v2_u32(from);
        x.word[0] = both.x, x.word[1] = both.y;
    } else {
        x.word[0] = valid ? static_cast<unsigned>(ld_global(static_cast<const int *>(from))) : 0;
    }
    return x;
}

// To a tile in global memory.
template <int channels>
__device__ __forceinline__ void store_tile_row(void *base, unsigned offset, int i, const lane_row<channels> &x)
{
    unsigned char *const at = static_cast<unsigned char *>(base) + (offset ^ i * 16) + i * 128;
    if constexpr (channels == 4)
        st_global_v2_f32(reinterpret_cast<float *>(at), __uint_as_float(x.word[0]), __uint_as_float(x.word[1]));
    else
        *reinterpret_cast<unsigned *>(at) = x.word[0];
}

template <int channels> __device__ __forceinline__ void load_shared_floats(unsigned from, float (&x)[channels])
{
#pragma unroll
    for (int i = 0; i < channels; i += 2) {
        const float2 both = ld_shared_v2_f32(from + 4 * i);
        x[i] = both.x, x[i + 1] = both.y;
    }
}

template <int channels> __device__ __forceinline__ void store_shared_floats(unsigned to, const float (&x)[channels])
{
#pragma unroll
    for (int i = 0; i < channels; i += 2)
        st_shared_v2_f32(to + 4 * i, x[i], x[i + 1]);
}

// ---- what a block reads ----

__device__ __forceinline__ float activate_beta(const gen_kda_intra_params &p, float x)
{
    if (p.beta_activation == 0)
        return x;
    return (p.beta_activation == 2 ? 2.f : 1.f) * rcp_fast(1.f + exp2_fast(-log2_e * x));
}

// What a block works on.
template <class S> struct chunk_work {
    unsigned base; // shared address
    kda_chunk chunk;
    int head;
    long long record;   // slot and head
    unsigned alike = 0; // warps of which rows_alike() says 1; 8 bits on, 2
};

// The warp's rows of q, k or v, or zeros, to the place of the operand that is made of them.
template <class S>
__device__ __forceinline__ void copy_rows(unsigned to, const void *from, long long stride, const chunk_work<S> &b,
                                          int head)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::own;
    constexpr int chunks = S::head_dim / 8, at_once = 32 / chunks; // of a row; rows
    const int row = first + lane / chunks;
    const unsigned short *x = static_cast<const unsigned short *>(from) + (b.chunk.first + row) * stride +
                              head * S::head_dim + lane % chunks * 8;
#pragma unroll
    for (int i = 0; i < S::own; i += at_once, x += at_once * stride) // beyond the last row nothing is read
        cp_async_16_or_zero(chunk_at(to, row + i, lane % chunks), x, row + i < b.chunk.rows);
}

// What the gates of the warp's rows are made of.
template <class S> struct gate_inputs {
    lane_row<S::channels> packed[S::own];
    float x[S::own][S::channels], bias[S::channels], log_rate; // exp(log_rate) multiplies x + bias
};

template <class S>
__device__ __forceinline__ void load_gates(const gen_kda_intra_params &p, const chunk_work<S> &b, gate_inputs<S> &g)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::own;
    const long long at = (b.chunk.first + first) * p.g_stride + b.head * S::head_dim + lane * S::channels;
    const int valid = b.chunk.rows - first; // of the warp's rows
    if (p.gate_fp32) {
        const float *from = static_cast<const float *>(p.g) + at;
#pragma unroll
        for (int i = 0; i < S::own; i++, from += p.g_stride) {
#pragma unroll
            for (int c = 0; c < S::channels; c++)
                g.x[i][c] = 0.f;
            if (i < valid)
                load_row_floats(from, g.x[i]);
        }
    } else {
        const unsigned short *from = static_cast<const unsigned short *>(p.g) + at;
#pragma unroll
        for (int i = 0; i < S::own; i++, from += p.g_stride)
            g.packed[i] = load_row_or_zeros<S::channels>(from, i < valid);
    }
    g.log_rate = p.A_log ? ld_global(p.A_log + b.head) : 0.f;
#pragma unroll
    for (int c = 0; c < S::channels; c++)
        g.bias[c] = 0.f;
    if (p.dt_bias)
        load_row_floats(p.dt_bias + b.head * S::head_dim + lane * S::channels, g.bias);
}

// As it stands in memory, in fp32.
template <class S>
__device__ __forceinline__ float load_beta(const gen_kda_intra_params &p, const chunk_work<S> &b, int row)
{
    const long long at = (b.chunk.first + row) * p.beta_stride + b.head;
    return p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + at)
                       : to_float<typename S::element>(ld_global(static_cast<const unsigned short *>(p.beta) + at));
}

// What multiplies A_qk and kg of a warp's rows, and their w and u.
template <class S>
__device__ __forceinline__ float fold_of(const gen_kda_intra_params &p, const chunk_work<S> &b, int warp)
{
    return b.alike >> warp & 1 ? p.fold[0] : b.alike >> (8 + warp) & 1 ? p.fold[1] : 1.f;
}

template <class S>
__device__ __forceinline__ float unfold_of(const gen_kda_intra_params &p, const chunk_work<S> &b, int warp)
{
    return b.alike >> warp & 1 ? p.unfold[0] : b.alike >> (8 + warp) & 1 ? p.unfold[1] : 1.f;
}

// Of the warp's rows. Lane 4 i + i / 2 has what is row i's.
struct row_lengths {
    float q, k;         // 1 / |row|, or 1
    float square;       // |k|^2
    float kk[2], kq[2]; // k_i . k_j, k_i . q_j, j = 2 (lane % 4) + {0, 1}, i = lane / 4
};

// Of the diagonals of q q' and k k'.
template <class S> __device__ __forceinline__ row_lengths lengths_of_rows(unsigned base, bool wanted)
{
    row_lengths r;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * S::own + lane % 8;
    const unsigned from = base + (lane / 8 % 2 ? S::k_in : S::q_in); // of the four matrices: q, k, and the next chunks'
    float qq[4] = {}, kk[4] = {};
#pragma unroll
    for (int step = 0; step < S::head_dim / 16; step++) {
        unsigned x[4];
        ldmatrix_x4(x, chunk_at(from, row, 2 * step + lane / 16));
        mma_m16n8k16<typename S::element>(qq, x, x[0], x[2]);
        mma_m16n8k16<typename S::element>(kk, x, x[1], x[3]);
    }
    const bool odd = lane / 4 % 2;
    r.q = wanted ? rsqrt_fast((odd ? qq[1] : qq[0]) + 1e-6f) : 1.f;
    r.square = odd ? kk[3] : kk[2];
    r.k = wanted ? rsqrt_fast(r.square + 1e-6f) : 1.f;
    r.kk[0] = kk[2], r.kk[1] = kk[3];
    r.kq[0] = qq[2], r.kq[1] = qq[3];
    return r;
}

// True in a lane whose row is not usual.
template <class S> __device__ __forceinline__ bool unusual_row(unsigned base, bool wanted, const row_lengths &r)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * S::own + lane % 8;
    return S::element::is_bf16 && lane / 8 == lane % 4 &&
           !usual_row(wanted ? 1.f : r.square, ld_shared_f32(base + S::betas + row * 4));
}

// Both, of a kernel that does not ask whether keys are alike.
template <class S> __device__ __forceinline__ bool norms(unsigned base, bool wanted, float &q, float &k)
{
    const row_lengths r = lengths_of_rows<S>(base, wanted);
    q = r.q, k = r.k;
    return unusual_row<S>(base, wanted, r);
}

// Whether each two of the warp's keys have a cosine of some 1/4.
__device__ __forceinline__ bool keys_alike(const row_lengths &r)
{
    const int lane = threadIdx.x % 32;
    const float least = 0.25f * __shfl_sync(0xffffffffu, r.square, lane / 4 * 4 + lane / 8);
    return __all_sync(0xffffffffu, (r.kk[0] > least) & (r.kk[1] > least));
}

// Of such keys: 1 if no channel decays below a half from the warp's first row to its last, 2 if most cosines of keys and queries
// are at most 0.8 besides, else 0.
template <int own, int channels>
__device__ __forceinline__ int rows_alike(const row_lengths &r, const float (&g)[own][channels])
{
    const int lane = threadIdx.x % 32, column = lane % 4 * 2;
    float least = 0.f;
#pragma unroll
    for (int c = 0; c < channels; c++)
        least = fminf(least, g[own - 1][c] - g[0][c]);
    const float most = 0.8f / __shfl_sync(0xffffffffu, r.k, lane / 4 * 4 + lane / 8);
    const float x = r.kq[0] * __shfl_sync(0xffffffffu, r.q, 4 * column + column / 2);
    const float y = r.kq[1] * __shfl_sync(0xffffffffu, r.q, 4 * column + 4 + column / 2);
    const unsigned small = __ballot_sync(0xffffffffu, fmaxf(fabsf(x), fabsf(y)) <= most);
    return !__all_sync(0xffffffffu, least >= -1.f) ? 0 : __popc(small) < 20 ? 1 : 2;
}

} // namespace kda_intra
