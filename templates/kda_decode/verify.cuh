// Several tokens a row with a ring of records (replay.cuh): the pool is read alone, and each token leaves its record, of
// which the caller keeps those that were accepted. With m records kept, token t meets the state in the pool, those m, and the
// records of this step's tokens before it. Their keys are decayed in place as tokens come, kw_j <- kw_j exp(g_t), so all
// products are still from the newest to the oldest. Where the ring has no room for another step behind this one the state in
// front of this step's tokens goes to the pool, but what the tokens meet is the state as it was read.
#pragma once

#include "kda_decode/replay.cuh"

// What a row is to do: kda_ring for several tokens.
__device__ __forceinline__ void load_verify_ring(kda_ring &ring, const gen_kda_decode_replay_params &r,
                                                 const kda_place &place)
{
    ring.load(r, place);
    ring.legal = ring.legal && ring.records <= r.ring_size - r.num_tokens;
    ring.fold = (r.flush && r.flush[place.row] != 0) || ring.records + 2 * r.num_tokens > r.ring_size;
}

// The old records' keys times the decays behind them, up to the front of this step's tokens, behind replay.run() and a
// barrier; a becomes all of those decays.
template <class Replay> __device__ __forceinline__ void decay_old_records(const Replay &replay, const kda_ring &ring)
{
    constexpr int N = Replay::N;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    float w[N], a[N];
#pragma unroll
    for (int c = 0; c < N; c++)
        w[c] = a[c] = 1.f;
#pragma unroll
    for (int other = 0; other < Replay::GROUPS; other++) {
        float x[N];
        load_channels(x, replay.carry(other) + lane * N);
#pragma unroll
        for (int c = 0; c < N; c++) {
            a[c] *= x[c];
            if (other < group)
                w[c] *= x[c];
        }
    }
    if (group == 0)
        store_channels(replay.all(0) + lane * N, a);
    const int per = (ring.records + Replay::GROUPS - 1) / Replay::GROUPS, first = group * per;
    const int end = min(ring.records, first + per);
#pragma unroll 1
    for (int n = first; n < end; n++) {
        float *const stored = replay.kw(ring.records - 1 - n) + lane * N;
        float x[N];
        load_channels(x, stored);
#pragma unroll
        for (int c = 0; c < N; c++)
            x[c] *= w[c];
        store_channels(stored, x);
    }
}

// One token: all keys decay once more, the coefficients of all records, and a k, a q. `count`: records of before this token;
// the key of the last of them, if that is a token of this step, is `newest` and not among the others yet. Between barriers.
template <class Replay>
__device__ __forceinline__ void meet_records(const Replay &replay, int count, const float *newest, const float *q,
                                             const float *k, const float *decay)
{
    constexpr int N = Replay::N, step = 4; // records whose sums meet together
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    float q_mine[N], k_mine[N], e[N];
    load_channels(q_mine, q + lane * N);
    load_channels(k_mine, k + lane * N);
    load_channels(e, decay + lane * N);
    if (group == Replay::GROUPS - 1) { // the one with fewest records
        float a[N], x[N];
        load_channels(a, replay.all(0) + lane * N);
#pragma unroll
        for (int c = 0; c < N; c++)
            a[c] *= e[c];
        store_channels(replay.all(0) + lane * N, a);
#pragma unroll
        for (int c = 0; c < N; c++)
            x[c] = a[c] * k_mine[c];
        store_channels(replay.all(1) + lane * N, x);
#pragma unroll
        for (int c = 0; c < N; c++)
            x[c] = a[c] * q_mine[c];
        store_channels(replay.all(2) + lane * N, x);
    }
#pragma unroll 1
    for (int first = group * step; first < count; first += Replay::GROUPS * step) {
        float sums[2 * step];
#pragma unroll
        for (int i = 0; i < step; i++) {
            const int j = first + i;
            sums[i] = sums[step + i] = 0.f;
            if (j < count) {
                float x[N];
                load_channels(x, newest && j == count - 1 ? newest + lane * N : replay.kw(j) + lane * N);
#pragma unroll
                for (int c = 0; c < N; c++) {
                    x[c] *= e[c];
                    sums[i] = fmaf(k_mine[c], x[c], sums[i]);
                    sums[step + i] = fmaf(q_mine[c], x[c], sums[step + i]);
                }
                store_channels(replay.kw(j) + lane * N, x);
            }
        }
        reduce_rows<2 * step, 32>(sums);
        constexpr int copies = 32 / (2 * step);
        const int j = first + lane / copies % step;
        if (j < count && lane % copies == 0)
            replay.coefficients(lane / copies / step)[j] = sums[0];
    }
}

// u of row i of the slice becomes that of record j, rounded to the type it is kept in: what the tokens behind meet.
template <int EXTENT, class Replay>
__device__ __forceinline__ void keep_u(const gen_kda_decode_replay_params &r, const Replay &replay, int j, unsigned i,
                                       float u)
{
    if (r.ring_fp16)
        reinterpret_cast<unsigned short *>(replay.old_u(r))[j * EXTENT + i] = from_float<fp16>(within_fp16(u));
    else
        reinterpret_cast<float *>(replay.old_u(r))[j * EXTENT + i] = u;
}

// The records of a row's tokens, after a barrier. `k` has the keys, rounded, `stride` floats from token to token.
template <int HEAD_DIM, int EXTENT, int THREADS, class Replay>
__device__ __forceinline__ void store_records(const gen_kda_decode_replay_params &r, const kda_place &place,
                                              const kda_ring &ring, const Replay &replay, unsigned first_column,
                                              const float *k, int stride)
{
    const long long slot = place.slot;
    const int head_rows = r.ring_size * HEAD_DIM;
    const bool keeps_key = place.v_head == 0 || quotient(place.v_head - 1, r.group_mul, r.group_shift) != place.qk_head;
    const long long u_start = slot * r.ring_u_stride + static_cast<long long>(place.v_head) * head_rows + first_column;
    const long long g_start = slot * r.ring_g_stride + static_cast<long long>(place.v_head) * head_rows;
    const long long k_start = slot * r.ring_k_stride + static_cast<long long>(place.qk_head) * head_rows;
#pragma unroll 1
    for (int n = threadIdx.x; n < place.count * EXTENT; n += THREADS) {
        const int token = n / EXTENT, i = n % EXTENT, j = ring.records + token;
        const long long at = u_start + ring.position(r, j) * HEAD_DIM + i;
        if (r.ring_fp16)
            static_cast<unsigned short *>(r.ring_u)[at] =
                reinterpret_cast<const unsigned short *>(replay.old_u(r))[j * EXTENT + i];
        else
            static_cast<float *>(r.ring_u)[at] = reinterpret_cast<const float *>(replay.old_u(r))[j * EXTENT + i];
    }
    if (first_column != 0)
        return;
#pragma unroll 1
    for (int n = threadIdx.x; n < place.count * HEAD_DIM; n += THREADS) {
        const int token = n / HEAD_DIM, d = n % HEAD_DIM, row = ring.position(r, ring.records + token) * HEAD_DIM;
        const unsigned bits =
            load_bits(r.gate, (place.first + token) * r.gate_stride + place.v_head * HEAD_DIM + d, r.gate_dtype);
        if (r.gate_dtype == kda_fp32)
            static_cast<unsigned *>(r.ring_g)[g_start + row + d] = bits;
        else
            static_cast<unsigned short *>(r.ring_g)[g_start + row + d] = static_cast<unsigned short>(bits);
        if (keeps_key)
            static_cast<unsigned short *>(r.ring_k)[k_start + row + d] = rounded(k[token * stride + d], r.dtype);
    }
}
