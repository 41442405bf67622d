// The Hopper kernel of mla_decode whose scores have a group of their own: what a block has in shared memory.
//
// What it shares with the other Hopper kernel (wgmma_block.cuh: pieces, clearing rows, writing results) finds its stages behind the
// queries, most of which lie in registers here: block_state::base is so much below where stage 0 begins that stages come out right.
#pragma once

#include "mla_decode/wgmma_block.cuh"

namespace {

constexpr int stages = 3;
constexpr int look = stages + tiles_ahead;       // a tile's place is looked up so many tiles before its scores
constexpr int listed_places = 8;                 // tiles in the list of places, a power of two above look + 1
constexpr int listed_pieces = 8;                 // above look + 2, for a piece in the list has a tile at least
constexpr int most_boxes = 4;                    // of a tile

// Named barriers beside those of clear_rows(). 0 is the whole block.
constexpr int scores_done = 1;                   // every warp's scores of the tile are there: its rotary cell is free
constexpr int places_listed = 2;                 // of the first tiles

// What stands behind the tiles for each stage, so that it is a constant away from one address.
struct stage_control {
    unsigned long long full[4];                  // a run of latent cells has landed
    unsigned long long ready;                    // probabilities and what goes with them are there; an arrival a warp of the score group
    unsigned long long empty[2];                 // an output group is done with its half of the columns
    unsigned long long reserved;
    float minus[rows / 2][2];                    // -M of the probabilities, of the two rows of four lanes
    float sums[rows];                            // of the piece that ends with the tile
};

// The cells that hold a tile's rotary keys and then its probabilities are two, tiles take them in turn.
struct turn_control {
    unsigned long long full;                     // the rotary keys have landed
    unsigned long long taken;                    // an arrival a warp of both output groups: the probabilities are no longer read
};

// A piece that has tiles, for the score group and for looking up places.
struct listed_piece {
    const int *pages;                            // of its request
    int first_row, kv_len;                       // cache row that tile `begin` begins with
    unsigned begin, end;                         // tiles, counted from the block's first
    mla_tokens tokens;
};

// What a warp of the output groups leaves here while the output takes its registers.
struct kept_piece {
    block_piece w;
    mla_cut next;
};

struct scores_control {
    stage_control stage[stages];
    turn_control turn[2];
    mla_place places[listed_places][most_boxes]; // of a tile's boxes; row -1: there is none
    listed_piece pieces[listed_pieces];
    mla_cut next;                                // the walk that lists goes on there
    unsigned listed, looked_up;                  // pieces so far
    int limits[rows];                            // of the piece's rows: see mla_limit()
    kept_piece kept[8];
    mla_share share;
};

// The ninth cells of the first two stages are those of the turns; that of the last one, and one behind it for the rotary part, hold what of
// the queries registers do not.
constexpr int queries_at = 2 * stage_bytes + 8 * cell;
constexpr int control_at = queries_at + (rope ? 2 : 1) * cell;
constexpr int turns_at = control_at + stages * static_cast<int>(sizeof(stage_control));
constexpr int places_at = turns_at + 2 * static_cast<int>(sizeof(turn_control));
static_assert(latent_runs == 4 && look + 1 < listed_places && look + 2 < listed_pieces, "the control's arrays");

// A tile's stage, and the parity of its barriers' phase.
struct ring_place {
    unsigned base;                               // shared address of the ring
    int stage;
    unsigned parity;

    __device__ __forceinline__ void step()
    {
        const bool wraps = stage == stages - 1;
        stage = wraps ? 0 : stage + 1;
        parity ^= wraps ? 1 : 0;
    }

    __device__ __forceinline__ ring_place before() const { return {base, stage == 0 ? stages - 1 : stage - 1, 0}; } // parity aside

    __device__ __forceinline__ unsigned cells() const { return base + stage * stage_bytes; }
    __device__ __forceinline__ unsigned control() const { return base + control_at + stage * static_cast<int>(sizeof(stage_control)); }
    __device__ __forceinline__ unsigned full(int n) const { return control() + n * 8; }
    __device__ __forceinline__ unsigned ready() const { return control() + 32; }
    __device__ __forceinline__ unsigned empty(int half) const { return control() + 40 + half * 8; }
    __device__ __forceinline__ unsigned minus() const { return control() + 64; }
    __device__ __forceinline__ unsigned sums() const { return control() + 64 + rows * 4; }
};

// Where a tile's rotary keys and probabilities are.
struct turn_place {
    unsigned base;
    int turn;
    unsigned parity;

    __device__ __forceinline__ turn_place(unsigned base, unsigned tile) : base(base), turn(tile & 1), parity(tile >> 1 & 1) {}

    __device__ __forceinline__ unsigned keys() const { return base + 8 * cell + turn * stage_bytes; }
    __device__ __forceinline__ unsigned full() const { return base + turns_at + turn * static_cast<int>(sizeof(turn_control)); }
    __device__ __forceinline__ unsigned taken() const { return full() + 8; }
};

} // namespace
