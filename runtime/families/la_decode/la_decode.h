/*
 * What the host files of la_decode share: the order of the launch facts and
 * of a plan's dims, and their functions.
 */
#ifndef GEN_FAMILIES_LA_DECODE_H
#define GEN_FAMILIES_LA_DECODE_H

#include "family/family.h"
#include "families/la_decode/api.h"
#include "la_decode/args.h"

/* The launch facts, in the order of templates/la_decode/family.lua. */
enum la_decode_fact {
    LA_DECODE_BLOCKS,         /* blocks per state */
    LA_DECODE_PERSISTENT,     /* 1: a block takes several slices in turn */
    LA_DECODE_INFLIGHT_BYTES, /* state bytes a block keeps on their way */
    LA_DECODE_WARP_BYTES,     /* state bytes a warp reads in one step */
    LA_DECODE_STREAMING,      /* 1: marked as used once */
    LA_DECODE_DEPENDENT,      /* 1: waits on the device for the kernel before it */
    LA_DECODE_NUM_FACTS
};
#define LA_DECODE_FACTS "blocks,persistent,inflight_bytes,warp_bytes,streaming,dependent"

/* gen_plan.dims: the problem's fields, in their order. */
enum la_decode_dim {
    LA_DECODE_BATCH,
    LA_DECODE_QK_HEADS,
    LA_DECODE_V_HEADS,
    LA_DECODE_HEAD_DIM,
    LA_DECODE_DTYPE,
    LA_DECODE_LAYOUT,
    LA_DECODE_STATE_DTYPE,
    LA_DECODE_POOL,
    LA_DECODE_NUM_DIMS
};
_Static_assert(LA_DECODE_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* The tensors in the order of tensors(). */
enum la_decode_tensor {
    LA_DECODE_Q,
    LA_DECODE_K,
    LA_DECODE_V,
    LA_DECODE_O,
    LA_DECODE_DECAY,
    LA_DECODE_STATE,
    LA_DECODE_SLOTS,
    LA_DECODE_SLOTS_OUT,
    LA_DECODE_NUM_TENSORS
};

/* Of an element of a state. */
static inline int32_t gen__la_decode_state_bytes(int32_t state_dtype)
{
    return state_dtype == GEN_STATE_FP32 ? 4 : 2;
}

/* args.c */
uint32_t gen__la_decode_extents(const int32_t *dims, const gen_args *args,
                                struct gen__extent list[GEN__MAX_EXTENTS]);
enum gen_status gen__la_decode_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                      void *workspace, void *params);

/* inputs.c */
uint32_t gen__la_decode_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__la_decode_default_args(const gen_problem *problem, gen_args *args);
void gen__la_decode_cost(const gen_problem *problem, double *bytes, double *flops);
void gen__la_decode_case_name(const gen_problem *problem, char *text, size_t capacity);
enum gen_status gen__la_decode_fill(const gen_problem *problem, const gen_args *args,
                                    const struct gen__tensor *tensors,
                                    const struct gen__fill_options *options, void *const *data);
#define LA_DECODE_NUM_FORMS 9
extern const char *const gen__la_decode_forms[LA_DECODE_NUM_FORMS];
bool gen__la_decode_form(const gen_problem *problem, uint32_t index, gen_args *args,
                         struct gen__tensor *tensors);
bool gen__la_decode_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                         struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__la_decode_exact(const gen_plan *plan, const gen_args *args,
                                     double *const *exact);
enum gen_status gen__la_decode_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_LA_DECODE_H */
