/*
 * Gated DeltaNet decode: problem and arguments.
 *
 * The recurrence of kda_decode with one gate a token and value head instead of one a channel; with
 * S[k,v] the state of a row and a value head hv, and qh = hv / (num_v_heads / num_qk_heads), for
 * each token in turn:
 *
 *     S[k,v] = exp(g[hv]) * S[k,v]
 *     e[v]   = v[hv,v] - sum over k of k[qh,k] * S[k,v]
 *     S[k,v] = S[k,v] + beta[hv] * k[qh,k] * e[v]
 *     o[hv,v] = scale * sum over k of q[qh,k] * S[k,v]
 *
 * (arXiv 2412.06464; Qwen3-Next and Qwen3.5: gate_form GEN_KDA_GATE_SOFTPLUS of the raw gate,
 * beta_form GEN_KDA_BETA_SIGMOID, qk_l2norm 1.) Problem and arguments are those of kda_decode, with
 * GEN_GDN_DECODE for the family, and mean the same but for:
 *
 *     g         [tokens, num_v_heads], aligned as one element
 *     g_stride  any number of elements from num_v_heads on; 0: packed
 *     dt_bias   [num_v_heads], 4-byte aligned; NULL: 0
 *     ring_g    [num_slots, num_v_heads, ring_size]: a gate a record, as it came; ring_g_stride any
 *               number of elements from there on. With a ring num_tokens is 0 or 1
 */
#ifndef GEN_GDN_DECODE_H
#define GEN_GDN_DECODE_H

#include "families/kda_decode/api.h"

enum gen_gdn_decode_tag { GEN_GDN_DECODE = 0x47444e44 /* "GDND" */ };

typedef gen_kda_decode_problem gen_gdn_decode_problem;
typedef gen_kda_decode_args gen_gdn_decode_args;

#endif /* GEN_GDN_DECODE_H */
