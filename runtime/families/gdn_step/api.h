/*
 * One decode step of a Gated DeltaNet layer in one launch: problem and arguments.
 *
 * The step of kda_step with one gate a token and value head instead of one a channel of K
 * (Qwen3-Next and Qwen3.5: gate_form GEN_KDA_GATE_SOFTPLUS of the raw gate, beta_form
 * GEN_KDA_BETA_SIGMOID, z_form GEN_KDA_Z_SILU). Problem and arguments are those of kda_step, with
 * GEN_GDN_STEP for the family, and mean the same but for:
 *
 *     gate         [batch, num_v_heads], aligned as one element
 *     gate_stride  any number of elements from num_v_heads on; 0: packed
 *     dt_bias      [num_v_heads], 4-byte aligned; NULL: 0
 */
#ifndef GEN_GDN_STEP_H
#define GEN_GDN_STEP_H

#include "families/kda_step/api.h"

enum gen_gdn_step_tag { GEN_GDN_STEP = 0x47445354 /* "GDST" */ };

typedef gen_kda_step_problem gen_gdn_step_problem;
typedef gen_kda_step_args gen_gdn_step_args;

#endif /* GEN_GDN_STEP_H */
