/* What the kernels of mla_decode take; runtime/families/mla_decode/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_MLA_DECODE_ARGS_H
#define GEN_MLA_DECODE_ARGS_H

#include "mla/public.h" /* rows and records of partial results */

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

#endif /* GEN_MLA_DECODE_ARGS_H */
