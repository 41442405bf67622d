// What kernels get wrong, each by itself: handing a block of bytes through shared memory and out again.
#include "lib/half.cuh"
#include "lib/prefetch.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/ptx/wgmma.cuh"
#include "params.h"

namespace {

constexpr unsigned bytes = HAZARD_BYTES;
constexpr int threads = 128;

struct places {
    unsigned data, barrier;
};

__device__ void copy_out(const hazard_params &p, const unsigned char *memory)
{
    for (unsigned i = threadIdx.x; i < bytes; i += threads)
        p.out[i] = memory[i];
}

__device__ void by_cp_async(const hazard_params &p, places at, const unsigned char *memory)
{
    const unsigned mine = threadIdx.x * 16;
    if (mine < bytes)
        cp_async_16<false>(at.data + mine, p.in + mine, 0);
    cp_async_commit_group();
    if (p.what != HAZARD_COPY_UNWAITED)
        cp_async_wait_group<0>();
    const unsigned from = p.what == HAZARD_COPY_OF_OTHERS ? bytes - 16 - mine : mine;
    for (unsigned i = 0; i < 16 && mine < bytes; i++)
        p.out[from + i] = memory[from + i];
}

// In by a bulk load, out by threads or by a bulk store of what threads wrote.
__device__ void by_bulk(const hazard_params &p, places at, unsigned char *memory)
{
    const int what = p.what;
    if (threadIdx.x == 0) {
        prefetch_bulk(p.in + (what == HAZARD_PREFETCH_ADDRESS ? 4 : 0), what == HAZARD_PREFETCH_LENGTH ? 24 : bytes - 16);
        if (what != HAZARD_MBARRIER_RAW)
            mbarrier_init(at.barrier, 1);
        if (what != HAZARD_MBARRIER_HIDDEN)
            fence_mbarrier_init();
        mbarrier_arrive_expect_tx(at.barrier, bytes);
        bulk_load<false>(at.data, p.in, bytes, at.barrier, 0);
        if (what == HAZARD_MBARRIER_TOO_MANY)
            mbarrier_arrive(at.barrier);
    }
    __syncthreads();
    if (what == HAZARD_LOAD_UNWAITED)
        return;
    mbarrier_wait(at.barrier, 0);
    if (what == HAZARD_STUCK_MBARRIER)
        mbarrier_wait(at.barrier, 1);
    if (what == HAZARD_STUCK_POLL)
        while (!mbarrier_try_wait(at.barrier, 1))
            ;
    if (what == HAZARD_REFILL_EARLY) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(at.barrier, 16);
            bulk_load<false>(at.data, p.in + 512, 16, at.barrier, 0);
        }
        __syncwarp();
        copy_out(p, memory);
        mbarrier_wait(at.barrier, 1);
        return;
    }
    // Through threads' hands, into the second KiB.
    for (unsigned i = threadIdx.x * 4; i < bytes; i += threads * 4)
        *reinterpret_cast<unsigned *>(memory + bytes + i) = *reinterpret_cast<const unsigned *>(memory + i);
    if (what != HAZARD_STORE_UNFENCED)
        fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store<false>(p.out, at.data + bytes, bytes, 0);
        bulk_commit_group();
        if (what == HAZARD_STORE_REUSE)
            memory[bytes + 5] ^= 1;
        if (what != HAZARD_STORE_UNWAITED)
            bulk_wait_group_read<0>();
    }
}

