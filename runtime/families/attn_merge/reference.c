/*
 * Merge of attention states in plain C: what the kernels are compared with, and the backend where
 * there is no GPU. api.h has the operator. Everything between load and store is double.
 */
#include "families/attn_merge/attn_merge.h"
#include "reference/half.h"

#include <math.h>

#define MAX_HEAD_DIM 512

struct shape {
    const gen_attn_merge_args *args;
    struct gen__attn_merge_strides strides;
    int64_t states, width;
    int32_t dtype, o_dtype;
};

static double load(int32_t dtype, const void *tensor, int64_t at)
{
    return dtype == GEN_DTYPE_FP32   ? (double)((const float *)tensor)[at]
           : dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(((const uint16_t *)tensor)[at])
                                     : gen__bf16_to_double(((const uint16_t *)tensor)[at]);
}

static void store(int32_t dtype, void *tensor, int64_t at, double x)
{
    if (dtype == GEN_DTYPE_FP32)
        ((float *)tensor)[at] = (float)x;
    else
        ((uint16_t *)tensor)[at] =
            dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

static bool is_second(const struct shape *s, int64_t state)
{
    return s->args->v_2 && state;
}

/* -infinity of an empty state. */
static double lse_at(const struct shape *s, int64_t row, int64_t state, int64_t head)
{
    const struct gen__attn_merge_strides *t = &s->strides;
    const double lse =
        is_second(s, state)
            ? (double)s->args->lse_2[row * t->lse_2_row + head * t->lse_2_head]
            : (double)s->args->lse[row * t->lse_row + state * t->lse_state + head * t->lse_head];
    return lse == (double)INFINITY ? -(double)INFINITY : lse;
}

static double value_at(const struct shape *s, int64_t row, int64_t state, int64_t head, int64_t c)
{
    const struct gen__attn_merge_strides *t = &s->strides;
    return is_second(s, state)
               ? load(s->dtype, s->args->v_2, row * t->v_2_row + head * t->v_2_head + c)
               : load(s->dtype, s->args->v,
                      row * t->v_row + state * t->v_state + head * t->v_head + c);
}

static void merge_item(const struct shape *s, int64_t row, int64_t head, double *exact)
{
    const struct gen__attn_merge_strides *t = &s->strides;
    const bool base_2 = s->args->lse_base_2;
    double max = -(double)INFINITY, sum = 0, o[MAX_HEAD_DIM] = {0};
    for (int64_t i = 0; i < s->states; i++)
        max = fmax(max, lse_at(s, row, i, head));
    for (int64_t i = 0; i < s->states; i++) {
        const double lse = lse_at(s, row, i, head);
        if (lse == -(double)INFINITY)
            continue;
        const double w = base_2 ? exp2(lse - max) : exp(lse - max);
        sum += w;
        for (int64_t c = 0; c < s->width; c++)
            o[c] += w * value_at(s, row, i, head, c);
    }
    const int64_t at = row * t->o_row + head * t->o_head;
    for (int64_t c = 0; c < s->width; c++) {
        const double x = sum != 0 ? o[c] / sum : 0.0;
        store(s->o_dtype, s->args->o, at + c, x);
        if (exact)
            exact[at + c] = x;
    }
    if (s->args->o_lse)
        s->args->o_lse[row * t->o_lse_row + head * t->o_lse_head] =
            (float)(sum != 0 ? max + (base_2 ? log2(sum) : log(sum)) : -(double)INFINITY);
}

enum gen_status gen__attn_merge_exact(const gen_plan *plan, const gen_args *base,
                                      double *const *exact)
{
    const gen_attn_merge_args *a = (const gen_attn_merge_args *)base;
    const struct shape s = {
        .args = a,
        .strides = gen__attn_merge_strides(plan->dims, a),
        .states = plan->dims[ATTN_MERGE_NUM_STATES],
        .width = plan->dims[ATTN_MERGE_HEAD_DIM],
        .dtype = plan->dims[ATTN_MERGE_DTYPE],
        .o_dtype = plan->dims[ATTN_MERGE_O_DTYPE],
    };
    for (int64_t row = 0; row < plan->dims[ATTN_MERGE_NUM_ROWS]; row++)
        for (int64_t head = 0; head < plan->dims[ATTN_MERGE_NUM_HEADS]; head++)
            merge_item(&s, row, head, exact[ATTN_MERGE_O]);
    return GEN_OK;
}

enum gen_status gen__attn_merge_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[ATTN_MERGE_NUM_TENSORS] = {NULL};
    return gen__attn_merge_exact(plan, base, none);
}
