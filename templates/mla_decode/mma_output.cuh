// The portable kernel of mla_decode: probabilities times values, and what is written in the end.
//
// Element i of output tile (m, n) is row 16 m + lane / 4 + 8 (i / 2) of the warp's slab. Of a 16-bit cache its column is
// 8 n + 2 (lane % 4) + i % 2 of the warp's; of an 8-bit one, whose values come in pairs of columns,
// 16 (n / 2) + 4 (lane % 4) + 2 (i % 2) + n % 2: four neighbours are one lane's.
#pragma once

#include "mla_decode/mma_copy.cuh"
#include "lib/e4m3.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"
#include "lib/transpose.cuh"

template <class S> struct mla_output {
    float o[S::slab_tiles][S::output_tiles][4];

    __device__ __forceinline__ void reset()
    {
#pragma unroll
        for (int i = 0; i < S::slab_tiles * S::output_tiles * 4; i++)
            (&o[0][0][0])[i] = 0.f;
    }

    __device__ __forceinline__ void rescale(const float (&factor)[S::slab_tiles][2])
    {
#pragma unroll
        for (int m = 0; m < S::slab_tiles; m++)
#pragma unroll
            for (int n = 0; n < S::output_tiles; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[m][n][i] *= factor[m][i / 2];
    }

    // Multiplies `count` row tiles from `first` by factors in shared memory, the lane's first row's at `factors`. It
    // takes few at a time, because few registers are left beside the output.
    template <int count> __device__ __forceinline__ void rescale(int first, const float *factors)
    {
#pragma unroll
        for (int m = 0; m < count; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float factor = factors[16 * m + 8 * h];
#pragma unroll
                for (int n = 0; n < S::output_tiles; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        o[first + m][n][2 * h + i] *= factor;
            }
    }
};

// Where probabilities lie that others are to multiply: q x kv, 16 bits.
template <class S>
__device__ __forceinline__ void mla_store_probabilities(const mla_warp<S> &w, unsigned its_row, unsigned memory,
                                                        const unsigned (&packed)[S::own_tiles][2])
{
#pragma unroll
    for (int n = 0; n < S::own_tiles; n++) {
        // Every eighth row has the same swizzle.
        const unsigned to =
            swizzled<S::p_pitch>(memory + S::exchange_at, w.row + w.lane / 4, w.column / 8 + n) + w.lane % 4 * 4;
#pragma unroll
        for (int h = 0; h < 2; h++)
            st_shared_u32(to + (its_row - w.row + 8 * h) * S::p_pitch, packed[n][h]);
    }
}

// Where a warp's fragments start.
template <class S> struct mla_output_fragments {
    unsigned p, v;

    __device__ __forceinline__ mla_output_fragments(const mla_warp<S> &w, unsigned memory)
    {
        if constexpr (S::shard)
            p = swizzled<S::p_pitch>(memory + S::exchange_at, w.slab * S::slab + w.lane % 16, w.lane / 16);
        // Matrices: rows 0-7 and 8-15 of one chunk of columns, then of the next.
        v = swizzled<S::pitch>(0, w.lane % 16,
                               w.output_group * (S::output_columns * S::element_bytes / 16) + w.lane / 16);
    }

    __device__ __forceinline__ void load_probabilities(int step, unsigned (&a)[S::slab_tiles][4]) const
    {
#pragma unroll
        for (int m = 0; m < S::slab_tiles; m++)
            ldmatrix_x4(a[m], (p ^ (step * 32)) + m * 16 * S::p_pitch);
    }

    __device__ __forceinline__ void load_values(unsigned stage, int step, int n, unsigned (&b)[4]) const
    {
        ldmatrix_x4_trans(b, stage + (v ^ (n % 4 * 32)) + n / 4 * 128 + step * 16 * S::pitch);
    }
};

// The b operands of the output_span column tiles of a load of values.
template <class S>
__device__ __forceinline__ void mla_value_operands(const unsigned (&load)[4], unsigned (&b)[S::output_span][2])
{
    if constexpr (S::e4m3) {
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int deep = 0; deep < 2; deep++)
                e4m3_pairs<typename S::element>(load[2 * g + deep], b[2 * g][deep], b[2 * g + 1][deep]);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i / 2][i % 2] = load[i];
    }
}

// Adds the products with the tile in `stage`. Probabilities come from shared memory, or are the warp's own.
template <class S>
__device__ __forceinline__ void mla_multiply_values(const mla_warp<S> &w, unsigned memory, unsigned stage,
                                                    const unsigned (&packed)[S::own_tiles][2], mla_output<S> &x)
{
    mla_output_fragments<S> f(w, memory);
    constexpr int steps = S::kv / 16, loads = S::output_tiles / S::output_span;
    unsigned a[2][S::slab_tiles][4], b[2][4];
    if constexpr (S::shard)
        f.load_probabilities(0, a[0]);
    f.load_values(stage, 0, 0, b[0]);
    static_assert(loads % 2 == 0, "buffers take turns");
#pragma unroll
    for (int step = 0; step < steps; step++) {
        if constexpr (!S::shard)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[step % 2][0][i] = packed[2 * step + i / 2][i % 2];
#pragma unroll
        for (int n = 0; n < loads; n++) {
            if (n + 1 < loads)
                f.load_values(stage, step, n + 1, b[(n + 1) % 2]);
            else if (step + 1 < steps)
                f.load_values(stage, step + 1, 0, b[0]);
            if constexpr (S::shard)
                if (n == 0 && step + 1 < steps)
                    f.load_probabilities(step + 1, a[(step + 1) % 2]);
            unsigned operand[S::output_span][2];
            mla_value_operands<S>(b[n % 2], operand);
#pragma unroll
            for (int i = 0; i < S::output_span; i++)
#pragma unroll
                for (int m = 0; m < S::slab_tiles; m++)
                    mma_m16n8k16<typename S::element>(x.o[m][n * S::output_span + i], a[step % 2][m], operand[i][0],
                                                      operand[i][1]);
        }
    }
}

