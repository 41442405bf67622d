// The stream kernel of attn_paged: queries of a piece, by way of registers to shared memory. A thread has 16 columns at once.
#pragma once

#include "attn_paged/rows.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/swizzle.cuh"

template <class S> struct paged_queries {
    static constexpr int lanes = S::dim / 16, each = (S::tile_rows * lanes + S::threads - 1) / S::threads;
    unsigned x[each][8];
    float scale; // of the piece

    __device__ __forceinline__ void load(const gen_attn_paged_params &p, const paged_piece &piece)
    {
        scale = paged_scale_of(p, piece);
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int unit = i * S::threads + static_cast<int>(threadIdx.x), row = unit / lanes;
#pragma unroll
            for (int k = 0; k < 8; k++)
                x[i][k] = 0;
            if (row >= piece.rows)
                continue;
            const paged_row at(p, piece, row);
            const unsigned short *const from = static_cast<const unsigned short *>(p.q) + at.token * p.q_token +
                                               at.head * p.q_head + unit % lanes * 16;
            unsigned half[4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                ld_global_v4_u32(half, from + 8 * h);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    x[i][4 * h + k] = half[k];
            }
        }
    }

    // Of bf16 times a power of two that brings the row's greatest to 2^13 to 2^14, in fp16; the other power's inverse goes to
    // the row's factor.
    __device__ __forceinline__ static float to_fp16(unsigned (&words)[8])
    {
        unsigned most = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            most = max(most, max(words[k] & 0x7fff, words[k] >> 16 & 0x7fff));
#pragma unroll
        for (int distance = 1; distance < lanes; distance *= 2)
            most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
        const unsigned exponent = min(267 - (most >> 7), 253u);
        const float up = __uint_as_float(exponent << 23);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float2 pair = to_float2<bf16>(words[k]);
            words[k] = pack2<fp16>(pair.x * up, pair.y * up);
        }
        return __uint_as_float((254 - exponent) << 23);
    }

    // No warp reads the queries in shared memory now.
    __device__ __forceinline__ void store(unsigned queries, float *factors)
    {
#pragma unroll
        for (int i = 0; i < each; i++) {
            const unsigned unit = i * S::threads + threadIdx.x, row = unit / lanes, chunk = unit % lanes * 2;
            float factor = 1.f;
            if constexpr (S::e4m3 && S::element::is_bf16)
                factor = to_fp16(x[i]); // all lanes
            if (row >= S::tile_rows)
                continue;
            if (S::e4m3 && chunk == 0)
                factors[row] = factor;
            const unsigned lo = swizzled<S::dim * 2>(queries, row, chunk);
            const unsigned hi = swizzled<S::dim * 2>(queries, row, chunk + 1);
            const unsigned(&w)[8] = x[i];
            if constexpr (S::e4m3) { // even columns, then odd ones: as ldmatrix and e4m3_pairs() hand out keys
                st_shared_v4_u32(lo, __byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410),
                                 __byte_perm(w[4], w[5], 0x5410), __byte_perm(w[6], w[7], 0x5410));
                st_shared_v4_u32(hi, __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632),
                                 __byte_perm(w[4], w[5], 0x7632), __byte_perm(w[6], w[7], 0x7632));
            } else {
                st_shared_v4_u32(lo, w[0], w[1], w[2], w[3]);
                st_shared_v4_u32(hi, w[4], w[5], w[6], w[7]);
            }
        }
    }
};
