// Decode with replay (replay.cuh) by blocks that stay: of each, one warp has bulk copies bring the records and states of
// the rows to come to shared memory. The others are groups of four, which take four states in turn: each warp replays the
// records of one of them, all of its channels, so that sums stay within the warp; then the four take the pieces of one
// state after another, 32 rows a warp. While a group replays, another one takes the pieces that come. A block takes every
// gridDim-th state. Records and a token's inputs come to one of `buffers` buffers, pieces to `places` places that are free
// again once they have been read. Copies of records are `ahead` states ahead of those of pieces, three at least: a group
// wants all of its four before it takes a piece.
//
// A lane has four neighbouring channels while records are replayed, and a row of each piece.
#pragma once

#include "kda_decode/replay.cuh"
#include "lib/prefetch.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/state.cuh"

constexpr int bulk_width = 128;                           // of a head
constexpr int bulk_rows = 32;                             // of a piece
constexpr int bulk_pieces = bulk_width / bulk_rows;       // of a state
constexpr int bulk_batch = 4;                             // records whose sums meet together
constexpr int bulk_places = GEN_KDA_DECODE_BULK_PLACES;   // at most
constexpr int bulk_buffers = GEN_KDA_DECODE_BULK_BUFFERS; // at most
constexpr int bulk_group = bulk_pieces;                   // warps that share states
constexpr int bulk_columns = 6;                           // of an mma: three parts of a k and of a q
constexpr int bulk_column = bulk_width + 8;               // elements from column to column: on different banks

enum bulk_flag { bulk_legal = 1, bulk_token = 2, bulk_fold = 4 };

// What the warp that copies found out about a row.
struct bulk_info {
    int slot, records, base, flags, first;
    unsigned beta;
    int place; // of the state's first piece
    int pad;
};

// What a warp found out about its state, for the group, and what it has for itself.
struct bulk_warp {
    float4 vectors[bulk_columns * bulk_column / 8]; // a k, a q; or their parts as columns of an mma
    float coefficients[8 * 2 * bulk_batch];         // of eight batches of records what k meets, then q
    float qk, beta, k_back, q_back;                 // q . k; what the mma's sums are multiplied by
    float sums[2 * bulk_rows];                      // own: of a piece's rows with a k, then with a q
    float u[bulk_rows];                             // own
};
static_assert(sizeof(bulk_warp) <= GEN_KDA_DECODE_BULK_WARP, "as it is launched");

struct bulk_shared {
    // A buffer's, and the pieces' of its state. They are waited for by one warp, which takes part in each of their phases;
    // a place is used by all warps, so of places the warp that copies alone waits for one.
    unsigned long long full[bulk_buffers], empty[bulk_buffers], piece_full[bulk_buffers][bulk_pieces];
    unsigned long long piece_empty[bulk_places];
    const unsigned char *state[bulk_buffers]; // of the row whose records are there; NULL: none
    bulk_info info[bulk_buffers];
};
static_assert(sizeof(bulk_shared) <= GEN_KDA_DECODE_BULK_FIXED, "as it is launched");

// Where things lie in shared memory behind bulk_shared: what each warp has, buffers, places.
template <int warps> struct bulk_layout {
    unsigned char *base;
    int gate_bytes, u_bytes, records_k, records_g, records_u, buffer_bytes, places;

    __device__ __forceinline__ bulk_layout(const gen_kda_decode_replay_params &p, unsigned char *memory)
    {
        base = memory + GEN_KDA_DECODE_BULK_FIXED;
        gate_bytes = p.gate_dtype == kda_fp32 ? 4 : 2;
        u_bytes = p.ring_fp16 ? 2 : 4;
        // A token's q, k, v and gate, then the records, the oldest first.
        records_k = 3 * 2 * bulk_width + gate_bytes * bulk_width;
        records_g = records_k + p.ring_size * 2 * bulk_width;
        records_u = records_g + p.ring_size * gate_bytes * bulk_width;
        buffer_bytes = records_u + p.ring_size * u_bytes * bulk_width;
        places = p.buffers * buffer_bytes + warps * GEN_KDA_DECODE_BULK_WARP;
    }
    __device__ __forceinline__ bulk_warp &warp(int n) const
    {
        return *reinterpret_cast<bulk_warp *>(base + n * GEN_KDA_DECODE_BULK_WARP);
    }
    __device__ __forceinline__ unsigned char *buffer(int n) const
    {
        return base + warps * GEN_KDA_DECODE_BULK_WARP + n * buffer_bytes;
    }
    __device__ __forceinline__ unsigned char *pieces() const { return base + places; }
};

// Steps 0, 1, 2, ... through the places of a ring whose length is known at run time.
struct bulk_ring {
    int place, round;

    __device__ __forceinline__ void next(int places, int by = 1)
    {
        place += by;
        while (place >= places) {
            place -= places;
            round++;
        }
    }
};

