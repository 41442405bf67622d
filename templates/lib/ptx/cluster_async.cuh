// Clusters (cluster.cuh) without waits for memory.
#pragma once

#include "lib/ptx/cluster.cuh"

// cluster_arrive() without a fence of all of the thread's memory, which takes as long as its stores: for barriers that were initialised
// and fenced (fence_mbarrier_init()).
__device__ __forceinline__ void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

// Writes to any block's shared memory (cluster_address()), and counts the 4 bytes at a barrier of the same block, whose wait
// shows them. Does not wait.
__device__ __forceinline__ void st_async_f32(unsigned address, float x, unsigned barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address), "f"(x),
                 "r"(barrier)
                 : "memory");
}
