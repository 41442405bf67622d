/* What the host files of mla_merge share. */
#ifndef GEN_FAMILIES_MLA_MERGE_H
#define GEN_FAMILIES_MLA_MERGE_H

#include "family/family.h"
#include "families/mla_merge/api.h"
#include "mla_merge/args.h"

/* The launch facts, in the order of templates/mla_merge/family.lua. */
enum mla_merge_fact {
    MLA_MERGE_ROWS,      /* rows of a block */
    MLA_MERGE_SPLIT,     /* warps that share a row's pieces */
    MLA_MERGE_SLICE,     /* columns of a block */
    MLA_MERGE_DEPENDENT, /* 1: waits on the device for the kernel before it */
    MLA_MERGE_NUM_FACTS
};
#define MLA_MERGE_FACTS "rows,split,slice,dependent"

/* gen_plan.dims: the problem's fields in their order. */
enum mla_merge_dim {
    MLA_MERGE_NUM_RECORDS,
    MLA_MERGE_NUM_HEADS,
    MLA_MERGE_Q_LEN,
    MLA_MERGE_NUM_PIECES,
    MLA_MERGE_DTYPE,
    MLA_MERGE_NUM_DIMS
};

/* The tensors in the order of tensors(). */
enum mla_merge_tensor {
    MLA_MERGE_PARTIAL,
    MLA_MERGE_PARTIAL_ROWS,
    MLA_MERGE_RECORDS,
    MLA_MERGE_Q_INDPTR,
    MLA_MERGE_O,
    MLA_MERGE_LSE,
    MLA_MERGE_NUM_TENSORS
};

/* Elements; the packed strides spelled out. */
struct gen__mla_merge_strides {
    int64_t o_token, o_head, lse_token, lse_head;
};

struct gen__mla_merge_strides gen__mla_merge_strides(const int32_t *dims,
                                                     const gen_mla_merge_args *args);

/* Rows of one record. */
static inline int64_t gen__mla_merge_rows(const gen_mla_merge_problem *p)
{
    return (int64_t)p->q_len * p->num_heads;
}

/* inputs.c */
uint32_t gen__mla_merge_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__mla_merge_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__mla_merge_fill(const gen_problem *problem, const gen_args *args,
                                    const struct gen__tensor *tensors,
                                    const struct gen__fill_options *options, void *const *data);
void gen__mla_merge_cost(const gen_problem *problem, double *bytes, double *flops);
void gen__mla_merge_case_name(const gen_problem *problem, char *text, size_t capacity);
#define MLA_MERGE_NUM_FORMS 5
extern const char *const gen__mla_merge_forms[MLA_MERGE_NUM_FORMS];
bool gen__mla_merge_form(const gen_problem *problem, uint32_t index, gen_args *args,
                         struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__mla_merge_exact(const gen_plan *plan, const gen_args *args,
                                     double *const *exact);
enum gen_status gen__mla_merge_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_MLA_MERGE_H */
