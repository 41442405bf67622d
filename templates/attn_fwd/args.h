/*
 * Dense attention, forward: problem, arguments and kernel parameters.
 *
 * For request b, query head h and its key head g = h / (num_q_heads /
 * num_kv_heads), with Sq = q_len and Sk = kv_len rows, all in fp32 or better:
 *
 *     s[i,j]  = scale * q_descale[b,g] * k_descale[b,g] * (q[b,i,h,:] . k[b,j,g,:])
 *     s[i,j]  = cap * tanh(s[i,j] / cap)                     with softcap
 *     key j counts for query i where j < Sk, and with i' = i + Sk - Sq
 *         causal:        j <= i'               (aligned at the bottom right)
 *         window_left:   j >= i' - window_left
 *         window_right:  j <= i' + window_right
 *     p[i,j]  = exp(s[i,j] - m[i]) / d[i],  m = max s,  d = sum of exp(s - m)
 *     o[b,i,h,:] = v_descale[b,g] * sum over j of p[i,j] * v[b,j,g,:]
 *     lse[b,h,i] = m[i] + ln d[i]
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
 *
 * This header is read by the host (C11, C++) and by the device compiler, so it
 * includes nothing on the device and uses plain C types.
 */
#ifndef GEN_ATTN_FWD_H
#define GEN_ATTN_FWD_H

#ifndef __CUDACC_RTC__
#include "gen.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GEN_ATTN_FWD 0x41544e46u /* "ATNF" */

/* Not a bound: window_left, window_right. */
#define GEN_ATTN_NO_WINDOW (-1)

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
    int32_t window_left;  /* keys before i': 0 to 2^24, or GEN_ATTN_NO_WINDOW */
    int32_t window_right; /* keys behind i': likewise; with causal 0 or GEN_ATTN_NO_WINDOW */
    int32_t varlen;       /* 1: requests lie one behind the other, as cu_seqlens say */
    int32_t softcap;      /* 1: the argument softcap is used */
    int32_t o_dtype; /* of o, where dtype has 8 bits: GEN_DTYPE_BF16 (0) or GEN_DTYPE_FP16. Else
                        o has dtype, and this is that or 0 */
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
    int32_t total_q, total_k; /* varlen: rows of q and of k, v in all, at least those that
                                 cu_seqlens name; 0 to 2^31 - 1. Else ignored */
    float scale;              /* > 0; 1/sqrt(head_dim) in most models */
    float softcap;            /* > 0 where the problem has a softcap, else 0 */
    const float *q_descale;   /* [batch, num_kv_heads], finite and > 0: what q's elements are
                                 multiplied by. NULL: 1, and always so where dtype has 16 bits */
    const float *k_descale;   /* the same of k */
    const float *v_descale;   /* the same of v, of any sign */
} gen_attn_fwd_args;

#ifdef __cplusplus
}
#endif
#endif /* __CUDACC_RTC__ */

#define ATTN_NO_BOUND (1 << 28) /* a window's edge that nothing reaches */

#ifdef __cplusplus
#define ATTN_ALIGNED(bytes) alignas(bytes)
#else
#define ATTN_ALIGNED(bytes) _Alignas(bytes)
#endif

/* Elements. */
struct gen_attn_strides {
    long long batch, row, head;
};

/*
 * The work is a list of units: a tile of so many query rows of a head of a
 * request, or with `paired` two of them, tile i from the end and tile i, which
 * with causality are as much work together as any other two. The list is cut
 * into sections of `section` heads (of all requests), whose keys and values fit
 * into the L2 cache together; within a section units go row tile by row tile,
 * the heads of one next to each other. With `descending` the last row tiles,
 * which see most keys, come first. Of every head the last `short_units` units
 * stand behind all sections: short tiles, so that what is handed out last is
 * short. Where the two blocks of a cluster work together a unit is two row tiles,
 * 2 i and 2 i + 1.
 */
struct gen_attn_schedule {
    int num_units;
    int head_units;  /* of a head */
    int row_tiles;   /* of a head */
    int all_heads;   /* batch * num_q_heads */
    int section;     /* heads */
    int descending;  /* 0 or 1 */
    int paired;      /* 0 or 1 */
    int short_units; /* of a head, fewer than head_units */
};

struct gen_attn_fwd_params {
    /* Tensor maps for TMA, as cuTensorMapEncodeTiled() makes them: head_dim, rows, heads, requests
     * (1 with varlen); TMA boxes of 128 bytes of a row, or of all where it has 64. Zero for kernels
     * that do not use it. */
    ATTN_ALIGNED(64) unsigned long long q_map[16];
    ATTN_ALIGNED(64) unsigned long long k_map[16];
    ATTN_ALIGNED(64) unsigned long long v_map[16];
    const void *q, *k, *v;
    void *o;
    float *lse;             /* or null */
    const int *cu_q, *cu_k; /* or null: not varlen */
    struct gen_attn_strides q_stride, k_stride, v_stride, o_stride, lse_stride; /* lse: row 1 */
    struct gen_attn_schedule schedule;
    int q_len, kv_len;      /* of a request; the most of any */
    int total_q, total_k;   /* varlen */
    int num_q_heads, group; /* query heads of a key head */
    int left, right;        /* keys before and behind i' that count; ATTN_NO_BOUND */
    float scale_log2;       /* of the products, to base 2; with softcap: cap * log2(e) */
    float cap_scale;        /* with softcap: 2 log2(e) scale / cap, for tanh; else 0 */
    const float *q_descale, *k_descale, *v_descale; /* [batch, key heads], or null: 1 */
    int o_fp16;                                     /* of 8-bit types: o is fp16, not bf16 */
    unsigned long long *tickets; /* the workspace, where blocks take units as they need them; may
                                    hold anything before, but see lib/ticket.cuh */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_attn_fwd_params) == 704, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_attn_fwd_params) == 704, "same on both sides");
#endif

#endif /* GEN_ATTN_FWD_H */
