// Decode with replay (replay.cuh) by blocks that stay: a warp has bulk copies bring the records and states of the block's next
// rows to shared memory, where four warps wait for them. A block takes every gridDim-th state. Records and a token's inputs come
// to one of two buffers, a state in four pieces of 32 rows, a warp's each, to places that are free again once the warp has
// read them, so that copies go on while the sums over the records, and the barriers between them, take their time.
//
// A thread has a channel while records are replayed and a row afterwards.
#pragma once

#include "kda_decode/replay.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/reduce.cuh"
#include "lib/state.cuh"

constexpr int bulk_width = 128;  // of a head
constexpr int bulk_warps = 4;    // that compute
constexpr int bulk_rows = 32;    // of a piece
constexpr int bulk_batch = 8;    // records whose sums meet together
constexpr int bulk_places = GEN_KDA_DECODE_BULK_PLACES;

enum bulk_flag { bulk_legal = 1, bulk_token = 2, bulk_fold = 4, bulk_zero = 8 };

// What the warp that copies found out about a row.
struct bulk_info {
    int slot, records, base, flags, first;
    unsigned beta;
    int pad[2];
};

struct bulk_shared {
    unsigned long long full[2], empty[2];                           // of the buffers
    unsigned long long piece_full[bulk_places], piece_empty[bulk_places];
    bulk_info info[2];
    float vectors[2][4][bulk_width];                                // a k, a q, a, k: of this state and the next
    float own[bulk_warps][2 * bulk_rows];                           // a warp's: coefficients, sums of its rows, u
};
static_assert(sizeof(bulk_shared) <= GEN_KDA_DECODE_BULK_FIXED, "as it is launched");

// Where things lie in shared memory behind bulk_shared.
struct bulk_layout {
    unsigned char *base;
    int batches, gate_bytes, u_bytes, records_k, records_g, records_u, buffer_bytes;

    __device__ __forceinline__ bulk_layout(const gen_kda_decode_replay_params &p, unsigned char *memory)
    {
        base = memory + GEN_KDA_DECODE_BULK_FIXED;
        batches = (p.ring_size + bulk_batch - 1) / bulk_batch;
        gate_bytes = p.gate_dtype == kda_fp32 ? 4 : 2;
        u_bytes = p.ring_fp16 ? 2 : 4;
        // A token's q, k, v and gate, then the records, the oldest first.
        records_k = 3 * 2 * bulk_width + gate_bytes * bulk_width;
        records_g = records_k + p.ring_size * 2 * bulk_width;
        records_u = records_g + p.ring_size * gate_bytes * bulk_width;
        buffer_bytes = records_u + p.ring_size * u_bytes * bulk_width;
    }
    // Sums of a warp's channels: of eight records what k meets, then q.
    __device__ __forceinline__ float *partial(int parity, int batch, int warp) const
    {
        return reinterpret_cast<float *>(base) + ((parity * batches + batch) * bulk_warps + warp) * (2 * bulk_batch);
    }
    __device__ __forceinline__ unsigned char *buffer(int stage) const
    {
        return base + batches * (2 * bulk_warps * 2 * bulk_batch * 4) + stage * buffer_bytes;
    }
    __device__ __forceinline__ unsigned char *pieces() const { return buffer(2); }
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

// The places in memory of one of a state's small copies; `which` is told apart by lanes.
struct bulk_copy {
    unsigned char *to;
    const unsigned char *from;
    int bytes;
};

__device__ __forceinline__ bulk_copy small_copy(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
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
        from =
            static_cast<const unsigned char *>(p.ring_g) +
            (slot * p.ring_g_stride + static_cast<long long>(v_head) * p.ring_size * bulk_width) * layout.gate_bytes;
    } else {
        to += layout.records_u;
        bytes_of_row = u_row;
        from = static_cast<const unsigned char *>(p.ring_u) +
               (slot * p.ring_u_stride + static_cast<long long>(v_head) * p.ring_size * bulk_width) * layout.u_bytes;
    }
    return {to + skip * bytes_of_row, from + at * bytes_of_row, count * bytes_of_row};
}

