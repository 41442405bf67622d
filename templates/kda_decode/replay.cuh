// Decode that writes states once in ring_len steps. The state S0 in the pool is behind by `fill` tokens, and each of these
// left a record in a ring: k (normalised, rounded to the type it is kept in), the gate as it came, and u, its correction.
// With kw_j = k_j times all decays behind record j, up to this token's, and a = all decays since S0:
//
//     k . S = S0' (a k) + sum_j (k . kw_j) u_j        the same for q
//     fold:  S0 <- Diag(a) S0 + sum_j kw_j u_j' + k u'
//
// Products of decays run from the newest record to the oldest, so no factor is above 1. Threads partition the records: a
// group of HEAD_DIM / 2 threads, two channels each, takes a run of neighbours, and groups exchange their runs' decays.
#pragma once

#include "kda_decode/common.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/reduce.cuh"
#include "lib/state.cuh"

// A row's ring. `records` are to be replayed; where none of the row's tokens is this step's, all that is done is the fold.
struct kda_ring {
    int records, base;
    bool fold, legal;

    __device__ __forceinline__ void load(const gen_kda_decode_replay_params &r, const kda_place &place)
    {
        records = ld_global(r.ring_fill + place.slot);
        base = ld_global(r.ring_base + place.slot);
        const bool flush = r.flush && r.flush[place.row] != 0;
        legal = static_cast<unsigned>(records) <= static_cast<unsigned>(r.ring_size) &&
                static_cast<unsigned>(base) < static_cast<unsigned>(r.ring_size);
        legal = legal && (records > 0 || r.decode.num_tokens > 0); // else there is nothing to fold
        fold = flush || records >= r.ring_len - 1 || r.decode.num_tokens == 0;
    }
    // Where record j lies in the ring.
    __device__ __forceinline__ int position(const gen_kda_decode_replay_params &r, int j) const
    {
        const int at = base + j;
        return at - (at >= r.ring_size ? r.ring_size : 0);
    }
};

