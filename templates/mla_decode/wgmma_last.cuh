// The Hopper kernel of mla_decode without mla_merge: the block that ends the last piece of a request adds the pieces up.
//
// For every request and row tile there is a meeting in the workspace. Pieces arrive there with 1, the first with 1 minus their
// number, so it is the last to arrive that makes the balance zero, whichever it is. The pieces are added in their order, so the
// result's bits do not depend on it. A balance counts only beside its mark: whatever else stands there, as in a workspace that
// was never cleared, is taken for zero, and the last arrival leaves a zero behind.
#pragma once

#include "mla_decode/wgmma_output.cuh"

namespace {

constexpr int consumers_barrier = group_barrier + 2;
constexpr unsigned long long meeting_mark = 0x6d6574696e67ull << 16; // above the balance

struct mla_meeting {
    unsigned long long balance;
    int first_slot, num_pieces; // once the first piece has arrived
};
static_assert(sizeof(mla_meeting) == sizeof(gen_mla_record), "the host lays them out in the records' place");

// What the block's consumers tell each other, in the place of what clusters use.
struct meeting_state {
    int begun; // pieces of the request that the part begins and does not end
    int last;  // what has arrived was; then of its request:
    int first_slot, num_pieces;
};

template <class S> __device__ __forceinline__ meeting_state &meeting_of(const block_state<S> &b)
{
    return *reinterpret_cast<meeting_state *>(b.c->lse);
}

// Adds to a balance: is it zero then?
__device__ __forceinline__ bool settles(unsigned long long *balance, int difference)
{
    unsigned long long found = *static_cast<volatile unsigned long long *>(balance), expected;
    unsigned left;
    do {
        expected = found;
        const unsigned before = (expected >> 16 == meeting_mark >> 16) ? static_cast<unsigned>(expected) & 0xffff : 0;
        left = before + difference & 0xffff;
        found = atomicCAS(balance, expected, meeting_mark | left);
    } while (found != expected);
    return left == 0;
}

// All consumers call it when they have written a piece: have all of the request's been? `first`: it is the request's first piece.
template <class S>
__device__ __forceinline__ bool arrive_last(const gen_mla_decode_params &p, const block_state<S> &b, int request,
                                            bool first)
{
    meeting_state &s = meeting_of(b);
    barrier_sync(consumers_barrier, 256);
    if (threadIdx.x == 0) {
        mla_meeting &m = reinterpret_cast<mla_meeting *>(p.records)[request * static_cast<int>(gridDim.x) + b.row_tile];
        int difference = 1;
        if (first) {
            m.first_slot = 2 * b.part + 1;
            m.num_pieces = s.begun;
            difference -= s.begun;
        }
        __threadfence();
        s.last = settles(&m.balance, difference);
        __threadfence();
        if (s.last) {
            s.first_slot = static_cast<volatile mla_meeting &>(m).first_slot;
            s.num_pieces = static_cast<volatile mla_meeting &>(m).num_pieces;
        }
    }
    barrier_sync(consumers_barrier, 256);
    return s.last;
}

constexpr int rows_at_once = 2, pieces_at_once = 2;

// What a lane has of some rows: 16 columns, 8 in either half, relative to a maximum.
struct merged_rows {
    float top[rows_at_once], sum[rows_at_once];
    float o[rows_at_once][16];
};

// Adds pieces first, first + 1 of the rows packed, packed + 8, ..
__device__ __forceinline__ void add_pieces(const gen_mla_decode_params &p, merged_rows &m, int first_slot, int first,
                                           int num_pieces, int packed, int count)
{
    const int lane = threadIdx.x % 32;
    const long long all = static_cast<long long>(p.q_len) * p.num_heads;
    float lse[pieces_at_once][rows_at_once];
    int exponents[pieces_at_once][rows_at_once][2];
    unsigned x[pieces_at_once][rows_at_once][2][4];
#pragma unroll
    for (int k = 0; k < pieces_at_once; k++)
#pragma unroll
        for (int r = 0; r < rows_at_once; r++) {
            // What is not there has the address of what is.
            const bool there = first + k < num_pieces && r < count;
            const int i = there ? first + k : 0, slot = first_slot + (i ? 2 * i - 1 : 0);
            const long long at = slot * all + packed + (there ? 8 * r : 0);
            const gen_mla_partial_row *const head = p.partial_rows + at;
            lse[k][r] = ld_global(&head->lse);
            if (!there)
                lse[k][r] = minus_infinity();
#pragma unroll
            for (int h = 0; h < 2; h++) {
                exponents[k][r][h] = ld_global(&head->exponents[h]);
                ld_global_v4_u32(x[k][r][h], p.partial + at * latent + h * 256 + lane * 8);
            }
        }
#pragma unroll
    for (int r = 0; r < rows_at_once; r++)
#pragma unroll
        for (int k = 0; k < pieces_at_once; k++) {
            if (lse[k][r] == minus_infinity())
                continue; // what stands in an empty piece's place may be NaN
            const float top = fmaxf(m.top[r], lse[k][r]);
            const float before = exp2_fast(m.top[r] - top), weight = exp2_fast(lse[k][r] - top);
            m.top[r] = top;
            m.sum[r] = fmaf(m.sum[r], before, weight);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const unsigned exponent = static_cast<unsigned>(exponents[k][r][h]) >> lane / 8 * 8 & 0xff;
                const float unit = weight * __uint_as_float(exponent << 23);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 two = to_float2<fp16>(x[k][r][h][i]);
                    float *const o = &m.o[r][8 * h + 2 * i];
                    o[0] = fmaf(o[0], before, unit * two.x);
                    o[1] = fmaf(o[1], before, unit * two.y);
                }
            }
        }
}

