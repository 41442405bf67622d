// The Hopper kernel of mla_sparse: the producer group, whose threads bring the queries and the rows that a list names.
//
// A warp has 16 neighbouring rows of each tile. Their entries are loaded a tile ahead. Rows that do not count come as zeros,
// for even a probability of zero does not make a zero of NaN.
#pragma once

#include "mla_sparse/wgmma_block.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/uniform.cuh"

namespace {

// A thread copies 16 bytes of four rows of each cell: rows 16 warp + 4 k + lane / 8, chunk lane % 8.
struct copied_rows {
    int entry[4];

    // `its`: the thread's first entry, of `left`.
    __device__ __forceinline__ void find(const gen_mla_sparse_params &p, const int *its, int left)
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
            entry[k] = sparse_entry(p, its, 4 * k, left);
    }
};

// The bits of the warp's 16 rows where the lanes of row 4 k + lane / 8 know of its k-th.
__device__ __forceinline__ unsigned counts_of(const bool (&valid)[4])
{
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const unsigned lanes = __ballot_sync(0xffffffffu, valid[k]) & 0x01010101u;
        bits |= (lanes * 0x01020408u >> 24 & 15) << 4 * k; // bits 0, 8, 16, 24 side by side
    }
    return bits;
}

constexpr int producer_threads = 128;

// How many arrive at the barrier of a stage's run: threads whose copies it waits for and, at the first one, the warps' writers of
// the bits.
__device__ __forceinline__ constexpr int arrivals(int stage, int n)
{
    return n == latent_runs / 2 * stage ? 128 + 4 : 128;
}

// The half of a stage that is there first.
__device__ __forceinline__ constexpr int first_half(int stage)
{
    return stage;
}

template <class S> __device__ __forceinline__ void produce(const gen_mla_sparse_params &p, const sparse_block<S> &b)
{
    sparse_walk walk(b.c->share, b.part);
    block_piece w;
    unsigned t = 0, q_parity = 1;
    while (next_piece(p, b, walk, w)) {
        int thread = producer_thread();
        const int line = thread / 32 * 16 + thread % 32 / 8; // rows 4 k further have another swizzle where k is odd
        const int *its = sparse_list(p, w.piece.request) + (w.piece.first * rows + line);
        int left = min(w.piece.kv_len, w.piece.last * rows) - (w.piece.first * rows + line);
        copied_rows next;
        next.find(p, its, left);
        mbarrier_wait(b.q_empty(), q_parity);
        q_parity ^= 1;
#pragma unroll 1
        for (int k = 0; k < 4; k++) {
            const int row = line + 4 * k, chunk = thread % 8;
            copy_query<S>(p.decode, w, row, chunk, b.base + row * 128 + ((chunk ^ row % 8) << 4));
        }
        cp_async_mbarrier_arrive(b.q_full());
#pragma unroll 1
        for (int i = w.tiles; i > 0; i--, t++) {
            const int s = t & 1;
            const unsigned parity = (t >> 1 & 1) ^ 1;
            thread = producer_thread();
            const int chunk = thread % 8, its_line = thread / 32 * 16 + thread % 32 / 8;
            const unsigned to = its_line * 128 + ((chunk ^ its_line % 8) << 4);
            const unsigned char *from[4];
            bool valid[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                valid[k] = next.entry[k] >= 0;
                from[k] = sparse_row<2>(p, next.entry[k]) + chunk * 16;
            }
            its += rows;
            left -= rows;
#pragma unroll
            for (int position = 0; position < S::runs; position++) {
                const int n = run_at(s, position);
                if (position == 0) {
                    mbarrier_wait(b.empty(s, s), parity);
                    const unsigned counts = counts_of(valid);
                    if (thread % 32 == 0) { // the tile's owner has read the bits of its last one
                        st_shared_u16(b.counts(s) + thread / 32 * 2, static_cast<unsigned short>(counts));
                        mbarrier_arrive(b.full(s, n));
                    }
                }
                if (position == latent_runs / 2)
                    mbarrier_wait(b.empty(s, s ^ 1), parity);
#pragma unroll
                for (int c = 0; c < (position == latent_runs ? 1 : run); c++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        cp_async_16_or_zero(b.stage(s) + (n * run + c) * cell + k * 512 + (to ^ k % 2 * 64),
                                            from[k] + (n * run + c) * 128, valid[k]);
                cp_async_mbarrier_arrive(b.full(s, n));
                if (position == 0)
                    next.find(p, its, left);
            }
        }
    }
    cp_async_wait_group<0>();
}

} // namespace
