/*
 * Attention over paged caches in plain C: what the kernels are compared with, and the backend where
 * there is no GPU. api.h has the operator.
 *
 * Everything is double from the load to the store. Keys are walked once a row, and a maximum that
 * moves on scales what was summed before.
 */
#include "families/attn_paged/attn_paged.h"
#include "reference/half.h"

#include <math.h>
#include <string.h>

#define MAX_DIM 256

struct shape {
    const gen_attn_paged_args *args;
    const int32_t *dims;
    struct gen__attn_paged_strides strides;
    enum gen_dtype dtype, cache_dtype;
    int64_t width, group;
};

/* One request. */
struct request {
    int64_t b, first, tokens, length;
};

static double load(enum gen_dtype dtype, const void *tensor, int64_t at)
{
    return dtype == GEN_DTYPE_E4M3   ? gen__e4m3_to_double(((const uint8_t *)tensor)[at])
           : dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(((const uint16_t *)tensor)[at])
                                     : gen__bf16_to_double(((const uint16_t *)tensor)[at]);
}

static double descale(const float *scales, int64_t b, int64_t g, int64_t batch, int64_t head)
{
    return scales ? (double)scales[b * batch + g * head] : 1.0;
}

static int64_t length_of(const struct shape *s, int64_t b)
{
    const gen_attn_paged_args *a = s->args;
    int64_t length;
    if (a->kv_len) {
        length = a->kv_len[b];
    } else {
        const int64_t pages = (int64_t)a->page_indptr[b + 1] - a->page_indptr[b];
        length = pages > 0 ? (pages - 1) * s->dims[ATTN_PAGED_PAGE_SIZE] + a->last_page_len[b] : 0;
    }
    const int64_t most = s->dims[ATTN_PAGED_MAX_KV_LENGTH];
    return length < 0 ? 0 : length < most ? length : most;
}

static struct request request_of(const struct shape *s, int64_t b)
{
    const int32_t *indptr = s->args->q_indptr;
    const int64_t most = s->dims[ATTN_PAGED_Q_LEN];
    struct request r = {.b = b, .first = b * most, .tokens = most, .length = length_of(s, b)};
    if (indptr) {
        const int64_t count = (int64_t)indptr[b + 1] - indptr[b];
        r.first = indptr[b];
        r.tokens = count < 0 ? 0 : count < most ? count : most;
    }
    return r;
}

/* Where key j begins: the page, and the row in it; false: there is no such page. */
static bool find_key(const struct shape *s, const struct request *r, int64_t j, int64_t *page,
                     int64_t *row)
{
    const gen_attn_paged_args *a = s->args;
    const int64_t rows = s->dims[ATTN_PAGED_PAGE_SIZE];
    if (!rows) {
        *page = r->b;
        *row = j;
        return true;
    }
    const int64_t list = a->page_indptr ? a->page_indptr[r->b] : r->b * s->strides.page_table;
    *page = a->page_indices[list + j / rows];
    *row = j % rows;
    return *page >= 0 && *page < a->num_pages;
}

struct sums {
    double max, sum, o[MAX_DIM];
};

static void attend(const struct shape *s, const struct request *r, int64_t j, int64_t g,
                   double scale, const double *q, struct sums *x)
{
    const struct gen__attn_paged_strides *t = &s->strides;
    int64_t page, row;
    double dot = 0, v[MAX_DIM] = {0};
    if (find_key(s, r, j, &page, &row)) {
        const int64_t k_at = page * t->k_page + row * t->k_row + g * t->k_head;
        const int64_t v_at = page * t->v_page + row * t->v_row + g * t->v_head;
        for (int64_t c = 0; c < s->width; c++) {
            dot += q[c] * load(s->cache_dtype, s->args->k, k_at + c);
            v[c] = load(s->cache_dtype, s->args->v, v_at + c);
        }
    }
    double score = scale * dot;
    if (s->dims[ATTN_PAGED_SOFTCAP])
        score = (double)s->args->softcap * tanh(score / (double)s->args->softcap);
    if (score > x->max) {
        const double before = exp(x->max - score);
        x->max = score;
        x->sum *= before;
        for (int64_t c = 0; c < s->width; c++)
            x->o[c] *= before;
    }
    const double p = exp(score - x->max);
    x->sum += p;
    for (int64_t c = 0; c < s->width; c++)
        x->o[c] += p * v[c];
}