// ---- the warp that copies ----

// The places in memory of one of a state's small copies; lanes differ in `which`.
struct bulk_copy {
    unsigned char *to;
    const unsigned char *from;
    int bytes;
};

template <class Layout>
__device__ __forceinline__ bulk_copy small_copy(const gen_kda_decode_replay_params &p, const Layout &layout,
                                                const bulk_info &info, unsigned char *buffer, unsigned v_head,
                                                unsigned qk_head, int which)
{
    constexpr int row = 2 * bulk_width;
    const long long token = info.first;
    const bool has_token = info.flags & bulk_token;
    const int gate_row = layout.gate_bytes * bulk_width, u_row = layout.u_bytes * bulk_width;
    const unsigned char *from = nullptr;
    if (which < 4) {
        const int bytes = has_token ? which == 3 ? gate_row : row : 0;
        if (which == 0)
            from = static_cast<const unsigned char *>(p.q) + (token * p.q_stride + qk_head * bulk_width) * 2;
        else if (which == 1)
            from = static_cast<const unsigned char *>(p.k) + (token * p.k_stride + qk_head * bulk_width) * 2;
        else if (which == 2)
            from = static_cast<const unsigned char *>(p.v) + (token * p.v_stride + v_head * bulk_width) * 2;
        else
            from = static_cast<const unsigned char *>(p.gate) +
                   (token * p.gate_stride + v_head * bulk_width) * layout.gate_bytes;
        return {buffer + which * row, from, bytes};
    }
    // Records from `base` on, and those that begin anew at the ring's first place.
    const long long slot = info.slot;
    const int straight = min(info.records, p.ring_size - info.base);
    const int skip = which % 2 ? straight : 0, count = which % 2 ? info.records - straight : straight;
    const int at = which % 2 ? 0 : info.base;
    unsigned char *to = buffer;
    int bytes_of_row = row;
    if (which < 6) {
        to += layout.records_k;
        from = static_cast<const unsigned char *>(p.ring_k) +
               (slot * p.ring_k_stride + static_cast<long long>(qk_head) * p.ring_size * bulk_width) * 2;
    } else if (which < 8) {
        to += layout.records_g;
        bytes_of_row = gate_row;
        from = static_cast<const unsigned char *>(p.ring_g) +
               (slot * p.ring_g_stride + static_cast<long long>(v_head) * p.ring_size * bulk_width) * layout.gate_bytes;
    } else {
        to += layout.records_u;
        bytes_of_row = u_row;
        from = static_cast<const unsigned char *>(p.ring_u) +
               (slot * p.ring_u_stride + static_cast<long long>(v_head) * p.ring_size * bulk_width) * layout.u_bytes;
    }
    return {to + skip * bytes_of_row, from + at * bytes_of_row, count * bytes_of_row};
}

// Before grid_dependency_wait(): the block's first states come to L2 while the kernel before ends. Hints: where it is
// still writing the slots' numbers, these may be other states.
template <class element> __device__ __forceinline__ void bulk_prefetch(const gen_kda_decode_replay_params &p)
{
    const unsigned index = blockIdx.x + threadIdx.x % 32 * gridDim.x;
    if (threadIdx.x % 32 >= 2 || index >= static_cast<unsigned>(p.num_states))
        return;
    const unsigned row = quotient(index, p.heads_mul, p.heads_shift), v_head = index - row * p.num_v_heads;
    int slot = static_cast<int>(row);
    if (p.slots)
        slot = ld_global_cg(p.slots + static_cast<long long>(row) * p.slots_stride);
    if (in_pool(p, slot))
        prefetch_bulk(state_of<bulk_width, element>(p, slot, v_head),
                      bulk_width * bulk_width * static_cast<int>(sizeof(element)));
}

// What a lane finds out of the index-th state.
struct bulk_state {
    bulk_info info;
    unsigned v_head, qk_head;

    __device__ __forceinline__ bulk_state(const gen_kda_decode_replay_params &p, unsigned index) : info{}
    {
        v_head = qk_head = 0;
        if (index >= static_cast<unsigned>(p.num_states))
            return;
        const kda_place place(p, index);
        v_head = place.v_head;
        qk_head = place.qk_head;
        info.slot = place.slot;
        info.first = place.first;
        info.flags = place.count > 0 ? bulk_token : 0;
        if (place.count > 0)
            info.beta = load_bits(p.beta, place.first * p.beta_stride + static_cast<long long>(v_head), p.beta_dtype);
        if (in_pool(p, place.slot) && (place.count > 0 || p.num_tokens == 0)) {
            kda_ring ring;
            ring.load(p, place);
            info.records = ring.records;
            info.base = ring.base;
            info.flags |= ring.legal ? ring.fold ? bulk_legal | bulk_fold : bulk_legal : 0;
        }
    }

