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

// A warp's rows of the cumulated gates, on their way to registers. Rows beyond the chunk's are its last one.
template <class T, int head_dim> struct row_inputs {
    using L = layout<head_dim>;
    using row = lane_row<L::channels>;
    float gates[L::own][L::channels], anchor[L::channels];
    float before[L::channels],
        behind[L::channels]; // of store_vectors(): the anchor's before, and the chunk's last row's
    float raw_beta, beta;    // of row i in lane i, 0 beyond the chunk's

    // And rows of q and k, but where they are there.
    __device__ __forceinline__ void load(const gen_kda_bwd_grad_params &p, const block_work &b, row (&q)[L::own],
                                         row (&k)[L::own], bool there)
    {
        const int thread = thread_again(), lane = thread % 32, first = thread / 32 * L::own, last = b.chunk.rows - 1;
        const long long token = b.chunk.first, stride = static_cast<long long>(p.shape.num_v_heads) * head_dim;
        const int qk_head = quotient(b.head, p.shape.group_mul, p.shape.group_shift),
                  qk = qk_head * head_dim + lane * L::channels;
        const float *gk = p.gk + token * stride + b.head * head_dim + lane * L::channels;
        const unsigned short *q_rows = static_cast<const unsigned short *>(p.q.x) + token * p.q.stride + qk,
                             *k_rows = static_cast<const unsigned short *>(p.k.x) + token * p.k.stride + qk;
        load_row_floats(gk + min(first / 16 * 16, last) * stride, anchor);
#pragma unroll
        for (int c = 0; c < L::channels; c++)
            before[c] = behind[c] = 0.f;
        if (first % 16 == 0) {
            load_row_floats(gk + max(min(first - 16, last), 0) * stride, before);
            load_row_floats(gk + last * stride, behind);
        }
        const int begin = min(first, last);
        gk += begin * stride, q_rows += begin * p.q.stride, k_rows += begin * p.k.stride;
#pragma unroll
        for (int i = 0; i < L::own; i++) {
            load_row_floats(gk, gates[i]);
            if (!there) {
                q[i] = load_row<L::channels>(q_rows);
                k[i] = load_row<L::channels>(k_rows);
            }
            if (first + i < last)
                gk += stride, q_rows += p.q.stride, k_rows += p.k.stride;
        }
        raw_beta = beta = 0.f;
        if (lane < L::own && first + lane <= last) {
            raw_beta = load_beta(p, b, first + lane);
            beta = beta_of(p.beta_form, raw_beta);
        }
    }

    // Raw.
    static __device__ __forceinline__ float load_beta(const gen_kda_bwd_grad_params &p, const block_work &b, int row)
    {
        const long long at = static_cast<long long>(b.chunk.first + row) * p.beta_stride + b.head;
        return p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + at)
                           : to_float<T>(ld_global(static_cast<const unsigned short *>(p.beta) + at));
    }
};

// The warp's rows of q and k as the forward pass has them, and what they were multiplied by: of row i in lanes from
// i * 16 / own on, of k's 16 lanes later.
template <int own, int channels> struct unit_rows {
    lane_row<channels> q[own], k[own];
    float factor;
};

// What the forward pass makes of raw rows, which may be y's own, rounded as there; zeros beyond the chunk's.
template <class T, int head_dim, int own, int channels>
__device__ __forceinline__ void normalize_rows(const lane_row<channels> (&q)[own], const lane_row<channels> (&k)[own],
                                               bool norm, int valid, unit_rows<own, channels> &y)
{
    const int first = thread_again() / 32 * own;
    float sum[2 * own];
#pragma unroll
    for (int i = 0; i < 2 * own; i++) {
        float x[channels];
        unpack<T>(i < own ? q[i] : k[i - own], x);
        sum[i] = 0.f;
#pragma unroll
        for (int c = 0; c < channels; c++)
            sum[i] = fmaf(x[c], x[c], sum[i]);
    }
    reduce_rows<2 * own, 32>(sum); // of number i in lanes from i * 32 / (2 * own) on
    y.factor = norm ? rsqrt_fast(sum[0] + 1e-6f) : 1.f;
#pragma unroll
    for (int i = 0; i < 2 * own; i++) {
        const float factor = __shfl_sync(0xffffffffu, y.factor, i * (16 / own));
        float x[channels];
        unpack<T>(i < own ? q[i] : k[i - own], x);
#pragma unroll
        for (int c = 0; c < channels; c++)
            x[c] *= first + i % own < valid ? factor : 0.f;
        (i < own ? y.q[i] : y.k[i - own]) = pack<T>(x);
    }
}

