// Tensor copies by TMA (sm_90) and the mbarrier operations beyond those in ptx.cuh.
#pragma once

#include "lib/ptx.cuh"

// As the driver encodes it (cuTensorMapEncodeTiled); passed to a kernel by value in a __grid_constant__ parameter.
struct alignas(64) tensor_map {
    unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch_tensor_map(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// True for one lane of a whole warp, which the compiler then knows to be one.
__device__ __forceinline__ bool elect_one()
{
    unsigned chosen;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(chosen));
    return chosen != 0;
}

// A cache policy for data that other blocks will read too.
__device__ __forceinline__ unsigned long long policy_evict_last()
{
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
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

// The same box to L2 alone.
__device__ __forceinline__ void tensor_prefetch_4d(const tensor_map *map, int c0, int c1, int c2, int c3)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(c0), "r"(c1),
                 "r"(c2), "r"(c3)
                 : "memory");
}

// One arrival.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival when the thread's cp.async copies so far are complete; counted among the barrier's arrivals.
__device__ __forceinline__ void cp_async_mbarrier_arrive(unsigned barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Has the phase with this parity ended? Waits a little before it says no.
__device__ __forceinline__ bool mbarrier_try_wait(unsigned barrier, unsigned parity)
{
    unsigned done;
    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t"
                 "}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}
