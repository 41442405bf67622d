// The Hopper kernel of mla_decode whose scores have a group of their own: that group.
#pragma once

#include "mla_decode/wgmma_group.cuh"
#include "mla_decode/wgmma_scores_feed.cuh"
#include "mla_decode/wgmma_scores_products.cuh"

namespace {

constexpr int held_steps = 28, steps = 4 * cells; // of 16 columns; the queries of the first are held in registers
// The values' products before are let go when all but so many steps of the scores have landed: with both under way they would take
// turns, the scores would end when the values do, and the tensor cores would idle for the softmax behind them.
constexpr int last_steps = 4;

using held_queries = unsigned[held_steps][4];

// What a thread of the score group keeps of its rows; see group_state.
struct score_state {
    float minus[2], sum[2];
    float scale; // not negative: where the scores' is, they are turned round

    __device__ __forceinline__ explicit score_state(const gen_mla_decode_params &p) : scale(fmaxf(fabsf(p.scale_log2), 1e-37f)) {}

    __device__ __forceinline__ void reset()
    {
        minus[0] = minus[1] = -minus_infinity();
        sum[0] = sum[1] = 0.f;
    }
};

__device__ __forceinline__ int warp_of_group()
{
    return mla_uniform(threadIdx.x % 128 / 32);
}

// The first of a thread's rows; the second is 8 further.
__device__ __forceinline__ int row_of_group()
{
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

// The values of the tile before need not wait for the scores of `at`'s where the keys have not come yet. `owed`: the output groups have not been
// told of that tile's probabilities.
__device__ __forceinline__ bool tell_if_late(const ring_place &at, bool owed, unsigned full, unsigned parity)
{
    if (owed && !__all_sync(0xffffffffu, mbarrier_test(full, parity))) {
        tell(at.before().ready());
        return false;
    }
    return owed;
}

// The first columns of the thread's rows of queries as fragments, zeros where the tile has no row: 16 bytes a load, all asked for before the
// first is used. Lane q of four asks for the q-th of four chunks of eight columns; of each a lane needs a word.
__device__ __forceinline__ void ask_queries(const gen_mla_decode_params &p, const mla_tokens &tokens, int first_row, int num_rows,
                                            held_queries &q)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = row_of_group() + 8 * h;
        const unsigned short *const from = mla_row(p, tokens, first_row + (row < num_rows ? row : 0)).q_nope(p) + threadIdx.x % 4 * 8;
#pragma unroll
        for (int k = 0; k < held_steps; k += 2) {
            const float4 x = load_global_16<false>(reinterpret_cast<const float *>(from + k * 16));
            q[k][h] = __float_as_uint(x.x);
            q[k][2 + h] = __float_as_uint(x.y);
            q[k + 1][h] = __float_as_uint(x.z);
            q[k + 1][2 + h] = __float_as_uint(x.w);
        }
    }
}

__device__ __forceinline__ void arrange_queries(int num_rows, held_queries &q)
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int k = 0; k < held_steps; k += 2) {
            unsigned x[4] = {q[k][h], q[k][2 + h], q[k + 1][h], q[k + 1][2 + h]};
            transpose_quad(x);
            q[k][h] = x[0];
            q[k][2 + h] = x[1];
            q[k + 1][h] = x[2];
            q[k + 1][2 + h] = x[3];
        }
    if (num_rows < rows)
#pragma unroll
        for (int k = 0; k < held_steps; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                q[k][i] = row_of_group() + i % 2 * 8 < num_rows ? q[k][i] : 0;
}

// The other columns go to shared memory.
__device__ __forceinline__ void copy_queries(const gen_mla_decode_params &p, const mla_tokens &tokens, int first_row, int num_rows, unsigned base)
{
    const int line = threadIdx.x % 128 / 8, chunk = threadIdx.x % 8;
    const unsigned to = base + queries_at + line * 128 + ((chunk ^ line % 8) << 4);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = 16 * k + line;
        const bool valid = row < num_rows;
        const mla_row at(p, tokens, first_row + (valid ? row : 0));
        cp_async_16_or_zero(to + k * 2048, at.q_nope(p) + held_steps * 16 + chunk * 8, valid);
        if (rope)
            cp_async_16_or_zero(to + k * 2048 + cell, at.q_pe(p) + chunk * 8, valid);
    }
    cp_async_commit();
}

