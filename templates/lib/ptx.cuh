// One-line wrappers of PTX instructions: addresses, cached loads and stores, asynchronous copies, barriers, fences.
// Nothing here knows of a family. Names follow the PTX manual.
#pragma once

// A generic pointer into shared memory as the 32-bit address that PTX wants.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- global memory. These loads are issued in program order and not moved: what is issued first arrives first. ----

__device__ __forceinline__ int load_global(const int *p)
{
    int x;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ float load_global(const float *p)
{
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ unsigned short load_global(const unsigned short *p)
{
    unsigned short x;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ uint2 load_global_8(const void *p)
{
    uint2 x;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p) : "memory");
    return x;
}

// ---- global memory, 16 bytes. `stream` marks data that is used once: first to be evicted from L1 and L2. ----

template <bool stream> __device__ __forceinline__ float4 load_global_16(const float *p)
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

template <bool stream> __device__ __forceinline__ void store_global_16(float *p, float4 x)
{
    if constexpr (stream)
        asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                     : "memory");
    else
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                     : "memory");
}

// ---- shared memory, 16 bytes ----

__device__ __forceinline__ float4 load_shared(unsigned address)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

__device__ __forceinline__ void store_shared(unsigned address, float4 x)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

// ---- cp.async (sm_80) ----

// A cache policy for data that is used once.
__device__ __forceinline__ unsigned long long policy_evict_first()
{
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

template <bool stream>
__device__ __forceinline__ void cp_async_16(unsigned shared, const void *global, unsigned long long policy)
{
    if constexpr (stream)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                     "l"(policy)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `pending` of the thread's youngest groups are still in flight.
template <int pending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- mbarriers and bulk copies (sm_90): TMA moves a contiguous run of bytes, a multiple of 16 ----

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to TMA.
__device__ __forceinline__ void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives once and announces `bytes` that copies will bring.
__device__ __forceinline__ void mbarrier_expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase with this parity is over.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

template <bool stream>
__device__ __forceinline__ void bulk_load(unsigned shared, const void *global, unsigned bytes, unsigned barrier,
                                          unsigned long long policy)
{
    if constexpr (stream)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                     " [%0], [%1], %2, [%3], %4;" ::"r"(shared),
                     "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
                     : "memory");
    else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
            "l"(global), "r"(bytes), "r"(barrier)
            : "memory");
}

template <bool stream>
__device__ __forceinline__ void bulk_store(void *global, unsigned shared, unsigned bytes, unsigned long long policy)
{
    if constexpr (stream)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(global),
                     "r"(shared), "r"(bytes), "l"(policy)
                     : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared),
                     "r"(bytes)
                     : "memory");
}

__device__ __forceinline__ void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all of the thread's bulk stores but the `pending` youngest groups have read their shared memory.
template <int pending> __device__ __forceinline__ void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Orders this thread's ordinary writes to shared memory before what TMA reads next.
__device__ __forceinline__ void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- programmatic dependent launch (sm_90): no-ops where the launch does not allow it ----

__device__ __forceinline__ void grid_dependency_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void grid_dependency_launch()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
