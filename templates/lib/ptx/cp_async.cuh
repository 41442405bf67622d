// Asynchronous copies of 16 bytes by threads (sm_80), and the L2 policies that these and TMA take.
#pragma once

// A policy for data that is used once.
__device__ __forceinline__ unsigned long long policy_evict_first()
{
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// A policy for data that other blocks will read too.
__device__ __forceinline__ unsigned long long policy_evict_last()
{
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// `stream`: with the policy.
template <bool stream>
__device__ __forceinline__ void cp_async_16(unsigned shared, const void *global, unsigned long long policy)
{
    if constexpr (stream)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                     "l"(policy)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

// Zeros where not `valid`, and then `global` is not read.
__device__ __forceinline__ void cp_async_16_or_zero(unsigned shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `pending` of the thread's youngest groups are still in flight.
template <int pending> __device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
