// A decode step's inputs: brought in by the whole block, convolved and activated, while the state is loaded. A block has all
// channels of q and k of a query head, and `extent` of the rows of a value head's state (of V), with their channels of v.
#pragma once

#include "kda_decode/common.cuh"
#include "kda_step/args.h"
#include "lib/ptx/cp_async.cuh"
#include "lib/reduce.cuh"

enum { step_head_dim = 128, step_taps = GEN_KDA_STEP_MAX_WIDTH, step_past = step_taps - 1 };
enum step_part { part_q, part_k, part_v };

// What a block is about.
template <int EXTENT, int BLOCKS> struct step_place {
    unsigned row, qk_head, rank;

    __device__ __forceinline__ step_place(const gen_kda_step_params &p, unsigned block)
    {
        const unsigned unit = block / BLOCKS;
        rank = block % BLOCKS;
        row = quotient(unit, p.heads_mul, p.heads_shift);
        qk_head = unit - row * p.num_qk_heads;
    }

    __device__ __forceinline__ unsigned qk_start() const { return qk_head * step_head_dim; }
    // The first row of V, among those of all value heads.
    __device__ __forceinline__ unsigned v_start(const gen_kda_step_params &p, unsigned round) const
    {
        return (qk_head * p.group + round) * step_head_dim + rank * EXTENT;
    }
};

// What a block convolves of one part, N channels of it, in shared memory, so that what is under way takes no registers. Copies are
// of 16 bytes, numbered; `start` is the first channel among the part's.
template <int N> struct alignas(16) conv_shared {
    // A row a tap, the newest last; taps that the width does not have are missing in front.
    float w[step_taps * N], bias[N];
    // A row an input, x last. With a layout of channels first those before x lie as in the pool, from the beginning on.
    unsigned short inputs[step_taps * N];

    enum { WEIGHT_COPIES = (step_taps + 1) * N / 4, INPUT_COPIES = step_taps * N / 8 };

    // Weights: before the kernel in front has ended.
    __device__ __forceinline__ void copy_weights(const gen_kda_step_params &p, unsigned part, unsigned start,
                                                 unsigned copy)
    {
        const unsigned row = copy / (N / 4), i = copy % (N / 4) * 4;
        const int tap = static_cast<int>(row) - step_taps + p.conv_width;
        const float *from = p.conv_w + part * p.conv_w_part + tap * p.conv_w_tap + start;
        bool there = tap >= 0;
        if (row == step_taps) {
            from = p.conv_bias + channel_of(p, part, start);
            there = p.conv_bias;
        }
        if (there)
            cp_async_16<false>(shared_address(w) + copy * 16, from + i, 0);
    }

    __device__ __forceinline__ void copy_inputs(const gen_kda_step_params &p, unsigned row, int slot, unsigned part,
                                                unsigned start, unsigned copy)
    {
        const unsigned line = copy / (N / 8), i = copy % (N / 8) * 8;
        const bool rows_first = p.conv_layout == GEN_KDA_CONV_SD;
        const int past = static_cast<int>(line) - (rows_first ? step_taps - p.conv_width : 0);
        const unsigned short *from = window(p, slot, part, start) + past * (rows_first ? p.channels : N);
        bool there = past >= 0 && past < p.conv_width - 1;
        if (line == step_past) {
            from = static_cast<const unsigned short *>(p.x) + row * p.x_stride + channel_of(p, part, start);
            there = true;
        }
        if (there)
            cp_async_16<false>(shared_address(inputs) + copy * 16, from + i, 0);
    }

    // The convolution of channel i, and SiLU.
    __device__ __forceinline__ float activated(const gen_kda_step_params &p, unsigned i) const
    {
        const int missing = step_taps - p.conv_width;
        const bool rows_first = p.conv_layout == GEN_KDA_CONV_SD;
        const unsigned first = rows_first ? i : i * (p.conv_width - 1) - missing, next = rows_first ? N : 1;
        float y = p.conv_bias ? bias[i] : 0.f;
#pragma unroll
        for (int tap = 0; tap < step_past; tap++)
            if (tap >= missing)
                y = fmaf(w[tap * N + i], number(inputs[first + tap * next], p.dtype), y);
        y = fmaf(w[step_past * N + i], number(inputs[step_past * N + i], p.dtype), y);
        return y * sigmoid(y);
    }

    // The window moves on in the pool, when it is not read any more.
    __device__ __forceinline__ void move_on(const gen_kda_step_params &p, int slot, unsigned part, unsigned start,
                                            unsigned copy) const
    {
        unsigned short *const to = window(p, slot, part, start);
        if (p.conv_layout == GEN_KDA_CONV_SD) {
            const unsigned i = copy % (N / 8) * 8;
            const int past = static_cast<int>(copy / (N / 8)) - 1 - (step_taps - p.conv_width);
            const uint4 x = reinterpret_cast<const uint4 *>(inputs)[copy];
            const unsigned words[4] = {x.x, x.y, x.z, x.w};
            if (past >= 0)
                st_global_v4_u32(to + past * static_cast<long long>(p.channels) + i, words);
        } else if (copy < N / 2) { // as many copies, each of two channels
            const unsigned rows = p.conv_width - 1;
#pragma unroll 1
            for (unsigned i = 2 * copy; i < 2 * copy + 2; i++) {
#pragma unroll 1
                for (unsigned row = 0; row < rows; row++)
                    to[i * rows + row] = row + 1 < rows ? inputs[i * rows + row + 1] : inputs[step_past * N + i];
            }
        }
    }

  private:
    // A channel's number among those of all parts.
    static __device__ __forceinline__ unsigned channel_of(const gen_kda_step_params &p, unsigned part, unsigned i)
    {
        return part * p.num_qk_heads * step_head_dim + i;
    }

    static __device__ __forceinline__ unsigned short *window(const gen_kda_step_params &p, int slot, unsigned part,
                                                             unsigned i)
    {
        const unsigned channel = channel_of(p, part, i);
        return static_cast<unsigned short *>(p.conv_state) + slot * p.conv_stride +
               (p.conv_layout == GEN_KDA_CONV_SD ? channel : channel * (p.conv_width - 1));
    }
};

