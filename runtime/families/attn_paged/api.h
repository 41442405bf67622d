/*
 * Dense attention for serving: new tokens of many requests over their caches of keys and values,
 * in pages or not. Problem and arguments.
 *
 * For request b with T_b new tokens and N_b keys, the new tokens' own among them (they are in the
 * cache already), token t, query head h and its key head g = h / (num_q_heads / num_kv_heads):
 *
 *     s[j] = scale * q_descale[b,g] * k_descale[b,g] * (q[b,t,h,:] . k[b,j,g,:])
 *     with a softcap then softcap * tanh(s / softcap)
 *     i = N_b - T_b + t, the token's own key
 *     key j counts where j < N_b, if causal j <= i, and with a window j > i - left_window
 *     m = max s, d = sum of exp(s - m), with a sink + exp(sink[h] - m)
 *     o[b,t,h,:] = v_descale[b,g] * sum over j of exp(s - m) / d * v[b,j,g,:]
 *     lse[b,t,h] = m + ln d without the sink, or with lse_sink with it; or that / ln 2
 *
 * Where no key counts o = 0 and lse = -infinity, with lse_sink the sink. left_window counts the
 * token's own key, as in attn_fwd: 0 is no window, a model's sliding_window is as it is.
 *
 * Keys and values [0, N_b) must be finite; nothing else reaches an output, NaN included: rows at
 * and beyond N_b, the rest of a last page, other requests' pages, padding.
 *
 * Lengths are read on the device: a captured graph serves other lengths, pages and tokens, within
 * the problem's bounds. The same problem gives the same bits, always.
 */
#ifndef GEN_ATTN_PAGED_H
#define GEN_ATTN_PAGED_H

#include "gen.h"

enum gen_attn_paged_tag { GEN_ATTN_PAGED = 0x41545047 /* "ATPG" */ };

/* Element type of the cache. */
enum gen_attn_paged_cache {
    GEN_ATTN_PAGED_CACHE_SAME = 0, /* that of the queries */
    GEN_ATTN_PAGED_CACHE_E4M3 = 1  /* fp8 e4m3; descales scale it */
};

typedef struct gen_attn_paged_problem {
    gen_problem base;     /* size, GEN_ATTN_PAGED, flags */
    int32_t batch;        /* requests, up to 2^20; 0 is legal and launches nothing */
    int32_t num_q_heads;  /* on this device: a multiple of num_kv_heads, 1 to 1024 */
    int32_t num_kv_heads; /* 1 to 1024 */
    int32_t q_len;        /* new tokens of a request, the most of any: 1 to 131072 */
    int32_t kv_len;       /* keys of a request, the mean: 0 to max_kv_len, what selection goes by */
    int32_t max_kv_len;   /* the most of any request, 1 to 2^24; longer lengths are cut to it */
    int32_t page_size;    /* rows of a page: 1 to 65536; 0: not paged */
    int32_t head_dim;     /* of q, k, v and o: 64, 128, 256; 192: of q and k, of v and o 128 */
    int32_t dtype;        /* of q and o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t cache;        /* enum gen_attn_paged_cache */
    int32_t causal;       /* 0 or 1 */
    int32_t left_window;  /* keys up to the token's own that count: 1 to 2^24 + 1; 0: all */
    int32_t softcap;      /* 1: scores are capped by the argument softcap */
    int32_t sink;         /* 1: there are sinks */
    int32_t total_tokens; /* with q_indptr an upper bound of all tokens, for requests of very
                             different numbers of them; 0: batch * q_len */
} gen_attn_paged_problem;

/*
 * Device pointers (host pointers for the CPU backend). q, k, v and o are 16-byte aligned and their
 * strides, in elements, multiples of 16 bytes; the last dimension is contiguous. A stride of 0
 * stands for the packed one, but of descales, where it is 0: one for all.
 *
 * Key j of request b and key head g is row j % page_size of page
 *     page_indices[page_indptr[b] + j / page_size]            (page_indptr given)
 *     page_indices[b * page_table_stride + j / page_size]     (page_indptr NULL)
 * at page * k_page_stride + row * k_row_stride + g * k_head_stride, and only entries below
 * ceil(N_b / page_size) count; of a table's row others below ceil(max_kv_len / page_size) may be
 * read, of a list none. Pages may repeat; one outside [0, num_pages) reads as zeros. Packed strides
 * are those of [pages, page_size, num_kv_heads, columns] (NHD); of [pages, num_kv_heads, page_size,
 * columns] (HND) the row's is the columns. Keys and values in one tensor are two pointers into it.
 * Not paged: page b is request b, of max_kv_len rows where packed.
 */
typedef struct gen_attn_paged_args {
    gen_args base;                /* size, GEN_ATTN_PAGED */
    const void *q;                /* [tokens, num_q_heads, head_dim] */
    const void *k, *v;            /* see above */
    void *o;                      /* [tokens, num_q_heads, columns of v] */
    float *lse;                   /* [tokens, num_q_heads]; may be NULL */
    const int32_t *kv_len;        /* [batch]; negative counts as 0. NULL, with page_indptr:
                                     (n - 1) * page_size + last_page_len[b] of n pages, 0 of none */
    const int32_t *page_indices;  /* see above; NULL where not paged */
    const int32_t *page_indptr;   /* [batch + 1], in pages, or NULL */
    const int32_t *last_page_len; /* [batch], with kv_len NULL; else ignored */
    const int32_t *q_indptr;      /* [batch + 1]: request b has the tokens [q_indptr[b],
                                     q_indptr[b + 1]), q_len at most, none perhaps; NULL: q_len
                                     each, b * q_len onwards */
    const float *q_descale, *k_descale, *v_descale; /* [batch, num_kv_heads], or NULL: 1 */
    const float *sink;                              /* [num_q_heads], where the problem has it */
    int64_t q_token_stride, q_head_stride;
    int64_t k_page_stride, k_row_stride, k_head_stride;
    int64_t v_page_stride, v_row_stride, v_head_stride;
    int64_t o_token_stride, o_head_stride;
    int64_t lse_token_stride, lse_head_stride; /* any; 0: packed */
    int64_t page_table_stride; /* entries, with page_indptr NULL: at least those of a
                                  request of max_kv_len; 0: so many */
    int64_t q_descale_batch_stride, q_descale_head_stride; /* any */
    int64_t k_descale_batch_stride, k_descale_head_stride;
    int64_t v_descale_batch_stride, v_descale_head_stride;
    int32_t num_pages;  /* >= 1; ignored where not paged */
    int32_t lse_base_2; /* 1: lse in base 2; 0: natural */
    int32_t lse_sink;   /* 1: lse has the sink in it */
    float scale;        /* of the scores; 1 / sqrt(head_dim) in most models */
    float softcap;      /* > 0, where the problem has it */
} gen_attn_paged_args;

#endif /* GEN_ATTN_PAGED_H */
