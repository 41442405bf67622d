// The Hopper kernel of mla_decode whose scores have a group of their own: the two groups that add values up.
#pragma once

#include "mla_decode/wgmma_output.cuh"
#include "mla_decode/wgmma_scores_feed.cuh"
#include "mla_decode/wgmma_scores_products.cuh"

namespace {

__device__ __forceinline__ float load_shared_4(unsigned address)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ int warp_in_group()
{
    return mla_uniform(threadIdx.x % 128 / 32);
}

// Takes over what a tile's probabilities are relative to; where that has moved, the output follows.
__device__ __forceinline__ void follow(const ring_place &at, group_state &g)
{
    unsigned x[2];
    load_shared_8(at.minus() + threadIdx.x % 128 / 4 * 8, x[0], x[1]);
    if (__any_sync(0xffffffffu, x[0] != __float_as_uint(g.minus[0]) || x[1] != __float_as_uint(g.minus[1]))) {
        const float to[2] = {__uint_as_float(x[0]), __uint_as_float(x[1])};
        g.go_over(to);
    }
}

// Asks for probabilities times the group's half of a tile's columns, added to the output.
__device__ __forceinline__ void ask_values(const ring_place &at, const turn_place &turn, int half, group_state &g)
{
    const unsigned long long a = wgmma_descriptor(0, 0, 1024) | mla_uniform(turn.keys() >> 4 & 0x3fff);
    const unsigned long long v = wgmma_descriptor(0, cell, 1024) | mla_uniform((at.cells() + half * (4 * cell)) >> 4 & 0x3fff);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++)
        wgmma_n256_shared<element>(g.o, a + (step * 32 >> 4), v + (step * 2048 >> 4), g.started || step > 0);
    wgmma_commit();
    g.started = true;
}

// Gives a stage's half back and asks for the tile that comes there.
__device__ __forceinline__ void renew(const gen_mla_decode_params &p, const ring_place &at, int half, unsigned tile)
{
    tell(at.empty(half));
    if (warp_in_group() == 0)
        request(p, at, half, tile + stages, true);
}

// A piece's tiles up to `last`, whose stage is not given back. `kept`: the piece.
__device__ __forceinline__ void add_values(const gen_mla_decode_params &p, const block_state &b, const kept_piece &kept, int half,
                                           unsigned &tile, unsigned last, ring_place &at, group_state &g)
{
#pragma unroll 1
    for (;; tile++) {
        const turn_place turn(at.base, tile);
        mbarrier_wait(at.ready(), at.parity);
        follow(at, g);
        if (tile == last) {
            const mla_piece &piece = kept.w.piece;
            const int left = mla_uniform(piece.kv_len - (piece.last - 1) * rows); // cache rows of the tile
            if (left < rows && half == 0)
                clear_rows<0>(b, at.stage, left);
            else if (left < rows)
                clear_rows<1>(b, at.stage, left);
        }
        ask_values(at, turn, half, g);
        wgmma_wait<0>();
        tell(turn.taken());
        if (rope && half == 1 && warp_in_group() == 1)
            request_rotary(p, at.base, tile + 2);
        if (tile == last)
            break;
        renew(p, at, half, tile);
        at.step();
    }
}

// The first tiles, which come to where none was.
__device__ __forceinline__ void request_first(const gen_mla_decode_params &p, ring_place at, int half)
{
    barrier_sync(places_listed, 96);
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        request(p, at, half, i, false);
        if (rope && half == 1 && i < 2)
            request_rotary(p, at.base, i);
        at.step();
    }
}

// stage_partial() with one cell's columns at a time, for there are no registers for all four.
__device__ __forceinline__ void stage_partial_by_cells(const group_state &g, unsigned to, const float (&factor)[2], unsigned (&exponents)[2])
{
    exponents[0] = exponents[1] = 0;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float up[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = 0.f;
#pragma unroll
            for (int i = 0; i < 16; i++)
                most = fmaxf(most, fabsf(g.o[32 * n + i / 2 * 4 + 2 * h + i % 2]));
            const unsigned exponent = mla_exponent(mla_most_of_quad(most) * factor[h]);
            exponents[h] |= exponent << 8 * n;
            up[h] = factor[h] * mla_scale_up(exponent);
        }
        stage_cell<fp16>(g, to, n, up);
    }
}

// Where the warp's 16 rows of output are staged, and which rows there are.
struct staged_rows {
    unsigned from;
    int first, count; // packed rows of the tile

    __device__ __forceinline__ staged_rows(const ring_place &at, int half, int num_rows) : first(warp_in_group() * 16)
    {
        from = at.cells() + half * (4 * cell) + first * 128;
        count = mla_uniform(min(num_rows - first, 16));
    }
};

