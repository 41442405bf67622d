/* Merge of attention states for the tuner, the verifier and the tests: its tensors, their
 * tolerances, and other ways to pass a problem. */
#include "families/attn_merge/attn_merge.h"
#include "reference/data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sums in fp32 of as exact weights: off by their last bits, so an output of 16 bits is one rounding
 * off at most (as in la_decode/inputs.c), one of fp32 some units in the last place, as is a
 * log-sum-exp of a few units. Where values cancel, the sums' bits are those of the greatest. */
static const double bf16_tolerance = 0x1p-8, fp16_tolerance = 0x1p-11, fp32_tolerance = 2e-6;
static const double lse_tolerance = 1e-5;
/* Of the logarithms: states that count for nothing, and such that count alike. */
static const double spread = 3;

#define TENSOR(...) GEN__TENSOR(gen_attn_merge_args, __VA_ARGS__)

static double tolerance_of(enum gen_dtype dtype)
{
    return dtype == GEN_DTYPE_FP32   ? fp32_tolerance
           : dtype == GEN_DTYPE_FP16 ? fp16_tolerance
                                     : bf16_tolerance;
}

uint32_t gen__attn_merge_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    const enum gen_dtype from = (enum gen_dtype)p->dtype, to = (enum gen_dtype)p->o_dtype;
    const int64_t items = (int64_t)p->num_rows * p->num_heads, states = items * p->num_states;
    const struct gen__tensor list[ATTN_MERGE_NUM_TENSORS] = {
        {TENSOR(v, from, GEN__IN, GEN__FILL_NORMAL, 1, states * p->head_dim), .cold = true},
        {TENSOR(lse, GEN_DTYPE_FP32, GEN__IN, GEN__FILL_NORMAL, spread, states), .cold = true},
        {TENSOR(v_2, from, GEN__IN, GEN__FILL_NORMAL, 1, 0), .cold = true},
        {TENSOR(lse_2, GEN_DTYPE_FP32, GEN__IN, GEN__FILL_NORMAL, spread, 0), .cold = true},
        {TENSOR(o, to, GEN__OUT, GEN__FILL_POISON, 0, items * p->head_dim), .cold = true,
         .tolerance = tolerance_of(to), .row = (uint32_t)p->head_dim,
         .rounded_once = to != GEN_DTYPE_FP32},
        {TENSOR(o_lse, GEN_DTYPE_FP32, GEN__OUT, GEN__FILL_POISON, 0, items), .cold = true,
         .absolute = lse_tolerance},
    };
    memcpy(tensors, list, sizeof list);
    return ATTN_MERGE_NUM_TENSORS;
}

#undef TENSOR

void gen__attn_merge_default_args(const gen_problem *problem, gen_args *args)
{
    (void)problem;
    *(gen_attn_merge_args *)args =
        (gen_attn_merge_args){.base = {sizeof(gen_attn_merge_args), GEN_ATTN_MERGE}};
}

static void put_nan(enum gen_dtype dtype, void *data, int64_t at, int64_t count)
{
    for (int64_t i = at; i < at + count; i++)
        if (dtype == GEN_DTYPE_FP32)
            ((float *)data)[i] = NAN;
        else
            ((uint16_t *)data)[i] = 0x7fff; /* of either type */
}

/* Every third state is empty, by either sign, and what stands in its place is NaN; of some items
 * all are. */
