// The products of kda_bwd_grad that take a chunk's tiles as they come from memory: with A_kk, among rows, and with both
// states (kda_bwd_grad.cu.in).
#pragma once

#include "kda/backward.cuh"
#include "kda/elements.cuh"
#include "kda/gradients.cuh"
#include "kda_bwd_grad/layout.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh" // fence_proxy_async
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/wgmma_n32.cuh"

namespace kda_grad {

// ---- loads ----

// The state that begins at `at` in a tensor of them, or zeros.
template <int head_dim>
__device__ __forceinline__ void load_state(unsigned to, const unsigned short *states, long long at, bool there,
                                           int first)
{
    using L = layout<head_dim>;
#pragma unroll 1
    for (int i = 0; i < head_dim / 64; i++)
        copy_rows<head_dim, L::own>(to + i * L::tile, there ? states + at + i * 64 * head_dim : states, head_dim, first,
                                    there ? rows : 0);
}

// All of a chunk that products take as it is: `full`, where it has all rows and both states, by addresses of which each is
// one of three and a constant.
template <int head_dim>
__device__ __forceinline__ void copy_full_chunk(const gen_kda_bwd_grad_params &p, const block_work &b, int number)
{
    using L = layout<head_dim>;
    constexpr int chunks = head_dim / 8, at_once = 32 / chunks; // of a row; rows, whose next ones have one bit more
    static_assert(L::own == 2 * at_once, "two copies of each tile");
    const int thread = thread_again(), lane = thread % 32, first = thread / 32 * L::own, row = first + lane / chunks,
              heads = p.shape.num_v_heads;
    const unsigned to[2] = {chunk_at(b.base, row, lane % chunks),
                            (chunk_at(b.base, row, lane % chunks) ^ at_once * 16) + at_once * 128};
    const long long token_head = static_cast<long long>(b.chunk.first + row) * heads + b.head;
    const long long at = token_head * (head_dim * 2) + lane % chunks * 16;
    const unsigned next = heads * (at_once * head_dim * 2);
    const char *const tiles[] = {static_cast<const char *>(p.d_v_new) + at, static_cast<const char *>(p.v_new) + at,
                                 static_cast<const char *>(p.d_o) + at};
#pragma unroll
    for (int i = 0; i < 3; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            cp_async_16_or_zero(to[half] + L::grads + i * L::tile, tiles[i] + half * static_cast<long long>(next),
                                true);
    const long long state =
        (static_cast<long long>(number) * heads + b.head) * L::state + row * (head_dim * 2) + lane % chunks * 16;
    const char *const states[] = {static_cast<const char *>(p.d_h) + state, static_cast<const char *>(p.h) + state};
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int rows_of = 0; rows_of < head_dim; rows_of += rows)
#pragma unroll
            for (int half = 0; half < 2; half++)
                cp_async_16_or_zero(to[half] + L::d_state + i * L::state + rows_of / rows * L::tile,
                                    states[i] + (rows_of + half * at_once) * (head_dim * 2), true);
    // Of A_kk, rows of 128 bytes.
    const int inverse_row = first + lane / 8;
    const long long inverse =
        (static_cast<long long>(b.chunk.first + inverse_row) * heads + b.head) * 128 + lane % 8 * 16;
    const char *const a_kk = static_cast<const char *>(p.a_kk) + inverse;
    const unsigned inverse_to = chunk_at(b.base + L::inverse, inverse_row, lane % 8);
    cp_async_16_or_zero(inverse_to, a_kk, true);
    if constexpr (L::own == 8)
        cp_async_16_or_zero((inverse_to ^ 64) + 512, a_kk + heads * static_cast<long long>(512), true);
}

template <int head_dim>
__device__ __forceinline__ void load_chunk(const gen_kda_bwd_grad_params &p, const block_work &b)
{
    using L = layout<head_dim>;
    const int number = kda_chunk_number(p.shape.sequences, b.slot);
    // Sums of wrong lengths can be negative.
    const bool has_states = static_cast<unsigned>(number) < static_cast<unsigned>(p.num_chunks);
    if (b.chunk.rows == rows && has_states) {
        copy_full_chunk<head_dim>(p, b, number);
    } else {
        const int first = thread_again() / 32 * L::own, valid = b.chunk.rows;
        const long long heads = p.shape.num_v_heads, row = b.chunk.first * heads + b.head;
#pragma unroll 1
        for (int i = 0; i < 3; i++)
            copy_rows<head_dim, L::own>(b.base + L::grads + i * L::tile,
                                        static_cast<const unsigned short *>(i == 0   ? p.d_v_new
                                                                            : i == 1 ? p.v_new
                                                                                     : p.d_o) +
                                            row * head_dim,
                                        heads * head_dim, first, valid);
        copy_rows<rows, L::own>(b.base + L::inverse, static_cast<const unsigned short *>(p.a_kk) + row * rows,
                                heads * rows, first, valid);
        const long long state = (number * heads + b.head) * (head_dim * head_dim);
        load_state<head_dim>(b.base + L::d_state, static_cast<const unsigned short *>(p.d_h), state, has_states, first);
        load_state<head_dim>(b.base + L::states, static_cast<const unsigned short *>(p.h), state, has_states, first);
    }
    cp_async_commit_group();
}

// A lane's elements of v.
struct value_pairs {
    unsigned pair[4][2];

