// kda_bwd: what the forward pass has inside a chunk, once more, in one launch from raw inputs.
//
// The scores and the inverse are kda_chunk_intra's; the gates and norms before it stay in registers and shared memory.
#pragma once

#include "kda/gradients.cuh"
#include "kda_bwd/rows.cuh"
#include "kda_chunk_intra/inverse.cuh"
#include "kda_chunk_intra/scores.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"

namespace kda_bwd {

// ---- scores ----

// A row of q or k as the forward pass has it, of global memory.
template <class S>
__device__ __forceinline__ void load_unit(const gen_kda_bwd_rows &x, const block_work &b, int row, unsigned norm,
                                          float (&to)[S::channels])
{
    const long long at =
        (b.chunk.first + row) * x.from_stride + b.qk_head * S::head_dim + threadIdx.x % 32 * S::channels;
    const lane_row<S::channels> raw = load_row<S::channels>(static_cast<const unsigned short *>(x.from) + at);
    unit_row<S>(raw, ld_shared_f32(norm + row * 8), to);
}

// A warp's columns of a diagonal block, every other one: 2^(gk_i - gk_j) of each element by itself, at most 1. q, k and gates
// are read again; they are in the caches. Gates: what the block has stored.
template <class S>
__device__ __forceinline__ void exact_diagonal(const gen_kda_bwd_params &p, const block_work &b, int r, int first)
{
    using element = typename S::element;
    const int lane = threadIdx.x % 32, last = b.chunk.rows - 1;
    const unsigned norms = b.base + S::norms;
    const long long stride = static_cast<long long>(p.shape.num_v_heads) * S::head_dim;
    const float *const gk = p.gk + b.chunk.first * stride + b.head * S::head_dim + lane * S::channels;
#pragma unroll 1
    for (int j = 16 * r + first; j < 16 * r + 16; j += 2) {
        float k_j[S::channels], g_j[S::channels];
        load_unit<S>(p.k, b, min(j, last), norms + 4, k_j);
        load_row_floats(gk + min(j, last) * stride, g_j);
#pragma unroll 1
        for (int i = 16 * r; i < 16 * r + 16; i++) {
            float aq = 0.f, ak = 0.f;
            if (i >= j && i <= last) {
                float q_i[S::channels], k_i[S::channels], g_i[S::channels];
                load_unit<S>(p.q, b, i, norms, q_i);
                load_unit<S>(p.k, b, i, norms + 4, k_i);
                load_row_floats(gk + i * stride, g_i);
#pragma unroll
                for (int c = 0; c < S::channels; c++) {
                    const float x = k_j[c] * exp2_fast(g_i[c] - g_j[c]);
                    aq = fmaf(q_i[c], x, aq);
                    ak = fmaf(k_i[c], x, ak);
                }
#pragma unroll
                for (int distance = 16; distance; distance /= 2) {
                    aq += __shfl_xor_sync(0xffffffffu, aq, distance);
                    ak += __shfl_xor_sync(0xffffffffu, ak, distance);
                }
            }
            if (lane == 0) {
                st_shared_u16(chunk_at(b.base + S::scores, i, j / 8) + j % 8 * 2, from_float<element>(aq * p.scale));
                store_diagonal(b.base + S::diagonals, i, j,
                               i > j ? ak * ld_shared_f32(b.base + S::betas + i * 4) : 0.f);
            }
        }
    }
}

// Both score matrices, and the inverses of A's diagonal blocks.
template <class S, bool wide>
__device__ __forceinline__ void score_chunk(const gen_kda_bwd_params &p, const block_work &b)
{
    const int warp = threadIdx.x / 32;
    if constexpr (!S::safe)
        exact_diagonal<S>(p, b, warp / 2, warp % 2);
    score_blocks<typename S::element, S::head_dim, wide, S::safe>(b.base, p.scale, warp);
    if constexpr (S::safe)
        __syncwarp(); // whose diagonal block it is has made it
    else
        __syncthreads();
    if (warp < 4)
        invert_diagonal<typename S::element, wide>(b.base + S::diagonals + warp * 1024, b.base + S::lower,
                                                   b.base + S::inverse, warp);
}

template <class S, bool wide> __device__ __forceinline__ void invert_columns(unsigned base)
{
    using element = typename S::element;
    const int warp = threadIdx.x / 32;
    if (warp == 0)
        invert_column<element, wide, 0>(base + S::lower, base + S::inverse, base + S::diagonals);
    else if (warp == 1)
        invert_column<element, wide, 1>(base + S::lower, base + S::inverse, base + S::diagonals);
    else if (warp == 2)
        invert_column<element, wide, 2>(base + S::lower, base + S::inverse, base + S::diagonals);
}

// ---- what is read and stored ----

template <class S>
__device__ __forceinline__ void load_rows(unsigned to, const gen_kda_bwd_rows &x, const block_work &b, int head)
{
    copy_rows<S::head_dim, S::own>(
        to, static_cast<const unsigned short *>(x.from) + b.chunk.first * x.from_stride + head * S::head_dim,
        x.from_stride, threadIdx.x / 32 * S::own, b.chunk.rows);
}

// A tile to packed rows of value heads.
template <class S>
__device__ __forceinline__ void store_tile(void *to, unsigned from, const gen_kda_bwd_params &p, const block_work &b)
{
    const long long heads = p.shape.num_v_heads;
    copy_out<S::head_dim, S::threads>(static_cast<unsigned short *>(to) +
                                          (b.chunk.first * heads + b.head) * S::head_dim,
                                      from, heads * S::head_dim, b.chunk.rows, threadIdx.x);
}

// beta of the warp's rows, activated, in its first lanes; it is stored where it is wanted.
template <class S> __device__ __forceinline__ float load_beta(const gen_kda_bwd_params &p, const block_work &b)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * S::own + lane;
    if (lane >= S::own || row >= b.chunk.rows)
        return 0.f;
    const long long token = b.chunk.first + row, at = token * p.beta_stride + b.head;
    const float x = activate_beta(
        p.beta_activation,
        p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + at)
                    : to_float<typename S::element>(ld_global(static_cast<const unsigned short *>(p.beta) + at)));
    if (p.beta_out)
        p.beta_out[token * p.shape.num_v_heads + b.head] = x;
    return x;
}

