// The Hopper kernel of mla_decode whose scores have a group of their own: its products, and a look at an mbarrier.
#pragma once

#include "lib/wgmma.cuh"

namespace {

// d (+)= a b, 64 x 64: a in registers, as wgmma_n256_mn() has it, b K-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n64_held(float (&d)[32], const unsigned (&a)[4], unsigned long long b, bool accumulate)
{
    if constexpr (T::is_bf16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_D64 ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
                     : WGMMA_OUT64 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0) : "memory");
    else
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " WGMMA_D64 ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
                     : WGMMA_OUT64 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0) : "memory");
}

// d (+)= a b, 64 x 256: a K-major and b MN-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n256_shared(float (&d)[128], unsigned long long a, unsigned long long b, bool accumulate)
{
    if constexpr (T::is_bf16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " WGMMA_D256 ", %128, %129, p, 1, 1, 0, 1;\n\t}"
                     : WGMMA_OUT256 : "l"(a), "l"(b), "r"(accumulate ? 1 : 0) : "memory");
    else
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " WGMMA_D256 ", %128, %129, p, 1, 1, 0, 1;\n\t}"
                     : WGMMA_OUT256 : "l"(a), "l"(b), "r"(accumulate ? 1 : 0) : "memory");
}

// Has the phase with this parity ended? Asks once.
__device__ __forceinline__ bool mbarrier_test(unsigned barrier, unsigned parity)
{
    unsigned done;
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t"
                 "}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done != 0;
}

} // namespace
