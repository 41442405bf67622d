// The Hopper kernel of mla_decode for 8-bit caches: a block's shared memory, and its share of a part's pieces.
#pragma once

#include "mla_decode/args.h"
#include "mla_decode/rows.cuh"
#include "mla_decode/schedule.cuh"
#include "lib/swizzle.cuh"

namespace {

constexpr int tile_rows = 64, latent = MLA_LATENT;
constexpr int consumers = 256; // threads: two warpgroups

// Named barriers. 0 is the whole block.
constexpr int group_barrier = 1;    // + group
constexpr int consumer_barrier = 3; // both groups

// What follows from a variant's axes. `A` has them: `element` of outputs and, without byte_queries, of queries; rope, gathers
// (threads copy the tiles, not TMA), q_rows (packed rows of a block), stages.
template <class A> struct mla_bytes : A {
    static constexpr int columns = latent + (A::rope ? MLA_ROPE : 0);
    // Both groups compute every tile's products, half of the output's columns each. Otherwise each has tiles of its own and
    // all columns.
    static constexpr bool shared_tiles = A::q_rows == 64;
    static constexpr int output_tiles = shared_tiles ? 4 : 8; // of 64 columns, of a group

    // Left operands in registers, and how many steps before its product each is made.
    static constexpr int operands_alive = 8, operands_ahead = 4, operands_group = 2;

    // Queries in fp16 or as they are in e4m3, cells of rows of 128 bytes.
    static constexpr int q_cell = A::q_rows * 128, q_cell_columns = A::byte_queries ? 128 : 64;
    static constexpr int q_bytes = (columns + q_cell_columns - 1) / q_cell_columns * q_cell;
    // Probabilities of a tile: packed rows of 64 keys. Groups with tiles of their own have two places, so that a warp may store
    // those of the next tile while others multiply.
    static constexpr int probabilities_at = q_bytes, probability_bytes = A::q_rows * 128;
    static constexpr int probability_places = shared_tiles ? 1 : 2;
    // A tile's bytes as they are in the cache: cells of 128 columns of the latent, and one of the RoPE columns.
    static constexpr int cell = tile_rows * 128, rope_at = 4 * cell;
    static constexpr int stage_bytes = rope_at + (A::rope ? tile_rows * MLA_ROPE : 0);
    static constexpr int stages_at = probabilities_at + 2 * probability_places * probability_bytes;
    // Sums of threads' own probabilities, where registers are too few for them: four times 16 bytes a thread.
    static constexpr int sums_at = stages_at + A::stages * stage_bytes, sums_bytes = shared_tiles ? 64 * consumers : 0;
    static constexpr int tiles_bytes = sums_at + sums_bytes;

    // mbarriers. Where groups have tiles of their own and stages are odd, a stage's tiles are the groups' by turns. Boxes need not
    // arrive in their order, so that a group may be at a stage again whose last tile, the other's, is not there yet: each has
    // a full barrier of its own then, and sees all of its phases. A thread's cp.async land in order.
    static constexpr bool alternates = !shared_tiles && A::stages % 2 && !A::gathers;
    static constexpr int full_barriers = A::stages * (alternates ? 2 : 1);
    static constexpr int full_barrier = 0;                          // + stage: the tile has arrived
    static constexpr int empty_barrier = full_barriers;             // + stage: its bytes are read
    static constexpr int given_barrier = empty_barrier + A::stages; // + group: its tile's probabilities are there
    static constexpr int taken_barrier = given_barrier + 2;         // + group: both groups have multiplied them
    static constexpr int mbarriers = taken_barrier + 2;
};

// What a block has of a piece: its packed rows and its tiles. Both sides of the pipeline walk the same list.
struct block_piece {
    mla_piece piece;
    mla_tokens tokens;
    int first_row, num_rows; // packed rows of the block, of this request
    int tiles;
};

// What a group has of the packed rows.
template <class S> struct group_numbers {
    alignas(16) float neg_max
        [S::q_rows];           // -M, plus infinity where there is none yet; the first group's where tiles are shared
    float next_max[S::q_rows]; // where a tile moves M: the new one, and the output's factor
    float factor[S::q_rows];
    float most[4][S::q_rows]; // by warp
    float sums[4][S::q_rows];
    unsigned moved[4]; // by parity of the group's tiles: the number, + 1, of the last one that moved M
};

// Behind the tiles.
template <class S> struct control {
    unsigned long long barriers[S::mbarriers];
    group_numbers<S> of_group[2];
    alignas(16) float scale[S::q_rows];       // of a packed row's scores, to base 2
    int limit[S::q_rows];                     // cache rows that count for a packed row
    alignas(8) unsigned short *to[S::q_rows]; // where packed rows' outputs go
    float out_factor[S::q_rows];              // what they are multiplied by
    mla_share share;
    block_piece piece; // that the consumers are at: registers are what there is least of
    int whole_tiles;   // of it, before the first some of whose keys do not count
};

// An address is one register and a constant.
template <class S> struct block_state {
    control<S> *c;
    unsigned base; // shared address of the tiles
    int row_tile, part;

    __device__ __forceinline__ unsigned stage(int s) const { return base + S::stages_at + s * S::stage_bytes; }
    // Of a group's tile of this number.
    __device__ __forceinline__ unsigned probabilities(int group, unsigned number) const
    {
        const unsigned place = group * S::probability_places + number % S::probability_places;
        return base + S::probabilities_at + place * S::probability_bytes;
    }
    __device__ __forceinline__ unsigned barrier(int number) const { return base + S::tiles_bytes + number * 8; }
    __device__ __forceinline__ unsigned full(int s) const { return barrier(S::full_barrier + s); }
    __device__ __forceinline__ unsigned empty(int s) const { return barrier(S::empty_barrier + s); }
    __device__ __forceinline__ unsigned given(int group) const { return barrier(S::given_barrier + group); }
    __device__ __forceinline__ unsigned taken(int group) const { return barrier(S::taken_barrier + group); }
};

template <class S>
__device__ __forceinline__ bool next_piece(const gen_mla_decode_params &p, const block_state<S> &b, mla_walk &walk,
                                           block_piece &w)
{
    while (walk.step(p.schedule, p.kv_len, w.piece)) {
        w.tokens = mla_request_tokens(p.q_indptr, p.q_len, w.piece.request);
        w.first_row = b.row_tile * S::q_rows;
        w.num_rows = min(w.tokens.count * p.num_heads - w.first_row, S::q_rows);
        w.tiles = w.piece.kv_len > 0 ? w.piece.last - w.piece.first : 0;
        if (w.num_rows > 0)
            return true;
    }
    return false;
}

// A place in the ring of stages, and the parity of its round; with two full barriers of a stage the round's number.
template <class S> struct stage_ring {
    int stage;
    unsigned round;

    __device__ __forceinline__ unsigned parity() const { return S::alternates ? round & 1 : round; }
    __device__ __forceinline__ int full() const { return stage + (S::alternates && round & 1 ? S::stages : 0); }
    __device__ __forceinline__ unsigned full_parity() const { return S::alternates ? round >> 1 & 1 : round; }

    __device__ __forceinline__ void advance(int count)
    {
        stage += count;
        if (stage >= S::stages) {
            stage -= S::stages;
            round = S::alternates ? round + 1 : round ^ 1;
        }
    }

    __device__ __forceinline__ stage_ring next() const
    {
        stage_ring r = *this;
        r.advance(1);
        return r;
    }

    __device__ __forceinline__ stage_ring previous() const
    {
        return stage == 0 ? stage_ring{S::stages - 1, S::alternates ? round - 1 : round ^ 1}
                          : stage_ring{stage - 1, round};
    }
};

} // namespace
