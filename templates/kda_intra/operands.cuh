// kda_intra: gates summed, and rows and columns multiplied by their factors.
#pragma once

#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace kda_intra {

// Gates, in base 2, become sums from the warp's first row on; rows that do not exist add nothing.
template <class S>
__device__ __forceinline__ void sum_gates(const gen_kda_intra_params &p, const chunk_work<S> &b, gate_inputs<S> &from,
                                          float (&g)[S::own][S::channels])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, valid = b.chunk.rows - warp * S::own;
    const float rate = exp2_fast(log2_e * from.log_rate);
    if (!p.gate_fp32)
#pragma unroll
        for (int i = 0; i < S::own; i++)
            unpack<typename S::element>(from.packed[i], from.x[i]);
    if (p.gate == 0) {
        const float slope = -log2_e * rate, bound = p.lower_bound * log2_e;
#pragma unroll
        for (int c = 0; c < S::channels; c++)
            from.bias[c] *= slope;
#pragma unroll
        for (int i = 0; i < S::own; i++) {
            const float factor = i < valid ? bound : 0.f;
#pragma unroll
            for (int c = 0; c < S::channels; c++) {
                const float sigmoid = rcp_fast(1.f + exp2_fast(fmaf(from.x[i][c], slope, from.bias[c])));
                g[i][c] = fmaf(factor, sigmoid, i ? g[i - 1][c] : 0.f);
            }
        }
    } else if (p.gate == 1) {
#pragma unroll
        for (int i = 0; i < S::own; i++) {
            const float factor = i < valid ? -rate : 0.f;
#pragma unroll
            for (int c = 0; c < S::channels; c++) {
                const float x = log2_e * (from.x[i][c] + from.bias[c]);
                const float softplus = x > 20.f * log2_e ? x : log2_fast(1.f + exp2_fast(x));
                g[i][c] = fmaf(factor, softplus, i ? g[i - 1][c] : 0.f);
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < S::own; i++) {
            const float factor = i < valid ? log2_e : 0.f;
#pragma unroll
            for (int c = 0; c < S::channels; c++)
                g[i][c] = fmaf(factor, from.x[i][c], i ? g[i - 1][c] : 0.f);
        }
    }
    store_shared_floats(b.base + S::sums + (warp * S::head_dim + lane * S::channels) * 4, g[S::own - 1]);
}

// Gates' sums around the warp's 16 rows: before them, of them, behind them; and the warp's share of the middle factors.
template <class S> struct gate_sums {
    float before[S::channels], here[S::channels], behind[S::channels];
};

template <class S>
__device__ __forceinline__ void exchange_sums(const gen_kda_intra_params &p, const chunk_work<S> &b,
                                              float (&g)[S::own][S::channels], gate_sums<S> &s)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = warp / 2;
    float exponent[S::channels], before_warp[S::channels]; // of its 16 rows
#pragma unroll
    for (int c = 0; c < S::channels; c++)
        s.before[c] = s.here[c] = s.behind[c] = exponent[c] = before_warp[c] = 0.f;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float first[S::channels], second[S::channels];
        load_shared_floats(b.base + S::sums + (2 * r * S::head_dim + lane * S::channels) * 4, first);
        load_shared_floats(b.base + S::sums + ((2 * r + 1) * S::head_dim + lane * S::channels) * 4, second);
        // The middle factor of warp `warp` (middle_vector()); the last warp's is the whole chunk's.
        const float part = warp == r                                                                     ? -1.f
                           : warp == 7 || (warp > 3 && ((r == 1 && warp != 5) || (r == 2 && warp != 4))) ? 1.f
                                                                                                         : 0.f;
#pragma unroll
        for (int c = 0; c < S::channels; c++)
            before_warp[c] = warp == 2 * r + 1 ? first[c] : before_warp[c];
#pragma unroll
        for (int c = 0; c < S::channels; c++) {
            const float sum = first[c] + second[c];
            if (r < block)
                s.before[c] += sum;
            else if (r == block)
                s.here[c] = sum;
            else
                s.behind[c] += sum;
            exponent[c] = fmaf(part, sum, exponent[c]);
        }
    }
    float factor[S::channels];
