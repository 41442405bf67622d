// Decode with replay (replay.cuh) by blocks that stay, each role apart: one warp has bulk copies bring records and pieces of
// states, some warps replay the records of a state each, the others take the pieces of the states as they come, a piece of
// 32 rows a warp. So a piece that has arrived is read at once, by a warp that waits for nothing else: what it needs of the
// records was computed while states before it were served. The parts are bulk.cuh's, whose groups do both in turn.
//
// A block takes every gridDim-th state. What is left over is shared out in pieces, for a state more is 3 % of 31.
//
// Buffers are a multiple of the warps that prepare and of the teams that serve, so whoever waits for a phase of a barrier
// has waited for each before it.
#pragma once

#include "kda_decode/apart.h"
#include "kda_decode/bulk.cuh"
#include "kda_decode/bulk_records.cuh"

constexpr int apart_serving = GEN_KDA_DECODE_APART_SERVING;
constexpr int apart_preparing = GEN_KDA_DECODE_APART_PREPARING;
constexpr int apart_teams = apart_serving / bulk_pieces; // that take states in turn, a piece a warp

// What is computed of a state's records and of its token.
struct apart_prepared {
    float4 vectors[bulk_columns * bulk_column / 8]; // a k, a q; or their parts as columns of an mma
    float coefficients[8 * 2 * bulk_batch];         // of eight batches of records what k meets, then q
    float qk, beta, k_back, q_back;                 // q . k; what the mma's sums are multiplied by
};
static_assert(sizeof(apart_prepared) <= GEN_KDA_DECODE_APART_PREPARED, "as it is launched");

// A serving warp's own.
struct apart_scratch {
    float sums[2 * bulk_rows]; // of a piece's rows with a k, then with a q
    float u[bulk_rows];
};
static_assert(sizeof(apart_scratch) <= GEN_KDA_DECODE_APART_SCRATCH, "as it is launched");

struct apart_shared {
    bulk_shared bulk;                       // info[].pad: a bit for each piece that is this block's
    unsigned long long ready[bulk_buffers]; // a buffer's: its state is prepared
};
static_assert(sizeof(apart_shared) <= GEN_KDA_DECODE_APART_FIXED, "as it is launched");

// Where things lie in shared memory: apart_shared, what serving warps have, buffers with what is prepared, places.
struct apart_layout {
    unsigned char *base;
    int gate_bytes, u_bytes, records_k, records_g, records_u, buffer_bytes, places;

    __device__ __forceinline__ apart_layout(const gen_kda_decode_replay_params &p, unsigned char *memory)
    {
        base = memory + GEN_KDA_DECODE_APART_FIXED;
        gate_bytes = p.gate_dtype == kda_fp32 ? 4 : 2;
        u_bytes = p.ring_fp16 ? 2 : 4;
        // A token's q, k, v and gate, then the records, the oldest first.
        records_k = 3 * 2 * bulk_width + gate_bytes * bulk_width;
        records_g = records_k + p.ring_size * 2 * bulk_width;
        records_u = records_g + p.ring_size * gate_bytes * bulk_width;
        buffer_bytes = records_u + p.ring_size * u_bytes * bulk_width + GEN_KDA_DECODE_APART_PREPARED;
        places = apart_serving * GEN_KDA_DECODE_APART_SCRATCH + p.buffers * buffer_bytes;
    }
    __device__ __forceinline__ apart_scratch &scratch(int warp) const
    {
        return *reinterpret_cast<apart_scratch *>(base + warp * GEN_KDA_DECODE_APART_SCRATCH);
    }
    __device__ __forceinline__ unsigned char *buffer(int n) const
    {
        return base + apart_serving * GEN_KDA_DECODE_APART_SCRATCH + n * buffer_bytes;
    }
    __device__ __forceinline__ apart_prepared &prepared(int n) const
    {
        return *reinterpret_cast<apart_prepared *>(buffer(n) + buffer_bytes - GEN_KDA_DECODE_APART_PREPARED);
    }
    __device__ __forceinline__ unsigned char *pieces() const { return base + places; }
};

// The block's states, whole ones and at last some pieces of one.
struct apart_work {
    int whole, count; // entries that are whole states; entries
    unsigned last, pieces;