    template <int head_dim>
    __device__ __forceinline__ void load(const gen_kda_bwd_grad_params &p, const block_work &b, const warp_place &at)
    {
        const long long stride = static_cast<long long>(p.shape.num_v_heads) * head_dim;
        const unsigned short *const v =
            static_cast<const unsigned short *>(p.v) + b.chunk.first * stride + b.head * head_dim + at.column();
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                pair[n][h] = at.row(h) < b.chunk.rows
                                 ? static_cast<unsigned>(
                                       ld_global(reinterpret_cast<const int *>(v + at.row(h) * stride + 8 * n)))
                                 : 0;
    }
};

// Sums over the group's columns, of a lane's rows, after or (first) instead of those that are there.
template <int head_dim>
__device__ __forceinline__ void add_beta_sums(const block_work &b, const warp_place &at, const float (&sum)[2],
                                              bool first)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const unsigned to = b.base + layout<head_dim>::beta_sums + (at.group * rows + at.row(h)) * 4;
        const float all = sum_quad(sum[h]);
        if (at.lane % 4 == 0)
            st_shared_f32(to, first ? all : ld_shared_f32(to) + all);
    }
}

// ---- A_kk ----

// The warp's rows and columns of A_kk' d_v_new.
template <class T, int head_dim>
__device__ __forceinline__ void times_inverse(const block_work &b, const warp_place &at, float (&d)[4][4])
{
    using L = layout<head_dim>;
    const unsigned from = at.transposed(b.base), right_from = at.right(b.base);
#pragma unroll 1
    for (int s = 3; s >= at.block; s--) {
        unsigned left[4], right[2][4];
        ldmatrix_x4_trans(left, from + L::inverse + s * 2048);
        if (s == at.block)
            upper_half(left);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            ldmatrix_x4_trans(right[n], (right_from ^ n * 32) + L::grads + s * 2048);
            mma_m16n8k16<T>(d[2 * n], left, right[n][0], right[n][1]);
            mma_m16n8k16<T>(d[2 * n + 1], left, right[n][2], right[n][3]);
        }
    }
}

// d_r = A_kk' d_v_new goes to where d_v_new is, and d_v to memory; rows' sums of d_r v begin beta's gradient.
template <class T, int head_dim>
__device__ __forceinline__ void make_values(const gen_kda_bwd_grad_params &p, const block_work &b, const warp_place &at,
                                            const value_pairs &v)
{
    using L = layout<head_dim>;
    float d[4][4] = {}, beta_sum[2] = {};
    times_inverse<T, head_dim>(b, at, d);
    const unsigned own = at.right(b.base) + at.block * 2048;
    const float beta[2] = {ld_shared_f32(b.base + L::betas + at.row(0) * 4),
                           ld_shared_f32(b.base + L::betas + at.row(1) * 4)};
    barrier_sync(1 + at.group, 128); // the group's other warps read these columns until here
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        unsigned d_r[4], d_v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int n = 2 * pair + i / 2, h = i % 2;
            const float x = d[n][2 * h], y = d[n][2 * h + 1];
            const float2 both = to_float2<T>(v.pair[n][h]);
            beta_sum[h] = fmaf(x, both.x, fmaf(y, both.y, beta_sum[h]));
            d_r[i] = pack2<T>(x, y);
            d_v[i] = pack2<T>(x * beta[h], y * beta[h]);
        }
        stmatrix_x4((own ^ pair * 32) + L::grads, d_r);
        stmatrix_x4((own ^ pair * 32) + L::d_qk, d_v);
    }
    add_beta_sums<head_dim>(b, at, beta_sum, true);
    __syncwarp();
    const int row = 16 * at.block + at.lane / 4, chunk = 4 * at.group + at.lane % 4;
    const long long stride = static_cast<long long>(p.shape.num_v_heads) * head_dim;
    unsigned short *const to =
        static_cast<unsigned short *>(p.d_v) + (b.chunk.first + row) * stride + b.head * head_dim + chunk * 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        unsigned word[4];
        ld_shared_v4_u32(chunk_at(b.base + L::d_qk, row, chunk) + i * 1024, word[0], word[1], word[2], word[3]);
        if (row + 8 * i < b.chunk.rows)
            st_global_v4_u32(to + i * 8 * stride, word);
    }
}

