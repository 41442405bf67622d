// TMA (sm_90): copies of contiguous bytes, a multiple of 16, and of boxes of tensors. One lane issues a copy, and a load
// completes on an mbarrier.
#pragma once

// True for one lane of a whole warp, and the compiler sees that it is one.
__device__ __forceinline__ bool elect_one()
{
    unsigned chosen;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(chosen));
    return chosen != 0;
}

// ---- contiguous bytes ----

template <bool stream>
__device__ __forceinline__ void bulk_load(unsigned shared, const void *global, unsigned bytes, unsigned barrier,
                                          unsigned long long policy)
{
    if constexpr (stream)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                     " [%0], [%1], %2, [%3], %4;" ::"r"(shared),
                     "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
                     : "memory");
    else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
            "l"(global), "r"(bytes), "r"(barrier)
            : "memory");
}

template <bool stream>
__device__ __forceinline__ void bulk_store(void *global, unsigned shared, unsigned bytes, unsigned long long policy)
{
    if constexpr (stream)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(global),
                     "r"(shared), "r"(bytes), "l"(policy)
                     : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared),
                     "r"(bytes)
                     : "memory");
}

__device__ __forceinline__ void bulk_commit_group()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all of the thread's bulk stores but the `pending` youngest groups have read their shared memory.
template <int pending> __device__ __forceinline__ void bulk_wait_group_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// ---- boxes of tensors ----

// As the driver encodes it (cuTensorMapEncodeTiled); passed to a kernel by value in a __grid_constant__ parameter.
struct alignas(64) tensor_map {
    unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch_tensor_map(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// One box of a tensor of four dimensions, c0 the innermost coordinate, to shared memory; completes on `barrier`.
__device__ __forceinline__ void tensor_load_4d(unsigned shared, const tensor_map *map, int c0, int c1, int c2, int c3,
                                               unsigned barrier, unsigned long long policy)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier), "l"(policy)
                 : "memory");
}

// tensor_load_4d() to every block of the cluster whose bit is set in `blocks`. The box, and the barrier that counts
// its bytes, have the same offsets in each.
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

// The same box to L2 alone.
__device__ __forceinline__ void tensor_prefetch_4d(const tensor_map *map, int c0, int c1, int c2, int c3)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(c0), "r"(c1),
                 "r"(c2), "r"(c3)
                 : "memory");
}
