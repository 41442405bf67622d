// templates/lib/wgmma.cuh for the emulation: the same functions, done by the engine.
#pragma once

#include "lib/half.cuh"

__device__ __forceinline__ void wgmma_fence() { emul_wgmma_fence(); }
__device__ __forceinline__ void wgmma_commit() { emul_wgmma_commit(); }
template <int pending> __device__ __forceinline__ void wgmma_wait() { emul_wgmma_wait(pending); }
template <int n> __device__ __forceinline__ void wgmma_landed(float (&)[n]) {}

__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned row_bytes, unsigned group_bytes)
{
    return static_cast<unsigned long long>(address >> 4 & 0x3fff) | static_cast<unsigned long long>(row_bytes >> 4) << 16 |
           static_cast<unsigned long long>(group_bytes >> 4) << 32 | 1ull << 62;
}

template <int registers> __device__ __forceinline__ void registers_more() { emul_sync_warp(0xffffffffu); }
template <int registers> __device__ __forceinline__ void registers_less() { emul_sync_warp(0xffffffffu); }

template <class T>
__device__ __forceinline__ void wgmma_n64(float (&d)[32], unsigned long long a, unsigned long long b, bool accumulate)
{
    const emul_product operation = {d, 64, nullptr, a, b, 0, accumulate, T::is_bf16};
    emul_wgmma(&operation);
}
template <class T>
__device__ __forceinline__ void wgmma_n256_mn(float (&d)[128], unsigned long long a, unsigned long long b, bool accumulate)
{
    const emul_product operation = {d, 256, nullptr, a, b, 1, accumulate, T::is_bf16};
    emul_wgmma(&operation);
}
template <class T>
__device__ __forceinline__ void wgmma_n256_mn(float (&d)[128], const unsigned (&a)[4], unsigned long long b, bool accumulate)
{
    const emul_product operation = {d, 256, a, 0, b, 1, accumulate, T::is_bf16};
    emul_wgmma(&operation);
}
