/* What the kernels of attn_paged take; runtime/families/attn_paged/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_ATTN_PAGED_ARGS_H
#define GEN_ATTN_PAGED_ARGS_H

/*
 * How a batch is cut. A request's packed rows (its query tokens times the query heads of a key
 * head, heads fastest) are cut into row tiles. A unit is a row tile of a request and key head; it
 * has blocks of keys, those that some row of the request sees, and costs their number and `visit`.
 * All units stand on a line, requests in order, of a request by key head and then by row tile, and
 * the line is cut into num_parts equal lengths, a cut moved to a block's border, or with `whole` to
 * the nearer end of its unit. A part's pieces of units are then a run of that line.
 *
 * A piece that is a whole unit writes the outputs. Another writes a partial result, normalised, in
 * fp32, with its log-sum-exp in base 2, to a slot: slot 2 p for the piece that part p begins with,
 * 2 p + 1 for the one that it ends with. The last of a unit's pieces to arrive adds them up; where
 * there are more than GEN_ATTN_PAGED_GROUP, the last of each such group does, the sum takes the
 * place of the group's first piece, and groups are added up as pieces are, in up to
 * GEN_ATTN_PAGED_LEVELS levels. Arrivals are counted in tickets (lib/ticket.cuh): on level l in word
 * l * num_parts + p, of the part p that the group begins in.
 *
 * A direct kernel has no line: each unit has num_parts pieces, blocks in a row. Piece i has the tiles
 * i * warps + w of every num_parts * warps for its warp w. The pieces are those of one or more
 * clusters of blocks; a cluster's are added up in shared memory, the clusters' results, up to
 * GEN_ATTN_PAGED_GROUP, by the last to arrive, each rank of a cluster for its own columns. Its ticket
 * is word u * num_parts + rank of unit u, and its results, a float4 for two outputs of one row (both,
 * their log-sum-exp to base 2, nothing), are the block's in `partial`.
 *
 * Where a part is a CTA pair's, each CTA has half of a tile's rows, and counts in tickets of its own.
 */
struct gen_attn_paged_line {
    int batch, num_parts, visit, whole; /* visit, whole: not for direct kernels */
    unsigned parts_mul, parts_shift; /* x / num_parts, as in la_decode/args.h */
};

#define GEN_ATTN_PAGED_GROUP 16
#define GEN_ATTN_PAGED_LEVELS 3 /* parts are at most 16^3 */

#ifdef __cplusplus
#define GEN_ATTN_PAGED_ALIGNED alignas(64)
#else
#define GEN_ATTN_PAGED_ALIGNED _Alignas(64)
#endif

struct gen_attn_paged_params {
    /* Tensor maps of k and v for TMA, as cuTensorMapEncodeTiled() makes them: columns of 64, rows of
     * a page, key heads, pages. A box is 64 columns of map_rows rows. Zero for kernels that do not
     * use them. */
    GEN_ATTN_PAGED_ALIGNED unsigned long long k_map[16];
    GEN_ATTN_PAGED_ALIGNED unsigned long long v_map[16];
    const void *q, *k, *v;
    void *o;
    float *lse; /* or null */
    const int *kv_len, *page_indices, *page_indptr, *last_page_len, *q_indptr;
    const float *q_descale, *k_descale, *v_descale, *sink; /* or null */
    unsigned long long *tickets;                           /* [CTAs][levels][num_parts]; null: nothing is cut */
    float *partial_lse;                                    /* [slots][rows of a tile] */
    float *partial; /* [slots][rows of a tile * head_dim], as accumulators have them */
    long long q_token, q_head, k_page, k_row, k_head, v_page, v_row, v_head; /* elements */
    long long o_token, o_head, lse_token, lse_head, page_table;
    long long q_descale_batch, q_descale_head, k_descale_batch, k_descale_head;
    long long v_descale_batch, v_descale_head;
    struct gen_attn_paged_line line;
    int num_kv_heads, group, q_len, max_kv_len; /* group: query heads of a key head */
    int page_size, num_pages, causal, left_window;
    int lse_base_2, lse_sink;
    unsigned group_mul, group_shift; /* packed row / group */
    unsigned page_mul, page_shift;   /* key / page_size; mul = 0: by the shift alone */
    float scale_log2;                /* of scores to base 2; with softcap: 2 log2(e) scale / cap */
    float cap_log2;                  /* softcap * log2(e); 0: none */
    int map_rows;                    /* with no tensor maps 1 where no tile of keys reaches from page to page, else 0 */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_attn_paged_params) == 640, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_attn_paged_params) == 640, "same on both sides");
#endif

#endif /* GEN_ATTN_PAGED_ARGS_H */
