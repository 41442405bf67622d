// The Hopper kernel of mla_decode: the producer group where TMA loads the tiles.
#pragma once

#include "mla_decode/wgmma_block.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/uniform.cuh"

namespace {

// All threads of a cluster meet twice a request: when every block has its output in the place of its queries, and when all have read it. The
// producer has no other part in it.
__device__ __forceinline__ void pass_output()
{
    cluster_arrive();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
}

// A warp for each stage issues the TMA loads of the stage's tiles, so that neither stage waits for the other's room.
// Lane l looks up the rows of the tile's l-th box, a page or a part of one; one lane issues all.
template <class S> __device__ void produce_tiles(const gen_mla_decode_params &p, const block_state<S> &b, int s)
{
    const int lane = threadIdx.x % 32;
    const tensor_map *const ckv = reinterpret_cast<const tensor_map *>(p.ckv_map);
    const tensor_map *const kpe = reinterpret_cast<const tensor_map *>(p.kpe_map);
    const unsigned long long policy = policy_evict_first();
    const int box_rows = p.map_rows, box_shift = 31 - __clz(box_rows), boxes = rows >> box_shift; // 16, 32 or 64 rows
    mla_walk walk(b.c->share, b.part);
    block_piece w;
    unsigned t = 0;
    while (next_piece(p, b, walk, w)) {
        const mla_pages pages(p, w.piece.request);
        const int own = (t & 1) == s ? 0 : 1;                     // the stage's first tile of the piece
        const int first = w.piece.first * rows + lane * box_rows; // cache row of the lane's box of tile 0
        const int end = lane < boxes ? min(w.piece.kv_len, w.piece.last * rows) : 0;
        mla_place next = {};
        if (first + own * rows < end)
            next = pages.find(p, first + own * rows);
        for (int i = own; i < w.tiles; i += 2) {
            const unsigned parity = ((t + i) >> 1 & 1) ^ 1;
            const int tile_row = (w.piece.first + i) * rows;
            // Boxes with valid rows.
            const int here = min(boxes, (w.piece.kv_len - tile_row + box_rows - 1) >> box_shift);
            const unsigned bytes = here * box_rows * 128;
            const mla_place place = next;
            const int page = uniform(place.page), row = uniform(place.row);
            const int later = first + (i + 2) * rows;
            if (later < end)
                next = pages.find(p, later); // a tile of the stage ahead
#pragma unroll
            for (int position = 0; position < S::runs; position++) {
                const bool rotary = position == latent_runs;
                const int n = run_at(s, position);
                if (position == 0)
                    mbarrier_wait(b.empty(s, s), parity);
                if (position == latent_runs / 2) {
                    mbarrier_wait(b.empty(s, s ^ 1), parity);
                    __syncwarp(); // no lane is left behind to take these barriers' next phases for this one
                }
                if (elect_one()) {
                    mbarrier_arrive_expect_tx(b.full(s, n), rotary ? bytes : run * bytes);
                    if (boxes == 1)
                        tensor_load_4d(b.stage(s) + n * run * cell, rotary ? kpe : ckv, 0, row, rotary ? 0 : n * run,
                                       page, b.full(s, n), policy);
                }
                if (boxes > 1)
#pragma unroll 1
                    for (int box = 0; box < here; box++) {
                        const int box_page = __shfl_sync(0xffffffffu, place.page, box),
                                  box_row = __shfl_sync(0xffffffffu, place.row, box);
                        if (elect_one())
#pragma unroll
                            for (int k = 0; k < (rotary ? 1 : run); k++)
                                tensor_load_4d(b.stage(s) + (n * run + k) * cell + box * box_rows * 128,
                                               rotary ? kpe : ckv, 0, box_row, rotary ? 0 : n * run + k, box_page,
                                               b.full(s, n), policy);
                    }
            }
            const int ahead = min(boxes, (w.piece.kv_len - tile_row - 2 * rows + box_rows - 1) >> box_shift);
            // To L2, so that its place in shared memory stays empty for less long.
            if (S::tiles_ahead > 0 && i + 2 < w.tiles)
#pragma unroll 1
                for (int box = 0; box < ahead; box++) {
                    const int ahead_page = __shfl_sync(0xffffffffu, next.page, box),
                              ahead_row = __shfl_sync(0xffffffffu, next.row, box);
                    if (elect_one()) {
#pragma unroll 1
                        for (int n = 0; n < 8; n += boxes == 1 ? run : 1)
                            tensor_prefetch_4d(ckv, 0, ahead_row, n, ahead_page);
                        if (S::rope)
                            tensor_prefetch_4d(kpe, 0, ahead_row, 0, ahead_page);
                    }
                }
        }
        t += w.tiles;
        if (S::cluster_blocks > 1)
            pass_output();
    }
}

// The other two warps bring the queries of a piece, zeros where the tile has no row: a thread 16 bytes of each cell of every
// eighth row, so that it looks for eight rows and not for all.
template <class S> __device__ void produce_queries(const gen_mla_decode_params &p, const block_state<S> &b)
{
    const int line = threadIdx.x % 64 / 8, chunk = threadIdx.x % 8;
    const unsigned to = b.base + line * 128 + ((chunk ^ line) << 4); // 8 rows further it is the same chunk
    mla_walk walk(b.c->share, b.part);
    block_piece w;
    unsigned pieces = 0;
    while (next_piece(p, b, walk, w)) {
        if (S::cluster_blocks == 1)
            mbarrier_wait(b.q_empty(), (pieces & 1) ^ 1);
#pragma unroll 1
        for (int k = 0; k < 8; k++)
            copy_query<S>(p, w, 8 * k + line, chunk, to + k * 1024);
        cp_async_mbarrier_arrive(b.q_full());
        pieces++;
        if (S::cluster_blocks > 1) // other blocks read there, too
            pass_output();
    }
    cp_async_wait_group<0>();
}

} // namespace
