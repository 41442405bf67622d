// The Hopper kernel of mla_sparse: what it has beside mla_decode's (mla_decode/wgmma_block.cuh), which is which of a tile's
// rows there are.
#pragma once

#include "mla_sparse/rows.cuh"
#include "mla_decode/wgmma_block.cuh"
#include "lib/opaque.cuh"

namespace {

// Behind mla_decode's control: a bit a row of a stage's tile, set where it counts. A warp of the producer has 16 rows and writes
// a half of a word, or of two groups' warps 8 rows and a byte.
template <class S> struct sparse_control : control<S> {
    alignas(16) unsigned short counts[2][4];
    float scales[2][rows][4]; // of a stage's 656-byte rows
};

template <class S> struct sparse_block : block_state<S> {
    __device__ __forceinline__ unsigned counts(int s) const { return behind() + s * 8; }
    __device__ __forceinline__ unsigned scales(int s, int row) const
    {
        return behind() + 16 + s * (rows * 16) + row * 16;
    }

  private:
    __device__ __forceinline__ unsigned behind() const
    {
        return this->base + S::tiles_bytes + static_cast<unsigned>(sizeof(control<S>) + 15) / 16 * 16;
    }
};

template <class S>
__device__ __forceinline__ bool next_piece(const gen_mla_sparse_params &p, const sparse_block<S> &b, sparse_walk &walk,
                                           block_piece &w)
{
    if (!walk.step(p, w.piece))
        return false;
    w.tokens = {w.piece.request, 1};
    w.first_row = b.row_tile * rows;
    w.num_rows = min(p.decode.num_heads - w.first_row, rows);
    w.tiles = w.piece.last - w.piece.first;
    return true;
}

// Scores of rows that do not count, by the bits of the tile's rows: a thread has columns 8 n + 2 (lane % 4) and the next.
__device__ __forceinline__ void mask_counts(float (&s)[32], unsigned low, unsigned high, float scale)
{
    const float hidden = scale < 0.f ? -minus_infinity() : minus_infinity(); // the latter once it is scaled
    const unsigned first = 2 * (threadIdx.x % 4);
    low >>= first;
    high >>= first;
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (!((i < 16 ? low : high) >> (i / 4 % 4 * 8 + i % 2) & 1))
            s[i] = hidden;
}

// The thread's number in the group, of which the compiler knows nothing: what follows from it is computed where it is used,
// because registers are few.
__device__ __forceinline__ int producer_thread()
{
    unsigned thread = threadIdx.x % 128;
    opaque(thread);
    return static_cast<int>(thread);
}

} // namespace
