/* What the kernels of attn_fwd take; runtime/families/attn_fwd/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_ATTN_FWD_ARGS_H
#define GEN_ATTN_FWD_ARGS_H

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

#endif /* GEN_ATTN_FWD_ARGS_H */
