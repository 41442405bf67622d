// templates/lib/mma.cuh for the emulation: the same functions, done by the engine.
#pragma once

#include "lib/half.cuh"
#include "lib/ptx.cuh"

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) { emul_ldmatrix(r, 4, address, 0); }
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) { emul_ldmatrix(r, 4, address, 1); }
__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], unsigned address) { emul_ldmatrix(r, 2, address, 0); }

template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    emul_mma(d, a, b0, b1, T::is_bf16);
}

template <class T> __device__ __forceinline__ unsigned pack2(float lo, float hi)
{
    return static_cast<unsigned>(from_float<T>(lo)) | static_cast<unsigned>(from_float<T>(hi)) << 16;
}

__device__ __forceinline__ float exp2_fast(float x) { return emul_exp2_ftz(x); }

__device__ __forceinline__ void cp_async_16_or_zero(unsigned shared, const void *global, bool valid)
{
    emul_cp_async(shared, global, 16, valid ? 16 : 0);
}

__device__ __forceinline__ void barrier_sync(int id, int threads) { emul_barrier(id, threads, 1); }
__device__ __forceinline__ void barrier_arrive(int id, int threads) { emul_barrier(id, threads, 0); }
