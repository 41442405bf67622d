// The portable kernel of mla_decode: scores of a tile, and their softmax.
//
// Scores and probabilities live in fragments: element i of tile n is row lane / 4 + 8 (i / 2), column
// 8 n + 2 (lane % 4) + i % 2.
#pragma once

#include "mla_decode/mma_copy.cuh"
#include "lib/e4m3.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/reduce.cuh"
#include "lib/swizzle.cuh"

// The first fragments of a warp's queries and keys: the RoPE columns of its part, and its latent ones. Within 128 bytes the
// next step is an XOR.
template <class S> struct mla_score_fragments {
    unsigned q[S::row_tiles], q_rope[S::row_tiles];
    unsigned k[S::loads], k_rope[S::loads];
    static constexpr int key_bytes = 16 * S::element_bytes; // of a step

    __device__ __forceinline__ mla_score_fragments(const mla_warp<S> &w, unsigned memory, unsigned stage)
    {
        // Matrices: rows 0-7 and 8-15 of columns 0-7, then of 8-15.
        const unsigned line = w.lane % 16, chunk = w.lane / 16;
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++) {
            const unsigned row = w.row_group * S::rows + w.row_tile(m) * 16 + line;
            q[m] = swizzled<S::q_pitch>(memory, row, w.part * S::latent_steps * 2 + chunk);
            q_rope[m] = swizzled<S::q_rope_pitch>(memory + S::q_rope_at, row, w.part * S::rope_steps * 2 + chunk);
        }
        // Columns 0-7 and 8-15 of a step for key tile 0, then for tile 1; or of two steps for one tile.
        constexpr bool one = S::column_tiles == 1;
        const unsigned deep = one ? w.lane / 8 : w.lane / 8 % 2;
#pragma unroll
        for (int n = 0; n < S::loads; n++) {
            const unsigned row =
                w.column_group * S::columns + w.column_tile(one ? 0 : 2 * n + w.lane / 16) * 8 + w.lane % 8;
            k[n] = swizzled<S::pitch>(stage, row, w.part * (S::latent_steps * key_bytes / 16) + deep);
            k_rope[n] =
                swizzled<S::rope_pitch>(stage + S::rope_at, row, w.part * (S::rope_steps * key_bytes / 16) + deep);
        }
    }

    // Of a rotary step.
    __device__ __forceinline__ void load_rotary_queries(int step, unsigned (&a)[S::row_tiles][4]) const
    {
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++)
            ldmatrix_x4(a[m], q_rope[m] ^ (step * 32));
    }

    __device__ __forceinline__ void load_rotary_keys(int step, unsigned (&b)[S::loads][4]) const
    {
#pragma unroll
        for (int n = 0; n < S::loads; n++)
            ldmatrix_x4(b[n], k_rope[n] ^ (step * key_bytes));
    }

    // Of a latent step of the group that the addresses are at, or the first of the next one.
    __device__ __forceinline__ void load_queries(int step, unsigned (&a)[S::row_tiles][4]) const
    {
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++)
            ldmatrix_x4(a[m], (q[m] ^ (step % 4 * 32)) + step / 4 * 128);
    }

    // Of `span` steps.
    __device__ __forceinline__ void load_keys(int step, unsigned (&b)[S::loads][4]) const
    {
#pragma unroll
        for (int n = 0; n < S::loads; n++)
            ldmatrix_x4(b[n], (k[n] ^ (step % S::group * key_bytes)) + step / S::group * 128);
    }

    __device__ __forceinline__ void advance()
    {
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++)
            q[m] += S::group * 32;
#pragma unroll
        for (int n = 0; n < S::loads; n++)
            k[n] += 128;
    }
};

template <class S> using mla_sums = float[S::chains][S::row_tiles][S::column_tiles][4];

