/*
 * Dense attention in plain C: what the kernels are compared with, what the maths
 * is (templates/attn_fwd/args.h has it in symbols), and the backend where there
 * is no GPU.
 *
 * Everything is double from the load to the store, so each result is rounded
 * once. A row's scores are computed all together, then their maximum, then
 * their sum: no running maximum, unlike the kernels. Keys and values beyond a
 * request's end are not read.
 */
#include "families/attn_fwd/attn_fwd.h"
#include "reference/half.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_DIM = 256 };

/* One call. */
struct shape {
    const gen_attn_fwd_args *args;
    const int32_t *dims;
    struct gen__attn_strides strides;
    enum gen_dtype dtype, output;
    int dim;
    int64_t left, right;
};

/* Rows of a request: how many, and how many of the packed tensor come before. */
struct rows {
    int64_t before, count;
};

/* Keys and values of a request's head, as they count, room for a row's scores, and what its
 * queries are multiplied by. */
struct head {
    double *k, *v, *scores;
    double q_descale;
};

static double element(enum gen_dtype dtype, const void *tensor, int64_t offset)
{
    if (dtype == GEN_DTYPE_E4M3)
        return gen__e4m3_to_double(((const uint8_t *)tensor)[offset]);
    if (dtype == GEN_DTYPE_E5M2)
        return gen__e5m2_to_double(((const uint8_t *)tensor)[offset]);
    const uint16_t code = ((const uint16_t *)tensor)[offset];
    return dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(code) : gen__bf16_to_double(code);
}

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* Whatever the list says, the rows exist. */
static struct rows rows_of(const int32_t *cu_seqlens, int64_t b, int64_t total, int64_t most)
{
    const int64_t before = clamp(cu_seqlens[b], 0, total);
    const int64_t count = clamp(cu_seqlens[b + 1], before, total) - before;
    return (struct rows){before, count < most ? count : most};
}

static int64_t offset(const struct shape *s, const struct gen_attn_strides *strides, int64_t b,
                      int64_t row, int64_t head)
{
    return (s->dims[ATTN_FWD_VARLEN] ? 0 : b * strides->batch) + row * strides->row +
           head * strides->head;
}

static double descale(const struct shape *s, const float *descales, int64_t b, int64_t head)
{
    return descales ? (double)descales[b * s->dims[ATTN_FWD_NUM_KV_HEADS] + head] : 1.0;
}

/* Rows [before, before + count) of k or v of a head, as doubles, times its descale. */
static void load_rows(const struct shape *s, const void *tensor, const float *descales,
                      const struct gen_attn_strides *strides, int64_t b, struct rows rows,
                      int64_t head, double *to)
{
    const double factor = descale(s, descales, b, head);
    for (int64_t j = 0; j < rows.count; j++) {
        const int64_t at = offset(s, strides, b, rows.before + j, head);
        for (int d = 0; d < s->dim; d++)
            to[j * s->dim + d] = factor * element(s->dtype, tensor, at + d);
    }
}

