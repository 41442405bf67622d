// Clusters of blocks (sm_90): barriers of all their threads, and what reaches another block's shared memory.
#pragma once

#include "lib/ptx.cuh"

// A barrier of all threads of a cluster, in two halves.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Where a shared address of this block lies in block `rank` of the cluster, for instructions on .shared::cluster.
__device__ __forceinline__ unsigned cluster_address(unsigned shared, unsigned rank)
{
    unsigned address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
    return address;
}

// One arrival at a barrier of any block of the cluster (cluster_address()).
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned address)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}

// The same wait as mbarrier_wait(), for what other blocks of the cluster did before they arrived.
__device__ __forceinline__ void mbarrier_wait_cluster(unsigned barrier, unsigned parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Reads from any block's shared memory (cluster_address()).
__device__ __forceinline__ float load_cluster(unsigned address)
{
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ void load_cluster_16(unsigned address, unsigned &a, unsigned &b, unsigned &c, unsigned &d)
{
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
}
