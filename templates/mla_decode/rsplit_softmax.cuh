// The Hopper kernel of mla_decode for 8-bit caches whose groups have roles: what the scores' group does with the scores of a tile.
// rgmma_softmax.cuh says how a thread's scores lie.
#pragma once

#include "mla_decode/rgmma_softmax.cuh"
#include "mla_decode/rsplit_block.cuh"
#include "lib/opaque.cuh"

namespace {

// Where the thread finds its packed rows' numbers. What it keeps is in shared memory, for registers hold two tiles' scores.
template <class S> struct score_state {
    row_numbers<S> rows;
    unsigned lane;  // its lane_numbers' scale; -M is behind
    unsigned store; // where its probabilities go, in a place
    unsigned sums;  // of its keys, in place 0: four times those of 16 packed rows, row 8 (i / 2) + 2 (lane % 4) + i % 2

    __device__ __forceinline__ score_state(const block_state<S> &b, const split_control *more)
        : rows(b, 0), lane(shared_address(&more->scale.of[threadIdx.x % 4][0])),
          sums(b.base + S::sums_at + threadIdx.x % 128 * 16)
    {
        const unsigned in_warp = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        store = swizzled<128>(0, in_warp / 16 * 8 + in_warp % 8, warp * 2 + in_warp / 8 % 2);
        opaque(store), opaque(sums), opaque(lane);
    }

    // Up to a tile, and up to the one before it.
    __device__ __forceinline__ unsigned sums_of(tile_number tile) const
    {
        return sums + tile.place() * S::sums_of_place;
    }
    __device__ __forceinline__ unsigned sums_before(tile_number tile) const
    {
        return sums + (tile.place() ^ 1) * S::sums_of_place;
    }
    __device__ __forceinline__ unsigned neg_max() const { return lane + sizeof(lane_numbers); }

    // The numbers of a new piece, from control<S>. The group's threads call it.
    __device__ __forceinline__ void begin(const control<S> &c, split_control *more) const
    {
        const int row = threadIdx.x % 128;
        if (row < S::q_rows) {
            more->scale.of[row % 8 / 2][row / 8 * 2 + row % 2] = c.scale[row];
            more->neg_max.of[row % 8 / 2][row / 8 * 2 + row % 2] = -minus_infinity();
        }
        barrier_sync(score_barrier, 128);
#pragma unroll
        for (int i = 0; i < 8; i++)
            st_shared_v4_f32(sums + i * 2048, make_float4(0.f, 0.f, 0.f, 0.f)); // of both places
    }
};

// Probabilities of packed rows 8 `first` to 8 `last` - 1 to the place `to`, and the thread's sums with them. Returns the sum of
// the thread's. `any`: there may be no M.
template <bool any, int first, int last, class S>
__device__ __forceinline__ float exponentiate_rows(const score_state<S> &g, const float (&s)[S::q_rows / 2],
                                                   unsigned to, tile_number tile)
{
    float total = 0.f;
#pragma unroll
    for (int j = first; j < last; j += 2) {
        const float4 scales = ld_shared_v4_f32(g.lane + 8 * j), maxima = ld_shared_v4_f32(g.neg_max() + 8 * j),
                     before = ld_shared_v4_f32(g.sums_before(tile) + j * 1024);
        const float scale[4] = {scales.x, scales.y, scales.z, scales.w};
        float neg_max[4] = {maxima.x, maxima.y, maxima.z, maxima.w}, sum[4];
        unsigned packed[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x[4];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float &m = neg_max[2 * h + n % 2];
                if (any && m == -minus_infinity())
                    m = 0.f; // every score is minus infinity
                x[n] = exp2_fast(fmaf(s[4 * (j + h) + n], scale[2 * h + n % 2], m));
            }
            sum[2 * h] = x[0] + x[2];
            sum[2 * h + 1] = x[1] + x[3];
            total += sum[2 * h] + sum[2 * h + 1];
            packed[2 * h] = pack2<fp16>(x[0], x[1]);
            packed[2 * h + 1] = pack2<fp16>(x[2], x[3]);
        }
        stmatrix_x4_trans(to + g.store + j * 1024, packed);
        st_shared_v4_f32(g.sums_of(tile) + j * 1024,
                         make_float4(before.x + sum[0], before.y + sum[1], before.z + sum[2], before.w + sum[3]));
    }
    return total;
}