// ---- among rows ----

// The lower triangle of `factor` times left right', 16 x 16 blocks of it by warps with numbers below ten. What is below
// the diagonal is rounded; P's diagonal is kept as it is.
// `add`: to that of the group's earlier heads.
template <class T, int head_dim, bool is_p>
__device__ __forceinline__ void make_scores(const block_work &b, unsigned left, unsigned right, float factor,
                                            int number, bool add = false)
{
    using L = layout<head_dim>;
    const int lane = thread_again() % 32;
#pragma unroll 1
    for (; number < 10; number += L::warps) {
        const int r = (number >= 1) + (number >= 3) + (number >= 6), s = number - r * (r + 1) / 2;
        const unsigned x_at = swizzled<128>(b.base + left + r * 2048, lane % 16, lane / 16),
                       y_at = swizzled<128>(b.base + right + s * 2048, lane / 16 * 8 + lane % 8, lane / 8 % 2);
        float d[2][4] = {};
#pragma unroll
        for (int step = 0; step < head_dim / 16; step++) {
            unsigned x[4], y[4];
            ldmatrix_x4(x, (x_at ^ step % 4 * 32) + step / 4 * cell);
            ldmatrix_x4(y, (y_at ^ step % 4 * 32) + step / 4 * cell);
            mma_m16n8k16<T>(d[0], x, y[0], y[1]);
            mma_m16n8k16<T>(d[1], x, y[2], y[3]);
        }
        const int i = lane / 4, j = lane % 4 * 2;
        const unsigned to = swizzled<128>(b.base + (is_p ? L::d_qk : L::d_kk) + r * 2048, i, 2 * s) + j * 2;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int below = r == s ? i + 8 * h - j - 8 * n : 16; // of the first element
                const float x = d[n][2 * h] * factor, y = d[n][2 * h + 1] * factor;
                st_shared_u32((to ^ n * 16) + h * 1024, pack2<bf16>(below > 0 ? x : 0.f, below > 1 ? y : 0.f));
                if (is_p && below / 2 == 0 && below >= 0) {
                    const unsigned at = b.base + L::diagonal + (16 * r + i + 8 * h) * 4;
                    const float d_ii = below ? y : x;
                    st_shared_f32(at, add ? d_ii + ld_shared_f32(at) : d_ii);
                }
            }
    }
}

// ---- states ----

