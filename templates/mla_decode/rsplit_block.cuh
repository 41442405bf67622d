// The Hopper kernel of mla_decode for 8-bit caches whose groups have roles: a block's shared memory, beside rgmma_block.cuh.
#pragma once

#include "mla_decode/rgmma_block.cuh"

namespace {

constexpr int score_barrier = 4,
              piece_barrier = 5; // named ones: the group of the scores; all three groups that compute

// Tiles are shared, and so are places of probabilities: a tile's are in that of its number's parity, and so are sums up to it.
template <class A> struct split_bytes : mla_bytes<A> {
    static_assert(A::q_rows == 64, "accumulators of 64 columns");
    static constexpr int sums_of_place = 64 * 128; // of the scores' group: 64 bytes a thread
    static_assert(2 * sums_of_place == mla_bytes<A>::sums_bytes, "of two tiles");
    // Left operands of values in registers, and how many steps before its product each is made.
    static constexpr int operands_alive = 4, operands_ahead = 2, operands_group = 2;
};

// Numbers of packed rows as lanes read them, 16 bytes at a time: row 8 i + 2 (lane % 4) + n is number 2 i + n of that lane. The
// rest spreads the four lanes over the banks.
struct lane_numbers {
    alignas(16) float of[4][20];
};

// Behind control<S>.
struct split_control {
    lane_numbers scale, neg_max; // -M, as control<S> has them
    mla_cut next[2];             // the values' groups and the scores' are at: they have no registers left for it
};

// A tile's number in the block gives the place of its probabilities, and the phases of the barriers that publish them.
struct tile_number {
    unsigned number;

    __device__ __forceinline__ unsigned place() const { return number & 1; }
    __device__ __forceinline__ unsigned parity() const { return number >> 1 & 1; }
    __device__ __forceinline__ unsigned mark() const { return number + 1; } // where it moved M; 0 is none
};

} // namespace
