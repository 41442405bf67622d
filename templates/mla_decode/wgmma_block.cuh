// The Hopper kernel of mla_decode: a block's shared memory, and its share of a part's pieces.
#pragma once

#include "mla_decode/args.h"
#include "mla_decode/rows.cuh"
#include "mla_decode/schedule.cuh"
#include "lib/ptx/cp_async.cuh"

namespace {

constexpr int rows = 64, latent = MLA_LATENT;
constexpr int cell = 8192;            // bytes of 64 rows x 64 columns
constexpr int run = MLA_MAP_CELLS;    // neighbouring cells that arrive together
constexpr int latent_runs = 8 / run;  // the RoPE block is a run of its own
constexpr int stage_bytes = 9 * cell; // the ninth always: it holds probabilities, too

// Named barriers. 0 is the whole block.
constexpr int group_barrier = 1; // + group

// What follows from a variant's axes. `A` has them: rope, gathers (threads copy the tiles, not TMA), cluster_blocks (blocks
// of a cluster, which share every request of their part), tiles_ahead (that TMA prefetches to L2), and the type `element`.
template <class A> struct mla_hopper : A {
    static constexpr int cells = A::rope ? 9 : 8; // of a row that is multiplied: 8 of the latent, the RoPE block
    static constexpr int runs = (cells + run - 1) / run;
    static constexpr int q_bytes = cells * cell;
    static constexpr int tiles_bytes = q_bytes + 2 * stage_bytes;

    // mbarriers. Every lane arrives for what it read or wrote itself. One lane's arrival would order the accesses of its
    // whole warp, but compute-sanitizer's racecheck does not follow that.
    static constexpr int full_barrier = 0; // + stage's number x runs + run: the run of cells has arrived
    // + stage's number x 2 + output half: that half (four cells) is no longer read.
    static constexpr int empty_barrier = 2 * runs;
    static constexpr int q_full_barrier = empty_barrier + 4, q_empty_barrier = q_full_barrier + 1;
    // + stage's number: the probabilities of its tile are there for the other group.
    static constexpr int given_barrier = q_full_barrier + 2;
    static constexpr int summed_barrier = q_full_barrier + 4; // both groups' sums of the piece are there
    static constexpr int mbarriers = q_full_barrier + 5;

    static __device__ __forceinline__ constexpr unsigned stage_at(int s)
    {
        return q_bytes + s * stage_bytes; // behind the queries
    }
};

// Behind the tiles.
template <class S> struct control {
    unsigned long long barriers[S::mbarriers];
    // -M of a stage's probabilities, of the two rows of four lanes; block_state::neg_max().
    unsigned neg_max[2][rows / 2][2];
    float sums[2][2][rows]; // by piece's parity and group
    mla_share share;
    float lse[rows]; // of the output that a block of a cluster has of the request
};

// The runs of a stage in the order in which they are released and loaded: first the half that the owner's own products read
// first.
__device__ __forceinline__ int run_at(int stage, int position)
{
    return position < latent_runs ? position ^ (stage * latent_runs / 2) : latent_runs;
}

// An address is one register and a constant. For pointers to members the compiler makes 64-bit arithmetic at each use.
template <class S> struct block_state {
    control<S> *c;
    unsigned base; // shared address of the tiles
    int row_tile, part;
    int rank; // in the cluster

    __device__ __forceinline__ unsigned stage(int s) const { return base + S::stage_at(s); }
    __device__ __forceinline__ unsigned full(int s, int i) const { return barrier(S::full_barrier + s * S::runs + i); }
    __device__ __forceinline__ unsigned empty(int s, int half) const
    {
        return barrier(S::empty_barrier + s * 2 + half);
    }
    __device__ __forceinline__ unsigned q_full() const { return barrier(S::q_full_barrier); }
    __device__ __forceinline__ unsigned q_empty() const { return barrier(S::q_empty_barrier); }
    __device__ __forceinline__ unsigned given(int s) const { return barrier(S::given_barrier + s); }
    __device__ __forceinline__ unsigned summed() const { return barrier(S::summed_barrier); }
    __device__ __forceinline__ unsigned barrier(int number) const { return base + S::tiles_bytes + number * 8; }
    __device__ __forceinline__ unsigned neg_max() const { return barrier(S::mbarriers); } // behind the barriers
};

// What a block has of a piece: its packed rows and its tiles. Both sides of the pipeline walk the same list.
struct block_piece {
    mla_piece piece;
    mla_tokens tokens;
    int first_row, num_rows; // packed rows of the tile, of this request
    int tiles;
};

template <class S>
__device__ __forceinline__ bool next_piece(const gen_mla_decode_params &p, const block_state<S> &b, mla_walk &walk,
                                           block_piece &w)
{
    while (walk.step(p.schedule, p.kv_len, w.piece)) {
        w.tokens = mla_request_tokens(p.q_indptr, p.q_len, w.piece.request);
        w.first_row = b.row_tile * rows;
        w.num_rows = min(w.tokens.count * p.num_heads - w.first_row, rows);
        if (S::cluster_blocks > 1) { // a request is the whole piece, and cut the same way whatever the batch is
            const int blocks = w.piece.last;
            w.piece.first = blocks * b.rank / S::cluster_blocks;
            w.piece.last = blocks * (b.rank + 1) / S::cluster_blocks;
        }
        w.tiles = w.piece.kv_len > 0 ? w.piece.last - w.piece.first : 0;
        if (w.num_rows > 0)
            return true;
    }
    return false;
}

// Loads 16 bytes of every cell of a row of queries.
template <class S>
__device__ __forceinline__ void copy_query(const gen_mla_decode_params &p, const block_piece &w, int row, int chunk,
                                           unsigned to)
{
    const bool valid = row < w.num_rows;
    const mla_row at(p, w.tokens, w.first_row + (valid ? row : 0));
    const unsigned short *const nope = at.q_nope(p) + chunk * 8;
#pragma unroll
    for (int n = 0; n < 8; n++)
        cp_async_16_or_zero(to + n * cell, nope + n * 64, valid);
    if (S::rope)
        cp_async_16_or_zero(to + 8 * cell, at.q_pe(p) + chunk * 8, valid);
}

} // namespace
