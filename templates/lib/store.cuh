// Loads and stores beyond those of ptx.cuh, and the lanes' exchanges that make them whole sectors.
#pragma once

#include "lib/ptx.cuh"

__device__ __forceinline__ void store_shared(unsigned address, unsigned x)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared_16(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

__device__ __forceinline__ void load_shared_16(unsigned address, unsigned &a, unsigned &b, unsigned &c, unsigned &d)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void store_global_8(float *p, float x, float y)
{
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void store_global_16(void *p, const unsigned (&x)[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// Lane q of four neighbours gives word i to lane i, as its word q.
__device__ __forceinline__ void transpose_quad(unsigned (&x)[4])
{
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) { // within pairs of lanes: words i and i + 1
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
        if (odd)
            x[i] = other;
        else
            x[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) { // between pairs: words i and i + 2
        const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + 2], 2);
        if (upper)
            x[i] = other;
        else
            x[i + 2] = other;
    }
}
