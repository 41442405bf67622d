// templates/lib/half.cuh for the emulation: the same functions, without PTX.
#pragma once

struct bf16 {
    static constexpr bool is_bf16 = true;
};
struct fp16 {
    static constexpr bool is_bf16 = false;
};

template <class T> __device__ __forceinline__ float to_float(unsigned short bits)
{
    if constexpr (T::is_bf16)
        return __uint_as_float(static_cast<unsigned>(bits) << 16);
    else
        return emul_from_fp16(bits);
}

template <class T> __device__ __forceinline__ float2 to_float2(unsigned pair)
{
    return make_float2(to_float<T>(static_cast<unsigned short>(pair)), to_float<T>(static_cast<unsigned short>(pair >> 16)));
}

template <class T> __device__ __forceinline__ unsigned short from_float(float x)
{
    return T::is_bf16 ? emul_to_bf16(x) : emul_to_fp16(x);
}

template <class T> __device__ __forceinline__ float4 to_float4(uint2 packed)
{
    const float2 lo = to_float2<T>(packed.x), hi = to_float2<T>(packed.y);
    return make_float4(lo.x, lo.y, hi.x, hi.y);
}
