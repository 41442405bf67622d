// Products of a warpgroup in e4m3 (sm_90a) whose operands both lie in shared memory, K-major. lib/ptx/wgmma.cuh has fences, groups,
// descriptors and the layout of accumulators.
#pragma once

#include "lib/ptx/wgmma.cuh"

// A K-major matrix in shared memory by the lower word of its descriptor, to which bytes / 16 are added: the upper word is constant
// then, and no carry is computed. Rows of 128 bytes are swizzled by as many, in cells of 1,024 bytes, aligned to that; rows of 64
// bytes in cells of 512.
template <int line> struct wgmma_matrix {
    static_assert(line == 128 || line == 64, "bytes of a row that are swizzled");
    unsigned low;

    __device__ __forceinline__ explicit wgmma_matrix(unsigned address) : low(address >> 4) {}
    __device__ __forceinline__ unsigned long long at(unsigned bytes) const
    {
        constexpr unsigned upper = 8 * line >> 4 | (line == 128 ? 1u : 2u) << 30;
        return static_cast<unsigned long long>(upper) << 32 | (low + (bytes >> 4));
    }
};

// d (+)= a b, 64 x 64, 32 deep. Sums keep some 14 bits.
__device__ __forceinline__ void wgmma_e4m3_n64(float (&d)[32], unsigned long long a, unsigned long long b,
                                               bool accumulate)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " WGMMA_D64 ", %32, %33, p, 1, 1;\n\t}"
                 : WGMMA_OUT64
                 : "l"(a), "l"(b), "r"(accumulate ? 1 : 0)
                 : "memory");
}
