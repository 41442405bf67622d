// A decode step's inputs: brought in by the whole block, convolved and activated, while the state is loaded. A block has all
// channels of q and k of a query head, and `extent` of the rows of a value head's state (of V), with their channels of v.
#pragma once

#include "kda_decode/common.cuh"
#include "kda_step/args.h"
#include "lib/ptx/cp_async.cuh"
#include "lib/reduce.cuh"

enum { step_head_dim = 128, step_taps = GEN_KDA_STEP_MAX_WIDTH, step_past = step_taps - 1 };
enum step_part { part_q, part_k, part_v };

// Rows of BYTES bytes to shared memory, one behind the other, by 16 bytes a thread from thread `first` on. Nothing waits for them.
template <int BYTES, int MOST_ROWS, int THREADS>
__device__ __forceinline__ void copy_rows(void *shared, const void *from, long long stride, int rows, unsigned first)
{
    constexpr int vectors = BYTES / 16; // of a row
    static_assert((THREADS & (THREADS - 1)) == 0, "so that the first thread follows the last");
    const unsigned to = shared_address(shared);
#pragma unroll
    for (int i = 0; i < (MOST_ROWS * vectors + THREADS - 1) / THREADS; i++) {
        const unsigned vector = i * THREADS + (threadIdx.x - first) % THREADS, row = vector / vectors;
        if (row < static_cast<unsigned>(rows))
            cp_async_16<false>(to + vector * 16,
                               static_cast<const char *>(from) + row * stride + vector % vectors * 16, 0);
    }
}

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

// What a block convolves of one part, N channels from `start` on among the part's, in shared memory: as it lies in global memory,
// so that what is under way takes no registers.
template <int N> struct alignas(16) conv_shared {
    float w[step_taps * N], bias[N]; // the width's taps alone
    unsigned short past[step_past * N], x[N];

    // Weights: before the kernel in front has ended.
    template <int THREADS>
    __device__ __forceinline__ void copy_weights(const gen_kda_step_params &p, step_part part, unsigned start,
                                                 unsigned first)
    {
        copy_rows<4 * N, step_taps, THREADS>(w, p.conv_w + part * p.conv_w_part + start, 4 * p.conv_w_tap,
                                             p.conv_width, first);
        if (p.conv_bias)
            copy_rows<4 * N, 1, THREADS>(bias, p.conv_bias + conv_channel(p, part, start), 0, 1, first + 64);
    }

    template <int THREADS>
    __device__ __forceinline__ void copy_x(const gen_kda_step_params &p, unsigned row, step_part part, unsigned start,
                                           unsigned first)
    {
        const unsigned short *const from = static_cast<const unsigned short *>(p.x) + row * p.x_stride;
        copy_rows<2 * N, 1, THREADS>(x, from + conv_channel(p, part, start), 0, 1, first);
    }

    template <int THREADS>
    __device__ __forceinline__ void copy_past(const gen_kda_step_params &p, int slot, step_part part, unsigned start,
                                              unsigned first)
    {
        const long long stride = p.conv_layout == GEN_KDA_CONV_SD ? p.channels : N;
        copy_rows<2 * N, step_past, THREADS>(past, window(p, slot, part, start), 2 * stride, p.conv_width - 1, first);
    }

    // The convolution of channel i, and SiLU. Taps that the width does not have come first.
    __device__ __forceinline__ float activated(const gen_kda_step_params &p, unsigned i) const
    {
        const int missing = step_taps - p.conv_width;
        float y = p.conv_bias ? bias[i] : 0.f;
#pragma unroll
        for (int tap = 0; tap < step_past; tap++)
            if (tap >= missing)
                y = fmaf(w[(tap - missing) * N + i], number(past[at(p, tap - missing, i)], p.dtype), y);
        y = fmaf(w[(step_past - missing) * N + i], number(x[i], p.dtype), y);
        return y * sigmoid(y);
    }

    // The window moves on, in the pool.
    __device__ __forceinline__ void move_on(const gen_kda_step_params &p, int slot, step_part part, unsigned start,
                                            unsigned i) const
    {
        const int rows = p.conv_width - 1;
        const unsigned next = p.conv_layout == GEN_KDA_CONV_SD ? p.channels : 1;
        unsigned short *const to = window(p, slot, part, start + i);
#pragma unroll
        for (int row = 0; row < step_past; row++)
            if (row < rows)
                to[row * next] = row + 1 < rows ? past[at(p, row + 1, i)] : x[i];
    }

  private:
    // Where a window's input is in `past`.
    static __device__ __forceinline__ unsigned at(const gen_kda_step_params &p, int row, unsigned i)
    {
        return p.conv_layout == GEN_KDA_CONV_SD ? row * N + i : i * (p.conv_width - 1) + row;
    }

    // A channel's number among those of all parts.
    static __device__ __forceinline__ unsigned conv_channel(const gen_kda_step_params &p, step_part part, unsigned i)
    {
        return part * p.num_qk_heads * step_head_dim + i;
    }

    static __device__ __forceinline__ unsigned short *window(const gen_kda_step_params &p, int slot, step_part part,
                                                             unsigned i)
    {
        const unsigned channel = conv_channel(p, part, i);
        return static_cast<unsigned short *>(p.conv_state) + slot * p.conv_stride +
               (p.conv_layout == GEN_KDA_CONV_SD ? channel : channel * (p.conv_width - 1));
    }
};

