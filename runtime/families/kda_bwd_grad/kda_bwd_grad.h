/* What the host files of kda_bwd_grad share: family.c takes what inputs.c has for the tuner and the
 * tests. */
#ifndef GEN_FAMILIES_KDA_BWD_GRAD_H
#define GEN_FAMILIES_KDA_BWD_GRAD_H

#include "families/kda/stage.h"
#include "families/kda_bwd_grad/api.h"

enum gen_status gen__kda_bwd_grad_reference(const gen_plan *plan, const gen_args *args);

uint32_t gen__kda_bwd_grad_tensors(const gen_problem *base,
                                   struct gen__tensor tensors[GEN__MAX_TENSORS]);
void gen__kda_bwd_grad_default_args(const gen_problem *base, gen_args *args);
enum gen_status gen__kda_bwd_grad_fill(const gen_problem *base, const gen_args *args,
                                       const struct gen__tensor *list,
                                       const struct gen__fill_options *options, void *const *data);
void gen__kda_bwd_grad_cost(const gen_problem *base, double *bytes, double *flops);
void gen__kda_bwd_grad_case_name(const gen_problem *base, char *text, size_t capacity);

enum { GEN__KDA_BWD_GRAD_NUM_FORMS = 9 };
extern const char *const gen__kda_bwd_grad_forms[GEN__KDA_BWD_GRAD_NUM_FORMS];
bool gen__kda_bwd_grad_form(const gen_problem *base, uint32_t index, gen_args *args,
                            struct gen__tensor *t);
bool gen__kda_bwd_grad_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                            struct gen__tensor *t);

#endif /* GEN_FAMILIES_KDA_BWD_GRAD_H */
