// The Hopper kernels of attn_fwd for 8 bits: a warp computes a block's scores once more, without the other warps of its group, where
// probabilities took their place too early. The template gives shapes and types.
#pragma once

#include "lib/fp8.cuh"
#include "lib/half.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"

namespace {

// Scores of the warp's sixteen rows and sixteen keys, with operands in fp16, exactly, as eight of a block's are. `q`: of the group's queries, `k`: of
// the keys, shared addresses.
__device__ __forceinline__ void repeat_scores(float (&s)[8], unsigned q, unsigned k)
{
    static_assert(cells == 1, "rows are swizzled as a whole");
    const int lane = threadIdx.x % 32, q_row = threadIdx.x % 128 / 32 * 16 + lane % 16,
              k_row = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int i = 0; i < 8; i++)
        s[i] = 0.f;
#pragma unroll 1 // short, for it is rare
    for (int step = 0; step < dim / 32; step++) {
        unsigned x[4], y[4], a[2][4]; // keys' and queries' columns are in another order, the same for both
        ldmatrix_x4(x, swizzled<pitch>(q, q_row, step * 2 + lane / 16));
        ldmatrix_x4(y, swizzled<pitch>(k, k_row, step * 2 + lane / 8 % 2));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            fp8_to_fp16<element>(x[2 * half], a[half][0], a[half][2]);
            fp8_to_fp16<element>(x[2 * half + 1], a[half][1], a[half][3]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) { // sixteen columns of eight keys
            unsigned b0, b1;
            fp8_to_fp16<element>(y[i], b0, b1);
            mma_m16n8k16<fp16>(reinterpret_cast<float(&)[4]>(s[i / 2 * 4]), a[i % 2], b0, b1);
        }
    }
}

// M becomes the greatest of itself and the block's scores; what was summed before is to be multiplied by `factor`. masked(s, key): those of sixteen
// keys of the block from `key` on as they count.
template <class F>
__device__ __forceinline__ void repeat_reference(attn_rows_state &r, unsigned q, unsigned k, float scale, float offset,
                                                 float (&factor)[2], F masked)
{
    float most[2] = {minus_infinity(), minus_infinity()};
#pragma unroll 1
    for (int key = 0; key < keys; key += 16) {
        float s[8];
        repeat_scores(s, q, k + key * pitch);
        masked(s, key);
#pragma unroll
        for (int i = 0; i < 8; i++)
            most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 1));
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 2));
        const float old = offset - r.neg_max[h], now = fmaxf(old, most[h] * scale); // of a scale above 0
        factor[h] = old == now ? 1.f : exp2_fast(old - now);
        r.sum[h] *= factor[h];
        r.neg_max[h] = offset - now;
    }
}

} // namespace