    __device__ __forceinline__ bulk_state of_lane(int lane) const
    {
        bulk_state x = *this;
        x.info.slot = __shfl_sync(0xffffffffu, info.slot, lane);
        x.info.records = __shfl_sync(0xffffffffu, info.records, lane);
        x.info.base = __shfl_sync(0xffffffffu, info.base, lane);
        x.info.flags = __shfl_sync(0xffffffffu, info.flags, lane);
        x.info.first = __shfl_sync(0xffffffffu, info.first, lane);
        x.info.beta = __shfl_sync(0xffffffffu, info.beta, lane);
        x.v_head = __shfl_sync(0xffffffffu, v_head, lane);
        x.qk_head = __shfl_sync(0xffffffffu, qk_head, lane);
        return x;
    }
};

// The small copies of a state: what is known of it, its token's inputs and its records.
template <class Layout>
__device__ __forceinline__ void produce_records(const gen_kda_decode_replay_params &p, bulk_shared &shared,
                                                const Layout &layout, const bulk_state &state,
                                                const unsigned char *first, bulk_ring buffers)
{
    const unsigned lane = threadIdx.x % 32;
    const bulk_info &info = state.info;
    const unsigned full = shared_address(&shared.full[buffers.place]);
    const bulk_copy copy = small_copy(p, layout, info, layout.buffer(buffers.place), state.v_head, state.qk_head,
                                      static_cast<int>(min(lane, 9u)));
    // One lane waits, for the others would miss a phase that this lane's copies end.
    if (lane == 0) {
        if (buffers.round > 0)
            mbarrier_wait(shared_address(&shared.empty[buffers.place]), (buffers.round - 1) & 1);
        shared.info[buffers.place] = info;
        shared.state[buffers.place] = info.flags & bulk_legal ? first : nullptr;
        if (info.flags & bulk_legal) {
            const int record = (2 + layout.gate_bytes + layout.u_bytes) * bulk_width;
            const int token = (3 * 2 + layout.gate_bytes) * bulk_width;
            mbarrier_arrive_expect_tx(full, info.records * record + (info.flags & bulk_token ? token : 0));
        } else {
            mbarrier_arrive(full);
        }
    }
    __syncwarp();
    if (info.flags & bulk_legal && lane < 10 && copy.bytes > 0)
        bulk_load<false>(shared_address(copy.to), copy.from, copy.bytes, full, 0);
}

// The pieces of the row whose records are in a buffer, by one lane. A row without a state takes part in the phases.
template <int piece_bytes, class Layout>
__device__ __forceinline__ void produce_pieces(const gen_kda_decode_replay_params &p, bulk_shared &shared,
                                               const Layout &layout, int buffer, bulk_ring &pieces)
{
    if (threadIdx.x % 32 != 0)
        return;
    const unsigned char *const state = shared.state[buffer];
#pragma unroll 1
    for (int piece = 0; piece < bulk_pieces; piece++) {
        const unsigned full = shared_address(&shared.piece_full[buffer][piece]);
        if (!state) {
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

template <class element, class Layout>
__device__ __forceinline__ void bulk_produce(const gen_kda_decode_replay_params &p, bulk_shared &shared,
                                             const Layout &layout)
{
    constexpr int piece_bytes = bulk_rows * bulk_width * static_cast<int>(sizeof(element));
    const unsigned states = static_cast<unsigned>(p.num_states), lane = threadIdx.x % 32;
    bulk_ring buffers = {0, 0}, late = {0, 0}, pieces = {0, 0};
    bulk_ring asked = {0, 0}; // places of the states whose records were asked for
    int waiting = 0;          // of these, states whose pieces were not
#pragma unroll 1
    for (unsigned index = blockIdx.x; index < states; index += 32 * gridDim.x) {
        const bulk_state mine(p, index + lane * gridDim.x); // 32 states at once
        const int count = static_cast<int>(min(32u, (states - index + gridDim.x - 1) / gridDim.x));
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            bulk_state state = mine.of_lane(i);
            state.info.place = asked.place;
            produce_records(p, shared, layout, state,
                            reinterpret_cast<const unsigned char *>(
                                state_of<bulk_width, element>(p, state.info.slot, state.v_head)),
                            buffers);
            buffers.next(p.buffers);
            if (state.info.flags & bulk_legal)
                asked.next(p.places, bulk_pieces);
            if (waiting < p.ahead) {
                waiting++;
                continue;
            }
            produce_pieces<piece_bytes>(p, shared, layout, late.place, pieces);
            late.next(p.buffers);
        }
    }
#pragma unroll 1
    for (; waiting > 0; waiting--) {
        produce_pieces<piece_bytes>(p, shared, layout, late.place, pieces);
        late.next(p.buffers);
    }
}
