// How the blocks of a grid share the requests of a batch (args.h, gen_mla_schedule). Computed on the device from the
// lengths as they are when the kernel runs, so that a captured graph serves whatever lengths come; integers only, so
// that it is the same every time.
#pragma once

#include "mla_decode/args.h"
#include "lib/divide.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/uniform.cuh"

// A place on the line: before block `block` of request `request`.
struct mla_cut {
    int request, block;
};

// What a part has of one request.
struct mla_piece {
    int request;
    int first, last; // blocks of MLA_BLOCK rows of the cache
    int kv_len;
    int slot; // of the workspace; -1: the piece is the whole request
};

__device__ __forceinline__ int mla_length(const gen_mla_schedule &s, const int *kv_len, int request)
{
    return min(max(ld_global(kv_len + request), 0), s.max_kv_len);
}

// An empty request has one block, too, because its empty result must be written.
__device__ __forceinline__ int mla_blocks(int length)
{
    return max(1, (length + MLA_BLOCK - 1) / MLA_BLOCK);
}

__device__ __forceinline__ int mla_cost(const gen_mla_schedule &s, int blocks)
{
    return blocks + s.visit * (s.chunk ? (blocks + s.chunk - 1) / s.chunk : 1);
}

// The cut at `offset` of a request's cost, 0 <= offset < cost: a block of it, or `blocks`, which is the next one's first.
// Blocks are in proportion: offset * blocks / cost, written so that 32 bits hold it (requests a part are few).
__device__ __forceinline__ int mla_cut_within(const gen_mla_schedule &s, int blocks, int cost, int offset)
{
    const unsigned visits = cost - blocks;
    int block = offset;
    if (visits > 1) // division takes as long as the rest
        block -= static_cast<int>((static_cast<unsigned>(offset) * visits + cost - 1) / static_cast<unsigned>(cost));
    else if (visits == 1 && offset > 0)
        block--;
    if (s.chunk)
        return block / s.chunk * s.chunk;
    const int left = block, right = blocks - block;
    if (min(left, right) <= s.snap)
        return left <= right ? 0 : blocks;
    return block;
}

// The offset at which part `part` begins on a line of length `total`: total * part / num_parts. The host keeps the line and
// num_parts squared below 2^31.
__device__ __forceinline__ unsigned mla_part_begin(const gen_mla_schedule &s, unsigned total, unsigned part)
{
    const unsigned each = quotient_or_shift(total, s.parts_mul, s.parts_shift), rest = total - each * s.num_parts;
    return each * part + quotient_or_shift(rest * part, s.parts_mul, s.parts_shift);
}

// What the block's threads compute together.
struct mla_share {
    unsigned warp_sums[16];
    mla_cut cut[2];    // the part's begin and end
    unsigned position; // on the line, of the request that the end is in
    unsigned total;
    int blocks; // of that request
};

// Where x of the line lies, if it is among the requests [first, last) that start at `position`.
__device__ __forceinline__ bool mla_find(const gen_mla_schedule &s, const int *kv_len, int first, int last,
                                         unsigned &position, unsigned x, mla_cut &cut, int &blocks)
{
#pragma unroll 1
    for (int request = first; request < last; request++) {
        blocks = mla_blocks(mla_length(s, kv_len, request));
        const unsigned cost = mla_cost(s, blocks);
        if (x < position + cost) {
            const int block = mla_cut_within(s, blocks, cost, static_cast<int>(x - position));
            cut = block == blocks ? mla_cut{request + 1, 0} : mla_cut{request, block};
            return true;
        }
        position += cost;
    }
    return false;
}

// Fills `share` for one part. All `threads` of the block call it, and may read `share` afterwards. The thread that finds
// the part's begin calls begin(request, block) at once. It comes before everything else that a block does, so its chain is
// short: one load, one scan, 32-bit numbers, no division.
template <int threads, class Begin>
__device__ __forceinline__ void mla_partition(const gen_mla_schedule &s, const int *kv_len, int part, mla_share &share,
                                              const Begin &begin)
{
    constexpr int warps = threads / 32;
    const int each = (s.batch + threads - 1) / threads;
    const int first = min(static_cast<int>(threadIdx.x) * each, s.batch), last = min(first + each, s.batch);
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned sum = 0;
#pragma unroll 1
    for (int request = first; request < last; request++)
        sum += mla_cost(s, mla_blocks(mla_length(s, kv_len, request)));
    unsigned before = sum; // inclusive, of the warp's lanes
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const unsigned other = __shfl_up_sync(0xffffffffu, before, distance);
        if (lane >= distance)
            before += other;
    }
    if (lane == 31)
        share.warp_sums[warp] = before;
    __syncthreads();
    unsigned total = 0;
    before -= sum;
