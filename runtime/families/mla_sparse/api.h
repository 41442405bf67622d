/*
 * Sparse MLA decode: attention of a multi-head latent layer in its absorbed form, where every query
 * token attends those rows of a cache that its own list names. Problem and arguments.
 *
 * There is one key and value head. A cache row is a latent c (512 wide, also the value) and a
 * rotary key r (rope_dim wide). For query token t of request b, head h and the entries i of its
 * list, all in fp32 or better:
 *
 *     j    = indices[b,t,i]: row j % page_size of page j / page_size
 *     entry i counts where i < topk_length and 0 <= j < num_pages * page_size
 *     s[i] = scale * (q_nope[b,t,h,:] . c[j,:] + q_pe[b,t,h,:] . r[j,:])
 *     p[i] = exp(s[i] - m) / d,  m = max s,  d = sum of exp(s - m)
 *     o[b,t,h,:] = sum over i of p[i] * c[j,:],  with a sink times d / (d + exp(sink[h] - m))
 *     lse[b,t,h] = m + ln d, or (m + ln d) / ln 2: without the sink
 *
 * A row that a list names twice counts twice. Where nothing counts, o = 0 and lse = -infinity.
 * Lists are in any order, -1 may stand anywhere in them, and causality is theirs. Entries at and
 * behind topk_length are not read as rows, whatever they hold.
 *
 * Rows that count must be finite; everything else may hold anything and never reaches an output,
 * NaN included: rows that no list names, padding between rows and pages.
 */
#ifndef GEN_MLA_SPARSE_H
#define GEN_MLA_SPARSE_H

#include "gen.h"

enum gen_mla_sparse_tag { GEN_MLA_SPARSE = 0x4d4c4153 /* "MLAS" */ };

/* What rows of the cache are. */
enum gen_mla_sparse_cache {
    GEN_MLA_SPARSE_SAME = 0, /* latent and rotary key side by side, in the queries' type */
    GEN_MLA_SPARSE_DS = 1    /* 656 bytes: 512 of e4m3, four fp32 scales, each of 128 of these, and
                                64 of bf16, the rotary key, there where rope_dim is 0, too. A latent's
                                element is its scale times that in fp32, rounded to bf16 */
};

typedef struct gen_mla_sparse_problem {
    gen_problem base;  /* size, GEN_MLA_SPARSE, flags */
    int32_t batch;     /* requests; 0 is legal and launches nothing */
    int32_t num_heads; /* on this device: 1 to 128 */
    int32_t q_len;     /* query tokens of every request: 1 to 1024, and times batch at most 2^24 */
    int32_t topk;      /* entries of a list: 1 to 2^20, and times the tokens at most 2^35 */
    int32_t page_size; /* rows of a page: 1 to 65536 */
    int32_t rope_dim;  /* 64, or 0: no rotary part */
    int32_t dtype;     /* of q_nope, q_pe, o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16; kernels for 656-byte
                          rows take bf16 */
    int32_t cache;     /* enum gen_mla_sparse_cache */
    int32_t sink;      /* 1: there are sinks. Lists are whole then, so few tokens take longer */
} gen_mla_sparse_problem;

/*
 * Device pointers (host pointers for the CPU backend), 16-byte aligned but for the last three. The
 * last dimension is contiguous; a stride of 0 stands for the packed one. Strides of queries and
 * outputs, in elements, are multiples of 8; those of the cache are multiples of 16 bytes, in
 * elements or, of 656-byte rows, in bytes.
 */
typedef struct gen_mla_sparse_args {
    gen_args base;              /* size, GEN_MLA_SPARSE */
    const void *q_nope;         /* [batch * q_len, num_heads, 512] */
    const void *q_pe;           /* [batch * q_len, num_heads, 64]; NULL where rope_dim is 0 */
    const void *kv;             /* [num_pages, page_size, 512 + rope_dim], or of 656 bytes a row */
    void *o;                    /* [batch * q_len, num_heads, 512] */
    float *lse;                 /* [batch * q_len, num_heads]; may be NULL */
    const int32_t *indices;     /* [batch, q_len, topk] */
    const int32_t *topk_length; /* entries of a list that are looked at: [batch], or with
                                   length_per_token [batch, q_len]; NULL: topk. Negative counts as
                                   0, more than topk as that */
    const float *sink;          /* [num_heads], natural; with problem.sink alone */
    int64_t q_nope_token_stride, q_nope_head_stride;
    int64_t q_pe_token_stride, q_pe_head_stride;
    int64_t kv_page_stride, kv_row_stride;
    int64_t o_token_stride, o_head_stride;
    int64_t lse_token_stride, lse_head_stride;          /* any; 0: packed */
    int64_t indices_batch_stride, indices_token_stride; /* entries */
    int32_t num_pages; /* >= 1; of 656-byte rows num_pages * kv_page_stride is at most 64 GiB */
    int32_t length_per_token; /* 0 or 1 */
    int32_t lse_base_2;       /* 1: lse in base 2; 0: natural */
    float scale;              /* of the logits; 1/sqrt(192) for DeepSeek's models */
} gen_mla_sparse_args;

#endif /* GEN_MLA_SPARSE_H */
