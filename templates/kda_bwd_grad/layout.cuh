// Where a chunk lies in shared memory in kda_bwd_grad, and what a thread has of it (kda_bwd_grad.cu.in).
#pragma once

#include "kda/tile.cuh"
#include "kda_bwd_grad/args.h"
#include "lib/divide.cuh"
#include "lib/opaque.cuh"
#include "lib/reduce.cuh"
#include "lib/swizzle.cuh"
#include "lib/uniform.cuh"

namespace kda_grad {

using namespace kda_stage;

// In bytes. What is behind a slash comes later.
template <int head_dim> struct layout {
    static constexpr int threads = 4 * head_dim, warps = threads / 32, groups = head_dim / 32; // of columns
    static constexpr int own = rows / warps, channels = head_dim / 32; // rows of a warp; of a lane, of each row
    static constexpr int tile = head_dim / 64 * cell, state = head_dim / 64 * tile, vector = head_dim * 4;
    // What the next chunk's loads go to while this one's sums are made.
    static constexpr int grads = 0;                // d_v_new / d_r
    static constexpr int values = grads + tile;    // v_new
    static constexpr int outputs = values + tile;  // d_o
    static constexpr int d_state = outputs + tile; // d_h
    static constexpr int states = d_state + state; // h
    static constexpr int inverse = states + state; // A_kk
    // What is made of them.
    static constexpr int d_qk = inverse + cell;  // d_v / P below the diagonal / d_q, fp32 / sums of d_g, of each part
    static constexpr int d_kk = d_qk + cell;     // L
    static constexpr int q_rows = d_kk + cell;   // q+
    static constexpr int b_rows = q_rows + tile; // b+
    static constexpr int k_columns = b_rows + tile; // k-
    static constexpr int gates = k_columns + tile;  // gk / d_g, before its sums
    static constexpr int gate_sums = d_qk, d_q = d_qk, d_k = d_q + 2 * tile;
    // Vectors of columns.
    static constexpr int anchors = gates + 2 * tile;      // of each block of 16 rows / sums of rows, of each part
    static constexpr int moves = anchors + 4 * vector;    // from one anchor to the next, the first not used
    static constexpr int last_gate = moves + 3 * vector;  // 2^gk of the last row
    static constexpr int state_sums = last_gate + vector; // of h d_h, of each part of V
    // 2^(gk of the last row - anchor) of the first three blocks / of k d_k, of each block of 16 rows
    static constexpr int key_sums = state_sums + 4 * vector;
    static constexpr int last_move = key_sums + 4 * vector; // the former of the last block
    static constexpr int first_move = last_move + vector;   // 2^(the first block's anchor)
    // Of rows.
    static constexpr int betas = first_move + vector;
    static constexpr int raw_betas = betas + rows * 4;
    static constexpr int diagonal = raw_betas + rows * 4;          // of P
    static constexpr int beta_sums = diagonal + rows * 4;          // of each group of columns
    static constexpr int log_sums = beta_sums + groups * rows * 4; // of each warp
    static constexpr int end = log_sums + 64;
    static_assert(d_k + 2 * tile <= gates, "gradients of q and k take the operands' place");
};

// A warp has 16 rows and 32 columns of products: a lane two rows and, of each 8 columns, two.
struct warp_place {
    int block, group, lane;

    __device__ __forceinline__ int row(int h) const { return 16 * block + lane / 4 + 8 * h; }
    __device__ __forceinline__ int column() const { return 32 * group + lane % 4 * 2; }

    // Shared addresses that the lane gives to ldmatrix and stmatrix, of tiles at `base`. Constants make the others of them:
    // tiles and 16 rows (2,048 bytes) are added, and before that chunks, of 16 bytes, XORed.
    //
    // The warp's rows, chunks 0 and 1: left operands.
    __device__ __forceinline__ unsigned left(unsigned base) const
    {
        return swizzled<128>(base, 16 * block + lane % 16, lane / 16);
    }
    // Rows 0 to 15, the warp's first two chunks of columns: right operands, transposed.
    __device__ __forceinline__ unsigned right(unsigned base) const
    {
        return swizzled<128>(base + group / 2 * cell, lane % 16, group % 2 * 4 + lane / 16);
    }
    // Rows 0 to 15, the chunks that the warp's rows are of: transposed left operands.
    __device__ __forceinline__ unsigned transposed(unsigned base) const
    {
        return swizzled<128>(base, lane / 16 * 8 + lane % 8, 2 * block + lane / 8 % 2);
    }
    // The lane's own elements of rows of fp32, of the first octet and h = 0: floats_at().
    template <int head_dim> __device__ __forceinline__ unsigned floats(unsigned base) const
    {
        return base + row(0) * head_dim * 4 + ((4 * group) ^ (lane / 4 % 4)) * 32 + lane % 4 * 8;
    }
};

// What a stage computes anew: between stages registers are for accumulators, and addresses are not worth them.
__device__ __forceinline__ int thread_again()
{
    unsigned thread = threadIdx.x;
    opaque(thread);
    return static_cast<int>(thread % 1024); // not negative, as the compiler sees then
}

__device__ __forceinline__ warp_place place_again()
{
    const int thread = thread_again(), warp = uniform(thread / 32);
    return {warp % 4, warp / 4, thread % 32};
}

__device__ __forceinline__ block_work again(block_work b)
{
    unsigned first = static_cast<unsigned>(b.chunk.first);
    opaque(first);
    opaque(b.base);
    b.chunk.first = static_cast<int>(first);
    return b;
}

// Rows of fp32, of which 32 bytes are XORed with the row, so that four rows' octets lie in different banks.
template <int head_dim> __device__ __forceinline__ unsigned floats_at(unsigned base, int row, int octet)
{
    return base + row * head_dim * 4 + (octet ^ row % 4) * 32;
}

// The n-th chunk of a value head.
__device__ __forceinline__ block_work tile_at(const gen_kda_stage_shape &s, unsigned base, int n)
{
    block_work b;
    b.base = base;
    b.slot = quotient(n, s.heads_mul, s.heads_shift);
    b.head = n - b.slot * s.num_v_heads;
    b.qk_head = quotient(b.head, s.group_mul, s.group_shift);
    b.chunk = kda_chunk_at(s.sequences, b.slot);
    return b;
}

// Whether the chunk's head is the first, or the last, of those that a block takes in turn.
__device__ __forceinline__ bool first_of_unit(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    return p.unit == 1 || b.head == quotient(b.head, p.shape.group_mul, p.shape.group_shift) * p.unit;
}

__device__ __forceinline__ bool last_of_unit(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    return p.unit == 1 || b.head + 1 == (quotient(b.head, p.shape.group_mul, p.shape.group_shift) + 1) * p.unit;
}

// What a block does behind a tile: the unit's next one, or the first of another unit.
__device__ __forceinline__ int tile_behind(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    const int tile = b.slot * p.shape.num_v_heads + b.head;
    return last_of_unit(p, b) ? tile + 1 + (static_cast<int>(gridDim.x) - 1) * p.unit : tile + 1;
}

} // namespace kda_grad
