// A product of a warpgroup into half of an accumulator of 256 columns (sm_90a), for kernels that launch with fewer registers than
// the whole takes. lib/ptx/wgmma.cuh has fences, groups, descriptors and the layout of accumulators.
#pragma once

#include "lib/ptx/wgmma.cuh"

#define WGMMA_HALF(type, first, second)                                                        \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"                            \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type " " WGMMA_D128 \
                 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n\t}"                               \
                 : WGMMA_OUT32(first), WGMMA_OUT32(second)                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0) \
                 : "memory")

// d's columns 128 half to + 127 (+)= a b: a in registers, b MN-major in shared memory.
template <class T, int half>
__device__ __forceinline__ void wgmma_n128_mn(float (&d)[128], const unsigned (&a)[4], unsigned long long b,
                                              bool accumulate)
{
    if constexpr (T::is_bf16 && half == 0)
        WGMMA_HALF(bf16, 0, 32);
    else if constexpr (T::is_bf16)
        WGMMA_HALF(bf16, 64, 96);
    else if constexpr (half == 0)
        WGMMA_HALF(f16, 0, 32);
    else
        WGMMA_HALF(f16, 64, 96);
}

#undef WGMMA_HALF
