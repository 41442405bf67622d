// A warp group's 64 x 64 of 8-bit types: either operand order, either swizzle, types mixed.
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/ptx/wgmma.cuh"
#include "params.h"

namespace {

#define FP8_PRODUCT(A, B)                                                                                                      \
    if (registers)                                                                                                             \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.f32." #A "." #B " " WGMMA_D64 ", {%32, %33, %34, %35}, %36, 1, 1, 1;" \
                     : WGMMA_OUT64 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(b) : "memory");                           \
    else                                                                                                                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.f32." #A "." #B " " WGMMA_D64 ", %32, %33, 1, 1, 1;"              \
                     : WGMMA_OUT64 : "l"(a), "l"(b) : "memory")

__device__ void multiply(float (&d)[32], const unsigned (&x)[4], unsigned long long a, unsigned long long b, int registers, int types)
{
    if (types == 0) {
        FP8_PRODUCT(e4m3, e4m3);
    } else if (types == 1) {
        FP8_PRODUCT(e4m3, e5m2);
    } else if (types == 2) {
        FP8_PRODUCT(e5m2, e4m3);
    } else {
        FP8_PRODUCT(e5m2, e5m2);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(128) emul_fp8(const __grid_constant__ fp8_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ unsigned long long landed;
    const unsigned base = shared_address(memory), barrier = shared_address(&landed), t = threadIdx.x;
    const int row = t / 32 * 16 + t % 32 / 4, pitch = p.pitch;
    if (t == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(barrier, 2 * 64 * pitch);
        tensor_load_4d(base, reinterpret_cast<const tensor_map *>(p.a_map), 0, 0, 0, 0, barrier, policy_evict_first());
        tensor_load_4d(base + 8192, reinterpret_cast<const tensor_map *>(p.b_map), 0, 0, 0, 0, barrier, policy_evict_first());
    }
    __syncthreads();
    while (!mbarrier_try_wait(barrier, 0))
        ;
    const unsigned long long swizzle = pitch == 64 ? 1ull << 62 : 0; // wgmma_descriptor() has 128
    const unsigned long long a = wgmma_descriptor(base, 0, 8 * pitch) + swizzle;
    const unsigned long long b = wgmma_descriptor(base + 8192, 0, 8 * pitch) + swizzle;
    float d[32];
    unsigned x[4][4];
    for (int i = 0; i < 32; i++)
        d[i] = 0.f;
    for (int step = 0; step < pitch / 32; step++)
        for (int i = 0; i < 4; i++) {
            const unsigned char *const from = p.a + (row + 8 * (i % 2)) * pitch + 32 * step + 16 * (i / 2) + 4 * (t % 4);
            x[step][i] = from[0] | from[1] << 8 | from[2] << 16 | static_cast<unsigned>(from[3]) << 24;
        }
    wgmma_fence();
    for (int round = 0; round < p.rounds; round++) {
        for (int step = 0; step < pitch / 32; step++)
            multiply(d, x[step], a + 2 * step, b + 2 * step, p.registers, p.types);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_fence();
    }
    for (int i = 0; i < 32; i++)
        p.d[(row + 8 * (i / 2 % 2)) * 64 + 8 * (i / 4) + 2 * (t % 4) + i % 2] = d[i];
}
