/*
 * Problems of mla_sparse for the tuner, the verifier and the tests: which tensors they have, what
 * stands in them, and what they cost.
 *
 * A request has a context of somewhat more rows than all its lists name. Without padding no row is
 * named twice, so that the bytes of a launch are those that cost() says.
 */
#include "families/mla/mla.h"
#include "families/mla_sparse/mla_sparse.h"
#include "reference/half.h"
#include "reference/scatter.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements of 656-byte rows are normal numbers times this, their scales about its inverse. */
static const double ds_size = 2.0;

/* ---- lists ------------------------------------------------------------- */

static int64_t tokens_of(const gen_mla_sparse_problem *p)
{
    return (int64_t)p->batch * p->q_len;
}

/* Rows of a request's context. */
static int64_t context_rows(const gen_mla_sparse_problem *p)
{
    return (int64_t)p->q_len * p->topk + p->topk / 4 + 1;
}

int64_t gen__mla_sparse_context(const gen_mla_sparse_problem *p)
{
    return (context_rows(p) - 1) / p->page_size + 1;
}

/* Where there are lengths: the first list is whole, the second has none, others are any. */
static int32_t length_of(const gen_mla_sparse_problem *p, int64_t n)
{
    return n < 2 ? (n == 0 ? p->topk : 0) : (int32_t)(gen__scatter(1, n) * (p->topk + 1));
}

/* ---- tensors ----------------------------------------------------------- */

/* As in mla_decode: what rounds the probabilities once and the output once is off by half of
 * these. */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double row_factor = 1.5;
static const double lse_tolerance = 1e-3;

#define TENSOR(...) GEN__TENSOR(gen_mla_sparse_args, __VA_ARGS__)

uint32_t gen__mla_sparse_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, index = GEN_DTYPE_INT32;
    const bool ds = p->cache == GEN_MLA_SPARSE_DS;
    const int64_t heads = tokens_of(p) * p->num_heads;
    const int64_t pages = p->batch * gen__mla_sparse_context(p) + MLA_SPARSE_EXTRA_PAGES;
    const int64_t row = gen__mla_sparse_row(p->cache, p->rope_dim);
    const double tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    const struct gen__tensor list[MLA_SPARSE_NUM_TENSORS] = {
        {TENSOR(q_nope, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, heads * MLA_LATENT), .cold = true},
        {TENSOR(q_pe, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, heads * p->rope_dim), .cold = true},
        {TENSOR(kv, ds ? GEN_DTYPE_E4M3 : dtype, GEN__IN, GEN__FILL_NORMAL, ds ? ds_size : 1.0,
                pages * p->page_size * row),
         .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, heads * MLA_LATENT),
         .tolerance = tolerance, .row_tolerance = row_factor * tolerance, .row = MLA_LATENT},
        {TENSOR(lse, GEN_DTYPE_FP32, GEN__OUT, GEN__FILL_POISON, 0, heads),
         .absolute = lse_tolerance},
        {TENSOR(indices, index, GEN__IN, GEN__FILL_FAMILY, 0, tokens_of(p) * p->topk),
         .cold = true},
        {TENSOR(topk_length, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
        {TENSOR(sink, GEN_DTYPE_FP32, GEN__IN, GEN__FILL_NORMAL, 2.0, p->sink ? p->num_heads : 0),
         .mean = 3.0, .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return MLA_SPARSE_NUM_TENSORS;
}

#undef TENSOR

void gen__mla_sparse_default_args(const gen_problem *base, gen_args *args)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    gen_mla_sparse_args *a = (gen_mla_sparse_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_MLA_SPARSE;
    a->num_pages = (int32_t)(p->batch * gen__mla_sparse_context(p) + MLA_SPARSE_EXTRA_PAGES);
    a->kv_row_stride = gen__mla_sparse_row(p->cache, p->rope_dim);
    a->kv_page_stride = a->kv_row_stride * p->page_size;
    a->indices_token_stride = p->topk;
    a->indices_batch_stride = (int64_t)p->topk * p->q_len;
    a->lse_base_2 = 1;
    a->scale = 0.07216878364870323f; /* 1 / sqrt(192) */
}

/* ---- what stands in them ----------------------------------------------- */

/* Entries that name no row, in turn. */
static int32_t bad_entry(int64_t num_rows, int64_t n)
{
    const int32_t rows = (int32_t)num_rows;
    const int32_t bad[] = {-1, -1, rows, INT32_MIN, -1, INT32_MAX, rows + 7, -rows};
    return bad[n % (int64_t)(sizeof bad / sizeof *bad)];
}

/* Entries behind a list's length: none, and a row of no request. */
static int32_t behind(int64_t num_rows, int64_t n)
{
    return n % 2 ? INT32_MAX : (int32_t)num_rows - 1;
}

/* The list of one token: `rows` are its own. */
static void fill_list(const gen_mla_sparse_problem *p, const gen_mla_sparse_args *a,
                      const struct gen__fill_options *options, int64_t token, int64_t length,
                      const int32_t *rows, int32_t *list)
{
    const int64_t num_rows = (int64_t)a->num_pages * p->page_size;
    const bool none = options->padding && token % 5 == 1;
    for (int64_t i = 0; i < p->topk; i++) {
        const int64_t n = token * p->topk + i;
        list[i] = rows[i];
        if (i >= length)
            list[i] = behind(num_rows, n);
        else if (none)
            list[i] = -1;
        else if (options->padding && n % 3 == 1)
            list[i] = bad_entry(num_rows, n / 3);
        else if (options->padding && n % 7 == 2)
            list[i] = rows[0]; /* once more */
    }
}

static int64_t length_at(const gen_mla_sparse_problem *p, const gen_mla_sparse_args *a,
                         const int32_t *lengths, int64_t b, int64_t token)
{
    return lengths ? length_of(p, a->length_per_token ? token : b) : p->topk;
}

/* Every request's rows in no order or, where wished, in ascending order, dealt to its tokens. */
static bool fill_lists(const gen_mla_sparse_problem *p, const gen_mla_sparse_args *a,
                       const struct gen__fill_options *options, const int32_t *lengths,
                       int32_t *indices)
{
    const int64_t count = context_rows(p), pages = gen__mla_sparse_context(p);
    int32_t *rows = malloc((size_t)count * sizeof *rows);
    if (!rows)
        return false;
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t i = 0; i < count; i++)
            rows[i] = (int32_t)(b * pages * p->page_size + i);
        for (int64_t i = 0; i < count && !options->ordered; i++) {
            const double at = gen__scatter(options->seed + 7, b * count + i);
            const int64_t j = i + (int64_t)(at * (double)(count - i));
            const int32_t row = rows[j];
            rows[j] = rows[i];
            rows[i] = row;
        }
        for (int64_t t = 0; t < p->q_len; t++) {
            const int64_t token = b * p->q_len + t;
            fill_list(p, a, options, token, length_at(p, a, lengths, b, token), rows + t * p->topk,
                      indices + b * a->indices_batch_stride + t * a->indices_token_stride);
        }
    }
    free(rows);
    return true;
}