    __device__ __forceinline__ explicit apart_work(const gen_kda_decode_replay_params &p)
    {
        const unsigned states = static_cast<unsigned>(p.num_states), grid = gridDim.x;
        const unsigned rounds = states / grid, left = states - rounds * grid;
        const unsigned each = 4 * left <= grid ? 1 : 2 * left <= grid ? 2 : 4; // pieces a block
        const unsigned first = blockIdx.x * each;
        whole = static_cast<int>(rounds);
        count = whole + (first < 4 * left ? 1 : 0);
        last = rounds * grid + first / 4;
        pieces = ((1u << each) - 1) << first % 4;
    }
    __device__ __forceinline__ unsigned index(int entry) const
    {
        return entry < whole ? blockIdx.x + entry * gridDim.x : last;
    }
    __device__ __forceinline__ unsigned mask(int entry) const { return entry < whole ? 15u : pieces; }
};

// ---- the warp that copies ----

// The pieces of the state whose records are in a buffer, by one lane. Those that are not this block's, and those of a row
// without a state, take part in the phases. Places are taken for all pieces, in their order.
template <int piece_bytes>
__device__ __forceinline__ void apart_pieces(const gen_kda_decode_replay_params &p, bulk_shared &shared,
                                             const apart_layout &layout, int buffer, bulk_ring &pieces)
{
    if (threadIdx.x % 32 != 0)
        return;
    const unsigned char *const state = shared.state[buffer];
    const unsigned mine = static_cast<unsigned>(shared.info[buffer].pad);
#pragma unroll 1
    for (int piece = 0; piece < bulk_pieces; piece++) {
        const unsigned full = shared_address(&shared.piece_full[buffer][piece]);
        if (!state || !(mine >> piece & 1)) {
            mbarrier_arrive(full);
            continue;
        }
        if (pieces.round > 0)
            mbarrier_wait(shared_address(&shared.piece_empty[pieces.place]), (pieces.round - 1) & 1);
        mbarrier_arrive_expect_tx(full, piece_bytes);
        bulk_load<false>(shared_address(layout.pieces() + pieces.place * piece_bytes), state + piece * piece_bytes,
                         piece_bytes, full, 0);
        pieces.next(p.places);
    }
}

template <class element>
__device__ __forceinline__ void apart_produce(const gen_kda_decode_replay_params &p, apart_shared &shared,
                                              const apart_layout &layout)
{
    constexpr int piece_bytes = bulk_rows * bulk_width * static_cast<int>(sizeof(element));
    const apart_work work(p);
    const int lane = static_cast<int>(threadIdx.x % 32);
    bulk_ring buffers = {0, 0}, late = {0, 0}, pieces = {0, 0};
    bulk_ring asked = {0, 0}; // places of the states whose records were asked for
    int waiting = 0;          // of these, states whose pieces were not
#pragma unroll 1
    for (int first = 0; first < work.count; first += 32) {
        const int of_lane = first + lane;
        const bulk_state mine(p, of_lane < work.count ? work.index(of_lane) : 0xffffffffu); // 32 states at once
        const int end = min(first + 32, work.count);
#pragma unroll 1
        for (int entry = first; entry < end; entry++) {
            bulk_state state = mine.of_lane(entry - first);
            const unsigned mask = work.mask(entry);
            state.info.place = asked.place;
            state.info.pad = static_cast<int>(mask);
            produce_records(p, shared.bulk, layout, state,
                            reinterpret_cast<const unsigned char *>(
                                state_of<bulk_width, element>(p, state.info.slot, state.v_head)),
                            buffers);
            buffers.next(p.buffers);
            if (state.info.flags & bulk_legal)
                asked.next(p.places, __popc(mask));
            if (waiting < p.ahead) {
                waiting++;
                continue;
            }
            apart_pieces<piece_bytes>(p, shared.bulk, layout, late.place, pieces);
            late.next(p.buffers);
        }
    }
#pragma unroll 1
    for (; waiting > 0; waiting--) {
        apart_pieces<piece_bytes>(p, shared.bulk, layout, late.place, pieces);
        late.next(p.buffers);
    }
}

// Which of a state's places a piece came to: those before it that are this block's.
__device__ __forceinline__ int apart_place(const gen_kda_decode_replay_params &p, const bulk_info &info, unsigned piece)
{
    bulk_ring ring = {info.place, 0};
    ring.next(p.places, __popc(static_cast<unsigned>(info.pad) & ((1u << piece) - 1)));
    return ring.place;
}