// Of all parts.
template <int EXTENT> struct step_conv {
    using QK = conv_shared<step_head_dim>;
    using V = conv_shared<EXTENT>;
    QK qk[2];
    V v;
};

// A block's shared memory. q and k are not normalised. CONVS: 2 where inputs come while others are still there.
template <int EXTENT, int BLOCKS, int WARPS, int CONVS> struct alignas(16) step_shared {
    float q[step_head_dim], k[step_head_dim], decay[step_head_dim];
    float sums[4][4];                 // of a warp's channels: q . q, k . k, q . k
    float squares[2][BLOCKS * WARPS]; // of outputs, summed by each warp of the cluster; one half after the other
    float v[EXTENT], o[EXTENT];
    float factor[EXTENT]; // what norm's weight and z make of a normalised output
    step_conv<EXTENT> conv[CONVS];
    float beta;
    int slot;
    alignas(8) unsigned long long met[2]; // mbarriers: a half of `squares` is there
};

// What norms make of q and k, and of their product.
struct step_factors {
    float q, k, qk;

    template <class Shared> __device__ __forceinline__ step_factors(const gen_kda_step_params &p, const Shared &shared)
    {
        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 x = *reinterpret_cast<const float4 *>(shared.sums[i]);
            sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, 0.f);
        }
        q = p.scale * rsqrtf(sum.x + 1e-6f);
        k = rsqrtf(sum.y + 1e-6f);
        qk = q * k * sum.z;
    }
};

