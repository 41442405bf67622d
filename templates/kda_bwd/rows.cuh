// kda_bwd: what a warp makes of its eight rows of a chunk, 32 lanes to a row: gates, norms, operands of products.
#pragma once

#include "kda/gates.cuh"
#include "kda/scores.cuh"
#include "kda_bwd/args.h"
#include "lib/divide.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_bwd {

using namespace kda_stage;

// What follows from a variant's axes. `A` has the type `element`, threads and head_dim, and `safe`: no gate is below -5.
// Offsets in shared memory, as kda/scores.cuh has them; what is behind a slash comes later:
//
//   q_rows      q; q 2^(gk - b) / beta k 2^gk / w      scores     A_qk
//   k_rows      k; k 2^(gk - b) / d_o; d_v             lower      A; its diagonal blocks hold those of the inverse'
//   k_columns   k 2^(b - gk)                           inverse    A_kk
//   values      v; beta v / u                          diagonals  sums of gates / A' of diagonal blocks, fp32
template <class A> struct shape : scores_layout<A::head_dim> {
    using element = typename A::element;
    static constexpr int threads = A::threads, head_dim = A::head_dim;
    static constexpr bool safe = A::safe;
    static constexpr int own = rows / (threads / 32);               // rows of a warp
    static constexpr int channels = head_dim / 32;                  // of a lane, of each of its rows
    static constexpr int sums = scores_layout<head_dim>::diagonals; // of gates, by warp and channel
    static constexpr int norms = scores_layout<head_dim>::bytes;    // 1 / |row| of q and k, side by side
    static constexpr int wide_flag = norms + 2 * rows * 4;          // fp32: not 0 where the inverse takes the wide form
    static constexpr int bytes = wide_flag + 16;
    static_assert(own == 8, "two warps to 16 rows");
};

__device__ __forceinline__ float activate_beta(int activation, float x)
{
    if (activation == GEN_KDA_BETA_GIVEN)
        return x;
    return (activation == GEN_KDA_BETA_TWO_SIGMOID ? 2.f : 1.f) * rcp_fast(1.f + exp2_fast(-log2_e * x));
}

// ---- gates ----

// In base 2. Those of the warp's rows are summed from its 16 rows' first on; sums of what is before these, of them, behind them.
template <class S> struct chunk_gates {
    float g[S::own][S::channels];
    float before[S::channels], here[S::channels], behind[S::channels];
};

// As sum_gates(), but that rows from `valid` on add nothing.
template <class S>
__device__ __forceinline__ void sum_existing_gates(const gen_kda_bwd_params &p, float rate, int valid,
                                                   float (&bias)[S::channels], float (&g)[S::own][S::channels])
{
    if (p.gate == GEN_KDA_GATE_LOWER_BOUND) { // most often
        const float slope = -log2_e * rate, bound = p.lower_bound * log2_e;
#pragma unroll
        for (int c = 0; c < S::channels; c++)
            bias[c] *= slope;
#pragma unroll
        for (int i = 0; i < S::own; i++) {
            const float factor = i < valid ? bound : 0.f;
#pragma unroll
            for (int c = 0; c < S::channels; c++) {
                const float sigmoid = rcp_fast(1.f + exp2_fast(fmaf(g[i][c], slope, bias[c])));
                g[i][c] = fmaf(factor, sigmoid, i ? g[i - 1][c] : 0.f);
            }
        }
        return;
    }
    sum_gates(p, rate, bias, g);
#pragma unroll
    for (int i = 0; i < S::own; i++)
        if (i >= valid)
#pragma unroll
            for (int c = 0; c < S::channels; c++)
                g[i][c] = i ? g[i - 1][c] : 0.f;
}

// Gates become sums from the warp's first row on, the last of which others read.
template <class S>
__device__ __forceinline__ void activate_gates(const gen_kda_bwd_params &p, const block_work &b, chunk_gates<S> &s)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, valid = b.chunk.rows - warp * S::own;
    float bias[S::channels] = {};
    const float rate = p.A_log ? exp2_fast(log2_e * ld_global(p.A_log + b.head)) : 1.f;
    if (p.dt_bias)
        load_row_floats(p.dt_bias + b.head * S::head_dim + lane * S::channels, bias);
    sum_existing_gates<S>(p, rate, valid, bias, s.g);
#pragma unroll
    for (int c = 0; c < S::channels; c += 2)
        st_shared_v2_f32(b.base + S::sums + (warp * S::head_dim + lane * S::channels + c) * 4, s.g[S::own - 1][c],
                         s.g[S::own - 1][c + 1]);
}

// Of all warps' sums: those around the warp's 16 rows, and the middle factors of which the warp has a vector.
template <class S> __device__ __forceinline__ void exchange_sums(const block_work &b, chunk_gates<S> &s)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = warp / 2;
    float middle[S::channels] = {}, before_warp[S::channels] = {}; // of its 16 rows
