// The Hopper kernel of mla_decode for 8-bit caches: the producer group, which brings tiles' bytes.
#pragma once

#include "mla_decode/rgmma_block.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

// One warp issues TMA loads. Lane l looks up the rows of the tile's l-th box, a page or a part of one.
template <class S> __device__ void produce_boxes(const gen_mla_decode_params &p, const block_state<S> &b)
{
    const int lane = threadIdx.x % 32;
    const tensor_map *const ckv = reinterpret_cast<const tensor_map *>(p.ckv_map);
    const tensor_map *const kpe = reinterpret_cast<const tensor_map *>(p.kpe_map);
    const unsigned long long policy = policy_evict_first();
    const int box_rows = p.map_rows, box_shift = 31 - __clz(box_rows), boxes = tile_rows >> box_shift;
    const int cells = boxes == 1 ? MLA_MAP_CELLS : 1; // of a box
    mla_walk walk(b.c->share, b.part);
    block_piece w;
    stage_ring<S> ring = {};
    while (next_piece(p, b, walk, w)) {
        const mla_pages pages(p, w.piece.request);
        const int first = w.piece.first * tile_rows + lane * box_rows; // cache row of the lane's box of tile 0
        const int end = lane < boxes ? min(w.piece.kv_len, w.piece.last * tile_rows) : 0;
        mla_place next = {};
        if (first < end)
            next = pages.find(p, first);
        for (int i = 0; i < w.tiles; i++) {
            const mla_place place = next;
            const int left = w.piece.kv_len - (w.piece.first + i) * tile_rows;
            const int here = min(boxes, (left + box_rows - 1) >> box_shift); // boxes with valid rows
            if (first + (i + 1) * tile_rows < end)
                next = pages.find(p, first + (i + 1) * tile_rows);
            const unsigned full = b.full(ring.full()), to = b.stage(ring.stage);
            mbarrier_wait(b.empty(ring.stage), ring.parity() ^ 1);
            __syncwarp(); // no lane is left behind to take the barrier's next phase for this one
            if (elect_one())
                mbarrier_arrive_expect_tx(full, here * box_rows * S::columns);
#pragma unroll 1
            for (int box = 0; box < here; box++) {
                const int page = __shfl_sync(0xffffffffu, place.page, box),
                          row = __shfl_sync(0xffffffffu, place.row, box);
                if (elect_one()) {
#pragma unroll 1
                    for (int n = 0; n < 4; n += cells)
                        tensor_load_4d(to + n * S::cell + box * box_rows * 128, ckv, 0, row, n, page, full, policy);
                    if (S::rope)
                        tensor_load_4d(to + S::rope_at + box * box_rows * MLA_ROPE, kpe, 0, row, 0, page, full, policy);
                }
            }
            ring.advance(1);
        }
    }
}

// Every thread copies 16 bytes of four rows of each cell: rows 16 k + 4 warp + lane / 8, chunk lane % 8 of the cell's row.
// A row beyond the length, or of a page that does not exist, comes as zeros.
struct gathered_rows {
    int page[4]; // < 0: no such row

    __device__ __forceinline__ void find(const gen_mla_decode_params &p, const mla_pages &pages, int first, int kv_len)
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int at = first + 16 * k + static_cast<int>(threadIdx.x % 128 / 8);
            page[k] = at < kv_len ? pages.find(p, at).page : -1;
        }
    }
};

template <class S> __device__ void produce_rows(const gen_mla_decode_params &p, const block_state<S> &b)
{
    const unsigned line = threadIdx.x % 128 / 8, chunk = threadIdx.x % 8;
    const unsigned to = swizzled<128>(b.base, line, chunk),
                   rope_to = S::rope_at + swizzled<64>(b.base, line, chunk % 4);
    mla_walk walk(b.c->share, b.part);
    block_piece w;
    stage_ring<S> ring = {};
    while (next_piece(p, b, walk, w)) {
        const mla_pages pages(p, w.piece.request);
        gathered_rows next;
        next.find(p, pages, w.piece.first * tile_rows, w.piece.kv_len);
#pragma unroll 1
        for (int i = w.piece.first; i < w.piece.first + w.tiles; i++) {
            const unsigned stage = S::stages_at + ring.stage * S::stage_bytes;
            mbarrier_wait(b.empty(ring.stage), ring.parity() ^ 1);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const bool valid = static_cast<unsigned>(next.page[k]) < static_cast<unsigned>(p.num_pages);
                const long long page = valid ? next.page[k] : 0;
                const int at =
                    i * tile_rows + 16 * k + static_cast<int>(line); // its page is not divided for twice: registers
                const int row = at - static_cast<int>(quotient_or_shift(at, p.page_mul, p.page_shift)) * p.page_size;
                const unsigned char *const ckv = static_cast<const unsigned char *>(p.ckv) + page * p.ckv_page_stride +
                                                 row * p.ckv_row_stride + chunk * 16;
#pragma unroll
                for (int n = 0; n < 4; n++)
                    cp_async_16_or_zero(stage + to + n * S::cell + k * 2048, ckv + n * 128, valid);
                if (S::rope && chunk < 4)
                    cp_async_16_or_zero(stage + rope_to + k * 1024,
                                        static_cast<const unsigned char *>(p.kpe) + page * p.kpe_page_stride +
                                            row * p.kpe_row_stride + chunk * 16,
                                        valid);
            }
            cp_async_mbarrier_arrive(b.full(ring.stage));
            ring.advance(1);
            if (i + 1 < w.piece.first + w.tiles)
                next.find(p, pages, (i + 1) * tile_rows, w.piece.kv_len); // before the tile's room is waited for
        }
    }
    cp_async_wait_group<0>();
}

} // namespace