// Both column tiles of a load at one step of its span, as the b operands of two products.
template <class S>
__device__ __forceinline__ void mla_key_operands(const unsigned (&load)[4], int step, unsigned (&b)[2][2])
{
    if constexpr (S::e4m3) {
        e4m3_pairs<typename S::element>(load[step % 2], b[0][0], b[0][1]);
        e4m3_pairs<typename S::element>(load[2 + step % 2], b[1][0], b[1][1]);
    } else if constexpr (S::span == 2) {
        b[0][0] = load[step % 2 * 2];
        b[0][1] = load[step % 2 * 2 + 1];
    } else {
        b[0][0] = load[0];
        b[0][1] = load[1];
        b[1][0] = load[2];
        b[1][1] = load[3];
    }
}

// Keys that are NaN make their scores NaN, where the conversion did not: nan[n] has the flags of the key that the lane reads
// in column tile n.
template <class S>
__device__ __forceinline__ void mla_poison(const unsigned (&nan)[S::column_tiles], mla_sums<S> &s, int lane)
{
    unsigned any = 0;
#pragma unroll
    for (int n = 0; n < S::column_tiles; n++)
        any |= nan[n];
    if (!__any_sync(0xffffffffu, any & 0x80808080u))
        return;
#pragma unroll
    for (int n = 0; n < S::column_tiles; n++) {
        unsigned flags = nan[n] & 0x80808080u;
        flags |= __shfl_xor_sync(0xffffffffu, flags, 1);
        flags |= __shfl_xor_sync(0xffffffffu, flags, 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool bad = __shfl_sync(0xffffffffu, flags, (2 * (lane % 4) + i) * 4) != 0;
#pragma unroll
            for (int m = 0; m < S::row_tiles; m++) {
                s[0][m][n][i] = bad ? __uint_as_float(0x7fffffffu) : s[0][m][n][i];
                s[0][m][n][i + 2] = bad ? __uint_as_float(0x7fffffffu) : s[0][m][n][i + 2];
            }
        }
    }
}

// The products of one step.
template <class S>
__device__ __forceinline__ void mla_multiply_keys(int step, const unsigned (&a)[S::row_tiles][4],
                                                  const unsigned (&b)[S::loads][4], mla_sums<S> &s,
                                                  unsigned (&nan)[S::column_tiles])
{
    using T = typename S::element;
#pragma unroll
    for (int n = 0; n < S::loads; n++) {
        unsigned operand[2][2];
        mla_key_operands<S>(b[n], step, operand);
#pragma unroll
        for (int i = 0; i < 2 && 2 * n + i < S::column_tiles; i++) {
            if constexpr (S::e4m3 && !e4m3_keeps_nan<T>())
                nan[2 * n + i] |= e4m3_nan(b[n][2 * i + step % 2]);
#pragma unroll
            for (int m = 0; m < S::row_tiles; m++)
                mma_m16n8k16<T>(s[step % S::chains][m][2 * n + i], a[m], operand[i][0], operand[i][1]);
        }
    }
}

// The steps along 128 bytes of latent keys, group `g` of them. Behind the `last` ones nothing is loaded.
template <class S, class Copy>
__device__ __forceinline__ void mla_scores_of_group(int g, bool last, mla_score_fragments<S> &f,
                                                    unsigned (&a)[2][S::row_tiles][4], unsigned (&b)[2][S::loads][4],
                                                    mla_sums<S> &s, unsigned (&nan)[S::column_tiles], Copy &copy)
{
#pragma unroll
    for (int step = 0; step < S::group; step++) {
        if (step + 1 < S::group || !last) {
            f.load_queries(step + 1, a[(step + 1) % 2]);
            if ((step + 1) % S::span == 0)
                f.load_keys(step + 1, b[(step + 1) / S::span % 2]);
        }
        copy.latent(g, step, S::group);
        mla_multiply_keys<S>(step, a[step % 2], b[step / S::span % 2], s, nan);
    }
    f.advance();
    copy.advance();
}

