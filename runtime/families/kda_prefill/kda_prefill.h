/*
 * What the host files of kda_prefill share: the launches, and what the tuner, the
 * verifier and the tests need (inputs.c).
 */
#ifndef GEN_FAMILIES_KDA_PREFILL_H
#define GEN_FAMILIES_KDA_PREFILL_H

#include "families/kda/segments.h"
#include "families/kda_prefill/api.h"

/* The problem's fields, which are the dims. */
static inline const int32_t *gen__kda_prefill_dims(const gen_problem *base)
{
    return (const int32_t *)(const void *)((const char *)base +
                                           offsetof(gen_kda_prefill_problem, batch));
}

/* What is asked for: chunks of a segment, -1: none, 0: as estimated. */
static inline int32_t gen__kda_prefill_wanted(const gen_problem *base)
{
    return ((const gen_kda_prefill_problem *)base)->segment_chunks;
}

uint32_t gen__kda_prefill_tensors(const gen_problem *base,
                                  struct gen__tensor tensors[GEN__MAX_TENSORS]);
void gen__kda_prefill_default_args(const gen_problem *base, gen_args *args);
enum gen_status gen__kda_prefill_fill(const gen_problem *base, const gen_args *args,
                                      const struct gen__tensor *list,
                                      const struct gen__fill_options *options, void *const *data);
void gen__kda_prefill_cost(const gen_problem *base, double *bytes, double *flops);
void gen__kda_prefill_case_name(const gen_problem *base, char *text, size_t capacity);
void gen__kda_prefill_set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS]);

enum { GEN__KDA_PREFILL_NUM_FORMS = 18 };
extern const char *const gen__kda_prefill_forms[GEN__KDA_PREFILL_NUM_FORMS];
bool gen__kda_prefill_form(const gen_problem *base, uint32_t index, gen_args *args,
                           struct gen__tensor *t);
bool gen__kda_prefill_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                           struct gen__tensor *tensors);

#endif /* GEN_FAMILIES_KDA_PREFILL_H */
