// kda_intra: scores of rows and columns, 16 x 16 at a time.
#pragma once

#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

namespace kda_intra {

// 16 x 16 of both score matrices: rows of block r, columns of block s.
template <bool wide, class S>
__device__ __forceinline__ void score_block(const gen_kda_intra_params &p, const chunk_work<S> &b, int r, int s)
{
    const int lane = threadIdx.x % 32, row = 16 * r + lane / 4, column = 16 * s + lane % 4 * 2;
    const int vector = middle_vector(r, s);
    const unsigned factors = b.base + S::middle + (vector * S::head_dim + lane % 4 * 2) * 4;
    float aq[2][4] = {}, ak[2][4] = {};
    if (vector >= 0)
        multiply_scores<S::head_dim, true, wide>(b.base, r, s, factors, aq, ak);
    else
        multiply_scores<S::head_dim, false, wide>(b.base, r, s, factors, aq, ak);
    const unsigned diagonal = b.base + S::diagonals + r * 1024; // transposed, fp32
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = row + 8 * h;
        const float beta = ld_shared_f32(b.base + S::betas + i * 4);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int j = column + 8 * n;
            const float scale = wide ? p.scale * fold_of(p, b, 2 * s + n) : p.scale;
            const float x = j <= i ? aq[n][2 * h] * scale : 0.f, y = j + 1 <= i ? aq[n][2 * h + 1] * scale : 0.f;
            st_shared_u32(chunk_at(b.base + S::scores, i, j / 8) + j % 8 * 2, pack2<typename S::element>(x, y));
            if (r == s) {
                st_shared_f32(diagonal + ((j % 16) * 16 + i % 16) * 4, j < i ? ak[n][2 * h] * beta : 0.f);
                st_shared_f32(diagonal + ((j % 16 + 1) * 16 + i % 16) * 4, j + 1 < i ? ak[n][2 * h + 1] * beta : 0.f);
            } else {
                const float l = ak[n][2 * h] * (beta * factor_scale<wide>),
                            m = ak[n][2 * h + 1] * (beta * factor_scale<wide>);
                const unsigned word = pack2<factor<wide>>(l, m);
                st_shared_u32(chunk_at(b.base + S::lower, i, j / 8) + j % 8 * 2, word);
                if constexpr (wide) // in the place of block (s, r)
                    st_shared_u32(chunk_at(b.base + S::lower, i - 16 * (r - s), j / 8 + 2 * (r - s)) + j % 8 * 2,
                                  rest2(word, l, m));
            }
        }
    }
}

} // namespace kda_intra
