// 16-bit floats as bits: conversion from and to fp32 without the toolkit's headers, which would cost more to compile
// than most kernels.
#pragma once

struct bf16 {
    static constexpr bool is_bf16 = true;
};
struct fp16 {
    static constexpr bool is_bf16 = false;
};

template <class T> __device__ __forceinline__ float to_float(unsigned short bits)
{
    if constexpr (T::is_bf16) {
        return __uint_as_float(static_cast<unsigned>(bits) << 16);
    } else {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
}

// Two values packed in a word, the lower address in the lower half.
template <class T> __device__ __forceinline__ float2 to_float2(unsigned pair)
{
    if constexpr (T::is_bf16)
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    else
        return make_float2(to_float<T>(static_cast<unsigned short>(pair)),
                           to_float<T>(static_cast<unsigned short>(pair >> 16)));
}

// Round to nearest even.
template <class T> __device__ __forceinline__ unsigned short from_float(float x)
{
    unsigned short bits;
    if constexpr (T::is_bf16)
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    else
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Four values packed in two words.
template <class T> __device__ __forceinline__ float4 to_float4(uint2 packed)
{
    const float2 lo = to_float2<T>(packed.x), hi = to_float2<T>(packed.y);
    return make_float4(lo.x, lo.y, hi.x, hi.y);
}

// Two floats rounded to T, `lo` in the lower half.
template <class T> __device__ __forceinline__ unsigned pack2(float lo, float hi)
{
    unsigned pair;
    if constexpr (T::is_bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}
