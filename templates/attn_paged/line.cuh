// How the blocks of a grid share the units of a batch (args.h). Computed on the device from the lengths as they are when the
// kernel runs, so that a captured graph serves whatever lengths come; integers only, so that it is the same every time.
#pragma once

#include "attn_paged/shape.cuh"
#include "lib/divide.cuh"
#include "lib/prefetch.cuh"
#include "lib/ptx/ldst.cuh"

// What of a request decides its units.
struct paged_request {
    int first_token, tokens, kv_len;
    int units, tiles;  // tiles: of rows, a key head's
    int start, blocks; // of keys that count for some row; at least one, for an empty result must be written, too
};

template <class S> __device__ __forceinline__ paged_request paged_request_of(const gen_attn_paged_params &p, int b)
{
    paged_request r;
    r.first_token = b * p.q_len;
    r.tokens = p.q_len;
    if (p.q_indptr) {
        r.first_token = ld_global(p.q_indptr + b);
        r.tokens = min(max(ld_global(p.q_indptr + b + 1) - r.first_token, 0), p.q_len);
    }
    int length;
    if (p.kv_len) {
        length = ld_global(p.kv_len + b);
    } else {
        const int pages = ld_global(p.page_indptr + b + 1) - ld_global(p.page_indptr + b);
        const int last = ld_global(p.last_page_len + b);
        length = pages > 0 ? (pages - 1) * p.page_size + last : 0;
    }
    r.kv_len = min(max(length, 0), p.max_kv_len);
    r.tiles = (r.tokens * p.group + S::tile_rows - 1) / S::tile_rows;
    r.units = r.tiles * p.num_kv_heads;
    r.start = p.left_window ? max(r.kv_len - r.tokens - p.left_window + 1, 0) / S::keys : 0;
    r.blocks = max((r.kv_len + S::keys - 1) / S::keys - r.start, 1);
    return r;
}

// A place on the line: before block `block` of a unit, which lies at `position` and costs `cost`.
struct paged_cut {
    int request, unit, block;
    unsigned position, cost;
};

// What the block's threads compute together.
struct paged_share {
    unsigned warp_sums[16];
    paged_cut cut[2]; // the part's begin and end
    unsigned total;
};

// The offset at which a part begins on a line of length `total`: total * part / num_parts. Where there are more parts than
// length, one has 1 of it and the others nothing. The host keeps the line and num_parts squared below 2^31.
__device__ __forceinline__ unsigned paged_part_begin(const gen_attn_paged_line &s, unsigned total, unsigned part)
{
    if (total <= static_cast<unsigned>(s.num_parts))
        return min(part, total);
    const unsigned each = quotient(total, s.parts_mul, s.parts_shift), rest = total - each * s.num_parts;
    return each * part + quotient(rest * part, s.parts_mul, s.parts_shift);
}

// The part that has x: the last one that begins at x or before.
__device__ __forceinline__ int paged_part_of(const gen_attn_paged_line &s, unsigned total, unsigned x)
{
    if (total <= static_cast<unsigned>(s.num_parts))
        return static_cast<int>(x);
    return static_cast<int>(((x + 1ull) * s.num_parts - 1) / total);
}

// Of one request, row tiles go round among all parts as long as each gets two: then all parts are at few heads, and at much the
// same keys. Only the rest stands on the line.
template <class S> constexpr bool paged_goes_round = false;

template <class S> __device__ __forceinline__ int paged_round_units(const gen_attn_paged_params &p, int units)
{
    if (!paged_goes_round<S> || p.line.batch > 1)
        return 0;
    return units / (2 * p.line.num_parts) * (2 * p.line.num_parts);
}

// Where x of the line lies, if it is among the requests [first, last) that start at `position`.
template <class S>
__device__ __forceinline__ void paged_find(const gen_attn_paged_params &p, int first, int last, unsigned position,
                                           unsigned x, paged_cut &cut)
{
#pragma unroll 1
    for (int b = first; b < last; b++) {
        const paged_request r = paged_request_of<S>(p, b);
        const int rounds = paged_round_units<S>(p, r.units);
        const unsigned cost = r.blocks + p.line.visit, all = (r.units - rounds) * cost;
        if (x < position + all) {
            const unsigned unit = (x - position) / cost, offset = x - position - unit * cost;
            int block = max(static_cast<int>(offset) - p.line.visit, 0);
            if (p.line.whole)
                block = 2 * offset < cost ? 0 : r.blocks;
            const bool behind = block == r.blocks;
            cut = {b, rounds + static_cast<int>(unit) + (behind ? 1 : 0), behind ? 0 : block, position + unit * cost,
                   cost};
            return;
        }
        position += all;
    }
}

// Brings page numbers to L2 before lengths say which: a row of the table behind the other, as long as there are threads.
template <class S> __device__ __forceinline__ void paged_prefetch_table(const gen_attn_paged_params &p)
{
    const long long entries = static_cast<long long>(p.line.batch) * p.page_table;
    if (p.page_indices && !p.page_indptr && threadIdx.x * 32ll < entries && entries <= S::threads * 32ll)
        prefetch_global(p.page_indices + threadIdx.x * 32);
}

