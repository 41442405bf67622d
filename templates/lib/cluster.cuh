// Blocks of a cluster (sm_90): who is who, barriers of all of them, one copy that lands in several.
#pragma once

#include "lib/tma.cuh"

__device__ __forceinline__ int cluster_rank()
{
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks of the cluster; what each wrote before is seen by all after it.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// One arrival at the barrier that has this shared address in block `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, int rank)
{
    asm volatile("{\n\t"
                 ".reg .b32 remote;\n\t"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n\t"
                 "}" :: "r"(barrier), "r"(rank) : "memory");
}

// One box to the same shared address in each block of the cluster whose bit in `blocks` is set; completes on each one's own
// barrier of the same address.
__device__ __forceinline__ void tensor_load_4d_multicast(unsigned shared, const tensor_map *map, int c0, int c1, int c2, int c3,
                                                         unsigned barrier, unsigned short blocks, unsigned long long policy)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;"
                 :: "r"(shared), "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier), "h"(blocks), "l"(policy) : "memory");
}