// Brings the queries of the block's n-th piece that has tiles to L2, if there is one.
__device__ __forceinline__ void prefetch_queries(const gen_mla_decode_params &p, const scores_control *c, unsigned n, int first_row)
{
    if (n >= mla_uniform(c->listed))
        return;
    const mla_tokens tokens = c->pieces[n % listed_pieces].tokens;
    const int num_rows = tokens.count * p.num_heads - first_row;
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < rows * 8; i += 128) // lines of 128 bytes, eight a row
        if (i / 8 < num_rows) {
            const mla_row at(p, tokens, first_row + i / 8);
            prefetch_global(at.q_nope(p) + i % 8 * 64);
            if (rope && i % 8 == 0)
                prefetch_global(at.q_pe(p));
        }
    __syncwarp();
}

// Asks for a tile's scores, run by run as they land; the last steps are a group of their own. Whether the output groups are still to be told
// of the tile before, see tell_if_late(), comes back.
__device__ __forceinline__ bool ask_scores(const ring_place &at, const turn_place &turn, const held_queries &q, bool owed, float (&s)[32])
{
    const unsigned long long keys = wgmma_descriptor(0, 0, 1024) | mla_uniform(at.cells() >> 4 & 0x3fff);
    const unsigned long long first = keys - static_cast<unsigned>(at.stage * (stage_bytes >> 4)); // of stage 0
    const unsigned long long rotary = first + static_cast<unsigned>((8 * cell + turn.turn * stage_bytes) >> 4);
    const unsigned long long queries = first + (queries_at >> 4);
#pragma unroll
    for (int step = 0; step < steps; step++) {
        if (step == steps - last_steps)
            wgmma_commit();
        if (step % (4 * run) == 0) {
            const unsigned full = step < 32 ? at.full(step / (4 * run)) : turn.full(), parity = step < 32 ? at.parity : turn.parity;
            if (step == 0 || step == 32)
                owed = tell_if_late(at, owed, full, parity);
            mbarrier_wait(full, parity);
            wgmma_fence();
        }
        const unsigned in_cell = step % 4 * 32 >> 4;
        const unsigned long long b = (step < 32 ? keys + (step / 4 * cell >> 4) : rotary) + in_cell;
        if (step < held_steps)
            wgmma_n64_held<element>(s, q[step], b, step > 0);
        else
            wgmma_n64<element>(s, queries + ((step - held_steps) / 4 * cell >> 4) + in_cell, b, true);
    }
    wgmma_commit();
    return owed;
}

// M, moved on to the rows' maxima where they are more than 2^lazy above it, and the sums with it.
__device__ __forceinline__ void move_on(score_state &g, float (&most)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        most[h] = mla_most_of_quad(most[h]) * g.scale;
        if (most[h] > lazy - g.minus[h]) {
            const float to = 0.f - most[h]; // of zeros the positive one: -M is compared as bits
            g.sum[h] *= exp2_fast(to - g.minus[h]);
            g.minus[h] = to;
        }
    }
}

// Turns scores into probabilities relative to M, in their own registers as far as these go: none are left for scores behind that.
__device__ __forceinline__ void exponentiate_in_place(score_state &g, float (&s)[32], unsigned (&packed)[16])
{
    float most[2] = {s[0], s[2]};
#pragma unroll
    for (int i = 1; i < 32; i++)
        if (i != 2)
            most[i / 2 % 2] = fmaxf(most[i / 2 % 2], s[i]);
    // What is no number comes from no M and no score that counts.
    if (__any_sync(0xffffffffu, !(fmaf(most[0], g.scale, g.minus[0]) <= lazy) || !(fmaf(most[1], g.scale, g.minus[1]) <= lazy)))
        move_on(g, most);
    float minus[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        minus[h] = g.minus[h] == -minus_infinity() ? 0.f : g.minus[h]; // every score is minus infinity
    float sum[2];
    exponentiate(s, minus, g.scale, packed, sum);
    g.sum[0] += sum[0];
    g.sum[1] += sum[1];
}

// Gives a tile's probabilities to the output groups: a K-major cell in place of the rotary keys. They are told later.
__device__ __forceinline__ void publish(const ring_place &at, const turn_place &turn, const score_state &g, const unsigned (&packed)[16])
{
    // Of four matrices of 8 x 8, lanes 8 i onwards tell where the rows of matrix i go: rows + 8 (i % 2), chunk + i / 2.
    const int lane = threadIdx.x % 32;
    const unsigned row = turn.keys() + (threadIdx.x % 128 / 32 * 16 + lane % 16) * 128, swizzle = (lane / 16) ^ (lane % 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned x[4] = {packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]};
        stmatrix_x4(row + (((2 * i) ^ swizzle) << 4), x);
    }
    store_shared_8(at.minus() + threadIdx.x % 128 / 4 * 8, __float_as_uint(g.minus[0]), __float_as_uint(g.minus[1]));
    fence_proxy_async();
}

