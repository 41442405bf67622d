// What kda_bwd_grad does row by row, 32 lanes to a row: the operands of the products, and gradients of raw q and k
// (kda_bwd_grad.cu.in).
#pragma once

#include "kda/backward.cuh"
#include "kda_bwd_grad/layout.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace kda_grad {

constexpr float half_bound = 54.1010640f; // 15 / 2 gates of -5 in base 2

// A warp's rows of q, k and the cumulated gates, on their way to registers.
template <class T, int head_dim> struct row_inputs {
    using L = layout<head_dim>;
    lane_row<L::channels> q[L::own], k[L::own];
    float gates[L::own][L::channels];
    float beta; // of row i in lane i

    __device__ __forceinline__ void load(const gen_kda_bwd_grad_params &p, const block_work &b)
    {
        const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * L::own, valid = b.chunk.rows;
        const long long token = b.chunk.first, heads = p.shape.num_v_heads;
        const int qk = b.qk_head * head_dim + lane * L::channels;
        const float *const from = p.gk + (token * heads + b.head) * head_dim + lane * L::channels;
#pragma unroll
        for (int i = 0; i < L::own; i++) {
            q[i] = k[i] = {};
            load_row_floats(from + min(first + i, valid - 1) * heads * head_dim, gates[i]);
            if (first + i < valid) {
                q[i] = load_row<L::channels>(static_cast<const unsigned short *>(p.q.x) +
                                             (token + first + i) * p.q.stride + qk);
                k[i] = load_row<L::channels>(static_cast<const unsigned short *>(p.k.x) +
                                             (token + first + i) * p.k.stride + qk);
            }
        }
        beta = 0.f;
        if (lane < L::own && first + lane < valid)
            beta = load_beta(p, b, first + lane);
    }

    // Raw.
    static __device__ __forceinline__ float load_beta(const gen_kda_bwd_grad_params &p, const block_work &b, int row)
    {
        const long long at = static_cast<long long>(b.chunk.first + row) * p.beta_stride + b.head;
        return p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + at)
                           : to_float<T>(ld_global(static_cast<const unsigned short *>(p.beta) + at));
    }
};

// The warp's rows of q and k as the forward pass has them, and what they were divided by (of row i in lane i).
template <int own, int channels> struct unit_rows {
    lane_row<channels> q[own], k[own];
    float q_factor, k_factor;
};

// x becomes what the forward pass makes of it, rounded as there; the factor is returned.
template <class T, int channels> __device__ __forceinline__ float normalize(lane_row<channels> &row)
{
    float x[channels], sum = 0.f;
    unpack<T>(row, x);
#pragma unroll
    for (int c = 0; c < channels; c++)
        sum = fmaf(x[c], x[c], sum);
    const float factor = rsqrt_fast(sum_warp(sum) + 1e-6f);
#pragma unroll
    for (int c = 0; c < channels; c++)
        x[c] *= factor;
    row = pack<T>(x);
    return factor;
}

template <class T, int head_dim>
__device__ __forceinline__ void normalize_rows(const row_inputs<T, head_dim> &in, bool norm,
                                               unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &y)
{
    const int lane = threadIdx.x % 32;
    y.q_factor = y.k_factor = 1.f;
#pragma unroll
    for (int i = 0; i < layout<head_dim>::own; i++) {
        y.q[i] = in.q[i], y.k[i] = in.k[i];
        if (norm) {
            const float q = normalize<T>(y.q[i]), k = normalize<T>(y.k[i]);
            y.q_factor = lane == i ? q : y.q_factor;
            y.k_factor = lane == i ? k : y.k_factor;
        }
    }
}

