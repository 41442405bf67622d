// Decode that writes states once in ring_len steps. The state S0 in the pool is behind by `fill` tokens, and each of these
// left a record in a ring: k (normalised, rounded to the type it is kept in), the gate as it came, and u, its correction.
// With kw_j = k_j times all decays behind record j, up to this token's, and a = all decays since S0:
//
//     k . S = S0' (a k) + sum_j (k . kw_j) u_j        the same for q
//     fold:  S0 <- Diag(a) S0 + sum_j kw_j u_j' + k u'
//
// Products of decays run from the newest record to the oldest, so no factor is above 1. Warps partition the records: each
// takes a run of neighbours, all channels, and they exchange their runs' decays.
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
        legal = legal && (records > 0 || r.num_tokens > 0); // else there is nothing to fold
        fold = flush || records >= r.ring_len - 1 || r.num_tokens == 0;
    }
    // Where record j lies in the ring.
    __device__ __forceinline__ int position(const gen_kda_decode_replay_params &r, int j) const
    {
        const int at = base + j;
        return at - (at >= r.ring_size ? r.ring_size : 0);
    }
};

// A lane's neighbouring channels.
template <int N> __device__ __forceinline__ void load_channels(float (&x)[N], const float *from)
{
    static_assert(N == 2 || N == 4, "one access");
    if constexpr (N == 4) {
        const float4 y = *reinterpret_cast<const float4 *>(from);
        x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    } else {
        const float2 y = *reinterpret_cast<const float2 *>(from);
        x[0] = y.x, x[1] = y.y;
    }
}

template <int N> __device__ __forceinline__ void load_channels(float (&x)[N], const unsigned short *from, int type)
{
    if constexpr (N == 4) {
        const uint2 y = *reinterpret_cast<const uint2 *>(from);
        const float2 low = numbers(y.x, type), high = numbers(y.y, type);
        x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
    } else {
        const float2 y = numbers(*reinterpret_cast<const unsigned *>(from), type);
        x[0] = y.x, x[1] = y.y;
    }
}

template <int N> __device__ __forceinline__ void store_channels(float *to, const float (&x)[N])
{
    if constexpr (N == 4)
        *reinterpret_cast<float4 *>(to) = make_float4(x[0], x[1], x[2], x[3]);
    else
        *reinterpret_cast<float2 *>(to) = make_float2(x[0], x[1]);
}

// Of gates as they came; `factor` is exp(a_log). Exponentials are two instructions each: as decay_of() to 1e-6.
template <int N>
__device__ __forceinline__ void record_decays(const gen_kda_decode_params &p, float factor, const float (&bias)[N],
                                              const float (&g)[N], float (&e)[N])
{
    if (p.gate_form == GEN_KDA_GATE_GIVEN) {
#pragma unroll
        for (int c = 0; c < N; c++)
            e[c] = __expf(g[c]);
    } else if (p.gate_form == GEN_KDA_GATE_LOWER_BOUND) {
#pragma unroll
        for (int c = 0; c < N; c++)
            e[c] = __expf(__fdividef(p.lower_bound, 1.f + __expf(-factor * (g[c] + bias[c]))));
    } else {
#pragma unroll
        for (int c = 0; c < N; c++) {
            const float x = g[c] + bias[c];
            e[c] = __expf(-factor * (x > 20.f ? x : log1pf(__expf(x))));
        }
    }
}

