// Kimi Delta Attention in one launch (one.cuh): a chunk's operands, made by a team of two warps. A lane has two channels of all 16 tokens,
// so sums of gates need no exchange; the warps have 64 channels each.
#pragma once

#include "kda/inverse.cuh"
#include "kda_prefill/shape.cuh"
#include "lib/divide.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/cluster_copy.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"

namespace kda_prefill {

// ---- raw inputs ----

// Where a thread of the team reads: its 16 bytes of its first row, of the team's next chunk.
struct sources {
    const unsigned char *q, *k, *v, *g;
    int next; // chunk
};

// Chunks of 16 bytes of a row of v that a block takes.
template <class S> constexpr int v_chunks = S::pair ? 16 : S::v_row / 16;

template <class S>
__device__ __forceinline__ sources first_sources(const gen_kda_intra_params &p, const block<S> &b, int team)
{
    const int thread = threadIdx.x % 64, qk_head = quotient(b.head, p.group_mul, p.group_shift);
    const int chunk = b.first_chunk(team);
    const long long token = b.sequence.first + chunk * tokens;
    // `chunks` of 16 bytes to a row of elements of `size` bytes, from the first-th element on.
    const auto at = [&](const void *x, long long stride, int size, int first, int chunks) {
        const long long row = token + thread / chunks;
        return static_cast<const unsigned char *>(x) + (row * stride + first) * size + thread % chunks * 16;
    };
    sources s;
    s.q = at(p.q, p.q_stride, 2, qk_head * S::head_dim, 16);
    s.k = at(p.k, p.k_stride, 2, qk_head * S::head_dim, 16);
    s.v = at(p.v, p.v_stride, 2, b.head * S::head_dim + (S::pair ? 0 : b.part * (S::v_row / 2)), v_chunks<S>);
    s.g = at(p.g, p.g_stride, p.gate_fp32 ? 4 : 2, b.head * S::head_dim, p.gate_fp32 ? 32 : 16);
    s.next = chunk;
    return s;
}

// Rows of so many chunks of 16 bytes, `pitch` apart; those from `valid` on are zeros. Of a row's eighth chunk on, `half` is added.
template <int chunks, int pitch, int half>
__device__ __forceinline__ void load_tile(unsigned to, const unsigned char *from, long long stride, int valid)
{
    constexpr int at_once = 64 / chunks;
    const int thread = threadIdx.x % 64, row = thread / chunks, chunk = thread % chunks;
    to += row * pitch + (half ? chunk / 8 * half + chunk % 8 * 16 : chunk * 16);
#pragma unroll
    for (int i = 0; i < tokens; i += at_once, from += at_once * stride)
        cp_async_16_or_zero(to + i * pitch, from, row + i < valid);
}

// The team's next chunk, if there is one.
template <class S>
__device__ __forceinline__ void load_next(const gen_kda_intra_params &p, const block<S> &b, int team, int turn,
                                          sources &s)
{
    const int valid = b.sequence.length - s.next * tokens, g_size = p.gate_fp32 ? 4 : 2;
    if (valid <= 0)
        return;
    const unsigned to = b.raw(team, turn);
    load_tile<16, S::pitch, 0>(to + S::k, s.k, p.k_stride * 2, valid);
    load_tile<16, S::pitch, 0>(to + S::q, s.q, p.q_stride * 2, valid);
    if (p.gate_fp32)
        load_tile<32, S::g_pitch_fp32, 0>(to + S::g, s.g, p.g_stride * 4, valid);
    else
        load_tile<16, S::pitch, 0>(to + S::g, s.g, p.g_stride * 2, valid);
    load_tile<v_chunks<S>, S::v_pitch, S::pair ? S::v_half : 0>(to + S::v, s.v, p.v_stride * 2, valid);
    cp_async_mbarrier_arrive(b.loaded(team));
    constexpr int rows = S::makers * tokens;
    s.k += p.k_stride * (rows * 2), s.q += p.q_stride * (rows * 2), s.v += p.v_stride * (rows * 2);
    s.g += p.g_stride * (rows * g_size);
    s.next += S::makers;
}

// ---- norms and gates ----

// Of 16 rows: `scale` / |row|, or `scale`.
template <class S> __device__ __forceinline__ void norms(unsigned from, unsigned to, bool wanted, float scale)
{
    const int lane = threadIdx.x % 32;
    float low[4] = {}, high[4] = {};
    if (wanted) {
#pragma unroll
        for (int step = 0; step < 8; step++) {
            unsigned x[4];
            ldmatrix_x4(x, raw_at<S>(from, lane % 16, 2 * step + lane / 16));
            mma_m16n8k16<typename S::element>(low, x, x[0], x[2]);
            mma_m16n8k16<typename S::element>(high, x, x[1], x[3]);
        }
    }
    if (lane % 4 == lane / 8) { // on the diagonals
        const bool odd = lane / 4 % 2;
        st_shared_f32(to + lane / 4 * 4, scale * (wanted ? rsqrt_fast((odd ? low[1] : low[0]) + 1e-6f) : 1.f));
        st_shared_f32(to + lane / 4 * 4 + 32, scale * (wanted ? rsqrt_fast((odd ? high[3] : high[2]) + 1e-6f) : 1.f));
    }
}

// What the gates of the lane's channels have in common.
struct gate_constants {
    float factor, slope, bias[2];
};

template <class S>
__device__ __forceinline__ gate_constants gate_constants_of(const gen_kda_intra_params &p, int head, int channel)
{
    gate_constants c = {log2_e, log2_e, {0.f, 0.f}};
    if (p.gate == 2)
        return c;
    const float rate = exp2_fast(log2_e * (p.A_log ? ld_global(p.A_log + head) : 0.f));
    if (p.dt_bias) {
        const uint2 both = ld_global_v2_u32(p.dt_bias + head * S::head_dim + channel);
        c.bias[0] = __uint_as_float(both.x), c.bias[1] = __uint_as_float(both.y);
    }
    c.factor = p.gate == 0 ? p.lower_bound * log2_e : -rate;
    if (p.gate == 0)
        c.slope = -log2_e * rate;
    c.bias[0] *= c.slope, c.bias[1] *= c.slope;
    return c;
}

// Cumulated gates, base 2, + anchor. Rows from `valid` on add nothing.
template <class S>
__device__ __forceinline__ void sum_gates(const gen_kda_intra_params &p, unsigned from, int channel, int valid,
                                          const gate_constants &c, float (&g)[tokens][2])
{
    using T = typename S::element;
    if (p.gate_fp32) {
#pragma unroll
        for (int i = 0; i < tokens; i++) {
            const float2 both = ld_shared_v2_f32(from + i * S::g_pitch_fp32 + channel * 4);
            g[i][0] = both.x, g[i][1] = both.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < tokens; i++) {
            const float2 both = to_float2<T>(ld_shared_u32(from + i * S::pitch + channel * 2));
            g[i][0] = both.x, g[i][1] = both.y;
        }
    }
    if (p.gate == 0) {
#pragma unroll
        for (int i = 0; i < tokens; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                g[i][h] = rcp_fast(1.f + exp2_fast(fmaf(g[i][h], c.slope, c.bias[h])));
    } else if (p.gate == 1) {
#pragma unroll
        for (int i = 0; i < tokens; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = fmaf(g[i][h], c.slope, c.bias[h]);
                g[i][h] = x > 20.f * log2_e ? x : log2_fast(1.f + exp2_fast(x));
            }
    }
    if (valid < tokens)
#pragma unroll
        for (int i = 0; i < tokens; i++)
            g[i][0] = i < valid ? g[i][0] : 0.f, g[i][1] = i < valid ? g[i][1] : 0.f;
#pragma unroll
    for (int i = 0; i < tokens; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            g[i][h] = fmaf(c.factor, g[i][h], i ? g[i - 1][h] : anchor);
}

// ---- operands ----

// Two channels of a row: scores' column comes where the key was.
template <class S>
__device__ __forceinline__ void make_row(unsigned raw, unsigned to, int row, int channel, unsigned k_word,
                                         unsigned q_word, float k_norm, float q_norm, const float (&g)[2],
                                         const float (&end)[2])
{
    using T = typename S::element;
    const unsigned at = raw + row * S::pitch + channel * 2;
    const unsigned row_at = chunk_at<S>(to + S::rows, row, channel / 8) + channel % 8 * 2;
    float2 q = to_float2<T>(q_word), k = to_float2<T>(k_word);
    const float x = exp2_fast(g[0]), y = exp2_fast(g[1]);
    k.x *= k_norm, k.y *= k_norm;
    const float2 ki = make_float2(k.x * exp2_fast(-g[0]), k.y * exp2_fast(-g[1]));
    st_shared_u32(at + S::k, pack2<bf16>(ki.x, ki.y));
    st_shared_u32(row_at + S::columns - S::rows, pack2<T>(ki.x * end[0], ki.y * end[1]));
    k.x *= x, k.y *= y, q.x *= x, q.y *= y;
    if constexpr (!T::is_bf16) { // the norm of q now, for its range
        q.x *= q_norm, q.y *= q_norm;
        st_shared_u32(at + S::g, pack2<bf16>(k.x, k.y));
        st_shared_u32(at + S::q, pack2<bf16>(q.x, q.y));
        constexpr float factor = S::row_anchor / anchored;
        k.x *= factor, k.y *= factor, q.x *= factor, q.y *= factor;
    }
    st_shared_u32(row_at, pack2<T>(k.x, k.y));
    st_shared_u32(row_at + S::cell, pack2<T>(q.x, q.y));
}

// Of eight rows all is loaded before the first store: a load waits for the stores before it.
template <class S>
__device__ __forceinline__ void make_operands(unsigned raw, unsigned to, unsigned k_norms, unsigned q_norms,
                                              int channel, const float (&g)[tokens][2])
{
    constexpr int at_once = 4;
    const float end[2] = {exp2_fast(g[tokens - 1][0]), exp2_fast(g[tokens - 1][1])};
    const int pair = channel / 2;
#pragma unroll
    for (int first = 0; first < tokens; first += at_once) {
        unsigned k[at_once], q[at_once];
        float4 k_norm[at_once / 4], q_norm[at_once / 4] = {};
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const unsigned at = raw + (first + i) * S::pitch + channel * 2;
            k[i] = ld_shared_u32(at + S::k), q[i] = ld_shared_u32(at + S::q);
        }
#pragma unroll
        for (int i = 0; i < at_once / 4; i++) {
            k_norm[i] = ld_shared_v4_f32(k_norms + (first + 4 * i) * 4);
            if constexpr (!S::element::is_bf16)
                q_norm[i] = ld_shared_v4_f32(q_norms + (first + 4 * i) * 4);
        }
        if (first == 0)
            st_shared_v2_f32(to + S::decay + (pair / 8 * 4 + pair % 4) * 16 + pair / 4 % 2 * 8,
                             end[0] * (1.f / anchored), end[1] * (1.f / anchored));
#pragma unroll
        for (int i = 0; i < at_once; i += 4) {
            const float4 kn = k_norm[i / 4], qn = q_norm[i / 4];
            make_row<S>(raw, to, first + i, channel, k[i], q[i], kn.x, qn.x, g[first + i], end);
            make_row<S>(raw, to, first + i + 1, channel, k[i + 1], q[i + 1], kn.y, qn.y, g[first + i + 1], end);
            make_row<S>(raw, to, first + i + 2, channel, k[i + 2], q[i + 2], kn.z, qn.z, g[first + i + 2], end);
            make_row<S>(raw, to, first + i + 3, channel, k[i + 3], q[i + 3], kn.w, qn.w, g[first + i + 3], end);
        }
    }
}

// 16 rows, of k or of q, times the columns of scores.
template <class S>
__device__ __forceinline__ void multiply_scores(unsigned raw, unsigned to, bool of_keys, float (&d)[2][4])
{
    constexpr bool shared = S::element::is_bf16; // with the recurrence
    const int lane = threadIdx.x % 32;
    const unsigned own = to + S::rows + (of_keys ? 0 : S::cell), other = raw + (of_keys ? S::g : S::q);
#pragma unroll
    for (int step = 0; step < 8; step++) {
        unsigned left[4], right[4];
        ldmatrix_x4(left, shared ? chunk_at<S>(own, lane % 16, 2 * step + lane / 16)
                                 : raw_at<S>(other, lane % 16, 2 * step + lane / 16));
        ldmatrix_x4(right, raw_at<S>(raw + S::k, lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
        mma_m16n8k16<bf16>(d[0], left, right[0], right[1]);
        mma_m16n8k16<bf16>(d[1], left, right[2], right[3]);
    }
}

// The first warp: X, as a sum of two numbers. `beta` is that of token lane % 16; A_kk' comes to `lower`.
template <class S>
__device__ __forceinline__ void make_inverse(const float (&d)[2][4], float beta, unsigned lower, unsigned to)
{
    using T = typename S::element;
    const int lane = threadIdx.x % 32, column = lane % 16;
    const float row_beta[2] = {__shfl_sync(0xffffffffu, beta, lane / 4), __shfl_sync(0xffffffffu, beta, lane / 4 + 8)};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int row = lane / 4 + i / 2 % 2 * 8, j = i / 4 * 8 + lane % 4 * 2 + i % 2;
        st_shared_f32(lower + j * 64 + row * 4, row > j ? d[i / 4][i % 4] * row_beta[i / 2 % 2] : 0.f);
    }
    float x[tokens];
#pragma unroll
    for (int i = 0; i < tokens; i++)
        x[i] = i == column ? beta : 0.f;
    __syncwarp();
    kda_stage::eliminate(lower, x);
    const unsigned at = to + lane / 16 * 512 + column / 8 * 256 + column % 8 * 2; // the second half has the rests
#pragma unroll
    for (int i = 0; i < tokens; i++) {
        const unsigned short first = from_float<T>(x[i]), rest = from_float<T>(x[i] - to_float<T>(first));
        st_shared_u16(at + i * 16, lane < 16 ? first : rest);
    }
}

// The second warp: A_qk, anchored as S' qd' is.
template <class S> __device__ __forceinline__ void store_scores(const float (&d)[2][4], unsigned to)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = lane / 4 + 8 * h, j = 8 * n + lane % 4 * 2;
            st_shared_u32(to + n * 256 + row * 16 + lane % 4 * 4,
                          pack2<typename S::element>(row >= j ? d[n][2 * h] * S::row_anchor : 0.f,
                                                     row > j ? d[n][2 * h + 1] * S::row_anchor : 0.f));
        }
}

__device__ __forceinline__ float activated_beta(const gen_kda_intra_params &p, float x)
{
    if (p.beta_activation == 0)
        return x;
    return (p.beta_activation == 2 ? 2.f : 1.f) * rcp_fast(1.f + exp2_fast(-log2_e * x));
}

template <class S>
__device__ __forceinline__ float load_beta(const gen_kda_intra_params &p, const block<S> &b, int token)
{
    if (token >= b.sequence.length)
        return 0.f;
    const long long at = (b.sequence.first + token) * p.beta_stride + b.head;
    return p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + at)
                       : to_float<typename S::element>(ld_global(static_cast<const unsigned short *>(p.beta) + at));
}