// The rows' sums, where the piece ends with the tile.
__device__ __forceinline__ void publish_sums(const ring_place &at, const score_state &g)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = g.sum[h] + __shfl_xor_sync(0xffffffffu, g.sum[h], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        store_shared(at.sums() + (row_of_group() + 8 * h) * 4, __float_as_uint(sum)); // four lanes the same
    }
}

// Scores that do not count, of the tile that begins with cache row `first`.
__device__ __forceinline__ void hide(const scores_control *c, float (&s)[32], int first, float scale)
{
    const int limit[2] = {c->limits[row_of_group()], c->limits[row_of_group() + 8]};
    hide_rows(s, first + 2 * (threadIdx.x % 4), limit, scale);
}

// A piece's tiles. Those from `whole` on may have scores that do not count.
__device__ __forceinline__ void score_tiles(const gen_mla_decode_params &p, scores_control *c, const listed_piece &w, int num_rows,
                                            unsigned tile, unsigned end, unsigned whole, ring_place &at, const held_queries &q, score_state &g)
{
    const int warp = warp_of_group();
    bool owed = false;
#pragma unroll 1
    for (; tile != end; tile++) {
        float s[32];
        unsigned packed[16];
        mla_place place;
        if (warp == 0)
            place = look_up(p, c, tile + look);
        const turn_place turn(at.base, tile);
        owed = ask_scores(at, turn, q, owed, s);
        if (warp == 0)
            list_place(c, tile + look, place);
        wgmma_wait<1>();
        if (owed)
            tell(at.before().ready());
        wgmma_wait<0>();
        wgmma_landed(s);
        if (warp * 16 >= num_rows) {
#pragma unroll
            for (int k = 0; k < 16; k++)
                packed[k] = 0;
        } else {
            if (p.scale_log2 < 0.f)
#pragma unroll
                for (int k = 0; k < 32; k++)
                    s[k] = -s[k];
            if (static_cast<int>(tile - whole) >= 0)
                hide(c, s, w.first_row + static_cast<int>(tile - w.begin) * rows, g.scale);
            exponentiate_in_place(g, s, packed);
        }
        barrier_sync(scores_done, 128);
        if (!rope && tile >= 2)
            mbarrier_wait(turn.taken(), turn.parity ^ 1); // else the rotary keys came behind that
        publish(at, turn, g, packed);
        owed = true;
        if (tile + 1 == end) {
            publish_sums(at, g);
            tell(at.ready());
        }
        at.step();
    }
}

__device__ __forceinline__ void score(const gen_mla_decode_params &p, const block_state &b, scores_control *c, ring_place at)
{
    if (warp_of_group() == 0) {
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
    barrier_sync(scores_done, 128); // the list of pieces is there; later on it is a piece ahead
    score_state g(p);
    held_queries q;
#pragma unroll 1
    for (unsigned n = 0; n < mla_uniform(c->listed); n++) {
        const listed_piece &w = c->pieces[n % listed_pieces];
        const mla_tokens tokens = w.tokens;
        const int first_row = b.row_tile * rows, num_rows = mla_uniform(min(tokens.count * p.num_heads - first_row, rows));
        const unsigned begin = mla_uniform(w.begin), end = mla_uniform(w.end);
        copy_queries(p, tokens, first_row, num_rows, at.base);
        ask_queries(p, tokens, first_row, num_rows, q);
        if (warp_of_group() == 0)
            list_pieces(p, b, c, end + look);
        // The first of the block's rows sees least.
        const int seen = mla_limit(p, tokens, first_row, w.kv_len) - w.first_row;
        const unsigned whole = mla_uniform(begin + (max(seen, 0) / rows));
#pragma unroll
        for (int h = 0; h < 2; h++)
            c->limits[row_of_group() + 8 * h] = mla_limit(p, tokens, first_row + row_of_group() + 8 * h, w.kv_len);
        arrange_queries(num_rows, q);
        cp_async_wait<0>();
        fence_proxy_async();
        barrier_sync(scores_done, 128);
        prefetch_queries(p, c, n + 1, first_row);
        g.reset();
        score_tiles(p, c, w, num_rows, begin, end, whole, at, q, g);
    }
}

} // namespace
