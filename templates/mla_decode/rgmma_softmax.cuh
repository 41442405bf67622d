// The Hopper kernel of mla_decode for 8-bit caches: a tile's scores to probabilities, relative to a maximum M that moves only
// where it must.
//
// A thread has scores of two keys, lane / 4 and that + 8 of the warp's 16, for packed rows 8 i + 2 (lane % 4) + {0, 1}. M
// belongs to a packed row, so that all warps of a group have it alike: it is in shared memory, and a warp whose
// probabilities are too great publishes it at the barrier behind which all of the tile's probabilities are there.
#pragma once

#include "mla_decode/rgmma_block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/uniform.cuh"

namespace {

constexpr float threshold = 8.f;
constexpr float most_sum = 8192.f; // of a thread's probabilities: above it, one is more than 2^threshold

// What a group keeps of its output.
template <class S> struct group_state {
    // O^T, unscaled: tile m is columns 64 (warp's) + 16 m + 2 (lane / 4) + i / 2 % 2 of the half, packed row
    // 8 (i / 4) + 2 (lane % 4) + i % 2. Tiles 4 to 7 are of the other half.
    float o[S::output_tiles][S::q_rows / 2];
    // Of the thread's keys of the group's own tiles, row 8 (i / 2) + 2 (lane % 4) + i % 2; in shared memory where tiles are
    // shared.
    float sum[S::shared_tiles ? 1 : S::q_rows / 4];

    __device__ __forceinline__ void reset(unsigned sums)
    {
#pragma unroll
        for (int m = 0; m < S::output_tiles; m++)
#pragma unroll
            for (int i = 0; i < S::q_rows / 2; i++)
                o[m][i] = 0.f;
        if constexpr (S::shared_tiles)
#pragma unroll
            for (int j = 0; j < S::q_rows / 16; j++)
                st_shared_v4_f32(sums + j * 2048, make_float4(0.f, 0.f, 0.f, 0.f));
        else
#pragma unroll
            for (int i = 0; i < S::q_rows / 4; i++)
                sum[i] = 0.f;
    }

    __device__ __forceinline__ void add_sums(unsigned sums, const float (&x)[S::q_rows / 4])
    {
        if constexpr (S::shared_tiles)
#pragma unroll
            for (int j = 0; j < S::q_rows / 16; j++) {
                const float4 y = ld_shared_v4_f32(sums + j * 2048);
                st_shared_v4_f32(sums + j * 2048, make_float4(y.x + x[4 * j], y.y + x[4 * j + 1], y.z + x[4 * j + 2],
                                                              y.w + x[4 * j + 3]));
            }
        else
#pragma unroll
            for (int i = 0; i < S::q_rows / 4; i++)
                sum[i] += x[i];
    }

    __device__ __forceinline__ float4 load_sums(unsigned sums, int j) const
    {
        if constexpr (S::shared_tiles)
            return ld_shared_v4_f32(sums + j * 2048);
        else
            return make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
    }

    // Rows 8 i + 2 (lane % 4) + {0, 1}. No product may be in flight.
    __device__ __forceinline__ void rescale(unsigned sums, int i, float2 factor)
    {
        if constexpr (S::shared_tiles) {
            const unsigned at = sums + i / 2 * 2048 + i % 2 * 8;
            const float2 x = ld_shared_v2_f32(at);
            st_shared_v2_f32(at, x.x * factor.x, x.y * factor.y);
        } else {
            sum[2 * i] *= factor.x;
            sum[2 * i + 1] *= factor.y;
        }
#pragma unroll
        for (int m = 0; m < S::output_tiles; m++) {
            o[m][4 * i] *= factor.x;
            o[m][4 * i + 1] *= factor.y;
            o[m][4 * i + 2] *= factor.x;
            o[m][4 * i + 3] *= factor.y;
        }
    }
};

// Shared addresses of a group's numbers for the thread's packed rows; those of i are 32 i bytes on.
template <class S> struct row_numbers {
    unsigned rows, group; // the first one's scale, the group's -M
    unsigned group_sums;  // of the group's threads
    static constexpr unsigned row_bytes = S::q_rows * 4;

    __device__ __forceinline__ row_numbers(const block_state<S> &b, int group)
        : rows(shared_address(&b.c->scale[threadIdx.x % 4 * 2])),
          group(shared_address(&b.c->of_group[group].neg_max[threadIdx.x % 4 * 2])),
          group_sums(b.base + S::sums_at + group * (64 * 128))
    {
    }

    __device__ __forceinline__ unsigned sums() const { return group_sums + threadIdx.x % 128 * 16; }

    __device__ __forceinline__ unsigned scale() const { return rows; }
    __device__ __forceinline__ unsigned limit() const { return rows + row_bytes; }
    __device__ __forceinline__ unsigned neg_max() const
    {
        return S::shared_tiles ? rows - 2 * sizeof(group_numbers<S>) : group;
    }
    __device__ __forceinline__ unsigned next_max() const { return group + row_bytes; }
    __device__ __forceinline__ unsigned factor() const { return group + 2 * row_bytes; }
    __device__ __forceinline__ unsigned most() const { return group + 3 * row_bytes; }
    __device__ __forceinline__ unsigned moved(unsigned number) const
    {
        return group + 11 * row_bytes + number % 2 * 4 - threadIdx.x % 4 * 8;
    }
};

// Scores of the cache rows from the limits on do not count. `key`: of the thread's first score.
template <class S>
__device__ __forceinline__ void mask_keys(const row_numbers<S> &at, float (&s)[S::q_rows / 2], int key, float hidden)
{
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        unsigned limit[2];
        ld_shared_v2_u32(at.limit() + 32 * i, limit[0], limit[1]);
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (key + n / 2 * 8 >= static_cast<int>(limit[n % 2]))
                s[4 * i + n] = hidden;
    }
}

