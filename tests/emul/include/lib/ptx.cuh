// templates/lib/ptx.cuh for the emulation: the same functions, done by the engine.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void *pointer) { return emul_shared_address(pointer); }

// ---- global memory ----

template <class T> inline T emul_load(const void *p, const char *who)
{
    T x;
    __builtin_memcpy(&x, emul_global(p, sizeof(T), who), sizeof x);
    return x;
}

__device__ __forceinline__ int load_global(const int *p) { return emul_load<int>(p, "ld.global.s32"); }
__device__ __forceinline__ float load_global(const float *p) { return emul_load<float>(p, "ld.global.f32"); }
__device__ __forceinline__ unsigned short load_global(const unsigned short *p)
{
    return emul_load<unsigned short>(p, "ld.global.u16");
}
__device__ __forceinline__ uint2 load_global_8(const void *p) { return emul_load<uint2>(p, "ld.global.v2.u32"); }
template <bool stream> __device__ __forceinline__ float4 load_global_16(const float *p)
{
    return emul_load<float4>(p, "ld.global.v4.f32");
}
template <bool stream> __device__ __forceinline__ void store_global_16(float *p, float4 x)
{
    emul_global(p, 16, "st.global.v4.f32");
    __builtin_memcpy(p, &x, 16);
}

// ---- shared memory, 16 bytes ----

__device__ __forceinline__ float4 load_shared(unsigned address)
{
    float4 x;
    __builtin_memcpy(&x, emul_shared(address, 16, 16, "ld.shared.v4.f32"), 16);
    return x;
}
__device__ __forceinline__ void store_shared(unsigned address, float4 x)
{
    __builtin_memcpy(emul_shared(address, 16, 16, "st.shared.v4.f32"), &x, 16);
}

// ---- cp.async ----

__device__ __forceinline__ unsigned long long policy_evict_first() { return 1; }
template <bool stream>
__device__ __forceinline__ void cp_async_16(unsigned shared, const void *global, unsigned long long)
{
    emul_cp_async(shared, global, 16, 16);
}
__device__ __forceinline__ void cp_async_commit() { emul_cp_async_commit(); }
template <int pending> __device__ __forceinline__ void cp_async_wait() { emul_cp_async_wait(pending); }

// ---- mbarriers and bulk copies ----

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) { emul_mbarrier_init(barrier, arrivals); }
__device__ __forceinline__ void fence_mbarrier_init() { emul_mbarrier_fence(); }
__device__ __forceinline__ void mbarrier_expect(unsigned barrier, unsigned bytes) { emul_mbarrier_expect(barrier, bytes); }
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) { emul_mbarrier_wait(barrier, parity); }
template <bool stream>
__device__ __forceinline__ void bulk_load(unsigned shared, const void *global, unsigned bytes, unsigned barrier,
                                          unsigned long long)
{
    emul_bulk_load(shared, global, bytes, barrier);
}
template <bool stream>
__device__ __forceinline__ void bulk_store(void *global, unsigned shared, unsigned bytes, unsigned long long)
{
    emul_bulk_store(global, shared, bytes);
}
__device__ __forceinline__ void bulk_commit() { emul_bulk_commit(); }
template <int pending> __device__ __forceinline__ void bulk_wait_read() { emul_bulk_wait(pending, 1); }
__device__ __forceinline__ void fence_proxy_async() { emul_fence_proxy_async(); }

// ---- programmatic dependent launch: kernels run one after another ----

__device__ __forceinline__ void grid_dependency_wait() {}
__device__ __forceinline__ void grid_dependency_launch() {}
