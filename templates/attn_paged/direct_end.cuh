// The direct kernel of attn_paged: the end of a unit whose keys a cluster's blocks share. Each adds up its warps' outputs and
// sends every block of the cluster a part of the columns, and its sums, without waiting for any; each adds up what it got.
// Where a unit has several clusters the last to arrive adds up their results (arrive.cuh), each rank for its own columns.
#pragma once

#include "attn_paged/arrive.cuh"
#include "attn_paged/end.cuh"
#include "lib/ptx/cluster_async.cuh"
#include "lib/ptx/cluster_vector.cuh"
#include "lib/ptx/mbarrier.cuh"

// All blocks are there, with their barriers, before one writes to another: with cluster_wait().
template <class S> __device__ __forceinline__ void direct_begin_cluster(unsigned base)
{
    if (threadIdx.x == 0) {
        mbarrier_init(base + S::barrier_at, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(base + S::barrier_at, S::arriving_bytes);
    }
    cluster_arrive_relaxed();
}

// The block's outputs of a half of the rows, relative to its own reference, and the sums, to all blocks of the cluster.
template <class S, int half>
__device__ __forceinline__ void direct_send_half(unsigned base, unsigned rank, const paged_control<S> &c,
                                                 paged_state<S> &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned exchange = base + S::exchange_at;
    float own[2];
    float4 sums[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = paged_own_row<S>(half, i);
        sums[i] = make_float4(c.top[0][row], 0.f, 0.f, 0.f);
#pragma unroll
        for (int t = 1; t < S::teams; t++)
            sums[i].x = fmaxf(sums[i].x, c.top[t][row]);
#pragma unroll
        for (int t = 0; t < S::teams; t++) {
            const float weight = paged_weight(c.top[t][row], sums[i].x);
            sums[i].y = fmaf(weight, c.rounded[t][row], sums[i].y);
            sums[i].z = fmaf(weight, c.exact[t][row], sums[i].z);
        }
        own[i] = paged_weight(c.top[warp][row], sums[i].x);
    }
    if constexpr (half > 0)
        __syncthreads(); // the half before is added up
    else
        cluster_wait();
    if (lane < 4)
#pragma unroll
        for (int to = warp; to < S::cluster; to += S::warps)
#pragma unroll
            for (int i = 0; i < 2; i++)
                st_async_v4_f32(
                    cluster_address(base + S::sums_at + (rank * S::tile_rows + paged_own_row<S>(half, i)) * 16, to),
                    sums[i], cluster_address(base + S::barrier_at, to));
#pragma unroll
    for (int m = 0; m < S::dim_tiles; m++) {
        float(&o)[4] = s.o[m][half];
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[i] *= own[i % 2];
        if (m / S::own_tiles != warp)
            st_shared_v4_f32(paged_exchange<S>(exchange, m / S::own_tiles, warp, m % S::own_tiles),
                             make_float4(o[0], o[1], o[2], o[3]));
    }
    __syncthreads();
    if (paged_owns<S>())
#pragma unroll
        for (int m = 0; m < S::own_tiles; m++) {
            float o[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[i] = s.o[m][half][i];
#pragma unroll
                for (int owner = 1; owner < S::owners; owner++)
                    o[i] = owner == warp ? s.o[owner * S::own_tiles + m][half][i] : o[i];
            }
#pragma unroll
            for (int k = 0; k < S::teams - 1; k++) {
                const float4 x = ld_shared_v4_f32(paged_exchange<S>(exchange, warp, k < warp ? k : k + 1, m));
                o[0] += x.x;
                o[1] += x.y;
                o[2] += x.z;
                o[3] += x.w;
            }
            const unsigned item = (half * S::dim_tiles + warp * S::own_tiles + m) * 32 + lane;
            const unsigned to = item / S::block_items, at = rank * S::block_items + item % S::block_items;
            st_async_v4_f32(cluster_address(base + S::parts_at + at * 16, to), make_float4(o[0], o[2], o[1], o[3]),
                            cluster_address(base + S::barrier_at, to));
        }
    if constexpr (half + 1 < S::halves)
        direct_send_half<S, half + 1>(base, rank, c, s);
}

// A place of the cluster's result: which row, and of which column tile and pair of columns.
struct direct_place {
    int row, tile, line;
};

template <class S> __device__ __forceinline__ direct_place direct_place_of(unsigned rank, unsigned place)
{
    const unsigned item = rank * S::block_items + place / 2, lane = item % 32, tile = item / 32;
    return {static_cast<int>(tile / S::dim_tiles * 8 + lane % 4 * 2 + place % 2), static_cast<int>(tile % S::dim_tiles),
            static_cast<int>(lane / 4)};
}

// Normalised, with the log-sum-exp to base 2.
struct direct_sum {
    float lo, hi, lse;
};

// The sum of the cluster's blocks' items at a place.
template <class S> __device__ __forceinline__ direct_sum direct_add_blocks(unsigned base, unsigned place, int row)
{
    float4 sums[S::cluster];
    float2 x[S::cluster];
    float top = minus_infinity(), lo = 0.f, hi = 0.f, rounded = 0.f, exact = 0.f;
#pragma unroll
    for (int b = 0; b < S::cluster; b++) {
        sums[b] = ld_shared_v4_f32(base + S::sums_at + (b * S::tile_rows + row) * 16);
        x[b] = ld_shared_v2_f32(base + S::parts_at + b * S::block_items * 16 + place * 8);
        top = fmaxf(top, sums[b].x);
    }
#pragma unroll
    for (int b = 0; b < S::cluster; b++) {
        const float weight = paged_weight(sums[b].x, top);
        rounded = fmaf(weight, sums[b].y, rounded);
        exact = fmaf(weight, sums[b].z, exact);
        lo = fmaf(weight, x[b].x, lo);
        hi = fmaf(weight, x[b].y, hi);
    }
    const float inverse = rounded == 0.f ? 0.f : 1.f / rounded;
    return {lo * inverse, hi * inverse, exact == 0.f ? minus_infinity() : top + log2f(exact)};
}

template <class S>
__device__ __forceinline__ void direct_write(const gen_attn_paged_params &p, const paged_piece &piece,
                                             const direct_place &place, const direct_sum &sum)
{
    using T = typename S::element;
    if (place.row >= piece.rows)
        return;
    const float factor = paged_finish_row(p, piece, place.row, sum.lse, place.tile == 0 && place.line == 0);
    const paged_row at(p, piece, place.row);
    unsigned short *const to =
        static_cast<unsigned short *>(p.o) + at.token * p.o_token + at.head * p.o_head + place.tile * 16;
    if constexpr (S::e4m3) {
        st_global_u32(to + 2 * place.line, pack2<T>(sum.lo * factor, sum.hi * factor));
    } else {
        to[place.line] = from_float<T>(sum.lo * factor);
        to[place.line + 8] = from_float<T>(sum.hi * factor);
    }
}

// Where a block keeps its results for the last of the unit's clusters: a float4 a place.
template <class S> __device__ __forceinline__ float *direct_partial(const gen_attn_paged_params &p, unsigned block)
{
    return p.partial + block * (4ll * S::places);
}

// Adds up the clusters' results at a place; `block` is that of the first cluster.
template <class S>
__device__ __forceinline__ direct_sum direct_add_clusters(const gen_attn_paged_params &p, unsigned block, int clusters,
                                                          unsigned place)
{
    constexpr int most = GEN_ATTN_PAGED_GROUP;
    float4 x[most];
    float top = minus_infinity(), lo = 0.f, hi = 0.f, sum = 0.f;
#pragma unroll
    for (int k = 0; k < most; k++)
        if (k < clusters)
            x[k] = ld_global_cg_v4_f32(direct_partial<S>(p, block + k * S::cluster) + 4 * place);
        else
            x[k] = make_float4(0.f, 0.f, minus_infinity(), 0.f);
#pragma unroll
    for (int k = 0; k < most; k++)
        top = fmaxf(top, x[k].z);
#pragma unroll
    for (int k = 0; k < most; k++) {
        const float weight = paged_weight(x[k].z, top);
        sum += weight;
        lo = fmaf(weight, x[k].x, lo);
        hi = fmaf(weight, x[k].y, hi);
    }
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;
    return {lo * inverse, hi * inverse, sum == 0.f ? minus_infinity() : top + log2f(sum)};
}

// The unit's end. `block` is this block's number, `number` its piece's of the unit's `pieces`.
template <class S>
__device__ __forceinline__ void direct_end_cluster(const gen_attn_paged_params &p, const paged_piece &piece,
                                                   unsigned base, unsigned block, unsigned number, int pieces,
                                                   paged_control<S> &c, paged_state<S> &s)
{
    constexpr int writers = S::places < S::threads ? S::places < 32 ? 32 : S::places : S::threads;
    static_assert(S::cluster > 1 && writers % 32 == 0, "whole warps write");
    const unsigned rank = number % S::cluster;
    direct_send_half<S, 0>(base, rank, c, s);
    if (threadIdx.x >= writers) // what others send them is in the block's memory while the writers live
        return;
    mbarrier_wait(base + S::barrier_at, 0);
    const int clusters = pieces / S::cluster;
#pragma unroll
    for (unsigned place = threadIdx.x; place < S::places; place += writers) {
        const direct_place at = direct_place_of<S>(rank, place);
        const direct_sum sum = direct_add_blocks<S>(base, place, at.row);
        if (clusters == 1)
            direct_write<S>(p, piece, at, sum);
        else
            st_global_v4_f32<false>(direct_partial<S>(p, block) + 4 * place, make_float4(sum.lo, sum.hi, sum.lse, 0.f));
    }
    if (clusters == 1)
        return;
    const bool last = paged_arrives_last(p.tickets + (block - number + rank), clusters, threadIdx.x == 0, c.last, [] {
        if constexpr (writers == 32)
            __syncwarp();
        else
            barrier_sync(1, writers);
    });
    if (!last)
        return;
#pragma unroll
    for (unsigned place = threadIdx.x; place < S::places; place += writers)
        direct_write<S>(p, piece, direct_place_of<S>(rank, place),
                        direct_add_clusters<S>(p, block - number + rank, clusters, place));
}
