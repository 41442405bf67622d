// The stream kernel of attn_paged: the end of a piece. Teams add up what they have, and the result is written or, where the
// unit is cut, left for the last of its pieces to add up.
#pragma once

#include "attn_paged/arrive.cuh"
#include "attn_paged/rows.cuh"
#include "attn_paged/tile.cuh"
#include "lib/ptx/ldst_cg.cuh"

// Behind the queries.
template <class S> struct paged_control {
    float top[S::teams][S::tile_rows];
    float rounded[S::teams][S::tile_rows], exact[S::teams][S::tile_rows];
    float factors[S::tile_rows]; // of queries
    paged_pieces pieces[2];      // of the unit that the part begins with, and of the one that it ends with
    int last;
    paged_share share;
    paged_walk<S> walk; // one thread's
    // The one before, which some warps may still be writing, the current one, the next one, and one that is being found.
    // rows = 0: there is none.
    paged_piece work[4];
};

// A lane's two rows of one half: 2 (lane % 4) and the next; of the tile.
template <class S> __device__ __forceinline__ int paged_own_row(int half, int i)
{
    return static_cast<int>(threadIdx.x / 32 % S::team * S::rows + 8 * half + threadIdx.x % 4 * 2) + i;
}

template <class S> __device__ __forceinline__ bool paged_owns()
{
    return threadIdx.x / 32 / S::team < S::owners;
}

// ---- outputs ----

// Columns of one tile of two rows.
template <class S>
__device__ __forceinline__ void paged_write_tile(const gen_attn_paged_params &p, const paged_piece &piece, int half,
                                                 int tile, const float (&o)[4], const float (&factor)[2])
{
    using T = typename S::element;
    const int line = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = paged_own_row<S>(half, i);
        if (row >= piece.rows)
            continue;
        const paged_row at(p, piece, row);
        unsigned short *const to =
            static_cast<unsigned short *>(p.o) + at.token * p.o_token + at.head * p.o_head + tile * 16;
        const float lo = o[i] * factor[i], hi = o[2 + i] * factor[i];
        if constexpr (S::e4m3) {
            st_global_u32(to + 2 * line, pack2<T>(lo, hi));
        } else {
            to[line] = from_float<T>(lo);
            to[line + 8] = from_float<T>(hi);
        }
    }
}

// ---- partial results ----

template <class S>
__device__ __forceinline__ float *paged_partial(const gen_attn_paged_params &p, int slot, int half, int tile)
{
    const int member = threadIdx.x / 32 % S::team;
    const long long at = (static_cast<long long>(slot) * S::team + member) * S::halves + half;
    return p.partial + (at * S::dim_tiles + tile) * 128 + threadIdx.x % 32 * 4;
}

template <class S>
__device__ __forceinline__ void paged_write_partial(const gen_attn_paged_params &p, int slot, int half, int tile,
                                                    const float (&o)[4], const float (&factor)[2])
{
    st_global_v4_f32<false>(paged_partial<S>(p, slot, half, tile),
                            make_float4(o[0] * factor[0], o[1] * factor[1], o[2] * factor[0], o[3] * factor[1]));
}

// The result of a half of the rows: `lse` of the lane's two rows, sum(m, o) what o of own column tile m is. slot < 0: the
// outputs.
template <class S, class Sum>
__device__ __forceinline__ void paged_give(const gen_attn_paged_params &p, const paged_piece &piece, int slot, int half,
                                           const float (&lse)[2], const float (&inverse)[2], const Sum &sum)
{
    const int team = threadIdx.x / 32 / S::team;
    const bool writes = team == 0 && threadIdx.x % 32 < 4;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = paged_own_row<S>(half, i);
        factor[i] = inverse[i];
        if (slot >= 0) {
            if (writes)
                p.partial_lse[static_cast<long long>(slot) * S::tile_rows + row] = lse[i];
        } else if (row < piece.rows) {
            factor[i] *= paged_finish_row(p, piece, row, lse[i], writes);
        }
    }
