// What both layouts of kda_decode share: where the tensors of one (row, value head) lie, and its tokens' inputs, brought
// in and activated by the whole block.
#pragma once

#include "kda_decode/args.h"
#include "lib/divide.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

// ---- elements whose type is known at run time (enum gen_dtype): a few a thread, so a branch costs nothing ----

enum { kda_bf16 = 0, kda_fp16 = 1, kda_fp32 = 2 };

__device__ __forceinline__ unsigned load_bits(const void *tensor, long long index, int type)
{
    if (type == kda_fp32)
        return static_cast<unsigned>(ld_global(static_cast<const int *>(tensor) + index));
    return ld_global(static_cast<const unsigned short *>(tensor) + index);
}

__device__ __forceinline__ float number(unsigned bits, int type)
{
    if (type == kda_fp32)
        return __uint_as_float(bits);
    const unsigned short half = static_cast<unsigned short>(bits);
    return type == kda_fp16 ? to_float<fp16>(half) : to_float<bf16>(half);
}

__device__ __forceinline__ float2 numbers(unsigned pair, int type)
{
    return type == kda_fp16 ? to_float2<fp16>(pair) : to_float2<bf16>(pair);
}

__device__ __forceinline__ unsigned short rounded(float x, int type)
{
    return type == kda_fp16 ? from_float<fp16>(x) : from_float<bf16>(x);
}

// ---- activations (args.h) ----

// To 2 units in the last place, without the slow paths of a division; 0 for x below -87.
__device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.f, 1.f + expf(-x));
}

__device__ __forceinline__ float decay_of(const gen_kda_decode_params &p, float gate, float bias, float a_log)
{
    if (p.gate_form == GEN_KDA_GATE_GIVEN)
        return expf(gate);
    const float x = gate + bias, factor = expf(a_log);
    if (p.gate_form == GEN_KDA_GATE_LOWER_BOUND)
        return expf(p.lower_bound * sigmoid(factor * x));
    return expf(-factor * (x > 20.f ? x : log1pf(expf(x))));
}

__device__ __forceinline__ float beta_of(const gen_kda_decode_params &p, float x)
{
    if (p.beta_form == GEN_KDA_BETA_GIVEN)
        return x;
    return (p.beta_form == GEN_KDA_BETA_TWO_SIGMOID ? 2.f : 1.f) * sigmoid(x);
}

// ---- places ----

struct kda_place {
    unsigned row, v_head, qk_head;
    int first, count; // the row's tokens
    int slot;         // of the first state; negative where `accepted` names no column

    __device__ __forceinline__ kda_place(const gen_kda_decode_params &p, unsigned index)
    {
        row = quotient(index, p.heads_mul, p.heads_shift);
        v_head = index - row * p.num_v_heads;
        qk_head = quotient(v_head, p.group_mul, p.group_shift);
        // Issued before everything else: the state's address depends on it.
        slot = static_cast<int>(row);
        if (p.slots) {
            unsigned column = 0;
            if (p.accepted)
                column = static_cast<unsigned>(ld_global(p.accepted + row)) - 1;
            slot = -1;
            if (column < p.slots_stride)
                slot = ld_global(p.slots + static_cast<long long>(row) * p.slots_stride + column);
        }
        first = static_cast<int>(row) * p.num_tokens;
        count = p.num_tokens;
        if (p.cu_seqlens) {
            first = ld_global(p.cu_seqlens + row);
            const int end = ld_global(p.cu_seqlens + row + 1);
            const bool legal = first >= 0 && first <= end && end <= p.total_tokens && end - first <= p.num_tokens;
            count = legal ? end - first : 0;
        }
    }

    __device__ __forceinline__ static bool in_pool(const gen_kda_decode_params &p, int slot)
    {
        return static_cast<unsigned>(slot) < p.num_slots && slot != p.null_slot;
    }

    // The first element of this head's state in a slot; head_dim x head_dim of them are contiguous.
    template <int head_dim, class element>
    __device__ __forceinline__ element *state(const gen_kda_decode_params &p, int of_slot) const
    {
        return static_cast<element *>(p.state) + of_slot * p.state_stride + v_head * (head_dim * head_dim);
    }

