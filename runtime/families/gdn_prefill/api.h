/*
 * Gated DeltaNet, prefill (forward): the recurrence of kda_prefill with one gate a token and value
 * head instead of one a channel. For each sequence and value head hv, with q, k of head
 * hv / (num_v_heads / num_qk_heads), per token t, S the state (K x V), g the activated gate
 * (natural logarithm, a number) and beta activated:
 *
 *     S  = exp(g_t) S
 *     S  = S + beta_t k_t (v_t - S' k_t)'
 *     o_t = scale * S' q_t
 *
 * (arXiv 2412.06464; Qwen3-Next and Qwen3.5: gate_form GEN_KDA_GATE_SOFTPLUS of the raw gate,
 * beta_form GEN_KDA_BETA_SIGMOID, qk_l2norm 1.) Computed in chunks of 64 tokens: gdn_intra for all
 * chunks at once, then the recurrence, which reads q, k and v where they lie; segments as in
 * kda_prefill. Problem and arguments are those of kda_prefill, with GEN_GDN_PREFILL for the family,
 * and mean the same but for:
 *
 *     safe_gate  0 or 1, and not looked at: gates need no bound
 *     g          [tokens, num_v_heads], aligned to its type
 *     g_stride   any number of elements from num_v_heads on; 0: packed
 *     dt_bias    [num_v_heads], 4-byte aligned; NULL: 0
 */
#ifndef GEN_GDN_PREFILL_H
#define GEN_GDN_PREFILL_H

#include "families/kda_prefill/api.h"

enum gen_gdn_prefill_tag { GEN_GDN_PREFILL = 0x47444e50 /* "GDNP" */ };

typedef gen_kda_prefill_problem gen_gdn_prefill_problem;
typedef gen_kda_prefill_args gen_gdn_prefill_args;

#endif /* GEN_GDN_PREFILL_H */
