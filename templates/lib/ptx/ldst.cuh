// Loads and stores of global and shared memory, one PTX instruction each, by PTX's names. An address in shared memory is that
// of shared_address(). All of them are issued in program order and not moved: what is issued first arrives first.
#pragma once

// A generic pointer into shared memory as the 32-bit address that PTX wants.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- global memory; an overload's type is its pointer's ----

__device__ __forceinline__ int ld_global(const int *p)
{
    int x;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ float ld_global(const float *p)
{
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ unsigned short ld_global(const unsigned short *p)
{
    unsigned short x;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(p) : "memory");
    return x;
}

// Bypasses L1: for what the kernel before may still be writing, of which a line in L1 would be stale for later loads.
__device__ __forceinline__ int ld_global_cg(const int *p)
{
    int x;
    asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ uint2 ld_global_v2_u32(const void *p)
{
    uint2 x;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ void ld_global_v4_u32(unsigned (&x)[4], const void *p)
{
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "l"(p)
                 : "memory");
}

// `stream` marks data that is used once: first to be evicted from L1 and L2.
template <bool stream> __device__ __forceinline__ float4 ld_global_v4_f32(const float *p)
{
    float4 x;
    if constexpr (stream)
        asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                     : "l"(p)
                     : "memory");
    else
        asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                     : "l"(p)
                     : "memory");
    return x;
}

__device__ __forceinline__ void st_global_u32(void *p, unsigned x)
{
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

__device__ __forceinline__ void st_global_v2_u32(void *p, unsigned a, unsigned b)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
}

__device__ __forceinline__ void st_global_v2_f32(float *p, float x, float y)
{
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void st_global_v4_u32(void *p, const unsigned (&x)[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

template <bool stream> __device__ __forceinline__ void st_global_v4_f32(float *p, float4 x)
{
    if constexpr (stream)
        asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                     : "memory");
    else
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                     : "memory");
}

// ---- shared memory ----

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

__device__ __forceinline__ unsigned ld_shared_u32(unsigned address)
{
    unsigned x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ float2 ld_shared_v2_f32(unsigned address)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ void ld_shared_v2_u32(unsigned address, unsigned &a, unsigned &b)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
}

__device__ __forceinline__ float4 ld_shared_v4_f32(unsigned address)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

__device__ __forceinline__ void ld_shared_v4_u32(unsigned address, unsigned &a, unsigned &b, unsigned &c, unsigned &d)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void st_shared_u16(unsigned address, unsigned short x)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}

__device__ __forceinline__ void st_shared_u32(unsigned address, unsigned x)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ void st_shared_f32(unsigned address, float x)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ __forceinline__ void st_shared_v2_u32(unsigned address, unsigned a, unsigned b)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}

__device__ __forceinline__ void st_shared_v2_f32(unsigned address, float a, float b)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}

__device__ __forceinline__ void st_shared_v4_u32(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

__device__ __forceinline__ void st_shared_v4_f32(unsigned address, float4 x)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}