// Fills `share` for one part. All threads of the block call it, and may read `share` afterwards.
template <class S>
__device__ __forceinline__ void paged_partition(const gen_attn_paged_params &p, int part, paged_share &share)
{
    const int batch = p.line.batch, each = (batch + S::threads - 1) / S::threads;
    const int first = min(static_cast<int>(threadIdx.x) * each, batch), last = min(first + each, batch);
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    paged_prefetch_table<S>(p);
    unsigned sum = 0;
#pragma unroll 1
    for (int b = first; b < last; b++) {
        const paged_request r = paged_request_of<S>(p, b);
        sum += (r.units - paged_round_units<S>(p, r.units)) * static_cast<unsigned>(r.blocks + p.line.visit);
    }
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
    for (int w = 0; w < S::warps; w++) {
        const unsigned x = share.warp_sums[w];
        before += w < warp ? x : 0;
        total += x;
    }
#pragma unroll
    for (int end = 0; end < 2; end++) {
        const unsigned x = paged_part_begin(p.line, total, part + end);
        if (x - before < sum)
            paged_find<S>(p, first, last, before, x, share.cut[end]);
        if (x == total && threadIdx.x == 0)
            share.cut[end] = {batch, 0, 0, total, 0};
    }
    if (threadIdx.x == 0)
        share.total = total;
    __syncthreads();
}

// Which of a unit's pieces are where: piece i is part first + i's.
struct paged_pieces {
    int first, count;

    __device__ __forceinline__ int slot(int i) const { return i ? 2 * (first + i) : 2 * first + 1; }
};

__device__ __forceinline__ paged_pieces paged_pieces_of(const gen_attn_paged_line &s, const paged_share &share,
                                                        const paged_cut &cut)
{
    // A cut within the visit is one before the first block.
    const int first = paged_part_of(s, share.total, cut.position + s.visit);
    return {first, paged_part_of(s, share.total, cut.position + cut.cost - 1) - first + 1};
}

// Where many row tiles follow each other and later ones see more keys, tiles come from both ends of a request in turn, so that
// a part's neighbours even each other out. A kernel of many rows specialises it.
template <class S> constexpr bool paged_folds = false;

template <class S> __device__ __forceinline__ int paged_row_tile(int at, int tiles)
{
    if constexpr (!paged_folds<S>)
        return at;
    return at % 2 ? tiles - 1 - at / 2 : at / 2;
}

// What a part has of one unit.
struct paged_piece {
    int request, head;       // key head
    int row, rows;           // packed rows: the first, how many
    int first_token, tokens; // of the request
    int kv_len;
    int lo, hi;       // tiles of keys that count for some of the rows
    int slot;         // -1: the piece is the whole unit
    const int *pages; // of the request; null: not paged
};

// The pieces of a part, in order. Each thread gets the same.
template <class S> struct paged_walk {
    int request, unit, block;

    __device__ __forceinline__ void begin(const paged_share &share)
    {
        request = share.cut[0].request;
        unit = share.cut[0].unit;
        block = share.cut[0].block;
    }

    // A piece without rows is none.
    __device__ __forceinline__ void step(const gen_attn_paged_params &p, const paged_share &share, int part,
                                         paged_piece &piece)
    {
        const int end_request = share.cut[1].request, end_unit = share.cut[1].unit, end_block = share.cut[1].block;
        paged_request r;
        for (;;) {
            if (request > end_request ||
                (request == end_request && (unit > end_unit || (unit == end_unit && block >= end_block)))) {
                piece.rows = 0;
                return;
            }
            r = paged_request_of<S>(p, request);
            if (unit < r.units)
                break;
            request++;
            unit = block = 0;
        }
        const int last = request == end_request && unit == end_unit ? end_block : r.blocks;
        const bool whole = block == 0 && last == r.blocks;
        piece.slot = whole ? -1 : 2 * part + (block == 0 ? 1 : 0);
        piece.request = request;
        piece.head = r.tiles > 1 ? unit / r.tiles : unit;
        piece.row = paged_row_tile<S>(unit - piece.head * r.tiles, r.tiles) * S::tile_rows;
        piece.rows = min(r.tokens * p.group - piece.row, S::tile_rows);
        piece.first_token = r.first_token;
        piece.tokens = r.tokens;
        piece.kv_len = r.kv_len;
        piece.lo = r.start + block;
        piece.hi = r.start + last;
        narrow(p, piece);
        piece.pages = nullptr;
        if (p.page_indices)
            piece.pages =
                p.page_indices + (p.page_indptr ? ld_global(p.page_indptr + request) : request * p.page_table);
        block = last == r.blocks ? 0 : last;
        unit += last == r.blocks ? 1 : 0;
    }

    // To what the piece's own rows see.
    __device__ __forceinline__ static void narrow(const gen_attn_paged_params &p, paged_piece &piece)
    {
        const int before = piece.kv_len - piece.tokens; // keys in front of the first token's own
        int most = piece.kv_len;
        if (p.causal) {
            const int last = quotient(piece.row + piece.rows - 1, p.group_mul, p.group_shift);
            most = min(most, before + last + 1);
        }
        piece.hi = min(piece.hi, (max(most, 0) + S::keys - 1) / S::keys);
        if (p.left_window) {
            const int first = quotient(piece.row, p.group_mul, p.group_shift);
            piece.lo = max(piece.lo, max(before + first - p.left_window + 1, 0) / S::keys);
        }
    }
};