template <class element>
__device__ __forceinline__ void bulk_produce(const gen_kda_decode_replay_params &p, bulk_shared &shared,
                                             const bulk_layout &layout)
{
    constexpr int piece_bytes = bulk_rows * bulk_width * static_cast<int>(sizeof(element));
    const unsigned states = static_cast<unsigned>(p.num_states), lane = threadIdx.x % 32;
    int step = 0;
    bulk_ring ring = {0, 0};
#pragma unroll 1
    for (unsigned index = blockIdx.x; index < states; index += 32 * gridDim.x) {
        // A lane asks for what is known of a state; all of them at once.
        bulk_info mine = {};
        unsigned v_head = 0, qk_head = 0;
        const unsigned mine_index = index + lane * gridDim.x;
        if (mine_index < states) {
            const kda_place place(p, mine_index);
            v_head = place.v_head;
            qk_head = place.qk_head;
            mine.slot = place.slot;
            mine.first = place.first;
            mine.flags = place.count > 0 ? bulk_token | bulk_zero : 0;
            if (place.count > 0)
                mine.beta =
                    load_bits(p.beta, place.first * p.beta_stride + static_cast<long long>(v_head), p.beta_dtype);
            if (in_pool(p, place.slot) && (place.count > 0 || p.num_tokens == 0)) {
                kda_ring of_slot;
                of_slot.load(p, place);
                mine.records = of_slot.records;
                mine.base = of_slot.base;
                mine.flags |= of_slot.legal ? of_slot.fold ? bulk_legal | bulk_fold : bulk_legal : 0;
            }
        }
        const int count = static_cast<int>(min(32u, (states - index + gridDim.x - 1) / gridDim.x));
#pragma unroll 1
        for (int i = 0; i < count; i++, step++) {
            bulk_info info;
            info.slot = __shfl_sync(0xffffffffu, mine.slot, i);
            info.records = __shfl_sync(0xffffffffu, mine.records, i);
            info.base = __shfl_sync(0xffffffffu, mine.base, i);
            info.flags = __shfl_sync(0xffffffffu, mine.flags, i);
            info.first = __shfl_sync(0xffffffffu, mine.first, i);
            info.beta = __shfl_sync(0xffffffffu, mine.beta, i);
            const unsigned head = __shfl_sync(0xffffffffu, v_head, i), of_group = __shfl_sync(0xffffffffu, qk_head, i);
            const int stage = step % 2;
            const bulk_copy copy =
                small_copy(p, layout, info, layout.buffer(stage), head, of_group, static_cast<int>(min(lane, 9u)));
            const bool legal = info.flags & bulk_legal;
            // One lane waits, for the others would miss a phase that this lane's copies end.
            if (lane == 0) {
                if (step >= 2)
                    mbarrier_wait(shared_address(&shared.empty[stage]), (step / 2 - 1) & 1);
                shared.info[stage] = info;
                if (legal) {
                    const int record = (2 + layout.gate_bytes + layout.u_bytes) * bulk_width;
                    const int token = (3 * 2 + layout.gate_bytes) * bulk_width;
                    mbarrier_arrive_expect_tx(shared_address(&shared.full[stage]),
                                              info.records * record + (info.flags & bulk_token ? token : 0));
                } else {
                    mbarrier_arrive(shared_address(&shared.full[stage]));
                }
            }
            __syncwarp();
            if (!legal)
                continue;
            if (lane < 10 && copy.bytes > 0)
                bulk_load<false>(shared_address(copy.to), copy.from, copy.bytes, shared_address(&shared.full[stage]),
                                 0);
            const unsigned char *const state =
                reinterpret_cast<const unsigned char *>(state_of<bulk_width, element>(p, info.slot, head));
            if (lane == 0)
#pragma unroll 1
                for (int piece = 0; piece < bulk_warps; piece++) {
                    if (ring.round > 0)
                        mbarrier_wait(shared_address(&shared.piece_empty[ring.place]), (ring.round - 1) & 1);
                    const unsigned full = shared_address(&shared.piece_full[ring.place]);
                    mbarrier_arrive_expect_tx(full, piece_bytes);
                    bulk_load<false>(shared_address(layout.pieces() + ring.place * piece_bytes),
                                     state + piece * piece_bytes, piece_bytes, full, 0);
                    ring.next(p.places);
                }
        }
    }
}

// ---- the warps that compute ----

// The token's q, k, decay and v of the thread's channel, and q . k.
struct bulk_token_inputs {
    float q, k, decay, v, qk;
    unsigned gate_bits;
    unsigned short k_bits;
};

