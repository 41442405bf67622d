// Recurrent states in memory: fp32 or 16 bits, in vectors of 16 bytes. Arithmetic is on quads of fp32, so a vector of 16-bit
// elements is two of them. Which 16-bit type it is, is known at run time: a branch that all blocks take alike.
#pragma once

#include "lib/half.cuh"

template <int bits> struct state_memory;
template <> struct state_memory<32> {
    using element = float;
    static constexpr int QUADS = 1; // of a vector
};
template <> struct state_memory<16> {
    using element = unsigned short;
    static constexpr int QUADS = 2;
};

// Greatest magnitude of fp16: a state beyond it stays there, for inf would make all that follows NaN. NaN stays.
__device__ __forceinline__ float within_fp16(float x)
{
    return fabsf(x) > 65504.f ? copysignf(65504.f, x) : x;
}

template <class T> __device__ __forceinline__ void widen_vector(float4 &low, float4 &high, float4 vector)
{
    low = to_float4<T>(make_uint2(__float_as_uint(vector.x), __float_as_uint(vector.y)));
    high = to_float4<T>(make_uint2(__float_as_uint(vector.z), __float_as_uint(vector.w)));
}

template <class T> __device__ __forceinline__ float pack_state(float low, float high)
{
    if constexpr (!T::is_bf16) {
        low = within_fp16(low);
        high = within_fp16(high);
    }
    return __uint_as_float(pack2<T>(low, high));
}

template <class T> __device__ __forceinline__ float4 narrow_vector(float4 low, float4 high)
{
    return make_float4(pack_state<T>(low.x, low.y), pack_state<T>(low.z, low.w), pack_state<T>(high.x, high.y),
                       pack_state<T>(high.z, high.w));
}

// What was loaded, as fp32.
template <int bits, int rows, int vectors>
__device__ __forceinline__ void widen_state(float4 (&quads)[rows][vectors * state_memory<bits>::QUADS],
                                            const float4 (&loaded)[rows][vectors], bool is_fp16)
{
    if constexpr (bits == 32) {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < vectors; j++)
                quads[i][j] = loaded[i][j];
    } else if (is_fp16) {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < vectors; j++)
                widen_vector<fp16>(quads[i][2 * j], quads[i][2 * j + 1], loaded[i][j]);
    } else {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < vectors; j++)
                widen_vector<bf16>(quads[i][2 * j], quads[i][2 * j + 1], loaded[i][j]);
    }
}

// What is to be stored, each element rounded once, to nearest even.
template <int bits, int rows, int vectors>
__device__ __forceinline__ void narrow_state(float4 (&stored)[rows][vectors],
                                             const float4 (&quads)[rows][vectors * state_memory<bits>::QUADS],
                                             bool is_fp16)
{
    if constexpr (bits == 32) {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < vectors; j++)
                stored[i][j] = quads[i][j];
    } else if (is_fp16) {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < vectors; j++)
                stored[i][j] = narrow_vector<fp16>(quads[i][2 * j], quads[i][2 * j + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < vectors; j++)
                stored[i][j] = narrow_vector<bf16>(quads[i][2 * j], quads[i][2 * j + 1]);
    }
}
