// kda_intra: gates summed, and rows and columns multiplied by their factors.
#pragma once

#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace {

// Gates, in base 2, become sums from the warp's first row on; rows that do not exist add nothing.
__device__ __forceinline__ void sum_gates(const gen_kda_intra_params &p, const block_work &b, gate_inputs &from,
                                          float (&g)[own][channels])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, valid = b.chunk.rows - warp * own;
    const float rate = exp2_fast(log2_e * from.log_rate);
    if (!p.gate_fp32)
#pragma unroll
        for (int i = 0; i < own; i++)
            unpack<element>(from.packed[i], from.x[i]);
    if (p.gate == 0) {
        const float slope = -log2_e * rate, bound = p.lower_bound * log2_e;
#pragma unroll
        for (int c = 0; c < channels; c++)
            from.bias[c] *= slope;
#pragma unroll
        for (int i = 0; i < own; i++) {
            const float factor = i < valid ? bound : 0.f;
#pragma unroll
            for (int c = 0; c < channels; c++) {
                const float sigmoid = rcp_fast(1.f + exp2_fast(fmaf(from.x[i][c], slope, from.bias[c])));
                g[i][c] = fmaf(factor, sigmoid, i ? g[i - 1][c] : 0.f);
            }
        }
    } else if (p.gate == 1) {
#pragma unroll
        for (int i = 0; i < own; i++) {
            const float factor = i < valid ? -rate : 0.f;
#pragma unroll
            for (int c = 0; c < channels; c++) {
                const float x = log2_e * (from.x[i][c] + from.bias[c]);
                const float softplus = x > 20.f * log2_e ? x : log2_fast(1.f + exp2_fast(x));
                g[i][c] = fmaf(factor, softplus, i ? g[i - 1][c] : 0.f);
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < own; i++) {
            const float factor = i < valid ? log2_e : 0.f;
#pragma unroll
            for (int c = 0; c < channels; c++)
                g[i][c] = fmaf(factor, from.x[i][c], i ? g[i - 1][c] : 0.f);
        }
    }
    store_shared_floats(b.base + sums + (warp * head_dim + lane * channels) * 4, g[own - 1]);
}

// Gates' sums around the warp's 16 rows: before them, of them, behind them; and the warp's share of the middle factors.
struct gate_sums {
    float before[channels], here[channels], behind[channels];
};

__device__ __forceinline__ void exchange_sums(const gen_kda_intra_params &p, const block_work &b,
                                              float (&g)[own][channels], gate_sums &s)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = warp / 2;
    float exponent[channels], before_warp[channels]; // of its 16 rows
#pragma unroll
    for (int c = 0; c < channels; c++)
        s.before[c] = s.here[c] = s.behind[c] = exponent[c] = before_warp[c] = 0.f;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float first[channels], second[channels];
        load_shared_floats(b.base + sums + (2 * r * head_dim + lane * channels) * 4, first);
        load_shared_floats(b.base + sums + ((2 * r + 1) * head_dim + lane * channels) * 4, second);
        // The middle factor of warp `warp` (middle_vector()); the last warp's is the whole chunk's.
        const float part = warp == r                                                                     ? -1.f
                           : warp == 7 || (warp > 3 && ((r == 1 && warp != 5) || (r == 2 && warp != 4))) ? 1.f
                                                                                                         : 0.f;
#pragma unroll
        for (int c = 0; c < channels; c++)
            before_warp[c] = warp == 2 * r + 1 ? first[c] : before_warp[c];
#pragma unroll
        for (int c = 0; c < channels; c++) {
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
    float factor[channels];
#pragma unroll
    for (int c = 0; c < channels; c++) {
        factor[c] = exp2_fast(exponent[c]);
#pragma unroll
        for (int i = 0; i < own; i++)
            g[i][c] += before_warp[c];
    }
    if (warp < 7)
        store_shared_floats(b.base + middle + (warp * head_dim + lane * channels) * 4, factor);
    else
#pragma unroll
        for (int c = 0; c < channels; c++)
            p.decay[b.record * head_dim + lane * channels + c] = factor[c];
}

// Operands of the scores to shared memory; qg and kg are done; what w is made of stays in kb. Returns what norms() does.
__device__ __forceinline__ bool make_operands(const gen_kda_intra_params &p, const block_work &b,
                                              const float (&g)[own][channels], const gate_sums &s,
                                              lane_channels (&kb)[own])
{
    const unsigned offset = lane_offset();
    float q_norms, k_norms;
    const bool unusual = norms(b.base, p.l2_norm != 0, q_norms, k_norms);
    __syncwarp(); // who is ahead writes over what others read
    float before[channels], behind[channels], q_before[channels];
#pragma unroll
    for (int c = 0; c < channels; c++) {
        before[c] = exp2_fast(s.before[c]);
        behind[c] = exp2_fast(s.behind[c]);
        q_before[c] = before[c] * p.scale;
    }
    unsigned short *const qg = static_cast<unsigned short *>(p.qg) + b.record * (rows * head_dim);
    unsigned short *const kg = static_cast<unsigned short *>(p.kg) + b.record * (rows * head_dim);
#pragma unroll
    for (int i = 0; i < own; i++) {
        const float q_norm = __shfl_sync(0xffffffffu, q_norms, 4 * i + i / 2),
                    k_norm = __shfl_sync(0xffffffffu, k_norms, 4 * i + i / 2);
        float q[channels], k[channels], x[channels];
        unpack<element>(load_shared_channels(b.base + q_in, offset, i), q);
        unpack<element>(load_shared_channels(b.base + k_in, offset, i), k);
#pragma unroll
        for (int c = 0; c < channels; c++) {
            const float row = exp2_fast(g[i][c]);
            q[c] *= q_norm * row;
            k[c] *= k_norm;
            x[c] = k[c] * exp2_fast(s.here[c] - g[i][c]);
            k[c] *= row;
        }
        store_channels(b.base + q_rows, offset, i, pack<bf16>(q));
        store_channels(b.base + k_rows, offset, i, pack<bf16>(k));
        store_channels(b.base + k_columns, offset, i, pack<bf16>(x));
#pragma unroll
        for (int c = 0; c < channels; c++) {
            q[c] *= q_before[c];
            x[c] *= behind[c];
            k[c] *= -before[c];
        }
        store_channels(qg, offset, i, pack<element>(q));
        store_channels(kg, offset, i, pack<element>(x));
        kb[i] = pack<element>(k);
        if constexpr (!safe) {
            const int row = threadIdx.x / 32 * own + i, lane = threadIdx.x % 32;
            store_shared_floats(b.base + gates + (row * head_dim + lane * channels) * 4, g[i]);
            if (lane == 4 * i + i / 2) {
                st_shared_f32(b.base + norm_factors + row * 4, q_norms);
                st_shared_f32(b.base + norm_factors + (rows + row) * 4, k_norms);
            }
        }
    }
    return unusual;
}

} // namespace
