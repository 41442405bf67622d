// The Hopper kernel of mla_decode for pairs of blocks: what a group does with the tiles of a piece.
#pragma once

#include "mla_decode/pair_exchange.cuh"

namespace {

// Where products find their operands. The address goes through a shuffle before a round, and for the queries before every tile: so the
// compiler knows that descriptors are uniform, each is one addition a warp, and those of queries are not kept in registers from
// one tile to the next.
struct pair_operands {
    unsigned low; // the block's address as a descriptor has it

    __device__ __forceinline__ explicit pair_operands(const pair_state &b) : low(b.base >> 4 & 0x3fff) {}

    __device__ __forceinline__ void renew() { low = mla_uniform(low); }

    static __device__ __forceinline__ unsigned long long opaque(unsigned long long descriptor)
    {
        asm volatile("" : "+l"(descriptor));
        return descriptor;
    }

    // K-major: queries and rotary keys; the same, as far behind as a stage is behind the first; and of values, which are not K-major.
    __device__ __forceinline__ unsigned long long keys() const { return opaque(wgmma_descriptor(0, 0, 1024) | static_cast<unsigned>(mla_uniform(low))); }
    __device__ __forceinline__ unsigned long long stage_keys(const tile_place &place) const { return opaque(wgmma_descriptor(0, 0, 1024) | of_stage(place)); }
    __device__ __forceinline__ unsigned long long stage_values(const tile_place &place) const { return opaque(wgmma_descriptor(0, cell, 1024) | of_stage(place)); }

    __device__ __forceinline__ unsigned of_stage(const tile_place &place) const { return low + mla_uniform(place.stage) * (pair_stage_bytes >> 4); }
};

struct pair_tools {
    const pair_state &b;
    pair_operands operands;
    pair_exchange exchange;
};

// Asks for the block's part of a tile's scores: its columns, and where `rotary`, those of the rotary keys of number `k`.
template <int group, bool rotary>
__device__ __forceinline__ void start_scores(const pair_tools &t, const tile_place &place, unsigned k, float (&s)[32])
{
    const unsigned long long queries = t.operands.keys(), stage = t.operands.stage_keys(place);
#pragma unroll
    for (int n = 0; n < pair_runs; n++) {
        mbarrier_wait(t.b.full(place.stage, n), place.parity);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4 * run; step++) {
            const unsigned offset = (n * run + step / 4) * cell + step % 4 * 32;
            wgmma_n64<element>(s, queries + ((group * pair_cells * cell + offset) >> 4), stage + ((stages_at + offset) >> 4), n + step > 0);
        }
    }
    if (rope && rotary) {
        const unsigned long long at = pair_operands::opaque(queries + mla_uniform(k & 1) * (cell >> 4));
        mbarrier_wait(t.b.barrier(rotary_full + (k & 1)), k >> 1 & 1);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++)
            wgmma_n64<element>(s, queries + ((rotary_queries_at + group * cell + step * 32) >> 4), at + ((rotary_at + step * 32) >> 4), true);
    }
    wgmma_commit();
}

// Asks for probabilities times the block's columns of a tile, added to the output.
__device__ __forceinline__ void start_values(const pair_tools &t, group_state &g, const tile_place &place, const unsigned (&packed)[16])
{
    const unsigned long long stage = t.operands.stage_values(place);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const unsigned a[4] = {packed[4 * step], packed[4 * step + 1], packed[4 * step + 2], packed[4 * step + 3]};
        wgmma_n256_mn<element>(g.o, a, stage + ((stages_at + step * 2048) >> 4), g.started || step > 0);
    }
    wgmma_commit();
    g.started = true;
}

// Rows of the cache beyond the length must not even be multiplied by zero. Both groups come, when neither multiplies keys of the tile
// any more.
__device__ __forceinline__ void clear_tile(const pair_state &b, int stage, int valid)
{
    const unsigned chunk = threadIdx.x % 32, to = b.stage(stage) + chunk / 8 * cell + chunk % 8 * 16;
    barrier_sync(tile_cut, 256);
#pragma unroll 1
    for (int row = valid + mla_uniform(threadIdx.x / 32); row < rows; row += 8)
        store_shared(to + row * 128, make_float4(0.f, 0.f, 0.f, 0.f));
    fence_proxy_async();
    barrier_sync(tile_cut, 256);
}

// Whose is what: of every two tiles of a piece a group turns the scores of one into probabilities, its partner of the other block
// those of the other one, and the groups of a block differ, too. That of rank's number has its rotary keys in this block.
template <int rank, int group> struct pair_roles {
    static constexpr int own = rank ^ group, other = own ^ 1;
    static constexpr bool rotary_own = own == rank;
};

