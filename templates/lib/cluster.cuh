// Blocks of a cluster (sm_90): each other's barriers.
#pragma once

#include "lib/ptx.cuh"

// All threads of all blocks meet; what was written before is seen after.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// One arrival at the barrier that has this address in block `rank` of the cluster. What the thread knows was written before
// is seen, in all of memory, by whoever waits for the phase with mbarrier_wait_cluster().
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned barrier, unsigned rank)
{
    unsigned remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(remote) : "memory");
}

__device__ __forceinline__ void mbarrier_wait_cluster(unsigned barrier, unsigned parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t"
                 "}" :: "r"(barrier), "r"(parity) : "memory");
}
