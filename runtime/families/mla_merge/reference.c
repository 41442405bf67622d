/*
 * MLA merge in plain C: what the kernels are compared with.
 *
 * For each record of more than one piece, and each row (query token t, head h) of
 * its request, over the pieces i, whose slots hold o_i (fp16 in units of powers of two,
 * see struct gen_mla_partial_row) and the base-2 lse_i:
 *
 *     L   = max lse_i
 *     w_i = 2^(lse_i - L),  d = sum of w_i
 *     o   = out_scale * sum of w_i o_i / d
 *     lse = L + log2 d, or that times ln 2
 *
 * and o = 0, lse = -infinity where L is. A piece of lse_i = -infinity is empty: its
 * o_i is not looked at. Neither is a slot that the workspace does not have.
 */
#include "families/mla_merge/mla_merge.h"
#include "reference/half.h"

#include <math.h>

enum { LATENT = MLA_LATENT };

struct shape {
    const gen_mla_merge_args *args;
    int64_t num_heads, q_len;
    struct gen__mla_merge_strides strides;
    bool fp16;
};

/* The row's place in the slot of piece i; negative: the piece is not there. */
static int64_t place_of(const struct shape *s, const struct gen_mla_record *record, int64_t i,
                        int64_t row)
{
    const int64_t beyond = s->args->chunked ? i : i ? 2 * i - 1 : 0;
    const int64_t slot = record->first_slot + beyond;
    return slot >= 0 && slot < s->args->num_slots ? slot * s->q_len * s->num_heads + row : -1;
}

static double lse_at(const struct shape *s, int64_t place)
{
    return place < 0 ? -INFINITY : (double)s->args->partial_rows[place].lse;
}

/* What a column is in units of: the fp32 number of an exponent alone. */
static double unit_at(const struct shape *s, int64_t place, int column)
{
    const int cell = column / 64;
    const uint32_t word = (uint32_t)s->args->partial_rows[place].exponents[cell / 4];
    const uint32_t exponent = word >> 8 * (cell % 4) & 0xff;
    return exponent == 0      ? 0.0
           : exponent == 0xff ? (double)INFINITY
                              : ldexp(1.0, (int)exponent - 127);
}

/* Token t and head h of the record's request; `token` counts through the batch. */
static void merge_row(const struct shape *s, const struct gen_mla_record *record, int64_t t,
                      int64_t h, int64_t token, double *exact)
{
    const int64_t row = t * s->num_heads + h;
    double max = -INFINITY, sum = 0, o[LATENT] = {0};
    for (int64_t i = 0; i < record->num_pieces; i++)
        max = fmax(max, lse_at(s, place_of(s, record, i, row)));
    for (int64_t i = 0; i < record->num_pieces; i++) {
        const int64_t place = place_of(s, record, i, row);
        const double lse = lse_at(s, place);
        if (lse == -INFINITY)
            continue;
        const double w = exp2(lse - max);
        sum += w;
        for (int c = 0; c < LATENT; c++)
            o[c] += w * unit_at(s, place, c) *
                    gen__fp16_to_double(((const uint16_t *)s->args->partial)[place * LATENT + c]);
    }
    const int64_t at = token * s->strides.o_token + h * s->strides.o_head;
    for (int c = 0; c < LATENT; c++) {
        const double x = sum != 0 ? (double)s->args->out_scale * o[c] / sum : 0.0;
        ((uint16_t *)s->args->o)[at + c] =
            s->fp16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
        if (exact)
            exact[at + c] = x;
    }
    if (!s->args->lse)
        return;
    const double lse = sum != 0 ? max + log2(sum) : -INFINITY;
    s->args->lse[token * s->strides.lse_token + h * s->strides.lse_head] =
        (float)(s->args->lse_base_2 ? lse : lse * log(2.0));
}

static void merge_record(const struct shape *s, const struct gen_mla_record *record, double *exact)
{
    const int32_t *indptr = s->args->q_indptr;
    if (record->request < 0 || record->num_pieces <= 1)
        return;
    const int64_t first = indptr ? indptr[record->request] : record->request * s->q_len;
    int64_t count = indptr ? (int64_t)indptr[record->request + 1] - first : s->q_len;
    count = count < s->q_len ? count : s->q_len;
    for (int64_t t = 0; t < count; t++)
        for (int64_t h = 0; h < s->num_heads; h++)
            merge_row(s, record, t, h, first + t, exact);
}

enum gen_status gen__mla_merge_exact(const gen_plan *plan, const gen_args *base,
                                     double *const *exact)
{
    const gen_mla_merge_args *a = (const gen_mla_merge_args *)base;
    const struct shape s = {
        .args = a,
        .num_heads = plan->dims[MLA_MERGE_NUM_HEADS],
        .q_len = plan->dims[MLA_MERGE_Q_LEN],
        .strides = gen__mla_merge_strides(plan->dims, a),
        .fp16 = plan->dims[MLA_MERGE_DTYPE] == GEN_DTYPE_FP16,
    };
    for (int64_t r = 0; r < plan->dims[MLA_MERGE_NUM_RECORDS]; r++)
        merge_record(&s, &a->records[r], exact[MLA_MERGE_O]);
    return GEN_OK;
}

enum gen_status gen__mla_merge_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[MLA_MERGE_NUM_TENSORS] = {NULL};
    return gen__mla_merge_exact(plan, base, none);
}
