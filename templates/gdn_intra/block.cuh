// gdn_intra: what a block has in shared memory, what it reads, and scores of rows and columns, 16 x 16 at a time.
#pragma once

#include "gdn_intra/args.h"
#include "kda/inverse.cuh"
#include "kda/tile.cuh"
#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"

namespace gdn_intra {

using namespace kda_stage;
using kda_intra::chunk_work;

// Offsets in shared memory, by the names that kda_intra's functions read; what is behind a slash comes later.
template <class element_, int head_dim_> struct shape {
    using element = element_;
    static constexpr int threads = 256, head_dim = head_dim_, own = rows / (threads / 32); // rows of a warp
    static constexpr int tile = head_dim / 64 * cell;
    static constexpr int q_in = 0, k_in = q_in + tile; // q and k as they came
    static constexpr int lower = k_in + tile;          // A_kk; its diagonal blocks hold those of X'
    static constexpr int inverse = lower + cell;       // diag(beta) X'
    static constexpr int diagonals = inverse + cell;   // A_kk' of diagonal blocks, fp32 / rests of X'
    static constexpr int sums = diagonals;
    static constexpr int betas = diagonals + 4 * 1024, gates = betas + rows * 4;   // the gates' sums, base 2
    static constexpr int q_norms = gates + rows * 4, k_norms = q_norms + rows * 4; // reciprocal; of q times the scale
    static constexpr int wide_flag = k_norms + rows * 4, bytes = wide_flag + 128;
};

// The gate of a row, base 2.
template <class S>
__device__ __forceinline__ float gate_of(const gen_gdn_intra_params &p, const chunk_work<S> &b, int row, float rate,
                                         float bias)
{
    if (row >= b.chunk.rows)
        return 0.f;
    const long long at = (b.chunk.first + row) * p.g_stride + b.head;
    const float given = p.gate_fp32
                            ? ld_global(static_cast<const float *>(p.g) + at)
                            : to_float<typename S::element>(ld_global(static_cast<const unsigned short *>(p.g) + at));
    if (p.gate_form == GEN_KDA_GATE_GIVEN)
        return log2_e * given;
    const float x = given + bias;
    if (p.gate_form == GEN_KDA_GATE_LOWER_BOUND)
        return log2_e * p.lower_bound / (1.f + expf(-rate * x));
    return -log2_e * rate * (x > 20.f ? x : log1pf(expf(x)));
}

// Sums of gates from the chunk's first row on, by a warp: two rows a lane.
template <class S> __device__ __forceinline__ void sum_gates(const gen_gdn_intra_params &p, const chunk_work<S> &b)
{
    const int lane = threadIdx.x % 32;
    const float rate = p.A_log ? expf(ld_global(p.A_log + b.head)) : 1.f;
    const float bias = p.dt_bias ? ld_global(p.dt_bias + b.head) : 0.f;
    const float first = gate_of(p, b, 2 * lane, rate, bias), second = gate_of(p, b, 2 * lane + 1, rate, bias);
    float sum = first + second;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const float before = __shfl_up_sync(0xffffffffu, sum, distance);
        sum += lane >= distance ? before : 0.f;
    }
    const float before = __shfl_up_sync(0xffffffffu, sum, 1), from = lane ? before : 0.f;
    st_shared_v2_f32(b.base + S::gates + lane * 8, from + first, from + first + second);
}

template <class S>
__device__ __forceinline__ float beta_of(const gen_gdn_intra_params &p, const chunk_work<S> &b, int row)
{
    if (row >= b.chunk.rows)
        return 0.f;
    const long long at = (b.chunk.first + row) * p.beta_stride + b.head;
    const float x = p.beta_fp32
                        ? ld_global(static_cast<const float *>(p.beta) + at)
                        : to_float<typename S::element>(ld_global(static_cast<const unsigned short *>(p.beta) + at));
    if (p.beta_form == GEN_KDA_BETA_GIVEN)
        return x;
    return (p.beta_form == GEN_KDA_BETA_TWO_SIGMOID ? 2.f : 1.f) * rcp_fast(1.f + exp2_fast(-log2_e * x));
}

