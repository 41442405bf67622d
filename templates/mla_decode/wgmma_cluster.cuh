// The Hopper kernel of mla_decode in clusters: results of the blocks that share a request, put together.
#pragma once

#include "mla_decode/wgmma_output.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/transpose.cuh"
#include "lib/uniform.cuh"

namespace {

// The place of 16 bytes of a staged row, for 64 columns of it: of four neighbouring ones, number l has columns 8 t + 2 l
// and 8 t + 2 l + 1 of four t, which is what a lane holds. By stmatrix they would be 8 neighbouring columns, but racecheck
// does not take it for a store. Neighbouring rows are half of the banks apart.
__device__ __forceinline__ unsigned staged_at(int row, int chunk)
{
    return chunk / 8 * cell + row * 128 + ((chunk % 8 ^ (row % 2 * 4 + row / 2 % 4)) << 4);
}

// The output of the warp's 16 rows, `first` onwards.
template <class T>
__device__ __forceinline__ void stage_quads(const group_state<T> &g, unsigned to, int first, const float (&factor)[2])
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const unsigned at[2] = {to + staged_at(first + lane / 4 + 8 * h, lane % 4),
                                to + staged_at(first + lane / 4 + 8 * h, 4 + lane % 4)};
#pragma unroll
        for (int quad = 0; quad < 8; quad++) {
            unsigned x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *const o = &g.o[4 * (4 * quad + i) + 2 * h];
                x[i] = pack2<T>(o[0] * factor[h], o[1] * factor[h]);
            }
            st_shared_v4_u32(at[quad % 2] + quad / 2 * cell, x[0], x[1], x[2], x[3]);
        }
    }
}

// What a cluster has of a request, each block of its tiles, is put together without a detour through memory: every block has its
// output, divided by its sums, in the place of its queries; then each adds up a slice of the columns of all of them.
template <class S, class T>
__device__ __forceinline__ void write_together(const gen_mla_decode_params &p, const block_state<S> &b,
                                               const block_piece &w, const group_state<T> &g, int group,
                                               const float (&sum)[2])
{
    constexpr int cluster_blocks = S::cluster_blocks;
    // 16 bytes each, of a row, of the slice.
    constexpr int all_chunks = latent / 8, chunks = (all_chunks / 4 + cluster_blocks - 1) / cluster_blocks * 4;
    // Of the warp's 16 rows.
    const int thread = threadIdx.x % 128, lane = thread % 32, first = uniform(thread / 32 * 16);
    if (first < w.num_rows) {
        float factor[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            factor[h] = sum[h] != 0.f ? rcp_fast(sum[h]) : 0.f; // a NaN stays one
            if (group == 0 && lane % 4 == 0)
                b.c->lse[first + lane / 4 + 8 * h] =
                    sum[h] != 0.f ? log2_fast(sum[h]) - g.neg_max[h] : minus_infinity();
        }
        const unsigned staging = b.base + group * 4 * cell;
        if (w.tiles > 0)
            stage_quads(g, staging, first, factor);
        else // others read there all the same
#pragma unroll 1
            for (int i = 0; i < 16; i++)
                st_shared_v4_f32(staging + i / 4 * cell + first * 128 + i % 4 * 512 + lane * 16,
                                 make_float4(0.f, 0.f, 0.f, 0.f));
    }
    cluster_arrive(); // a barrier of the hardware: its fence is one for all, mbarriers of other blocks took one each
    cluster_wait();
#pragma unroll 4 // all eight at once take too many registers
    for (int i = 0; i < (rows * chunks + 255) / 256; i++) {
        const int item = i * 256 + static_cast<int>(threadIdx.x), row = min(item / chunks, w.num_rows - 1);
        const int slice_chunk = b.rank * chunks + item % chunks, chunk = min(slice_chunk, all_chunks - 1);
        if (uniform(item) / chunks >= w.num_rows)
            break;
        // The lanes exchange, so the others do the same.
        const bool valid = item / chunks < w.num_rows && slice_chunk < all_chunks;
        const unsigned from = staged_at(row, chunk);
        const unsigned lse_at = shared_address(&b.c->lse[row]) - b.base;
        float lse[cluster_blocks], top = minus_infinity(), all = 0.f, out[8] = {};
        unsigned x[cluster_blocks][4];
#pragma unroll
        for (int k = 0; k < cluster_blocks; k++) {
            const unsigned block = cluster_address(b.base, k);
            lse[k] = ld_shared_cluster_f32(block + lse_at);
            ld_shared_cluster_v4_u32(block + from, x[k][0], x[k][1], x[k][2], x[k][3]);
        }
#pragma unroll
        for (int k = 0; k < cluster_blocks; k++)
            top = fmaxf(top, lse[k]);
#pragma unroll
        for (int k = 0; k < cluster_blocks; k++) {
            const float weight = lse[k] == minus_infinity() ? 0.f : exp2_fast(lse[k] - top);
            all += weight;
            if (weight != 0.f) // what lies in a block that had no tile may be anything
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const float2 two = to_float2<T>(x[k][n]);
                    out[2 * n] = fmaf(weight, two.x, out[2 * n]);
                    out[2 * n + 1] = fmaf(weight, two.y, out[2 * n + 1]);
                }
        }
        const float factor = all != 0.f ? rcp_fast(all) : 0.f;
        const mla_row at(p, w.tokens, w.first_row + row);
        unsigned packed[4];
#pragma unroll
        for (int n = 0; n < 4; n++)
            packed[n] = pack2<T>(out[2 * n] * factor, out[2 * n + 1] * factor);
        transpose_quad(packed);
        if (valid)
            st_global_v4_u32(at.o(p) + chunk * 8, packed);
        if (valid && chunk == 0 && p.lse) {
            const float row_lse = all != 0.f ? top + log2_fast(all) : minus_infinity();
            *at.lse(p) = p.lse_base_2 ? row_lse : row_lse * ln_2;
        }
    }
    cluster_arrive();
    cluster_wait();
}

} // namespace