    template <int head_dim>
    __device__ __forceinline__ unsigned short *o(const gen_kda_decode_params &p, int token) const
    {
        return static_cast<unsigned short *>(p.o) + (first + token) * p.o_stride + v_head * head_dim;
    }
};

// ---- a block's inputs ----

// Sums over a warp.
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int distance = 16; distance >= 1; distance /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// A token's inputs in shared memory, fp32: scale * q and k (normalised), the decay, v of the block's slice, beta, (scale *
// q) . k, and the slot of the state behind the token. A token takes TOKEN_FLOATS floats of `base`. With BY_ROW (q, k,
// decay, 0) of a channel lie together; else q, k and decay are rows of HEAD_DIM, and there is room for the slice's outputs.
template <int HEAD_DIM, int EXTENT, int MAX_TOKENS, bool BY_ROW> struct kda_shared {
    static constexpr int CHANNELS = (BY_ROW ? 4 : 3) * HEAD_DIM;
    static constexpr int TOKEN_FLOATS = CHANNELS + (BY_ROW ? 1 : 2) * EXTENT;
    float *base;
    float *beta, *qk; // [MAX_TOKENS]
    int *slots;       // [MAX_TOKENS]

    __device__ __forceinline__ float *channel(int token, int part, int d) const
    {
        return base + token * TOKEN_FLOATS + (BY_ROW ? 4 * d + part : part * HEAD_DIM + d);
    }
    __device__ __forceinline__ float4 row(int token, int d) const
    {
        static_assert(BY_ROW, "q, k and decay of a channel stand together");
        return *reinterpret_cast<const float4 *>(channel(token, 0, d));
    }
    __device__ __forceinline__ float4 four(int token, int part, int d) const
    {
        static_assert(!BY_ROW, "channels are neighbours");
        return *reinterpret_cast<const float4 *>(channel(token, part, d));
    }
    __device__ __forceinline__ float *v(int token) const { return base + token * TOKEN_FLOATS + CHANNELS; }
    __device__ __forceinline__ float *o(int token) const
    {
        static_assert(!BY_ROW, "outputs are collected");
        return v(token) + EXTENT;
    }
};

// A block loads all inputs of its tokens at once and makes of them what kda_shared holds later, so that the state is
// loaded meanwhile. Threads partition the channels, warps the tokens. SCALAR_GATE: a head has one gate for all channels, which each
// thread reads and activates by itself. With ROUND_K keys are rounded to the type of q and k once they are normalised.
template <int HEAD_DIM, int EXTENT, int THREADS, int MAX_TOKENS, bool SCALAR_GATE, bool ROUND_K = false>
struct kda_inputs {
    static constexpr int WARPS = THREADS / 32;
    static constexpr int GATES = (MAX_TOKENS * HEAD_DIM + THREADS - 1) / THREADS; // a thread
    static constexpr int VS = (MAX_TOKENS * EXTENT + THREADS - 1) / THREADS;      // a thread
    static constexpr int QKS = (MAX_TOKENS + WARPS - 1) / WARPS;                  // a warp
    static constexpr int WORDS = HEAD_DIM / 64; // of two channels: what a lane holds of q and of k
    static_assert(THREADS % HEAD_DIM == 0 && THREADS % EXTENT == 0, "a thread's channel is the same for all tokens");

    unsigned gate[GATES], q[QKS][WORDS], k[QKS][WORDS];
    unsigned short v[VS]; // widened later: a conversion here would wait for it before the state's loads are issued
    unsigned beta;
    int slot;
    float bias, a_log;

