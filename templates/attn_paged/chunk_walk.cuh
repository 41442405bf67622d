// The pieces of a part in the order in which many rows want them.
#pragma once

#include "attn_paged/line.cuh"

// First the part's units of the rounds (line.cuh), then those that it begins, and last the rest of one that it goes on with: so all
// parts begin with a first key, and find what they read in L2, where others have just read it.
template <class S> struct chunk_walk {
    paged_walk<S> walk;
    int turn;  // of the rounds
    bool rest; // is left

    __device__ __forceinline__ void begin(const paged_share &share)
    {
        walk.begin(share);
        turn = 0;
        rest = walk.block > 0;
        walk.unit += rest ? 1 : 0;
        walk.block = rest ? 0 : walk.block;
    }

    __device__ __forceinline__ void step(const gen_attn_paged_params &p, const paged_share &share, int part,
                                         paged_piece &piece)
    {
        if constexpr (paged_goes_round<S>) {
            if (turn * p.line.num_parts < paged_round_units<S>(p, paged_request_of<S>(p, 0).units)) {
                const int unit = 2 * (turn / 2 * p.line.num_parts + part) + turn % 2;
                turn++;
                step_one(p, share, part, {0, unit, 0, 0, 0}, piece);
                return;
            }
        }
        walk.step(p, share, part, piece);
        if (piece.rows == 0 && rest) {
            rest = false;
            step_one(p, share, part, share.cut[0], piece);
        }
    }

    // The piece of one unit that begins at a cut.
    __device__ __forceinline__ static void step_one(const gen_attn_paged_params &p, const paged_share &share, int part,
                                                    const paged_cut &cut, paged_piece &piece)
    {
        paged_share its;
        its.cut[1] = share.cut[1];
        if (cut.request != its.cut[1].request || cut.unit != its.cut[1].unit)
            its.cut[1] = {cut.request, cut.unit + 1, 0, 0, 0};
        paged_walk<S> one;
        one.request = cut.request;
        one.unit = cut.unit;
        one.block = cut.block;
        one.step(p, its, part, piece);
    }
};
