/*
 * Dense attention, forward: problem and arguments.
 *
 * For request b, query head h and its key head g = h / (num_q_heads /
 * num_kv_heads), with Sq = q_len and Sk = kv_len rows, all in fp32 or better:
 *
 *     s[i,j]  = scale * q_descale[b,g] * k_descale[b,g] * (q[b,i,h,:] . k[b,j,g,:])
 *     s[i,j]  = cap * tanh(s[i,j] / cap)                     with softcap
 *     key j counts for query i where j < Sk, and with i' = i + Sk - Sq
 *         causal:        j <= i'               (aligned at the bottom right)
 *         left_window:   j > i' - left_window      where it is not 0
 *         right_window:  j < i' + right_window     where it is not 0
 *     p[i,j]  = exp(s[i,j] - m[i]) / d[i],  m = max s,  d = sum of exp(s - m)
 *     o[b,i,h,:] = v_descale[b,g] * sum over j of p[i,j] * v[b,j,g,:]
 *     lse[b,h,i] = m[i] + ln d[i]
 *
 * A window counts the query's own key i', so a problem of zeros has none: left_window is cuDNN's
 * sliding_window_length and a model's sliding_window as they are, and FlashAttention's window_size
 * is one less (its -1, no window, is 0 here; its 0, the diagonal, 1).
 *
 * Where no key counts, o = 0 and lse = -infinity. Only 8-bit types have
 * descales; elsewhere they are 1.
 *
 * Rows [0, Sk) of k and v must be finite for every request with queries, even
 * rows that a mask hides; otherwise all outputs of that request's heads that share
 * the key head are unspecified. Everything else may hold anything and never
 * reaches an output, NaN included: rows at and beyond Sk, packed neighbours,
 * padding, other requests and key heads (docs/numerics.md).
 * (Dao et al. 2022, FlashAttention; Milakov and Gimelshein 2018 for the running
 * maximum.)
 */
#ifndef GEN_ATTN_FWD_H
#define GEN_ATTN_FWD_H

#include "gen.h"

enum gen_attn_fwd_tag { GEN_ATTN_FWD = 0x41544e46 /* "ATNF" */ };

typedef struct gen_attn_fwd_problem {
    gen_problem base;     /* size, GEN_ATTN_FWD, flags */
    int32_t batch;        /* requests; 0 is legal and launches nothing */
    int32_t num_q_heads;  /* 1 to 1024, a multiple of num_kv_heads */
    int32_t num_kv_heads; /* 1 to 1024 */
    int32_t q_len;        /* query rows of a request, the most of any with varlen: 0 to 2^24 */
    int32_t kv_len;       /* key rows, likewise: 0 to 2^24 */
    int32_t head_dim;     /* of q, k, v and o: 64, 128 or 256 */
    int32_t dtype;        /* of q, k and v: GEN_DTYPE_BF16, GEN_DTYPE_FP16, GEN_DTYPE_E4M3 or
                             GEN_DTYPE_E5M2 */
    int32_t causal;       /* 0 or 1 */
    int32_t
        left_window; /* keys up to and with i' that count, i' among them: 1 to 2^24 + 1; 0: all */
    int32_t right_window; /* keys from i' on, i' among them: likewise; with causal 0 or 1 */
    int32_t varlen;       /* 1: requests lie one behind the other, as cu_seqlens say */
    int32_t softcap;      /* 1: the argument softcap is used */
    int32_t o_dtype;     /* of o, where dtype has 8 bits: GEN_DTYPE_BF16 (0) or GEN_DTYPE_FP16. Else
                            o has dtype, and this is that or 0 */
    int32_t index_dtype; /* enum gen_index_dtype: of cu_seqlens_q and cu_seqlens_k */
} gen_attn_fwd_problem;

/*
 * Device pointers (host pointers for the CPU backend). q, k, v and o are 16-byte
 * aligned, the last dimension is contiguous, strides are in elements and
 * multiples of 16 bytes. A stride of 0 stands for the packed one of
 * [batch, rows, heads, head_dim], or with varlen [total rows, heads, head_dim].
 */
typedef struct gen_attn_fwd_args {
    gen_args base; /* size, GEN_ATTN_FWD */
    const void *q; /* [batch, q_len, num_q_heads, head_dim] */
    const void *k; /* [batch, kv_len, num_kv_heads, head_dim] */
    const void *v; /* as k */
    void *o;       /* as q */
    float *lse; /* [batch, num_q_heads, q_len], with varlen [num_q_heads, total_q]; may be NULL */
    const int32_t *cu_seqlens_q; /* varlen: [batch + 1], ascending from 0: request b has the rows
                                    [cu_seqlens_q[b], cu_seqlens_q[b + 1]) of q and o, of which
                                    the first q_len count. Else ignored */
    const int32_t *cu_seqlens_k; /* varlen: the same of k and v */
    int64_t q_batch_stride, q_row_stride, q_head_stride; /* batch strides: ignored with varlen */
    int64_t k_batch_stride, k_row_stride, k_head_stride;
    int64_t v_batch_stride, v_row_stride, v_head_stride;
    int64_t o_batch_stride, o_row_stride, o_head_stride;
    int64_t lse_batch_stride, lse_head_stride; /* any; 0: packed */
    int32_t total_q, total_k;       /* varlen: rows of q and of k, v in all, at least those that
                                       cu_seqlens name; 0 to 2^31 - 1. Else ignored */
    float scale;                    /* > 0; 1/sqrt(head_dim) in most models */
    float softcap;                  /* > 0 where the problem has a softcap, else 0 */
    const float *q_descale;         /* [batch, num_kv_heads], finite and > 0: what q's elements are
                                       multiplied by. NULL: 1, and always so where dtype has 16 bits */
    const float *k_descale;         /* the same of k */
    const float *v_descale;         /* the same of v, of any sign */
    const int64_t *cu_seqlens_q_64; /* cu_seqlens_q of 64 bits, in place of it; 8-byte aligned */
    const int64_t *cu_seqlens_k_64; /* cu_seqlens_k of 64 bits, in place of it; 8-byte aligned */
} gen_attn_fwd_args;

#endif /* GEN_ATTN_FWD_H */
