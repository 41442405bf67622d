// Where the rows of a problem lie: packed rows of queries and outputs, rows of the paged cache.
#pragma once

#include "mla_decode/args.h"
#include "mla_decode/schedule.cuh"
#include "lib/ptx.cuh"

__device__ __forceinline__ float minus_infinity()
{
    return __uint_as_float(0xff800000u);
}

// x / d for x < 2^31, d given as the host prepared it (args.h).
__device__ __forceinline__ unsigned mla_quotient(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? __umulhi(x, mul) >> shift : x >> shift;
}

// Packed row r of a request: token r / num_heads, head r % num_heads.
struct mla_row {
    long long token; // in the batch
    int head;

    __device__ __forceinline__ mla_row(const gen_mla_decode_params &p, const mla_tokens &tokens, int packed)
    {
        const unsigned t = mla_quotient(packed, p.heads_mul, p.heads_shift);
        token = tokens.first + static_cast<int>(t);
        head = packed - static_cast<int>(t) * p.num_heads;
    }

    __device__ __forceinline__ const unsigned short *q_nope(const gen_mla_decode_params &p) const
    {
        return static_cast<const unsigned short *>(p.q_nope) + token * p.q_nope_token_stride + head * p.q_nope_head_stride;
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
__device__ __forceinline__ int mla_limit(const gen_mla_decode_params &p, const mla_tokens &tokens, int packed, int kv_len)
{
    if (!p.causal)
        return kv_len;
    const int t = static_cast<int>(mla_quotient(packed, p.heads_mul, p.heads_shift));
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
        const long long first = p.page_indptr ? load_global(p.page_indptr + request) : request * p.page_table_stride;
        indices = p.page_indices + first;
    }

    // row < the request's length: entries behind its last page are not to be read.
    __device__ __forceinline__ mla_place find(const gen_mla_decode_params &p, int row) const
    {
        const unsigned page = mla_quotient(row, p.page_mul, p.page_shift);
        return {load_global(indices + page), row - static_cast<int>(page) * p.page_size};
    }
};

// The slot of a part without blocks says so, for `count` packed rows from `first`.
template <int threads>
__device__ __forceinline__ void mla_write_nothing(const gen_mla_decode_params &p, int part, int first, int count)
{
    const int all = p.q_len * p.num_heads;
#pragma unroll 1
    for (int i = first + static_cast<int>(threadIdx.x); i < min(first + count, all); i += threads)
        p.partial_lse[2ll * part * all + i] = minus_infinity();
}
