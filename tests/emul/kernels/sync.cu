// Threads that meet: shuffles, votes, barriers.
#include "lib/ptx/sync.cuh"
#include "params.h"

namespace {

__device__ void shuffles(int *out)
{
    const unsigned lane = threadIdx.x % 32;
    const int x = 100 + lane;
    const unsigned long long wide = 0x100000000ull * lane + 7;
    int n = 0;
    out[32 * n++ + lane] = __shfl_sync(0xffffffffu, x, 5);
    out[32 * n++ + lane] = __shfl_sync(0xffffffffu, x, lane / 2, 8);
    out[32 * n++ + lane] = __shfl_up_sync(0xffffffffu, x, 3);
    out[32 * n++ + lane] = __shfl_up_sync(0xffffffffu, x, 3, 16);
    out[32 * n++ + lane] = __shfl_down_sync(0xffffffffu, x, 4);
    out[32 * n++ + lane] = __shfl_xor_sync(0xffffffffu, x, 9);
    out[32 * n++ + lane] = static_cast<int>(__shfl_up_sync(0xffffffffu, wide, 1) >> 32);
    int low = 0;
    if (lane < 16) // the halves of a warp by themselves
        low = __shfl_xor_sync(0x0000ffffu, x, 1);
    else
        low = __shfl_xor_sync(0xffff0000u, x, 2);
    out[32 * n++ + lane] = low;
}

__device__ void votes(int *out)
{
    const unsigned lane = threadIdx.x % 32;
    int n = 0;
    out[32 * n++ + lane] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
    out[32 * n++ + lane] = __any_sync(0xffffffffu, lane == 40);
    out[32 * n++ + lane] = __any_sync(0xffffffffu, lane == 4);
    out[32 * n++ + lane] = __all_sync(0xffffffffu, lane < 32);
    out[32 * n++ + lane] = __all_sync(0xffffffffu, lane < 31);
    out[32 * n++ + lane] = __reduce_max_sync(0xffffffffu, -5 - static_cast<int>(lane));
    out[32 * n++ + lane] = static_cast<int>(__reduce_add_sync(0xffffffffu, lane));
    out[32 * n++ + lane] = static_cast<int>(__match_any_sync(0xffffffffu, lane / 8));
}

// Warps 1 and up hand numbers to warp 0 through a slot that they share.
__device__ void named(int *out)
{
    __shared__ int slot;
    const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (unsigned w = 1; w < warps; w++) {
        if (warp == w) {
            if (threadIdx.x % 32 == 0)
                slot = 1000 + w;
            barrier_arrive(w, 64);
            barrier_sync(8, blockDim.x); // the slot was read
        } else if (warp == 0) {
            barrier_sync(w, 64);
            if (threadIdx.x == 0)
                out[w] = slot;
            barrier_sync(8, blockDim.x);
        } else {
            barrier_sync(8, blockDim.x);
        }
    }
}

} // namespace

extern "C" __global__ void emul_sync(sync_params p)
{
    __shared__ int counts[256];
    __shared__ int late;
    const int t = threadIdx.x, threads = blockDim.x;
    if (p.what == SYNC_SHUFFLES) {
        shuffles(p.out);
    } else if (p.what == SYNC_VOTES) {
        votes(p.out);
    } else if (p.what == SYNC_BLOCK) {
        counts[t] = t;
        __syncthreads();
        const int other = counts[threads - 1 - t];
        const int count = __syncthreads_count(t % 3 == 0);
        const int all = __syncthreads_and(t < threads), none = __syncthreads_and(t > 0);
        const int any = __syncthreads_or(t == 7), nobody = __syncthreads_or(t < 0);
        p.out[t] = other + 1000 * count + 1000000 * (all + 2 * none + 4 * any + 8 * nobody);
    } else if (p.what == SYNC_NAMED) {
        named(p.out);
    } else if (p.what == SYNC_EARLY_EXIT) { // threads that ended are not waited for
        if (t % 2)
            return;
        if (t == 0)
            late = 5;
        __syncthreads();
        p.out[t] = late + __shfl_xor_sync(0xffffffffu, t, 2);
    } else { // blocks begin with shared memory of their own
        if (t == 0) {
            p.out[2 * blockIdx.x] = counts[0];
            counts[0] = 77;
            p.out[2 * blockIdx.x + 1] = counts[0];
        }
    }
}