    static __device__ __forceinline__ unsigned warp() { return threadIdx.x / 32; }
    static __device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }
    static __device__ __forceinline__ unsigned channel() { return threadIdx.x % HEAD_DIM; }
    static __device__ __forceinline__ int gate_token(int n)
    {
        return n * (THREADS / HEAD_DIM) + threadIdx.x / HEAD_DIM;
    }
    static __device__ __forceinline__ int v_token(int n) { return n * (THREADS / EXTENT) + threadIdx.x / EXTENT; }
    static __device__ __forceinline__ int qk_token(int n) { return n * WARPS + warp(); }
    // One lane a token, of the warp that has fewest of q and k.
    static __device__ __forceinline__ bool is_scalar(int count)
    {
        return warp() == WARPS - 1 && static_cast<int>(lane()) < count;
    }

    __device__ __forceinline__ void issue(const gen_kda_decode_params &p, const kda_place &place, unsigned first_column)
    {
        const int first = place.first, count = place.count;
        const unsigned v_start = place.v_head * HEAD_DIM, qk_start = place.qk_head * HEAD_DIM;
#pragma unroll
        for (int n = 0; n < GATES; n++) {
            gate[n] = 0;
            if (gate_token(n) < count) {
                if constexpr (SCALAR_GATE)
                    gate[n] = load_bits(p.gate, (first + gate_token(n)) * p.gate_stride + place.v_head, p.gate_dtype);
                else
                    gate[n] =
                        load_bits(p.gate, (first + gate_token(n)) * p.gate_stride + v_start + channel(), p.gate_dtype);
            }
        }
        if constexpr (SCALAR_GATE)
            bias = p.dt_bias ? ld_global(p.dt_bias + place.v_head) : 0.f;
        else
            bias = p.dt_bias ? ld_global(p.dt_bias + v_start + channel()) : 0.f;
        a_log = p.a_log ? ld_global(p.a_log + place.v_head) : 0.f;
#pragma unroll
        for (int n = 0; n < QKS; n++)
            if (qk_token(n) < count) {
                const long long token = first + qk_token(n);
                const unsigned short *const q_row =
                    static_cast<const unsigned short *>(p.q) + token * p.q_stride + qk_start;
                const unsigned short *const k_row =
                    static_cast<const unsigned short *>(p.k) + token * p.k_stride + qk_start;
                issue_row(q[n], q_row);
                issue_row(k[n], k_row);
            }
#pragma unroll
        for (int n = 0; n < VS; n++)
            if (v_token(n) < count)
                v[n] = ld_global(static_cast<const unsigned short *>(p.v) + (first + v_token(n)) * p.v_stride +
                                 v_start + first_column + threadIdx.x % EXTENT);
        if (is_scalar(count)) {
            beta = load_bits(p.beta, (first + static_cast<int>(lane())) * p.beta_stride + place.v_head, p.beta_dtype);
            if (p.slots_out)
                slot = ld_global(p.slots_out + static_cast<long long>(place.row) * p.slots_out_stride +
                                 (p.write == GEN_KDA_DECODE_WRITE_EACH ? lane() : 0));
        }
    }

    template <class Shared>
    __device__ __forceinline__ void settle(const gen_kda_decode_params &p, const kda_place &place,
                                           const Shared &shared) const
    {
        const int count = place.count;
#pragma unroll
        for (int n = 0; n < QKS; n++)
            if (qk_token(n) < count)
                settle_qk(p, qk_token(n), q[n], k[n], shared);
#pragma unroll
        for (int n = 0; n < GATES; n++)
            if (gate_token(n) < count)
                *shared.channel(gate_token(n), 2, channel()) = decay_of(p, number(gate[n], p.gate_dtype), bias, a_log);
#pragma unroll
        for (int n = 0; n < VS; n++)
            if (v_token(n) < count)
                shared.v(v_token(n))[threadIdx.x % EXTENT] = number(v[n], p.dtype);
        if (is_scalar(count)) {
            shared.beta[lane()] = beta_of(p, number(beta, p.beta_dtype));
            shared.slots[lane()] = p.slots_out ? slot : place.slot;
        }
    }

  private:
    static __device__ __forceinline__ void issue_row(unsigned (&words)[WORDS], const unsigned short *row)
    {
        if constexpr (WORDS == 2) {
            const uint2 x = ld_global_v2_u32(row + lane() * 4);
            words[0] = x.x;
            words[1] = x.y;
        } else {
            words[0] = static_cast<unsigned>(ld_global(reinterpret_cast<const int *>(row) + lane()));
        }
    }

    // A warp: q and k of one token.
    template <class Shared>
    __device__ __forceinline__ void settle_qk(const gen_kda_decode_params &p, int token,
                                              const unsigned (&q_words)[WORDS], const unsigned (&k_words)[WORDS],
                                              const Shared &shared) const
    {
        float2 qs[WORDS], ks[WORDS];
        float qq = 0.f, kk = 0.f, qk = 0.f;
#pragma unroll
        for (int j = 0; j < WORDS; j++) {
            qs[j] = numbers(q_words[j], p.dtype);
            ks[j] = numbers(k_words[j], p.dtype);
            qq += qs[j].x * qs[j].x + qs[j].y * qs[j].y;
            kk += ks[j].x * ks[j].x + ks[j].y * ks[j].y;
            qk += qs[j].x * ks[j].x + qs[j].y * ks[j].y;
        }
        float q_factor = p.scale, k_factor = 1.f;
        if constexpr (!ROUND_K)
            qk = warp_sum(qk);
        if (p.qk_l2norm) {
            q_factor *= rsqrtf(warp_sum(qq) + 1e-6f);
            k_factor = rsqrtf(warp_sum(kk) + 1e-6f);
        }
        if constexpr (ROUND_K) {
            qk = 0.f;
#pragma unroll
            for (int j = 0; j < WORDS; j++) {
                ks[j].x = number(rounded(k_factor * ks[j].x, p.dtype), p.dtype);
                ks[j].y = number(rounded(k_factor * ks[j].y, p.dtype), p.dtype);
                qk += qs[j].x * ks[j].x + qs[j].y * ks[j].y;
            }
            k_factor = 1.f;
            qk = warp_sum(qk);
        }
#pragma unroll
        for (int j = 0; j < WORDS; j++) {
            const int d = lane() * (2 * WORDS) + 2 * j;
            *shared.channel(token, 0, d) = q_factor * qs[j].x;
            *shared.channel(token, 0, d + 1) = q_factor * qs[j].y;
            *shared.channel(token, 1, d) = k_factor * ks[j].x;
            *shared.channel(token, 1, d + 1) = k_factor * ks[j].y;
        }
        if (lane() == 0)
            shared.qk[token] = q_factor * k_factor * qk;
    }
};

