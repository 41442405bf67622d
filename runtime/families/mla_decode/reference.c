/*
 * MLA decode in plain C: what the kernels are compared with, what the maths is,
 * and the backend where there is no GPU.
 *
 * For request b of N cache rows and T query tokens, token t and head h:
 *
 *     k[j]   = the cache's row j: a latent c[j] (512 wide), behind it a rotary
 *              key (64 wide, or none); with an e4m3 cache each element times its scale
 *     q      = q_nope[b,t,h] (512 wide), behind it q_pe[b,t,h]
 *     s[j]   = scale * (q . k[j])     for j < N and, if causal, j <= N - T + t
 *     p[j]   = exp(s[j] - m) / d,     m = max s, d = sum of exp(s - m)
 *     o      = sum of p[j] c[j]
 *     lse    = m + ln d, or (m + ln d) / ln 2
 *
 * No row: o = 0, lse = -infinity. Rows are looked up page by page, and no row at
 * or beyond N is read.
 *
 * Everything is double from the load to the store, so each result is rounded
 * once. The cache is walked once a token, 64 rows at a time for all heads; a
 * maximum that moves on scales what was summed before by exp(old - new), which
 * changes nothing but the last bits.
 */
#include "families/mla_decode/mla_decode.h"
#include "reference/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LATENT = MLA_LATENT, WIDTH = MLA_LATENT + MLA_ROPE, ROWS = 64, MAX_HEADS = 128 };

/* One call. */
struct shape {
    const gen_mla_decode_args *args;
    const int32_t *dims;
    struct gen__mla_strides strides;
    enum gen_dtype dtype, cache_dtype, query_dtype;
    int32_t rope;
    double ckv_scale, kpe_scale, q_scale;
};

/* A head of one token: its query, and the sums over the rows so far. */
struct head {
    double q[WIDTH];
    double max, sum, o[LATENT];
};

struct memory {
    double rows[ROWS][WIDTH]; /* of the cache */
    struct head heads[MAX_HEADS];
};

static struct shape shape_of(const gen_plan *plan, const gen_mla_decode_args *args)
{
    const int32_t *dims = plan->dims;
    const bool e4m3 = dims[MLA_DECODE_CACHE] != GEN_MLA_CACHE_SAME;
    const bool bytes = dims[MLA_DECODE_CACHE] == GEN_MLA_CACHE_E4M3_Q;
    struct shape s = {
        .args = args,
        .dims = dims,
        .strides = gen__mla_decode_strides(dims, args),
        .dtype = (enum gen_dtype)dims[MLA_DECODE_DTYPE],
        .rope = dims[MLA_DECODE_ROPE_DIM],
        .ckv_scale = e4m3 ? (double)args->ckv_scale : 1.0,
        .kpe_scale = e4m3 ? (double)args->kpe_scale : 1.0,
        .q_scale = bytes ? (double)args->q_scale : 1.0,
    };
    s.query_dtype = bytes ? GEN_DTYPE_E4M3 : s.dtype;
    s.cache_dtype = e4m3 ? GEN_DTYPE_E4M3 : s.dtype;
    return s;
}

/* `count` elements from `offset` on, times `scale`. */
static void load(enum gen_dtype dtype, const void *tensor, int64_t offset, int64_t count,
                 double scale, double *x)
{
    if (dtype == GEN_DTYPE_E4M3) {
        const uint8_t *codes = (const uint8_t *)tensor + offset;
        for (int64_t i = 0; i < count; i++)
            x[i] = scale * gen__e4m3_to_double(codes[i]);
        return;
    }
    const uint16_t *codes = (const uint16_t *)tensor + offset;
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * (dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(codes[i])
                                                : gen__bf16_to_double(codes[i]));
}

/* ---- where things lie -------------------------------------------------- */

/* The query tokens of a request: the first, and how many. */
static int64_t tokens_of(const struct shape *s, int64_t b, int64_t *first)
{
    const int32_t *indptr = s->args->q_indptr;
    const int64_t most = s->dims[MLA_DECODE_Q_LEN];
    *first = indptr ? indptr[b] : b * most;
    const int64_t count = indptr ? (int64_t)indptr[b + 1] - indptr[b] : most;
    return count < 0 ? 0 : count < most ? count : most;
}

static int64_t length_of(const struct shape *s, int64_t b)
{
    const int64_t length = s->args->kv_len[b], most = s->dims[MLA_DECODE_MAX_KV_LEN];
    return length < 0 ? 0 : length < most ? length : most;
}

/* The page of row j of request b; negative, or num_pages and more: there is none. */
static int64_t page_of(const struct shape *s, int64_t b, int64_t j)
{
    const int32_t *indptr = s->args->page_indptr;
    const int64_t first = indptr ? indptr[b] : b * s->strides.page_table;
    return s->args->page_indices[first + j / s->dims[MLA_DECODE_PAGE_SIZE]];
}

