// templates/lib/tma.cuh for the emulation: the same functions, done by the engine.
#pragma once

#include "lib/ptx.cuh"

struct alignas(64) tensor_map {
    unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch_tensor_map(const tensor_map *map) { emul_tensor_check(map, 3); }
__device__ __forceinline__ unsigned long long policy_evict_last() { return 2; }
__device__ __forceinline__ void tensor_load_3d(unsigned shared, const tensor_map *map, int c0, int c1, int c2,
                                               unsigned barrier, unsigned long long)
{
    const int at[3] = {c0, c1, c2};
    emul_tensor_load(shared, map, at, 3, barrier);
}
__device__ __forceinline__ void tensor_prefetch_3d(const tensor_map *map, int, int, int) { emul_tensor_check(map, 3); }
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) { emul_mbarrier_arrive(barrier); }
__device__ __forceinline__ void cp_async_mbarrier_arrive(unsigned barrier) { emul_cp_async_arrive(barrier); }
__device__ __forceinline__ bool mbarrier_try_wait(unsigned barrier, unsigned parity)
{
    return emul_mbarrier_try_wait(barrier, parity) != 0;
}
