/*
 * Problems of attn_paged for the tuner, the verifier and the tests: which tensors they have, what
 * stands in them, and what they cost.
 *
 * By default pages are [pages, page_size, heads, head_dim] of keys and of values apart, looked up
 * in a table of a row a request, and an e4m3 cache has a scale for each request and key head.
 */
#include "families/attn_paged/attn_paged.h"
#include "reference/scatter.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands in the entries that are not needed: they may not be followed. */
#define NO_PAGE 2147480000

/* Scales of an e4m3 cache are about this; elements are normal numbers times 1 / it. */
static const double usual_descale = 0.45;

/* ---- lengths and tokens ------------------------------------------------ */

/* All kv_len where that is the greatest. Where the greatest is 16 times it, one request has that
 * and the others share the rest; else from 0 to max_kv_len with about that mean, the first and the
 * second request at the ends. The same for every fill: the cache's size and the problem's cost
 * depend on it. */
static int32_t length_of(const gen_attn_paged_problem *p, int64_t b)
{
    if (p->kv_len == p->max_kv_len || p->batch == 1)
        return p->kv_len;
    if (p->max_kv_len / 16 >= p->kv_len && b > 0) {
        const int64_t rest = (int64_t)p->kv_len * p->batch - p->max_kv_len;
        return rest > 0 ? (int32_t)(rest / (p->batch - 1)) : 0;
    }
    if (b < 2)
        return b == 0 ? p->max_kv_len : 0;
    if (p->kv_len == 0)
        return 0;
    const double skew = (double)p->max_kv_len / p->kv_len - 1; /* E[u^skew] = 1 / (skew + 1) */
    return (int32_t)((p->max_kv_len + 1) * pow(gen__scatter(0, b), skew));
}

static int64_t pages_of(const gen_attn_paged_problem *p, int64_t b)
{
    return p->page_size ? (length_of(p, b) + (int64_t)p->page_size - 1) / p->page_size : 0;
}

int64_t gen__attn_paged_pages(const gen_attn_paged_problem *p)
{
    int64_t pages = 0;
    for (int64_t b = 0; b < p->batch; b++)
        pages += pages_of(p, b);
    return pages;
}

/* New tokens where they are ragged: the greatest, none, one, any. */
static int32_t tokens_of(const gen_attn_paged_problem *p, int64_t b)
{
    if (b < 3)
        return b == 0 ? p->q_len : b == 1 ? 0 : 1;
    return (int32_t)(gen__scatter(1, b) * (p->q_len + 1));
}

/* ---- tensors ----------------------------------------------------------- */

/* As of mla_decode (its inputs.c): probabilities are rounded to 16 bits before they multiply
 * values, and the output once more. */
static const double bf16_tolerance = 0x1p-8, fp16_tolerance = 0x1p-11;
static const double row_factor = 1.5, lse_tolerance = 1e-3;

static int64_t entries_of(const gen_attn_paged_problem *p)
{
    return p->page_size ? (p->max_kv_len - 1) / p->page_size + 1 + ATTN_PAGED_EXTRA_ENTRIES : 0;
}

static int64_t cache_rows(const gen_attn_paged_problem *p)
{
    return p->page_size ? (gen__attn_paged_pages(p) + ATTN_PAGED_EXTRA_PAGES) * p->page_size
                        : (int64_t)p->batch * p->max_kv_len;
}

#define TENSOR(...) GEN__TENSOR(gen_attn_paged_args, __VA_ARGS__)