#pragma unroll
    for (int c = 0; c < S::channels; c++)
        s.before[c] = s.here[c] = s.behind[c] = 0.f;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        // middle_vector(): block r with itself, then sums of the blocks between two.
        const float part = warp == r ? -1.f : warp > 3 && ((r == 1 && warp != 5) || (r == 2 && warp != 4)) ? 1.f : 0.f;
#pragma unroll
        for (int c = 0; c < S::channels; c += 2) {
            const unsigned from = b.base + S::sums + (2 * r * S::head_dim + lane * S::channels + c) * 4;
            const float2 first = ld_shared_v2_f32(from), second = ld_shared_v2_f32(from + S::head_dim * 4);
            const float one[2] = {first.x, first.y}, both[2] = {first.x + second.x, first.y + second.y};
#pragma unroll
            for (int n = 0; n < 2; n++) {
                before_warp[c + n] = warp == 2 * r + 1 ? one[n] : before_warp[c + n];
                s.before[c + n] += r < block ? both[n] : 0.f;
                s.here[c + n] = r == block ? both[n] : s.here[c + n];
                s.behind[c + n] += r > block ? both[n] : 0.f;
                middle[c + n] = fmaf(part, both[n], middle[c + n]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < S::own; i++)
#pragma unroll
        for (int c = 0; c < S::channels; c++)
            s.g[i][c] += before_warp[c];
    if (warp < 7)
#pragma unroll
        for (int c = 0; c < S::channels; c += 2)
            st_shared_v2_f32(b.base + S::middle + (warp * S::head_dim + lane * S::channels + c) * 4,
                             exp2_fast(middle[c]), exp2_fast(middle[c + 1]));
}

template <class S>
__device__ __forceinline__ void store_gates(const gen_kda_bwd_params &p, const block_work &b, const chunk_gates<S> &s)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::own;
    const long long stride = static_cast<long long>(p.shape.num_v_heads) * S::head_dim;
    float *to = p.gk + (b.chunk.first + first) * stride + b.head * S::head_dim + lane * S::channels;
#pragma unroll
    for (int i = 0; i < S::own; i++, to += stride)
        if (first + i < b.chunk.rows) {
            float x[S::channels];
#pragma unroll
            for (int c = 0; c < S::channels; c++)
                x[c] = s.before[c] + s.g[i][c];
            if constexpr (S::channels == 4)
                st_global_v4_f32<false>(to, make_float4(x[0], x[1], x[2], x[3]));
            else
                st_global_v2_f32(to, x[0], x[1]);
        }
}

// ---- q and k ----

// 1 / |row| of the warp's rows of q and k, to shared memory: the diagonals of q q' and k k'. Returns true in a lane whose row is
// not usual. q and k are as they came; lane i has the i-th row's beta.
template <class S> __device__ __forceinline__ bool norms(unsigned base, bool wanted, float beta)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * S::own + lane % 8;
    const unsigned from =
        base + (lane / 8 % 2 ? S::k_rows : S::q_rows); // of the four matrices: q, k, and the next chunks'
    float qq[4] = {}, kk[4] = {};
#pragma unroll
    for (int step = 0; step < S::head_dim / 16; step++) {
        unsigned x[4];
        ldmatrix_x4(x, chunk_at(from, row, 2 * step + lane / 16));
        mma_m16n8k16<typename S::element>(qq, x, x[0], x[2]);
        mma_m16n8k16<typename S::element>(kk, x, x[1], x[3]);
    }
    const float row_beta = __shfl_sync(0xffffffffu, beta, lane / 4);
    const bool odd = lane / 4 % 2;
    // Elements (i, i) of the upper left half, (i + 8, i) of the lower.
    const float q = odd ? qq[1] : qq[0], k = odd ? kk[3] : kk[2];
    const bool mine = lane / 8 == lane % 4;
    if (mine) {
        st_shared_v2_f32(base + S::norms + (threadIdx.x / 32 * S::own + lane / 4) * 8,
                         wanted ? rsqrt_fast(q + 1e-6f) : 1.f, wanted ? rsqrt_fast(k + 1e-6f) : 1.f);
    }
    __syncwarp(); // also: a lane that is ahead overwrites what others read
    return S::element::is_bf16 && mine && !usual_row(wanted ? 1.f : k, row_beta);
}

// As the forward pass has it: normalized, not rounded.
template <class S>
__device__ __forceinline__ void unit_row(const lane_row<S::channels> &row, float factor, float (&x)[S::channels])
{
    unpack<typename S::element>(row, x);
#pragma unroll
    for (int c = 0; c < S::channels; c++)
        x[c] *= factor;
    unpack<typename S::element>(pack<typename S::element>(x), x);
}

