// Gradients through the activations of Kimi Delta Attention's inputs, element by element.
#pragma once

#include "kda/tile.cuh"
#include "lib/ptx/math.cuh"

namespace kda_stage {

__device__ __forceinline__ float sigmoid(float x)
{
    return rcp_fast(1.f + exp2_fast(-log2_e * x));
}

// log(1 + e^x)
__device__ __forceinline__ float softplus(float x)
{
    const float e = exp2_fast(log2_e * x);
    return x > 20.f ? x : e < 1e-3f ? e * (1.f - 0.5f * e) : ln_2 * log2_fast(1.f + e); // e where 1 + e would lose it
}

// s (1 - s), s the sigmoid, of which a difference would have no digits on either side.
__device__ __forceinline__ float sigmoid_slope(float x)
{
    const float e = exp2_fast(-log2_e * fabsf(x)), s = rcp_fast(1.f + e);
    return e * s * s;
}

// dy becomes the raw gate's gradient; what A_log takes of it is returned.
__device__ __forceinline__ float gate_back(int gate, float lower_bound, float rate, float x, float &dy)
{
    if (gate == GEN_KDA_GATE_SOFTPLUS) {
        const float log_share = -rate * softplus(x) * dy;
        dy *= -rate * sigmoid(x);
        return log_share;
    }
    dy *= lower_bound * rate * sigmoid_slope(rate * x);
    return dy * x;
}

__device__ __forceinline__ float beta_of(int form, float x)
{
    if (form == GEN_KDA_BETA_GIVEN)
        return x;
    const float s = rcp_fast(1.f + exp2_fast(-log2_e * x));
    return form == GEN_KDA_BETA_TWO_SIGMOID ? 2.f * s : s;
}

__device__ __forceinline__ float beta_back(int form, float x, float d)
{
    if (form == GEN_KDA_BETA_GIVEN)
        return d;
    d *= sigmoid_slope(x);
    return form == GEN_KDA_BETA_TWO_SIGMOID ? 2.f * d : d;
}

__device__ __forceinline__ float sum_warp(float x)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

} // namespace kda_stage