// ---- outputs ----

// Four neighbours, 8-byte aligned.
__device__ __forceinline__ void store_four(unsigned short *o, float4 x, int type)
{
    const unsigned low = rounded(x.x, type) | static_cast<unsigned>(rounded(x.y, type)) << 16;
    const unsigned high = rounded(x.z, type) | static_cast<unsigned>(rounded(x.w, type)) << 16;
    st_global_v2_u32(o, low, high);
}

// The slice's outputs leave together, as whole sectors. After a barrier.
template <int HEAD_DIM, int EXTENT, int THREADS, class Shared>
__device__ __forceinline__ void store_outputs(const gen_kda_decode_params &p, const kda_place &place,
                                              unsigned first_column, const Shared &shared)
{
    const unsigned i = threadIdx.x % EXTENT;
#pragma unroll 1
    for (int token = threadIdx.x / EXTENT; token < place.count; token += THREADS / EXTENT)
        place.o<HEAD_DIM>(p, token)[first_column + i] = rounded(shared.o(token)[i], p.dtype);
}

template <int HEAD_DIM, int EXTENT, int THREADS>
__device__ __forceinline__ void zero_outputs(const gen_kda_decode_params &p, const kda_place &place,
                                             unsigned first_column)
{
    const unsigned i = threadIdx.x % EXTENT;
#pragma unroll 1
    for (int token = threadIdx.x / EXTENT; token < place.count; token += THREADS / EXTENT)
        place.o<HEAD_DIM>(p, token)[first_column + i] = 0;
}