static void end_row(const struct shape *s, const struct request *r, int64_t t, int64_t h,
                    const struct sums *x, double *exact)
{
    const gen_attn_paged_args *a = s->args;
    const int64_t g = h / s->group;
    const bool sinks = s->dims[ATTN_PAGED_SINK] != 0;
    const double sink = sinks ? (double)a->sink[h] : -(double)INFINITY;
    const double lse = x->sum > 0 ? x->max + log(x->sum) : x->sum + -(double)INFINITY;
    const double most = fmax(lse, sink);
    const double with_sink = most == -(double)INFINITY ? most
                             : sinks ? most + log(exp(lse - most) + exp(sink - most))
                                     : lse;
    const double share = lse == -(double)INFINITY ? 0 : exp(lse - with_sink);
    const double v_scale =
        descale(a->v_descale, r->b, g, a->v_descale_batch_stride, a->v_descale_head_stride);
    const int64_t at = (r->first + t) * s->strides.o_token + h * s->strides.o_head;
    for (int64_t c = 0; c < s->width; c++) {
        const double o = share == 0 ? 0 : v_scale * share * x->o[c] / x->sum;
        ((uint16_t *)a->o)[at + c] =
            s->dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(o) : gen__bf16_from_double(o);
        if (exact)
            exact[at + c] = o;
    }
    if (a->lse) {
        const double told = a->lse_sink ? with_sink : lse;
        a->lse[(r->first + t) * s->strides.lse_token + h * s->strides.lse_head] =
            (float)(a->lse_base_2 ? told / log(2.0) : told);
    }
}

static void row(const struct shape *s, const struct request *r, int64_t t, int64_t h, double *exact)
{
    const gen_attn_paged_args *a = s->args;
    const int64_t g = h / s->group, own = r->length - r->tokens + t;
    const int64_t window = s->dims[ATTN_PAGED_LEFT_WINDOW];
    const int64_t first = window && own - window + 1 > 0 ? own - window + 1 : 0;
    const int64_t end = s->dims[ATTN_PAGED_CAUSAL] && own + 1 < r->length ? own + 1 : r->length;
    const double scale =
        (double)a->scale *
        descale(a->q_descale, r->b, g, a->q_descale_batch_stride, a->q_descale_head_stride) *
        descale(a->k_descale, r->b, g, a->k_descale_batch_stride, a->k_descale_head_stride);
    struct sums x = {.max = -(double)INFINITY};
    double q[MAX_DIM];
    const int64_t at = (r->first + t) * s->strides.q_token + h * s->strides.q_head;
    for (int64_t c = 0; c < s->width; c++)
        q[c] = load(s->dtype, a->q, at + c);
    for (int64_t j = first; j < end; j++)
        attend(s, r, j, g, scale, q, &x);
    end_row(s, r, t, h, &x, exact);
}

enum gen_status gen__attn_paged_exact(const gen_plan *plan, const gen_args *base,
                                      double *const *exact)
{
    const gen_attn_paged_args *a = (const gen_attn_paged_args *)base;
    const int32_t *dims = plan->dims;
    const struct shape s = {
        .args = a,
        .dims = dims,
        .strides = gen__attn_paged_strides(dims, a),
        .dtype = (enum gen_dtype)dims[ATTN_PAGED_DTYPE],
        .cache_dtype =
            dims[ATTN_PAGED_CACHE] ? GEN_DTYPE_E4M3 : (enum gen_dtype)dims[ATTN_PAGED_DTYPE],
        .width = dims[ATTN_PAGED_HEAD_DIM],
        .group = dims[ATTN_PAGED_NUM_Q_HEADS] / dims[ATTN_PAGED_NUM_KV_HEADS],
    };
    for (int64_t b = 0; b < dims[ATTN_PAGED_BATCH]; b++) {
        const struct request r = request_of(&s, b);
        for (int64_t t = 0; t < r.tokens; t++)
            for (int64_t h = 0; h < dims[ATTN_PAGED_NUM_Q_HEADS]; h++)
                row(&s, &r, t, h, exact[ATTN_PAGED_O]);
    }
    return GEN_OK;
}

enum gen_status gen__attn_paged_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[ATTN_PAGED_NUM_TENSORS] = {NULL};
    return gen__attn_paged_exact(plan, base, none);
}
