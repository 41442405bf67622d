// The state of Kimi Delta Attention from chunk to chunk (args.h), of 64 columns of V of one sequence and value head, which are a
// block's: what both kernels share.
//
// The state is held transposed, V x K, in the accumulators of the products that add to it, those of four warps. Rounded, an
// accumulator is the next product's left operand as it stands, so nothing of the chain goes through shared memory:
//
//     -vn' = -u' + S' w'      S' = S' diag(decay) + vn' kg
//
// A lane has, of a warp's 16 rows, rows lane / 4 and lane / 4 + 8, columns 8 n + 2 (lane % 4) + {0, 1} in elements 4 n to 4 n + 3:
// for mma.sync as for wgmma.
#pragma once

#include "kda/products.cuh"
#include "kda/tile.cuh"
#include "kda_chunk_h/args.h"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"
#include "lib/transpose.cuh"

template <class element, int head_dim, bool wgmma> struct kda_states {
    using products = kda_products<element, head_dim, wgmma, true>;
    static constexpr int rows = kda_stage::rows, cell = kda_stage::cell, tile = head_dim / 64 * cell;
    // That compute, and that load and store: the same or others.
    static constexpr int threads = 128;
    static constexpr int part = 64, parts = head_dim / part; // columns of V of a block; blocks of a head

    // A stage holds the operands of a chunk; the results, S and v_new, are rounded. Without stmatrix both results lie
    // as they are computed: a row for each of 64 columns of V, of K and of tokens. With it they lie as they are stored:
    // rows of K and of tokens with 64 columns of V each, but for S where V x K is wanted.
    static constexpr int w = 0, kg = tile, u = 2 * tile, stage_bytes = 2 * tile + cell;
    static constexpr int new_values = tile, made_bytes = tile + cell;
    static constexpr int decay_bytes = head_dim * 4; // of a chunk

    struct work {
        unsigned base;
        kda_sequence sequence;
        int head, first_v, first_chunk; // of V, the first column
        long long stride;               // between tokens
    };

    // By whole warps.
    static __device__ __forceinline__ work work_of(const gen_kda_chunk_h_params &p, const void *memory)
    {
        work b;
        b.base = shared_address(memory);
        b.sequence = kda_sequence_at(p.shape.sequences, blockIdx.y);
        b.head = blockIdx.x / parts;
        b.first_v = blockIdx.x % parts * part;
        b.stride = static_cast<long long>(p.shape.num_v_heads) * head_dim;
        b.first_chunk = __shfl_sync(0xffffffffu, kda_chunks_before(p.shape.sequences, blockIdx.y), 0);
        return b;
    }

    // ---- operands ----

    // A chunk's, to a stage.
    static __device__ __forceinline__ void issue_chunk(const gen_kda_chunk_h_params &p, const work &b, int chunk,
                                                       unsigned stage)
    {
        constexpr int count = rows / (threads / 32);
        const int row = threadIdx.x % threads / 32 * count, valid = b.sequence.length - chunk * rows;
        const long long at = (b.sequence.first + static_cast<long long>(chunk) * rows) * b.stride + b.head * head_dim;
        kda_stage::copy_rows<head_dim, count>(stage + w, static_cast<const unsigned short *>(p.w) + at, b.stride, row,
                                              valid);
        kda_stage::copy_rows<part, count>(stage + u, static_cast<const unsigned short *>(p.u) + at + b.first_v,
                                          b.stride, row, valid);
        kda_stage::copy_rows<head_dim, count>(stage + kg, static_cast<const unsigned short *>(p.kg) + at, b.stride, row,
                                              valid);
    }

    // The chunk's last row of the cumulated gates, a thread's channel.
    static __device__ __forceinline__ float last_gate(const gen_kda_chunk_h_params &p, const work &b, int chunk)
    {
        static_assert(threads >= head_dim, "a thread to a channel");
        const int channel = threadIdx.x % threads, last = min((chunk + 1) * rows, b.sequence.length) - 1;
        return channel < head_dim && last >= chunk * rows
                   ? ld_global(p.gk + (b.sequence.first + last) * b.stride + b.head * head_dim + channel)
                   : 0.f;
    }

    static __device__ __forceinline__ void put_decay(unsigned to, float gate)
    {
        const int channel = threadIdx.x % threads;
        if (channel < head_dim)
            st_shared_f32(to + channel * 4, exp2_fast(gate));
    }

    // ---- what goes out ----

    // Copies `count` rows of a tile of `columns`, `stride` elements apart, of which the first `valid` exist.
    // (kda_stage::copy_out has 64 rows and one load of a thread in flight, and waits for each.)
    template <int columns, int count>
    static __device__ __forceinline__ void copy_out(void *to, unsigned from, long long stride, int valid)
    {
        constexpr int chunks = columns / 8, at_once = threads / chunks, batch = 4;
        static_assert(count % (at_once * batch) == 0, "no rest");
        const int chunk = threadIdx.x % chunks, first = threadIdx.x % threads / chunks;
        unsigned short *x = static_cast<unsigned short *>(to) + first * stride + chunk * 8;
#pragma unroll
        for (int row = 0; row < count; row += at_once * batch) {
            unsigned word[batch][4]; // read together, for a store waits for its own
#pragma unroll
            for (int i = 0; i < batch; i++) {
                const int line = row + first + i * at_once; // of 64 columns a cell has any number of rows
                ld_shared_v4_u32(columns > 64 ? kda_stage::chunk_at(from, line, chunk)
                                              : swizzled<128>(from, line, chunk),
                                 word[i][0], word[i][1], word[i][2], word[i][3]);
            }
#pragma unroll
            for (int i = 0; i < batch; i++, x += at_once * stride)
                if (row + first + i * at_once < valid)
                    st_global_v4_u32(x, word[i]);
        }
    }

    // A tile of 64 rows (columns of V), transposed: `count` rows of 64 elements, `stride` apart, the first `valid` of them.
    template <int count>
    static __device__ __forceinline__ void store_transposed(void *to, unsigned from, long long stride, int valid)
    {
        constexpr int warps = threads / 32;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < count / 8 / warps; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int octet = threadIdx.x % threads / 32 + warps * i;
                unsigned x[4];
                ldmatrix_x4_trans(x, kda_stage::chunk_at(from, 32 * half + lane, octet));
                transpose_quad(x);
                const int row = 8 * octet + lane / 4;
                if (row < valid)
                    st_global_v4_u32(static_cast<unsigned short *>(to) + row * stride + 32 * half + lane % 4 * 8, x);
            }
    }

    // `count` rows of 64 columns of V.
    template <int count>
    static __device__ __forceinline__ void store_rows(void *to, unsigned from, long long stride, int valid)
    {
        if constexpr (wgmma)
            copy_out<part, count>(to, from, stride, valid);
        else
            store_transposed<count>(to, from, stride, valid);
    }

    // What a chunk has made: its new values ...
    static __device__ __forceinline__ void store_values(const gen_kda_chunk_h_params &p, const work &b, int chunk,
                                                        unsigned from)
    {
        const long long token = b.sequence.first + static_cast<long long>(chunk) * rows;
        store_rows<rows>(static_cast<unsigned short *>(p.v_new) + token * b.stride + b.head * head_dim + b.first_v,
                         from, b.stride, b.sequence.length - chunk * rows);
    }

    // ... and its state, where there is room for it: sums of wrong lengths can be negative.
    static __device__ __forceinline__ void store_state_tile(const gen_kda_chunk_h_params &p, const work &b, int chunk,
                                                            unsigned from)
    {
        const int number = b.first_chunk + chunk;
        if (static_cast<unsigned>(number) >= static_cast<unsigned>(p.num_chunks))
            return;
        unsigned short *const h =
            static_cast<unsigned short *>(p.h) +
            (static_cast<long long>(number) * p.shape.num_v_heads + b.head) * (head_dim * head_dim);
        if (p.state_vk)
            copy_out<head_dim, part>(h + b.first_v * head_dim, from, head_dim, part);
        else
            store_rows<head_dim>(h + b.first_v, from, head_dim, head_dim);
    }

    static __device__ __forceinline__ void store_chunk(const gen_kda_chunk_h_params &p, const work &b, int chunk,
                                                       unsigned made)
    {
        store_values(p, b, chunk, made + new_values);
        store_state_tile(p, b, chunk, made);
    }

    // ---- the state and its products ----

    // f(element of the accumulator, where it is in its state).
    template <class F>
    static __device__ __forceinline__ void each_element(const gen_kda_chunk_h_params &p, const work &b, F f)
    {
        const int lane = threadIdx.x % 32, k = lane % 4 * 2, v = b.first_v + threadIdx.x / 32 % 4 * 16 + lane / 4;
        const int first = p.state_vk ? v * head_dim + k : k * head_dim + v;
        if (p.state_vk) // each way by itself, so that an element's distance from the first is a constant
#pragma unroll
            for (int i = 0; i < head_dim / 2; i++)
                f(i, first + i / 4 * 8 + i % 2 + i / 2 % 2 * 8 * head_dim);
        else
#pragma unroll
            for (int i = 0; i < head_dim / 2; i++)
                f(i, first + (i / 4 * 8 + i % 2) * head_dim + i / 2 % 2 * 8);
    }

    // The block's state in a tensor of them.
    static __device__ __forceinline__ long long state_of(const gen_kda_chunk_h_params &p, const work &b)
    {
        return (static_cast<long long>(blockIdx.y) * p.shape.num_v_heads + b.head) * (head_dim * head_dim);
    }

    static __device__ __forceinline__ void load_state(const gen_kda_chunk_h_params &p, const work &b,
                                                      float (&s)[head_dim / 2])
    {
#pragma unroll
        for (int i = 0; i < head_dim / 2; i++)
            s[i] = 0.f;
        if (const float *const from = p.initial_state)
            each_element(p, b, [&](int i, int at) { s[i] = ld_global(from + state_of(p, b) + at); });
    }

    static __device__ __forceinline__ void store_state(const gen_kda_chunk_h_params &p, const work &b,
                                                       const float (&s)[head_dim / 2])
    {
        if (float *const to = p.final_state)
            each_element(p, b, [&](int i, int at) { to[state_of(p, b) + at] = s[i]; });
    }

    // A left operand as a tile, its 64 rows columns of V, or transposed.
    template <int steps>
    static __device__ __forceinline__ void put(unsigned to, const unsigned (&x)[steps][4], bool transposed)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int k = 0; k < steps; k++) {
            if constexpr (wgmma) { // matrix i: columns 8 (i / 2) of the step's, rows 8 (i % 2) of the warp's
                if (transposed)
                    stmatrix_x4_trans(swizzled<128>(to, 16 * k + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2),
                                      x[k]);
                else
                    stmatrix_x4(kda_stage::chunk_at(to, 16 * warp + lane % 16, 2 * k + lane / 16), x[k]);
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    st_shared_u32(kda_stage::chunk_at(to, 16 * warp + lane / 4 + i % 2 * 8, 2 * k + i / 2) +
                                      lane % 4 * 4,
                                  x[k][i]);
            }
        }
    }

    // u' of the warp's rows, or -u'.
    template <bool negative = true> static __device__ __forceinline__ void load_values(unsigned from, float (&vn)[32])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int n = 0; n < 4; n++) { // tokens 16 n + 8 (i / 2), columns 16 warp + 8 (i % 2) in matrix i
            unsigned x[4];
            ldmatrix_x4_trans(x, kda_stage::chunk_at(from, 16 * n + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 both = to_float2<element>(x[i] ^ (negative ? 0x80008000u : 0));
                vn[8 * n + 2 * i] = both.x, vn[8 * n + 2 * i + 1] = both.y;
            }
        }
    }

    // A chunk that is there: S', and what goes out to `made`.
    static __device__ __forceinline__ void step(unsigned stage, unsigned decays, unsigned made, bool vk,
                                                float (&s)[head_dim / 2])
    {
        unsigned left[head_dim / 16][4], new_left[4][4];
        float vn[32];
        products::round_operand(s, left);
        load_values(stage + u, vn);
        products::decay_columns(decays,
                                s); // here, for between the products ptxas waits for the state's registers (C7517)
        products::fence();
        products::times_rows(vn, left, stage + w);
        put(made, left, !vk); // while the product is made
        products::template finish<0>(vn);
        products::template round_operand<true>(vn, new_left);
        products::fence();
        products::template times_columns<0>(s, new_left, stage + kg);
        put(made + new_values, new_left, true);
        products::template finish<0>(s);
    }
};
