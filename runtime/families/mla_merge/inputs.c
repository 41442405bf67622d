/* MLA merge for the tuner, the verifier and the tests: its tensors, their tolerances, and other
 * ways to pass a problem. */
#include "families/mla/mla.h"
#include "families/mla_merge/mla_merge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Requests follow each other as the schedule of mla_decode cuts them: the part
 * that ends one begins the next. */
static int64_t parts_each(const gen_mla_merge_problem *p)
{
    return p->num_pieces > 2 ? p->num_pieces - 1 : 1;
}

static int64_t slots_of(const gen_mla_merge_problem *p)
{
    return 2 * (p->num_records * parts_each(p) + 1);
}

/* Sums in fp32 of as exact weights: off by their last bits, so the output is one
 * rounding off at most (as in la_decode/inputs.c), and a log-sum-exp of a few
 * units by some units in the last place. */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double lse_tolerance = 1e-5;

#define TENSOR(...) GEN__TENSOR(gen_mla_merge_args, __VA_ARGS__)

uint32_t gen__mla_merge_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, fp32 = GEN_DTYPE_FP32;
    const int64_t rows = gen__mla_merge_rows(p), all = p->num_records * rows;
    const int64_t partial = p->num_records ? slots_of(p) * rows : 0;
    const double tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    /* Partial results were written just before: they are not cold. */
    const struct gen__tensor list[MLA_MERGE_NUM_TENSORS] = {
        {TENSOR(partial, GEN_DTYPE_FP16, GEN__IN, GEN__FILL_NORMAL, 1, partial * MLA_LATENT)},
        {TENSOR(partial_rows, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 4 * partial)},
        {TENSOR(records, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 4 * p->num_records)},
        {TENSOR(q_indptr, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, all * MLA_LATENT), .tolerance = tolerance,
         .row = MLA_LATENT, .rounded_once = true},
        {TENSOR(lse, fp32, GEN__OUT, GEN__FILL_POISON, 0, all), .absolute = lse_tolerance},
    };
    memcpy(tensors, list, sizeof list);
    return MLA_MERGE_NUM_TENSORS;
}

#undef TENSOR

void gen__mla_merge_default_args(const gen_problem *base, gen_args *args)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    gen_mla_merge_args *a = (gen_mla_merge_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_MLA_MERGE;
    a->num_slots = (int32_t)slots_of(p);
    a->lse_base_2 = 1;
    a->out_scale = 1.0f;
}

/* Some records have no pieces, few pieces, or of pieces beyond the workspace. */
static void pad_record(const gen_mla_merge_args *a, int64_t r, struct gen_mla_record *record)
{
    if (r % 3 == 2)
        record->num_pieces = record->num_pieces / 2 + 1;
    if (r % 3 != 1)
        return;
    switch (r / 3 % 4) {
    case 0:
        record->request = -1;
        break;
    case 1:
        record->num_pieces = 1;
        break;
    case 2:
        record->num_pieces = 0;
        break;
    default:
        record->first_slot = a->num_slots - 2;
    }
}

/* Log-sum-exps of -2 to 2 and units of 2^-2 to 2^2, as a hash of their place has them. */
static void fill_rows(struct gen_mla_partial_row *rows, int64_t count)
{
    for (int64_t at = 0; at < count; at++) {
        uint64_t hash = ((uint64_t)at + 1) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
        uint32_t exponents[2] = {0};
        for (uint32_t c = 0; c < 8; c++)
            exponents[c / 4] |= (uint32_t)(125 + (hash >> 4 * c) % 5) << 8 * (c % 4);
        rows[at] = (struct gen_mla_partial_row){
            .lse = (float)(hash >> 40) * 0x1p-22f - 2.0f,
            .exponents = {(int32_t)exponents[0], (int32_t)exponents[1]},
        };
    }
}

/* Every fourth piece is empty, and what stands in its place is NaN; of the first
 * row of every request all are. */
static void empty_pieces(const gen_mla_merge_problem *p, const gen_mla_merge_args *a,
                         uint16_t *partial, struct gen_mla_partial_row *partial_rows)
{
    const int64_t rows = gen__mla_merge_rows(p);
    for (int64_t slot = 0; slot < a->num_slots; slot++) {
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = slot * rows + row;
            if ((slot / 2 + row) % 4 != 3 && row)
                continue;
            partial_rows[at].lse = -INFINITY;
            for (int64_t i = at * MLA_LATENT; i < (at + 1) * MLA_LATENT; i++)
                partial[i] = 0x7e00; /* NaN */
        }
    }
}

