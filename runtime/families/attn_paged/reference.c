/*
 * Attention over paged caches in plain C: what the kernels are compared with, and the backend where
 * there is no GPU. api.h has the operator.
 *
 * Everything is double from the load to the store. Keys are walked once a token and key head, 64 at
 * a time for all its query heads; a maximum that moves on scales what was summed before, which
 * changes nothing but the last bits.
 */
#include "families/attn_paged/attn_paged.h"
#include "reference/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 256, KEYS = 64 };

struct shape {
    const gen_attn_paged_args *args;
    const int32_t *dims;
    struct gen__attn_paged_strides strides;
    enum gen_dtype dtype, cache_dtype;
    int64_t width, v_width, group;
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

/* A head of one token: its query, and the sums over the keys so far. */
struct head {
    double q[MAX_DIM];
    double max, sum, o[MAX_DIM];
};

struct memory {
    double k[KEYS][MAX_DIM], v[KEYS][MAX_DIM];
    struct head heads[]; /* of a key head */
};

/* Key j of key head g; zeros of a page that there is not. */
static void load_key(const struct shape *s, const struct request *r, int64_t j, int64_t g,
                     double *k, double *v)
{
    const struct gen__attn_paged_strides *t = &s->strides;
    int64_t page, row;
    const bool there = find_key(s, r, j, &page, &row);
    for (int64_t c = 0; c < s->width; c++)
        k[c] = there ? load(s->cache_dtype, s->args->k,
                            page * t->k_page + row * t->k_row + g * t->k_head + c)
                     : 0;
    for (int64_t c = 0; c < s->v_width; c++)
        v[c] = there ? load(s->cache_dtype, s->args->v,
                            page * t->v_page + row * t->v_row + g * t->v_head + c)
                     : 0;
}

/* In eight sums that a compiler may keep in vectors. */
static double dot(const double *a, const double *b, int64_t count)
{
    double sum[8] = {0};
    for (int64_t i = 0; i < count; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* Adds `count` >= 1 keys to a head's sums. */
static void attend(const struct shape *s, const struct memory *m, int64_t count, double scale,
                   struct head *x)
{
    double scores[KEYS], max = x->max;
    for (int64_t j = 0; j < count; j++) {
        scores[j] = scale * dot(x->q, m->k[j], s->width);
        if (s->dims[ATTN_PAGED_SOFTCAP])
            scores[j] = (double)s->args->softcap * tanh(scores[j] / (double)s->args->softcap);
        max = fmax(max, scores[j]);
    }
    const double before = x->max == max ? 1.0 : exp(x->max - max); /* exp(-infinity) = 0 */
    x->max = max;
    x->sum *= before;
    for (int64_t c = 0; c < s->v_width; c++)
        x->o[c] *= before;
    for (int64_t j = 0; j < count; j++) {
        const double p = exp(scores[j] - max);
        x->sum += p;
        for (int64_t c = 0; c < s->v_width; c++)
            x->o[c] += p * m->v[j][c];
    }
}

static void end_row(const struct shape *s, const struct request *r, int64_t t, int64_t h,
                    const struct head *x, double *exact)
{
    const gen_attn_paged_args *a = s->args;
    const int64_t g = h / s->group;
    const bool sinks = s->dims[ATTN_PAGED_SINK] != 0;
    const double sink = sinks ? (double)a->sink[h] : -(double)INFINITY;
    const double lse = x->sum != 0 ? x->max + log(x->sum) : -(double)INFINITY;
    const double most = fmax(lse, sink);
    const double with_sink = most == -(double)INFINITY ? most
                             : sinks ? most + log(exp(lse - most) + exp(sink - most))
                                     : lse;
    const double share = lse == -(double)INFINITY ? 0 : exp(lse - with_sink);
    const double v_scale =
        descale(a->v_descale, r->b, g, a->v_descale_batch_stride, a->v_descale_head_stride);
    const int64_t at = (r->first + t) * s->strides.o_token + h * s->strides.o_head;
    for (int64_t c = 0; c < s->v_width; c++) {
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

/* The query heads of key head g of one token. */
static void token(const struct shape *s, const struct request *r, int64_t t, int64_t g,
                  struct memory *m, double *exact)
{
    const gen_attn_paged_args *a = s->args;
    const int64_t own = r->length - r->tokens + t, window = s->dims[ATTN_PAGED_LEFT_WINDOW];
    const int64_t first = window && own - window + 1 > 0 ? own - window + 1 : 0;
    const int64_t end = s->dims[ATTN_PAGED_CAUSAL] && own + 1 < r->length ? own + 1 : r->length;
    const double scale =
        (double)a->scale *
        descale(a->q_descale, r->b, g, a->q_descale_batch_stride, a->q_descale_head_stride) *
        descale(a->k_descale, r->b, g, a->k_descale_batch_stride, a->k_descale_head_stride);
    for (int64_t i = 0; i < s->group; i++) {
        struct head *x = &m->heads[i];
        const int64_t at =
            (r->first + t) * s->strides.q_token + (g * s->group + i) * s->strides.q_head;
        memset(x, 0, sizeof *x);
        x->max = -(double)INFINITY;
        for (int64_t c = 0; c < s->width; c++)
            x->q[c] = load(s->dtype, a->q, at + c);
    }
    for (int64_t j = first; j < end; j += KEYS) {
        const int64_t count = end - j < KEYS ? end - j : KEYS;
        for (int64_t i = 0; i < count; i++)
            load_key(s, r, j + i, g, m->k[i], m->v[i]);
        for (int64_t i = 0; i < s->group; i++)
            attend(s, m, count, scale, &m->heads[i]);
    }
    for (int64_t i = 0; i < s->group; i++)
        end_row(s, r, t, g * s->group + i, &m->heads[i], exact);
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
        .v_width = gen__attn_paged_v_dim(dims[ATTN_PAGED_HEAD_DIM]),
        .group = dims[ATTN_PAGED_NUM_Q_HEADS] / dims[ATTN_PAGED_NUM_KV_HEADS],
    };
    const size_t bytes = sizeof(struct memory) + (size_t)s.group * sizeof(struct head);
    struct memory *memory = malloc(bytes);
    if (!memory)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                         "attn_paged: no memory for the reference: %zu bytes", bytes);
    for (int64_t b = 0; b < dims[ATTN_PAGED_BATCH]; b++) {
        const struct request r = request_of(&s, b);
        for (int64_t t = 0; t < r.tokens; t++)
            for (int64_t g = 0; g < dims[ATTN_PAGED_NUM_KV_HEADS]; g++)
                token(&s, &r, t, g, memory, exact[ATTN_PAGED_O]);
    }
    free(memory);
    return GEN_OK;
}

enum gen_status gen__attn_paged_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[ATTN_PAGED_NUM_TENSORS] = {NULL};
    return gen__attn_paged_exact(plan, base, none);
}
