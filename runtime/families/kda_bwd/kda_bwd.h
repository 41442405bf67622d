/*
 * What the host files of kda_bwd share: the launches of a plan, the workspace (stages.c), and what
 * the tuner, the verifier and the tests need (inputs.c).
 */
#ifndef GEN_FAMILIES_KDA_BWD_H
#define GEN_FAMILIES_KDA_BWD_H

#include "families/kda/stage.h"
#include "families/kda_bwd/api.h"
#include "families/kda_bwd_dav/api.h"
#include "families/kda_bwd_dhu/api.h"
#include "families/kda_bwd_grad/api.h"
#include "families/kda_bwd_intra/api.h"
#include "families/kda_bwd_wy/api.h"
#include "families/kda_chunk_h/api.h"
#include "families/kda_gate_bwd/api.h"
#include "families/kda_qk_bwd/api.h"
#include "kda_bwd/args.h"
#include "kda_bwd_grad/args.h"
#include "kda_bwd_intra/args.h"
#include "kda_gate_bwd/args.h"
#include "kda_qk_bwd/args.h"
#include "kda_bwd_dav/args.h"
#include "kda_bwd_dhu/args.h"
#include "kda_bwd_wy/args.h"
#include "kda_chunk_h/args.h"

/* gen_plan.dims: those of stages, `keep`, whether one launch makes all gradients, and whether that
 * adds those of a group's heads. */
enum { KDA_BWD_KEEP = KDA_NUM_DIMS, KDA_BWD_FUSED, KDA_BWD_SUMMED, KDA_BWD_NUM_DIMS };
_Static_assert(KDA_BWD_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* What launches of plans with tokens are. */
enum kda_bwd_launch {
    KDA_BWD_LAUNCH_PREPARE, /* our own */
    KDA_BWD_LAUNCH_STATES,  /* kda_chunk_h's; with `keep` our own */
    KDA_BWD_LAUNCH_DAV,
    KDA_BWD_LAUNCH_DHU,
    KDA_BWD_LAUNCH_WY,
    KDA_BWD_LAUNCH_INTRA,
    KDA_BWD_LAUNCH_GATE_BWD,
    KDA_BWD_LAUNCH_QK_BWD,
    KDA_BWD_LAUNCH_GRAD, /* the last four at once, but for sums over groups and tokens */
    KDA_BWD_LAUNCH_SUMS, /* our own */
    KDA_BWD_NUM_KINDS
};

enum { KDA_BWD_SUM_CHANNELS = 32 }; /* of a block of the last */

/* Launches of a plan with tokens, and what each is: the first eight kinds in their order, or those
 * of a plan with KDA_BWD_LAUNCH_GRAD. */
uint32_t gen__kda_bwd_num_launches(const int32_t *dims);
enum kda_bwd_launch gen__kda_bwd_kind(const int32_t *dims, uint32_t launch);

/* Whether a launch's betas are raw; the others' are activated, in fp32. */
bool gen__kda_bwd_takes_betas(enum kda_bwd_launch kind);

/* The family that a launch is left to; NULL: our own. */
const struct gen__family *gen__kda_bwd_stage(const int32_t *dims, uint32_t launch);

static inline const int32_t *gen__kda_bwd_dims(const gen_problem *problem)
{
    return (const int32_t *)(const void *)((const char *)problem +
                                           offsetof(gen_kda_bwd_problem, batch));
}

/* Bytes of the workspace of a problem with tokens. */
uint64_t gen__kda_bwd_workspace(const int32_t *dims);
/* gen__family.params of a launch that is left to `stage`. */
enum gen_status gen__kda_bwd_stage_params(const struct gen__family *stage, const int32_t *dims,
                                          uint32_t launch, const gen_kda_bwd_args *a,
                                          char *workspace, void *out);
/* Of our own launches. */
void gen__kda_bwd_own_params(const int32_t *dims, uint32_t launch, const gen_kda_bwd_args *a,
                             char *workspace, struct gen_kda_bwd_params *out);
/* Raw inputs, as kda_intra has them. */
gen_kda_intra_args gen__kda_bwd_inputs(const gen_kda_bwd_args *a);

enum kda_bwd_tensor {
    KDA_BWD_Q,
    KDA_BWD_K,
    KDA_BWD_V,
    KDA_BWD_G,
    KDA_BWD_BETA,
    KDA_BWD_A_LOG,
    KDA_BWD_DT_BIAS,
    KDA_BWD_CU_SEQLENS,
    KDA_BWD_INITIAL_STATE,
    KDA_BWD_STATES,
    KDA_BWD_D_O,
    KDA_BWD_D_FINAL_STATE,
    KDA_BWD_D_Q,
    KDA_BWD_D_K,
    KDA_BWD_D_V,
    KDA_BWD_D_G,
    KDA_BWD_D_BETA,
    KDA_BWD_D_A_LOG,
    KDA_BWD_D_DT_BIAS,
    KDA_BWD_D_INITIAL_STATE,
    KDA_BWD_NUM_TENSORS
};

enum gen_status gen__kda_bwd_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_bwd_exact(const gen_plan *plan, const gen_args *args,
                                   double *const *exact);

uint32_t gen__kda_bwd_tensors(const gen_problem *base,
                              struct gen__tensor tensors[GEN__MAX_TENSORS]);
void gen__kda_bwd_default_args(const gen_problem *base, gen_args *args);
enum gen_status gen__kda_bwd_fill(const gen_problem *base, const gen_args *args,
                                  const struct gen__tensor *list,
                                  const struct gen__fill_options *options, void *const *data);
void gen__kda_bwd_cost(const gen_problem *base, double *bytes, double *flops);
void gen__kda_bwd_case_name(const gen_problem *base, char *text, size_t capacity);

enum { GEN__KDA_BWD_NUM_FORMS = 14 };
extern const char *const gen__kda_bwd_forms[GEN__KDA_BWD_NUM_FORMS];
bool gen__kda_bwd_form(const gen_problem *base, uint32_t index, gen_args *args,
                       struct gen__tensor *t);
bool gen__kda_bwd_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                       struct gen__tensor *tensors);

#endif /* GEN_FAMILIES_KDA_BWD_H */
