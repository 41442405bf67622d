/*
 * MLA decode: attention of a multi-head latent layer in its absorbed form over
 * a paged cache of latents. Problem, arguments and kernel parameters.
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
 *
 * This header is read by the host (C11, C++) and by the device compiler, so it
 * includes nothing on the device and uses plain C types.
 */
#ifndef GEN_MLA_DECODE_H
#define GEN_MLA_DECODE_H

#ifndef __CUDACC_RTC__
#include "gen.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GEN_MLA_DECODE 0x4d4c4144u /* "MLAD" */

/* Element type of the cache. */
enum gen_mla_cache {
    GEN_MLA_CACHE_SAME = 0, /* that of the queries */
    GEN_MLA_CACHE_E4M3 = 1  /* fp8 e4m3, times ckv_scale and kpe_scale */
};

typedef struct gen_mla_decode_problem {
    gen_problem base;   /* size, GEN_MLA_DECODE, flags */
    int32_t batch;      /* requests, up to 2^24; 0 is legal and launches nothing */
    int32_t num_heads;  /* on this device: 1 to 128 */
    int32_t q_len;      /* query tokens of a request, the most of any: 1 to 1024, and times batch
                           at most 2^31 - 1 */
    int32_t kv_len;     /* cache rows of a request, the mean: 0 to max_kv_len, what selection
                           goes by. The lengths themselves are read on the device */
    int32_t max_kv_len; /* the most of any request, 1 to 2^24, and times batch at most 2^35;
                           longer lengths are cut to it */
    int32_t page_size;  /* rows of a page: 1 to 65536 */
    int32_t rope_dim;   /* 64, or 0: no rotary part */
    int32_t dtype;      /* of q_nope, q_pe, o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t cache;      /* enum gen_mla_cache */
    int32_t causal;     /* 0 or 1 */
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
    int64_t page_table_stride; /* entries, with page_indptr NULL: at least those of a request of
                                  max_kv_len, ceil(max_kv_len / page_size); 0: so many */
    int32_t num_pages;                         /* >= 1 */
    int32_t lse_base_2;                        /* 1: lse in base 2; 0: natural */
    float scale;                /* of the logits; 1/sqrt(192) for DeepSeek's models */
    float ckv_scale, kpe_scale; /* e4m3: value = scale * element; else ignored */
} gen_mla_decode_args;

#ifdef __cplusplus
}
#endif
#endif /* __CUDACC_RTC__ */

#define MLA_LATENT 512 /* width of a latent, and of the output */
#define MLA_ROPE 64    /* width of the rotary part */
#define MLA_BLOCK 64   /* rows of the cache that requests are cut by */
#define MLA_MAX_ROW_TILES 2048
#define MLA_MAP_CELLS 2 /* 64 columns each: of a TMA box of whole tiles (gen_mla_decode_params) */

/*
 * How a batch is partitioned. The rows of a request (q_len * num_heads of them,
 * token-major) are cut into row tiles; blocks (r, p) of the grid handle row tile
 * r of part p. A request of n cache blocks costs n + visit; the requests stand
 * on a line in order, and the line is cut into num_parts equal lengths, each cut
 * moved to a block's border, and to the nearer border of its request where that
 * is at most `snap` blocks away. A part's pieces of requests are then a run of that line.
 *
 * A piece that is a whole request writes the outputs. Another writes a partial
 * result, normalised, in 16 bits (gen_mla_partial_row), with its log-sum-exp in
 * base 2, to a slot of the workspace: slot 2 p for the piece that a part starts with, 2 p + 1 for
 * the one it ends with; mla_merge adds them up. With chunk > 0 requests are cut every `chunk`
 * blocks instead, wherever the parts begin, so that a request's result does not depend on its batch
 * mates: chunk c of request b has slot b * max_chunks + c, and only a request of one chunk writes
 * the outputs.
 */
struct gen_mla_schedule {
    int batch, num_parts;
    int visit, snap; /* blocks */
    int chunk;       /* blocks; 0: none */
    int max_chunks;
    int max_kv_len;
    unsigned parts_mul, parts_shift; /* x / num_parts, as in la_decode/args.h */
    int by_request; /* 1: record b is request b's; 0: record p describes the request that part p
                       begins and does not end */
};

/* A row of a partial result beside its 512 columns, which are in fp16. Columns
 * 64 c to 64 c + 63 are in units of the fp32 number that has byte c % 4 of
 * exponents[c / 4] for an exponent and nothing else: 2^(byte - 127), 0 for 0. So
 * a partial result has the range of fp32 and 11 bits, which are more than those of
 * a bf16 output and no fewer than those of an fp16 one. */
struct gen_mla_partial_row {
    float lse; /* base 2; -infinity: the piece is empty, and nothing else is looked at */
    int reserved;
    int exponents[2];
};

/* Which slots hold a request: what mla_merge reads. */
struct gen_mla_record {
    int request;    /* -1: nothing to merge */
    int first_slot; /* slot of piece 0; of piece i: chunk ? first_slot + i : first_slot + 2 i - 1 */
    int num_pieces; /* 1 or less: nothing to merge. A piece may be empty: lse = -infinity */
    int reserved;   /* 0 */
};

#ifdef __cplusplus
#define MLA_ALIGNED(bytes) alignas(bytes)
#else
#define MLA_ALIGNED(bytes) _Alignas(bytes)
#endif

struct gen_mla_decode_params {
    /* Tensor maps of ckv and kpe for TMA, as cuTensorMapEncodeTiled() makes them, of cells of 64
     * columns: columns of a cell, rows, cells, pages. A box is map_rows rows of a cell, and
     * where these are a whole tile, of MLA_MAP_CELLS cells of ckv. Zero for kernels that do not
     * use it. */
    MLA_ALIGNED(64) unsigned long long ckv_map[16];
    MLA_ALIGNED(64) unsigned long long kpe_map[16];
    const void *q_nope, *q_pe, *ckv, *kpe;
    void *o;
    float *lse; /* or null */
    const int *kv_len, *page_indices, *page_indptr, *q_indptr;
    unsigned short *partial;                  /* fp16 [slots][q_len * num_heads][512] */
    struct gen_mla_partial_row *partial_rows; /* [slots][q_len * num_heads] */
    struct gen_mla_record *records; /* [by_request ? batch : num_parts]; null: nothing is cut */
    long long q_nope_token_stride, q_nope_head_stride, q_pe_token_stride,
        q_pe_head_stride; /* elements */
    long long ckv_page_stride, ckv_row_stride, kpe_page_stride, kpe_row_stride;
    long long o_token_stride, o_head_stride, lse_token_stride, lse_head_stride, page_table_stride;
    struct gen_mla_schedule schedule;
    int num_heads, q_len, causal, lse_base_2;
    unsigned heads_mul, heads_shift; /* row / num_heads, as in la_decode/args.h */
    unsigned page_mul, page_shift;   /* row / page_size; mul = 0: by the shift alone */
    int page_size, num_pages, map_rows;
    float scale_log2; /* scale * log2(e), and for e4m3 * ckv_scale */
    float kpe_factor; /* e4m3: kpe_scale / ckv_scale; else 1 */
    float out_scale;  /* e4m3: ckv_scale; else 1 */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_mla_decode_params) == 576, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_mla_decode_params) == 576, "same on both sides");
#endif

#endif /* GEN_MLA_DECODE_H */