// A round of two tiles or of one, some rows of which may not count, or not exist.
template <int rank, int group>
__device__ __forceinline__ void add_round(pair_tools &t, const gen_mla_decode_params &p, const pair_kept &w, group_state &g, const pair_line &line,
                                          int i, told &last)
{
    using roles = pair_roles<rank, group>;
    const int tiles = mla_uniform(w.piece.tiles), tile_row = mla_uniform(w.piece.piece.first + i) * rows; // cache row of the first one
    const unsigned parity = mla_uniform(w.messages) & 1;
    const bool both = i + 1 < tiles, has_own = roles::own == 0 || both, has_other = roles::other == 0 || both;
    const tile_place first = line.place;
    tile_place second = first;
    second.step(1);
    const tile_place own = roles::own ? second : first, other = roles::own ? first : second;
    float s[32];
    unsigned packed[16];
    t.operands.renew();
    if (has_other) {
        start_scores<group, !roles::rotary_own>(t, other, line.rotary, s);
        wgmma_wait<0>();
        wgmma_landed(s);
        t.exchange.send_scores(s, parity);
    }
    if (has_own) {
        start_scores<group, roles::rotary_own>(t, own, line.rotary, s);
        wgmma_wait<0>();
        wgmma_landed(s);
    }
    if (rope && (roles::rotary_own ? has_own : has_other))
        tell(t.b.barrier(rotary_empty + (line.rotary & 1)));
    if (i + 2 >= tiles)
        tell(t.b.barrier(pair_q_empty));
    const int valid = mla_uniform(w.piece.piece.kv_len - tile_row - (both ? rows : 0));
    if (valid < rows)
        clear_tile(t.b, (both ? second : first).stage, valid);
    if (has_own) {
        t.exchange.take_scores(s, parity);
        if (has_other)
            t.exchange.open(probabilities_message);
        const int row = tile_row + roles::own * rows;
        if (row + rows > mla_uniform(w.seen)) {
            const int first = w.piece.first_row + static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4); // of the thread's two
            const int limit[2] = {mla_limit(p, w.piece.tokens, first, w.piece.piece.kv_len),
                                  mla_limit(p, w.piece.tokens, first + 8, w.piece.piece.kv_len)};
            hide_rows(s, row + 2 * (threadIdx.x % 4), limit, g.scale);
        }
        softmax<false>(g, s, packed);
        t.exchange.send_probabilities(g, packed, has_other ? parity ^ 1 : parity);
        start_values(t, g, own, packed);
        wgmma_wait<0>();
        tell(t.b.empty(own.stage));
    }
    if (has_other) {
        t.exchange.take_probabilities(packed, last, has_own ? parity ^ 1 : parity);
        if (i + 2 < tiles)
            t.exchange.open(roles::own == 0 || i + 3 < tiles ? scores_message : probabilities_message);
        agree(g, packed, last);
        start_values(t, g, other, packed);
        wgmma_wait<0>();
        tell(t.b.empty(other.stage));
    }
}

// Rounds in the middle of a piece: all rows are there and count, there is an output and an M, two tiles follow at least. An
// instruction beside the products costs time of theirs, so nothing is asked that is known. Both tiles' scores
// are asked for at once, in the order in which the tiles come.
template <int rank, int group>
__device__ __forceinline__ void add_rounds(pair_tools &t, group_state &g, pair_line &line, unsigned parity, int count)
{
    using roles = pair_roles<rank, group>;
    tile_place own = line.place, other = line.place;
    (roles::own ? own : other).step(1);
    unsigned k = line.rotary;
    g.started = true; // as the compiler may know
#pragma unroll 1
    do {
        float s[32], partial[32];
        unsigned packed[16], theirs[16];
        told with;
        t.operands.renew();
        if (roles::own == 0) {
            start_scores<group, roles::rotary_own>(t, own, k, s);
            start_scores<group, !roles::rotary_own>(t, other, k, partial);
            wgmma_wait<0>();
            wgmma_landed(partial);
            t.exchange.send_scores(partial, parity);
        } else {
            start_scores<group, !roles::rotary_own>(t, other, k, partial);
            start_scores<group, roles::rotary_own>(t, own, k, s);
            wgmma_wait<1>();
            wgmma_landed(partial);
            t.exchange.send_scores(partial, parity);
            wgmma_wait<0>();
        }
        wgmma_landed(s);
        t.exchange.take_scores(s, parity);
        t.exchange.open(probabilities_message);
        if (rope)
            tell(t.b.barrier(rotary_empty + (k & 1)));
        softmax<true>(g, s, packed);
        t.exchange.send_probabilities(g, packed, parity ^ 1);
        start_values(t, g, own, packed);
        t.exchange.take_probabilities(theirs, with, parity ^ 1); // meanwhile
        wgmma_wait<0>();
        tell(t.b.empty(own.stage));
        t.exchange.open(scores_message);
        agree(g, theirs, with);
        start_values(t, g, other, theirs);
        wgmma_wait<0>();
        tell(t.b.empty(other.stage));
        own.step(2);
        other.step(2);
        k++;
    } while (--count > 0);
    line.place = roles::own ? other : own;
    line.rotary = k;
}

// A piece's tiles: the group's rows of the block's columns of the output, not yet divided by the sums. Comes back with what the partner
// told last.
template <int rank, int group>
__device__ __forceinline__ void attend(pair_tools &t, const gen_mla_decode_params &p, const pair_kept &w, group_state &g, told &last)
{
    pair_line line = {{mla_uniform(w.line.place.stage), static_cast<unsigned>(mla_uniform(w.line.place.parity))},
                      static_cast<unsigned>(mla_uniform(w.line.rotary))};
    t.exchange.open(pair_roles<rank, group>::own == 0 || mla_uniform(w.piece.tiles) > 1 ? scores_message : probabilities_message);
    // The loop of whole rounds stands behind what every piece needs, for code that a short piece leaves out costs it fetches.
    for (int i = 0; i < mla_uniform(w.piece.tiles);) {
        add_round<rank, group>(t, p, w, g, line, i, last);
        line.place.step(2);
        line.rotary++;
        i += 2;
        const int whole = mla_uniform(w.whole);
        if (i < whole) {
            add_rounds<rank, group>(t, g, line, mla_uniform(w.messages) & 1, (whole - i + 1) / 2);
            i = (mla_uniform(w.whole) + 1) & ~1; // two tiles are left at least
            last = {};                           // which tell anew
        }
    }
}

} // namespace
