// How a tile's rows get from accumulators to memory.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/transpose.cuh"

// Writes the thread's two rows, `row` and `row` + 8 of the tile. Four neighbouring lanes exchange pairs of columns, so that
// each has 16 bytes of every 32 columns and together they write whole sectors. `column` is the thread's first one; the lane
// of column 0 writes the log-sum-exp.
template <class T, int n>
__device__ __forceinline__ void attn_write_rows(const gen_attn_fwd_params &p, const attn_tile &t, int row,
                                                const float (&o)[n], const float (&factor)[2], const float (&lse)[2],
                                                int column = 0)
{
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool mine = row + 8 * h < t.num_rows;
        unsigned short *const to = attn_o_at(p, t, t.first_row + (mine ? row + 8 * h : 0)) + column + q * 8;
#pragma unroll
        for (int i = 0; i < n; i += 16) {
            unsigned x[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] = pack2<T>(o[i + 4 * k + 2 * h] * factor[h], o[i + 4 * k + 2 * h + 1] * factor[h]);
            transpose_quad(x);
            if (mine)
                st_global_v4_u32(to + i * 2, x);
        }
        if (mine && q == 0 && column == 0 && p.lse)
            *attn_lse_at(p, t, t.first_row + row + 8 * h) = lse[h];
    }
}

// Does the same through shared memory, in two steps: rows go to the warp's own place for sixteen of them, `stage`, and from
// there to memory. Lanes store what is contiguous, several whole rows at once.

// Whole rows with 16 bytes between, so that eight of them lie in different banks.
template <int width> constexpr int attn_stage_pitch = width * 2 + 16; // bytes

template <int width> struct attn_stage_apart {
    static __device__ __forceinline__ unsigned at(int row, int chunk)
    {
        return row * attn_stage_pitch<width> + chunk * 16;
    }
};

// Where the warp's sixteen queries were, and swizzled as they were: 64 columns of all of a group's queries behind each other.
template <int width> struct attn_stage_swizzled {
    static __device__ __forceinline__ unsigned at(int row, int chunk)
    {
        return chunk / 8 * (64 * 128) + row * 128 + ((chunk % 8 ^ row % 8) << 4);
    }
};

template <class T, class place, int n>
__device__ __forceinline__ void attn_put_rows(const float (&o)[n], const float (&factor)[2], unsigned stage)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < n; i += 8) { // sixteen columns
        const unsigned x[4] = {
            pack2<T>(o[i] * factor[0], o[i + 1] * factor[0]), pack2<T>(o[i + 2] * factor[1], o[i + 3] * factor[1]),
            pack2<T>(o[i + 4] * factor[0], o[i + 5] * factor[0]), pack2<T>(o[i + 6] * factor[1], o[i + 7] * factor[1])};
        stmatrix_x4(stage + place::at(lane % 16, i / 4 + lane / 16), x);
    }
    __syncwarp();
}

// Of the warp's sixteen rows, `row` the first of the tile: four neighbouring lanes have the same two.
__device__ __forceinline__ void attn_send_lse(const attn_results &to, int num_rows, int row, const float (&lse)[2])
{
    const int lane = threadIdx.x % 32, mine = row + lane / 4;
    if (to.lse && lane % 4 == 0) {
        if (mine < num_rows)
            to.lse[mine] = lse[0];
        if (mine + 8 < num_rows)
            to.lse[mine + 8] = lse[1];
    }
}

// What a lane sends: 16 bytes of each of some rows at a fixed distance.
template <int width> struct attn_sent {
    static constexpr int lanes = width / 8, count = 16 / (32 / lanes);
    float4 x[count];

    template <class place> __device__ __forceinline__ void take(unsigned stage)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < count; i++)
            x[i] = ld_shared_v4_f32(stage + place::at(lane / lanes + i * (32 / lanes), lane % lanes));
    }

    // `row`: of the tile, the warp's first.
    __device__ __forceinline__ void send(const gen_attn_fwd_params &p, const attn_results &to, int num_rows, int row,
                                         const float (&lse)[2]) const
    {
        const int lane = threadIdx.x % 32, first = lane / lanes;
        unsigned short *at = to.o + (row + first) * p.o_stride.row + lane % lanes * 8;
        const long long step = 32 / lanes * p.o_stride.row;
#pragma unroll
        for (int i = 0; i < count; i++, at += step)
            if (row + first + i * (32 / lanes) < num_rows)
                st_global_v4_f32<false>(reinterpret_cast<float *>(at), x[i]);
        attn_send_lse(to, num_rows, row, lse);
    }
};

// The same of rows that see no key.
template <class T, int n>
__device__ __forceinline__ void attn_write_nothing(const gen_attn_fwd_params &p, const attn_tile &t, int row,
                                                   int column = 0)
{
    float o[n];
#pragma unroll
    for (int i = 0; i < n; i++)
        o[i] = 0.f;
    attn_write_rows<T>(p, t, row, o, {0.f, 0.f}, {minus_infinity(), minus_infinity()}, column);
}
