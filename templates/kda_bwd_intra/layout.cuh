// Where the operands of kda_bwd_intra lie in shared memory, and how gradients of scores get there (kda_bwd_intra.cu.in).
#pragma once

#include "kda/tile.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

namespace kda_stage {

// In bytes. P: d_a_qk, L: d_a_kk.
template <int head_dim, bool is_safe> struct intra_layout {
    static constexpr bool safe = is_safe;
    static constexpr int tile = head_dim / 64 * cell;
    static constexpr int q_rows = 0;                // q+
    static constexpr int b_rows = q_rows + tile;    // b+
    static constexpr int k_columns = b_rows + tile; // k-
    static constexpr int d_qk = k_columns + tile;   // P below the diagonal
    static constexpr int d_kk = d_qk + cell;        // L
    static constexpr int diagonals = d_kk + cell;   // P's diagonal, or P's blocks on it, then L's
    static constexpr int block_row = 17;            // numbers of a row of these: transposed reads go to other banks
    static constexpr int l_diagonals = diagonals + rows * block_row * 4;
    // Of the rows of block r in vector r, of its columns in that one, or, where anchors are blocks' ends, in the next one.
    static constexpr int anchors = diagonals + (safe ? rows : 2 * rows * block_row) * 4;
    static constexpr int betas = anchors + 5 * head_dim * 4;
    static constexpr int beta_sums = betas + rows * 4; // of groups' columns, of each row
    static constexpr int end = beta_sums + head_dim / 16 * rows * 4;

    static __device__ __forceinline__ float2 anchor_at(const block_work &b, int vector, int column)
    {
        return ld_shared_v2_f32(b.base + anchors + (vector * head_dim + column) * 4);
    }
};

// A warp's eight rows of P or L, up to the diagonal; a lane has two columns.
template <class L> struct gradient_rows {
    static constexpr int own = 8;
    float2 x[own];

    __device__ __forceinline__ gradient_rows(const block_work &b, const float *from, long long stride)
    {
        const int first = threadIdx.x / 32 * own, column = threadIdx.x % 32 * 2;
#pragma unroll
        for (int i = 0; i < own; i++) {
            x[i] = make_float2(0.f, 0.f);
            if (first + i < b.chunk.rows && column <= first + i) {
                const uint2 both = ld_global_v2_u32(from + (first + i) * stride + column);
                x[i] = make_float2(__uint_as_float(both.x), __uint_as_float(both.y));
            }
        }
    }

    // What is below the diagonal, rounded. Of P the diagonal is kept.
    template <bool is_p> __device__ __forceinline__ void store(const block_work &b) const
    {
        const int first = threadIdx.x / 32 * own, column = threadIdx.x % 32 * 2;
#pragma unroll
        for (int i = 0; i < own; i++) {
            const int row = first + i;
            const float lower[2] = {column < row ? x[i].x : 0.f, column + 1 < row ? x[i].y : 0.f};
            st_shared_u32(chunk_at(b.base + (is_p ? L::d_qk : L::d_kk), row, column / 8) + column % 8 * 2,
                          pack2<bf16>(lower[0], lower[1]));
            if constexpr (L::safe) {
                if (is_p && column / 2 == row / 2)
                    st_shared_f32(b.base + L::diagonals + row * 4, row % 2 ? x[i].y : x[i].x);
            } else if (column / 16 == row / 16) {
                const unsigned to =
                    b.base + (is_p ? L::diagonals : L::l_diagonals) + (row * L::block_row + column % 16) * 4;
                st_shared_f32(to, column == row && is_p ? x[i].x : lower[0]);
                st_shared_f32(to + 4, column + 1 == row && is_p ? x[i].y : lower[1]);
            }
        }
    }
};

} // namespace kda_stage
