/*
 * Problems of mla_decode for the tuner, the verifier and the tests: which tensors
 * they have, what stands in them, and what they cost.
 *
 * By default latents and rotary keys lie in one cache of joint rows, as engines
 * keep them, and pages are looked up in a table of a row a request.
 */
#include "families/mla_decode/mla_decode.h"
#include "families/mla/mla.h"
#include "reference/scatter.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands in the entries that are not needed: they may not be followed. */
#define NO_PAGE 2147480000

/* Scales of an e4m3 cache; elements are normal numbers times 1 / ckv_scale. */
static const float ckv_scale = 0.45f, kpe_scale = 0.35f, q_scale = 0.4f;

/* ---- lengths and tokens ------------------------------------------------ */

/* All kv_len where that is the greatest; else from 0 to max_kv_len with about that
 * mean, the first and the second request at the ends. The same for every fill: the
 * cache's size and the problem's cost depend on it. */
static int32_t length_of(const gen_mla_decode_problem *p, int64_t b)
{
    if (p->kv_len == p->max_kv_len || p->batch == 1)
        return p->kv_len;
    if (b < 2)
        return b == 0 ? p->max_kv_len : 0;
    if (p->kv_len == 0)
        return 0;
    const double skew = (double)p->max_kv_len / p->kv_len - 1; /* E[u^skew] = 1 / (skew + 1) */
    return (int32_t)((p->max_kv_len + 1) * pow(gen__scatter(0, b), skew));
}

static int64_t pages_of(const gen_mla_decode_problem *p, int64_t b)
{
    return (length_of(p, b) + (int64_t)p->page_size - 1) / p->page_size;
}

int64_t gen__mla_decode_pages(const gen_mla_decode_problem *p)
{
    int64_t pages = 0;
    for (int64_t b = 0; b < p->batch; b++)
        pages += pages_of(p, b);
    return pages;
}

/* Query tokens where they are ragged: the greatest, none, any. */
static int32_t tokens_of(const gen_mla_decode_problem *p, int64_t b)
{
    if (b < 2)
        return b == 0 ? p->q_len : 0;
    return (int32_t)(gen__scatter(1, b) * (p->q_len + 1));
}

/* ---- tensors ----------------------------------------------------------- */

/*
 * Tolerances. A kernel that does everything in fp32, but rounds the probabilities
 * to 16 bits before it multiplies the latents, and the output once more, is off by
 * 0.49 * 2^-p of the whole, where the type has p significant bits, whatever the
 * length; and of 2000 rows none by more than 0.75 * 2^-p
 * (tests/family/test_mla_decode_tolerance.c counts them). Twice that is allowed: the
 * tolerance of the whole, and 1.5 times it of every row.
 *
 * The log-sum-exp is a sum in fp32: 1e-3 in base 2, as public tests of this operator
 * have it. A sum of the rounded probabilities does not keep to that in bf16 where
 * rows are few.
 *
 * With queries in e4m3 scores are sums of 8-bit products, of which Hopper keeps some 14 bits: off
 * by 2^-13 of the greatest partial sum. That is the contract's own (2^-6 of the output, 0.02 of the
 * log-sum-exp), not a 16-bit kernel's.
 */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double row_factor = 1.5;
static const double lse_tolerance = 1e-3;
static const double byte_queries_tolerance = 0x1p-6, byte_queries_lse_tolerance = 0.02;

#define TENSOR(...) GEN__TENSOR(gen_mla_decode_args, __VA_ARGS__)