enum gen_status gen__attn_merge_fill(const gen_problem *base, const gen_args *args,
                                     const struct gen__tensor *list,
                                     const struct gen__fill_options *options, void *const *data)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    const gen_attn_merge_args *a = (const gen_attn_merge_args *)args;
    struct gen__attn_merge_strides s;
    gen_attn_merge_args two = *a;
    two.v_2 = list[ATTN_MERGE_V_2].count ? args : NULL; /* pointers are not there yet */
    s = gen__attn_merge_strides(&p->num_rows, &two);
    for (int64_t row = 0; options->non_finite && row < p->num_rows; row++)
        for (int64_t head = 0; head < p->num_heads; head++)
            for (int64_t i = 0; i < p->num_states; i++) {
                const bool second = two.v_2 && i;
                void *const v = data[second ? ATTN_MERGE_V_2 : ATTN_MERGE_V];
                float *const lse = data[second ? ATTN_MERGE_LSE_2 : ATTN_MERGE_LSE];
                if (!v || !lse || ((row + head + i) % 3 && (row + head) % 7))
                    continue;
                lse[second ? row * s.lse_2_row + head * s.lse_2_head
                           : row * s.lse_row + i * s.lse_state + head * s.lse_head] =
                    (row + i) % 2 ? INFINITY : -INFINITY;
                put_nan(list[ATTN_MERGE_V].dtype, v,
                        second ? row * s.v_2_row + head * s.v_2_head
                               : row * s.v_row + i * s.v_state + head * s.v_head,
                        p->head_dim);
            }
    return GEN_OK;
}

void gen__attn_merge_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    const double items = (double)p->num_rows * p->num_heads, width = p->head_dim;
    *bytes = items * (p->num_states * (width * (double)gen__attn_merge_bytes(p->dtype) + 4) +
                      width * (double)gen__attn_merge_bytes(p->o_dtype) + 4);
    *flops = items * p->num_states * width * 2;
}

void gen__attn_merge_case_name(const gen_problem *base, char *text, size_t capacity)
{
    static const char *const names[] = {"bf16", "fp16", "fp32"};
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    const bool same = p->o_dtype == p->dtype;
    snprintf(text, capacity, "N%" PRId32 "-S%" PRId32 "-H%" PRId32 "-D%" PRId32 "-%s%s%s",
             p->num_rows, p->num_states, p->num_heads, p->head_dim, names[p->dtype],
             same ? "" : "-", same ? "" : names[p->o_dtype]);
}

/* two: two tensors. in_place: over the second of them. state_major: states are the outermost
 * dimension, as kernels that split the keys have them. */
enum form {
    FORM_TWO,
    FORM_TWO_STRIDES,
    FORM_IN_PLACE,
    FORM_STATE_MAJOR,
    FORM_STRIDES,
    FORM_NO_LSE,
    FORM_BASE_2
};
const char *const gen__attn_merge_forms[ATTN_MERGE_NUM_FORMS] = {
    "two", "two_strides", "in_place", "state_major", "strides", "no_lse", "base_2"};

static bool two_form(const gen_attn_merge_problem *p, struct gen__tensor *t)
{
    const uint64_t items = (uint64_t)p->num_rows * (uint64_t)p->num_heads;
    const uint64_t width = (uint64_t)p->head_dim;
    t[ATTN_MERGE_V].count = t[ATTN_MERGE_V_2].count = items * width;
    t[ATTN_MERGE_LSE].count = t[ATTN_MERGE_LSE_2].count = items;
    return p->num_states == 2;
}

/* Elements from the first to behind the last of rows, heads and states of `width`. */
static uint64_t reach(const gen_attn_merge_problem *p, int64_t states, int64_t width, int64_t row,
                      int64_t head, int64_t state)
{
    return p->num_rows ? (uint64_t)((p->num_rows - 1) * row + (p->num_heads - 1) * head +
                                    (states - 1) * state + width)
                       : 0;
}

/* Each tensor with gaps of its own; of the first logarithms heads are outside of rows. */
static void two_strides_form(const gen_attn_merge_problem *p, gen_attn_merge_args *a,
                             struct gen__tensor *t)
{
    const int64_t heads = p->num_heads, width = p->head_dim;
    a->v_head_stride = width + 8;
    a->v_2_row_stride = heads * width + 16;
    a->lse_head_stride = p->num_rows + 1;
    a->lse_row_stride = 1;
    a->lse_2_head_stride = 2;
    a->lse_2_row_stride = 2 * heads + 3;
    t[ATTN_MERGE_V].count = reach(p, 1, width, heads * (width + 8), width + 8, 0);
    t[ATTN_MERGE_V_2].count = reach(p, 1, width, a->v_2_row_stride, width, 0);
    t[ATTN_MERGE_LSE].count = reach(p, 1, 1, 1, a->lse_head_stride, 0);
    t[ATTN_MERGE_LSE_2].count = reach(p, 1, 1, a->lse_2_row_stride, 2, 0);
}

