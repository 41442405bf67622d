// 64 x 32 by tensor core instructions of a warpgroup (lib/ptx/wgmma.cuh).
#pragma once

#include "lib/ptx/wgmma.cuh"

// d += a b, 64 x 32: b K-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n32_regs(float (&d)[16], const unsigned (&a)[4], unsigned long long b)
{
#define WGMMA_PRODUCT(type)                                                                \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %21, 0;\n\t"                        \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." #type "." #type             \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}" \
                 ", {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n\t}"                           \
                 : WGMMA_OUT8(0), WGMMA_OUT8(8)                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1)              \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}