uint32_t gen__attn_paged_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, index = GEN_DTYPE_INT32;
    const enum gen_dtype fp32 = GEN_DTYPE_FP32;
    const bool e4m3 = p->cache == GEN_ATTN_PAGED_CACHE_E4M3;
    const enum gen_dtype cache = e4m3 ? GEN_DTYPE_E4M3 : dtype;
    const int64_t heads = (int64_t)p->batch * p->q_len * p->num_q_heads; /* all tokens' */
    const int64_t v_dim = gen__attn_paged_v_dim(p->head_dim);
    const int64_t keys = cache_rows(p) * p->num_kv_heads;
    const int64_t scales = e4m3 ? (int64_t)p->batch * p->num_kv_heads : 0;
    const double size = e4m3 ? 1 / usual_descale : 1.0;
    const double tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    const struct gen__tensor list[ATTN_PAGED_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, heads * p->head_dim), .cold = true},
        {TENSOR(k, cache, GEN__IN, GEN__FILL_NORMAL, size, keys * p->head_dim), .cold = true},
        {TENSOR(v, cache, GEN__IN, GEN__FILL_NORMAL, size, keys * v_dim), .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, heads * v_dim), .tolerance = tolerance,
         .row_tolerance = row_factor * tolerance, .row = (uint32_t)v_dim},
        {TENSOR(lse, fp32, GEN__OUT, GEN__FILL_POISON, 0, heads), .absolute = lse_tolerance},
        {TENSOR(kv_len, index, GEN__IN, GEN__FILL_FAMILY, 0, p->batch), .cold = true},
        {TENSOR(page_indices, index, GEN__IN, GEN__FILL_FAMILY, 0, p->batch * entries_of(p)),
         .cold = true},
        {TENSOR(page_indptr, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
        {TENSOR(last_page_len, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
        {TENSOR(q_indptr, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
        {TENSOR(q_descale, fp32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},
        {TENSOR(k_descale, fp32, GEN__IN, GEN__FILL_FAMILY, 0, scales)},
        {TENSOR(v_descale, fp32, GEN__IN, GEN__FILL_FAMILY, 0, scales)},
        {TENSOR(sink, fp32, GEN__IN, GEN__FILL_NORMAL, 2,
                p->sink && p->batch ? p->num_q_heads : 0)},
    };
    memcpy(tensors, list, sizeof list);
    return ATTN_PAGED_NUM_TENSORS;
}

#undef TENSOR

void gen__attn_paged_default_args(const gen_problem *base, gen_args *args)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    gen_attn_paged_args *a = (gen_attn_paged_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_ATTN_PAGED;
    a->page_table_stride = entries_of(p);
    a->num_pages = p->page_size ? (int32_t)(gen__attn_paged_pages(p) + ATTN_PAGED_EXTRA_PAGES) : 0;
    a->k_descale_batch_stride = a->v_descale_batch_stride = p->num_kv_heads;
    a->k_descale_head_stride = a->v_descale_head_stride = 1;
    a->scale = 1 / sqrtf((float)p->head_dim);
    a->softcap = 5; /* near enough for scores to bend */
}

/* ---- what stands in them ----------------------------------------------- */

/* Every page once, in no order or, where wished, in ascending order; NULL where there is no
 * memory. */
static int32_t *deal_pages(const gen_attn_paged_args *a, const struct gen__fill_options *options)
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
static int32_t bad_page(const gen_attn_paged_args *a, int64_t n)
{
    const int32_t bad[] = {-1, a->num_pages, INT32_MIN, INT32_MAX, -a->num_pages, a->num_pages + 7};
    return bad[n % (int64_t)(sizeof bad / sizeof *bad)];
}

/* Pages one after the other, from the start again where the cache has fewer than are wanted. Lists
 * that tell of the lengths by their own have no entry that is not needed. */
static bool fill_pages(const gen_attn_paged_problem *p, const gen_attn_paged_args *a,
                       const struct gen__fill_options *options, int32_t *indices, int32_t *indptr,
                       bool exact)
{
    int32_t *pages = deal_pages(a, options);
    if (!pages)
        return false;
    const int64_t usable = a->num_pages - ATTN_PAGED_EXTRA_PAGES;
    int64_t dealt = 0, end = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t need = pages_of(p, b);
        const int64_t first = indptr ? end : b * a->page_table_stride;
        end = indptr ? first + need + (exact ? 0 : ATTN_PAGED_EXTRA_ENTRIES)
                     : first + a->page_table_stride;
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
static void fill_lengths(const gen_attn_paged_problem *p, const struct gen__fill_options *options,
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

static void fill_scales(const gen_attn_paged_problem *p, const struct gen__tensor *t, uint64_t seed,
                        float *scales)
{
    for (uint64_t i = 0; scales && i < t->count; i++)
        scales[i] = (float)(usual_descale * (0.5 + gen__scatter(seed, (int64_t)i)));
    (void)p;
}

/* Rows that some request reads, not counting the first `spared` of them; NULL where there is no
 * memory. */
static uint8_t *find_used(const gen_attn_paged_problem *p, const gen_attn_paged_args *a,
                          const int32_t *indices, const int32_t *indptr, int64_t spared,
                          int64_t rows)
{
    uint8_t *used = calloc((size_t)rows + 1, 1);
    for (int64_t b = spared; used && b < p->batch; b++) {
        const int64_t length = length_of(p, b);
        if (!p->page_size) {
            memset(used + b * p->max_kv_len, 1, (size_t)length);
            continue;
        }
        const int32_t *list = indices + (indptr ? indptr[b] : b * a->page_table_stride);
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
static bool poison_unused(const gen_attn_paged_problem *p, const gen_attn_paged_args *a,
                          const struct gen__tensor *tensors, int64_t spared, void *const *data)
{
    int32_t dims[ATTN_PAGED_NUM_DIMS] = {0};
    memcpy(dims, &p->batch, ATTN_PAGED_NUM_FIELDS * sizeof *dims);
    const struct gen__attn_paged_strides s = gen__attn_paged_strides(dims, a);
    const int64_t rows = p->page_size ? p->page_size : p->max_kv_len;
    const int64_t pages = p->page_size ? a->num_pages : p->batch;
    const enum gen_dtype dtype = tensors[ATTN_PAGED_K].dtype;
    uint8_t *used = find_used(p, a, data[ATTN_PAGED_PAGE_INDICES], data[ATTN_PAGED_PAGE_INDPTR],
                              spared, rows * pages);
    for (int64_t i = 0; used && i < rows * pages; i++)
        for (int64_t g = 0; !used[i] && g < p->num_kv_heads; g++) {
            const int64_t page = i / rows, row = i % rows;
            poison_row(dtype, data[ATTN_PAGED_K], page * s.k_page + row * s.k_row + g * s.k_head,
                       p->head_dim, i % 2);
            poison_row(dtype, data[ATTN_PAGED_V], page * s.v_page + row * s.v_row + g * s.v_head,
                       gen__attn_paged_v_dim(p->head_dim), i % 2);
        }
    const bool ok = used != NULL;
    free(used);
    return ok;
}

enum gen_status gen__attn_paged_fill(const gen_problem *base, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    const gen_attn_paged_args *a = (const gen_attn_paged_args *)args;
    int32_t *const last = data[ATTN_PAGED_LAST_PAGE_LEN], *const tokens = data[ATTN_PAGED_Q_INDPTR];
    bool ok = true;
    if (!p->batch)
        return GEN_OK;
    if (data[ATTN_PAGED_KV_LENS])
        fill_lengths(p, options, data[ATTN_PAGED_KV_LENS]);
    for (int64_t b = 0; last && b < p->batch; b++)
        last[b] = length_of(p, b) ? (length_of(p, b) - 1) % p->page_size + 1 : 0;
    if (p->page_size)
        ok = fill_pages(p, a, options, data[ATTN_PAGED_PAGE_INDICES], data[ATTN_PAGED_PAGE_INDPTR],
                        last != NULL);
    for (int64_t b = 0; tokens && b < p->batch; b++) {
        tokens[0] = 0;
        tokens[b + 1] = tokens[b] + tokens_of(p, b);
    }
    for (int i = ATTN_PAGED_Q_DESCALE; i <= ATTN_PAGED_V_DESCALE; i++)
        fill_scales(p, &tensors[i], options->seed + (uint64_t)i, data[i]);
    if (ok && (options->non_finite || options->poisoned) && data[ATTN_PAGED_K])
        ok = poison_unused(p, a, tensors, options->poisoned ? 1 : 0, data);
    return ok ? GEN_OK
              : gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                          "attn_paged: no memory to fill %" PRId32 " pages", a->num_pages);
}

/* ---- what it costs, what it is called ---------------------------------- */

/* Keys and values that some token sees once, queries and outputs once; without the tables. */
void gen__attn_paged_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    const double both = p->head_dim + gen__attn_paged_v_dim(p->head_dim), tokens = p->q_len,
                 element = p->cache ? 1 : 2;
    double rows = 0, pairs = 0; /* keys; pairs of token and key that count */
    for (int64_t b = 0; b < p->batch; b++) {
        const double length = length_of(p, b), before = length - tokens;
        const double oldest = p->left_window ? fmax(before - p->left_window + 1, 0) : 0;
        rows += length - fmin(oldest, length);
        for (int32_t t = 0; t < p->q_len; t++) {
            const double end = p->causal ? fmin(fmax(before + t + 1, 0), length) : length;
            const double from = p->left_window ? fmax(before + t - p->left_window + 1, 0) : 0;
            pairs += fmax(end - from, 0);
        }
    }
    *bytes =
        rows * p->num_kv_heads * both * element + p->batch * tokens * p->num_q_heads * both * 2;
    *flops = pairs * p->num_q_heads * 2 * both;
}

/* "B16-HQ32-HK8-D128-P16-T1-N8192-bf16"; what is not said there changes a word: N1024of4096, T2f
 * (not causal), bf16e4m3, and W128, cap and sink where there are any. */
void gen__attn_paged_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    char of[24] = "", window[24] = "";
    if (p->max_kv_len != p->kv_len)
        snprintf(of, sizeof of, "of%" PRId32, p->max_kv_len);
    if (p->left_window)
        snprintf(window, sizeof window, "-W%" PRId32, p->left_window);
    snprintf(text, capacity,
             "B%" PRId32 "-HQ%" PRId32 "-HK%" PRId32 "-D%" PRId32 "-P%" PRId32 "-T%" PRId32
             "%s-N%" PRId32 "%s-%s%s%s%s%s",
             p->batch, p->num_q_heads, p->num_kv_heads, p->head_dim, p->page_size, p->q_len,
             p->causal ? "" : "f", p->kv_len, of, p->dtype == GEN_DTYPE_FP16 ? "fp16" : "bf16",
             p->cache ? "e4m3" : "", window, p->softcap ? "-cap" : "", p->sink ? "-sink" : "");
}
