// Kimi Delta Attention inside a chunk (args.h): eight warps work out one chunk of one value head.
//
// 2^(G_i - G_j) is a product of a row's and a column's factor, so that tensor cores can multiply. With b_r the cumulated
// gate (base 2) at the end of the r-th 16 rows, i in block r and j in block s, it is
//
//     2^(G_i - b_(r-1)) * 2^(b_(r-1) - b_s) * 2^(b_s - G_j)
//
// The outer two are at most 1 whatever the gates, and each is worked out once. Of the middle one there are few: 1 for
// neighbours, at most 1 for blocks further apart, and for r = s it is 2^(b_(r-1) - b_r), up to 2^115 with gates of -5. So
// bf16 and fp32 hold them all, and what underflows is negligible. It multiplies the columns' operand, in fp32.
//
// X = (I + A_kk)^-1: its diagonal blocks by elimination in fp32, a warp each; the others column of blocks by column, in
// registers, transposed, so that each product's result is the next one's operand:
// X_rc' = -(sum over c <= m < r of X_mc' L_rm') X_rr'.
#pragma once

#include "kda_intra/args.h"
#include "kda_intra/sequences.cuh"
#include "lib/approx.cuh"
#include "lib/half.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"
#include "lib/reduce.cuh"
#include "lib/store.cuh"
#include "lib/swizzle.cuh"

