// Kimi Delta Attention in one launch (one.cuh): the recurrence, of a group of four warps with 64 rows of S'.
//
// A thread has, of 64 x n, rows row and row + 8 of its warp's 16, columns 8 t + 2 (lane % 4) + {0, 1} in elements 4 t to
// 4 t + 3: for mma.sync as for wgmma.
#pragma once

#include "kda_inter/state.cuh"
#include "kda_prefill/shape.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/ptx/wgmma_n32.cuh"

namespace kda_prefill {

// An accumulator as a left operand.
template <class T, int steps, int size>
__device__ __forceinline__ void round_operand(const float (&d)[size], unsigned (&a)[steps][4])
{
    static_assert(size == steps * 8, "all of it");
#pragma unroll
    for (int k = 0; k < steps; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[k][i] = pack2<T>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// Factors of columns: of `count` pairs of tiles from the first-th on.
template <int first, int count> __device__ __forceinline__ void load_decays(float4 (&factor)[count], unsigned from)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        factor[i] = ld_shared_v4_f32(from + ((first + i) * 4 + threadIdx.x % 4) * 16);
}

// s times these.
template <int first, int count>
__device__ __forceinline__ void decay_columns(const float4 (&factor)[count], float (&s)[64])
{
#pragma unroll
    for (int i = 0; i < count; i++) {
        float *const x = s + 8 * (first + i);
        const float4 f = factor[i];
        x[0] *= f.x, x[1] *= f.y, x[2] *= f.x, x[3] *= f.y;
        x[4] *= f.z, x[5] *= f.w, x[6] *= f.z, x[7] *= f.w;
    }
}

// A matrix of 16 x 16 as producer.cuh stores it, for the right operand of its transpose: words 2 n and 2 n + 1 are of columns 8 n on.
__device__ __forceinline__ void load_square(unsigned (&x)[4], unsigned from)
{
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(x, from + lane / 8 % 2 * 256 + (lane / 16 * 8 + lane % 8) * 16);
}

// d += a x', 16 x 16 each.
template <class T>
__device__ __forceinline__ void multiply_square(float (&d)[2][4], const unsigned (&a)[4], const unsigned (&x)[4])
{
    mma_m16n8k16<T>(d[0], a, x[0], x[1]);
    mma_m16n8k16<T>(d[1], a, x[2], x[3]);
}

// What a warp multiplies its rows of S' kd' by and takes them from, loaded while these are made.
struct chunk_values {
    unsigned v[4], inverse[4], rest[4];
};

template <class S>
__device__ __forceinline__ void load_values(chunk_values &x, unsigned values, unsigned inverse, int group)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    ldmatrix_x4_trans(x.v,
                      values + (lane / 16 * 8 + lane % 8) * S::v_pitch + (group * 8 + warp * 2 + lane / 8 % 2) * 16);
    load_square(x.inverse, inverse);
    load_square(x.rest, inverse + 512);
}

// vn', rounded, of u = S' kd', anchored.
template <class S>
__device__ __forceinline__ void new_values(const chunk_values &x, const float (&u)[16], unsigned (&vn)[4])
{
    using T = typename S::element;
    unsigned a[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 value = to_float2<T>(x.v[i]);
        a[i] =
            pack2<T>(fmaf(-1.f / S::row_anchor, u[2 * i], value.x), fmaf(-1.f / S::row_anchor, u[2 * i + 1], value.y));
    }
    float d[2][4] = {};
    multiply_square<T>(d, a, x.inverse);
    multiply_square<T>(d, a, x.rest);
#pragma unroll
    for (int i = 0; i < 4; i++)
        vn[i] = pack2<T>(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
}

// The warp's 16 rows of o', of `count` tokens from `first` on; `place` is its own.
template <class S>
__device__ __forceinline__ void store_output(const gen_kda_inter_params &p, const block<S> &b, const float (&o)[2][4],
                                             unsigned norms, unsigned place, int first, int row)
{
    using T = typename S::element;
    const int lane = threadIdx.x % 32;
    unsigned x[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float2 norm = make_float2(1.f, 1.f);
        if constexpr (T::is_bf16)
            norm = ld_shared_v2_f32(norms + n * 32 + lane % 4 * 8);
        x[2 * n] = pack2<T>(o[n][0] * norm.x, o[n][1] * norm.y);
        x[2 * n + 1] = pack2<T>(o[n][2] * norm.x, o[n][3] * norm.y);
    }
    __syncwarp(); // the last chunk's are read
    stmatrix_x4_trans(place + lane / 8 % 2 * 256 + (lane / 16 * 8 + lane % 8) * 16, x);
    __syncwarp();
    const int token = first + lane / 2;
    ld_shared_v4_u32(place + lane % 2 * 256 + lane / 2 * 16, x[0], x[1], x[2], x[3]);
    if (token < b.sequence.length)
        st_global_v4_u32(static_cast<unsigned short *>(p.o) + (b.sequence.first + token) * p.o_stride +
                             b.head * S::head_dim + row + lane % 2 * 8,
                         x);
}

// By a lane of each warp.
template <class S> __device__ __forceinline__ void release(const block<S> &b, const handed<S> &from, int warp)
{
    if (from.own) {
        mbarrier_arrive(b.empty(from.team));
        return;
    }
    if (warp == 0) // before all of them have let the other block send the next
        mbarrier_arrive_expect_tx(from.full, S::made_bytes + S::v_half);
    mbarrier_arrive_remote(cluster_address(b.empty(from.team), b.part ^ 1));
}

template <class S> __device__ __forceinline__ void recur(const gen_kda_prefill_params &p, const block<S> &b, int group)
{
    using T = typename S::element;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first_row = (b.part * S::groups + group) * 64 + warp * 16, row = first_row + lane / 4; // of S'
    const unsigned place = b.base + S::outputs + (group * 4 + warp) * 512;
    kda_inter::work<S> state;
    state.n = b.n, state.head = b.head;
    float s[64];
    kda_inter::load_state(p.out, state, row, s);
    const int before = p.out.states ? kda_chunks_before(p.in.sequences, b.n) : 0, chunks = b.chunks();
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        const handed<S> from(b, chunk);
        unsigned a[8][4], vn[1][4];
        round_operand<T>(s, a);
        if (p.out.states && chunk % (KDA_CHUNK / tokens) == 0)
            kda_inter::store_states(p.out, state, before + chunk / (KDA_CHUNK / tokens), row, a);
        float u[16];
#pragma unroll
        for (int i = 0; i < 16; i++)
            u[i] = 0.f;
        mbarrier_wait(from.full, from.turn);
        const unsigned long long rows = wgmma_descriptor(from.operands + S::rows, 0, 1024);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; k++)
            wgmma_n32_regs<T>(u, a[k], rows + ((k / 4 * S::half + k % 4 * 32) >> 4));
        wgmma_commit_group();
        chunk_values values;
        constexpr int early = 7; // as many as there are registers for
        float4 decays[early], others[8 - early];
        load_decays<0>(decays, from.operands + S::decay);
        wgmma_wait_group<0>();
        wgmma_fence_registers(u);
        load_values<S>(values, from.values, from.operands + S::inverse, group);
        load_decays<early>(others, from.operands + S::decay);
        new_values<S>(values, u, vn[0]);
        decay_columns<0>(decays, s);
        decay_columns<early>(others, s);
        wgmma_fence();
        wgmma_n128_regs<T, true>(s, vn[0], wgmma_descriptor(from.operands + S::columns, S::half, 1024));
        wgmma_commit_group();
        unsigned scores[4];
        load_square(scores, from.operands + S::scores);
        float o[2][4];
#pragma unroll
        for (int i = 0; i < 8; i++)
            o[i / 4][i % 4] = u[8 + i];
        multiply_square<T>(o, vn[0], scores);
        store_output(p.out, b, o, from.norms, place, chunk * tokens, first_row);
        wgmma_wait_group<0>();
        wgmma_fence_registers(s);
        __syncwarp();
        if (lane == 0)
            release(b, from, warp);
    }
    kda_inter::store_state(p.out, state, row, s);
}

} // namespace kda_prefill
