// Loads and stores of shared memory, one PTX instruction each, by PTX's names. Addresses are those of shared_address().
// They are issued in program order and not moved, as those of ptx.cuh.
#pragma once

__device__ __forceinline__ float ld_shared_f32(unsigned address)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ int ld_shared_s32(unsigned address)
{
    int x;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ float2 ld_shared_v2_f32(unsigned address)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ void st_shared_u16(unsigned address, unsigned short x)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}
