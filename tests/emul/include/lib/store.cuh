// templates/lib/store.cuh for the emulation: the same functions, done by the engine.
#pragma once

#include "lib/ptx.cuh"

__device__ __forceinline__ void store_shared(unsigned address, unsigned x)
{
    __builtin_memcpy(emul_shared(address, 4, 4, "st.shared.u32"), &x, 4);
}

__device__ __forceinline__ void store_global_8(float *p, float x, float y)
{
    emul_global(p, 8, "st.global.v2.f32");
    p[0] = x;
    p[1] = y;
}

__device__ __forceinline__ void store_global_16(void *p, const unsigned (&x)[4])
{
    emul_global(p, 16, "st.global.v4.u32");
    __builtin_memcpy(p, x, 16);
}

__device__ __forceinline__ void transpose_quad(unsigned (&x)[4])
{
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    for (int i = 0; i < 4; i += 2) {
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
        (odd ? x[i] : x[i + 1]) = other;
    }
    for (int i = 0; i < 2; i++) {
        const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + 2], 2);
        (upper ? x[i] : x[i + 2]) = other;
    }
}