#pragma unroll
    for (int c = 0; c < S::channels; c++) {
        factor[c] = exp2_fast(exponent[c]);
#pragma unroll
        for (int i = 0; i < S::own; i++)
            g[i][c] += before_warp[c];
    }
    if (warp < 7)
        store_shared_floats(b.base + S::middle + (warp * S::head_dim + lane * S::channels) * 4, factor);
    else
#pragma unroll
        for (int c = 0; c < S::channels; c++)
            p.decay[b.record * S::head_dim + lane * S::channels + c] = factor[c];
}

// Operands of the scores to shared memory; qg and kg are done; what w is made of stays in kb. Returns true in a lane
// whose row is not usual.
template <class S>
__device__ __forceinline__ bool make_operands(const gen_kda_intra_params &p, const chunk_work<S> &b,
                                              const float (&g)[S::own][S::channels], const gate_sums<S> &s,
                                              lane_row<S::channels> (&kb)[S::own])
{
    const unsigned offset = lane_offset<S::channels>(threadIdx.x / 32 * S::own);
    const row_lengths lengths = lengths_of_rows<S>(b.base, p.l2_norm != 0);
    const bool unusual = unusual_row<S>(b.base, p.l2_norm != 0, lengths);
    __syncwarp(); // a lane that is ahead overwrites what others read
    float before[S::channels], behind[S::channels], q_before[S::channels];
#pragma unroll
    for (int c = 0; c < S::channels; c++) {
        before[c] = exp2_fast(s.before[c]);
        behind[c] = exp2_fast(s.behind[c]);
        q_before[c] = before[c] * p.scale;
    }
    // The rows' kg, at once; what else goes with it, in the wide form.
    if (S::element::is_bf16 && keys_alike(lengths) && p.fold[0] != 0.f) {
        const int alike = rows_alike(lengths, g);
        const float fold = alike == 0 ? 1.f : alike == 1 ? p.fold[0] : p.fold[1];
#pragma unroll
        for (int c = 0; c < S::channels; c++)
            behind[c] *= fold;
        if (threadIdx.x % 32 == 0)
            st_shared_u32(b.base + S::wide_flags + threadIdx.x / 32 * 4, alike);
    }
    unsigned short *const qg = static_cast<unsigned short *>(p.qg) + b.record * (rows * S::head_dim);
    unsigned short *const kg = static_cast<unsigned short *>(p.kg) + b.record * (rows * S::head_dim);
#pragma unroll
    for (int i = 0; i < S::own; i++) {
        const float q_norm = __shfl_sync(0xffffffffu, lengths.q, 4 * i + i / 2),
                    k_norm = __shfl_sync(0xffffffffu, lengths.k, 4 * i + i / 2);
        float q[S::channels], k[S::channels], x[S::channels];
        unpack<typename S::element>(load_tile_row<S::channels>(b.base + S::q_in, offset, i), q);
        unpack<typename S::element>(load_tile_row<S::channels>(b.base + S::k_in, offset, i), k);
#pragma unroll
        for (int c = 0; c < S::channels; c++) {
            const float row = exp2_fast(g[i][c]);
            q[c] *= q_norm * row;
            k[c] *= k_norm;
            x[c] = k[c] * exp2_fast(s.here[c] - g[i][c]);
            k[c] *= row;
        }
        store_tile_row(b.base + S::q_rows, offset, i, pack<bf16>(q));
        store_tile_row(b.base + S::k_rows, offset, i, pack<bf16>(k));
        store_tile_row(b.base + S::k_columns, offset, i, pack<bf16>(x));
#pragma unroll
        for (int c = 0; c < S::channels; c++) {
            q[c] *= q_before[c];
            x[c] *= behind[c];
            k[c] *= -before[c];
        }
        store_tile_row(qg, offset, i, pack<typename S::element>(q));
        store_tile_row(kg, offset, i, pack<typename S::element>(x));
        kb[i] = pack<typename S::element>(k);
        if constexpr (!S::safe) {
            const int row = threadIdx.x / 32 * S::own + i, lane = threadIdx.x % 32;
            store_shared_floats(b.base + S::gates + (row * S::head_dim + lane * S::channels) * 4, g[i]);
            if (lane == 4 * i + i / 2) {
                st_shared_f32(b.base + S::norm_factors + row * 4, lengths.q);
                st_shared_f32(b.base + S::norm_factors + (rows + row) * 4, lengths.k);
            }
        }
    }
    return unusual;
}

} // namespace kda_intra