// Vectors that a chunk's 16 rows share: their anchor, and what takes a sum there from the anchor before.
template <int head_dim, int channels>
__device__ __forceinline__ void store_vectors(const block_work &b, const float *gk, long long stride,
                                              const float (&anchor)[channels])
{
    using L = layout<head_dim>;
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * L::own, block = first / 16;
    const unsigned to = b.base + L::anchors + lane * channels * 4;
    float x[channels];
    if (first % 16)
        return;
    load_row_floats(gk + (block ? min(16 * block - 16, b.chunk.rows - 1) : b.chunk.rows - 1) * stride, x);
#pragma unroll
    for (int c = 0; c < channels; c++) {
        st_shared_f32(to + block * L::vector + c * 4, anchor[c]);
        if (block)
            st_shared_f32(to + (L::moves - L::anchors) + (block - 1) * L::vector + c * 4,
                          exp2_fast(anchor[c] - (x[c] - half_bound)));
        else
            st_shared_f32(to + (L::last_gate - L::anchors) + c * 4, x[c]);
    }
}

// q+, b+ and k-, gates, betas and the vectors of the chunk.
template <class T, int head_dim>
__device__ __forceinline__ void make_operands(const gen_kda_bwd_grad_params &p, const block_work &b,
                                              const row_inputs<T, head_dim> &in,
                                              const unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &unit)
{
    using L = layout<head_dim>;
    constexpr int channels = L::channels;
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * L::own;
    const unsigned offset = lane_offset<channels>(first / 8 * 8);
    const long long stride = static_cast<long long>(p.shape.num_v_heads) * head_dim;
    const float *const gk =
        p.gk + (static_cast<long long>(b.chunk.first) * p.shape.num_v_heads + b.head) * head_dim + lane * channels;
    const float beta = first + lane < b.chunk.rows ? beta_of(p.beta_form, in.beta) : 0.f;
    float anchor[channels];
    load_row_floats(gk + min(first / 16 * 16, b.chunk.rows - 1) * stride, anchor);
#pragma unroll
    for (int c = 0; c < channels; c++)
        anchor[c] -= half_bound;
    store_vectors<head_dim>(b, gk, stride, anchor);
    if (lane < L::own)
        st_shared_f32(b.base + L::betas + (first + lane) * 4, beta);
#pragma unroll
    for (int i = 0; i < L::own; i++) {
        const float beta_i = __shfl_sync(0xffffffffu, beta, i);
        float x[channels], y[channels], z[channels];
        unpack<T>(unit.q[i], x);
        unpack<T>(unit.k[i], y);
#pragma unroll
        for (int c = 0; c < channels; c++) {
            const float e = exp2_fast(in.gates[i][c] - anchor[c]);
            x[c] *= e;
            z[c] = y[c] * exp2_fast(anchor[c] - in.gates[i][c]);
            y[c] *= beta_i * e;
        }
        store_tile_row(b.base + L::q_rows, offset, first % 8 + i, pack<bf16>(x));
        store_tile_row(b.base + L::b_rows, offset, first % 8 + i, pack<bf16>(y));
        store_tile_row(b.base + L::k_columns, offset, first % 8 + i, pack<bf16>(z));
        const unsigned to =
            floats_at<head_dim>(b.base + L::gates, first + i, lane * channels / 8) + lane * channels % 8 * 4;
        if constexpr (channels == 4)
            st_shared_v4_f32(to, make_float4(in.gates[i][0], in.gates[i][1], in.gates[i][2], in.gates[i][3]));
        else
            st_shared_v2_f32(to, in.gates[i][0], in.gates[i][1]);
    }
}

// The lane's channels of a row of fp32 in shared memory.
template <int head_dim>
__device__ __forceinline__ void load_floats(unsigned base, int row, float (&x)[layout<head_dim>::channels])
{
    constexpr int channels = layout<head_dim>::channels;
    const int lane = threadIdx.x % 32;
    const unsigned at = floats_at<head_dim>(base, row, lane * channels / 8) + lane * channels % 8 * 4;
    if constexpr (channels == 4) {
        const float4 all = ld_shared_v4_f32(at);
        x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
    } else {
        const float2 both = ld_shared_v2_f32(at);
        x[0] = both.x, x[1] = both.y;
    }
}