// Probabilities as fragments of fp16, the thread's sums of them, and the sum of these. `any`: there may be no M.
template <bool any, class S>
__device__ __forceinline__ float exponentiate(const row_numbers<S> &at, const float (&s)[S::q_rows / 2],
                                              unsigned (&packed)[S::q_rows / 4], float (&sum)[S::q_rows / 4])
{
    float total = 0.f;
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        const float2 scale = ld_shared_v2_f32(at.scale() + 32 * i);
        float2 neg_max = ld_shared_v2_f32(at.neg_max() + 32 * i);
        if (any && neg_max.x == -minus_infinity())
            neg_max.x = 0.f; // every score is minus infinity
        if (any && neg_max.y == -minus_infinity())
            neg_max.y = 0.f;
        const float a = exp2_fast(fmaf(s[4 * i], scale.x, neg_max.x)),
                    b = exp2_fast(fmaf(s[4 * i + 1], scale.y, neg_max.y)),
                    c = exp2_fast(fmaf(s[4 * i + 2], scale.x, neg_max.x)),
                    d = exp2_fast(fmaf(s[4 * i + 3], scale.y, neg_max.y));
        sum[2 * i] = a + c;
        sum[2 * i + 1] = b + d;
        total += sum[2 * i] + sum[2 * i + 1];
        packed[2 * i] = pack2<fp16>(a, b);
        packed[2 * i + 1] = pack2<fp16>(c, d);
    }
    return total;
}

// Probabilities of the warp's 16 keys to the tile's, rows of 64 keys.
template <class S>
__device__ __forceinline__ void store_probabilities(unsigned to, const unsigned (&packed)[S::q_rows / 4])
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const unsigned at = swizzled<128>(to, lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < S::q_rows / 16; j++) {
        const unsigned x[4] = {packed[4 * j], packed[4 * j + 1], packed[4 * j + 2], packed[4 * j + 3]};
        stmatrix_x4_trans(at + j * 2048, x);
    }
    fence_proxy_async(); // wgmma reads them
}

// Moves M to the rows' maxima where they are more than 2^threshold above it, and the output with it. All of the group.
template <class S>
__device__ __forceinline__ void move_maximum(const row_numbers<S> &at, group_state<S> &g,
                                             const float (&s)[S::q_rows / 2], int group)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        const float2 scale = ld_shared_v2_f32(at.scale() + 32 * i);
        float x = fmaxf(s[4 * i] * scale.x, s[4 * i + 2] * scale.x),
              y = fmaxf(s[4 * i + 1] * scale.y, s[4 * i + 3] * scale.y);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
            y = fmaxf(y, __shfl_xor_sync(0xffffffffu, y, distance));
        }
        if (lane < 4)
            st_shared_v2_f32(at.most() + warp * at.row_bytes + 32 * i, x, y);
    }
    barrier_sync(group_barrier + group, 128);
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        float2 most = make_float2(minus_infinity(), minus_infinity()), factor;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 x = ld_shared_v2_f32(at.most() + w * at.row_bytes + 32 * i);
            most = make_float2(fmaxf(most.x, x.x), fmaxf(most.y, x.y));
        }
        const float2 from = ld_shared_v2_f32(at.neg_max() + 32 * i);
        const float2 to =
            make_float2(most.x > threshold - from.x ? -most.x : from.x, most.y > threshold - from.y ? -most.y : from.y);
        factor.x = to.x == from.x ? 1.f : exp2_fast(to.x - from.x);
        factor.y = to.y == from.y ? 1.f : exp2_fast(to.y - from.y);
        g.rescale(at.sums(), i, factor);
        if (warp == 0 && lane < 4) {
            st_shared_v2_f32(at.next_max() + 32 * i, to.x, to.y);
            st_shared_v2_f32(at.factor() + 32 * i, factor.x, factor.y);
        }
    }
    barrier_sync(group_barrier + group, 128); // all have read M
    if (warp == 0 && lane < 4)
#pragma unroll
        for (int i = 0; i < S::q_rows / 8; i++) {
            const float2 to = ld_shared_v2_f32(at.next_max() + 32 * i);
            st_shared_v2_f32(at.neg_max() + 32 * i, to.x, to.y);
        }
    barrier_sync(group_barrier + group, 128);
}

// Turns scores into probabilities in shared memory, at `to`. `number` counts the group's tiles. No product may be in
// flight where M moves.
template <class S>
__device__ __forceinline__ void softmax(const row_numbers<S> &at, group_state<S> &g, const float (&s)[S::q_rows / 2],
                                        unsigned to, unsigned number, int group)
{
    unsigned packed[S::q_rows / 4];
    float sum[S::q_rows / 4];
    const unsigned moved = at.moved(number);
    // Sums are not negative; what is no number is above as bits.
    if (__float_as_uint(exponentiate<false>(at, s, packed, sum)) > __float_as_uint(most_sum))
        st_shared_u32(moved, number + 1);
    store_probabilities<S>(to, packed);
    barrier_sync(group_barrier + group, 128);
    if (uniform(ld_shared_u32(moved)) == static_cast<int>(number + 1)) {
        move_maximum(at, g, s, group);
        exponentiate<true>(at, s, packed, sum);
        store_probabilities<S>(to, packed);
        barrier_sync(group_barrier + group, 128);
    }
    g.add_sums(at.sums(), sum);
}

} // namespace