/* With padding also ones that stand for 0 and for topk. */
static void fill_lengths(const gen_mla_sparse_problem *p, int64_t count,
                         const struct gen__fill_options *options, int32_t *lengths)
{
    for (int64_t n = 0; n < count; n++) {
        lengths[n] = length_of(p, n);
        if (options->padding && lengths[n] == 0)
            lengths[n] = -7;
        else if (options->padding && lengths[n] == p->topk)
            lengths[n] += 1000;
    }
}

/* The scales and the rotary part of a 656-byte row, whose bytes were filled as e4m3. */
static void fill_ds_row(uint8_t *row, uint64_t seed, int64_t n)
{
    float scales[MLA_LATENT / MLA_SPARSE_GROUP];
    for (int g = 0; g < MLA_LATENT / MLA_SPARSE_GROUP; g++) {
        const double x = gen__scatter(seed + 11, n * 4 + g);
        /* Any, and as DeepSeek's quantiser has them: powers of two. */
        scales[g] = (float)(n % 2 ? (0.5 + x) / ds_size : ldexp(1.0, (int)(4 * x) - 3));
    }
    memcpy(row + MLA_SPARSE_SCALES_AT, scales, sizeof scales);
    for (int i = 0; i < MLA_ROPE; i++) {
        double x = -1.5; /* three uniform numbers have a variance of 1/4 */
        for (int k = 0; k < 3; k++)
            x += gen__scatter(seed + 13, (n * MLA_ROPE + i) * 3 + k);
        const uint16_t code = gen__bf16_from_double(2 * x);
        memcpy(row + MLA_SPARSE_ROPE_AT + (ptrdiff_t)2 * i, &code, sizeof code);
    }
}

/* Rows that some list names, not counting those of the first `spared` requests; NULL where there is
 * no memory. */
static uint8_t *find_used(const gen_mla_sparse_problem *p, const gen_mla_sparse_args *a,
                          const int32_t *indices, const int32_t *lengths, int64_t spared)
{
    const int64_t rows = (int64_t)a->num_pages * p->page_size;
    uint8_t *used = calloc((size_t)rows, 1);
    for (int64_t b = spared; used && b < p->batch; b++)
        for (int64_t t = 0; t < p->q_len; t++) {
            const int32_t *list =
                indices + b * a->indices_batch_stride + t * a->indices_token_stride;
            const int64_t length = length_at(p, a, lengths, b, b * p->q_len + t);
            for (int64_t i = 0; i < length; i++)
                if (list[i] >= 0 && list[i] < rows)
                    used[list[i]] = 1;
        }
    return used;
}