// A row of q's or k's gradient: through the norm, whose result is y, and stored; or as it is, where value heads' gradients
// are still to be added.
template <class T, int head_dim>
__device__ __forceinline__ void store_gradient(const gen_kda_bwd_grad_params &p, const gen_kda_bwd_grad_rows &r,
                                               const block_work &b, int row, const float (&y)[layout<head_dim>::channels],
                                               float factor, float (&dy)[layout<head_dim>::channels])
{
    constexpr int channels = layout<head_dim>::channels;
    const int lane = threadIdx.x % 32;
    const long long to =
        (static_cast<long long>(b.chunk.first + row) * p.shape.num_v_heads + b.head) * head_dim + lane * channels;
    if (!r.d_x) {
        if constexpr (channels == 4)
            st_global_v4_f32<false>(r.d_heads + to, make_float4(dy[0], dy[1], dy[2], dy[3]));
        else
            st_global_v2_f32(r.d_heads + to, dy[0], dy[1]);
        return;
    }
    if (p.qk_l2norm) {
        float along = 0.f;
#pragma unroll
        for (int c = 0; c < channels; c++)
            along = fmaf(y[c], dy[c], along);
        along = sum_warp(along);
#pragma unroll
        for (int c = 0; c < channels; c++)
            dy[c] = factor * fmaf(-along, y[c], dy[c]);
    }
    store_row(static_cast<unsigned short *>(r.d_x) + to, pack<T>(dy));
}

// What P's diagonal adds, and both rows of gradients.
template <class T, int head_dim>
__device__ __forceinline__ void store_rows(const gen_kda_bwd_grad_params &p, const block_work &b,
                                           const unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &unit)
{
    using L = layout<head_dim>;
    const int first = threadIdx.x / 32 * L::own;
#pragma unroll
    for (int i = 0; i < L::own; i++) {
        const int row = first + i;
        if (row >= b.chunk.rows) // all lanes
            break;
        const float on_diagonal = ld_shared_f32(b.base + L::diagonal + row * 4);
        float q[L::channels], k[L::channels], d_q[L::channels], d_k[L::channels];
        unpack<T>(unit.q[i], q);
        unpack<T>(unit.k[i], k);
        load_floats<head_dim>(b.base + L::d_q, row, d_q);
        load_floats<head_dim>(b.base + L::d_k, row, d_k);
#pragma unroll
        for (int c = 0; c < L::channels; c++) {
            d_q[c] = fmaf(on_diagonal, k[c], d_q[c]);
            d_k[c] = fmaf(on_diagonal, q[c], d_k[c]);
        }
        store_gradient<T, head_dim>(p, p.q, b, row, q, __shfl_sync(0xffffffffu, unit.q_factor, i), d_q);
        store_gradient<T, head_dim>(p, p.k, b, row, k, __shfl_sync(0xffffffffu, unit.k_factor, i), d_k);
    }
}

// Betas' gradients, of sums that the groups of columns have left.
template <class T, int head_dim>
__device__ __forceinline__ void store_betas(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    using L = layout<head_dim>;
    const int row = threadIdx.x;
    if (row >= b.chunk.rows)
        return;
    float d = 0.f;
#pragma unroll
    for (int i = 0; i < L::groups; i++)
        d += ld_shared_f32(b.base + L::beta_sums + (i * rows + row) * 4);
    d = beta_back(p.beta_form, row_inputs<T, head_dim>::load_beta(p, b, row), d);
    const long long to = static_cast<long long>(b.chunk.first + row) * p.shape.num_v_heads + b.head;
    if (p.beta_fp32)
        static_cast<float *>(p.d_beta)[to] = d;
    else
        static_cast<unsigned short *>(p.d_beta)[to] = from_float<T>(d);
}

} // namespace kda_grad
