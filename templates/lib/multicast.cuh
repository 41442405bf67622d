// TMA multicast within a cluster (sm_90): boxes that come to several blocks' shared memory at once, and the barriers
// by which these say that there is room again.
#pragma once

#include "lib/tma.cuh"

// tensor_load_4d() (tma.cuh) to every block of the cluster whose bit `blocks` has, at the same offsets: the box, and the bytes that
// the barrier counts.
__device__ __forceinline__ void tensor_load_4d_multicast(unsigned shared, const tensor_map *map, int c0, int c1, int c2,
                                                         int c3, unsigned barrier, unsigned short blocks,
                                                         unsigned long long policy)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
        " [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;" ::"r"(shared),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier), "h"(blocks), "l"(policy)
        : "memory");
}

// One arrival at a barrier of any block of the cluster (cluster_address() of cluster.cuh), by which a thread lets TMA write
// where tensor cores have read. It publishes nothing that the thread wrote: with the scope .cluster it would be a fence of all
// of the thread's memory, some thousand cycles.
__device__ __forceinline__ void mbarrier_arrive_room(unsigned address)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}
