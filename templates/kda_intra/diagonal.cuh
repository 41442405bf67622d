// kda_intra: diagonal blocks of scores where gates have no bound.
#pragma once

#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace kda_intra {

// A lane's channels of any row.
template <int channels>
__device__ __forceinline__ lane_row<channels> load_lane(unsigned base, int row, int chunk, int byte)
{
    lane_row<channels> x;
    const unsigned at = chunk_at(base, row, chunk) + byte;
    if constexpr (channels == 4)
        ld_shared_v2_u32(at, x.word[0], x.word[1]);
    else
        x.word[0] = ld_shared_u32(at);
    return x;
}

// A warp's columns of a diagonal block, every other one: 2^(G_i - G_j) of each element by itself, at most 1.
template <bool wide, class S>
__device__ __forceinline__ void exact_diagonal(const gen_kda_intra_params &p, const chunk_work<S> &b, int r, int first)
{
    const int lane = threadIdx.x % 32;
    const unsigned from = b.base + S::gates + lane * S::channels * 4;
    const int byte = lane * S::channels * 2, chunk = byte / 16; // of the lane's channels in a row
#pragma unroll 1
    for (int j = 16 * r + first; j < 16 * r + 16; j += 2) {
        float k_j[S::channels], g_j[S::channels];
        unpack<typename S::element>(load_lane<S::channels>(b.base + S::k_in, j, chunk, byte % 16), k_j);
        load_shared_floats(from + j * S::head_dim * 4, g_j);
        const float k_norm = ld_shared_f32(b.base + S::norm_factors + (rows + j) * 4);
        const float scale = wide ? p.scale * fold_of(p, b, j / 8) : p.scale;
#pragma unroll 1
        for (int i = 16 * r; i < 16 * r + 16; i++) {
            float q_i[S::channels], k_i[S::channels], g_i[S::channels], aq = 0.f, ak = 0.f;
            if (i >= j) {
                unpack<typename S::element>(load_lane<S::channels>(b.base + S::q_in, i, chunk, byte % 16), q_i);
                unpack<typename S::element>(load_lane<S::channels>(b.base + S::k_in, i, chunk, byte % 16), k_i);
                load_shared_floats(from + i * S::head_dim * 4, g_i);
#pragma unroll
                for (int c = 0; c < S::channels; c++) {
                    const float x = k_j[c] * exp2_fast(g_i[c] - g_j[c]);
                    aq = fmaf(q_i[c], x, aq);
                    ak = fmaf(k_i[c], x, ak);
                }
#pragma unroll
                for (int distance = 16; distance; distance /= 2) {
                    aq += __shfl_xor_sync(0xffffffffu, aq, distance);
                    ak += __shfl_xor_sync(0xffffffffu, ak, distance);
                }
                aq *= k_norm * ld_shared_f32(b.base + S::norm_factors + i * 4) * scale;
                ak *= k_norm * ld_shared_f32(b.base + S::norm_factors + (rows + i) * 4) *
                      ld_shared_f32(b.base + S::betas + i * 4);
            }
            if (lane == 0) {
                st_shared_u16(chunk_at(b.base + S::scores, i, j / 8) + j % 8 * 2, from_float<typename S::element>(aq));
                st_shared_f32(b.base + S::diagonals + r * 1024 + ((j % 16) * 16 + i % 16) * 4, i > j ? ak : 0.f);
            }
        }
    }
}

} // namespace kda_intra