uint32_t gen__mla_decode_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, index = GEN_DTYPE_INT32;
    const bool e4m3 = p->cache != GEN_MLA_CACHE_SAME, bytes = p->cache == GEN_MLA_CACHE_E4M3_Q;
    const enum gen_dtype cache = e4m3 ? GEN_DTYPE_E4M3 : dtype;
    const enum gen_dtype query = bytes ? GEN_DTYPE_E4M3 : dtype;
    const double query_size = bytes ? 1 / (double)q_scale : 1.0;
    const int64_t heads = (int64_t)p->batch * p->q_len * p->num_heads; /* all tokens' */
    const int64_t rows = (gen__mla_decode_pages(p) + MLA_DECODE_EXTRA_PAGES) * p->page_size;
    const int64_t entries = (p->max_kv_len - 1) / p->page_size + 1 + MLA_DECODE_EXTRA_ENTRIES;
    const double size = e4m3 ? 1 / (double)ckv_scale : 1.0;
    const double tolerance = bytes                     ? byte_queries_tolerance
                             : dtype == GEN_DTYPE_FP16 ? fp16_tolerance
                                                       : bf16_tolerance;
    const struct gen__tensor list[MLA_DECODE_NUM_TENSORS] = {
        {TENSOR(q_nope, query, GEN__IN, GEN__FILL_NORMAL, query_size, heads * MLA_LATENT),
         .cold = true},
        {TENSOR(q_pe, query, GEN__IN, GEN__FILL_NORMAL, query_size, heads * p->rope_dim),
         .cold = true},
        {TENSOR(ckv, cache, GEN__IN, GEN__FILL_NORMAL, size, rows * (MLA_LATENT + p->rope_dim)),
         .cold = true},
        {TENSOR(kpe, cache, GEN__IN, GEN__FILL_NORMAL, size, 0), .cold = true,
         .view_of = p->rope_dim ? MLA_DECODE_CKV + 1 : 0, .view_at = MLA_LATENT},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, heads * MLA_LATENT),
         .tolerance = tolerance, .row_tolerance = row_factor * tolerance, .row = MLA_LATENT},
        {TENSOR(lse, GEN_DTYPE_FP32, GEN__OUT, GEN__FILL_POISON, 0, heads),
         .absolute = bytes ? byte_queries_lse_tolerance : lse_tolerance},
        {TENSOR(kv_len, index, GEN__IN, GEN__FILL_FAMILY, 0, p->batch), .cold = true},
        {TENSOR(page_indices, index, GEN__IN, GEN__FILL_FAMILY, 0, p->batch * entries),
         .cold = true},
        {TENSOR(page_indptr, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
        {TENSOR(q_indptr, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return MLA_DECODE_NUM_TENSORS;
}

#undef TENSOR

void gen__mla_decode_default_args(const gen_problem *base, gen_args *args)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    gen_mla_decode_args *a = (gen_mla_decode_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_MLA_DECODE;
    a->ckv_row_stride = a->kpe_row_stride = MLA_LATENT + p->rope_dim;
    a->ckv_page_stride = a->kpe_page_stride = a->ckv_row_stride * p->page_size;
    a->page_table_stride = (p->max_kv_len - 1) / p->page_size + 1 + MLA_DECODE_EXTRA_ENTRIES;
    a->num_pages = (int32_t)(gen__mla_decode_pages(p) + MLA_DECODE_EXTRA_PAGES);
    a->lse_base_2 = 1;
    a->scale = 0.07216878364870323f; /* 1 / sqrt(192) */
    a->ckv_scale = ckv_scale;
    a->kpe_scale = kpe_scale;
    a->q_scale = q_scale;
}

/* ---- what stands in them ----------------------------------------------- */

/* Every page once, in no order or, where wished, in ascending order; NULL where
 * there is no memory. */
static int32_t *deal_pages(const gen_mla_decode_args *a, const struct gen__fill_options *options)
{
    const int64_t count = a->num_pages;
    int32_t *pages = malloc((size_t)count * sizeof *pages);
    if (!pages)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        pages[i] = (int32_t)i;
    for (int64_t i = 0; i < count && !options->ordered; i++) {
        const int64_t j = i + (int64_t)(gen__scatter(options->seed, i) * (double)(count - i));
        const int32_t page = pages[j];
        pages[j] = pages[i];
        pages[i] = page;
    }
    return pages;
}

/* Entries of a table that name no page, in turn. */
static int32_t bad_page(const gen_mla_decode_args *a, int64_t n)
{
    const int32_t bad[] = {-1, a->num_pages, INT32_MIN, INT32_MAX, -a->num_pages, a->num_pages + 7};
    return bad[n % (int64_t)(sizeof bad / sizeof *bad)];
}

/* Pages one after the other, from the start again where the cache has fewer than
 * are wanted. */
static bool fill_pages(const gen_mla_decode_problem *p, const gen_mla_decode_args *a,
                       const struct gen__fill_options *options, int32_t *indices, int32_t *indptr)
{
    int32_t *pages = deal_pages(a, options);
    if (!pages)
        return false;
    const int64_t usable = a->num_pages - MLA_DECODE_EXTRA_PAGES;
    int64_t dealt = 0, end = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t need = pages_of(p, b);
        const int64_t first = indptr ? end : b * a->page_table_stride;
        end = indptr ? first + need + MLA_DECODE_EXTRA_ENTRIES : first + a->page_table_stride;
        if (indptr) {
            indptr[b] = (int32_t)first;
            indptr[b + 1] = (int32_t)end;
        }
        for (int64_t i = first; i < end; i++)
            indices[i] = NO_PAGE;
        for (int64_t i = 0; i < need; i++, dealt++)
            indices[first + i] =
                options->padding && dealt % 3 == 1 ? bad_page(a, dealt / 3) : pages[dealt % usable];
    }
    free(pages);
    return true;
}

/* Lengths; with padding also ones that stand for 0 and for max_kv_len. */
static void fill_lengths(const gen_mla_decode_problem *p, const struct gen__fill_options *options,
                         int32_t *lengths)
{
    for (int64_t b = 0; b < p->batch; b++) {
        lengths[b] = length_of(p, b);
        if (options->padding && lengths[b] == 0)
            lengths[b] = -7;
        else if (options->padding && lengths[b] == p->max_kv_len)
            lengths[b] += 1000;
    }
}

static void fill_tokens(const gen_mla_decode_problem *p, int32_t *indptr)
{
    indptr[0] = 0;
    for (int64_t b = 0; b < p->batch; b++)
        indptr[b + 1] = indptr[b] + tokens_of(p, b);
}

/* Rows of pages that some request reads, not counting the first `spared` of them; NULL where there
 * is no memory. */
static uint8_t *find_used(const gen_mla_decode_problem *p, const gen_mla_decode_args *a,
                          const int32_t *indices, const int32_t *indptr, int64_t spared)
{
    uint8_t *used = calloc((size_t)a->num_pages * (size_t)p->page_size, 1);
    for (int64_t b = spared; used && b < p->batch; b++) {
        const int32_t *list = indices + (indptr ? indptr[b] : b * a->page_table_stride);
        const int64_t length = length_of(p, b);
        for (int64_t j = 0; j < length; j++) {
            const int64_t page = list[j / p->page_size];
            if (page >= 0 && page < a->num_pages)
                used[page * p->page_size + j % p->page_size] = 1;
        }
    }
    return used;
}

/* NaN, and infinity where the type has one. */
static void poison_row(enum gen_dtype dtype, void *tensor, int64_t first, int64_t count,
                       bool infinite)
{
    if (dtype == GEN_DTYPE_E4M3) {
        memset((uint8_t *)tensor + first, 0x7f, (size_t)count);
        return;
    }
    const uint16_t infinity = dtype == GEN_DTYPE_FP16 ? 0x7c00 : 0x7f80;
    for (int64_t i = first; i < first + count; i++)
        ((uint16_t *)tensor)[i] = infinite && i % 2 ? infinity : 0x7fff;
}

/* Every row that no request reads, not counting the first `spared` of them. */
static bool poison_unused(const gen_mla_decode_problem *p, const gen_mla_decode_args *a,
                          const struct gen__tensor *tensors, int64_t spared, void *const *data)
{
    const int64_t page_size = p->page_size, rows = a->num_pages * page_size;
    const int64_t ckv_row = a->ckv_row_stride ? a->ckv_row_stride : MLA_LATENT;
    const int64_t kpe_row = a->kpe_row_stride ? a->kpe_row_stride : MLA_ROPE;
    const int64_t ckv_page = a->ckv_page_stride ? a->ckv_page_stride : ckv_row * page_size;
    const int64_t kpe_page = a->kpe_page_stride ? a->kpe_page_stride : kpe_row * page_size;
    const enum gen_dtype dtype = tensors[MLA_DECODE_CKV].dtype;
    uint8_t *used =
        find_used(p, a, data[MLA_DECODE_PAGE_INDICES], data[MLA_DECODE_PAGE_INDPTR], spared);
    for (int64_t i = 0; used && i < rows; i++) {
        if (used[i])
            continue;
        const int64_t page = i / page_size, row = i % page_size;
        poison_row(dtype, data[MLA_DECODE_CKV], page * ckv_page + row * ckv_row, MLA_LATENT, i % 2);
        if (data[MLA_DECODE_KPE])
            poison_row(dtype, data[MLA_DECODE_KPE], page * kpe_page + row * kpe_row, MLA_ROPE,
                       i % 2);
    }
    const bool ok = used != NULL;
    free(used);
    return ok;
}

enum gen_status gen__mla_decode_fill(const gen_problem *base, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const gen_mla_decode_args *a = (const gen_mla_decode_args *)args;
    bool ok = true;
    if (!p->batch)
        return GEN_OK;
    fill_lengths(p, options, data[MLA_DECODE_KV_LENS]);
    ok = fill_pages(p, a, options, data[MLA_DECODE_PAGE_INDICES], data[MLA_DECODE_PAGE_INDPTR]);
    if (data[MLA_DECODE_Q_INDPTR])
        fill_tokens(p, data[MLA_DECODE_Q_INDPTR]);
    if (ok && (options->non_finite || options->poisoned) && data[MLA_DECODE_CKV])
        ok = poison_unused(p, a, tensors, options->poisoned ? 1 : 0, data);
    return ok ? GEN_OK
              : gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                          "mla_decode: no memory to fill %" PRId32 " pages", a->num_pages);
}

/* ---- what it costs, what it is called ---------------------------------- */

/* Cache rows once a request, queries and outputs once; without the tables. */
void gen__mla_decode_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    const double width = MLA_LATENT + p->rope_dim, tokens = p->q_len;
    const double element = p->cache == GEN_MLA_CACHE_SAME ? 2 : 1;
    const double query = p->cache == GEN_MLA_CACHE_E4M3_Q ? 1 : 2;
    double rows = 0, pairs = 0; /* cache rows; pairs of token and row that count */
    for (int64_t b = 0; b < p->batch; b++) {
        const double length = length_of(p, b);
        rows += length;
        if (!p->causal)
            pairs += tokens * length;
        for (int32_t t = 0; p->causal && t < p->q_len; t++)
            pairs += fmax(length - p->q_len + t + 1, 0);
    }
    *bytes = rows * width * element +
             p->batch * tokens * p->num_heads * (width * query + MLA_LATENT * 2);
    *flops = pairs * p->num_heads * 2 * (width + MLA_LATENT);
}

