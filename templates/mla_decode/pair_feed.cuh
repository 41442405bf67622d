// The Hopper kernel of mla_decode for pairs of blocks: the feeding group.
#pragma once

#include "mla_decode/pair_block.cuh"

namespace {

// One warp asks the copy engine for the block's columns of every tile, and for the rotary keys of every other one. Lane l looks up
// the rows of the tile's l-th box, a page or a part of one; one lane asks for all.
__device__ void feed_pair_tiles(const gen_mla_decode_params &p, const pair_state &b)
{
    const int lane = threadIdx.x % 32;
    const tensor_map *const ckv = reinterpret_cast<const tensor_map *>(p.ckv_map);
    const tensor_map *const kpe = reinterpret_cast<const tensor_map *>(p.kpe_map);
    const unsigned long long policy = policy_evict_first();
    const int box_rows = p.map_rows, box_shift = 31 - __clz(box_rows), boxes = rows >> box_shift; // 16, 32 or 64 rows
    const int rank = b.rank();
    mla_walk walk(b.c->share, b.part());
    block_piece w;
    tile_place place = {0, 1}; // of the phase before: a stage is empty at first
    unsigned rotary = 0;       // tiles so far whose rotary keys are this block's
    while (next_piece(p, b, walk, w)) {
        const mla_pages pages(p, w.piece.request);
        const int first = w.piece.first * rows + lane * box_rows; // cache row of the lane's box of tile 0
        const int end = lane < boxes ? min(w.piece.kv_len, w.piece.last * rows) : 0;
        mla_place next = {};
        if (first < end)
            next = pages.find(p, first);
        for (int i = 0; i < w.tiles; i++) {
            const int tile_row = (w.piece.first + i) * rows;
            const int here = min(boxes, (w.piece.kv_len - tile_row + box_rows - 1) >> box_shift); // boxes with valid rows
            const unsigned bytes = here * box_rows * 128;
            const mla_place found = next;
            const int page = mla_uniform(found.page), row = mla_uniform(found.row);
            const int later = first + (i + 1) * rows;
            if (later < end)
                next = pages.find(p, later); // a tile ahead
            mbarrier_wait(b.empty(place.stage), place.parity);
            const bool with_rotary = rope && (i & 1) == rank;
            if (with_rotary)
                mbarrier_wait(b.barrier(rotary_empty + (rotary & 1)), (rotary >> 1 & 1) ^ 1);
            __syncwarp(); // no lane is left behind to take these barriers' next phases for this one
#pragma unroll
            for (int n = 0; n < pair_runs + (rope ? 1 : 0); n++) {
                const bool is_rotary = n == pair_runs;
                if (is_rotary && !with_rotary)
                    break;
                const unsigned to = is_rotary ? b.base + rotary_at + (rotary & 1) * cell : b.stage(place.stage) + n * run * cell;
                const unsigned full = is_rotary ? b.barrier(rotary_full + (rotary & 1)) : b.full(place.stage, n);
                const int from = is_rotary ? 0 : rank * pair_cells + n * run; // cell
                const tensor_map *const map = is_rotary ? kpe : ckv;
                if (elect_one()) {
                    mbarrier_expect(full, is_rotary ? bytes : run * bytes);
                    if (boxes == 1)
                        tensor_load_4d(to, map, 0, row, from, page, full, policy);
                }
                if (boxes > 1)
#pragma unroll 1
                    for (int box = 0; box < here; box++) {
                        const int box_page = __shfl_sync(0xffffffffu, found.page, box), box_row = __shfl_sync(0xffffffffu, found.row, box);
                        if (elect_one())
#pragma unroll
                            for (int k = 0; k < (is_rotary ? 1 : run); k++)
                                tensor_load_4d(to + k * cell + box * box_rows * 128, map, 0, box_row, from + k, box_page, full, policy);
                    }
            }
            rotary += with_rotary;
            place.step(1);
        }
    }
}

// Two more warps bring the queries of a piece, the block's columns of all rows, zeros where the tile has no row: a thread 16 bytes of
// each cell of every eighth row.
__device__ void feed_pair_queries(const gen_mla_decode_params &p, const pair_state &b)
{
    const int line = threadIdx.x % 64 / 8, chunk = threadIdx.x % 8;
    const unsigned to = b.base + line * 128 + ((chunk ^ line) << 4); // 8 rows further it is the same chunk
    const int rank = b.rank();
    mla_walk walk(b.c->share, b.part());
    block_piece w;
    unsigned pieces = 0;
    while (next_piece(p, b, walk, w)) {
        mbarrier_wait(b.barrier(pair_q_empty), (pieces & 1) ^ 1);
#pragma unroll 1
        for (int k = 0; k < pair_rows / 8; k++) {
            const int row = 8 * k + line, group = k / 8;
            const bool valid = row < w.num_rows;
            const mla_row at(p, w.tokens, w.first_row + (valid ? row : 0));
            const unsigned short *const nope = at.q_nope(p) + rank * (latent / 2) + chunk * 8;
            const unsigned to_row = to + k % 8 * 1024;
#pragma unroll
            for (int n = 0; n < pair_cells; n++)
                cp_async_16_or_zero(to_row + (group * pair_cells + n) * cell, nope + n * 64, valid);
            if (rope)
                cp_async_16_or_zero(to_row + rotary_queries_at + group * cell, at.q_pe(p) + chunk * 8, valid);
        }
        cp_async_mbarrier_arrive(b.barrier(pair_q_full));
        pieces++;
    }
    cp_async_wait<0>();
}

} // namespace