enum gen_status gen__mla_merge_fill(const gen_problem *base, const gen_args *args,
                                    const struct gen__tensor *list,
                                    const struct gen__fill_options *options, void *const *data)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const gen_mla_merge_args *a = (const gen_mla_merge_args *)args;
    struct gen_mla_record *records = data[MLA_MERGE_RECORDS];
    int32_t *indptr = data[MLA_MERGE_Q_INDPTR];
    (void)list;
    for (int32_t r = 0; r < p->num_records; r++) {
        records[r] = (struct gen_mla_record){
            .request = options->ordered ? r : p->num_records - 1 - r,
            .first_slot = (int32_t)(a->chunked ? (int64_t)r * p->num_pieces
                                               : INT64_C(2) * r * parts_each(p) + 1),
            .num_pieces = p->num_pieces,
        };
        if (options->padding)
            pad_record(a, r, &records[r]);
        if (indptr) { /* q_len tokens, none, some */
            indptr[0] = 0;
            indptr[r + 1] = indptr[r] + (r % 3 == 0   ? p->q_len
                                         : r % 3 == 1 ? 0
                                                      : (p->q_len + 1) / 2);
        }
    }
    if (data[MLA_MERGE_PARTIAL_ROWS])
        fill_rows(data[MLA_MERGE_PARTIAL_ROWS], (int64_t)a->num_slots * gen__mla_merge_rows(p));
    if (options->non_finite && data[MLA_MERGE_PARTIAL])
        empty_pieces(p, a, data[MLA_MERGE_PARTIAL], data[MLA_MERGE_PARTIAL_ROWS]);
    return GEN_OK;
}

void gen__mla_merge_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const double rows = (double)p->num_records * (double)gen__mla_merge_rows(p);
    *bytes = rows * p->num_pieces * (MLA_LATENT * 2ul + sizeof(struct gen_mla_partial_row)) +
             rows * (MLA_LATENT * 2 + 4);
    *flops = rows * p->num_pieces * MLA_LATENT * 2;
}

void gen__mla_merge_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    snprintf(text, capacity, "R%" PRId32 "-S%" PRId32 "-H%" PRId32 "-T%" PRId32 "-%s",
             p->num_records, p->num_pieces, p->num_heads, p->q_len,
             p->dtype == GEN_DTYPE_FP16 ? "fp16" : "bf16");
}

enum form { FORM_CHUNKED, FORM_RAGGED, FORM_STRIDES, FORM_NO_LSE, FORM_NATURAL };
const char *const gen__mla_merge_forms[MLA_MERGE_NUM_FORMS] = {"chunked", "ragged", "strides",
                                                               "no_lse", "natural"};

static void stride_form(const gen_mla_merge_problem *p, gen_mla_merge_args *a,
                        struct gen__tensor *t)
{
    const int64_t all = p->num_records * gen__mla_merge_rows(p), heads = p->num_heads;
    a->o_head_stride = MLA_LATENT + 8;
    a->o_token_stride = heads * a->o_head_stride; /* so that rows are equally far apart */
    a->lse_head_stride = 3;
    a->lse_token_stride = heads * 3;
    t[MLA_MERGE_O].count = (uint64_t)(all ? (all - 1) * a->o_head_stride + MLA_LATENT : 0);
    t[MLA_MERGE_O].row = (uint32_t)a->o_head_stride;
    t[MLA_MERGE_LSE].count = (uint64_t)(all ? (all - 1) * 3 + 1 : 0);
}

bool gen__mla_merge_form(const gen_problem *base, uint32_t index, gen_args *args,
                         struct gen__tensor *t)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    gen_mla_merge_args *a = (gen_mla_merge_args *)args;
    switch ((enum form)index) {
    case FORM_CHUNKED:
        a->chunked = 1;
        a->out_scale = 0.45f;
        a->num_slots = p->num_records * p->num_pieces;
        t[MLA_MERGE_PARTIAL_ROWS].count = (uint64_t)(a->num_slots * gen__mla_merge_rows(p) * 4);
        t[MLA_MERGE_PARTIAL].count = (uint64_t)(a->num_slots * gen__mla_merge_rows(p) * MLA_LATENT);
        return p->num_records > 0;
    case FORM_RAGGED:
        t[MLA_MERGE_Q_INDPTR].count = (uint64_t)p->num_records + 1;
        return p->num_records > 0;
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_NO_LSE:
        t[MLA_MERGE_LSE].count = 0;
        return true;
    case FORM_NATURAL:
        a->lse_base_2 = 0;
        return true;
    }
    return false;
}