template <int channels> __device__ __forceinline__ void store_lane(unsigned to, const lane_row<channels> &x)
{
    if constexpr (channels == 4)
        st_shared_v2_u32(to, x.word[0], x.word[1]);
    else
        st_shared_u32(to, x.word[0]);
}

template <int channels> __device__ __forceinline__ void store_vector(unsigned to, const float (&x)[channels])
{
    if constexpr (channels == 4)
        st_shared_v4_f32(to, make_float4(x[0], x[1], x[2], x[3]));
    else
        st_shared_v2_f32(to, x[0], x[1]);
}

// Vectors that a chunk's 16 rows share: their anchor, and what takes a sum there from the anchor before and from the last row.
template <class T, int head_dim>
__device__ __forceinline__ void store_vectors(const block_work &b, const row_inputs<T, head_dim> &in,
                                              const float (&anchor)[layout<head_dim>::channels])
{
    using L = layout<head_dim>;
    constexpr int channels = L::channels;
    const int thread = thread_again(), lane = thread % 32, first = thread / 32 * L::own, block = first / 16;
    const unsigned to = b.base + lane * channels * 4;
    float x[channels], y[channels], z[channels];
    if (first % 16)
        return;
#pragma unroll
    for (int c = 0; c < channels; c++) {
        x[c] = exp2_fast(in.behind[c] - anchor[c]);
        y[c] = exp2_fast(block ? anchor[c] - (in.before[c] - half_bound) : in.behind[c]);
        z[c] = exp2_fast(anchor[c]);
    }
    store_vector(to + L::anchors + block * L::vector, anchor);
    store_vector(to + (block == 3 ? L::last_move : L::key_sums + block * L::vector), x);
    store_vector(to + (block ? L::moves + (block - 1) * L::vector : L::last_gate), y);
    if (block == 0)
        store_vector(to + L::first_move, z);
}

// q+, b+ and k-, gates, betas and the vectors of the chunk.
template <class T, int head_dim>
__device__ __forceinline__ void make_operands(const block_work &b, const row_inputs<T, head_dim> &in,
                                              const unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &unit)
{
    using L = layout<head_dim>;
    constexpr int channels = L::channels;
    const int thread = thread_again(), lane = thread % 32, first = thread / 32 * L::own;
    const unsigned to = b.base + ((lane_offset<channels>(first / 8 * 8) + first % 8 * 128) ^ first % 8 * 16),
                   gates_to =
                       floats_at<head_dim>(b.base + L::gates, first, lane * channels / 8) + lane * channels % 8 * 4;
    float anchor[channels];
#pragma unroll
    for (int c = 0; c < channels; c++)
        anchor[c] = in.anchor[c] - half_bound;
    store_vectors<T, head_dim>(b, in, anchor);
    if (lane < L::own) {
        st_shared_f32(b.base + L::betas + (first + lane) * 4, in.beta);
        st_shared_f32(b.base + L::raw_betas + (first + lane) * 4, in.raw_beta);
    }
#pragma unroll
    for (int i = 0; i < L::own; i++) {
        const float beta = __shfl_sync(0xffffffffu, in.beta, i);
        float x[channels], y[channels], z[channels];
        unpack<T>(unit.q[i], x);
        unpack<T>(unit.k[i], y);
#pragma unroll
        for (int c = 0; c < channels; c++) {
            const float away = in.gates[i][c] - anchor[c], e = exp2_fast(away);
            x[c] *= e;
            z[c] = y[c] * exp2_fast(-away);
            y[c] *= beta * e;
        }
        store_lane<channels>((to ^ i * 16) + i * 128 + L::q_rows, pack<bf16>(x));
        store_lane<channels>((to ^ i * 16) + i * 128 + L::b_rows, pack<bf16>(y));
        store_lane<channels>((to ^ i * 16) + i * 128 + L::k_columns, pack<bf16>(z));
        store_vector((gates_to ^ i % 4 * 32) + i * L::vector, in.gates[i]);
    }
}

