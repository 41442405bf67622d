// The tensor cores' instructions, and the copies that feed them.
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/ptx/wgmma.cuh"
#include "params.h"

namespace {

constexpr int cell = 8192; // 64 rows of 128 bytes

// b as [n][k] by plain ldmatrix, or as [k][n] by the transposing one: 16 columns then.
template <class T> __device__ void by_mma(const matrix_params &p, unsigned memory, unsigned short *rows)
{
    const unsigned lane = threadIdx.x, b_at = memory + 512;
    const bool trans = p.what == MATRIX_MMA_TRANS;
    for (int i = lane; i < 256; i += 32) {
        rows[i] = p.a[i];
        rows[256 + i] = trans || i < 128 ? p.b[i] : 0;
    }
    __syncwarp();
    unsigned a[4];
    ldmatrix_x4(a, memory + lane % 16 * 32 + lane / 16 * 16);
    float *const d = static_cast<float *>(p.d);
    const int columns = trans ? 16 : 8;
    for (int half = 0; half < columns / 8; half++) {
        float sum[4] = {0.f, 0.f, 0.f, 0.f};
        if (trans) {
            unsigned b[4];
            ldmatrix_x4_trans(b, b_at + lane % 16 * 32 + lane / 16 * 16);
            mma_m16n8k16<T>(sum, a, b[2 * half], b[2 * half + 1]);
        } else {
            unsigned b[2];
            ldmatrix_x2(b, b_at + lane % 8 * 32 + lane / 8 % 2 * 16);
            mma_m16n8k16<T>(sum, a, b[0], b[1]);
        }
        for (int i = 0; i < 4; i++)
            d[(lane / 4 + 8 * (i / 2)) * columns + 8 * half + lane % 4 * 2 + i % 2] = sum[i];
    }
}

template <int columns, int n> __device__ void write(const matrix_params &p, const float (&sum)[n])
{
    const unsigned t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4;
    for (int i = 0; i < n; i++)
        static_cast<float *>(p.d)[(row + 8 * (i / 2 % 2)) * columns + 8 * (i / 4) + 2 * (t % 4) + i % 2] = sum[i];
}

template <class T> __device__ void by_wgmma(const matrix_params &p, unsigned a_at, unsigned b_at)
{
    const unsigned t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4;
    const unsigned long long a = wgmma_descriptor(a_at, 0, 1024);
    if (p.what == MATRIX_WGMMA_64) {
        const unsigned long long b = wgmma_descriptor(b_at, 0, 1024);
        float sum[32];
        wgmma_fence();
        for (int step = 0; step < 4; step++)
            wgmma_n64<T>(sum, a + step * 2, b + step * 2, step > 0);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        write<64>(p, sum);
        return;
    }
    const unsigned long long b = wgmma_descriptor(b_at, cell, 1024);
    float sum[128];
    unsigned fragment[4][4];
    for (int step = 0; step < 4; step++)
        for (int i = 0; i < 4; i++) {
            const unsigned short *const from = p.a + (row + 8 * (i % 2)) * 64 + 16 * step + 8 * (i / 2) + 2 * (t % 4);
            fragment[step][i] = from[0] | static_cast<unsigned>(from[1]) << 16;
        }
    wgmma_fence();
    for (int step = 0; step < 4; step++) {
        wgmma_n256_mn<T>(sum, fragment[step], b + step * 128, step > 0);
        wgmma_commit_group();
    }
    wgmma_wait_group<0>();
    write<256>(p, sum);
}

} // namespace

extern "C" __global__ void __launch_bounds__(128) emul_matrix(const __grid_constant__ matrix_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ unsigned long long landed;
    const unsigned base = shared_address(memory), barrier = shared_address(&landed);
    if (p.what == MATRIX_MMA || p.what == MATRIX_MMA_TRANS) {
        if (threadIdx.x < 32) {
            if (p.is_bf16)
                by_mma<bf16>(p, base, reinterpret_cast<unsigned short *>(memory));
            else
                by_mma<fp16>(p, base, reinterpret_cast<unsigned short *>(memory));
        }
        return;
    }
    const tensor_map *const a = reinterpret_cast<const tensor_map *>(p.a_map);
    const tensor_map *const b = reinterpret_cast<const tensor_map *>(p.b_map);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        if (p.what == MATRIX_BOX) {
            mbarrier_arrive_expect_tx(barrier, cell);
            tensor_load_4d(base, a, p.at[0], p.at[1], p.at[2], p.at[3], barrier, policy_evict_first());
        } else {
            const int cells = p.what == MATRIX_WGMMA_64 ? 1 : 4;
            mbarrier_arrive_expect_tx(barrier, (1 + cells) * cell);
            tensor_load_4d(base, a, 0, 0, 0, 0, barrier, policy_evict_first());
            for (int i = 0; i < cells; i++)
                tensor_load_4d(base + (1 + i) * cell, b, 64 * i, 0, 0, 0, barrier, policy_evict_last());
        }
    }
    __syncthreads();
    while (!mbarrier_try_wait(barrier, 0))
        ;
    if (p.what == MATRIX_BOX) {
        for (int i = threadIdx.x; i < cell; i += 128)
            static_cast<unsigned char *>(p.d)[i] = memory[i];
    } else if (p.is_bf16) {
        by_wgmma<bf16>(p, base, base + cell);
    } else {
        by_wgmma<fp16>(p, base, base + cell);
    }
}