template <class element, int head_dim> struct kda_intra_chunk {
    static constexpr int threads = 256;
    static constexpr int rows = KDA_CHUNK, cell = rows * 128;          // bytes of 64 rows x 64 columns
    static constexpr int tile = head_dim / 64 * cell;
    static constexpr int own = rows / (threads / 32);                  // rows of a warp
    static constexpr int channels = head_dim / 32;                     // of a lane, of each of its rows
    static constexpr int words = channels / 2;
    static constexpr float log2_e = 1.44269504088896341f;
    static_assert(own == 8, "two warps to 16 rows");

    // Shared memory. What is behind a slash comes later.
    static constexpr int q_rows = 0;                                   // q; q 2^(G - b) / k 2^G
    static constexpr int k_rows = q_rows + tile;                       // k; k 2^(G - b)
    static constexpr int k_columns = k_rows + tile;                    // k 2^(b - G) / -w
    static constexpr int values = k_columns + tile;                    // v
    static constexpr int lower = values + tile;                        // A_kk, fp16; its diagonal blocks hold those of X', fp16
    static constexpr int inverse = lower + cell;                       // diag(beta) X'
    static constexpr int sums = inverse + cell;                        // of gates, by warp and channel / A_kk' of diagonal blocks, fp32
    static constexpr int middle = sums + 4096;                         // 7 vectors of middle factors
    static constexpr int betas = middle + 7 * head_dim * 4;
    static constexpr int shared = betas + rows * 4;

    // What the threads work on. Their number is asked for anew for every chunk, lest all that follows of it be kept in
    // registers from one to the next.
    struct block_work {
        unsigned base;        // shared address
        kda_chunk chunk;
        int head;
        long long record;     // slot and head
        int thread;
    };

    // Vectors of middle factors: block r with itself at r, then (2, 0), (3, 1), (3, 0); -1: 1.
    static __device__ __forceinline__ int middle_vector(int r, int s)
    {
        return r == s ? r : r - s == 1 ? -1 : r == 2 ? 4 : s == 1 ? 5 : 6;
    }

    // Of a matrix of rows of 128 bytes, in cells of 64 rows, chunk of 16 bytes `chunk` of row `row`.
    static __device__ __forceinline__ unsigned chunk_at(unsigned base, int row, int chunk)
    {
        return swizzled<128>(base + chunk / 8 * cell, row, chunk % 8);
    }

    // Four 8 x 8 matrices of 16-bit elements: rows row + 8 (i % 2), chunks chunk + i / 2 in matrix i ...
    static __device__ __forceinline__ void load_rows_first(unsigned (&x)[4], const block_work &b, int matrix, int row, int chunk)
    {
        const int lane = b.thread % 32;
        ldmatrix_x4(x, chunk_at(b.base + matrix, row + lane % 16, chunk + lane / 16));
    }

    // ... or rows row + 8 (i / 2), chunks chunk + i % 2.
    static __device__ __forceinline__ void load_chunks_first(unsigned (&x)[4], const block_work &b, int matrix, int row, int chunk)
    {
        const int lane = b.thread % 32;
        ldmatrix_x4(x, chunk_at(b.base + matrix, row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
    }

    static __device__ __forceinline__ void load_rows_first_trans(unsigned (&x)[4], const block_work &b, int matrix, int row, int chunk)
    {
        const int lane = b.thread % 32;
        ldmatrix_x4_trans(x, chunk_at(b.base + matrix, row + lane % 16, chunk + lane / 16));
    }

    static __device__ __forceinline__ void load_chunks_first_trans(unsigned (&x)[4], const block_work &b, int matrix, int row, int chunk)
    {
        const int lane = b.thread % 32;
        ldmatrix_x4_trans(x, chunk_at(b.base + matrix, row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
    }

    // ---- inputs ----

    // A lane's channels of one row.
    struct lane_channels {
        unsigned word[words];
    };

    static __device__ __forceinline__ lane_channels load_channels(const void *from, bool valid)
    {
        lane_channels x;
        if constexpr (words == 2) {
            uint2 both = make_uint2(0, 0);
            if (valid)
                both = load_global_8(from);
            x.word[0] = both.x, x.word[1] = both.y;
        } else {
            x.word[0] = valid ? static_cast<unsigned>(load_global(static_cast<const int *>(from))) : 0;
        }
        return x;
    }

    template <class T> static __device__ __forceinline__ void unpack(const lane_channels &from, float (&x)[channels])
    {
#pragma unroll
        for (int i = 0; i < words; i++) {
            const float2 both = to_float2<T>(from.word[i]);
            x[2 * i] = both.x, x[2 * i + 1] = both.y;
        }
    }

    template <class T> static __device__ __forceinline__ lane_channels pack(const float (&x)[channels])
    {
        lane_channels to;
#pragma unroll
        for (int i = 0; i < words; i++)
            to.word[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
        return to;
    }

    // Where a lane's channels of the warp's first row lie in a matrix. Of its i-th row it is that, XORed with 16 i, + 128 i.
    static __device__ __forceinline__ unsigned lane_offset(const block_work &b)
    {
        const int byte = b.thread % 32 * channels * 2;
        return byte / 128 * cell + b.thread / 32 * (own * 128) + byte % 128;
    }

    static __device__ __forceinline__ void store_channels(unsigned base, unsigned offset, int i, const lane_channels &x)
    {
        const unsigned at = base + (offset ^ i * 16) + i * 128;
        if constexpr (words == 2)
            asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(at), "r"(x.word[0]), "r"(x.word[1]) : "memory");
        else
            store_shared(at, x.word[0]);
    }

    static __device__ __forceinline__ lane_channels load_shared_channels(unsigned base, unsigned offset, int i)
    {
        const unsigned at = base + (offset ^ i * 16) + i * 128;
        lane_channels x;
        if constexpr (words == 2)
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.word[0]), "=r"(x.word[1]) : "r"(at) : "memory");
        else
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x.word[0]) : "r"(at) : "memory");
        return x;
    }

    // To a tile in global memory.
    static __device__ __forceinline__ void store_channels(void *base, unsigned offset, int i, const lane_channels &x)
    {
        unsigned char *const at = static_cast<unsigned char *>(base) + (offset ^ i * 16) + i * 128;
        if constexpr (words == 2)
            store_global_8(reinterpret_cast<float *>(at), __uint_as_float(x.word[0]), __uint_as_float(x.word[1]));
        else
            *reinterpret_cast<unsigned *>(at) = x.word[0];
    }

    static __device__ __forceinline__ void load_floats(const float *from, float (&x)[channels])
    {
#pragma unroll
        for (int i = 0; i < channels; i++)
            x[i] = load_global(from + i);
    }

    static __device__ __forceinline__ void load_shared_floats(unsigned from, float (&x)[channels])
    {
#pragma unroll
        for (int i = 0; i < channels; i += 2)
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[i]), "=f"(x[i + 1]) : "r"(from + 4 * i) : "memory");
    }

    static __device__ __forceinline__ void store_shared_floats(unsigned to, const float (&x)[channels])
    {
#pragma unroll
        for (int i = 0; i < channels; i += 2)
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to + 4 * i), "f"(x[i]), "f"(x[i + 1]) : "memory");
    }

    static __device__ __forceinline__ float load_shared_float(unsigned from)
    {
        float x;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
        return x;
    }

    static __device__ __forceinline__ void store_shared_float(unsigned to, float x)
    {
        asm volatile("st.shared.f32 [%0], %1;" :: "r"(to), "f"(x) : "memory");
    }

    static __device__ __forceinline__ float activate_beta(const gen_kda_intra_params &p, float x)
    {
        if (p.beta_activation == 0)
            return x;
        return (p.beta_activation == 2 ? 2.f : 1.f) * rcp_fast(1.f + exp2_fast(-log2_e * x));
    }

    // The warp's rows of q, k or v, or zeros, on their way to where the operand made of them will be.
    static __device__ __forceinline__ void copy_rows(unsigned to, const void *from, long long stride, const block_work &b, int head)
    {
        const int lane = b.thread % 32, first = b.thread / 32 * own;
        constexpr int chunks = head_dim / 8, at_once = 32 / chunks; // of a row; rows
        const unsigned short *const x = static_cast<const unsigned short *>(from) + b.chunk.first * stride + head * head_dim + lane % chunks * 8;
#pragma unroll
        for (int i = 0; i < own; i += at_once) {
            const int row = first + i + lane / chunks;
            const bool valid = row < b.chunk.rows;
            cp_async_16_or_zero(chunk_at(to, row, lane % chunks), x + (valid ? row : 0) * stride, valid);
        }
    }

    // What the gates of the warp's rows are made of.
    struct gate_inputs {
        float x[own][channels]; // 16-bit ones are packed in the first places until they are needed
        float bias[channels], log_rate; // exp(log_rate) multiplies x + bias
    };

    static __device__ __forceinline__ void load_gates(const gen_kda_intra_params &p, const block_work &b, gate_inputs &g)
    {
        const int lane = b.thread % 32, first = b.thread / 32 * own;
        const long long at = (b.chunk.first + first) * p.g_stride + b.head * head_dim + lane * channels;
        const int valid = b.chunk.rows - first; // of the warp's rows
        if (p.gate_fp32) {
            const float *from = static_cast<const float *>(p.g) + at;
#pragma unroll
            for (int i = 0; i < own; i++, from += p.g_stride) {
#pragma unroll
                for (int c = 0; c < channels; c++)
                    g.x[i][c] = 0.f;
                if (i < valid)
                    load_floats(from, g.x[i]);
            }
        } else {
            const unsigned short *from = static_cast<const unsigned short *>(p.g) + at;
#pragma unroll
            for (int i = 0; i < own; i++, from += p.g_stride) {
                const lane_channels packed = load_channels(from, i < valid);
#pragma unroll
                for (int n = 0; n < words; n++)
                    g.x[i][n] = __uint_as_float(packed.word[n]);
            }
        }
        g.log_rate = p.A_log ? load_global(p.A_log + b.head) : 0.f;
#pragma unroll
        for (int c = 0; c < channels; c++)
            g.bias[c] = 0.f;
        if (p.dt_bias)
            load_floats(p.dt_bias + b.head * head_dim + lane * channels, g.bias);
    }

    // As it stands in memory, in fp32.
    static __device__ __forceinline__ float load_beta(const gen_kda_intra_params &p, const block_work &b, int row)
    {
        const long long at = (b.chunk.first + row) * p.beta_stride + b.head;
        return p.beta_fp32 ? load_global(static_cast<const float *>(p.beta) + at)
                           : to_float<element>(load_global(static_cast<const unsigned short *>(p.beta) + at));
    }

    // 1 / |row| of the warp's rows, that of row i in lane 4 i.
    static __device__ __forceinline__ float norms(const block_work &b, int matrix, bool wanted)
    {
        const unsigned offset = lane_offset(b);
        float square[own];
#pragma unroll
        for (int i = 0; i < own; i++) {
            float x[channels];
            unpack<element>(load_shared_channels(b.base + matrix, offset, i), x);
            square[i] = 0.f;
#pragma unroll
            for (int c = 0; c < channels; c++)
                square[i] = fmaf(x[c], x[c], square[i]);
        }
        reduce_rows<own, 32>(square);
        return wanted ? rsqrt_fast(square[0] + 1e-6f) : 1.f;
    }

    // ---- operands ----

    // Gates, in base 2, become sums from the warp's first row on; rows that do not exist add nothing.
    static __device__ __forceinline__ void sum_gates(const gen_kda_intra_params &p, const block_work &b, gate_inputs &from, float (&g)[own][channels])
    {
        const int lane = b.thread % 32, warp = b.thread / 32, valid = b.chunk.rows - warp * own;
        const float rate = exp2_fast(log2_e * from.log_rate);
        if (!p.gate_fp32)
#pragma unroll
            for (int i = 0; i < own; i++) {
                lane_channels packed;
#pragma unroll
                for (int n = 0; n < words; n++)
                    packed.word[n] = __float_as_uint(from.x[i][n]);
                unpack<element>(packed, from.x[i]);
            }
        if (p.gate == 0) {
            const float slope = -log2_e * rate, bound = p.lower_bound * log2_e;
#pragma unroll
            for (int c = 0; c < channels; c++)
                from.bias[c] *= slope;
#pragma unroll
            for (int i = 0; i < own; i++) {
                const float factor = i < valid ? bound : 0.f;
#pragma unroll
                for (int c = 0; c < channels; c++) {
                    const float sigmoid = rcp_fast(1.f + exp2_fast(fmaf(from.x[i][c], slope, from.bias[c])));
                    g[i][c] = fmaf(factor, sigmoid, i ? g[i - 1][c] : 0.f);
                }
            }
        } else if (p.gate == 1) {
#pragma unroll
            for (int i = 0; i < own; i++) {
                const float factor = i < valid ? -rate : 0.f;
#pragma unroll
                for (int c = 0; c < channels; c++) {
                    const float x = log2_e * (from.x[i][c] + from.bias[c]);
                    const float softplus = x > 20.f * log2_e ? x : log2_fast(1.f + exp2_fast(x));
                    g[i][c] = fmaf(factor, softplus, i ? g[i - 1][c] : 0.f);
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < own; i++) {
                const float factor = i < valid ? log2_e : 0.f;
#pragma unroll
                for (int c = 0; c < channels; c++)
                    g[i][c] = fmaf(factor, from.x[i][c], i ? g[i - 1][c] : 0.f);
            }
        }
        store_shared_floats(b.base + sums + (warp * head_dim + lane * channels) * 4, g[own - 1]);
    }

    // Gates' sums around the warp's 16 rows: before them, of them, behind them; and the warp's share of the middle factors.
    struct gate_sums {
        float before[channels], here[channels], behind[channels];
    };

    static __device__ __forceinline__ void exchange_sums(const gen_kda_intra_params &p, const block_work &b, float (&g)[own][channels], gate_sums &s)
    {
        const int lane = b.thread % 32, warp = b.thread / 32, block = warp / 2;
        float exponent[channels], before_warp[channels]; // of its 16 rows
#pragma unroll
        for (int c = 0; c < channels; c++)
            s.before[c] = s.here[c] = s.behind[c] = exponent[c] = before_warp[c] = 0.f;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float first[channels], second[channels];
            load_shared_floats(b.base + sums + (2 * r * head_dim + lane * channels) * 4, first);
            load_shared_floats(b.base + sums + ((2 * r + 1) * head_dim + lane * channels) * 4, second);
            // The middle factor of warp `warp` (middle_vector()); the last warp's is the whole chunk's.
            const float part = warp == r ? -1.f : warp == 7 || (warp > 3 && ((r == 1 && warp != 5) || (r == 2 && warp != 4))) ? 1.f : 0.f;
#pragma unroll
            for (int c = 0; c < channels; c++)
                before_warp[c] = warp == 2 * r + 1 ? first[c] : before_warp[c];
#pragma unroll
            for (int c = 0; c < channels; c++) {
                const float sum = first[c] + second[c];
                if (r < block)
                    s.before[c] += sum;
                else if (r == block)
                    s.here[c] = sum;
                else
                    s.behind[c] += sum;
                exponent[c] = fmaf(part, sum, exponent[c]);
            }
        }
        float factor[channels];
#pragma unroll
        for (int c = 0; c < channels; c++) {
            factor[c] = exp2_fast(exponent[c]);
#pragma unroll
            for (int i = 0; i < own; i++)
                g[i][c] += before_warp[c];
        }
        if (warp < 7)
            store_shared_floats(b.base + middle + (warp * head_dim + lane * channels) * 4, factor);
        else
#pragma unroll
            for (int c = 0; c < channels; c++)
                p.decay[b.record * head_dim + lane * channels + c] = factor[c];
    }

    // Operands of the scores to shared memory; qg and kg are done; what w is made of stays in kb.
    static __device__ __forceinline__ void make_operands(const gen_kda_intra_params &p, const block_work &b, const float (&g)[own][channels],
                                                  const gate_sums &s, lane_channels (&kb)[own])
    {
        const unsigned offset = lane_offset(b);
        const float q_norms = norms(b, q_rows, p.l2_norm != 0), k_norms = norms(b, k_rows, p.l2_norm != 0);
        float before[channels], behind[channels], q_before[channels];
#pragma unroll
        for (int c = 0; c < channels; c++) {
            before[c] = exp2_fast(s.before[c]);
            behind[c] = exp2_fast(s.behind[c]);
            q_before[c] = before[c] * p.scale;
        }
        unsigned short *const qg = static_cast<unsigned short *>(p.qg) + b.record * (rows * head_dim);
        unsigned short *const kg = static_cast<unsigned short *>(p.kg) + b.record * (rows * head_dim);
#pragma unroll
        for (int i = 0; i < own; i++) {
            const float q_norm = __shfl_sync(0xffffffffu, q_norms, i * (32 / own)), k_norm = __shfl_sync(0xffffffffu, k_norms, i * (32 / own));
            float q[channels], k[channels], x[channels];
            unpack<element>(load_shared_channels(b.base + q_rows, offset, i), q);
            unpack<element>(load_shared_channels(b.base + k_rows, offset, i), k);
#pragma unroll
            for (int c = 0; c < channels; c++) {
                const float row = exp2_fast(g[i][c]);
                q[c] *= q_norm * row;
                k[c] *= k_norm;
                x[c] = k[c] * exp2_fast(s.here[c] - g[i][c]);
                k[c] *= row;
            }
            store_channels(b.base + q_rows, offset, i, pack<bf16>(q));
            store_channels(b.base + k_rows, offset, i, pack<bf16>(k));
            store_channels(b.base + k_columns, offset, i, pack<bf16>(x));
#pragma unroll
            for (int c = 0; c < channels; c++) {
                q[c] *= q_before[c];
                x[c] *= behind[c];
                k[c] *= before[c];
            }
            store_channels(qg, offset, i, pack<element>(q));
            store_channels(kg, offset, i, pack<element>(x));
            kb[i] = pack<element>(k);
        }
    }

    // ---- scores ----

    // A word of B, of channels d and d + 1, times their middle factors.
    static __device__ __forceinline__ unsigned times(unsigned word, float2 factor)
    {
        const float2 x = to_float2<bf16>(word);
        return pack2<bf16>(x.x * factor.x, x.y * factor.y);
    }

    static __device__ __forceinline__ float2 load_shared_float2(unsigned from)
    {
        float2 x;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from) : "memory");
        return x;
    }

    template <bool scaled>
    static __device__ __forceinline__ void multiply_scores(const block_work &b, int r, int s, unsigned factors, float (&aq)[2][4], float (&ak)[2][4])
    {
#pragma unroll
        for (int step = 0; step < head_dim / 16; step++) {
            unsigned q[4], k[4], columns[4];
            load_chunks_first(columns, b, k_columns, 16 * s, 2 * step);
            load_rows_first(q, b, q_rows, 16 * r, 2 * step);
            load_rows_first(k, b, k_rows, 16 * r, 2 * step);
            if constexpr (scaled) {
                const float2 low = load_shared_float2(factors + step * 64), high = load_shared_float2(factors + step * 64 + 32);
                columns[0] = times(columns[0], low);
                columns[1] = times(columns[1], high);
                columns[2] = times(columns[2], low);
                columns[3] = times(columns[3], high);
            }
#pragma unroll
            for (int n = 0; n < 2; n++) {
                mma_m16n8k16<bf16>(aq[n], q, columns[2 * n], columns[2 * n + 1]);
                mma_m16n8k16<bf16>(ak[n], k, columns[2 * n], columns[2 * n + 1]);
            }
        }
    }

    // 16 x 16 of both score matrices: rows of block r, columns of block s.
    static __device__ __forceinline__ void score_block(const gen_kda_intra_params &p, const block_work &b, int r, int s)
    {
        const int lane = b.thread % 32, row = 16 * r + lane / 4, column = 16 * s + lane % 4 * 2;
        const int vector = middle_vector(r, s);
        const unsigned factors = b.base + middle + (vector * head_dim + lane % 4 * 2) * 4;
        float aq[2][4] = {}, ak[2][4] = {};
        if (vector >= 0)
            multiply_scores<true>(b, r, s, factors, aq, ak);
        else
            multiply_scores<false>(b, r, s, factors, aq, ak);
        const unsigned diagonal = b.base + sums + r * 1024; // transposed, fp32
        unsigned char *const a_qk = static_cast<unsigned char *>(p.a_qk) + b.record * cell;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = row + 8 * h;
            const float beta = load_shared_float(b.base + betas + i * 4);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int j = column + 8 * n;
                const float x = j <= i ? aq[n][2 * h] * p.scale : 0.f, y = j + 1 <= i ? aq[n][2 * h + 1] * p.scale : 0.f;
                *reinterpret_cast<unsigned *>(a_qk + chunk_at(0, i, j / 8) + j % 8 * 2) = pack2<element>(x, y);
                const float l = j < i ? ak[n][2 * h] * beta : 0.f, m = j + 1 < i ? ak[n][2 * h + 1] * beta : 0.f;
                if (r == s) {
                    store_shared_float(diagonal + ((j % 16) * 16 + i % 16) * 4, l);
                    store_shared_float(diagonal + ((j % 16 + 1) * 16 + i % 16) * 4, m);
                } else {
                    store_shared(chunk_at(b.base + lower, i, j / 8) + j % 8 * 2, pack2<fp16>(l, m));
                }
            }
        }
    }

    // Inverts the r-th diagonal block. A lane has a column, and the warp's halves have the same.
    static __device__ __forceinline__ void invert_diagonal(const block_work &b, int r)
    {
        const int lane = b.thread % 32, column = lane % 16;
        float x[16];
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[i] = i == column ? 1.f : 0.f;
#pragma unroll
        for (int l = 0; l < 15; l++) {
            const unsigned from = b.base + sums + r * 1024 + l * 64;
#pragma unroll
            for (int i = (l + 1) / 4 * 4; i < 16; i += 4) {
                const float4 below = load_shared(from + i * 4);
                x[i] = i > l ? fmaf(-below.x, x[l], x[i]) : x[i];
                x[i + 1] = i + 1 > l ? fmaf(-below.y, x[l], x[i + 1]) : x[i + 1];
                x[i + 2] = i + 2 > l ? fmaf(-below.z, x[l], x[i + 2]) : x[i + 2];
                x[i + 3] = i + 3 > l ? fmaf(-below.w, x[l], x[i + 3]) : x[i + 3];
            }
        }
        unsigned word[8];
        const float beta = load_shared_float(b.base + betas + (16 * r + column) * 4);
        if (lane < 16)
#pragma unroll
            for (int i = 0; i < 8; i++)
                word[i] = pack2<fp16>(x[2 * i], x[2 * i + 1]);
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                word[i] = pack2<element>(x[2 * i] * beta, x[2 * i + 1] * beta);
        const unsigned to = b.base + (lane < 16 ? lower : inverse);
        store_shared_16(chunk_at(to, 16 * r + column, 2 * r), word[0], word[1], word[2], word[3]);
        store_shared_16(chunk_at(to, 16 * r + column, 2 * r + 1), word[4], word[5], word[6], word[7]);
    }

    // Blocks below the diagonal of X's c-th column of blocks.
    template <int c> static __device__ __forceinline__ void invert_column(const block_work &b)
    {
        const int lane = b.thread % 32;
        unsigned x[4][4]; // X_mc', as the left operand
        const float beta[2] = {load_shared_float(b.base + betas + (16 * c + lane / 4) * 4), load_shared_float(b.base + betas + (16 * c + lane / 4 + 8) * 4)};
        load_rows_first(x[c], b, lower, 16 * c, 2 * c);
#pragma unroll
        for (int r = c + 1; r < 4; r++) {
            float sum[2][4] = {}, y[2][4] = {};
#pragma unroll
            for (int m = c; m < r; m++) {
                unsigned l[4];
                load_chunks_first(l, b, lower, 16 * r, 2 * m);
                mma_m16n8k16<fp16>(sum[0], x[m], l[0], l[1]);
                mma_m16n8k16<fp16>(sum[1], x[m], l[2], l[3]);
            }
            const unsigned left[4] = {pack2<fp16>(sum[0][0], sum[0][1]), pack2<fp16>(sum[0][2], sum[0][3]),
                                      pack2<fp16>(sum[1][0], sum[1][1]), pack2<fp16>(sum[1][2], sum[1][3])};
            unsigned right[4];
            load_rows_first_trans(right, b, lower, 16 * r, 2 * r);
            mma_m16n8k16<fp16>(y[0], left, right[0], right[1]);
            mma_m16n8k16<fp16>(y[1], left, right[2], right[3]);
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    x[r][2 * n + h] = pack2<fp16>(-y[n][2 * h], -y[n][2 * h + 1]);
                    store_shared(chunk_at(b.base + inverse, 16 * c + lane / 4 + 8 * h, 2 * r + n) + lane % 4 * 4,
                                 pack2<element>(-y[n][2 * h] * beta[h], -y[n][2 * h + 1] * beta[h]));
                }
        }
    }

    // ---- w and u ----

    // A warp has 16 columns of w and 16 rows of u'.
    static __device__ __forceinline__ void multiply_inverse(const gen_kda_intra_params &p, const block_work &b)
    {
        const int lane = b.thread % 32, warp = b.thread / 32;
        float w[4][2][4] = {}, u[4][2][4] = {};
#pragma unroll
        for (int s = 0; s < 4; s++) {
            unsigned k[4], v[4];
            load_rows_first_trans(k, b, q_rows, 16 * s, 2 * warp);
            load_chunks_first_trans(v, b, values, 16 * s, 2 * warp);
#pragma unroll
            for (int r = s; r < 4; r++) {
                unsigned x[4]; // X_rs' as the right operand; its words in another order are X_rs as the left one
                load_rows_first_trans(x, b, inverse, 16 * s, 2 * r);
                mma_m16n8k16<element>(u[r][0], v, x[0], x[1]);
                mma_m16n8k16<element>(u[r][1], v, x[2], x[3]);
                const unsigned left[4] = {x[0], x[2], x[1], x[3]};
                mma_m16n8k16<element>(w[r][0], left, k[0], k[1]);
                mma_m16n8k16<element>(w[r][1], left, k[2], k[3]);
            }
        }
        unsigned short *const to = static_cast<unsigned short *>(p.u) + b.record * (rows * head_dim) + (warp * 4 * 32 + lane) * 8;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const unsigned word[4] = {pack2<element>(u[r][0][0], u[r][0][1]), pack2<element>(u[r][0][2], u[r][0][3]),
                                      pack2<element>(u[r][1][0], u[r][1][1]), pack2<element>(u[r][1][2], u[r][1][3])};
            store_global_16(to + r * 256, word);
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    store_shared(chunk_at(b.base + k_columns, 16 * r + lane / 4 + 8 * h, 2 * warp + n) + lane % 4 * 4,
                                 pack2<element>(-w[r][n][2 * h], -w[r][n][2 * h + 1]));
        }
    }

    // A finished matrix to global memory, as it is, by `count` threads.
    template <int bytes, int count> static __device__ __forceinline__ void copy_out(void *to, unsigned from, int thread)
    {
#pragma unroll
        for (int i = thread * 16; i < bytes; i += count * 16) {
            unsigned x[4];
            load_shared_16(from + i, x[0], x[1], x[2], x[3]);
            store_global_16(static_cast<unsigned char *>(to) + i, x);
        }
    }

    // Everything of one chunk. Its threads are the first of the block, and barrier 4 is theirs.
    static __device__ __forceinline__ void sync() { barrier_sync(4, threads); }

    static __device__ __forceinline__ void run(const gen_kda_intra_params &p, block_work b)
    {
        b.thread = threadIdx.x;
        asm volatile("" : "+r"(b.thread));
        const int warp = b.thread / 32;
        const int qk_head = p.group_mul ? __umulhi(b.head, p.group_mul) >> p.group_shift : b.head;
        gate_inputs gates;
        float g[own][channels];
        lane_channels kb[own];
        gate_sums s;
        load_gates(p, b, gates);
        const float beta = b.thread < b.chunk.rows ? load_beta(p, b, b.thread) : 0.f;
        copy_rows(b.base + k_rows, p.k, p.k_stride, b, qk_head);
        copy_rows(b.base + q_rows, p.q, p.q_stride, b, qk_head);
        cp_async_commit();
        copy_rows(b.base + values, p.v, p.v_stride, b, b.head);
        cp_async_commit();
        sum_gates(p, b, gates, g);
        if (b.thread < rows)
            store_shared_float(b.base + betas + b.thread * 4, b.thread < b.chunk.rows ? activate_beta(p, beta) : 0.f);
        for (int i = b.thread; i < rows * 8; i += threads) // A_qk above the diagonal blocks
            if (i % 8 / 2 > i / 8 / 16) {
                const unsigned zeros[4] = {0, 0, 0, 0};
                store_global_16(static_cast<unsigned char *>(p.a_qk) + b.record * cell + chunk_at(0, i / 8, i % 8), zeros);
            }
        cp_async_wait<1>();
        sync();
        exchange_sums(p, b, g, s);
        make_operands(p, b, g, s, kb);
        sync();

        // Diagonal blocks go to the first four warps, which invert them; the others' are told by a nibble each.
        unsigned units = warp < 4 ? 0x10 + 5 * warp : warp == 4 ? 0x184 : warp == 5 ? 0x1c9 : warp == 6 ? 0x1e : 0x1d;
#pragma unroll 1
        for (; units > 1; units >>= 4)
            score_block(p, b, units / 4 % 4, units % 4);
        if (warp < 4) {
            __syncwarp();
            invert_diagonal(b, warp);
        }
        cp_async_wait<0>(); // values
        sync();

#pragma unroll
        for (int i = 0; i < own; i++)
            store_channels(b.base + q_rows, lane_offset(b), i, kb[i]);
        if (warp == 0)
            invert_column<0>(b);
        else if (warp == 1)
            invert_column<1>(b);
        else if (warp == 2)
            invert_column<2>(b);
        sync();

        if (warp < head_dim / 16)
            multiply_inverse(p, b);
        sync();
        copy_out<tile, threads>(static_cast<unsigned char *>(p.w) + b.record * tile, b.base + k_columns, b.thread);
    }
};
