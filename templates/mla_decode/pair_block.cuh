// The Hopper kernel of mla_decode for pairs of blocks: what a block has in shared memory, and what of its part's pieces is its own.
// What includes these headers (pair_*.cuh) says before what those of the kernel of one block (wgmma_*.cuh) want, which lend
// what they have to these.
#pragma once

#include "mla_decode/wgmma_output.cuh"
#include "lib/cluster.cuh"
#include "lib/cluster_store.cuh"
#include "lib/multicast.cuh"

namespace {

static_assert(team == 1 && !gathers, "what is lent is of the kernel of one block that the copy engine feeds");

constexpr int pair_rows = 2 * rows;                          // packed rows of both blocks, a half of them a group
constexpr int pair_cells = 4, pair_runs = pair_cells / run;  // of a tile: the block's columns, as keys and as values
constexpr int pair_stages = 3;
constexpr unsigned pair_stage_bytes = pair_cells * cell;

// Where in shared memory. Queries: four cells of the block's columns for each group, then a rotary one for each.
constexpr unsigned rotary_queries_at = 2 * pair_cells * cell;
constexpr unsigned stages_at = rotary_queries_at + (rope ? 2 * cell : 0);
constexpr unsigned rotary_at = stages_at + pair_stages * pair_stage_bytes; // rotary keys of every other tile: two places
constexpr unsigned exchange_at = rotary_at + (rope ? 2 * cell : 0);
constexpr unsigned exchange_warp = 4096;                     // bytes that a warp's partner writes to: 128 a thread
constexpr unsigned pair_bytes = exchange_at + 8 * exchange_warp;

// Named barriers: beside those of wgmma_block.cuh.
constexpr int tile_cut = 6;

// mbarriers.
constexpr int pair_full = 0;                                 // + stage x runs + run: the run of cells has landed
constexpr int pair_empty = pair_stages * pair_runs;          // + stage: no longer read, by any of eight warps
constexpr int rotary_full = pair_empty + pair_stages;        // + place
constexpr int rotary_empty = rotary_full + 2;                // + place
constexpr int pair_q_full = rotary_empty + 2, pair_q_empty = pair_q_full + 1;
constexpr int exchange_full = pair_q_empty + 1;              // + warp of the eight: what the partner sent is there
constexpr int exchange_open = exchange_full + 8;             // + warp: the partner's warp of this number takes the next message
constexpr int pair_barriers = exchange_open + 8;

// The stage of a tile, and the parity of its phase there: tiles take the stages in turn, whatever pieces they are of.
struct tile_place {
    int stage;
    unsigned parity;

    // On by one or two tiles.
    __device__ __forceinline__ void step(int tiles)
    {
        stage += tiles;
        if (stage >= pair_stages) {
            stage -= pair_stages;
            parity ^= 1;
        }
    }
};

// Where a group is on the line of all tiles.
struct pair_line {
    tile_place place; // of a round's first tile
    unsigned rotary;  // tiles before whose rotary keys are this block's
};

// What a warp that calculates knows of its piece. While it adds up tiles it wants all registers, so this is in shared memory.
struct pair_kept {
    block_piece piece;
    mla_cut next;      // of the walk
    pair_line line;    // before the piece
    unsigned messages, pieces; // before the piece
    int seen;          // cache rows that count for the first of the pair's rows, which sees least
    int whole;         // rounds of two tiles that begin before this one, but for the first, go by add_rounds()
};

// Behind the tiles.
struct pair_control {
    unsigned long long barriers[pair_barriers];
    mla_share share;
    int row_tile, part, rank; // see pair_state
    pair_kept kept[8];
};

struct pair_state {
    pair_control *c;
    unsigned base; // shared address of the queries

    // Read again wherever they are wanted, for registers, uniform ones too, are what there is least of. Of the two blocks, that of rank r
    // has the latent's columns 256 r onwards.
    __device__ __forceinline__ int row_tile() const { return mla_uniform(c->row_tile); }
    __device__ __forceinline__ int part() const { return mla_uniform(c->part); }
    __device__ __forceinline__ int rank() const { return mla_uniform(c->rank); }

    __device__ __forceinline__ unsigned barrier(int number) const { return base + pair_bytes + number * 8; }
    __device__ __forceinline__ unsigned stage(int s) const { return base + stages_at + s * pair_stage_bytes; }
    __device__ __forceinline__ unsigned full(int s, int n) const { return barrier(pair_full + s * pair_runs + n); }
    __device__ __forceinline__ unsigned empty(int s) const { return barrier(pair_empty + s); }
};

// Of every two tiles of a piece each block has the rotary keys of one, that of its rank. How many of so many tiles that are.
__device__ __forceinline__ int rotary_tiles(const pair_state &b, int tiles)
{
    return (tiles + 1 - b.rank()) / 2;
}

// Of the two blocks: both walk the same list.
__device__ __forceinline__ bool next_piece(const gen_mla_decode_params &p, const pair_state &b, mla_walk &walk, block_piece &w)
{
    while (walk.step(p.schedule, p.kv_len, w.piece)) {
        w.tokens = mla_request_tokens(p.q_indptr, p.q_len, w.piece.request);
        w.first_row = b.row_tile() * pair_rows;
        w.num_rows = min(w.tokens.count * p.num_heads - w.first_row, pair_rows);
        w.tiles = w.piece.kv_len > 0 ? w.piece.last - w.piece.first : 0;
        if (w.num_rows > 0)
            return true;
    }
    return false;
}

} // namespace