// What the chunk's rows are multiplied by on their way from state to state, two rows a lane.
template <class S> __device__ __forceinline__ void store_factors(const gen_gdn_intra_params &p, const chunk_work<S> &b)
{
    const int lane = threadIdx.x % 32;
    float *const to = p.factors + b.record * GDN_FACTORS;
    const float2 sum = ld_shared_v2_f32(b.base + S::gates + lane * 8);
    const float2 q = ld_shared_v2_f32(b.base + S::q_norms + lane * 8);
    const float2 k = ld_shared_v2_f32(b.base + S::k_norms + lane * 8);
    const float last = ld_shared_f32(b.base + S::gates + (rows - 1) * 4);
    const float2 here = make_float2(exp2_fast(sum.x), exp2_fast(sum.y));
    st_global_v2_f32(to + GDN_K_IN + 2 * lane, k.x * here.x, k.y * here.y);
    st_global_v2_f32(to + GDN_Q_OUT + 2 * lane, q.x * here.x, q.y * here.y);
    st_global_v2_f32(to + GDN_K_OUT + 2 * lane, k.x * exp2_fast(last - sum.x), k.y * exp2_fast(last - sum.y));
    if (lane < 2)
        st_global_v2_f32(to + GDN_DECAY + 2 * lane, lane ? 0.f : exp2_fast(last), 0.f);
}

// 16 x 16 of both score matrices: rows of block r, columns of block s. A_qk goes to memory as it is, since shared memory decides how
// many blocks an SM has.
template <bool wide, class S>
__device__ __forceinline__ void score_block(const gen_gdn_intra_params &p, const chunk_work<S> &b, int r, int s)
{
    unsigned char *const a_qk = static_cast<unsigned char *>(p.a_qk) + b.record * cell;
    const int lane = threadIdx.x % 32, row = 16 * r + lane / 4, column = 16 * s + lane % 4 * 2;
    float aq[2][4] = {}, ak[2][4] = {};
#pragma unroll
    for (int step = 0; step < S::head_dim / 16; step++) {
        unsigned q[4], k[4], columns[4];
        load_chunks_first(columns, b.base + S::k_in, 16 * s, 2 * step);
        load_rows_first(q, b.base + S::q_in, 16 * r, 2 * step);
        load_rows_first(k, b.base + S::k_in, 16 * r, 2 * step);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_m16n8k16<typename S::element>(aq[n], q, columns[2 * n], columns[2 * n + 1]);
            mma_m16n8k16<typename S::element>(ak[n], k, columns[2 * n], columns[2 * n + 1]);
        }
    }
    const unsigned diagonal = b.base + S::diagonals + r * 1024; // transposed, fp32
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = row + 8 * h;
        const float sum = ld_shared_f32(b.base + S::gates + i * 4), q = ld_shared_f32(b.base + S::q_norms + i * 4);
        const float k = ld_shared_f32(b.base + S::k_norms + i * 4) * ld_shared_f32(b.base + S::betas + i * 4);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int j = column + 8 * n;
            const float2 sums = ld_shared_v2_f32(b.base + S::gates + j * 4);
            const float2 norms = ld_shared_v2_f32(b.base + S::k_norms + j * 4);
            const float first = norms.x * exp2_fast(sum - sums.x), second = norms.y * exp2_fast(sum - sums.y);
            const float x = j <= i ? aq[n][2 * h] * q * first : 0.f, y = j < i ? aq[n][2 * h + 1] * q * second : 0.f;
            const float l = ak[n][2 * h] * k * first, m = ak[n][2 * h + 1] * k * second;
            st_global_u32(a_qk + chunk_at(0, i, j / 8) + j % 8 * 2, pack2<typename S::element>(x, y));
            if (r == s) {
                st_shared_f32(diagonal + ((j % 16) * 16 + i % 16) * 4, j < i ? l : 0.f);
                st_shared_f32(diagonal + ((j % 16 + 1) * 16 + i % 16) * 4, j + 1 < i ? m : 0.f);
            } else {
                const float lo = l * factor_scale<wide>, hi = m * factor_scale<wide>;
                const unsigned word = pack2<factor<wide>>(lo, hi);
                st_shared_u32(chunk_at(b.base + S::lower, i, j / 8) + j % 8 * 2, word);
                if constexpr (wide) // in the place of block (s, r)
                    st_shared_u32(chunk_at(b.base + S::lower, i - 16 * (r - s), j / 8 + 2 * (r - s)) + j % 8 * 2,
                                  rest2(word, lo, hi));
            }
        }
    }
}

} // namespace gdn_intra
