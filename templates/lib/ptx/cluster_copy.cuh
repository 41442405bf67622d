// Bulk copies between the blocks of a cluster (sm_90).
#pragma once

// Contiguous bytes of this block's shared memory, a multiple of 16, to a block of the cluster; completes on that block's barrier. What
// threads wrote of them is fenced first (fence_proxy_async()).
__device__ __forceinline__ void bulk_copy_cluster(unsigned to, unsigned from, unsigned bytes, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