// The warp's part of the scores of the tile in `stage`. The copies of another tile are issued between the products.
template <class S, class Copy>
__device__ __forceinline__ void mla_scores(const mla_warp<S> &w, mla_score_fragments<S> &f, float kpe_factor,
                                           mla_sums<S> &s, Copy &copy)
{
    constexpr int span = S::span, rope_steps = S::rope_steps, groups = S::groups;
    // The buffer of keys that rotary steps begin with: latent ones begin with 0.
    constexpr int odd = rope_steps / span % 2;
    unsigned a[2][S::row_tiles][4], b[2][S::loads][4], nan[S::column_tiles];
#pragma unroll
    for (int n = 0; n < S::column_tiles; n++)
        nan[n] = 0;
#pragma unroll
    for (int i = 0; i < S::chains * S::row_tiles * S::column_tiles * 4; i++)
        (&s[0][0][0][0])[i] = 0.f;
    if constexpr (S::rope) {
        f.load_rotary_queries(0, a[0]);
        f.load_rotary_keys(0, b[odd]);
#pragma unroll
        for (int step = 0; step < rope_steps; step++) {
            if (step + 1 < rope_steps) {
                f.load_rotary_queries(step + 1, a[(step + 1) % 2]);
                if ((step + 1) % span == 0)
                    f.load_rotary_keys(step + 1, b[((step + 1) / span + odd) % 2]);
            } else {
                f.load_queries(0, a[0]);
                f.load_keys(0, b[0]);
            }
            copy.rotary(step, rope_steps);
            mla_multiply_keys<S>(step, a[step % 2], b[(step / span + odd) % 2], s, nan);
        }
        // Part 0 will write over the rotary keys. Both meet, for racecheck does not follow one that goes on.
        if (S::overlay)
            barrier_sync(mla_overlay_barrier + w.column_group, 128);
        if (S::e4m3)
#pragma unroll
            for (int i = 0; i < S::chains * S::row_tiles * S::column_tiles * 4; i++)
                (&s[0][0][0][0])[i] *= kpe_factor;
    } else {
        f.load_queries(0, a[0]);
        f.load_keys(0, b[0]);
    }
    // The last group is a copy of its own, since ptxas would wait at the branch; beside conversions there are no
    // registers for it.
    constexpr int together = groups - (S::e4m3 ? 0 : 1);
#pragma unroll 1
    for (int g = 0; g < together; g++)
        mla_scores_of_group<S>(g, g + 1 == groups, f, a, b, s, nan, copy);
    if (together < groups)
        mla_scores_of_group<S>(groups - 1, true, f, a, b, s, nan, copy);
    if constexpr (S::chains == 2)
#pragma unroll
        for (int i = 0; i < S::row_tiles * S::column_tiles * 4; i++)
            (&s[0][0][0][0])[i] += (&s[1][0][0][0])[i];
    if constexpr (S::e4m3 && !e4m3_keeps_nan<typename S::element>())
        mla_poison<S>(nan, s, w.lane);
}

// The parts exchange the scores that the other one owns, and add them. `inbox[part]` is where a part finds its own.
template <class S>
__device__ __forceinline__ void mla_add_parts(const mla_warp<S> &w, unsigned memory, unsigned stage, mla_sums<S> &s)
{
    constexpr int tiles = S::own_tiles, bytes = tiles * 512; // of a warp
    const unsigned early = memory + S::exchange_at + w.pair * bytes;
    const unsigned late = S::overlay ? stage + S::rope_at + w.pair * bytes : early + 4 * bytes;
    const unsigned out = (w.part ? early : late) + w.lane * 16, in = (w.part ? late : early) + w.lane * 16;
    if (S::by_rows || S::column_tiles > 1 || w.part == 1) {
#pragma unroll
        for (int n = 0; n < tiles; n++) {
            const float(&x)[4] = S::by_rows ? s[0][S::row_tiles - 1][n] : s[0][0][S::column_tiles > 1 ? tiles + n : 0];
            st_shared_v4_f32(out + n * 512, make_float4(x[0], x[1], x[2], x[3]));
        }
    }
    barrier_sync(mla_pair_barrier + w.pair, 64);
    if (w.owns) {
#pragma unroll
        for (int n = 0; n < tiles; n++) {
            const float4 x = ld_shared_v4_f32(in + n * 512);
            s[0][0][n][0] += x.x;
            s[0][0][n][1] += x.y;
            s[0][0][n][2] += x.z;
            s[0][0][n][3] += x.w;
        }
    }
}

