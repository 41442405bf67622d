// The Hopper kernel of mla_decode whose scores have a group of their own: that group.
#pragma once

#include "mla_decode/wgmma_group.cuh"
#include "mla_decode/wgmma_scores_feed.cuh"
#include "mla_decode/wgmma_scores_products.cuh"

namespace {

constexpr int steps = 4 * cells; // of 16 columns
// The values' products before are let go when all but so many steps of the scores have landed: with both under way they would take
// turns, the scores would end when the values do, and the tensor cores would idle for the softmax behind them.
constexpr int last_steps = 4;

using held_queries = unsigned[steps][4];

// What the score group knows of the piece.
struct scores_piece {
    int first_row, tiles, num_rows;
    int limit[2]; // of the thread's rows: see mla_limit()
};

// The thread's rows of the queries as fragments, zeros where the tile has no row: 16 bytes a load, all asked for before the first is
// used. Lane q of four asks for the q-th of four chunks of eight columns; of each a lane needs a word.
__device__ __forceinline__ void ask_queries(const gen_mla_decode_params &p, const block_piece &w, held_queries &q)
{
    const int quad = threadIdx.x % 4, first = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first + 8 * h;
        const mla_row at(p, w.tokens, w.first_row + (row < w.num_rows ? row : 0));
        const unsigned short *const nope = at.q_nope(p) + quad * 8, *const pe = rope ? at.q_pe(p) + quad * 8 : nullptr;
#pragma unroll
        for (int k = 0; k < steps; k += 2) {
            const float4 x = load_global_16<false>(reinterpret_cast<const float *>(k < 32 ? nope + k * 16 : pe + (k - 32) * 16));
            q[k][h] = __float_as_uint(x.x);
            q[k][2 + h] = __float_as_uint(x.y);
            q[k + 1][h] = __float_as_uint(x.z);
            q[k + 1][2 + h] = __float_as_uint(x.w);
        }
    }
}

__device__ __forceinline__ void arrange_queries(const block_piece &w, held_queries &q)
{
    const int first = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int k = 0; k < steps; k += 2) {
            unsigned x[4] = {q[k][h], q[k][2 + h], q[k + 1][h], q[k + 1][2 + h]};
            transpose_quad(x);
            q[k][h] = x[0];
            q[k][2 + h] = x[1];
            q[k + 1][h] = x[2];
            q[k + 1][2 + h] = x[3];
        }
    if (w.num_rows < rows)
#pragma unroll
        for (int k = 0; k < steps; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                q[k][i] = first + i % 2 * 8 < w.num_rows ? q[k][i] : 0;
}

// Asks for a tile's scores, run by run as they land; the last steps are a group of their own.
__device__ __forceinline__ void ask_scores(const ring_place &at, const held_queries &q, float (&s)[32])
{
    const unsigned long long first = wgmma_descriptor(0, 0, 1024) | mla_uniform(at.cells() >> 4 & 0x3fff);
#pragma unroll
    for (int step = 0; step < steps; step++) {
        if (step % (4 * run) == 0) {
            mbarrier_wait(at.full(step / (4 * run)), at.parity);
            wgmma_fence();
        }
        if (step == steps - last_steps)
            wgmma_commit();
        wgmma_n64_held<element>(s, q[step], first + (((step / 4) * cell + step % 4 * 32) >> 4), step > 0);
    }
    wgmma_commit();
}

// Gives a tile's probabilities to the output groups: a K-major cell in place of the rotary keys. They are told later.
__device__ __forceinline__ void publish(const ring_place &at, const group_state &g, const unsigned (&packed)[16])
{
    // Of four matrices of 8 x 8, lanes 8 i onwards tell where the rows of matrix i go: rows + 8 (i % 2), chunk + i / 2.
    const int lane = threadIdx.x % 32;
    const unsigned row = at.probabilities() + (threadIdx.x % 128 / 32 * 16 + lane % 16) * 128, swizzle = (lane / 16) ^ (lane % 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned x[4] = {packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]};
        stmatrix_x4(row + (((2 * i) ^ swizzle) << 4), x);
    }
    store_shared_8(at.minus() + threadIdx.x % 128 / 4 * 8, __float_as_uint(g.minus[0]), __float_as_uint(g.minus[1]));
    fence_proxy_async();
}