/* Row j of request b: latent and rotary key. */
static void load_row(const struct shape *s, int64_t b, int64_t j, double *row)
{
    const gen_mla_decode_args *a = s->args;
    const struct gen__mla_strides *strides = &s->strides;
    const int64_t page = page_of(s, b, j), in_page = j % s->dims[MLA_DECODE_PAGE_SIZE];
    if (page < 0 || page >= a->num_pages) {
        memset(row, 0, WIDTH * sizeof *row);
        return;
    }
    load(s->cache_dtype, a->ckv, page * strides->ckv_page + in_page * strides->ckv_row, LATENT,
         s->ckv_scale, row);
    if (s->rope)
        load(s->cache_dtype, a->kpe, page * strides->kpe_page + in_page * strides->kpe_row,
             MLA_ROPE, s->kpe_scale, row + LATENT);
}

/* ---- attention --------------------------------------------------------- */

/* In eight sums that a compiler may keep in vectors. */
static double dot(const double *a, const double *b, int count)
{
    double sum[8] = {0};
    for (int i = 0; i < count; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* Adds `count` >= 1 rows to a head's sums. */
static void attend(const struct shape *s, const double rows[ROWS][WIDTH], int64_t count,
                   struct head *head)
{
    double logits[ROWS];
    double max = head->max;
    for (int64_t j = 0; j < count; j++) {
        logits[j] = (double)s->args->scale * dot(head->q, rows[j], LATENT + s->rope);
        max = fmax(max, logits[j]);
    }
    const double before = head->max == max ? 1.0 : exp(head->max - max); /* exp(-infinity) = 0 */
    head->max = max;
    head->sum *= before;
    for (int i = 0; i < LATENT; i++)
        head->o[i] *= before;
    for (int64_t j = 0; j < count; j++) {
        const double p = exp(logits[j] - max);
        head->sum += p;
        for (int i = 0; i < LATENT; i++)
            head->o[i] += p * rows[j][i];
    }
}

static void begin_head(const struct shape *s, int64_t token, int64_t h, struct head *head)
{
    const struct gen__mla_strides *strides = &s->strides;
    memset(head, 0, sizeof *head);
    head->max = -INFINITY;
    load(s->query_dtype, s->args->q_nope, token * strides->q_nope_token + h * strides->q_nope_head,
         LATENT, s->q_scale, head->q);
    if (s->rope)
        load(s->query_dtype, s->args->q_pe, token * strides->q_pe_token + h * strides->q_pe_head,
             MLA_ROPE, s->q_scale, head->q + LATENT);
}

static void end_head(const struct shape *s, int64_t token, int64_t h, const struct head *head,
                     double *exact)
{
    const int64_t at = token * s->strides.o_token + h * s->strides.o_head;
    for (int i = 0; i < LATENT; i++) {
        const double o = head->sum != 0 ? head->o[i] / head->sum : 0.0;
        ((uint16_t *)s->args->o)[at + i] =
            s->dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(o) : gen__bf16_from_double(o);
        if (exact)
            exact[at + i] = o;
    }
    if (!s->args->lse)
        return;
    const double lse = head->sum != 0 ? head->max + log(head->sum) : -INFINITY;
    s->args->lse[token * s->strides.lse_token + h * s->strides.lse_head] =
        (float)(s->args->lse_base_2 ? lse / log(2.0) : lse);
}

/* Token t of the T of request b, the batch's `token`. */
static void decode_token(const struct shape *s, int64_t b, int64_t t, int64_t T, int64_t token,
                         struct memory *memory, double *exact)
{
    const int64_t heads = s->dims[MLA_DECODE_NUM_HEADS], length = length_of(s, b);
    const int64_t causal = length - T + t + 1; /* rows up to the token's own; may be negative */
    const int64_t limit = s->dims[MLA_DECODE_CAUSAL] && causal < length ? causal : length;
    for (int64_t h = 0; h < heads; h++)
        begin_head(s, token, h, &memory->heads[h]);
    for (int64_t first = 0; first < limit; first += ROWS) {
        const int64_t count = limit - first < ROWS ? limit - first : ROWS;
        for (int64_t j = 0; j < count; j++)
            load_row(s, b, first + j, memory->rows[j]);
        for (int64_t h = 0; h < heads; h++)
            attend(s, (const double(*)[WIDTH])memory->rows, count, &memory->heads[h]);
    }
    for (int64_t h = 0; h < heads; h++)
        end_head(s, token, h, &memory->heads[h], exact);
}

enum gen_status gen__mla_decode_exact(const gen_plan *plan, const gen_args *base,
                                      double *const *exact)
{
    const struct shape s = shape_of(plan, (const gen_mla_decode_args *)base);
    struct memory *memory = malloc(sizeof *memory);
    if (!memory)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                         "mla_decode: no memory for the reference: %zu bytes", sizeof *memory);
    for (int64_t b = 0; b < s.dims[MLA_DECODE_BATCH]; b++) {
        int64_t first;
        const int64_t count = tokens_of(&s, b, &first);
        for (int64_t t = 0; t < count; t++)
            decode_token(&s, b, t, count, first + t, memory, exact[MLA_DECODE_O]);
    }
    free(memory);
    return GEN_OK;
}

enum gen_status gen__mla_decode_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[MLA_DECODE_NUM_TENSORS] = {NULL};
    return gen__mla_decode_exact(plan, base, none);
}
