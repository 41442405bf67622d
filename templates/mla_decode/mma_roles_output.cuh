// The portable kernel with roles: how probabilities get from score warps to output warps, and an output warp's products
// of a tile.
#pragma once

#include "mla_decode/mma_output.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

// Probabilities travel as the fragments they are in, 16 rows x 16 keys, 16 bytes a lane: an accumulator's lane is that of
// the left operand. This is the place of those of a row tile and a step, from the first ones on.
template <class S> __device__ __forceinline__ constexpr unsigned mla_probabilities_at(unsigned row_tile, unsigned step)
{
    return (row_tile * (S::kv / 16) + step) * 512;
}

template <class S>
__device__ __forceinline__ void mla_role_store_probabilities(const mla_warp<S> &w, unsigned memory,
                                                             const unsigned (&packed)[S::row_tiles][S::own_tiles][2])
{
    const unsigned to = memory + S::exchange_at + mla_probabilities_at<S>(w.row / 16, w.column / 16) + w.lane * 16;
#pragma unroll
    for (int m = 0; m < S::row_tiles; m++)
#pragma unroll
        for (int n = 0; n < S::own_tiles; n += 2)
            st_shared_v4_u32(to + mla_probabilities_at<S>(m, n / 2), packed[m][n][0], packed[m][n][1],
                             packed[m][n + 1][0], packed[m][n + 1][1]);
}

// Where an output warp's fragments start.
template <class S> struct mla_role_output_fragments : mla_output_fragments<S> {
    __device__ __forceinline__ mla_role_output_fragments(const mla_warp<S> &w, unsigned memory)
        : mla_output_fragments<S>(w, memory)
    {
        this->p = memory + S::exchange_at + mla_probabilities_at<S>(w.slab * S::slab_tiles, 0) + w.lane * 16;
        // What comes from a shuffle ptxas does not compute anew in every tile. With tiles of 32 it would spill for sm_100.
        if constexpr (S::kv == 64) {
            this->p = __shfl_sync(0xffffffffu, this->p, w.lane);
            this->v = __shfl_sync(0xffffffffu, this->v, w.lane);
        }
    }

    // What follows from the addresses is computed where this stands, and not kept in registers from tile to tile.
    __device__ __forceinline__ void hide()
    {
        opaque(this->p);
        opaque(this->v);
    }
};

// Adds the products of the probabilities in shared memory with the tile in `stage`.
template <class S>
__device__ __forceinline__ void mla_role_values(mla_role_output_fragments<S> f, unsigned stage, mla_output<S> &x)
{
    constexpr int steps = S::kv / 16, loads = S::output_tiles / 2;
    static_assert(loads % 2 == 0, "buffers take turns");
    f.hide();
    unsigned a[2][S::slab_tiles][4], b[2][4];
    const auto load_probabilities = [&](int step) {
#pragma unroll
        for (int m = 0; m < S::slab_tiles; m++) {
            unsigned(&to)[4] = a[step % 2][m];
            ld_shared_v4_u32(f.p + mla_probabilities_at<S>(m, step), to[0], to[1], to[2], to[3]);
        }
    };
    load_probabilities(0);
    f.load_values(stage, 0, 0, b[0]);
#pragma unroll
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int n = 0; n < loads; n++) {
            const int next = step * loads + n + 1; // of all steps' loads
            if (next < steps * loads)
                f.load_values(stage, next / loads, next % loads, b[next % 2]);
            if (n + 2 == loads && step + 1 < steps)
                load_probabilities(step + 1);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int m = 0; m < S::slab_tiles; m++)
                    mma_m16n8k16<typename S::element>(x.o[m][2 * n + i], a[step % 2][m], b[n % 2][2 * i],
                                                      b[n % 2][2 * i + 1]);
        }
    }
}