// What the owners of a row know of it. Scores are in base 2; probabilities are 2^(s - reference), where the reference is
// `lift` below a maximum of the row, and moves on only where a tile's maximum is more than 2^threshold above that (thresholded rescale
// of docs/perf/mla_decode.md): they reach 2^(lift + threshold). The lift keeps small ones out of fp16's subnormals. References
// of rows that several warps own are in shared memory. Each owner sums its own columns: as rounded, what the output is
// divided by, so that its weights add up to one; and exactly, for the log-sum-exp, which a dominant probability's rounding
// would show in.
struct mla_sum {
    float sum; // the first lane of four has the first row's as rounded, the second exactly; the others the second row's

    // The sums of a tile, by row as rounded and exactly.
    __device__ __forceinline__ void add(float (&sums)[4], const float (&factor)[2])
    {
        reduce_rows<4, 4>(sums);
        sum = sum * (threadIdx.x & 2 ? factor[1] : factor[0]) + sums[0];
    }

    __device__ __forceinline__ float rounded(int h) const { return __shfl_sync(0xffffffffu, sum, 2 * h, 4); }
    __device__ __forceinline__ float exact(int h) const { return __shfl_sync(0xffffffffu, sum, 2 * h + 1, 4); }
};

// The same where a warp has registers for it: rounded ones by a product with ones, whose result every lane of four has, exact
// ones by thread.
template <class S> struct mla_own_sums {
    float by_ones[4], by_thread[2];

    __device__ __forceinline__ void reset()
    {
        by_ones[0] = by_ones[1] = by_ones[2] = by_ones[3] = by_thread[0] = by_thread[1] = 0.f;
    }

    __device__ __forceinline__ void rescale(const float (&factor)[2])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            by_ones[i] *= factor[i / 2];
        by_thread[0] *= factor[0];
        by_thread[1] *= factor[1];
    }

    // Rounded ones; exact ones the thread adds itself.
    __device__ __forceinline__ void add(const unsigned (&packed)[S::own_tiles][2])
    {
        using T = typename S::element;
        constexpr unsigned ones = T::is_bf16 ? 0x3f803f80u : 0x3c003c00u;
#pragma unroll
        for (int n = 0; n < S::own_tiles; n += 2) { // probabilities are the fragments of a first operand as they are
            const unsigned a[4] = {packed[n][0], packed[n][1], packed[n + 1][0], packed[n + 1][1]};
            mma_m16n8k16<T>(by_ones, a, ones, ones);
        }
    }

    __device__ __forceinline__ float rounded(int h) const
    {
        return by_ones[2 * h];
    }

    __device__ __forceinline__ float exact(int h) const
    {
        float sum = by_thread[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
    }
};

// -infinity where a score does not count. `its_row` is the row tile's first.
template <class S>
__device__ __forceinline__ void mla_mask(const gen_mla_decode_params &p, const mla_work &work, const mla_warp<S> &w,
                                         unsigned its_row, int first, float (&s)[S::column_tiles][4])
{
    const int column = first + static_cast<int>(w.column + 2 * (w.lane % 4));
    const int row = work.first_row<S>() + static_cast<int>(its_row + w.lane / 4);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int limit = mla_limit(p, work.tokens, row + 8 * h, work.piece.kv_len) - column;
#pragma unroll
        for (int n = 0; n < S::own_tiles; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                s[n][2 * h + i] = 8 * n + i < limit ? s[n][2 * h + i] : minus_infinity();
    }
}

