// Named barriers, and programmatic dependent launch.
#pragma once

// ---- named barriers: `threads` of the block, a multiple of 32; `id` 1 to 15 (0 is __syncthreads()) ----

__device__ __forceinline__ void barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Does not wait.
__device__ __forceinline__ void barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- programmatic dependent launch (sm_90): no-ops where the launch does not allow it ----

__device__ __forceinline__ void grid_dependency_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void grid_dependency_launch()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
