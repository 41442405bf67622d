// The Hopper kernel of mla_decode: the producer group where its threads copy tiles and queries, 16 bytes at a time.
#pragma once

#include "mla_decode/wgmma_block.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"

namespace {

// Every thread copies 16 bytes of four rows of each cell: rows 16 k + 4 warp + lane / 8, chunk lane % 8 of the cell's row.
// A row beyond the length, or of a page that does not exist, comes as zeros.
struct gathered_rows {
    int page[4], row[4]; // page < 0: no such row

    __device__ __forceinline__ void find(const gen_mla_decode_params &p, const mla_pages &pages, int first, int kv_len)
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int at = first + 16 * k + static_cast<int>(threadIdx.x % 128 / 8);
            mla_place place = {-1, 0};
            if (at < kv_len)
                place = pages.find(p, at);
            page[k] = place.page;
            row[k] = place.row;
        }
    }
};

template <class S> __device__ void produce(const gen_mla_decode_params &p, const block_state<S> &b)
{
    const int line = threadIdx.x % 128 / 8, chunk = threadIdx.x % 8;
    const unsigned to = line * 128 + ((chunk ^ line % 8) << 4); // 16 rows further it is the same chunk
    mla_walk walk(b.c->share, b.part);
    block_piece w;
    unsigned t = 0, pieces = 0;
    while (next_piece(p, b, walk, w)) {
        const mla_pages pages(p, w.piece.request);
        gathered_rows next;
        next.find(p, pages, w.piece.first * rows, w.piece.kv_len);
        mbarrier_wait(b.q_empty(), (pieces & 1) ^ 1);
#pragma unroll
        for (int k = 0; k < 4; k++)
            copy_query<S>(p, w, 16 * k + line, chunk, b.base + k * 2048 + to);
        cp_async_mbarrier_arrive(b.q_full());
        pieces++;
        for (int i = 0; i < w.tiles; i++, t++) {
            const int s = t & 1;
            const unsigned parity = (t >> 1 & 1) ^ 1;
            const unsigned short *ckv[4], *kpe[4];
            bool valid[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                valid[k] = static_cast<unsigned>(next.page[k]) < p.num_pages;
                const long long page = valid[k] ? next.page[k] : 0;
                ckv[k] = static_cast<const unsigned short *>(p.ckv) + page * p.ckv_page_stride +
                         next.row[k] * p.ckv_row_stride + chunk * 8;
                if (S::rope)
                    kpe[k] = static_cast<const unsigned short *>(p.kpe) + page * p.kpe_page_stride +
                             next.row[k] * p.kpe_row_stride + chunk * 8;
            }
            if (i + 1 < w.tiles)
                next.find(p, pages, (w.piece.first + i + 1) * rows, w.piece.kv_len); // loaded a tile ahead
#pragma unroll
            for (int position = 0; position < S::runs; position++) {
                const bool rotary = position == latent_runs;
                const int n = run_at(s, position);
                if (position == 0)
                    mbarrier_wait(b.empty(s, s), parity);
                if (position == latent_runs / 2)
                    mbarrier_wait(b.empty(s, s ^ 1), parity);
#pragma unroll
                for (int i = 0; i < (rotary ? 1 : run); i++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        cp_async_16_or_zero(b.stage(s) + (n * run + i) * cell + k * 2048 + to,
                                            rotary ? kpe[k] : ckv[k] + (n * run + i) * 64, valid[k]);
                cp_async_mbarrier_arrive(b.full(s, n));
            }
        }
    }
    cp_async_wait_group<0>();
}

} // namespace