/* NaN in elements [first, end) of the cache, or in bytes of one of 656-byte rows. */
static void poison(const gen_mla_sparse_problem *p, void *kv, int64_t first, int64_t end)
{
    const int64_t unit = p->cache == GEN_MLA_SPARSE_DS ? 1 : 2;
    memset((uint8_t *)kv + first * unit, 0xff, (size_t)((end - first) * unit));
}

/* Every row that no list names, and what lies between rows and between pages. */
static bool poison_unused(const gen_mla_sparse_problem *p, const gen_mla_sparse_args *a,
                          int64_t spared, void *const *data)
{
    const int64_t row = gen__mla_sparse_row(p->cache, p->rope_dim);
    uint8_t *used = find_used(p, a, data[MLA_SPARSE_T_INDICES], data[MLA_SPARSE_T_LENGTH], spared);
    for (int64_t page = 0; used && page < a->num_pages; page++)
        for (int64_t r = 0; r < p->page_size; r++) {
            const int64_t at = page * a->kv_page_stride + r * a->kv_row_stride;
            const int64_t next =
                r + 1 < p->page_size ? at + a->kv_row_stride : (page + 1) * a->kv_page_stride;
            const bool is_used = used[page * p->page_size + r];
            poison(p, data[MLA_SPARSE_T_KV], is_used ? at + row : at, next);
        }
    const bool ok = used != NULL;
    free(used);
    return ok;
}

enum gen_status gen__mla_sparse_fill(const gen_problem *base, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    const gen_mla_sparse_args *a = (const gen_mla_sparse_args *)args;
    float *const sink = data[MLA_SPARSE_T_SINK];
    uint8_t *const kv = data[MLA_SPARSE_T_KV];
    if (!p->batch)
        return GEN_OK;
    if (sink && options->padding) { /* no output, and as if there were none */
        sink[0] = INFINITY;
        if (p->num_heads > 1)
            sink[1] = -INFINITY;
    }
    if (data[MLA_SPARSE_T_LENGTH])
        fill_lengths(p, (int64_t)tensors[MLA_SPARSE_T_LENGTH].count, options,
                     data[MLA_SPARSE_T_LENGTH]);
    for (int64_t n = 0;
         kv && p->cache == GEN_MLA_SPARSE_DS && n < (int64_t)a->num_pages * p->page_size; n++)
        fill_ds_row(kv + n / p->page_size * a->kv_page_stride + n % p->page_size * a->kv_row_stride,
                    options->seed, n);
    bool ok = fill_lists(p, a, options, data[MLA_SPARSE_T_LENGTH], data[MLA_SPARSE_T_INDICES]);
    if (ok && (options->non_finite || options->poisoned) && kv)
        ok = poison_unused(p, a, options->poisoned ? 1 : 0, data);
    return ok ? GEN_OK
              : gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                          "mla_sparse: no memory to fill lists of %" PRId32 " entries", p->topk);
}

/* ---- what it costs, what it is called ---------------------------------- */

/* Rows once for every list that names them, queries and outputs once; without the lists. */
void gen__mla_sparse_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    const double width = MLA_LATENT + p->rope_dim, tokens = (double)tokens_of(p);
    const double row =
        p->cache == GEN_MLA_SPARSE_DS ? MLA_SPARSE_ROPE_AT + 2.0 * p->rope_dim : 2 * width;
    *bytes = tokens * (p->topk * row + p->num_heads * (width + MLA_LATENT) * 2);
    *flops = tokens * p->topk * p->num_heads * 2 * (width + MLA_LATENT);
}

/* Half octaves: entries of all lists, tokens, rows. */
const uint8_t gen__mla_sparse_grid[] = {4, 4, 2};

/* Of the grid's lists. */
#define LEAST_TOPK 128
#define MOST_TOPK 16384

void gen__mla_sparse_set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS])
{
    gen_mla_sparse_problem *p = (gen_mla_sparse_problem *)base;
    p->topk = (int32_t)lroundf(fminf(fmaxf(counts[0] / counts[1], LEAST_TOPK), MOST_TOPK));
    p->batch = (int32_t)lroundf(counts[1]);
    p->q_len = 1;
    p->num_heads = (int32_t)fminf(roundf(counts[2]), MLA_MAX_HEADS);
}

/* "B128-H128-K2048-T2-P64-bf16". What is not said there changes a word: bf16ds, bf16r0, sink. */
void gen__mla_sparse_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    snprintf(
        text, capacity, "B%" PRId32 "-H%" PRId32 "-K%" PRId32 "-T%" PRId32 "-P%" PRId32 "-%s%s%s%s",
        p->batch, p->num_heads, p->topk, p->q_len, p->page_size,
        p->dtype == GEN_DTYPE_FP16 ? "fp16" : "bf16", p->cache == GEN_MLA_SPARSE_DS ? "ds" : "",
        p->rope_dim ? "" : "r0", p->sink ? "-sink" : "");
}