#pragma unroll
    for (int m = 0; m < S::own_tiles; m++) {
        float o[4];
        sum(m, o);
        if (slot >= 0)
            paged_write_partial<S>(p, slot, half, team * S::own_tiles + m, o, factor);
        else
            paged_write_tile<S>(p, piece, half, team * S::own_tiles + m, o, factor);
    }
}

// Adds up `count` partial results, the first piece's number and the step to the next given, and gives the sum to `slot`.
template <class S>
__device__ __forceinline__ void paged_merge(const gen_attn_paged_params &p, const paged_piece &piece,
                                            const paged_pieces &pieces, int first, int step, int count, int slot)
{
    const int team = threadIdx.x / 32 / S::team;
    constexpr int most = GEN_ATTN_PAGED_GROUP, batch = S::light ? most : 4;
#pragma unroll 1
    for (int half = 0; half < S::halves; half++) {
        float weight[most][2], lse[2], inverse[2];
        float4 x[S::light ? most : batch]; // ahead, of the first of own tiles
#pragma unroll
        for (int k = 0; k < most; k++) {
            const int from = pieces.slot(first + k * step);
#pragma unroll
            for (int i = 0; i < 2; i++)
                weight[k][i] = k < count ? ld_global_cg(p.partial_lse + static_cast<long long>(from) * S::tile_rows +
                                                        paged_own_row<S>(half, i))
                                         : minus_infinity();
            if (S::light && k < count && paged_owns<S>())
                x[k % batch] = ld_global_cg_v4_f32(paged_partial<S>(p, from, half, team * S::own_tiles));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float top = minus_infinity(), sum = 0.f;
#pragma unroll
            for (int k = 0; k < most; k++)
                top = fmaxf(top, weight[k][i]);
#pragma unroll
            for (int k = 0; k < most; k++)
                sum += weight[k][i] = paged_weight(weight[k][i], top);
            lse[i] = sum == 0.f ? minus_infinity() : top + log2f(sum);
            inverse[i] = sum == 0.f ? 0.f : 1.f / sum;
        }
        if (slot >= 0)
            __syncthreads(); // of a group the sum takes the place of its first piece
        if (!paged_owns<S>())
            continue;
        paged_give<S>(p, piece, slot, half, lse, inverse, [&](int m, float(&o)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[i] = 0.f;
#pragma unroll
            for (int begin = 0; begin < most; begin += batch) {
                if (!S::light || m > 0)
#pragma unroll
                    for (int k = 0; k < batch; k++)
                        if (begin + k < count)
                            x[k] = ld_global_cg_v4_f32(paged_partial<S>(p, pieces.slot(first + (begin + k) * step),
                                                                        half, team * S::own_tiles + m));
#pragma unroll
                for (int k = 0; k < batch; k++)
                    if (begin + k < count) {
                        o[0] = fmaf(weight[begin + k][0], x[k].x, o[0]);
                        o[1] = fmaf(weight[begin + k][1], x[k].y, o[1]);
                        o[2] = fmaf(weight[begin + k][0], x[k].z, o[2]);
                        o[3] = fmaf(weight[begin + k][1], x[k].w, o[3]);
                    }
            }
        });
    }
}

// The piece's partial result is in its slot.
template <class S>
__device__ __forceinline__ void paged_join(const gen_attn_paged_params &p, const paged_piece &piece, int part,
                                           paged_control<S> &c)
{
    const paged_pieces pieces = c.pieces[piece.slot == 2 * part ? 0 : 1];
    const auto arrives = [&](unsigned long long *tickets, int count) {
        return paged_arrives_last(tickets, count, threadIdx.x == 0, c.last, [] { __syncthreads(); });
    };
    paged_add_up(p, part, pieces, arrives, [&](int first, int step, int count, int slot) {
        paged_merge<S>(p, piece, pieces, first, step, count, slot);
    });
}

// ---- the block's own ----

