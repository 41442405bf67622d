// The Hopper kernel of mla_decode whose scores have a group of their own: how its tiles come.
//
// There are no registers for a group that feeds. A warp of the score group looks up where a tile lies, some tiles ahead, and leaves
// that in shared memory; a warp of each output group asks the copy engine for its half of the columns as soon as the group is done
// with the half of the tile that was there, which no other group knows sooner.
#pragma once

#include "mla_decode/wgmma_scores_block.cuh"

namespace {

// Lists pieces until it knows `tiles` of the block, or all. The first warp of the score group calls it.
__device__ __forceinline__ void list_pieces(const gen_mla_decode_params &p, const block_state &b, scores_control *c, unsigned tiles)
{
    mla_walk walk(c->share, b.part);
    walk.next = mla_uniform(c->next);
    unsigned listed = mla_uniform(c->listed);
    unsigned end = listed ? mla_uniform(c->pieces[(listed - 1) % listed_pieces].end) : 0;
    block_piece w;
#pragma unroll 1
    while (static_cast<int>(end - tiles) < 0 && next_piece(p, b, walk, w)) {
        if (w.tiles <= 0)
            continue;
        const mla_pages pages(p, w.piece.request);
        c->pieces[listed % listed_pieces] = {pages.indices, w.piece.first * rows, w.piece.kv_len, end, end + w.tiles};
        end += w.tiles;
        listed++;
    }
    __syncwarp(); // every lane has read what comes next
    c->next = walk.next;
    c->listed = listed;
    __syncwarp();
}

// Asks where tile `tile` of the block lies; each lane of the first most_boxes its box of it. Tiles are asked for in order.
__device__ __forceinline__ mla_place look_up(const gen_mla_decode_params &p, scores_control *c, unsigned tile)
{
    const int lane = threadIdx.x % 32;
    unsigned at = c->looked_up;
    const unsigned listed = c->listed;
    if (at < listed && tile == c->pieces[at % listed_pieces].end) {
        at++;
        __syncwarp();
        c->looked_up = at;
    }
    mla_place place = {0, -1};
    if (at < listed && lane < most_boxes) {
        const listed_piece &piece = c->pieces[at % listed_pieces];
        const int row = piece.first_row + static_cast<int>(tile - piece.begin) * rows + lane * p.map_rows;
        if (lane * p.map_rows < rows && row < piece.kv_len) {
            const unsigned page = mla_quotient(row, p.page_mul, p.page_shift);
            place = {load_global(piece.pages + page), row - static_cast<int>(page) * p.page_size};
        }
    }
    __syncwarp();
    return place;
}

__device__ __forceinline__ void list_place(scores_control *c, unsigned tile, const mla_place &place)
{
    if (threadIdx.x % 32 < most_boxes)
        c->places[tile % listed_places][threadIdx.x % 32] = place;
}

// Asks for an output group's half of a tile, and the second group for its rotary keys. `again`: the stage held a tile before, in the
// phase that `at` tells of. One warp of the group calls it.
__device__ __forceinline__ void request(const gen_mla_decode_params &p, const scores_control *c, const ring_place &at, int half,
                                        unsigned tile, bool again)
{
    const tensor_map *const ckv = reinterpret_cast<const tensor_map *>(p.ckv_map);
    const tensor_map *const kpe = reinterpret_cast<const tensor_map *>(p.kpe_map);
    const unsigned long long policy = policy_evict_first();
    const int lane = threadIdx.x % 32;
    const mla_place place = c->places[tile % listed_places][lane % most_boxes];
    const int here = __popc(__ballot_sync(0xffffffffu, lane < most_boxes && place.row >= 0)); // boxes with valid rows
    if (here == 0)
        return; // the block has no such tile
    if (again)
        mbarrier_wait(at.empty(half), at.parity);
    __syncwarp(); // no lane is left behind to take a later phase for this one
    const int box_rows = p.map_rows;
    const unsigned bytes = here * box_rows * 128;
#pragma unroll 1
    for (int n = half * (latent_runs / 2);; n++) {
        const bool rotary = n == latent_runs;
        if (n == (half + 1) * (latent_runs / 2) && !(rope && rotary))
            break;
        if (rotary && again) {
            mbarrier_wait(at.empty(0), at.parity);
            __syncwarp();
        }
        if (elect_one())
            mbarrier_expect(at.full(n), rotary ? bytes : run * bytes);
        const int copies = box_rows == rows || rotary ? 1 : run; // a box of a whole tile is a run wide
#pragma unroll 1
        for (int box = 0; box < here; box++) {
            const int page = __shfl_sync(0xffffffffu, place.page, box), row = __shfl_sync(0xffffffffu, place.row, box);
#pragma unroll 1
            for (int k = 0; k < copies; k++)
                if (elect_one())
                    tensor_load_4d(at.cells() + (n * run + k) * cell + box * box_rows * 128, rotary ? kpe : ckv, 0, row,
                                   rotary ? 0 : n * run + k, page, at.full(n), policy);
        }
        if (rotary)
            break;
    }
}

} // namespace