template <int channels> __device__ __forceinline__ void load_lane(unsigned at, float (&x)[channels])
{
    if constexpr (channels == 4) {
        const float4 all = ld_shared_v4_f32(at);
        x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
    } else {
        const float2 both = ld_shared_v2_f32(at);
        x[0] = both.x, x[1] = both.y;
    }
}

// Rows of q's and k's gradients, and what P's diagonal adds: it times the other one's row.
template <class T, int head_dim>
__device__ __forceinline__ void load_gradients(const block_work &b,
                                               const unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &unit,
                                               float (&q)[layout<head_dim>::own][layout<head_dim>::channels],
                                               float (&k)[layout<head_dim>::own][layout<head_dim>::channels])
{
    using L = layout<head_dim>;
    constexpr int channels = L::channels;
    const int thread = thread_again(), lane = thread % 32, first = thread / 32 * L::own;
    const unsigned from = floats_at<head_dim>(b.base, first, lane * channels / 8) + lane * channels % 8 * 4;
#pragma unroll
    for (int i = 0; i < L::own; i++) {
        float x[channels], y[channels];
        const float on_diagonal = ld_shared_f32(b.base + L::diagonal + first * 4 + i * 4);
        load_lane<channels>((from ^ i % 4 * 32) + L::d_q + i * L::vector, q[i]);
        load_lane<channels>((from ^ i % 4 * 32) + L::d_k + i * L::vector, k[i]);
        unpack<T>(unit.q[i], x);
        unpack<T>(unit.k[i], y);
#pragma unroll
        for (int c = 0; c < channels; c++) {
            q[i][c] = fmaf(on_diagonal, y[c], q[i][c]);
            k[i][c] = fmaf(on_diagonal, x[c], k[i][c]);
        }
    }
}

// Through the norm.
template <class T, int own, int channels>
__device__ __forceinline__ void through_norm(const unit_rows<own, channels> &unit, float (&q)[own][channels],
                                             float (&k)[own][channels])
{
    float along[2 * own];
#pragma unroll
    for (int i = 0; i < 2 * own; i++) {
        float x[channels];
        unpack<T>(i < own ? unit.q[i] : unit.k[i - own], x);
        along[i] = 0.f;
#pragma unroll
        for (int c = 0; c < channels; c++)
            along[i] = fmaf(x[c], i < own ? q[i][c] : k[i - own][c], along[i]);
    }
    reduce_rows<2 * own, 32>(along); // where unit.factor has the row's factor, too
    const float mine = unit.factor * along[0];
#pragma unroll
    for (int i = 0; i < 2 * own; i++) {
        const float factor = __shfl_sync(0xffffffffu, unit.factor, i * (16 / own)),
                    less = __shfl_sync(0xffffffffu, mine, i * (16 / own));
        float x[channels];
        unpack<T>(i < own ? unit.q[i] : unit.k[i - own], x);
#pragma unroll
        for (int c = 0; c < channels; c++) {
            float &d = i < own ? q[i][c] : k[i - own][c];
            d = fmaf(-less, x[c], factor * d);
        }
    }
}

template <class T, int head_dim>
__device__ __forceinline__ void store_gradients(const gen_kda_bwd_grad_params &p, const gen_kda_bwd_grad_rows &r,
                                                const block_work &b,
                                                const float (&d)[layout<head_dim>::own][layout<head_dim>::channels])
{
    using L = layout<head_dim>;
    constexpr int channels = L::channels;
    const int thread = thread_again(), first = thread / 32 * L::own, valid = b.chunk.rows - first;
    // Rows of query heads, of which each has one value head or a group that is summed; or of value heads.
    const bool sums = r.d_x;
    const int heads = sums ? p.shape.num_qk_heads : p.shape.num_v_heads,
              head = sums ? quotient(b.head, p.shape.group_mul, p.shape.group_shift) : b.head;
    const long long at =
        (static_cast<long long>(b.chunk.first + first) * heads + head) * head_dim + thread % 32 * channels;
    const unsigned long long stride = static_cast<unsigned>(heads) * static_cast<unsigned>(head_dim * 2);
    if (sums) {
        char *const to = static_cast<char *>(r.d_x) + at * 2;
#pragma unroll
        for (int i = 0; i < L::own; i++)
            if (i < valid)
                store_row(to + i * stride, pack<T>(d[i]));
        return;
    }
#pragma unroll
    for (int i = 0; i < L::own; i++)
        if (i < valid) {
            float *const to = reinterpret_cast<float *>(reinterpret_cast<char *>(r.d_heads + at) + i * 2 * stride);
            if constexpr (channels == 4)
                st_global_v4_f32<false>(to, make_float4(d[i][0], d[i][1], d[i][2], d[i][3]));
            else
                st_global_v2_f32(to, d[i][0], d[i][1]);
        }
}