// Adds a request's pieces up and writes the output: a warp every eighth row.
template <class T, class S>
__device__ __forceinline__ void merge_rows(const gen_mla_decode_params &p, const block_state<S> &b,
                                           const block_piece &w)
{
    const int lane = threadIdx.x % 32, warp = uniform(threadIdx.x / 32);
    const int first_slot = meeting_of(b).first_slot, num_pieces = meeting_of(b).num_pieces;
#pragma unroll 1
    for (int row = warp; row < w.num_rows; row += 8 * rows_at_once) {
        merged_rows m;
        const int count = (w.num_rows - row + 7) / 8;
#pragma unroll
        for (int r = 0; r < rows_at_once; r++) {
            m.top[r] = minus_infinity();
            m.sum[r] = 0.f;
#pragma unroll
            for (int i = 0; i < 16; i++)
                m.o[r][i] = 0.f;
        }
#pragma unroll 1
        for (int i = 0; i < num_pieces; i += pieces_at_once)
            add_pieces(p, m, first_slot, i, num_pieces, w.first_row + row, count);
#pragma unroll
        for (int r = 0; r < rows_at_once; r++) {
            if (r >= count)
                break;
            const mla_row at(p, w.tokens, w.first_row + row + 8 * r);
            const bool any = m.sum[r] > 0.f;
            const float factor = any ? rcp_fast(m.sum[r]) : 0.f;
            const float lse = any ? m.top[r] + log2_fast(m.sum[r]) : minus_infinity();
            unsigned short *const to = at.o(p) + lane * 8;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                unsigned x[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    x[i] = pack2<T>(m.o[r][8 * h + 2 * i] * factor, m.o[r][8 * h + 2 * i + 1] * factor);
                st_global_v4_u32(to + h * 256, x);
            }
            if (lane == 0 && p.lse)
                *at.lse(p) = p.lse_base_2 ? lse : lse * ln_2;
        }
    }
}

// What a piece of a request that is cut ends with. The output's registers are free, which the compiler sees where they are set.
template <class T, class S>
__device__ __forceinline__ void finish_piece(const gen_mla_decode_params &p, const block_state<S> &b,
                                             const block_piece &w, group_state<T> &g)
{
    if (w.piece.slot < 0 || !arrive_last(p, b, w.piece.request, w.piece.first == 0))
        return;
    merge_rows<T>(p, b, w);
#pragma unroll
    for (int i = 0; i < 128; i++)
        g.o[i] = 0.f;
}

// Pieces of the request that the part begins and another one ends, counted as mla_publish() does it; else 1. A whole warp calls it.
__device__ __forceinline__ int begun_pieces(const gen_mla_schedule &s, int part, const mla_share &share)
{
    const mla_cut begin = share.cut[0], end = share.cut[1];
    if (end.block == 0 || end.request < begin.request + (begin.block > 0 ? 1 : 0))
        return 1;
    const int lane = threadIdx.x % 32, cost = mla_cost(s, share.blocks);
    int pieces = 1, inside = 32;
#pragma unroll 1
    for (int q = part + 1; q < s.num_parts && inside == 32; q += 32) {
        const unsigned x = mla_part_begin(s, share.total, min(q + lane, s.num_parts));
        const bool within = x < share.position + cost;
        inside = __popc(
            __ballot_sync(0xffffffffu, within && mla_cut_within(s, share.blocks, cost,
                                                                static_cast<int>(x - share.position)) < share.blocks));
        pieces += inside;
    }
    return pieces;
}

// The first warp of a block finds how many pieces the request has that its part begins and another ends.
template <class S> __device__ __forceinline__ void count_pieces(const gen_mla_decode_params &p, const block_state<S> &b)
{
    const int pieces = begun_pieces(p.schedule, b.part, b.c->share);
    if (threadIdx.x == 0)
        meeting_of(b).begun = pieces;
}

// A part without blocks inside of a request has a piece of it, too, of which its slot says that it is nothing.
template <class S>
__device__ __forceinline__ void piece_of_nothing(const gen_mla_decode_params &p, const block_state<S> &b,
                                                 block_piece &w)
{
    mla_write_nothing<256>(p, b.part, b.row_tile * rows, rows);
    w.piece.request = uniform(b.c->share.cut[0].request);
    w.piece.first = 1;
    w.tokens = mla_request_tokens(p.q_indptr, p.q_len, w.piece.request);
    w.first_row = b.row_tile * rows;
    w.num_rows = min(w.tokens.count * p.num_heads - w.first_row, rows);
    w.piece.slot = w.num_rows > 0 ? 2 * b.part : -1; // no row, no piece
}

} // namespace