// A thread has a channel of q, the same one of k and of the decay, or a row of V: its channel of v and its output; in small
// blocks both. SCALAR_GATE: a head has one gate for all channels.
template <int EXTENT, int THREADS, bool SCALAR_GATE> struct step_inputs {
    static_assert(THREADS >= step_head_dim, "a thread a channel");
    static constexpr int GATES_FROM = THREADS >= 2 * step_head_dim ? step_head_dim : 0;

    float a_log, bias, norm_w;
    unsigned gate, beta;
    unsigned short z;

    static __device__ __forceinline__ bool has_qk() { return threadIdx.x < step_head_dim; }
    static __device__ __forceinline__ bool has_gate() { return gate_channel() < step_head_dim; }
    static __device__ __forceinline__ bool has_v() { return threadIdx.x >= THREADS - EXTENT; }
    static __device__ __forceinline__ bool has_beta() { return threadIdx.x == THREADS - 1; }
    static __device__ __forceinline__ unsigned v_row() { return threadIdx.x - (THREADS - EXTENT); }
    static __device__ __forceinline__ unsigned gate_channel() { return threadIdx.x - GATES_FROM; }
    static __device__ __forceinline__ unsigned gate_at(unsigned v_head, unsigned thread)
    {
        return SCALAR_GATE ? v_head : v_head * step_head_dim + thread - GATES_FROM;
    }

    // Weights: before the kernel in front has ended. `thread` is this one.
    template <class Conv>
    static __device__ __forceinline__ void copy_qk_weights(const gen_kda_step_params &p, Conv &conv, unsigned qk_start)
    {
        constexpr unsigned copies = Conv::QK::WEIGHT_COPIES;
#pragma unroll
        for (unsigned copy = threadIdx.x; copy < 2 * copies; copy += THREADS)
            conv.qk[copy / copies].copy_weights(p, copy / copies, qk_start, copy % copies);
    }
    template <class Conv>
    __device__ __forceinline__ void issue_weights(const gen_kda_step_params &p, Conv &conv, unsigned start,
                                                  unsigned thread)
    {
        constexpr unsigned copies = Conv::V::WEIGHT_COPIES;
        const unsigned v_head = start / step_head_dim;
#pragma unroll
        for (unsigned i = 0; i < (copies + THREADS - 1) / THREADS; i++) {
            const unsigned copy = i * THREADS + THREADS - 1 - thread; // the last threads have least of q and k
            if (copy < copies)
                conv.v.copy_weights(p, part_v, start, copy);
        }
        if (has_gate()) {
            bias = p.dt_bias ? ld_global(p.dt_bias + gate_at(v_head, thread)) : 0.f;
            a_log = p.a_log ? ld_global(p.a_log + v_head) : 0.f;
        }
        norm_w = has_v() && p.norm_w ? ld_global(p.norm_w + start % step_head_dim + v_row()) : 0.f;
    }

    // What comes with the row, and windows.
    template <class Conv>
    static __device__ __forceinline__ void copy_qk(const gen_kda_step_params &p, Conv &conv, unsigned row, int slot,
                                                   unsigned qk_start)
    {
        constexpr unsigned copies = Conv::QK::INPUT_COPIES;
        const unsigned part = threadIdx.x / copies;
        if (part < 2)
            conv.qk[part].copy_inputs(p, row, slot, part, qk_start, threadIdx.x % copies);
    }
    template <class Conv>
    static __device__ __forceinline__ void copy_v(const gen_kda_step_params &p, Conv &conv, unsigned row, int slot,
                                                  unsigned start, unsigned thread)
    {
        const unsigned copy = THREADS - 1 - thread;
        if (copy < Conv::V::INPUT_COPIES)
            conv.v.copy_inputs(p, row, slot, part_v, start, copy);
    }
    // The same threads.
    template <class Conv>
    static __device__ __forceinline__ void move_qk(const gen_kda_step_params &p, const Conv &conv, int slot,
                                                   unsigned qk_start, bool first, bool last)
    {
        constexpr unsigned copies = Conv::QK::INPUT_COPIES;
        const unsigned part = threadIdx.x / copies;
        if (part == 0 ? first : part == 1 && last)
            conv.qk[part].move_on(p, slot, part, qk_start, threadIdx.x % copies);
    }
    template <class Conv>
    static __device__ __forceinline__ void move_v(const gen_kda_step_params &p, const Conv &conv, int slot,
                                                  unsigned start)
    {
        const unsigned copy = THREADS - 1 - threadIdx.x;
        if (copy < Conv::V::INPUT_COPIES)
            conv.v.move_on(p, slot, part_v, start, copy);
    }

    // What does not depend on the slot.
    __device__ __forceinline__ void issue(const gen_kda_step_params &p, unsigned row, unsigned start, unsigned thread)
    {
        const unsigned v_head = start / step_head_dim;
        if (has_gate())
            gate = load_bits(p.gate, row * p.gate_stride + gate_at(v_head, thread), p.gate_dtype);
        z = has_v() && p.norm_w
                ? ld_global(static_cast<const unsigned short *>(p.z) + row * p.z_stride + start + v_row())
                : 0;
        if (has_beta())
            beta = load_bits(p.beta, row * p.beta_stride + v_head, p.beta_dtype);
    }

    template <class Conv, class Shared>
    static __device__ __forceinline__ void settle_qk(const gen_kda_step_params &p, const Conv &conv, Shared &shared)
    {
        if (!has_qk())
            return;
        const unsigned i = threadIdx.x;
        const float q = conv.qk[part_q].activated(p, i), k = conv.qk[part_k].activated(p, i);
        float sums[4] = {q * q, k * k, q * k, 0.f};
        shared.q[i] = q;
        shared.k[i] = k;
        reduce_rows<4, 32>(sums);
        if (i % 8 == 0)
            shared.sums[i / 32][i % 32 / 8] = sums[0];
    }

    template <class Conv, class Shared>
    __device__ __forceinline__ void settle_v(const gen_kda_step_params &p, const Conv &conv, Shared &shared) const
    {
        if (has_gate())
            shared.decay[gate_channel()] = decay_of(p, number(gate, p.gate_dtype), bias, a_log);
        if (has_v()) {
            const float x = number(z, p.dtype);
            shared.v[v_row()] = conv.v.activated(p, v_row());
            shared.factor[v_row()] = norm_w * sigmoid(x) * (p.z_form == GEN_KDA_Z_SILU ? x : 1.f);
        }
        if (has_beta())
            shared.beta = beta_of(p, number(beta, p.beta_dtype));
    }

    // The row's output: normalised, weighted, gated, rounded once. After all of the cluster's warps have met.
    template <class Shared>
    static __device__ __forceinline__ void store_output(const gen_kda_step_params &p, unsigned row, unsigned start,
                                                        const Shared &shared, unsigned half)
    {
        if (!has_v())
            return;
        float o = shared.o[v_row()];
        if (p.norm_w) {
            constexpr int count = sizeof shared.squares[0] / sizeof(float4);
            float sum = 0.f;
#pragma unroll
            for (int i = 0; i < count; i++) {
                const float4 x = reinterpret_cast<const float4 *>(shared.squares[half])[i];
                sum += (x.x + x.y) + (x.z + x.w);
            }
            o *= rsqrtf(fmaf(sum, 1.f / step_head_dim, p.eps)) * shared.factor[v_row()];
        }
        static_cast<unsigned short *>(p.out)[row * p.out_stride + start + v_row()] = rounded(o, p.dtype);
    }
};

// A padding row: outputs of all value heads of the query head.
template <int EXTENT, int BLOCKS>
__device__ __forceinline__ void zero_outputs(const gen_kda_step_params &p, const step_place<EXTENT, BLOCKS> &place)
{
    if (!p.zero_padding || threadIdx.x >= EXTENT)
        return;
    unsigned short *const to = static_cast<unsigned short *>(p.out) + place.row * p.out_stride + threadIdx.x;
#pragma unroll 1
    for (unsigned round = 0; round < p.group; round++)
        to[place.v_start(p, round)] = 0;
}
