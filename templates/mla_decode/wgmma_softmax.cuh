// The Hopper kernel of mla_decode: scores to probabilities, relative to a maximum that moves only where it must.
#pragma once

#include "mla_decode/rows.cuh"
#include "lib/half.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/math.cuh"

namespace {

constexpr float threshold = 8.f;
constexpr float most_sum = 8192.f; // of 16 probabilities: above it, one is more than 2^threshold

// `T`: of what products take.
template <class T> struct group_state {
    float o[128]; // rows row and row + 8 of the warp's 16, columns 256 group + 8 (i / 4) + 2 (lane % 4) + i % 2
    // -M, plus infinity as long as there is none: a first score's probability is then infinite or no number.
    float neg_max[2];
    float sum[2]; // of this thread's columns of the group's own tiles, in units of 2^M
    // Of scores, to base 2; not 0, so that times infinity it is no NaN; below 0 it reverses their order.
    float scale;
    bool started; // o holds something

    __device__ __forceinline__ explicit group_state(const gen_mla_decode_params &p)
        : scale(p.scale_log2 < 0.f ? fminf(p.scale_log2, -1e-37f) : fmaxf(p.scale_log2, 1e-37f))
    {
    }

    __device__ __forceinline__ void reset()
    {
        neg_max[0] = neg_max[1] = -minus_infinity();
        sum[0] = sum[1] = 0.f;
        started = false;
    }

    // Rescales to another M. Nothing may be in flight.
    __device__ __forceinline__ void rescale_to(const float (&to)[2])
    {
        float factor[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            factor[h] = neg_max[h] == to[h] ? 1.f : exp2_fast(to[h] - neg_max[h]);
            sum[h] *= factor[h];
            neg_max[h] = to[h];
        }
        if (started)
#pragma unroll
            for (int i = 0; i < 128; i++)
                o[i] *= factor[i / 2 % 2];
    }
};

// Probabilities of scores relative to M as fragments, and what the thread has of the rows' sums of them.
template <class T>
__device__ __forceinline__ void exponentiate(const float (&s)[32], const float (&neg_max)[2], float scale,
                                             unsigned (&packed)[16], float (&sum)[2])
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int h = i % 2;
        const float a = exp2_fast(fmaf(s[2 * i], scale, neg_max[h])),
                    b = exp2_fast(fmaf(s[2 * i + 1], scale, neg_max[h]));
        // Before their rounding: M is not always the maximum, so that may be rounded, too.
        sum[h] = i < 2 ? a + b : sum[h] + (a + b);
        packed[i] = pack2<T>(a, b);
    }
}

// -M, moved on to the rows' maxima where they are more than 2^threshold above it.
__device__ __forceinline__ void move_maximum(float (&neg_max)[2], const float (&s)[32], float scale)
{
    float most[2] = {minus_infinity(), minus_infinity()};
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float x = s[i];
        opaque(x); // not ahead of the branch that tests whether it is needed
        most[i / 2 % 2] = fmaxf(most[i / 2 % 2], x * scale);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        most[h] = mla_most_of_quad(most[h]);
        if (most[h] > threshold - neg_max[h])
            neg_max[h] = 0.f - most[h]; // of zeros the positive one, whatever the sign: -M is compared as bits
    }
}

// Moves M, and the output with it; `neg_max` is what is added to scaled scores then, and every sum is below `most`.
template <class T>
__device__ __forceinline__ void follow_maximum(group_state<T> &g, const float (&s)[32], float (&neg_max)[2],
                                               unsigned &most)
{
    float to[2] = {g.neg_max[0], g.neg_max[1]};
    move_maximum(to, s, g.scale);
    g.rescale_to(to);
#pragma unroll
    for (int h = 0; h < 2; h++)
        neg_max[h] = to[h] == -minus_infinity() ? 0.f : to[h]; // every score is minus infinity
    most = ~0u;
}

// Turns scores into probabilities relative to M. The probabilities' sums show whether M must move, so nearly always no
// maximum is computed. With `inner` there is an M already, and the usual path has one branch; else it is tested first
// whether there is one. No output may be in flight, because it is rescaled with M.
template <bool inner, class T>
__device__ __forceinline__ void softmax(group_state<T> &g, const float (&s)[32], unsigned (&packed)[16])
{
    float neg_max[2] = {g.neg_max[0], g.neg_max[1]}, sum[2];
    unsigned most = __float_as_uint(most_sum); // sums are not negative; what is no number is above as bits
    bool moves = !inner && __any_sync(0xffffffffu, fmaxf(neg_max[0], neg_max[1]) == -minus_infinity());
#pragma unroll 1
    for (;; moves = true) {
        if (!inner && moves)
            follow_maximum(g, s, neg_max, most);
        exponentiate<T>(s, neg_max, g.scale, packed, sum);
        if (!__any_sync(0xffffffffu, __float_as_uint(sum[0]) > most || __float_as_uint(sum[1]) > most))
            break;
        if (inner)
            follow_maximum(g, s, neg_max, most);
    }
    g.sum[0] += sum[0];
    g.sum[1] += sum[1];
}

// Scores of the cache rows from the limits on do not count. `column`: of the thread's first score.
__device__ __forceinline__ void mask_rows(float (&s)[32], int column, const int (&limit)[2], float scale)
{
    const float hidden = scale < 0.f ? -minus_infinity() : minus_infinity(); // the latter once it is scaled
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (column + i / 4 * 8 + i % 2 >= limit[i / 2 % 2])
            s[i] = hidden;
}

} // namespace