// Moves M to the rows' maxima where they are more than 2^threshold above it; the output's factors are left for those who have it.
template <class S>
__device__ __forceinline__ void move_maxima(const score_state<S> &g, const float (&s)[S::q_rows / 2], tile_number tile)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const unsigned factors = g.rows.factor() + tile.place() * sizeof(group_numbers<S>);
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        const float2 scale = ld_shared_v2_f32(g.lane + 8 * i);
        float x = fmaxf(s[4 * i] * scale.x, s[4 * i + 2] * scale.x),
              y = fmaxf(s[4 * i + 1] * scale.y, s[4 * i + 3] * scale.y);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
            y = fmaxf(y, __shfl_xor_sync(0xffffffffu, y, distance));
        }
        if (lane < 4)
            st_shared_v2_f32(g.rows.most() + warp * g.rows.row_bytes + 32 * i, x, y);
    }
    barrier_sync(score_barrier, 128);
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        float2 most = make_float2(minus_infinity(), minus_infinity()), factor;
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 x = ld_shared_v2_f32(g.rows.most() + w * g.rows.row_bytes + 32 * i);
            most = make_float2(fmaxf(most.x, x.x), fmaxf(most.y, x.y));
        }
        const float2 from = ld_shared_v2_f32(g.neg_max() + 8 * i);
        const float2 to =
            make_float2(most.x > threshold - from.x ? -most.x : from.x, most.y > threshold - from.y ? -most.y : from.y);
        factor.x = to.x == from.x ? 1.f : exp2_fast(to.x - from.x);
        factor.y = to.y == from.y ? 1.f : exp2_fast(to.y - from.y);
        const unsigned sums = g.sums_before(tile) + i / 2 * 2048 + i % 2 * 8;
        const float2 sum = ld_shared_v2_f32(sums);
        st_shared_v2_f32(sums, sum.x * factor.x, sum.y * factor.y);
        if (warp == 0 && lane < 4) {
            st_shared_v2_f32(g.rows.next_max() + 32 * i, to.x, to.y);
            st_shared_v2_f32(factors + 32 * i, factor.x, factor.y);
        }
    }
    barrier_sync(score_barrier, 128); // all have read M
    if (warp == 0 && lane < 4)
#pragma unroll
        for (int i = 0; i < S::q_rows / 8; i++) {
            const float2 to = ld_shared_v2_f32(g.rows.next_max() + 32 * i);
            st_shared_v2_f32(g.rows.neg_max() + 32 * i, to.x, to.y);
            st_shared_v2_f32(g.neg_max() + 8 * i, to.x, to.y);
        }
    barrier_sync(score_barrier, 128);
}

// Tells the groups of the values that a tile's probabilities are in their place. `total`: the sum of the
// thread's.
template <class S>
__device__ __forceinline__ void give_probabilities(const block_state<S> &b, const score_state<S> &g,
                                                   const float (&s)[S::q_rows / 2], tile_number tile, float total)
{
    const unsigned moved = g.rows.moved(tile.place()), to = b.probabilities(tile.place(), 0);
    // Sums are not negative; what is no number is above as bits.
    if (__float_as_uint(total) > __float_as_uint(most_sum))
        st_shared_u32(moved, tile.mark());
    fence_proxy_async(); // wgmma reads them
    barrier_sync(score_barrier, 128);
    if (uniform(ld_shared_u32(moved)) == static_cast<int>(tile.mark())) {
        move_maxima(g, s, tile);
        exponentiate_rows<true, 0, S::q_rows / 8>(g, s, to, tile);
        fence_proxy_async();
        barrier_sync(score_barrier, 128);
    }
    if (threadIdx.x % 128 == 0)
        mbarrier_arrive(b.given(tile.place()));
}

// The thread's sums up to a piece's last tile to those of the warp's keys.
template <class S>
__device__ __forceinline__ void publish_row_sums(control<S> &c, const score_state<S> &g, tile_number last)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int j = 0; j < S::q_rows / 16; j++) {
        const float4 four = ld_shared_v4_f32(g.sums_of(last) + j * 2048);
        float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                x[i] += __shfl_xor_sync(0xffffffffu, x[i], distance);
            if (lane < 4)
                c.of_group[0].sums[warp][16 * j + 8 * (i / 2) + 2 * lane + i % 2] = x[i];
        }
    }
}

} // namespace