// A row's log-sum-exp: to the output, or in base 2 to the piece's slot.
template <class S>
__device__ __forceinline__ void mla_write_lse(const gen_mla_decode_params &p, const mla_work &work, int row,
                                              float reference, float sum)
{
    if (row >= work.num_rows)
        return;
    const float lse = sum == 0.f ? minus_infinity() : reference + log2f(sum);
    const int packed = work.first_row<S>() + row;
    if (work.piece.slot >= 0)
        p.partial_rows[static_cast<long long>(work.piece.slot) * (p.q_len * p.num_heads) + packed].lse = lse;
    else if (p.lse)
        *mla_row(p, work.tokens, packed).lse(p) = p.lse_base_2 ? lse : lse * ln_2;
}

// 32 columns of a row, 16 bits each: 16 bytes a lane, all of a sector. n is the first tile.
template <class S, class T>
__device__ __forceinline__ void mla_write_columns(unsigned short *to, const float (&o)[S::output_tiles][4], int n,
                                                  int h, float factor, unsigned lane, bool mine)
{
    unsigned run[4];
    if constexpr (S::e4m3) {
        const bool odd = lane & 1; // even lanes take 8 columns of the first 16, odd ones of the second
        unsigned word[2][2];
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                word[g][i] = pack2<T>(o[n + 2 * g][2 * h + i] * factor, o[n + 2 * g + 1][2 * h + i] * factor);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? word[0][i] : word[1][i], 1);
            run[i] = odd ? other : word[0][i];
            run[2 + i] = odd ? word[1][i] : other;
        }
        to += lane % 2 * 16 + lane % 4 / 2 * 8;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            run[i] = pack2<T>(o[n + i][2 * h] * factor, o[n + i][2 * h + 1] * factor);
        transpose_quad(run);
        to += lane % 4 * 8;
    }
    if (mine)
        st_global_v4_u32(to + n * 8, run);
}

// The warp's columns of a row of a partial result.
template <class S>
__device__ __forceinline__ void mla_write_partial(const gen_mla_decode_params &p, const mla_work &work,
                                                  const float (&o)[S::output_tiles][4], unsigned column, int h,
                                                  int packed, float factor, unsigned lane, bool mine)
{
    const long long index = static_cast<long long>(work.piece.slot) * (p.q_len * p.num_heads) + packed;
    unsigned short *const to = p.partial + index * MLA_LATENT + column;
    unsigned char *const exponents = reinterpret_cast<unsigned char *>(p.partial_rows[index].exponents) + column / 64;
#pragma unroll
    for (int c = 0; c < S::output_columns / 64; c++) {
        float most = 0.f;
#pragma unroll
        for (int n = 8 * c; n < 8 * c + 8; n++)
            most = fmaxf(most, fmaxf(fabsf(o[n][2 * h]), fabsf(o[n][2 * h + 1])));
        const unsigned exponent = mla_exponent(mla_most_of_quad(most) * factor);
#pragma unroll
        for (int n = 8 * c; n < 8 * c + 8; n += 4)
            mla_write_columns<S, fp16>(to, o, n, h, factor * mla_scale_up(exponent), lane, mine);
        if (mine && lane % 4 == 0)
            exponents[c] = static_cast<unsigned char>(exponent);
    }
}

// The warp's output times a factor a row.
template <class S>
__device__ __forceinline__ void mla_write_output(const gen_mla_decode_params &p, const mla_work &work,
                                                 const mla_warp<S> &w, const mla_output<S> &x,
                                                 const float (&factor)[S::slab_tiles][2])
{
    const unsigned column = w.output_group * S::output_columns;
#pragma unroll
    for (int m = 0; m < S::slab_tiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = static_cast<int>(w.slab * S::slab + 16 * m + 8 * h + w.lane / 4);
            const bool mine = row < work.num_rows;
            const int packed = work.first_row<S>() + (mine ? row : 0);
            if (work.piece.slot < 0) {
                unsigned short *const to = mla_row(p, work.tokens, packed).o(p) + column;
#pragma unroll
                for (int n = 0; n < S::output_tiles; n += 4)
                    mla_write_columns<S, typename S::element>(
                        to, x.o[m], n, h, S::e4m3 ? factor[m][h] * p.out_scale : factor[m][h], w.lane, mine);
            } else {
                mla_write_partial<S>(p, work, x.o[m], column, h, packed, factor[m][h], w.lane, mine);
            }
        }
    }
}
