// The narrow products of a warpgroup (wgmma.cuh): 64 x 32.
#pragma once

#include "lib/ptx/wgmma.cuh"

#define WGMMA_D32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define WGMMA_OUT4(x) "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])

// d (+)= a b, 64 x 32, with d[i / 4][i % 4] in the place of d[i]: a and b K-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n32(float (&d)[4][4], unsigned long long a, unsigned long long b, bool accumulate)
{
#define WGMMA_PRODUCT(type)                                                                  \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %18, 0;\n\t"                          \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." #type "." #type " " WGMMA_D32 \
                 ", %16, %17, p, 1, 1, 0, 0;\n\t}"                                           \
                 : WGMMA_OUT4(d[0]), WGMMA_OUT4(d[1]), WGMMA_OUT4(d[2]), WGMMA_OUT4(d[3])    \
                 : "l"(a), "l"(b), "r"(accumulate ? 1 : 0)                                   \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}

// An accumulator of it that is done (wgmma_fence_registers).
__device__ __forceinline__ void wgmma_fence_n32(float (&d)[4][4])
{
#pragma unroll
    for (int n = 0; n < 4; n++)
        wgmma_fence_registers(d[n]);
}

// d += a b, 64 x 32: a in registers, b K-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n32_regs(float (&d)[16], const unsigned (&a)[4], unsigned long long b)
{
#define WGMMA_PRODUCT(type)                                                                  \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %21, 0;\n\t"                          \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." #type "." #type " " WGMMA_D32 \
                 ", {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n\t}"                             \
                 : WGMMA_OUT8(0), WGMMA_OUT8(8)                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1)                \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}
