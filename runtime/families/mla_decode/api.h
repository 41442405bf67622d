/*
 * MLA decode: attention of a multi-head latent layer in its absorbed form over
 * a paged cache of latents. Problem and arguments.
 *
 * There is one key and value head. A cache row is a latent c (512 wide, also
 * the value) and a rotary key r (rope_dim wide). For request b, its query token
 * t of T_b, head h and cache row j of N_b, all in fp32 or better:
 *
 *     s[j] = scale * (q_nope[b,t,h,:] . c[j,:] + q_pe[b,t,h,:] . r[j,:])
 *     row j counts where j < N_b, and, if causal, j <= N_b - T_b + t
 *     p[j] = exp(s[j] - m) / d,  m = max s,  d = sum of exp(s - m)
 *     o[b,t,h,:] = sum over j of p[j] * c[j,:]
 *     lse[b,t,h] = m + ln d, or (m + ln d) / ln 2
 *
 * Where no row counts, o = 0 and lse = -infinity.
 *
 * Rows [0, N_b) must be finite for every request with query tokens, even rows
 * that causality hides; otherwise all outputs of that request are unspecified.
 * Everything else may hold anything and never reaches an output, NaN included: rows
 * at and beyond N_b, the rest of its last page, other requests' pages, pages that
 * no request names, padding (docs/numerics.md).
 */
#ifndef GEN_MLA_DECODE_H
#define GEN_MLA_DECODE_H

#include "gen.h"

enum gen_mla_decode_tag { GEN_MLA_DECODE = 0x4d4c4144 /* "MLAD" */ };

/* Widths of the latent, which is the output's, too, and of the rotary part. */
enum gen_mla_width { GEN_MLA_LATENT = 512, GEN_MLA_ROPE = 64 };

/* Element type of the cache. */
enum gen_mla_cache {
    GEN_MLA_CACHE_SAME = 0, /* that of the queries */
    GEN_MLA_CACHE_E4M3 = 1, /* fp8 e4m3, times ckv_scale and kpe_scale */
    GEN_MLA_CACHE_E4M3_Q =
        2 /* that, and q_nope and q_pe are e4m3, too, times q_scale; sm_90a. Scores are sums of
             8-bit products, which keep some 14 bits (docs/numerics.md) */
};

typedef struct gen_mla_decode_problem {
    gen_problem base;    /* size, GEN_MLA_DECODE, flags */
    int32_t batch;       /* requests, up to 2^24; 0 is legal and launches nothing */
    int32_t num_heads;   /* on this device: 1 to 128 */
    int32_t q_len;       /* query tokens of a request, the most of any: 1 to 1024, and times batch
                            at most 2^31 - 1 */
    int32_t kv_len;      /* cache rows of a request, the mean: 0 to max_kv_len, what selection
                            goes by. The lengths themselves are read on the device */
    int32_t max_kv_len;  /* the most of any request, 1 to 2^24, and times batch at most 2^35;
                            longer lengths are cut to it */
    int32_t page_size;   /* rows of a page: 1 to 65536 */
    int32_t rope_dim;    /* 64, or 0: no rotary part */
    int32_t dtype;       /* of o and, but for GEN_MLA_CACHE_E4M3_Q, of q_nope
                            and q_pe: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t cache;       /* enum gen_mla_cache */
    int32_t causal;      /* 0 or 1 */
    int32_t index_dtype; /* enum gen_index_dtype: of page_indptr and q_indptr */
} gen_mla_decode_problem;

/*
 * Device pointers (host pointers for the CPU backend). Tensors of 16 and 8 bits
 * are 16-byte aligned and their strides, in elements, are multiples of 16 bytes;
 * the last dimension is contiguous. A stride of 0 stands for the packed one.
 *
 * Row j of request b is row j % page_size of page
 *     page_indices[page_indptr[b] + j / page_size]              (page_indptr given)
 *     page_indices[b * page_table_stride + j / page_size]       (page_indptr NULL)
 * and only entries below ceil(N_b / page_size) are read. Pages may repeat. A
 * page outside [0, num_pages) reads as zeros.
 */
typedef struct gen_mla_decode_args {
    gen_args base;               /* size, GEN_MLA_DECODE */
    const void *q_nope;          /* [tokens, num_heads, 512] */
    const void *q_pe;            /* [tokens, num_heads, 64]; NULL where rope_dim is 0 */
    const void *ckv;             /* [num_pages, page_size, 512] */
    const void *kpe;             /* [num_pages, page_size, 64]; NULL where rope_dim is 0 */
    void *o;                     /* [tokens, num_heads, 512] */
    float *lse;                  /* [tokens, num_heads]; may be NULL */
    const int32_t *kv_len;       /* [batch]; negative counts as 0 */
    const int32_t *page_indices; /* see above */
    const int32_t *page_indptr;  /* [batch + 1], in pages, or NULL */
    const int32_t *q_indptr;     /* [batch + 1], in tokens: request b has the query tokens
                                    [q_indptr[b], q_indptr[b + 1]), q_len at most; NULL: q_len
                                    each, b * q_len onwards */
    int64_t q_nope_token_stride, q_nope_head_stride;
    int64_t q_pe_token_stride, q_pe_head_stride;
    int64_t ckv_page_stride, ckv_row_stride;
    int64_t kpe_page_stride, kpe_row_stride;
    int64_t o_token_stride, o_head_stride;
    int64_t lse_token_stride, lse_head_stride; /* any; 0: packed */
    int64_t page_table_stride;     /* entries, with page_indptr NULL: at least those of a request of
                                      max_kv_len, ceil(max_kv_len / page_size); 0: so many */
    int32_t num_pages;             /* >= 1 */
    int32_t lse_base_2;            /* 1: lse in base 2; 0: natural */
    float scale;                   /* of the logits; 1/sqrt(192) for DeepSeek's models */
    float ckv_scale, kpe_scale;    /* e4m3: value = scale * element; else ignored */
    const int64_t *page_indptr_64; /* page_indptr of 64 bits, in place of it; 8-byte aligned */
    const int64_t *q_indptr_64;    /* q_indptr of 64 bits, in place of it; 8-byte aligned */
    float q_scale;      /* GEN_MLA_CACHE_E4M3_Q: query = q_scale * element; else ignored */
    int32_t reserved_1; /* 0 */
} gen_mla_decode_args;

#endif /* GEN_MLA_DECODE_H */
