// Stores to the shared memory of another block of a cluster that an mbarrier there counts (sm_90): who waits for it reads what
// they wrote, and neither side needs a fence.
#pragma once

#include "lib/ptx.cuh"

// 16 bytes. `address` and `barrier` are of one block (cluster_address() of cluster.cuh).
__device__ __forceinline__ void store_async_16(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d, unsigned barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d), "r"(barrier) : "memory");
}