__device__ __forceinline__ bulk_token_inputs token_inputs(const gen_kda_decode_replay_params &p,
                                                          const unsigned char *buffer, float bias, float a_log)
{
    constexpr int row = 2 * bulk_width;
    const unsigned lane = threadIdx.x % 32, channel = threadIdx.x;
    bulk_token_inputs x;
    // Every warp sums over all channels: no barrier.
    const uint2 q_words = *reinterpret_cast<const uint2 *>(buffer + lane * 8);
    const uint2 k_words = *reinterpret_cast<const uint2 *>(buffer + row + lane * 8);
    const float2 qs[2] = {numbers(q_words.x, p.dtype), numbers(q_words.y, p.dtype)};
    const float2 ks[2] = {numbers(k_words.x, p.dtype), numbers(k_words.y, p.dtype)};
    float q_factor = p.scale, k_factor = 1.f;
    if (p.qk_l2norm) {
        float norms[2] = {0.f, 0.f};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            norms[0] += qs[j].x * qs[j].x + qs[j].y * qs[j].y;
            norms[1] += ks[j].x * ks[j].x + ks[j].y * ks[j].y;
        }
        q_factor *= rsqrtf(warp_sum(norms[0]) + 1e-6f);
        k_factor = rsqrtf(warp_sum(norms[1]) + 1e-6f);
    }
    float qk = 0.f;
#pragma unroll
    for (int j = 0; j < 2; j++)
        qk += qs[j].x * number(rounded(k_factor * ks[j].x, p.dtype), p.dtype) +
              qs[j].y * number(rounded(k_factor * ks[j].y, p.dtype), p.dtype);
    x.qk = q_factor * warp_sum(qk);
    const unsigned short *const halves = reinterpret_cast<const unsigned short *>(buffer) + channel;
    x.q = q_factor * number(halves[0], p.dtype);
    x.k_bits = rounded(k_factor * number(halves[bulk_width], p.dtype), p.dtype);
    x.k = number(x.k_bits, p.dtype);
    x.v = number(halves[2 * bulk_width], p.dtype);
    x.gate_bits = p.gate_dtype == kda_fp32 ? reinterpret_cast<const unsigned *>(buffer + 3 * row)[channel]
                                           : halves[3 * bulk_width];
    x.decay = decay_of(p, number(x.gate_bits, p.gate_dtype), bias, a_log);
    return x;
}

// k and the decay of eight records in the thread's channel, the first `newest` and the others older. Behind the oldest
// stands whatever there was.
__device__ __forceinline__ void load_batch(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
                                           const unsigned char *buffer, int newest, float factor, float bias,
                                           float (&k)[bulk_batch], float (&e)[bulk_batch])
{
    const unsigned short *const ks = reinterpret_cast<const unsigned short *>(buffer + layout.records_k) + threadIdx.x;
    unsigned short k_bits[bulk_batch];
    float g[bulk_batch], biases[bulk_batch];
#pragma unroll
    for (int i = 0; i < bulk_batch; i++) {
        k_bits[i] = ks[max(newest - i, 0) * bulk_width];
        biases[i] = bias;
    }
    if (p.gate_dtype == kda_fp32) {
        const float *const gs = reinterpret_cast<const float *>(buffer + layout.records_g) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            g[i] = gs[max(newest - i, 0) * bulk_width];
    } else {
        const unsigned short *const gs =
            reinterpret_cast<const unsigned short *>(buffer + layout.records_g) + threadIdx.x;
        unsigned short g_bits[bulk_batch];
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            g_bits[i] = gs[max(newest - i, 0) * bulk_width];
        if (p.gate_dtype == kda_fp16)
#pragma unroll
            for (int i = 0; i < bulk_batch; i++)
                g[i] = to_float<fp16>(g_bits[i]);
        else
#pragma unroll
            for (int i = 0; i < bulk_batch; i++)
                g[i] = to_float<bf16>(g_bits[i]);
    }
    if (p.dtype == kda_fp16)
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            k[i] = to_float<fp16>(k_bits[i]);
    else
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            k[i] = to_float<bf16>(k_bits[i]);
    record_decays(p, factor, biases, g, e);
}

// k of a record times all later decays takes the place of what it was made of: the thread's own cells, no other thread
// reads them before the barrier. Of 16-bit gates the upper half goes to k's cell and the lower one to the gate's.
__device__ __forceinline__ void keep_decayed(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
                                             unsigned char *buffer, int record, float kw)
{
    const unsigned at = record * bulk_width + threadIdx.x, bits = __float_as_uint(kw);
    if (p.gate_dtype == kda_fp32) {
        reinterpret_cast<unsigned *>(buffer + layout.records_g)[at] = bits;
    } else {
        reinterpret_cast<unsigned short *>(buffer + layout.records_k)[at] = static_cast<unsigned short>(bits >> 16);
        reinterpret_cast<unsigned short *>(buffer + layout.records_g)[at] = static_cast<unsigned short>(bits);
    }
}