/* Half octaves: cache rows of all requests, requests, rows; pages of one row and of 64. */
const uint8_t gen__mla_decode_grid[] = {4, 4, 2, 12};

/* Of the grid's lengths: shorter ones and longer ones are for the shape file. */
#define LEAST_KV_LEN 1024
#define MOST_KV_LEN 65536

/* All lengths equal; rows as heads, and as query tokens where they are more. */
void gen__mla_decode_set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS])
{
    gen_mla_decode_problem *p = (gen_mla_decode_problem *)base;
    const long rows = lroundf(counts[2]);
    const float length = fminf(fmaxf(counts[0] / counts[1], LEAST_KV_LEN), MOST_KV_LEN);
    p->batch = (int32_t)lroundf(counts[1]);
    p->kv_len = p->max_kv_len = (int32_t)lroundf(length);
    p->q_len = rows > MLA_MAX_HEADS ? (int32_t)((rows - 1) / MLA_MAX_HEADS + 1) : 1;
    p->num_heads = (int32_t)(rows / p->q_len);
    p->causal = p->q_len > 1;
    p->page_size = (int32_t)lroundf(counts[3]);
}

/* "B768-N1024-H16-P64-T1-bf16". What is not said there changes a word, so that no
 * case is taken for another: N1024of4096, T2c (causal), bf16e4m3, bf16r0. */
void gen__mla_decode_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    char of[24] = "";
    if (p->max_kv_len != p->kv_len)
        snprintf(of, sizeof of, "of%" PRId32, p->max_kv_len);
    snprintf(text, capacity,
             "B%" PRId32 "-N%" PRId32 "%s-H%" PRId32 "-P%" PRId32 "-T%" PRId32 "%s-%s%s%s",
             p->batch, p->kv_len, of, p->num_heads, p->page_size, p->q_len, p->causal ? "c" : "",
             p->cache == GEN_MLA_CACHE_E4M3_Q ? "e4m3"
             : p->dtype == GEN_DTYPE_FP16     ? "fp16"
                                              : "bf16",
             p->cache == GEN_MLA_CACHE_SAME ? "" : "e4m3", p->rope_dim ? "" : "r0");
}
