/* What the host files of attn_merge share. */
#ifndef GEN_FAMILIES_ATTN_MERGE_H
#define GEN_FAMILIES_ATTN_MERGE_H

#include "attn_merge/args.h"
#include "families/attn_merge/api.h"
#include "family/family.h"

/* The launch facts, in the order of templates/attn_merge/family.lua. */
enum attn_merge_fact {
    ATTN_MERGE_SPLIT,     /* threads that share the states of 16 bytes of a row */
    ATTN_MERGE_FLIGHT,    /* states whose loads a thread has under way */
    ATTN_MERGE_DEPENDENT, /* 1: waits on the device for the kernel before it */
    ATTN_MERGE_NUM_FACTS
};
#define ATTN_MERGE_FACTS "split,flight,dependent"

/* gen_plan.dims: the problem's fields in their order. */
enum attn_merge_dim {
    ATTN_MERGE_NUM_ROWS,
    ATTN_MERGE_NUM_HEADS,
    ATTN_MERGE_NUM_STATES,
    ATTN_MERGE_HEAD_DIM,
    ATTN_MERGE_DTYPE,
    ATTN_MERGE_O_DTYPE,
    ATTN_MERGE_THREADS, /* of the variant; 0 on the CPU */
    ATTN_MERGE_SPLITS,  /* its split */
    ATTN_MERGE_NUM_DIMS
};

/* The tensors in the order of tensors(). */
enum attn_merge_tensor {
    ATTN_MERGE_V,
    ATTN_MERGE_LSE,
    ATTN_MERGE_V_2,
    ATTN_MERGE_LSE_2,
    ATTN_MERGE_O,
    ATTN_MERGE_O_LSE,
    ATTN_MERGE_NUM_TENSORS
};

/* Elements; the packed strides spelled out. */
struct gen__attn_merge_strides {
    int64_t v_row, v_state, v_head, lse_row, lse_state, lse_head;
    int64_t v_2_row, v_2_head, lse_2_row, lse_2_head;
    int64_t o_row, o_head, o_lse_row, o_lse_head;
};

struct gen__attn_merge_strides gen__attn_merge_strides(const int32_t *dims,
                                                       const gen_attn_merge_args *args);

static inline int64_t gen__attn_merge_bytes(int32_t dtype)
{
    return dtype == GEN_DTYPE_FP32 ? 4 : 2;
}

/* inputs.c */
uint32_t gen__attn_merge_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__attn_merge_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__attn_merge_fill(const gen_problem *problem, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data);
void gen__attn_merge_cost(const gen_problem *problem, double *bytes, double *flops);
void gen__attn_merge_case_name(const gen_problem *problem, char *text, size_t capacity);
#define ATTN_MERGE_NUM_FORMS 7
extern const char *const gen__attn_merge_forms[ATTN_MERGE_NUM_FORMS];
bool gen__attn_merge_form(const gen_problem *problem, uint32_t index, gen_args *args,
                          struct gen__tensor *tensors);
bool gen__attn_merge_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__attn_merge_exact(const gen_plan *plan, const gen_args *args,
                                      double *const *exact);
enum gen_status gen__attn_merge_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_ATTN_MERGE_H */
