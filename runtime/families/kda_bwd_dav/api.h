/*
 * A stage of the backward pass of Kimi Delta Attention as an operator of its own: what an output's
 * gradient makes inside a chunk. The forward stage kda_chunk_o gives o = scale (q 2^gk) h +
 * A_qk v_new; with d_o the gradient of o, and rows i, j of a chunk,
 *
 *     d_a_qk[i,j] = scale * sum_v d_o_i v_new_j     j <= i, else 0
 *     d_v_j       = sum of A_qk[i,j] d_o_i          over i >= j
 *
 * d_a_qk is the gradient of sum_d q_i k_j 2^(gk_i - gk_j), of which A_qk is `scale` times; d_v is
 * v_new's share of this chunk, to which the state behind the chunk adds another.
 */
#ifndef GEN_KDA_BWD_DAV_H
#define GEN_KDA_BWD_DAV_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_bwd_dav_tag { GEN_KDA_BWD_DAV = 0x4b444256 /* "KDBV" */ };

typedef gen_kda_stage_problem gen_kda_bwd_dav_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_bwd_dav_args {
    gen_args base;             /* size, GEN_KDA_BWD_DAV */
    const void *v_new;         /* [tokens, num_v_heads, head_dim] */
    const void *d_o;           /* [tokens, num_v_heads, head_dim] */
    const void *a_qk;          /* [tokens, num_v_heads, 64]; what is above the diagonal, or in a
                                  column behind the chunk's end, may be anything */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    float *d_a_qk;             /* [tokens, num_v_heads, 64] */
    void *d_v;                 /* [tokens, num_v_heads, head_dim] */
    /* Between tokens of d_o, in elements, a multiple of 8; 0: packed. */
    int64_t d_o_stride;
    float scale; /* of the forward pass; head_dim^-0.5 is usual */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_bwd_dav_args;

#endif /* GEN_KDA_BWD_DAV_H */
