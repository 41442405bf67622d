// The portable kernel with roles: an output warp's products of a tile.
#pragma once

#include "mla_decode/mma_output.cuh"
#include "mla_decode/mma_roles_shape.cuh"

// Adds the products of the probabilities in shared memory with the tile in `stage`.
template <class S>
__device__ __forceinline__ void mla_role_values(const mla_warp<S> &w, unsigned memory, unsigned stage, mla_output<S> &x)
{
    constexpr int steps = S::kv / 16, loads = S::output_tiles / 2;
    static_assert(loads % 2 == 0, "buffers take turns");
    unsigned p = swizzled<S::p_pitch>(memory + S::exchange_at, w.slab * S::slab + w.lane % 16, w.lane / 16);
    // Matrices: rows 0-7 and 8-15 of one chunk of columns, then of the next.
    unsigned v = mla_latent_at<S>(w.lane % 16, w.output_group * (S::output_columns / 8) + w.lane / 16);
    asm volatile("" : "+r"(p), "+r"(v)); // else what follows from them is kept in registers from tile to tile
    unsigned a[S::slab_tiles][4], b[2][4];
    ldmatrix_x4_trans(b[0], stage + v);
#pragma unroll
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int m = 0; m < S::slab_tiles; m++)
            ldmatrix_x4(a[m], (p ^ (step * 32)) + m * 16 * S::p_pitch);
#pragma unroll
        for (int n = 0; n < loads; n++) {
            const int next = step * loads + n + 1; // of all steps' loads
            if (next < steps * loads)
                ldmatrix_x4_trans(b[next % 2], stage + v + next / loads * 16 * S::row_pitch + next % loads * 32);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int m = 0; m < S::slab_tiles; m++)
                    mma_m16n8k16<typename S::element>(x.o[m][2 * n + i], a[m], b[n % 2][2 * i], b[n % 2][2 * i + 1]);
        }
    }
}