// A block's shared memory. q and k are not normalised.
template <int EXTENT, int BLOCKS, int WARPS> struct alignas(16) step_shared {
    float q[step_head_dim], k[step_head_dim], decay[step_head_dim];
    float sums[4][4]; // of a warp's channels: q . q, k . k, q . k
    float squares[2][BLOCKS * WARPS]; // of outputs, summed by each warp of the cluster; one half after the other
    float v[EXTENT], o[EXTENT];
    float factor[EXTENT]; // what norm's weight and z make of a normalised output
    conv_shared<step_head_dim> conv_q, conv_k;
    conv_shared<EXTENT> conv_v;
    float beta;
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
    static __device__ __forceinline__ unsigned gate_at(unsigned v_head)
    {
        return SCALAR_GATE ? v_head : v_head * step_head_dim + gate_channel();
    }

    // Weights: before the kernel in front has ended.
    template <class Shared>
    __device__ __forceinline__ void issue_weights(const gen_kda_step_params &p, Shared &shared, unsigned start)
    {
        const unsigned v_head = start / step_head_dim;
        shared.conv_v.template copy_weights<THREADS>(p, part_v, start, 64);
        if (has_gate()) {
            bias = p.dt_bias ? ld_global(p.dt_bias + gate_at(v_head)) : 0.f;
            a_log = p.a_log ? ld_global(p.a_log + v_head) : 0.f;
        }
        norm_w = has_v() && p.norm_w ? ld_global(p.norm_w + start % step_head_dim + v_row()) : 0.f;
    }

    // What does not depend on the slot.
    template <class Shared>
    __device__ __forceinline__ void issue(const gen_kda_step_params &p, Shared &shared, unsigned row, unsigned start)
    {
        const unsigned v_head = start / step_head_dim;
        shared.conv_v.template copy_x<THREADS>(p, row, part_v, start, 64);
        if (has_gate())
            gate = load_bits(p.gate, row * p.gate_stride + gate_at(v_head), p.gate_dtype);
        z = has_v() && p.norm_w
                ? ld_global(static_cast<const unsigned short *>(p.z) + row * p.z_stride + start + v_row())
                : 0;
        if (has_beta())
            beta = load_bits(p.beta, row * p.beta_stride + v_head, p.beta_dtype);
    }

    template <class Shared> static __device__ __forceinline__ void settle_qk(const gen_kda_step_params &p, Shared &shared)
    {
        if (!has_qk())
            return;
        const unsigned i = threadIdx.x;
        const float q = shared.conv_q.activated(p, i), k = shared.conv_k.activated(p, i);
        float sums[4] = {q * q, k * k, q * k, 0.f};
        shared.q[i] = q;
        shared.k[i] = k;
        reduce_rows<4, 32>(sums);
        if (i % 8 == 0)
            shared.sums[i / 32][i % 32 / 8] = sums[0];
    }

    template <class Shared> __device__ __forceinline__ void settle_v(const gen_kda_step_params &p, Shared &shared) const
    {
        if (has_gate())
            shared.decay[gate_channel()] = decay_of(p, number(gate, p.gate_dtype), bias, a_log);
        if (has_v()) {
            const float x = number(z, p.dtype);
            shared.v[v_row()] = shared.conv_v.activated(p, v_row());
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