// 64 x 64 ones times ones: every output is 64, and all of `out` is right if each thread finds it so.
__device__ void by_wgmma(const hazard_params &p, places at, unsigned char *memory)
{
    const int what = p.what;
    for (unsigned i = threadIdx.x * 2; i < 16384; i += threads * 2)
        *reinterpret_cast<unsigned short *>(memory + i) = 0x3c00; // 1 as fp16
    if (what != HAZARD_WGMMA_PROXY)
        fence_proxy_async();
    __syncthreads();
    const unsigned long long a = wgmma_descriptor(at.data, 0, 1024), b = wgmma_descriptor(at.data + 8192, 0, 1024);
    float sum[32];
    if (what == HAZARD_WGMMA_LONELY && threadIdx.x >= 96)
        return;
    wgmma_fence();
    for (int step = 0; step < 4; step++)
        wgmma_n64<fp16>(sum, a + 2 * step, b + 2 * step, step > 0);
    wgmma_commit_group();
    float first = 0.f;
    if (what == HAZARD_WGMMA_UNWAITED)
        first = sum[0];
    if (what == HAZARD_WGMMA_OVERWRITE)
        *reinterpret_cast<unsigned short *>(memory + threadIdx.x * 128) = 0;
    wgmma_wait_group<0>();
    if (what != HAZARD_WGMMA_UNWAITED)
        first = sum[0];
    if (what == HAZARD_WGMMA_UNFENCED) {
        sum[3] += 1.f;
        wgmma_n64<fp16>(sum, a, b, true);
        wgmma_commit_group();
        wgmma_wait_group<0>();
    }
    const bool right = first == 64.f && sum[31] == 64.f;
    for (unsigned i = 0; i < bytes / threads; i++)
        p.out[threadIdx.x * (bytes / threads) + i] = right ? p.in[threadIdx.x * (bytes / threads) + i] : 0;
}

// Two halves through the same place; warp 0 writes for all, and nothing keeps it from the second before the first is read.
__device__ void by_rounds(const hazard_params &p, unsigned char *memory)
{
    for (unsigned round = 0; round < 2; round++) {
        if (threadIdx.x < 32)
            for (unsigned i = threadIdx.x; i < bytes / 2; i += 32)
                memory[i] = p.in[round * bytes / 2 + i];
        if (round == 0) {
            __syncthreads();
            for (unsigned i = threadIdx.x; i < bytes / 2; i += threads)
                p.out[i] = memory[i];
            __syncwarp(); // where warps take turns, these are the others'
            __syncwarp();
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < bytes / 2; i += threads)
        p.out[bytes / 2 + i] = memory[i];
}

__device__ void other(const hazard_params &p, places at, unsigned char *memory)
{
    if (p.what == HAZARD_STUCK_BARRIER) {
        if (threadIdx.x != 77)
            barrier_sync(3, threads);
    } else if (p.what == HAZARD_DIVERGED) {
        if (threadIdx.x % 32 < 16)
            __syncwarp();
        else
            p.out[0] = static_cast<unsigned char>(__shfl_sync(0xffffffffu, 1, 0));
    } else if (p.what == HAZARD_OUTSIDE) {
        p.out[0] = ld_shared_v4_f32(at.data + 20480).x != 0.f;
    } else if (p.what == HAZARD_MISALIGNED) {
        p.out[0] = ld_shared_v4_f32(at.data + 4).x != 0.f;
    } else if (p.what == HAZARD_SHARED_UNWRITTEN) {
        copy_out(p, memory);
    } else if (p.what == HAZARD_ASM_UNKNOWN) {
        asm volatile("brev.b64 %0, %1;" : "=l"(memory) : "l"(memory));
    } else if (p.what == HAZARD_ASM_INPUT) {
        int x;
        asm volatile("mov.b32 %1, %0;" : "=r"(x) : "r"(p.what));
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(threads) emul_hazard(const __grid_constant__ hazard_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[]; // 20 KiB
    __shared__ unsigned long long barrier;
    const places at = {shared_address(memory), shared_address(&barrier)};
    switch (p.what) {
    case HAZARD_COPY_UNWAITED:
    case HAZARD_COPY_OF_OTHERS:
        by_cp_async(p, at, memory);
        break;
    case HAZARD_WGMMA_UNWAITED:
    case HAZARD_WGMMA_OVERWRITE:
    case HAZARD_WGMMA_UNFENCED:
    case HAZARD_WGMMA_PROXY:
    case HAZARD_WGMMA_LONELY:
        by_wgmma(p, at, memory);
        break;
    case HAZARD_RUN_AHEAD:
        by_rounds(p, memory);
        break;
    case HAZARD_STUCK_BARRIER:
    case HAZARD_DIVERGED:
    case HAZARD_OUTSIDE:
    case HAZARD_MISALIGNED:
    case HAZARD_SHARED_UNWRITTEN:
    case HAZARD_ASM_UNKNOWN:
    case HAZARD_ASM_INPUT:
        other(p, at, memory);
        break;
    default:
        by_bulk(p, at, memory);
    }
}