// v becomes beta v, and what w is made of takes the place of q's rows; v and d_o are packed where they are apart.
template <class S>
__device__ __forceinline__ void scale_values(const gen_kda_bwd_params &p, const block_work &b, float beta,
                                             const lane_row<S::channels> (&kb)[S::own])
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::own;
    const unsigned offset = lane_offset<S::channels>(first);
    const long long stride = static_cast<long long>(p.shape.num_v_heads) * S::head_dim;
    unsigned short *const to = static_cast<unsigned short *>(p.v.to) + (b.chunk.first + first) * stride +
                               b.head * S::head_dim + lane * S::channels;
#pragma unroll
    for (int i = 0; i < S::own; i++) {
        const float beta_i = __shfl_sync(0xffffffffu, beta, i);
        const lane_row<S::channels> row = load_tile_row<S::channels>(b.base + S::values, offset, i);
        if (p.v.to && first + i < b.chunk.rows)
            store_row(to + i * stride, row);
        store_tile_row(b.base + S::values, offset, i, [&] {
            float v[S::channels];
            unpack<typename S::element>(row, v);
#pragma unroll
            for (int c = 0; c < S::channels; c++)
                v[c] *= beta_i;
            return pack<typename S::element>(v);
        }());
        store_tile_row(b.base + S::q_rows, offset, i, kb[i]);
    }
}

