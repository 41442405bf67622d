// The Hopper kernel of mla_decode whose scores have a group of their own: what a block has in shared memory.
//
// What it shares with the other Hopper kernel (wgmma_block.cuh: pieces, clearing rows, writing results) finds its stages behind the
// queries, which lie in registers here: block_state::base is so much below where stage 0 begins that stages come out right.
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
    unsigned long long full[5];                  // a run of cells has landed
    unsigned long long ready;                    // probabilities and what goes with them are there; an arrival a warp of the score group
    unsigned long long empty[2];                 // an output group is done with its half of the columns, and with the probabilities
    float minus[rows / 2][2];                    // -M of the probabilities, of the two rows of four lanes
    float sums[rows];                            // of the piece that ends with the tile
};

// Tiles of a piece whose places are yet to be looked up.
struct listed_piece {
    const int *pages;                            // of its request
    int first_row, kv_len;                       // cache row that tile `begin` begins with
    unsigned begin, end;                         // tiles, counted from the block's first
};

struct scores_control {
    stage_control stage[stages];
    mla_place places[listed_places][most_boxes]; // of a tile's boxes; row -1: there is none
    // What the warp that lists knows: pieces in order, but for empty ones.
    listed_piece pieces[listed_pieces];
    mla_cut next;                                // the walk goes on there
    unsigned listed, looked_up;                  // pieces so far
    mla_share share;
};

constexpr int ring_bytes = stages * stage_bytes;
static_assert(runs <= 5 && look + 1 < listed_places && look + 2 < listed_pieces, "the control's arrays");

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

    __device__ __forceinline__ unsigned cells() const { return base + stage * stage_bytes; }
    __device__ __forceinline__ unsigned probabilities() const { return cells() + 8 * cell; } // in place of the rotary keys
    __device__ __forceinline__ unsigned control() const { return base + ring_bytes + stage * static_cast<int>(sizeof(stage_control)); }
    __device__ __forceinline__ unsigned full(int n) const { return control() + n * 8; }
    __device__ __forceinline__ unsigned ready() const { return control() + 40; }
    __device__ __forceinline__ unsigned empty(int half) const { return control() + 48 + half * 8; }
    __device__ __forceinline__ unsigned minus() const { return control() + 64; }
    __device__ __forceinline__ unsigned sums() const { return control() + 64 + rows * 4; }
};

} // namespace
