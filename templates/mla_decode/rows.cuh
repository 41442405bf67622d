// Where the rows of a problem lie: packed rows of queries and outputs, rows of the paged cache.
#pragma once

#include "mla_decode/args.h"
#include "mla_decode/schedule.cuh"
#include "lib/divide.cuh"
#include "lib/prefetch.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

// Packed row r of a request: token r / num_heads, head r % num_heads.
struct mla_row {
    long long token; // in the batch
    int head;

    __device__ __forceinline__ mla_row(const gen_mla_decode_params &p, const mla_tokens &tokens, int packed)
    {
        const unsigned t = quotient_or_shift(packed, p.heads_mul, p.heads_shift);
        token = tokens.first + static_cast<int>(t);
        head = packed - static_cast<int>(t) * p.num_heads;
    }

    __device__ __forceinline__ const unsigned short *q_nope(const gen_mla_decode_params &p) const
    {
        return static_cast<const unsigned short *>(p.q_nope) + token * p.q_nope_token_stride +
               head * p.q_nope_head_stride;
    }

    __device__ __forceinline__ const unsigned short *q_pe(const gen_mla_decode_params &p) const
    {
        return static_cast<const unsigned short *>(p.q_pe) + token * p.q_pe_token_stride + head * p.q_pe_head_stride;
    }

    __device__ __forceinline__ unsigned short *o(const gen_mla_decode_params &p) const
    {
        return static_cast<unsigned short *>(p.o) + token * p.o_token_stride + head * p.o_head_stride;
    }

    __device__ __forceinline__ float *lse(const gen_mla_decode_params &p) const
    {
        return p.lse + token * p.lse_token_stride + head * p.lse_head_stride;
    }
};

// Cache rows that count for a packed row: those below this. May be negative.
__device__ __forceinline__ int mla_limit(const gen_mla_decode_params &p, const mla_tokens &tokens, int packed,
                                         int kv_len)
{
    if (!p.causal)
        return kv_len;
    const int t = static_cast<int>(quotient_or_shift(packed, p.heads_mul, p.heads_shift));
    return min(kv_len, kv_len - tokens.count + t + 1);
}

// A row of the cache.
struct mla_place {
    int page, row; // page as the table has it: it may lie outside the cache
};

// The pages of a request.
struct mla_pages {
    const int *indices;

    __device__ __forceinline__ mla_pages(const gen_mla_decode_params &p, int request)
    {
        const long long first = p.page_indptr ? ld_global(p.page_indptr + request) : request * p.page_table_stride;
        indices = p.page_indices + first;
    }

    // row < the request's length: entries behind its last page are not to be read.
    __device__ __forceinline__ mla_place find(const gen_mla_decode_params &p, int row) const
    {
        const unsigned page = quotient_or_shift(row, p.page_mul, p.page_shift);
        return {ld_global(indices + page), row - static_cast<int>(page) * p.page_size};
    }
};

// A parameter of every line, see touch().
__device__ __forceinline__ void mla_touch(const gen_mla_decode_params &p)
{
    touch(p.q_nope);
    touch(p.page_indices);
    touch(p.q_pe_token_stride);
    touch(p.o_head_stride);
    touch(p.schedule.batch);
    touch(p.num_pages);
}

// Computes the part's schedule and prefetches its first page numbers, which the block waits for next.
template <int threads>
__device__ __forceinline__ void mla_partition(const gen_mla_decode_params &p, int part, mla_share &share)
{
    mla_partition<threads>(p.schedule, p.kv_len, part, share, [&](int request, int block) {
        if (mla_length(p.schedule, p.kv_len, request) == 0)
            return; // it has no page
        if (p.page_indptr) {
            prefetch_global(p.page_indptr + request);
        } else {
            const unsigned page = quotient_or_shift(block * MLA_BLOCK, p.page_mul, p.page_shift);
            prefetch_global(p.page_indices + request * p.page_table_stride + page);
        }
    });
}

// The greatest of four neighbouring lanes, which hold a row together.
__device__ __forceinline__ float mla_most_of_quad(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// The exponent that columns of a partial result share (args.h), for the greatest of their magnitudes: in fp16 that one is
// 2^14 to 2^15 then, so that only what is 2^-28 of it loses bits to fp16's own exponent.
__device__ __forceinline__ unsigned mla_exponent(float most)
{
    return max(__float_as_uint(most) >> 23, 15u) - 14;
}

// 1 / 2^(exponent - 127).
__device__ __forceinline__ float mla_scale_up(unsigned exponent)
{
    return __uint_as_float((254 - exponent) << 23);
}

// The slot of a part without blocks says so, for `count` packed rows from `first`.
template <int threads>
__device__ __forceinline__ void mla_write_nothing(const gen_mla_decode_params &p, int part, int first, int count)
{
    const int all = p.q_len * p.num_heads;
#pragma unroll 1
    for (int i = first + static_cast<int>(threadIdx.x); i < min(first + count, all); i += threads)
        p.partial_rows[2ll * part * all + i].lse = minus_infinity();
}
