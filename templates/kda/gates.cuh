// Gates of a warp's rows: loaded, activated and summed. `p` has g, g_stride, gate, gate_fp32 and lower_bound.
#pragma once

#include "kda/tile.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace kda_stage {

// The warp's rows, as they stand in memory; beyond `valid` rows there is nothing, and 0 is given.
template <class T, class P, int own, int channels>
__device__ __forceinline__ void load_gates(const P &p, long long at, int valid, float (&x)[own][channels])
{
    if (p.gate_fp32) {
        const float *from = static_cast<const float *>(p.g) + at;
#pragma unroll
        for (int i = 0; i < own; i++, from += p.g_stride) {
#pragma unroll
            for (int c = 0; c < channels; c++)
                x[i][c] = 0.f;
            if (i < valid)
                load_row_floats(from, x[i]);
        }
    } else {
        const unsigned short *from = static_cast<const unsigned short *>(p.g) + at;
        lane_row<channels> packed[own] = {};
#pragma unroll
        for (int i = 0; i < own; i++, from += p.g_stride)
            if (i < valid)
                packed[i] = load_row<channels>(from);
#pragma unroll
        for (int i = 0; i < own; i++)
            unpack<T>(packed[i], x[i]);
    }
}

// Gates, in base 2, become sums from the warp's first row on.
template <class P, int own, int channels>
__device__ __forceinline__ void sum_gates(const P &p, float rate, float (&bias)[channels], float (&g)[own][channels])
{
    if (p.gate == GEN_KDA_GATE_LOWER_BOUND) {
        const float slope = -log2_e * rate, bound = p.lower_bound * log2_e;
#pragma unroll
        for (int i = 0; i < own; i++)
#pragma unroll
            for (int c = 0; c < channels; c++) {
                const float sigmoid = rcp_fast(1.f + exp2_fast((g[i][c] + bias[c]) * slope));
                g[i][c] = fmaf(bound, sigmoid, i ? g[i - 1][c] : 0.f);
            }
    } else if (p.gate == GEN_KDA_GATE_SOFTPLUS) {
#pragma unroll
        for (int i = 0; i < own; i++)
#pragma unroll
            for (int c = 0; c < channels; c++) {
                const float x = log2_e * (g[i][c] + bias[c]), e = exp2_fast(x);
                // log(1 + e) is e where 1 + e would lose it
                const float softplus = x > 20.f * log2_e ? x
                                       : e < 1e-3f       ? e * (1.f - 0.5f * e) * log2_e
                                                         : log2_fast(1.f + e);
                g[i][c] = fmaf(-rate, softplus, i ? g[i - 1][c] : 0.f);
            }
    } else {
#pragma unroll
        for (int i = 0; i < own; i++)
#pragma unroll
            for (int c = 0; c < channels; c++)
                g[i][c] = fmaf(log2_e, g[i][c], i ? g[i - 1][c] : 0.f);
    }
}

} // namespace kda_stage