// The rows' sums, where the piece ends with the tile.
__device__ __forceinline__ void publish_sums(const ring_place &at, const group_state &g)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = g.sum[h] + __shfl_xor_sync(0xffffffffu, g.sum[h], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (threadIdx.x % 4 == 0)
            store_shared(at.sums() + (threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h) * 4, __float_as_uint(sum));
    }
}

// A piece's tiles, of which `before` came before.
__device__ __forceinline__ void score_tiles(const gen_mla_decode_params &p, scores_control *c, const scores_piece &w, unsigned before,
                                            ring_place &at, const held_queries &q, group_state &g)
{
    const int warp = mla_uniform(threadIdx.x % 128 / 32);
    unsigned owed = 0; // barrier that tells of the tile before
#pragma unroll 1
    for (int i = 0; i < w.tiles; i++) {
        float s[32];
        unsigned packed[16];
        mla_place place;
        if (warp == 0)
            place = look_up(p, c, before + i + look);
        // Where the keys have not come yet, the values need not wait for their scores.
        if (owed && !__all_sync(0xffffffffu, mbarrier_test(at.full(0), at.parity))) {
            tell(owed);
            owed = 0;
        }
        ask_scores(at, q, s);
        if (warp == 0)
            list_place(c, before + i + look, place);
        wgmma_wait<1>();
        if (owed)
            tell(owed);
        wgmma_wait<0>();
        wgmma_landed(s);
        const int first = w.first_row + i * rows;
        if (warp * 16 >= w.num_rows) {
#pragma unroll
            for (int k = 0; k < 16; k++)
                packed[k] = 0;
        } else {
            if (first + rows > min(w.limit[0], w.limit[1]))
                hide_rows(s, first + 2 * (threadIdx.x % 4), w.limit, g.scale);
            softmax<false>(g, s, packed);
        }
        barrier_sync(scores_done, 128);
        publish(at, g, packed);
        owed = at.ready();
        if (i + 1 == w.tiles) {
            publish_sums(at, g);
            tell(owed);
        }
        at.step();
    }
}

__device__ __forceinline__ void score(const gen_mla_decode_params &p, const block_state &b, scores_control *c, ring_place at)
{
    const int warp = mla_uniform(threadIdx.x % 128 / 32), row = warp * 16 + threadIdx.x % 32 / 4;
    if (warp == 0) {
        c->next = c->share.cut[0];
        c->listed = c->looked_up = 0;
        __syncwarp();
        list_pieces(p, b, c, look);
        mla_place place[look];
#pragma unroll
        for (int i = 0; i < look; i++)
            place[i] = look_up(p, c, i);
#pragma unroll
        for (int i = 0; i < look; i++)
            list_place(c, i, place[i]);
        barrier_arrive(places_listed, 96);
    }
    mla_walk walk(c->share, b.part);
    block_piece w;
    group_state g(p);
    unsigned t = 0; // tiles so far
    held_queries q;
    while (next_piece(p, b, walk, w)) {
        if (w.tiles <= 0)
            continue;
        ask_queries(p, w, q);
        if (warp == 0)
            list_pieces(p, b, c, t + w.tiles + look);
        arrange_queries(w, q);
        g.reset();
        scores_piece here = {w.piece.first * rows, w.tiles, w.num_rows, {}};
#pragma unroll
        for (int h = 0; h < 2; h++)
            here.limit[h] = mla_limit(p, w.tokens, w.first_row + row + 8 * h, w.piece.kv_len);
        score_tiles(p, c, here, t, at, q, g);
        t += w.tiles;
    }
}

} // namespace
