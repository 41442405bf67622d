// From the gradient of the cumulated gates to that of the raw ones: a thread has two channels of eight rows
// (kda_bwd_grad.cu.in).
#pragma once

#include "kda/backward.cuh"
#include "kda_bwd_grad/layout.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace kda_grad {

// gate_back(), with what all elements of a head have in common made once.
template <int form> struct gate_slope {
    float lower_bound, rate, exponent, factor;

    __device__ __forceinline__ gate_slope(float bound, float a)
        : lower_bound(bound), rate(a), exponent(log2_e * a), factor(bound * a)
    {
    }
    __device__ __forceinline__ float back(float x, float &dy) const
    {
        if constexpr (form != GEN_KDA_GATE_LOWER_BOUND)
            return gate_back(form, lower_bound, rate, x, dy);
        const float e = exp2_fast(-fabsf(exponent * x)), s = rcp_fast(1.f + e);
        dy *= factor * (e * s) * s;
        return dy * x;
    }
};

// `fp32`: of raw gates.
template <class T, int head_dim, bool fp32> struct gate_rows {
    using L = layout<head_dim>;
    static constexpr int own = 8, pairs = head_dim / 2, parts = L::threads / pairs;
    static_assert(own * parts == rows, "all rows");
    unsigned raw[own][fp32 ? 2 : 1];
    float2 bias;
    float rate;
    int thread;

    __device__ __forceinline__ int part() const { return thread / pairs; }
    __device__ __forceinline__ int column() const { return thread % pairs * 2; }

    __device__ __forceinline__ void load(const gen_kda_bwd_grad_params &p, const block_work &b)
    {
        const long long at =
            static_cast<long long>(b.chunk.first + own * part()) * p.g_stride + b.head * head_dim + column();
        const char *const from = static_cast<const char *>(p.g) + at * (fp32 ? 4 : 2);
        const bool here = p.gate != GEN_KDA_GATE_GIVEN;
        rate = 1.f, bias = make_float2(0.f, 0.f);
        if (here && p.A_log)
            rate = exp2_fast(log2_e * ld_global(p.A_log + b.head));
        if (here && p.dt_bias) {
            const uint2 both = ld_global_v2_u32(p.dt_bias + b.head * head_dim + column());
            bias = make_float2(__uint_as_float(both.x), __uint_as_float(both.y));
        }
#pragma unroll
        for (int i = 0; i < own; i++) {
            const bool valid = here && own * part() + i < b.chunk.rows;
            const char *const x = from + i * p.g_stride * (fp32 ? 4 : 2);
            if constexpr (fp32) {
                const uint2 both = valid ? ld_global_v2_u32(x) : make_uint2(0, 0);
                raw[i][0] = both.x, raw[i][1] = both.y;
            } else {
                raw[i][0] = valid ? static_cast<unsigned>(ld_global(reinterpret_cast<const int *>(x))) : 0;
            }
        }
    }

    __device__ __forceinline__ float2 gate(int i) const
    {
        if constexpr (fp32)
            return make_float2(__uint_as_float(raw[i][0]), __uint_as_float(raw[i][1]));
        else
            return to_float2<T>(raw[i][0]);
    }

    __device__ __forceinline__ unsigned vector_at(const block_work &b, int vectors, int number) const
    {
        return b.base + vectors + number * L::vector + column() * 4;
    }

    // What a chunk's last row has besides, in all of its sums: of the state behind it and of its keys.
    __device__ __forceinline__ float2 last_row(const block_work &b) const
    {
        float2 states = make_float2(0.f, 0.f), keys = make_float2(0.f, 0.f);
        const float2 last = ld_shared_v2_f32(vector_at(b, L::last_gate, 0));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 x = ld_shared_v2_f32(vector_at(b, L::state_sums, i)),
                         y = ld_shared_v2_f32(vector_at(b, L::key_sums, i));
            states.x += x.x, states.y += x.y;
            keys.x += y.x, keys.y += y.y;
        }
        return make_float2(fmaf(last.x, states.x, keys.x), fmaf(last.y, states.y, keys.y));
    }

    // Sums of the part's rows and its later ones; those of all of its rows are left for the earlier parts.
    __device__ __forceinline__ void begin(const block_work &b, float2 (&d)[own]) const
    {
        float2 sum = make_float2(0.f, 0.f);
#pragma unroll
        for (int i = own - 1; i >= 0; i--) {
            const float2 x = ld_shared_v2_f32(floats_at<head_dim>(b.base + L::gates, own * part() + i, column() / 8) +
                                              column() % 8 * 4);
            d[i] = sum = make_float2(sum.x + x.x, sum.y + x.y);
        }
        if (part())
            st_shared_v2_f32(vector_at(b, L::anchors, part() - 1), sum.x, sum.y);
    }

    // With all later rows', behind a barrier.
    __device__ __forceinline__ void finish(const block_work &b, float2 more, float2 (&d)[own]) const
    {
#pragma unroll
        for (int i = parts - 1; i; i--)
            if (i > part()) {
                const float2 x = ld_shared_v2_f32(vector_at(b, L::anchors, i - 1));
                more.x += x.x, more.y += x.y;
            }
#pragma unroll
        for (int i = 0; i < own; i++)
            d[i].x += more.x, d[i].y += more.y;
    }

    // Through an activation, of rows that there are; d's sum over the rows, and what A_log takes of them, are added.
    template <int form>
    __device__ __forceinline__ void activate(const gen_kda_bwd_grad_params &p, float2 (&d)[own], float2 &sum,
                                             float &log_sum) const
    {
        const gate_slope<form> slope(p.lower_bound, rate);
#pragma unroll
        for (int i = 0; i < own; i++) {
            const float2 x = gate(i);
            log_sum += slope.back(x.x + bias.x, d[i].x) + slope.back(x.y + bias.y, d[i].y);
            sum.x += d[i].x;
            sum.y += d[i].y;
        }
    }

    // Stored; sums over the part's rows are left in shared memory.
    __device__ __forceinline__ void store(const gen_kda_bwd_grad_params &p, const block_work &b, float2 (&d)[own]) const
    {
        const int first = own * part(), valid = b.chunk.rows - first;
        constexpr int size = fp32 ? 4 : 2;
        const unsigned stride = p.shape.num_v_heads * (head_dim * size); // bytes
        char *const to =
            static_cast<char *>(p.d_g) +
            (static_cast<long long>(b.chunk.first + first) * p.shape.num_v_heads + b.head) * (head_dim * size) +
            column() * size;
        float2 sum = make_float2(0.f, 0.f);
        float log_sum = 0.f;
        if (b.chunk.rows < rows) // what is beyond adds nothing
#pragma unroll
            for (int i = 0; i < own; i++)
                if (i >= valid)
                    d[i] = make_float2(0.f, 0.f);
        if (p.gate == GEN_KDA_GATE_LOWER_BOUND)
            activate<GEN_KDA_GATE_LOWER_BOUND>(p, d, sum, log_sum);
        else if (p.gate == GEN_KDA_GATE_SOFTPLUS)
            activate<GEN_KDA_GATE_SOFTPLUS>(p, d, sum, log_sum);
#pragma unroll
        for (int i = 0; i < own; i++)
            if (i < valid) {
                char *const row = to + i * static_cast<unsigned long long>(stride);
                if constexpr (fp32)
                    st_global_v2_f32(reinterpret_cast<float *>(row), d[i].x, d[i].y);
                else
                    st_global_u32(row, pack2<T>(d[i].x, d[i].y));
            }
        st_shared_v2_f32(vector_at(b, L::gate_sums, part()), sum.x, sum.y);
        log_sum = sum_warp(log_sum);
        if (thread % 32 == 0)
            st_shared_f32(b.base + L::log_sums + thread / 32 * 4, log_sum);
    }
};

// Where sums over a chunk's rows go.
template <int head_dim>
__device__ __forceinline__ float *partials_of(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    return p.partials + (static_cast<long long>(b.slot) * p.shape.num_v_heads + b.head) * (head_dim + 4) + threadIdx.x;
}

template <int head_dim>
__device__ __forceinline__ void store_partials(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    using L = layout<head_dim>;
    const int i = threadIdx.x;
    if (!p.partials || i >= head_dim + 4)
        return;
    float sum = 0.f;
    if (i < head_dim)
#pragma unroll
        for (int part = 0; part < 8; part++)
            sum += ld_shared_f32(b.base + L::gate_sums + part * L::vector + i * 4);
    else if (i == head_dim)
#pragma unroll
        for (int w = 0; w < L::warps; w++)
            sum += ld_shared_f32(b.base + L::log_sums + w * 4);
    *partials_of<head_dim>(p, b) = sum;
}

} // namespace kda_grad
