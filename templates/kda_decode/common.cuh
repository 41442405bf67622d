// What both layouts of kda_decode share: where the tensors of one (row, value head) lie, and its tokens' inputs, brought
// in and activated by the whole block.
#pragma once

#include "kda_decode/args.h"
#include "lib/half.cuh"
#include "lib/ptx.cuh"

// ---- elements whose type is known at run time (enum gen_dtype): a few a thread, so a branch costs nothing ----

enum { kda_bf16 = 0, kda_fp16 = 1, kda_fp32 = 2 };

__device__ __forceinline__ unsigned load_bits(const void *tensor, long long index, int type)
{
    if (type == kda_fp32)
        return static_cast<unsigned>(load_global(static_cast<const int *>(tensor) + index));
    return load_global(static_cast<const unsigned short *>(tensor) + index);
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

// x / d for x < 2^31, d given as the host prepared it (args.h).
__device__ __forceinline__ unsigned quotient(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? __umulhi(x, mul) >> shift : x;
}

struct kda_place {
    unsigned row, v_head, qk_head;
    int first, count; // the row's tokens
    int slot;         // of the first state; negative where `accepted` names no column

    __device__ __forceinline__ kda_place(const gen_kda_decode_params &p, unsigned index)
    {
        row = quotient(index, p.heads_mul, p.heads_shift);
        v_head = index - row * p.num_v_heads;
        qk_head = quotient(v_head, p.group_mul, p.group_shift);
        // Issued before everything else: the state's address hangs on it.
        slot = static_cast<int>(row);
        if (p.slots) {
            unsigned column = 0;
            if (p.accepted)
                column = static_cast<unsigned>(load_global(p.accepted + row)) - 1;
            slot = -1;
            if (column < p.slots_stride)
                slot = load_global(p.slots + static_cast<long long>(row) * p.slots_stride + column);
        }
        first = static_cast<int>(row) * p.num_tokens;
        count = p.num_tokens;
        if (p.cu_seqlens) {
            first = load_global(p.cu_seqlens + row);
            const int end = load_global(p.cu_seqlens + row + 1);
            const bool legal = first >= 0 && first <= end && end <= p.total_tokens && end - first <= p.num_tokens;
            count = legal ? end - first : 0;
        }
    }

    __device__ __forceinline__ static bool in_pool(const gen_kda_decode_params &p, int slot)
    {
        return static_cast<unsigned>(slot) < p.num_slots;
    }

    // The first element of this head's state in a slot; head_dim x head_dim floats are contiguous.
    template <int head_dim> __device__ __forceinline__ float *state(const gen_kda_decode_params &p, int of_slot) const
    {
        return p.state + (static_cast<long long>(of_slot) * p.num_v_heads + v_head) * (head_dim * head_dim);
    }

    template <int head_dim> __device__ __forceinline__ unsigned short *o(const gen_kda_decode_params &p, int token) const
    {
        return static_cast<unsigned short *>(p.o) + (first + token) * p.o_stride + v_head * head_dim;
    }
};

// ---- a block's tokens ----

// Sums over a warp.
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int distance = 16; distance >= 1; distance /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// A block's inputs and outputs in shared memory. As they come: q, k, gate and v (of the block's slice) of each token, and
// dt_bias once. Made of them, fp32: scale * q and k (normalised) and the decay; with BY_ROW those three of a channel stand
// together with a gap, else they are rows of HEAD_DIM. And o of the slice, fp32; beta, (scale * q) . k, and the slot that the
// state behind a token goes to.
template <int HEAD_DIM, int EXTENT, int THREADS, int MAX_TOKENS, bool BY_ROW> struct kda_tokens {
    static constexpr int WARPS = THREADS / 32;
    static constexpr int CHANNEL_BYTES = (BY_ROW ? 16 : 12) * HEAD_DIM;
    static constexpr int O = CHANNEL_BYTES;          // bytes from a token's first
    static constexpr int V = O + 4 * EXTENT;
    static constexpr int Q = V + (2 * EXTENT + 15) / 16 * 16;
    static constexpr int K = Q + 2 * HEAD_DIM;
    static constexpr int GATE = K + 2 * HEAD_DIM;
    static constexpr int TOKEN_BYTES = GATE + 4 * HEAD_DIM;
    static constexpr int BIAS_BYTES = 4 * HEAD_DIM;  // before the tokens
    static constexpr int CHUNKS = HEAD_DIM / 8;      // of 16 bytes, of 16-bit elements
    static_assert(THREADS % HEAD_DIM == 0 && THREADS % EXTENT == 0, "a thread's channel is the same for all tokens");
    static_assert(EXTENT % 8 == 0, "v of a slice is whole chunks");

    unsigned char *base;
    float *beta, *qk; // [MAX_TOKENS]
    int *slots;       // [MAX_TOKENS]

    static __device__ __forceinline__ unsigned warp() { return threadIdx.x / 32; }
    static __device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }
    __device__ __forceinline__ unsigned char *at(int token, int offset) const
    {
        return base + BIAS_BYTES + token * TOKEN_BYTES + offset;
    }
    // Part 0 is q, 1 k, 2 the decay.
    __device__ __forceinline__ float *channel(int token, int part, int d) const
    {
        return reinterpret_cast<float *>(at(token, 0)) + (BY_ROW ? 4 * d + part : part * HEAD_DIM + d);
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
    __device__ __forceinline__ const unsigned short *v(int token) const
    {
        return reinterpret_cast<const unsigned short *>(at(token, V));
    }
    __device__ __forceinline__ float *o(int token) const { return reinterpret_cast<float *>(at(token, O)); }

    // ---- bringing them in ----

    __device__ __forceinline__ static void copy(unsigned char *to, const void *from, long long bytes)
    {
        cp_async_16<false>(shared_address(to), static_cast<const unsigned char *>(from) + bytes, 0);
    }

    // Asks for everything of which there is more than an element. Warps share out the jobs: q and k, gate, v of each token,
    // and dt_bias.
    __device__ __forceinline__ void ask(const gen_kda_decode_params &p, const kda_place &place, unsigned first_column) const
    {
        const unsigned v_start = place.v_head * HEAD_DIM;
        if constexpr (MAX_TOKENS == 1) {
            if (warp() == 0)
                ask_qk(p, place, 0);
            if (warp() == 1 % WARPS)
                ask_gate(p, place, 0, v_start);
            if (warp() == 2 % WARPS)
                ask_v(p, place, 0, v_start + first_column);
            if (warp() == 3 % WARPS)
                ask_bias(p, v_start);
        } else {
#pragma unroll 1
            for (int job = warp(); job <= 3 * place.count; job += WARPS) {
                const int token = job / 3, kind = job % 3;
                if (job == 3 * place.count)
                    ask_bias(p, v_start);
                else if (kind == 0)
                    ask_qk(p, place, token);
                else if (kind == 1)
                    ask_gate(p, place, token, v_start);
                else
                    ask_v(p, place, token, v_start + first_column);
            }
        }
        cp_async_commit();
    }

    // Waits for them and makes of them what the recurrence wants. One thread a channel and token, one warp a token for q and
    // k, one lane a token for what is one element: those are asked for here, behind the state.
    __device__ __forceinline__ void settle(const gen_kda_decode_params &p, const kda_place &place) const
    {
        const bool scalar = warp() == WARPS - 1 && static_cast<int>(lane()) < (MAX_TOKENS == 1 ? 1 : place.count);
        unsigned beta_bits = 0;
        int slot = place.slot;
        const float a_log = p.a_log ? load_global(p.a_log + place.v_head) : 0.f;
        if (scalar) {
            beta_bits = load_bits(p.beta, (place.first + static_cast<int>(lane())) * p.beta_stride + place.v_head, p.beta_dtype);
            if (p.write == GEN_KDA_DECODE_WRITE_EACH && p.slots)
                slot = load_global(p.slots + static_cast<long long>(place.row) * p.slots_stride + lane());
        }
        cp_async_wait<0>();
        __syncthreads();
        each_token<WARPS>(warp(), place.count, [&](int token) { settle_qk(p, token); });
        const unsigned d = threadIdx.x % HEAD_DIM;
        const float bias = p.dt_bias ? reinterpret_cast<const float *>(base)[d] : 0.f;
        each_token<THREADS / HEAD_DIM>(threadIdx.x / HEAD_DIM, place.count, [&](int token) {
            const unsigned char *const gates = at(token, GATE);
            const unsigned bits = p.gate_dtype == kda_fp32 ? reinterpret_cast<const unsigned *>(gates)[d]
                                                           : reinterpret_cast<const unsigned short *>(gates)[d];
            *channel(token, 2, d) = decay_of(p, number(bits, p.gate_dtype), bias, a_log);
        });
        if (scalar) {
            beta[lane()] = beta_of(p, number(beta_bits, p.beta_dtype));
            slots[lane()] = slot;
        }
        __syncthreads();
    }

    // What is to be done for every STEP-th token from `first` on; the tokens are there.
    template <int STEP, class Work> static __device__ __forceinline__ void each_token(int first, int count, Work work)
    {
        if constexpr (MAX_TOKENS == 1) {
            if (first == 0)
                work(0);
        } else {
#pragma unroll 1
            for (int token = first; token < count; token += STEP)
                work(token);
        }
    }

private:
    __device__ __forceinline__ void ask_qk(const gen_kda_decode_params &p, const kda_place &place, int token) const
    {
        const bool is_k = lane() >= CHUNKS;
        const unsigned byte = 16 * (lane() % CHUNKS);
        const long long row = (place.first + token) * (is_k ? p.k_stride : p.q_stride) + place.qk_head * HEAD_DIM;
        if (lane() < 2 * CHUNKS)
            copy(at(token, is_k ? K : Q) + byte, is_k ? p.k : p.q, 2 * row + byte);
    }
    __device__ __forceinline__ void ask_gate(const gen_kda_decode_params &p, const kda_place &place, int token,
                                             unsigned v_start) const
    {
        const int shift = p.gate_dtype == kda_fp32 ? 2 : 1; // of an element's bytes
        const long long row = (place.first + token) * p.gate_stride + v_start;
        if (lane() < (CHUNKS / 2) << shift)
            copy(at(token, GATE) + 16 * lane(), p.gate, (row << shift) + 16 * lane());
    }
    __device__ __forceinline__ void ask_v(const gen_kda_decode_params &p, const kda_place &place, int token,
                                          unsigned start) const
    {
        if (lane() < EXTENT / 8)
            copy(at(token, V) + 16 * lane(), p.v, 2 * ((place.first + token) * p.v_stride + start) + 16 * lane());
    }
    __device__ __forceinline__ void ask_bias(const gen_kda_decode_params &p, unsigned v_start) const
    {
        if (p.dt_bias && lane() < 2 * CHUNKS)
            copy(base + 16 * lane(), p.dt_bias, 4ll * v_start + 16 * lane());
    }

    // A warp: q and k of one token. A lane has the same channels of both.
    __device__ __forceinline__ void settle_qk(const gen_kda_decode_params &p, int token) const
    {
        constexpr int words = HEAD_DIM / 64; // of two channels
        const unsigned *const q_words = reinterpret_cast<const unsigned *>(at(token, Q)) + lane() * words;
        const unsigned *const k_words = reinterpret_cast<const unsigned *>(at(token, K)) + lane() * words;
        float2 qs[words], ks[words];
        float qq = 0.f, kk = 0.f, both = 0.f;
#pragma unroll
        for (int j = 0; j < words; j++) {
            qs[j] = numbers(q_words[j], p.dtype);
            ks[j] = numbers(k_words[j], p.dtype);
            qq += qs[j].x * qs[j].x + qs[j].y * qs[j].y;
            kk += ks[j].x * ks[j].x + ks[j].y * ks[j].y;
            both += qs[j].x * ks[j].x + qs[j].y * ks[j].y;
        }
        float q_factor = p.scale, k_factor = 1.f;
        both = warp_sum(both);
        if (p.qk_l2norm) {
            q_factor *= rsqrtf(warp_sum(qq) + 1e-6f);
            k_factor = rsqrtf(warp_sum(kk) + 1e-6f);
        }
#pragma unroll
        for (int j = 0; j < words; j++) {
            const int d = lane() * (2 * words) + 2 * j;
            *channel(token, 0, d) = q_factor * qs[j].x;
            *channel(token, 0, d + 1) = q_factor * qs[j].y;
            *channel(token, 1, d) = k_factor * ks[j].x;
            *channel(token, 1, d + 1) = k_factor * ks[j].y;
        }
        if (lane() == 0)
            qk[token] = q_factor * k_factor * both;
    }
};

// ---- outputs ----

// The slice's outputs leave together, as whole sectors. After a barrier.
template <int HEAD_DIM, int EXTENT, int THREADS, class Tokens>
__device__ __forceinline__ void store_outputs(const gen_kda_decode_params &p, const kda_place &place, unsigned first_column,
                                              const Tokens &tokens)
{
    const unsigned i = threadIdx.x % EXTENT;
    Tokens::template each_token<THREADS / EXTENT>(threadIdx.x / EXTENT, place.count, [&](int token) {
        place.o<HEAD_DIM>(p, token)[first_column + i] = rounded(tokens.o(token)[i], p.dtype);
    });
}

template <int HEAD_DIM, int EXTENT, int THREADS>
__device__ __forceinline__ void zero_outputs(const gen_kda_decode_params &p, const kda_place &place, unsigned first_column)
{
    const unsigned i = threadIdx.x % EXTENT;
#pragma unroll 1
    for (int token = threadIdx.x / EXTENT; token < place.count; token += THREADS / EXTENT)
        place.o<HEAD_DIM>(p, token)[first_column + i] = 0;
}