template <class S> __device__ __forceinline__ void paged_tell_sums(const paged_state<S> &s, paged_control<S> &c)
{
    const int team = threadIdx.x / 32 / S::team, base = threadIdx.x / 32 % S::team * S::rows;
#pragma unroll
    for (int h = 0; h < S::halves; h++) {
        float rounded = S::both_sums ? s.rounded[h] : 0.f, exact = s.exact[h];
        rounded += __shfl_xor_sync(0xffffffffu, rounded, 1);
        exact += __shfl_xor_sync(0xffffffffu, exact, 1);
        rounded += __shfl_xor_sync(0xffffffffu, rounded, 2);
        exact += __shfl_xor_sync(0xffffffffu, exact, 2);
        if (threadIdx.x % 4 == 0) {
            const int row = base + 8 * h + static_cast<int>(threadIdx.x % 32 / 4);
            c.top[team][row] = s.reference[h];
            c.rounded[team][row] = S::both_sums ? rounded : exact;
            c.exact[team][row] = exact;
        }
    }
}

// Of a half's column tile, the place where team `from` leaves it for its owner.
template <class S> __device__ __forceinline__ unsigned paged_exchange(unsigned exchange, int owner, int from, int m)
{
    const int member = threadIdx.x / 32 % S::team, place = from < owner ? from : from - 1;
    const int at = ((member * S::owners + owner) * (S::teams - 1) + place) * S::own_tiles + m;
    return exchange + at * 512 + threadIdx.x % 32 * 16;
}

// Adds up the teams' outputs of a half of the rows, and gives them.
template <class S, int half>
__device__ __forceinline__ void paged_end_half(const gen_attn_paged_params &p, const paged_piece &piece,
                                               unsigned exchange, const paged_control<S> &c, paged_state<S> &s)
{
    const int team = threadIdx.x / 32 / S::team;
    float own[2], lse[2], inverse[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = paged_own_row<S>(half, i);
        float top = c.top[0][row], rounded = 0.f, exact = 0.f;
#pragma unroll
        for (int t = 1; t < S::teams; t++)
            top = fmaxf(top, c.top[t][row]);
#pragma unroll
        for (int t = 0; t < S::teams; t++) {
            const float weight = paged_weight(c.top[t][row], top);
            rounded = fmaf(weight, c.rounded[t][row], rounded);
            exact = fmaf(weight, c.exact[t][row], exact);
        }
        own[i] = paged_weight(c.top[team][row], top);
        inverse[i] = rounded == 0.f ? 0.f : 1.f / rounded;
        lse[i] = exact == 0.f ? minus_infinity() : top + log2f(exact);
    }
    if constexpr (half > 0)
        __syncthreads(); // the half before is added up
#pragma unroll
    for (int m = 0; m < S::dim_tiles; m++) {
        float(&o)[4] = s.o[m][half];
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[i] *= own[i % 2];
        if (m / S::own_tiles != team)
            st_shared_v4_f32(paged_exchange<S>(exchange, m / S::own_tiles, team, m % S::own_tiles),
                             make_float4(o[0], o[1], o[2], o[3]));
    }
    __syncthreads();
    if (paged_owns<S>())
        paged_give<S>(p, piece, piece.slot, half, lse, inverse, [&](int m, float(&o)[4]) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[i] = s.o[m][half][i];
#pragma unroll
                for (int owner = 1; owner < S::owners; owner++)
                    o[i] = owner == team ? s.o[owner * S::own_tiles + m][half][i] : o[i];
            }
#pragma unroll
            for (int k = 0; k < S::teams - 1; k++) {
                const float4 x = ld_shared_v4_f32(paged_exchange<S>(exchange, team, k < team ? k : k + 1, m));
                o[0] += x.x;
                o[1] += x.y;
                o[2] += x.z;
                o[3] += x.w;
            }
        });
    if constexpr (half + 1 < S::halves)
        paged_end_half<S, half + 1>(p, piece, exchange, c, s);
}

// The end of a piece. between() runs when no warp is in the piece any more, before a barrier.
template <class S, class Between>
__device__ __forceinline__ void paged_end(const gen_attn_paged_params &p, const paged_piece &piece, int part,
                                          unsigned exchange, paged_control<S> &c, paged_state<S> &s,
                                          const Between &between)
{
    paged_tell_sums<S>(s, c);
    __syncthreads();
    between();
    paged_end_half<S, 0>(p, piece, exchange, c, s);
    if (piece.slot >= 0)
        paged_join<S>(p, piece, part, c);
}