template <int HEAD_DIM, int EXTENT, int THREADS> struct kda_replay {
    static constexpr int PAIRS = HEAD_DIM / 2;     // of channels
    static constexpr int GROUPS = THREADS / PAIRS; // of records
    static constexpr int GROUP_WARPS = PAIRS / 32;
    static constexpr int MOST = 32; // records
    static_assert(GROUP_WARPS >= 1 && GROUPS >= 2, "a thread has two channels");
    // Floats before the records: all decays, times k, times q; the groups' decays; coefficients; u.
    static constexpr int FLOATS = 3 * HEAD_DIM + GROUPS * HEAD_DIM + GROUP_WARPS * 2 * MOST + EXTENT;

    float *base;
    unsigned char *records; // kw, then k, gate and u as they lie in the ring
    float2 bias;

    __device__ __forceinline__ float *all(int part) const { return base + part * HEAD_DIM; } // a, a k, a q
    __device__ __forceinline__ float *carry(int group) const { return base + (3 + group) * HEAD_DIM; }
    __device__ __forceinline__ float *coefficients(int warp, int of) const
    {
        return base + (3 + GROUPS) * HEAD_DIM + (warp * 2 + of) * MOST;
    }
    __device__ __forceinline__ float *new_u() const { return base + (3 + GROUPS) * HEAD_DIM + GROUP_WARPS * 2 * MOST; }
    __device__ __forceinline__ float *kw(int j) const { return reinterpret_cast<float *>(records) + j * HEAD_DIM; }
    __device__ __forceinline__ unsigned char *old_k(const gen_kda_decode_replay_params &r) const
    {
        return records + r.ring_size * HEAD_DIM * 4;
    }
    __device__ __forceinline__ unsigned char *old_gate(const gen_kda_decode_replay_params &r) const
    {
        return old_k(r) + r.ring_size * HEAD_DIM * 2;
    }
    __device__ __forceinline__ unsigned char *old_u(const gen_kda_decode_replay_params &r) const
    {
        return old_gate(r) + r.ring_size * HEAD_DIM * (r.decode.gate_dtype == kda_fp32 ? 4 : 2);
    }

    static __device__ __forceinline__ unsigned pair() { return threadIdx.x % PAIRS; }
    static __device__ __forceinline__ int group() { return threadIdx.x / PAIRS; }

    // ---- what is read: asked for at once, once the fill is known ----

    __device__ __forceinline__ void issue(const gen_kda_decode_replay_params &r, const kda_place &place,
                                          const kda_ring &ring, unsigned first_column)
    {
        const int gate_bytes = r.decode.gate_dtype == kda_fp32 ? 4 : 2, u_bytes = r.ring_fp16 ? 2 : 4;
        const long long slot = place.slot;
        const int head_rows = r.ring_size * HEAD_DIM;
        copy_rows(r, ring, old_k(r),
                  static_cast<const unsigned char *>(r.ring_k) +
                      (slot * r.ring_k_stride + static_cast<long long>(place.qk_head) * head_rows) * 2,
                  HEAD_DIM * 2, HEAD_DIM * 2);
        copy_rows(r, ring, old_gate(r),
                  static_cast<const unsigned char *>(r.ring_g) +
                      (slot * r.ring_g_stride + static_cast<long long>(place.v_head) * head_rows) * gate_bytes,
                  HEAD_DIM * gate_bytes, HEAD_DIM * gate_bytes);
        copy_rows(r, ring, old_u(r),
                  static_cast<const unsigned char *>(r.ring_u) +
                      (slot * r.ring_u_stride + static_cast<long long>(place.v_head) * head_rows + first_column) *
                          u_bytes,
                  HEAD_DIM * u_bytes, EXTENT * u_bytes);
        bias = make_float2(0.f, 0.f);
        if (r.decode.dt_bias) {
            const float *const of_pair = r.decode.dt_bias + place.v_head * HEAD_DIM + 2 * pair();
            bias = make_float2(ld_global(of_pair), ld_global(of_pair + 1));
        }
    }

    // ---- decays and coefficients, after a barrier behind the copies ----

    // The decays of this group's run, and k of each record times those behind it within the run. Before a barrier.
    __device__ __forceinline__ void run(const gen_kda_decode_replay_params &r, const kda_ring &ring, float a_log) const
    {
        const int per = run_length(ring), end = min(ring.records, (group() + 1) * per);
        const unsigned *const ks = reinterpret_cast<const unsigned *>(old_k(r));
        float2 w = make_float2(1.f, 1.f);
#pragma unroll 1
        for (int n = group() * per; n < end; n++) {
            const int at = (ring.records - 1 - n) * PAIRS + pair();
            const float2 k = numbers(ks[at], r.decode.dtype), g = old_gates(r, at);
            reinterpret_cast<float2 *>(records)[at] = make_float2(k.x * w.x, k.y * w.y);
            w.x *= decay_of(r.decode, g.x, bias.x, a_log);
            w.y *= decay_of(r.decode, g.y, bias.y, a_log);
        }
        reinterpret_cast<float2 *>(carry(group()))[pair()] = w;
    }

    // This token's decay is `decay`; q and k are the token's. Between barriers.
    __device__ __forceinline__ void join(const kda_ring &ring, const float *q, const float *k, const float *decay) const
    {
        const float2 q_pair = reinterpret_cast<const float2 *>(q)[pair()];
        const float2 k_pair = reinterpret_cast<const float2 *>(k)[pair()];
        float2 w = reinterpret_cast<const float2 *>(decay)[pair()], a = w;
#pragma unroll
        for (int other = 0; other < GROUPS; other++) {
            const float2 x = reinterpret_cast<const float2 *>(carry(other))[pair()];
            a = make_float2(a.x * x.x, a.y * x.y);
            if (other < group())
                w = make_float2(w.x * x.x, w.y * x.y);
        }
        if (group() == 0) {
            reinterpret_cast<float2 *>(all(0))[pair()] = a;
            reinterpret_cast<float2 *>(all(1))[pair()] = make_float2(a.x * k_pair.x, a.y * k_pair.y);
            reinterpret_cast<float2 *>(all(2))[pair()] = make_float2(a.x * q_pair.x, a.y * q_pair.y);
        }
        constexpr int step = 4; // records whose sums meet together
        const int per = run_length(ring), first = group() * per, end = min(ring.records, first + per);
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % GROUP_WARPS;
#pragma unroll 1
        for (int done = 0; done < per; done += step) {
            float sums[2 * step];
#pragma unroll
            for (int i = 0; i < step; i++) {
                const int n = first + done + i;
                sums[i] = sums[step + i] = 0.f;
                if (n < end) {
                    float2 &stored = reinterpret_cast<float2 *>(records)[(ring.records - 1 - n) * PAIRS + pair()];
                    const float2 x = make_float2(stored.x * w.x, stored.y * w.y);
                    if (ring.fold)
                        stored = x;
                    sums[i] = fmaf(k_pair.x, x.x, k_pair.y * x.y);
                    sums[step + i] = fmaf(q_pair.x, x.x, q_pair.y * x.y);
                }
            }
            reduce_rows<2 * step, 32>(sums);
            constexpr int copies = 32 / (2 * step);
            const int n = first + done + static_cast<int>(lane / copies % step);
            if (n < end && lane % copies == 0)
                coefficients(warp, lane / copies / step)[ring.records - 1 - n] = sums[0];
        }
    }

    // Of record j: what k (of = 0) or q (of = 1) meets.
    __device__ __forceinline__ float coefficient(int of, int j) const
    {
        float x = coefficients(0, of)[j];
        if constexpr (GROUP_WARPS == 2)
            x += coefficients(1, of)[j];
        return x;
    }

    // Column i of the slice in record j.
    __device__ __forceinline__ float u(const gen_kda_decode_replay_params &r, int j, unsigned i) const
    {
        if (r.ring_fp16)
            return to_float<fp16>(reinterpret_cast<const unsigned short *>(old_u(r))[j * EXTENT + i]);
        return reinterpret_cast<const float *>(old_u(r))[j * EXTENT + i];
    }

    // ---- what is written: this token's record, after a barrier ----

    __device__ __forceinline__ void store(const gen_kda_decode_replay_params &r, const kda_place &place,
                                          const kda_ring &ring, unsigned first_column, const float *k,
                                          unsigned gate_bits) const
    {
        const gen_kda_decode_params &p = r.decode;
        const long long slot = place.slot;
        const int head_rows = r.ring_size * HEAD_DIM, row = ring.position(r, ring.records) * HEAD_DIM;
        const unsigned i = threadIdx.x;
        if (i < EXTENT) {
            const long long at =
                slot * r.ring_u_stride + static_cast<long long>(place.v_head) * head_rows + row + first_column + i;
            if (r.ring_fp16)
                static_cast<unsigned short *>(r.ring_u)[at] = from_float<fp16>(within_fp16(new_u()[i]));
            else
                static_cast<float *>(r.ring_u)[at] = new_u()[i];
        }
        if (first_column != 0 || i >= HEAD_DIM)
            return;
        const long long at = slot * r.ring_g_stride + static_cast<long long>(place.v_head) * head_rows + row + i;
        if (p.gate_dtype == kda_fp32)
            static_cast<unsigned *>(r.ring_g)[at] = gate_bits;
        else
            static_cast<unsigned short *>(r.ring_g)[at] = static_cast<unsigned short>(gate_bits);
        // One value head of a group keeps the key, the first.
        if (place.v_head == 0 || quotient(place.v_head - 1, p.group_mul, p.group_shift) != place.qk_head)
            static_cast<unsigned short *>(
                r.ring_k)[slot * r.ring_k_stride + static_cast<long long>(place.qk_head) * head_rows + row + i] =
                rounded(k[i], p.dtype);
    }

  private:
    __device__ __forceinline__ static int run_length(const kda_ring &ring)
    {
        return (ring.records + GROUPS - 1) / GROUPS;
    }

    __device__ __forceinline__ float2 old_gates(const gen_kda_decode_replay_params &r, int at) const
    {
        if (r.decode.gate_dtype == kda_fp32)
            return reinterpret_cast<const float2 *>(old_gate(r))[at];
        return numbers(reinterpret_cast<const unsigned *>(old_gate(r))[at], r.decode.gate_dtype);
    }

    // `bytes` of each record's row, a power of two times 16, to neighbours in shared memory.
    __device__ __forceinline__ static void copy_rows(const gen_kda_decode_replay_params &r, const kda_ring &ring,
                                                     unsigned char *to, const unsigned char *from, int row_bytes,
                                                     int bytes)
    {
        const int shift = 31 - __clz(bytes / 16), mask = (1 << shift) - 1;
#pragma unroll 1
        for (int c = threadIdx.x; c < ring.records << shift; c += THREADS)
            cp_async_16<false>(
                shared_address(to + c * 16),
                from + static_cast<long long>(ring.position(r, c >> shift)) * row_bytes + (c & mask) * 16, 0);
    }
};