/* In eight sums that a compiler may keep in vectors. */
static double dot(const double *a, const double *b, int count)
{
    double sum[8] = {0};
    for (int i = 0; i < count; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static double score(const struct shape *s, const double *q, const double *k)
{
    const double x = (double)s->args->scale * dot(q, k, s->dim);
    if (!s->dims[ATTN_FWD_SOFTCAP])
        return x;
    const double cap = (double)s->args->softcap;
    return cap * tanh(x / cap);
}

/* o and the log-sum-exp of one row, which sees keys [first, end) of a head. */
static double attend(const struct shape *s, const struct head *h, const double *q, int64_t first,
                     int64_t end, double *o)
{
    double max = -INFINITY, sum = 0;
    for (int d = 0; d < s->dim; d++)
        o[d] = 0;
    for (int64_t j = first; j < end; j++) {
        const double x = score(s, q, h->k + j * s->dim);
        h->scores[j] = x;
        max = isnan(x) || x > max ? x : max;
    }
    for (int64_t j = first; j < end; j++) {
        const double p = exp(h->scores[j] - max);
        sum += p;
        for (int d = 0; d < s->dim; d++)
            o[d] += p * h->v[j * s->dim + d];
    }
    if (first >= end)
        return -INFINITY;
    for (int d = 0; d < s->dim; d++)
        o[d] /= sum;
    return max + log(sum);
}

static void write_row(const struct shape *s, int64_t b, int64_t row, int64_t head, const double *o,
                      double lse, double *exact)
{
    const int64_t at = offset(s, &s->strides.o, b, row, head);
    for (int d = 0; d < s->dim; d++) {
        ((uint16_t *)s->args->o)[at + d] =
            s->output == GEN_DTYPE_FP16 ? gen__fp16_from_double(o[d]) : gen__bf16_from_double(o[d]);
        if (exact)
            exact[at + d] = o[d];
    }
    if (s->args->lse)
        s->args->lse[offset(s, &s->strides.lse, b, row, head)] = (float)lse;
}

static void attend_request(const struct shape *s, int64_t b, struct head *h, double *exact)
{
    const int32_t *dims = s->dims;
    const gen_attn_fwd_args *a = s->args;
    struct rows q = {0, dims[ATTN_FWD_Q_LEN]}, k = {0, dims[ATTN_FWD_KV_LEN]};
    if (dims[ATTN_FWD_VARLEN]) {
        q = rows_of(a->cu_seqlens_q, b, a->total_q, q.count);
        k = rows_of(a->cu_seqlens_k, b, a->total_k, k.count);
    }
    const int64_t heads = dims[ATTN_FWD_NUM_Q_HEADS], group = heads / dims[ATTN_FWD_NUM_KV_HEADS];
    for (int64_t head = 0; head < heads; head++) {
        if (head % group == 0) {
            load_rows(s, a->k, a->k_descale, &s->strides.k, b, k, head / group, h->k);
            load_rows(s, a->v, a->v_descale, &s->strides.v, b, k, head / group, h->v);
            h->q_descale = descale(s, a->q_descale, b, head / group);
        }
        for (int64_t i = 0; i < q.count; i++) {
            double query[MAX_DIM], o[MAX_DIM];
            const int64_t q_at = offset(s, &s->strides.q, b, q.before + i, head);
            for (int d = 0; d < s->dim; d++)
                query[d] = h->q_descale * element(s->dtype, a->q, q_at + d);
            const int64_t place = i + k.count - q.count;
            const int64_t first = clamp(place - s->left, 0, k.count);
            const int64_t end = clamp(place + s->right + 1, first, k.count);
            const double lse = attend(s, h, query, first, end, o);
            write_row(s, b, q.before + i, head, o, lse, exact);
        }
    }
}

enum gen_status gen__attn_fwd_exact(const gen_plan *plan, const gen_args *base,
                                    double *const *exact)
{
    const gen_attn_fwd_args *a = (const gen_attn_fwd_args *)base;
    const int32_t *dims = plan->dims;
    const struct shape s = {
        .args = a,
        .dims = dims,
        .strides = gen__attn_fwd_strides(dims, a),
        .dtype = (enum gen_dtype)dims[ATTN_FWD_DTYPE],
        .output = gen__attn_output(dims[ATTN_FWD_DTYPE], dims[ATTN_FWD_O_DTYPE]),
        .dim = dims[ATTN_FWD_HEAD_DIM],
        .left = gen__attn_left(dims),
        .right = gen__attn_right(dims),
    };
    const size_t keys = (size_t)dims[ATTN_FWD_KV_LEN], width = (size_t)s.dim;
    const size_t bytes = (2 * width + 1) * (keys + 1) * sizeof(double);
    double *memory = malloc(bytes);
    if (!memory)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                         "attn_fwd: no memory for the reference: %zu bytes", bytes);
    struct head head = {memory, memory + keys * width, memory + 2 * keys * width, 1.0};
    for (int64_t b = 0; b < dims[ATTN_FWD_BATCH]; b++)
        attend_request(&s, b, &head, exact[ATTN_FWD_O]);
    free(memory);
    return GEN_OK;
}

enum gen_status gen__attn_fwd_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[ATTN_FWD_NUM_TENSORS] = {NULL};
    return gen__attn_fwd_exact(plan, base, none);
}