static bool in_place_form(const gen_attn_merge_problem *p, struct gen__tensor *t)
{
    if (!two_form(p, t) || p->dtype != p->o_dtype)
        return false;
    t[ATTN_MERGE_V_2].role = t[ATTN_MERGE_LSE_2].role = GEN__INOUT;
    t[ATTN_MERGE_V_2].tolerance = t[ATTN_MERGE_O].tolerance;
    t[ATTN_MERGE_V_2].row = t[ATTN_MERGE_O].row;
    t[ATTN_MERGE_LSE_2].absolute = lse_tolerance;
    t[ATTN_MERGE_O].view_of = ATTN_MERGE_V_2 + 1;
    t[ATTN_MERGE_O_LSE].view_of = ATTN_MERGE_LSE_2 + 1;
    t[ATTN_MERGE_O].count = t[ATTN_MERGE_O_LSE].count = 0;
    return true;
}

static void state_major_form(const gen_attn_merge_problem *p, gen_attn_merge_args *a)
{
    const int64_t items = (int64_t)p->num_rows * p->num_heads;
    a->v_state_stride = items * p->head_dim;
    a->v_row_stride = (int64_t)p->num_heads * p->head_dim;
    a->lse_state_stride = items;
    a->lse_head_stride = p->num_rows;
    a->lse_row_stride = 1;
}

static void stride_form(const gen_attn_merge_problem *p, gen_attn_merge_args *a,
                        struct gen__tensor *t)
{
    const int64_t heads = p->num_heads, states = p->num_states, width = p->head_dim;
    const int64_t head = width + 8;
    a->v_head_stride = a->o_head_stride = head;
    a->lse_head_stride = 3;
    a->o_lse_head_stride = 2;
    t[ATTN_MERGE_V].count = reach(p, states, width, states * heads * head, head, heads * head);
    t[ATTN_MERGE_LSE].count = reach(p, states, 1, states * heads * 3, 3, heads * 3);
    t[ATTN_MERGE_O].count = reach(p, 1, width, heads * head, head, 0);
    t[ATTN_MERGE_O].row = (uint32_t)head;
    t[ATTN_MERGE_O_LSE].count = reach(p, 1, 1, heads * 2, 2, 0);
}

bool gen__attn_merge_form(const gen_problem *base, uint32_t index, gen_args *args,
                          struct gen__tensor *t)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    gen_attn_merge_args *a = (gen_attn_merge_args *)args;
    switch ((enum form)index) {
    case FORM_TWO:
        return two_form(p, t);
    case FORM_TWO_STRIDES:
        two_strides_form(p, a, t);
        return p->num_states == 2;
    case FORM_IN_PLACE:
        return in_place_form(p, t);
    case FORM_STATE_MAJOR:
        state_major_form(p, a);
        return p->num_rows > 0;
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_NO_LSE:
        t[ATTN_MERGE_O_LSE].count = 0;
        return true;
    case FORM_BASE_2:
        a->lse_base_2 = 1;
        return true;
    }
    return false;
}

static const double greatest_bf16_in_fp16 = 65280;

bool gen__attn_merge_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *t)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    (void)args;
    if (kind == GEN__DATA_CORRELATED)
        return false;
    for (int i = ATTN_MERGE_V; i <= ATTN_MERGE_V_2; i += ATTN_MERGE_V_2 - ATTN_MERGE_V) {
        gen__data_values(kind, &t[i], p->head_dim, true);
        if (kind == GEN__DATA_EXTREME) /* what both types hold: fp16's greatest is infinite by way
                                          of bf16 */
            t[i].amount =
                fmin(t[i].amount, p->o_dtype == GEN_DTYPE_FP16 ? greatest_bf16_in_fp16 : 0x1p40);
    }
    /* Logarithms of long rows of large scores. */
    if (kind == GEN__DATA_MEAN1 || kind == GEN__DATA_EXTREME)
        t[ATTN_MERGE_LSE].mean = t[ATTN_MERGE_LSE_2].mean = 1000;
    return true;
}
