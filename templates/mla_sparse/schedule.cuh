// How the blocks of a grid share the lists of a batch: as mla_decode shares requests (mla_decode/schedule.cuh), but lists
// are taken to be as long as they may be, so that a part's ends follow from its number alone and nothing is read before.
#pragma once

#include "mla_sparse/args.h"
#include "mla_decode/schedule.cuh"
#include "lib/ptx/math.cuh"

// A part's place on the line of all lists. Nothing that a part of another number writes is looked at.
__device__ __forceinline__ mla_cut sparse_cut(const gen_mla_sparse_params &p, int part)
{
    const gen_mla_schedule &s = p.decode.schedule;
    const int cost = mla_cost(s, p.blocks);
    const unsigned total = static_cast<unsigned>(s.batch) * cost, x = mla_part_begin(s, total, part);
    if (part >= s.num_parts || x >= total)
        return {s.batch, 0};
    const int token = static_cast<int>(x / static_cast<unsigned>(cost));
    const int block = mla_cut_within(s, p.blocks, cost, static_cast<int>(x) - token * cost);
    return block == p.blocks ? mla_cut{token + 1, 0} : mla_cut{token, block};
}

// Fills `share` for one part. All threads of the block call it, and may read `share` afterwards.
__device__ __forceinline__ void sparse_partition(const gen_mla_sparse_params &p, int part, mla_share &share)
{
    if (threadIdx.x < 2)
        share.cut[threadIdx.x] = sparse_cut(p, part + static_cast<int>(threadIdx.x));
    __syncthreads();
}

// Entries of a token's list that are looked at.
__device__ __forceinline__ int sparse_length(const gen_mla_sparse_params &p, int token)
{
    const int most = p.decode.schedule.max_kv_len;
    if (!p.topk_length)
        return most;
    return min(max(ld_global(p.topk_length + quotient_or_shift(token, p.length_mul, p.length_shift)), 0), most);
}

// A token's list.
__device__ __forceinline__ const int *sparse_list(const gen_mla_sparse_params &p, int token)
{
    const int request = static_cast<int>(quotient(token, p.tokens_mul, p.tokens_shift));
    return p.indices + request * p.indices_batch_stride + (token - request * p.q_len) * p.indices_token_stride;
}

// The pieces of a part, in order, a list being a request. Blocks behind a list's own length are none of a piece's.
struct sparse_walk {
    const mla_share &share;
    mla_cut next;
    int part;

    __device__ __forceinline__ sparse_walk(const mla_share &share, int part)
        : share(share), next(uniform_cut(share.cut[0])), part(part)
    {
    }

    __device__ __forceinline__ bool step(const gen_mla_sparse_params &p, mla_piece &piece)
    {
        const gen_mla_schedule &s = p.decode.schedule;
        const mla_cut end = uniform_cut(share.cut[1]); // read again: registers are what there is least of
        if (next.request > end.request || (next.request == end.request && next.block >= end.block))
            return false;
        piece.request = next.request;
        piece.kv_len = uniform(sparse_length(p, next.request));
        piece.first = next.block;
        piece.last = next.request == end.request ? end.block : p.blocks;
        if (s.chunk)
            piece.last = min(piece.last, piece.first + s.chunk);
        if (piece.first == 0 && piece.last == p.blocks)
            piece.slot = -1;
        else if (s.chunk)
            piece.slot = piece.request * s.max_chunks + piece.first / s.chunk;
        else
            piece.slot = 2 * part + (piece.first == 0 ? 1 : 0);
        next = piece.last == p.blocks ? mla_cut{piece.request + 1, 0} : mla_cut{piece.request, piece.last};
        piece.last = max(piece.first, min(piece.last, (piece.kv_len + MLA_BLOCK - 1) / MLA_BLOCK));
        return true;
    }
};

// Publishes to mla_merge the lists that the part begins. One warp of one block of the part calls it.
__device__ __forceinline__ void sparse_publish(const gen_mla_sparse_params &p, int part, const mla_share &share)
{
    const gen_mla_schedule &s = p.decode.schedule;
    const int lane = threadIdx.x % 32;
    const mla_cut begin = share.cut[0], end = share.cut[1];
    const int first = begin.request + (begin.block > 0 ? 1 : 0);            // the first list that begins here
    const int behind = min(end.request + (end.block > 0 ? 1 : 0), s.batch); // the first that begins later
    const bool unended = end.block > 0 && end.request >= first && !s.chunk;
    int pieces = 1; // of the list that begins here and ends elsewhere
    if (unended) {
#pragma unroll 1
        for (int q = part + 1; q < s.num_parts; q += 32) {
            const mla_cut cut = sparse_cut(p, q + lane);
            const int inside = __popc(__ballot_sync(0xffffffffu, cut.request == end.request && cut.block > 0));
            pieces += inside;
            if (inside < 32)
                break;
        }
    }
    gen_mla_record *const records = p.decode.records;
    if (s.by_request) {
#pragma unroll 1
        for (int request = first + lane; request < behind; request += 32) {
            gen_mla_record record = {request, 0, 1, 0};
            if (s.chunk) {
                record.first_slot = request * s.max_chunks;
                record.num_pieces = (p.blocks + s.chunk - 1) / s.chunk;
            } else if (unended && request == end.request) {
                record.first_slot = 2 * part + 1;
                record.num_pieces = pieces;
            }
            records[request] = record;
        }
    } else if (lane == 0) {
        records[part] = unended ? gen_mla_record{end.request, 2 * part + 1, pieces, 0} : gen_mla_record{-1, 0, 0, 0};
    }
}

// What the output of a row is multiplied by for the sink of its head, whose score is to base e: `sum` is in units of 2^M, and
// so many are the score's own 2^(sink - M). A row without keys keeps its zeros.
__device__ __forceinline__ float sparse_sink_factor(const gen_mla_sparse_params &p, int head, float sum, float neg_max)
{
    if (!(sum > 0.f))
        return 1.f;
    return __fdividef(sum, sum + exp2_fast(fmaf(ld_global(p.sink + head), log2_e, neg_max)));
}