#pragma unroll
    for (int w = 0; w < warps; w++) {
        const unsigned x = share.warp_sums[w];
        before += w < warp ? x : 0;
        total += x;
    }
#pragma unroll
    for (int end = 0; end < 2; end++) {
        const unsigned x = mla_part_begin(s, total, part + end);
        mla_cut cut;
        unsigned position = before;
        int blocks;
        if (x - before < sum && mla_find(s, kv_len, first, last, position, x, cut, blocks)) {
            share.cut[end] = cut;
            if (end == 0) {
                if (cut.request < s.batch)
                    begin(cut.request, cut.block);
            } else {
                share.position = position;
                share.blocks = blocks;
            }
        }
    }
    if (threadIdx.x == 0) {
        share.total = total;
        if (part + 1 == s.num_parts)
            share.cut[1] = {s.batch, 0};
    }
    __syncthreads();
}

__device__ __forceinline__ mla_cut uniform_cut(mla_cut cut)
{
    return {uniform(cut.request), uniform(cut.block)};
}

// The pieces of a part, in order. Whole warps walk it, each thread gets the same.
struct mla_walk {
    const mla_share &share;
    mla_cut next;
    int part;

    __device__ __forceinline__ mla_walk(const mla_share &share, int part)
        : share(share), next(uniform_cut(share.cut[0])), part(part)
    {
    }

    __device__ __forceinline__ bool step(const gen_mla_schedule &s, const int *kv_len, mla_piece &piece)
    {
        const mla_cut end = uniform_cut(share.cut[1]); // read again: registers are what there is least of
        if (next.request > end.request || (next.request == end.request && next.block >= end.block))
            return false;
        piece.request = next.request;
        piece.kv_len = uniform(mla_length(s, kv_len, next.request));
        const int blocks = mla_blocks(piece.kv_len);
        piece.first = next.block;
        piece.last = next.request == end.request ? end.block : blocks;
        if (s.chunk)
            piece.last = min(piece.last, piece.first + s.chunk);
        if (piece.first == 0 && piece.last == blocks)
            piece.slot = -1;
        else if (s.chunk)
            piece.slot = piece.request * s.max_chunks + piece.first / s.chunk;
        else
            piece.slot = 2 * part + (piece.first == 0 ? 1 : 0);
        next = piece.last == blocks ? mla_cut{piece.request + 1, 0} : mla_cut{piece.request, piece.last};
        return true;
    }
};

// A part without blocks inside a request: its slot must say so.
__device__ __forceinline__ bool mla_empty_inside(const mla_share &share)
{
    return share.cut[0].request == share.cut[1].request && share.cut[0].block == share.cut[1].block &&
           share.cut[0].block > 0;
}

// Publishes to mla_merge the requests that the part begins. One warp of one block of the part calls it.
__device__ __forceinline__ void mla_publish(const gen_mla_schedule &s, const int *kv_len, int part,
                                            const mla_share &share, gen_mla_record *records)
{
    const int lane = threadIdx.x % 32;
    const mla_cut begin = share.cut[0], end = share.cut[1];
    const int first = begin.request + (begin.block > 0 ? 1 : 0);            // the first request that begins here
    const int behind = min(end.request + (end.block > 0 ? 1 : 0), s.batch); // the first that begins later
    const bool unended = end.block > 0 && end.request >= first && !s.chunk;
    int pieces = 1; // of the request that begins here and ends elsewhere
    if (unended) {
        const int cost = mla_cost(s, share.blocks);
#pragma unroll 1
        for (int q = part + 1; q < s.num_parts; q += 32) {
            const unsigned x = mla_part_begin(s, share.total, min(q + lane, s.num_parts));
            const bool within = x < share.position + cost;
            const int block =
                within ? mla_cut_within(s, share.blocks, cost, static_cast<int>(x - share.position)) : share.blocks;
            const int inside = __popc(__ballot_sync(0xffffffffu, block < share.blocks));
            pieces += inside;
            if (inside < 32)
                break;
        }
    }
    if (s.by_request) {
#pragma unroll 1
        for (int request = first + lane; request < behind; request += 32) {
            gen_mla_record record = {request, 0, 1, 0};
            if (s.chunk) {
                const int blocks = mla_blocks(mla_length(s, kv_len, request));
                record.first_slot = request * s.max_chunks;
                record.num_pieces = (blocks + s.chunk - 1) / s.chunk;
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

// Query tokens of a request.
struct mla_tokens {
    int first, count;
};

__device__ __forceinline__ mla_tokens mla_request_tokens(const int *q_indptr, int q_len, int request)
{
    if (!q_indptr)
        return {request * q_len, q_len};
    const int first = uniform(ld_global(q_indptr + request));
    const int last = uniform(ld_global(q_indptr + request + 1));
    return {first, min(max(last - first, 0), q_len)};
}