// With SPLIT the vectors that states are multiplied by are there as sums of three bf16, exact to fp32's 24 bits: columns of
// an mma whose rows are states of 16 bits. SCALAR_GATE: a record has one gate for all channels, kept as fp32 where those of
// channels would be.
template <int HEAD_DIM, int EXTENT, int THREADS, bool SPLIT, bool SCALAR_GATE = false> struct kda_replay {
    static constexpr int N = HEAD_DIM / 32;     // channels a lane has
    static constexpr int GROUPS = THREADS / 32; // of records: a warp's run each
    static constexpr int MOST = 32;             // records
    // Floats before the records: all decays, times k, times q; the runs' decays; coefficients; u.
    static constexpr int COLUMN = HEAD_DIM + 8; // elements from column to column: on different banks
    static constexpr int FLOATS = 3 * HEAD_DIM + GROUPS * HEAD_DIM + 2 * MOST + EXTENT + (SPLIT ? 8 * COLUMN / 2 : 0);

    float *base;
    unsigned char *records; // kw, then k, gate and u as they lie in the ring
    float bias[N];

    __device__ __forceinline__ float *all(int part) const { return base + part * HEAD_DIM; } // a, a k, a q
    __device__ __forceinline__ float *carry(int group) const { return base + (3 + group) * HEAD_DIM; }
    // Of all records: what k (of = 0) or q (of = 1) meets.
    __device__ __forceinline__ float *coefficients(int of) const { return base + (3 + GROUPS) * HEAD_DIM + of * MOST; }
    __device__ __forceinline__ float *new_u() const { return base + (3 + GROUPS) * HEAD_DIM + 2 * MOST; }
    // a k and a q in turn, their first bf16, their second and their third; two columns of zeros.
    __device__ __forceinline__ unsigned short *column(int n) const
    {
        return reinterpret_cast<unsigned short *>(new_u() + EXTENT) + n * COLUMN;
    }
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
        return old_gate(r) + r.ring_size * HEAD_DIM * (r.gate_dtype == kda_fp32 ? 4 : 2);
    }

    static __device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }
    static __device__ __forceinline__ int group() { return threadIdx.x / 32; }

    // ---- what is read: asked for at once, once the fill is known ----

    __device__ __forceinline__ void issue(const gen_kda_decode_replay_params &r, const kda_place &place,
                                          const kda_ring &ring, unsigned first_column)
    {
        const int gate_bytes = r.gate_dtype == kda_fp32 ? 4 : 2, u_bytes = r.ring_fp16 ? 2 : 4;
        const long long slot = place.slot;
        const int head_rows = r.ring_size * HEAD_DIM;
        copy_rows(r, ring, old_k(r),
                  static_cast<const unsigned char *>(r.ring_k) +
                      (slot * r.ring_k_stride + static_cast<long long>(place.qk_head) * head_rows) * 2,
                  HEAD_DIM * 2, HEAD_DIM * 2);
        if constexpr (SCALAR_GATE) {
            const long long gates = slot * r.ring_g_stride + static_cast<long long>(place.v_head) * r.ring_size;
            if (static_cast<int>(threadIdx.x) < ring.records)
                reinterpret_cast<float *>(old_gate(r))[threadIdx.x] =
                    number(load_bits(r.ring_g, gates + ring.position(r, threadIdx.x), r.gate_dtype), r.gate_dtype);
        } else {
            copy_rows(r, ring, old_gate(r),
                      static_cast<const unsigned char *>(r.ring_g) +
                          (slot * r.ring_g_stride + static_cast<long long>(place.v_head) * head_rows) * gate_bytes,
                      HEAD_DIM * gate_bytes, HEAD_DIM * gate_bytes);
        }
        copy_rows(r, ring, old_u(r),
                  static_cast<const unsigned char *>(r.ring_u) +
                      (slot * r.ring_u_stride + static_cast<long long>(place.v_head) * head_rows + first_column) *
                          u_bytes,
                  HEAD_DIM * u_bytes, EXTENT * u_bytes);
#pragma unroll
        for (int c = 0; c < N; c++)
            bias[c] = 0.f;
        if (r.dt_bias)
#pragma unroll
            for (int c = 0; c < N; c++) {
                if constexpr (SCALAR_GATE)
                    bias[c] = ld_global(r.dt_bias + place.v_head);
                else
                    bias[c] = ld_global(r.dt_bias + place.v_head * HEAD_DIM + lane() * N + c);
            }
    }

    // ---- decays and coefficients, after a barrier behind the copies ----

    // The decays of this group's run, and k of each record times those behind it within the run. Before a barrier.
    __device__ __forceinline__ void run(const gen_kda_decode_replay_params &r, const kda_ring &ring, float a_log) const
    {
        const int per = run_length(ring), end = min(ring.records, (group() + 1) * per);
        const unsigned short *const ks = reinterpret_cast<const unsigned short *>(old_k(r));
        const float factor = r.gate_form == GEN_KDA_GATE_GIVEN ? 1.f : expf(a_log);
        float w[N];
#pragma unroll
        for (int c = 0; c < N; c++)
            w[c] = 1.f;
#pragma unroll 1
        for (int n = group() * per; n < end; n++) {
            const int at = (ring.records - 1 - n) * HEAD_DIM + lane() * N;
            float k[N], g[N];
            load_channels(k, ks + at, r.dtype);
            load_gates(r, at, g);
#pragma unroll
            for (int c = 0; c < N; c++)
                k[c] *= w[c];
            store_channels(reinterpret_cast<float *>(records) + at, k);
            decay(r, factor, g, w);
        }
        store_channels(carry(group()) + lane() * N, w);
    }

    // This token's decay is `decay`; q and k are the token's. Between barriers.
    __device__ __forceinline__ void join(const kda_ring &ring, const float *q, const float *k, const float *decay) const
    {
        float q_mine[N], k_mine[N], w[N], a[N];
        load_channels(q_mine, q + lane() * N);
        load_channels(k_mine, k + lane() * N);
        load_channels(w, decay + lane() * N);
#pragma unroll
        for (int c = 0; c < N; c++)
            a[c] = w[c];
#pragma unroll
        for (int other = 0; other < GROUPS; other++) {
            float x[N];
            load_channels(x, carry(other) + lane() * N);
#pragma unroll
            for (int c = 0; c < N; c++) {
                a[c] *= x[c];
                if (other < group())
                    w[c] *= x[c];
            }
        }
        if (group() == 0) {
            store_channels(all(0) + lane() * N, a);
            float x[N];
#pragma unroll
            for (int c = 0; c < N; c++)
                x[c] = a[c] * k_mine[c];
            store_vector(0, x);
#pragma unroll
            for (int c = 0; c < N; c++)
                x[c] = a[c] * q_mine[c];
            store_vector(1, x);
        } else if (SPLIT && group() == 1) {
#pragma unroll
            for (int c = 0; c < N; c++)
                column(6)[lane() * N + c] = column(7)[lane() * N + c] = 0;
        }
        constexpr int step = 4; // records whose sums meet together
        const int per = run_length(ring), first = group() * per, end = min(ring.records, first + per);
#pragma unroll 1
        for (int done = first; done < end; done += step) {
            float sums[2 * step];
#pragma unroll
            for (int i = 0; i < step; i++) {
                sums[i] = sums[step + i] = 0.f;
                if (done + i < end) {
                    float x[N];
                    float *const stored = kw(ring.records - 1 - done - i) + lane() * N;
                    load_channels(x, stored);
#pragma unroll
                    for (int c = 0; c < N; c++) {
                        x[c] *= w[c];
                        sums[i] = fmaf(k_mine[c], x[c], sums[i]);
                        sums[step + i] = fmaf(q_mine[c], x[c], sums[step + i]);
                    }
                    if (ring.fold)
                        store_channels(stored, x);
                }
            }
            reduce_rows<2 * step, 32>(sums);
            constexpr int copies = 32 / (2 * step);
            const int n = done + static_cast<int>(lane() / copies % step);
            if (n < end && lane() % copies == 0)
                coefficients(lane() / copies / step)[ring.records - 1 - n] = sums[0];
        }
    }

    // What the records add to k . S (of = 0) or q . S (of = 1) of column i of the slice.
    __device__ __forceinline__ float of_records(const gen_kda_decode_replay_params &r, const kda_ring &ring, int of,
                                                unsigned i) const
    {
        const float *const by = coefficients(of);
        float sum = 0.f;
        if (r.ring_fp16) {
            const unsigned short *const us = reinterpret_cast<const unsigned short *>(old_u(r)) + i;
#pragma unroll 4
            for (int j = 0; j < ring.records; j++)
                sum = fmaf(by[j], to_float<fp16>(us[j * EXTENT]), sum);
        } else {
            const float *const us = reinterpret_cast<const float *>(old_u(r)) + i;
#pragma unroll 4
            for (int j = 0; j < ring.records; j++)
                sum = fmaf(by[j], us[j * EXTENT], sum);
        }
        return sum;
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
        const gen_kda_decode_params &p = r;
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
        if constexpr (SCALAR_GATE) {
            const long long at = slot * r.ring_g_stride + static_cast<long long>(place.v_head) * r.ring_size +
                                 ring.position(r, ring.records);
            if (i == 0 && p.gate_dtype == kda_fp32)
                static_cast<unsigned *>(r.ring_g)[at] = gate_bits;
            else if (i == 0)
                static_cast<unsigned short *>(r.ring_g)[at] = static_cast<unsigned short>(gate_bits);
        } else {
            const long long at = slot * r.ring_g_stride + static_cast<long long>(place.v_head) * head_rows + row + i;
            if (p.gate_dtype == kda_fp32)
                static_cast<unsigned *>(r.ring_g)[at] = gate_bits;
            else
                static_cast<unsigned short *>(r.ring_g)[at] = static_cast<unsigned short>(gate_bits);
        }
        // One value head of a group keeps the key, the first.
        if (place.v_head == 0 || quotient(place.v_head - 1, p.group_mul, p.group_shift) != place.qk_head)
            static_cast<unsigned short *>(
                r.ring_k)[slot * r.ring_k_stride + static_cast<long long>(place.qk_head) * head_rows + row + i] =
                rounded(k[i], p.dtype);
    }

  private:
    // a k (of = 0) or a q (of = 1) of this lane's channels.
    __device__ __forceinline__ void store_vector(int of, const float (&x)[N]) const
    {
        if constexpr (!SPLIT) {
            store_channels(all(1 + of) + lane() * N, x);
        } else {
#pragma unroll
            for (int c = 0; c < N; c++) {
                float rest = x[c];
#pragma unroll
                for (int n = 0; n < 3; n++) {
                    const unsigned short bits = from_float<bf16>(rest);
                    column(2 * n + of)[lane() * N + c] = bits;
                    rest -= to_float<bf16>(bits);
                }
            }
        }
    }

    __device__ __forceinline__ static int run_length(const kda_ring &ring)
    {
        return (ring.records + GROUPS - 1) / GROUPS;
    }

    __device__ __forceinline__ void load_gates(const gen_kda_decode_replay_params &r, int at, float (&g)[N]) const
    {
        if constexpr (SCALAR_GATE) {
#pragma unroll
            for (int c = 0; c < N; c++)
                g[c] = reinterpret_cast<const float *>(old_gate(r))[at / HEAD_DIM];
        } else if (r.gate_dtype == kda_fp32)
            load_channels(g, reinterpret_cast<const float *>(old_gate(r)) + at);
        else
            load_channels(g, reinterpret_cast<const unsigned short *>(old_gate(r)) + at, r.gate_dtype);
    }

    // w times the decays; `factor` is exp(a_log).
    __device__ __forceinline__ void decay(const gen_kda_decode_params &p, float factor, const float (&g)[N],
                                          float (&w)[N]) const
    {
        float e[N];
        record_decays(p, factor, bias, g, e);
#pragma unroll
        for (int c = 0; c < N; c++)
            w[c] *= e[c];
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
