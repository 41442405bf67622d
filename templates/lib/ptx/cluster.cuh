// Clusters of blocks (sm_90): barriers of all their threads, and access to another block's shared memory.
#pragma once

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
__device__ __forceinline__ void mbarrier_arrive_release_cluster(unsigned address)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}

// The same without that fence of all of the thread's memory, which takes some thousand cycles: it publishes nothing that the
// thread wrote. A thread lets TMA write by it where tensor cores have read.
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned address)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}

// The same wait as mbarrier_wait(), for what other blocks of the cluster did before they arrived.
__device__ __forceinline__ void mbarrier_wait_acquire_cluster(unsigned barrier, unsigned parity)
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
__device__ __forceinline__ float ld_shared_cluster_f32(unsigned address)
{
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ void ld_shared_cluster_v4_u32(unsigned address, unsigned &a, unsigned &b, unsigned &c,
                                                         unsigned &d)
{
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
}