// To the other block of the pair.
template <class S> __device__ __forceinline__ void send(const block<S> &b, int team, unsigned raw, unsigned operands)
{
    const unsigned other = b.part ^ 1, full = cluster_address(b.full(S::teams + team), other);
    bulk_copy_cluster(cluster_address(b.operands(S::teams + team), other), operands, S::made_bytes, full);
    bulk_copy_cluster(cluster_address(b.v_copy(team), other), raw + S::v + other * S::v_half, S::v_half, full);
}

template <class S>
__device__ __forceinline__ void produce(const gen_kda_prefill_params &all, const block<S> &b, int team)
{
    const gen_kda_intra_params &p = all.in;
    const int lane = threadIdx.x % 32, channel = threadIdx.x % 64 * 2;
    const bool first = threadIdx.x % 64 < 32;
    const unsigned to = b.operands(team);
    sources s = first_sources(p, b, team);
    load_next(p, b, team, 0, s);
    const gate_constants constants = gate_constants_of<S>(p, b.head, channel);
    const int chunks = b.chunks();
    int turn = 0;
#pragma unroll 1
    for (int chunk = b.first_chunk(team); chunk < chunks; chunk += S::makers, turn ^= 1) {
        const unsigned raw = b.raw(team, turn);
        const int valid = b.sequence.length - chunk * tokens;
        const float beta = first ? load_beta(p, b, chunk * tokens + lane % 16) : 0.f;
        mbarrier_wait(b.loaded(team), turn);
        if (!first) { // while the first is about the inverse before
            norms<S>(raw + S::k, b.k_norms(team), p.l2_norm != 0, 1.f);
            norms<S>(raw + S::q, b.q_norms(team, turn), p.l2_norm != 0, p.scale * (1.f / S::row_anchor));
        }
        float g[tokens][2];
        sum_gates<S>(p, raw + S::g, channel, valid, constants, g);
        barrier_sync(1 + team, 64); // norms are there; keys may be written over
        if (chunk >= S::makers)
            mbarrier_wait(b.empty(team), turn ^ 1);
        load_next(p, b, team, turn ^ 1, s);
        if (S::pair && !first && lane < tokens)
            st_shared_f32(to + S::norms + lane * 4, ld_shared_f32(b.q_norms(team, turn) + lane * 4));
        make_operands<S>(raw, to, b.k_norms(team), b.q_norms(team, turn), channel, g);
        barrier_sync(1 + team, 64);
        float d[2][4] = {};
        multiply_scores<S>(raw, to, first, d);
        if (first)
            make_inverse<S>(d, lane % 16 < valid ? activated_beta(p, beta) : 0.f, raw + S::lower, to + S::inverse);
        else
            store_scores<S>(d, to + S::scores);
        fence_proxy_async();
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(b.full(team));
        if (S::pair && first) {
            mbarrier_wait(b.full(team), turn); // the second warp's part is there
            if (lane == 0)
                send(b, team, raw, to);
            __syncwarp();
        }
    }
}

} // namespace kda_prefill