// Of four neighbouring channels.
__device__ __forceinline__ float4 decayed(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
                                          const unsigned char *buffer, int record, unsigned channel)
{
    const unsigned at = record * bulk_width + channel;
    if (p.gate_dtype == kda_fp32)
        return *reinterpret_cast<const float4 *>(buffer + layout.records_g + at * 4);
    const uint2 high = *reinterpret_cast<const uint2 *>(buffer + layout.records_k + at * 2);
    const uint2 low = *reinterpret_cast<const uint2 *>(buffer + layout.records_g + at * 2);
    return make_float4(__uint_as_float(__byte_perm(low.x, high.x, 0x5410)),
                       __uint_as_float(__byte_perm(low.x, high.x, 0x7632)),
                       __uint_as_float(__byte_perm(low.y, high.y, 0x5410)),
                       __uint_as_float(__byte_perm(low.y, high.y, 0x7632)));
}

// Replays all records in the thread's channel: the warps' sums of k . kw and q . kw, and on return all decays.
__device__ __forceinline__ float replay_records(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
                                                const bulk_info &info, unsigned char *buffer, int parity,
                                                const bulk_token_inputs &token, float bias, float a_log)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float factor = p.gate_form == GEN_KDA_GATE_GIVEN ? 1.f : expf(a_log);
    float w = token.decay;
#pragma unroll 1
    for (int done = 0; done < info.records; done += bulk_batch) {
        const int newest = info.records - 1 - done;
        float k[bulk_batch], e[bulk_batch], sums[2 * bulk_batch];
        load_batch(p, layout, buffer, newest, factor, bias, k, e);
#pragma unroll
        for (int i = 0; i < bulk_batch; i++) {
            const bool is_record = i <= newest;
            const float kw = is_record ? k[i] * w : 0.f;
            w = is_record ? w * e[i] : w;
            sums[i] = token.k * kw;
            sums[bulk_batch + i] = token.q * kw;
            k[i] = kw;
        }
        if (info.flags & bulk_fold)
#pragma unroll
            for (int i = 0; i < bulk_batch; i++)
                if (i <= newest)
                    keep_decayed(p, layout, buffer, newest - i, k[i]);
        reduce_rows<2 * bulk_batch, 32>(sums);
        if (lane % 2 == 0)
            layout.partial(parity, done / bulk_batch, warp)[lane / 2] = sums[0];
    }
    return w;
}

// u of a record in a row.
__device__ __forceinline__ float record_u(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
                                          const unsigned char *buffer, int record, unsigned row)
{
    const unsigned at = record * bulk_width + row;
    if (p.ring_fp16)
        return to_float<fp16>(reinterpret_cast<const unsigned short *>(buffer + layout.records_u)[at]);
    return reinterpret_cast<const float *>(buffer + layout.records_u)[at];
}

// What the records add to k . S and q . S of the thread's row.
__device__ __forceinline__ float2 of_records(const gen_kda_decode_replay_params &p, const bulk_layout &layout,
                                             const bulk_info &info, const unsigned char *buffer, int parity, float *own)
{
    const unsigned lane = threadIdx.x % 32;
    const int values = (info.records + bulk_batch - 1) / bulk_batch * (2 * bulk_batch);
#pragma unroll 1
    for (int n = static_cast<int>(lane); n < values; n += 32) {
        float sum = 0.f;
#pragma unroll
        for (int warp = 0; warp < bulk_warps; warp++)
            sum += layout.partial(parity, n / (2 * bulk_batch), warp)[n % (2 * bulk_batch)];
        own[n] = sum;
    }
    __syncwarp();
    float2 sums = make_float2(0.f, 0.f);
#pragma unroll 1
    for (int done = 0; done < info.records; done += bulk_batch) {
        const int newest = info.records - 1 - done;
        const float *const by = own + 2 * done;
        float u[bulk_batch];
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            u[i] = record_u(p, layout, buffer, max(newest - i, 0), threadIdx.x);
#pragma unroll
        for (int i = 0; i < bulk_batch; i += 4) {
            const float4 k = *reinterpret_cast<const float4 *>(by + i);
            const float4 q = *reinterpret_cast<const float4 *>(by + bulk_batch + i);
            const float ks[4] = {k.x, k.y, k.z, k.w}, qs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float x = i + j <= newest ? u[i + j] : 0.f;
                sums.x = fmaf(ks[j], x, sums.x);
                sums.y = fmaf(qs[j], x, sums.y);
            }
        }
    }
    __syncwarp(); // before `own` is anything else
    return sums;
}