// The greatest of each row of the warp's own.
template <class S> __device__ __forceinline__ void mla_greatest(const float (&s)[S::column_tiles][4], float (&top)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < S::own_tiles; n++)
            top[h] = fmaxf(top[h], fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
    }
}

// Scores to base 2, -infinity where they do not count, and the greatest ones.
template <class S>
__device__ __forceinline__ void mla_scale(const gen_mla_decode_params &p, const mla_work &work, const mla_warp<S> &w,
                                          int first, float (&s)[S::column_tiles][4], float (&top)[2])
{
#pragma unroll
    for (int n = 0; n < S::own_tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] *= p.scale_log2;
    if (first + S::kv > work.whole)
        mla_mask<S>(p, work, w, w.row, first, s);
    mla_greatest<S>(s, top);
}

template <class S> constexpr float mla_lift = S::element::is_bf16 ? 0.f : 6.f;
constexpr float mla_threshold = 8.f;

template <class S> __device__ __forceinline__ bool mla_above(float reference, float top)
{
    return top > reference + (mla_lift<S> + mla_threshold);
}

// The reference follows `top`; `factor` is what earlier sums and outputs are to be multiplied by. True if that is not 1.
template <class S>
__device__ __forceinline__ bool mla_follow(float (&reference)[2], const float (&top)[2], float (&factor)[2])
{
    bool moved = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        factor[h] = 1.f;
        if (mla_above<S>(reference[h], top[h])) {
            const float next = top[h] - mla_lift<S>;
            if (reference[h] != minus_infinity()) { // else sums and outputs are zero
                factor[h] = exp2_fast(reference[h] - next);
                moved = true;
            }
            reference[h] = next;
        }
    }
    return moved;
}

// Probabilities in 16 bits, and their sums for mla_sum::add(). packed[n][h]: two columns of row lane / 4 + 8 h.
template <class S>
__device__ __forceinline__ void mla_exponentials(const float (&s)[S::column_tiles][4], const float (&reference)[2],
                                                 unsigned (&packed)[S::own_tiles][2], float (&sums)[4])
{
    using T = typename S::element;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float neg_max = reference[h] == minus_infinity() ? 0.f : reference[h]; // no score yet: 2^-infinity = 0
        sums[2 * h] = sums[2 * h + 1] = 0.f;
#pragma unroll
        for (int n = 0; n < S::own_tiles; n++) {
            const float a = exp2_fast(s[n][2 * h] - neg_max), b = exp2_fast(s[n][2 * h + 1] - neg_max);
            packed[n][h] = pack2<T>(a, b);
            const float2 rounded = to_float2<T>(packed[n][h]);
            sums[2 * h] += rounded.x + rounded.y;
            sums[2 * h + 1] += a + b;
        }
    }
}

// The same of scores that are still to be multiplied by `scale`; the exact sums are added to `sums`.
template <class S>
__device__ __forceinline__ void mla_scaled_exponentials(const float (&s)[S::column_tiles][4], float scale,
                                                        const float (&reference)[2],
                                                        unsigned (&packed)[S::own_tiles][2], float (&sums)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float neg_max = reference[h] == minus_infinity() ? 0.f : reference[h];
        float sum[2] = {0.f, 0.f};
#pragma unroll
        for (int n = 0; n < S::own_tiles; n++) {
            const float a = exp2_fast(fmaf(s[n][2 * h], scale, -neg_max)),
                        b = exp2_fast(fmaf(s[n][2 * h + 1], scale, -neg_max));
            packed[n][h] = pack2<typename S::element>(a, b);
            sum[0] += a;
            sum[1] += b;
        }
        sums[h] += sum[0] + sum[1];
    }
}