// q and k normalized, for the stages that take them so: of a group the first head stores them.
template <class S> __device__ __forceinline__ bool units_wanted(const gen_kda_bwd_params &p, const block_work &b)
{
    return (p.q.to || p.k.to) &&
           (b.head == 0 || quotient(b.head - 1, p.shape.group_mul, p.shape.group_shift) < b.qk_head);
}

template <class S>
__device__ __forceinline__ void store_unit(const gen_kda_bwd_params &p, const block_work &b, void *tensor, int row,
                                           const float (&x)[S::channels])
{
    const long long at =
        (static_cast<long long>(b.chunk.first + row) * p.shape.num_qk_heads + b.qk_head) * S::head_dim +
        threadIdx.x % 32 * S::channels;
    if (tensor)
        store_row(static_cast<unsigned short *>(tensor) + at, pack<typename S::element>(x));
}

// All of the warp's.
template <class S> __device__ __forceinline__ void store_units(const gen_kda_bwd_params &p, const block_work &b)
{
    const int first = threadIdx.x / 32 * S::own;
#pragma unroll 1
    for (int row = first; row < min(first + S::own, b.chunk.rows); row++) {
        const float2 norm = ld_shared_v2_f32(b.base + S::norms + row * 8);
        const unsigned offset = lane_offset<S::channels>(first);
        float x[S::channels];
        unit_row<S>(load_tile_row<S::channels>(b.base + S::q_rows, offset, row - first), norm.x, x);
        store_unit<S>(p, b, p.q.to, row, x);
        unit_row<S>(load_tile_row<S::channels>(b.base + S::k_rows, offset, row - first), norm.y, x);
        store_unit<S>(p, b, p.k.to, row, x);
    }
}

// Operands of the scores to shared memory, over q and k as they came; q, k, qg and kg are done; what w is made of stays in kb.
template <class S>
__device__ __forceinline__ void make_operands(const gen_kda_bwd_params &p, const block_work &b, const chunk_gates<S> &s,
                                              float beta, lane_row<S::channels> (&kb)[S::own])
{
    using element = typename S::element;
    const int first = threadIdx.x / 32 * S::own;
    const unsigned offset = lane_offset<S::channels>(first);
    const bool wanted = units_wanted<S>(p, b);
    if (S::safe && wanted) // seldom, for kda_bwd_grad takes q and k as they are
        store_units<S>(p, b);
    const int heads = p.shape.num_v_heads;
    const long long at =
        (static_cast<long long>(b.chunk.first + first) * heads + b.head) * S::head_dim + threadIdx.x % 32 * S::channels;
    unsigned short *qg = static_cast<unsigned short *>(p.qg) + at, *kg = static_cast<unsigned short *>(p.kg) + at;
    float before[S::channels], behind[S::channels];
#pragma unroll
    for (int c = 0; c < S::channels; c++) {
        before[c] = exp2_fast(s.before[c]);
        behind[c] = exp2_fast(s.behind[c]);
    }
#pragma unroll
    for (int i = 0; i < S::own; i++, qg += heads * S::head_dim, kg += heads * S::head_dim) {
        const float2 norm = ld_shared_v2_f32(b.base + S::norms + (first + i) * 8);
        const bool exists = first + i < b.chunk.rows;
        float q[S::channels], k[S::channels], x[S::channels];
        unit_row<S>(load_tile_row<S::channels>(b.base + S::q_rows, offset, i), norm.x, q);
        unit_row<S>(load_tile_row<S::channels>(b.base + S::k_rows, offset, i), norm.y, k);
        if (!S::safe && wanted && exists) {
            store_unit<S>(p, b, p.q.to, first + i, q);
            store_unit<S>(p, b, p.k.to, first + i, k);
        }
#pragma unroll
        for (int c = 0; c < S::channels; c++) {
            const float row = exp2_fast(s.g[i][c]);
            q[c] *= row;
            x[c] = k[c] * exp2_fast(s.here[c] - s.g[i][c]);
            k[c] *= row;
        }
        store_tile_row(b.base + S::q_rows, offset, i, pack<bf16>(q));
        store_tile_row(b.base + S::k_rows, offset, i, pack<bf16>(k));
        store_tile_row(b.base + S::k_columns, offset, i, pack<bf16>(x));
        const float beta_i = __shfl_sync(0xffffffffu, beta, i);
#pragma unroll
        for (int c = 0; c < S::channels; c++) {
            q[c] *= before[c];
            k[c] *= before[c] * beta_i;
            x[c] *= behind[c];
        }
        kb[i] = pack<element>(k);
        if (exists) {
            store_row(qg, pack<element>(q));
            store_row(kg, pack<element>(x));
        }
    }
}

} // namespace kda_bwd