// What a group has of its rows goes to the stage's half that it read last, before anything else is worked out: it leaves few registers.
__device__ __forceinline__ void stage_rows(const gen_mla_decode_params &p, const block_piece &w, const group_state &g, int half,
                                           const staged_rows &r, const float (&sum)[2])
{
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        factor[h] = sum[h] > 0.f ? rcp_fast(sum[h]) : 0.f;
    if (w.piece.slot < 0) {
        stage_output(g, r.from, factor);
        return;
    }
    unsigned exponents[2];
    stage_partial_by_cells(g, r.from, factor, exponents);
    const int row = r.first + threadIdx.x % 32 / 4;
    gen_mla_partial_row *const at =
        p.partial_rows + static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + (w.first_row + row);
    if (threadIdx.x % 4 == 0 && row < w.num_rows)
        at[0].exponents[half] = static_cast<int>(exponents[0]);
    if (threadIdx.x % 4 == 0 && row + 8 < w.num_rows)
        at[8].exponents[half] = static_cast<int>(exponents[1]);
}

// The rows' output and log-sum-exp, or the piece's part of them: write_rows() in two halves. Of a piece without tiles the output is zeros.
__device__ __forceinline__ void write_staged(const gen_mla_decode_params &p, const block_piece &w, int half, const staged_rows &r,
                                             const float (&sum)[2], const float (&minus)[2])
{
    const int lane = threadIdx.x % 32;
    float lse[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        lse[h] = sum[h] > 0.f ? log2_fast(sum[h]) - minus[h] : minus_infinity();
    // Lane l knows where row l goes, and its log-sum-exp from the first of the four lanes that have it.
    const float low = __shfl_sync(0xffffffffu, lse[0], lane % 8 * 4), high = __shfl_sync(0xffffffffu, lse[1], lane % 8 * 4);
    const float row_lse = lane & 8 ? high : low;
    const int packed = w.first_row + r.first + min(lane % 16, r.count - 1);
    const bool mine = lane < r.count && half == 0;
    unsigned short *to;
    if (w.piece.slot >= 0) {
        const long long index = static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + packed;
        to = p.partial + index * latent;
        if (mine)
            p.partial_rows[index].lse = row_lse;
    } else {
        const mla_row at(p, w.tokens, packed);
        to = at.o(p);
        if (mine && p.lse)
            *at.lse(p) = p.lse_base_2 ? row_lse : row_lse * 0.693147180559945309f;
    }
    __syncwarp();
    const unsigned from = r.from + lane / 8 * cell;
    unsigned x[16][4]; // the output's registers are free: all rows are on their way at once
#pragma unroll
    for (int row = 0; row < 16; row++)
        if (w.tiles > 0)
            load_shared_16(from + row * 128 + ((lane % 8 ^ row % 8) << 4), x[row][0], x[row][1], x[row][2], x[row][3]);
        else
            x[row][0] = x[row][1] = x[row][2] = x[row][3] = 0;
#pragma unroll
    for (int row = 0; row < 16; row++) {
        unsigned short *const row_to = reinterpret_cast<unsigned short *>(__shfl_sync(0xffffffffu, reinterpret_cast<long long>(to), row));
        if (row < r.count)
            store_global_16(row_to + half * 256 + lane * 8, x[row]);
    }
}

// In registers again, and uniform, so that branches need no reconvergence.
__device__ __forceinline__ block_piece take_back(const block_piece &w)
{
    block_piece x = w;
    x.piece.request = mla_uniform(x.piece.request);
    x.piece.slot = mla_uniform(x.piece.slot);
    x.num_rows = mla_uniform(x.num_rows);
    x.tiles = mla_uniform(x.tiles);
    return x;
}

__device__ __forceinline__ void add_up(const gen_mla_decode_params &p, const block_state &b, scores_control *c, ring_place at, int half)
{
    if (warp_in_group() == 0)
        request_first(p, at, half);
    kept_piece &kept = c->kept[threadIdx.x / 32];
    mla_walk walk(c->share, b.part);
    block_piece w;
    group_state g(p);
    unsigned tile = 0;
    while (next_piece(p, b, walk, w)) {
        float sum[2] = {0.f, 0.f};
        g.reset();
        if (w.tiles > 0) {
            __syncwarp();
            kept = {w, walk.next}; // all lanes the same
            __syncwarp();
            add_values(p, b, kept, half, tile, tile + w.tiles - 1, at, g);
            barrier_sync(group_barrier + half, 128); // no warp's products read any more where the output is staged
            w = take_back(kept.w);
            walk.next = mla_uniform(kept.next);
            const unsigned from = at.sums() + (threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) * 4;
            sum[0] = load_shared_4(from);
            sum[1] = load_shared_4(from + 32);
        }
        const staged_rows r(at, half, w.num_rows);
        if (r.count > 0) {
            if (w.tiles > 0)
                stage_rows(p, w, g, half, r, sum);
            write_staged(p, w, half, r, sum, g.minus);
        }
        if (w.tiles > 0) {
            fence_proxy_async(); // threads were there, the copy engine comes
            renew(p, at, half, tile);
            at.step();
            tile++;
        }
    }
}

} // namespace
