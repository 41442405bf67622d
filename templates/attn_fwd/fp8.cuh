// The softmax of 8-bit attention, descales, and the output's way to memory as one of two types.
#pragma once

#include "attn_fwd/output.cuh"
#include "attn_fwd/tiles.cuh"
#include "lib/fp8.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"

// What a tile's products are multiplied by; [request, key head] each, 1 where there are none.
__device__ __forceinline__ float attn_descale(const gen_attn_fwd_params &p, const float *descales, const attn_tile &t)
{
    const int kv_heads = static_cast<unsigned>(p.num_q_heads) / p.group;
    return descales ? ld_global(descales + static_cast<long long>(t.request) * kv_heads + t.kv_head) : 1.f;
}

__device__ __forceinline__ float attn_score_descale(const gen_attn_fwd_params &p, const attn_tile &t)
{
    return attn_descale(p, p.q_descale, t) * attn_descale(p, p.k_descale, t);
}

// attn_cap() of tiles.cuh with another factor than the launch's.
template <int n> __device__ __forceinline__ void attn_cap_scaled(float (&s)[n], float cap_scale)
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        s[i] = fmaf(-2.f, rcp_fast(1.f + exp2_fast(s[i] * cap_scale)), 1.f);
    }
}

// Probabilities as e4m3: 2^(s - M + offset), so that all of e4m3's range is used, whose least number is 2^-9 and whose greatest 448.
// While a thread's probabilities of a row and block sum to no more than 448, none of them is beyond it. The offset leaves them room
// for that and cancels in the end.
//
// Scores are in the layout of accumulators. A word is four keys of a row, in the order in which a thread has them of
// two groups of eight: 2 q, 2 q + 1, 8 + 2 q, 9 + 2 q, lane q of four. As the left operand of the next product they stand for
// columns 4 q to 4 q + 3 of sixteen: its right operand's rows are in that order, too.
struct attn_e4m3 {
    static constexpr float most_sum = 448.f, offset = 4.f;
    static constexpr int in_word = 4;

    template <int n>
    static __device__ __forceinline__ void find(const float (&s)[n], float scale, const float (&neg_max)[2],
                                                unsigned (&packed)[n / 4], float (&sum)[2])
    {
#pragma unroll
        for (int i = 0; i < n; i += 8) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float a = exp2_fast(fmaf(s[i + 2 * h], scale, neg_max[h])),
                            b = exp2_fast(fmaf(s[i + 2 * h + 1], scale, neg_max[h]));
                const float c = exp2_fast(fmaf(s[i + 2 * h + 4], scale, neg_max[h]));
                const float d = exp2_fast(fmaf(s[i + 2 * h + 5], scale, neg_max[h]));
                sum[h] = i ? sum[h] + a : a;
                sum[h] += b;
                sum[h] += c;
                sum[h] += d;
                packed[i / 4 + h] = pack4_e4m3(a, b, c, d);
            }
        }
    }
};

// attn_put_rows() and attn_sent of output.cuh in one, of either type, where a product's columns are in another order: of sixteen, the even ones
// come first, and a thread has four neighbouring columns. 64 columns go at once, so that there is room for them everywhere.
// Of sixteen columns the four lanes' first words lie together, then their second ones, and who reads takes two of each:
// neither way has bank conflicts.
constexpr int attn_stage_even_odd_pitch = attn_stage_pitch<64>,
              attn_stage_even_odd_bytes = 16 * attn_stage_even_odd_pitch;

template <class T>
__device__ __forceinline__ void attn_stage_sixteen(unsigned to, const float *o, const float (&factor)[2])
{
    const unsigned x[4] = {pack2<T>(o[0] * factor[0], o[4] * factor[0]), pack2<T>(o[2] * factor[1], o[6] * factor[1]),
                           pack2<T>(o[1] * factor[0], o[5] * factor[0]), pack2<T>(o[3] * factor[1], o[7] * factor[1])};
    stmatrix_x4(to, x);
}

template <int n>
__device__ __forceinline__ void attn_stage_even_odd(const gen_attn_fwd_params &p, const attn_results &to, int num_rows,
                                                    int row, const float (&o)[n], const float (&factor)[2],
                                                    const float (&lse)[2], unsigned stage)
{
    constexpr int pitch = attn_stage_even_odd_pitch;
    const int lane = threadIdx.x % 32, first = lane / 8; // eight lanes a row
    const unsigned tile = stage + lane % 16 * pitch + lane / 16 * 16;
    const unsigned from = stage + first * pitch + lane % 8 / 2 * 32 + lane % 2 * 8;
    unsigned short *at = to.o + (row + first) * p.o_stride.row + lane % 8 * 8;
#pragma unroll
    for (int cell = 0; cell < n; cell += 32) {
        if (cell > 0)
            __syncwarp();
        if (p.o_fp16) {
#pragma unroll
            for (int i = 0; i < 32; i += 8)
                attn_stage_sixteen<fp16>(tile + i * 4, o + cell + i, factor);
        } else {
#pragma unroll
            for (int i = 0; i < 32; i += 8)
                attn_stage_sixteen<bf16>(tile + i * 4, o + cell + i, factor);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            unsigned x[4];
            ld_shared_v2_u32(from + i * pitch, x[0], x[2]);
            ld_shared_v2_u32(from + i * pitch + 16, x[1], x[3]);
            if (row + first + i < num_rows)
                st_global_v4_u32(at + i * p.o_stride.row + cell * 2, x);
        }
    }
    attn_send_lse(to, num_rows, row, lse);
}