// A_qk' times the tile of d_o, in place.
template <class S> __device__ __forceinline__ void multiply_outputs(unsigned scores, unsigned outputs)
{
    using element = typename S::element;
    constexpr int groups = S::head_dim / 16, blocks = groups / 2; // of 16 columns; of 16 rows, of a warp
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chunk = 2 * (warp % groups),
              first_block = warp / groups * blocks;
    float d[blocks][2][4] = {};
#pragma unroll
    for (int s = 0; s < 4; s++) {
        unsigned right[4];
        load_rows_first_trans(right, outputs, 16 * s, chunk);
#pragma unroll
        for (int r = 0; r < blocks; r++)
            if (s >= first_block + r) {
                unsigned left[4];
                load_chunks_first_trans(left, scores, 16 * s, 2 * (first_block + r));
                mma_m16n8k16<element>(d[r][0], left, right[0], right[1]);
                mma_m16n8k16<element>(d[r][1], left, right[2], right[3]);
            }
    }
    __syncthreads(); // others read d_o until here
#pragma unroll
    for (int r = 0; r < blocks; r++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            st_shared_u32(chunk_at(outputs, 16 * (first_block + r) + lane / 4 + i / 2 * 8, chunk + i % 2) +
                              lane % 4 * 4,
                          pack2<element>(d[r][i % 2][i / 2 * 2], d[r][i % 2][i / 2 * 2 + 1]));
}

// ---- the chunk ----

// Everything up to the operands of the scores. Returns whether the chunk takes the wide form of the inverse, which is for bf16 alone.
template <class S>
__device__ __forceinline__ bool begin_chunk(const gen_kda_bwd_params &p, const block_work &b, float &beta,
                                            lane_row<S::channels> (&kb)[S::own])
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::own;
    load_rows<S>(b.base + S::k_rows, p.k, b, b.qk_head);
    load_rows<S>(b.base + S::q_rows, p.q, b, b.qk_head);
    cp_async_commit_group();
    load_rows<S>(b.base + S::values, p.v, b, b.head);
    cp_async_commit_group();
    chunk_gates<S> gates;
    load_gates<typename S::element>(p, (b.chunk.first + first) * p.g_stride + b.head * S::head_dim + lane * S::channels,
                                    b.chunk.rows - first, gates.g);
    beta = load_beta<S>(p, b);
    activate_gates(p, b, gates);
    if (lane < S::own)
        st_shared_f32(b.base + S::betas + (first + lane) * 4, beta);
    if (threadIdx.x == 0)
        st_shared_f32(b.base + S::wide_flag, 0.f);
    for (int i = threadIdx.x; i < rows * 8; i += S::threads) // above the diagonal blocks
        if (i % 8 / 2 > i / 8 / 16) {
            st_shared_v4_u32(chunk_at(b.base + S::scores, i / 8, i % 8), 0, 0, 0, 0);
            st_shared_v4_u32(chunk_at(b.base + S::inverse, i / 8, i % 8), 0, 0, 0, 0);
        }
    cp_async_wait_group<1>();
    __syncthreads();
    exchange_sums(b, gates);
    store_gates(p, b, gates);
    const bool unusual = norms<S>(b.base, p.l2_norm != 0, beta);
    make_operands(p, b, gates, beta, kb);
    if (unusual)
        st_shared_f32(b.base + S::wide_flag, 1.f);
    __syncthreads();
    return S::element::is_bf16 && __any_sync(0xffffffffu, ld_shared_f32(b.base + S::wide_flag) != 0.f);
}

// What follows from the inverse.
template <class S> __device__ __forceinline__ void finish_chunk(const gen_kda_bwd_params &p, const block_work &b)
{
    const long long at = (b.chunk.first * p.shape.num_v_heads + b.head) * static_cast<long long>(rows),
                    stride = p.shape.num_v_heads * rows;
    copy_out<rows, S::threads>(static_cast<unsigned short *>(p.a_kk) + at, b.base + S::inverse, stride, b.chunk.rows,
                               threadIdx.x);
    if (p.a_qk)
        copy_out<rows, S::threads>(static_cast<unsigned short *>(p.a_qk) + at, b.base + S::scores, stride, b.chunk.rows,
                                   threadIdx.x);
    multiply_wu<typename S::element, S::head_dim>(b.base + S::inverse, b.base + S::q_rows, b.base + S::values);
    if (p.d_v) {
        cp_async_wait_group<0>();
        __syncthreads();
        multiply_outputs<S>(b.base + S::scores, b.base + S::k_rows);
    }
    __syncthreads();
    store_tile<S>(p.w, b.base + S::q_rows, p, b);
    store_tile<S>(p.u, b.base + S::values, p, b);
    if (p.d_v)
        store_tile<S>(p.d_v, b.base + S::k_rows, p, b);
}

// What is alike in both forms, behind the scores.
template <class S, bool wide>
__device__ __forceinline__ void end_chunk(const gen_kda_bwd_params &p, const block_work &b, float beta,
                                          const lane_row<S::channels> (&kb)[S::own])
{
    if (p.d_v) {
        load_rows<S>(b.base + S::k_rows, p.d_o, b, b.head);
        cp_async_commit_group();
    }
    scale_values<S>(p, b, beta, kb);
    invert_columns<S, wide>(b.base);
    __syncthreads();
    finish_chunk<S>(p, b);
}

template <class S> __device__ __forceinline__ void prepare(const gen_kda_bwd_params &p, const block_work &b)
{
    float beta;
    lane_row<S::channels> kb[S::own];
    const bool wide = begin_chunk<S>(p, b, beta, kb);
    score_chunk<S, false>(p, b);
    cp_async_wait_group<0>(); // values
    __syncthreads();

    // The wide form is made after the narrow one, as in kda_intra: its operands are still there, and it writes over all results of
    // the narrow form. So the code of other chunks is straight on.
    if (wide) {
        score_chunk<S, true>(p, b);
        __syncthreads();
        end_chunk<S, true>(p, b, beta, kb);
    } else {
        end_chunk<S, false>(p, b, beta, kb);
    }
}

} // namespace kda_bwd