// d = left state', of `count` left operands: the warp's 16 rows, and its columns of K. The state is V x K.
template <class T, int head_dim, int count>
__device__ __forceinline__ void times_state(float (&d)[count][4][4], unsigned base, const int (&left)[count], int state,
                                            const warp_place &at)
{
    using L = layout<head_dim>;
    const unsigned left_at = at.left(base), right_at = at.right(base);
#pragma unroll
    for (int k = 0; k < head_dim / 16; k++) {
        unsigned right[2][4];
#pragma unroll
        for (int n = 0; n < 2; n++)
            ldmatrix_x4_trans(right[n], (right_at ^ n * 32) + state + k / 4 * L::tile + k % 4 * 2048);
#pragma unroll
        for (int i = 0; i < count; i++) {
            unsigned x[4];
            ldmatrix_x4(x, (left_at ^ k % 4 * 32) + left[i] + k / 4 * cell);
#pragma unroll
            for (int n = 0; n < 4; n++)
                mma_m16n8k16<T>(d[i][n], x, right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
        }
    }
}

// Products of 8 elements of both states.
template <class T, int head_dim> __device__ __forceinline__ void multiply_states(unsigned at, float (&d)[8])
{
    using L = layout<head_dim>;
    unsigned x[4], y[4];
    ld_shared_v4_u32(at + L::states, x[0], x[1], x[2], x[3]);
    ld_shared_v4_u32(at + L::d_state, y[0], y[1], y[2], y[3]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 u = to_float2<T>(x[i]), v = to_float2<T>(y[i]);
        d[2 * i] = fmaf(u.x, v.x, d[2 * i]);
        d[2 * i + 1] = fmaf(u.y, v.y, d[2 * i + 1]);
    }
}

// Their sums over V, in four parts.
template <class T, int head_dim, bool vk> __device__ __forceinline__ void sum_states(const block_work &b)
{
    using L = layout<head_dim>;
    constexpr int cells = head_dim / 64;
    float d[8] = {};
    if constexpr (vk) { // a warp has 64 columns of a part
        const int thread = thread_again(), warp = thread / 32, lane = thread % 32, part = warp / cells;
        if (part >= 4)
            return;
#pragma unroll
        for (int i = 0; i < head_dim / 16; i++) {
            const int row = part * (head_dim / 4) + 4 * i + lane / 8;
            multiply_states<T, head_dim>(chunk_at(b.base + row / 64 * L::tile, row % 64, warp % cells * 8 + lane % 8),
                                         d);
        }
#pragma unroll
        for (int distance = 8; distance < 32; distance *= 2)
#pragma unroll
            for (int i = 0; i < 8; i++)
                d[i] += __shfl_xor_sync(0xffffffffu, d[i], distance);
        if (lane < 8) {
            const unsigned to = b.base + L::state_sums + part * L::vector + (warp % cells * 8 + lane) * 32;
            st_shared_v4_f32(to, make_float4(d[0], d[1], d[2], d[3]));
            st_shared_v4_f32(to + 16, make_float4(d[4], d[5], d[6], d[7]));
        }
    } else {
        const int thread = thread_again(), row = thread % head_dim, part = thread / head_dim;
        const unsigned at = chunk_at(b.base + row / 64 * L::tile, row % 64, part * (head_dim / 32));
#pragma unroll
        for (int i = 0; i < head_dim / 32; i++)
            multiply_states<T, head_dim>(at ^ i * 16, d);
        st_shared_f32(b.base + L::state_sums + part * L::vector + row * 4,
                      ((d[0] + d[1]) + (d[2] + d[3])) + ((d[4] + d[5]) + (d[6] + d[7])));
    }
}

// Both states' products begin the sums of columns, [0], and of rows: of d_k's share that has beta, and of d_q. Between them
// come all other products of the chunk's tiles.
//
// Where states are V x K, by mma.sync.
template <class T, int head_dim>
__device__ __forceinline__ void multiply_tiles_vk(const gen_kda_bwd_grad_params &p, block_work b, const value_pairs &v,
                                                  float (&columns)[1][4][4], float (&sums)[2][4][4], bool add = false)
{
    using L = layout<head_dim>;
    warp_place at = place_again();
    make_values<T, head_dim>(p, b, at, v);
    b = again(b), at = place_again();
    times_state<T, head_dim, 1>(columns, b.base, {L::values}, L::d_state, at);
    sum_states<T, head_dim, true>(b);
    __syncthreads(); // d_r is there
    const int warp = 4 * at.group + at.block;
    make_scores<T, head_dim, true>(b, L::outputs, L::values, p.scale, warp, add);
    make_scores<T, head_dim, false>(b, L::grads, L::values, -1.f, L::warps - 1 - warp);
    times_state<T, head_dim, 2>(sums, b.base, {L::grads, L::outputs}, L::states, at);
}

// The warp group's 32 columns of K of left state', begun.
template <class T, int head_dim>
__device__ __forceinline__ void begin_product(float (&d)[4][4], unsigned base, int left, int state, int group)
{
    using L = layout<head_dim>;
    const unsigned long long x = wgmma_descriptor(base + left, 0, 1024),
                             y = wgmma_descriptor(base + state + group / 2 * L::tile + group % 2 * 4096, 0, 1024);
#pragma unroll
    for (int k = 0; k < head_dim / 16; k++) {
        const int step = (k / 4 * cell + k % 4 * 32) >> 4;
        wgmma_n32<T>(d, x + step, y + step, k > 0);
    }
    wgmma_commit_group();
}

// Where they are K x V, by wgmma, while the others are made.
template <class T, int head_dim>
__device__ __forceinline__ void multiply_tiles(const gen_kda_bwd_grad_params &p, block_work b, const value_pairs &v,
                                               float (&columns)[4][4], float (&sums)[2][4][4], bool add = false)
{
    using L = layout<head_dim>;
    warp_place at = place_again();
    wgmma_fence();
    begin_product<T, head_dim>(columns, b.base, L::values, L::d_state, at.group);
    begin_product<T, head_dim>(sums[1], b.base, L::outputs, L::states, at.group);
    make_values<T, head_dim>(p, b, at, v);
    fence_proxy_async(); // d_r is a left operand
    b = again(b);
    sum_states<T, head_dim, false>(b);
    __syncthreads(); // it is there
    b = again(b), at = place_again();
    wgmma_fence();
    begin_product<T, head_dim>(sums[0], b.base, L::grads, L::states, at.group);
    const int warp = 4 * at.group + at.block;
    make_scores<T, head_dim, true>(b, L::outputs, L::values, p.scale, warp, add);
    make_scores<T, head_dim, false>(b, L::grads, L::values, -1.f, L::warps - 1 - warp);
    wgmma_wait_group<0>();
    wgmma_fence_n32(columns);
    wgmma_fence_n32(sums[0]);
    wgmma_fence_n32(sums[1]);
}

} // namespace kda_grad