// What a group's heads have made of rows of q's and k's gradients, which passes from head to head through memory that the block
// has to itself: each thread reads what it has written.
template <int head_dim> struct group_sums {
    using L = layout<head_dim>;
    static constexpr int step = L::threads * L::channels; // from row to row

    static __device__ __forceinline__ float *place(const gen_kda_bwd_grad_params &p)
    {
        return p.sums + static_cast<long long>(blockIdx.x) * (2 * L::own * step) + thread_again() * L::channels;
    }
    static __device__ __forceinline__ void add(const float *from, float (&x)[L::own][L::channels])
    {
        float more[L::own][L::channels];
#pragma unroll
        for (int i = 0; i < L::own; i++)
            load_row_floats(from + i * step, more[i]);
#pragma unroll
        for (int i = 0; i < L::own; i++)
#pragma unroll
            for (int c = 0; c < L::channels; c++)
                x[i][c] += more[i][c];
    }
    static __device__ __forceinline__ void store(float *to, const float (&x)[L::own][L::channels])
    {
#pragma unroll
        for (int i = 0; i < L::own; i++)
            if constexpr (L::channels == 4)
                st_global_v4_f32<false>(to + i * step, make_float4(x[i][0], x[i][1], x[i][2], x[i][3]));
            else
                st_global_v2_f32(to + i * step, x[i][0], x[i][1]);
    }
    // With those of the group's earlier heads. Whether there is a later one, to which they go.
    static __device__ __forceinline__ bool pass(const gen_kda_bwd_grad_params &p, const block_work &b,
                                                float (&q)[L::own][L::channels], float (&k)[L::own][L::channels])
    {
        float *const at = place(p);
        if (!first_of_unit(p, b)) {
            add(at, q);
            add(at + L::own * step, k);
        }
        if (last_of_unit(p, b))
            return false;
        store(at, q);
        store(at + L::own * step, k);
        return true;
    }
};

// Gradients of raw q and k; or, where value heads' are still to be added, of what the norm makes of them. `pass`: to the group's
// next head.
template <class T, int head_dim>
__device__ __forceinline__ void store_rows(const gen_kda_bwd_grad_params &p, const block_work &b,
                                           const unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &unit,
                                           bool pass)
{
    using L = layout<head_dim>;
    float q[L::own][L::channels], k[L::own][L::channels];
    load_gradients<T, head_dim>(b, unit, q, k);
    if (pass && p.sums && group_sums<head_dim>::pass(p, b, q, k))
        return;
    if (p.qk_l2norm && p.q.d_x)
        through_norm<T>(unit, q, k);
    store_gradients<T, head_dim>(p, p.q, b, q);
    store_gradients<T, head_dim>(p, p.k, b, k);
}

// Betas' gradients, of sums that the groups of columns have left.
template <class T, int head_dim>
__device__ __forceinline__ void store_betas(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    using L = layout<head_dim>;
    const int row = thread_again();
    if (row >= b.chunk.rows)
        return;
    float d = 0.f;
#pragma unroll
    for (int i = 0; i < L::groups; i++)
        d += ld_shared_f32(b.base + L::beta_sums + (i * rows + row) * 4);
    d = beta_back(p.beta_form, ld_shared_f32(b.base + L::raw_betas + row * 4), d);
    const long long to = static_cast<long long>(b.chunk.first + row) * p.shape.num_v_heads + b.head;
    if (p.beta_fp32)
        static_cast<float *>(p.d_beta)[to] = d;
    else
        static_cast<unsigned short *>(p.d_beta)[to] = from_float<T>(d);
}

} // namespace kda_grad
