// The Hopper kernel of mla_decode whose scores have a group of their own: how its tiles come.
//
// There are no registers for a group that feeds. A warp of the score group looks up where a tile lies, some tiles ahead, and leaves
// that in shared memory; a warp of each output group asks the copy engine for its half of the columns as soon as the group is done
// with the half of the tile that was there, which no other group knows sooner, and one of the second for rotary keys. A ready barrier shows
// them what was looked up before it.
#pragma once

#include "mla_decode/wgmma_group.cuh"
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
        c->pieces[listed % listed_pieces] = {pages.indices, w.piece.first * rows, w.piece.kv_len, end, end + w.tiles,
                                               w.tokens};
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

// The lane's box of a tile, and how many boxes there are.
__device__ __forceinline__ mla_place listed_place(unsigned base, unsigned tile, int &boxes)
{
    const int lane = threadIdx.x % 32;
    unsigned page, row;
    load_shared_8(base + places_at + tile % listed_places * (most_boxes * 8) + lane % most_boxes * 8, page, row);
    boxes = mla_uniform(__popc(__ballot_sync(0xffffffffu, lane < most_boxes && static_cast<int>(row) >= 0)));
    return {static_cast<int>(page), static_cast<int>(row)};
}

// Asks for an output group's half of a tile's latent columns. `again`: the stage held a tile before, in the phase that `at` tells of. One
// warp of the group calls it. Of the rotary keys, which come later, it has a copy brought to L2.
__device__ __forceinline__ void request(const gen_mla_decode_params &p, const ring_place &at, int half,
                                        unsigned tile, bool again)
{
    const tensor_map *const ckv = reinterpret_cast<const tensor_map *>(p.ckv_map);
    int boxes;
    const mla_place place = listed_place(at.base, tile, boxes);
    if (boxes == 0)
        return; // the block has no such tile
    if (again)
        mbarrier_wait(at.empty(half), at.parity);
    __syncwarp(); // no lane is left behind to take a later phase for this one
    const unsigned bytes = boxes * p.map_rows * 128;
    const int copies = p.map_rows == rows ? 1 : run; // a box of a whole tile is a run wide
#pragma unroll 1
    for (int n = half * (latent_runs / 2); n < (half + 1) * (latent_runs / 2); n++) {
        if (elect_one())
            mbarrier_expect(at.full(n), run * bytes);
#pragma unroll 1
        for (int box = 0; box < boxes; box++) {
            const int page = __shfl_sync(0xffffffffu, place.page, box), row = __shfl_sync(0xffffffffu, place.row, box);
#pragma unroll 1
            for (int k = 0; k < copies; k++)
                if (elect_one())
                    tensor_load_4d(at.cells() + (n * run + k) * cell + box * p.map_rows * 128, ckv, 0, row, n * run + k, page,
                                   at.full(n), policy_evict_first());
        }
    }
    if (rope && half == 1)
#pragma unroll 1
        for (int box = 0; box < boxes; box++) {
            const int page = __shfl_sync(0xffffffffu, place.page, box), row = __shfl_sync(0xffffffffu, place.row, box);
            if (elect_one())
                tensor_prefetch_4d(reinterpret_cast<const tensor_map *>(p.kpe_map), 0, row, 0, page);
        }
}

// Asks for a tile's rotary keys, which take the place of the probabilities of the tile two before. One warp of the block calls it.
__device__ __forceinline__ void request_rotary(const gen_mla_decode_params &p, unsigned base, unsigned tile)
{
    const turn_place at(base, tile);
    int boxes;
    const mla_place place = listed_place(base, tile, boxes);
    if (boxes == 0)
        return;
    if (tile >= 2)
        mbarrier_wait(at.taken(), at.parity ^ 1);
    __syncwarp();
    if (elect_one())
        mbarrier_expect(at.full(), boxes * p.map_rows * 128);
#pragma unroll 1
    for (int box = 0; box < boxes; box++) {
        const int page = __shfl_sync(0xffffffffu, place.page, box), row = __shfl_sync(0xffffffffu, place.row, box);
        if (elect_one())
            tensor_load_4d(at.keys() + box * p.map_rows * 128, reinterpret_cast<const tensor_map *>(p.kpe_map), 0, row, 0, page, at.full(),
                           policy_evict_first());
    }
}

} // namespace
