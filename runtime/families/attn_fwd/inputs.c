/*
 * Problems of attn_fwd for the tuner, the verifier and the tests: which tensors
 * they have, what stands in them, and the other ways to pass them.
 */
#include "families/attn_fwd/attn_fwd.h"
#include "reference/data.h"
#include "reference/scatter.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rows of packed tensors behind the last request: no request's. */
#define EXTRA_ROWS 5

/* ---- lengths ----------------------------------------------------------- */

/* With varlen the first request has the greatest lengths, the second no keys, the fourth no
 * queries, the others any. The same for every fill: the tensors' sizes depend on it. */
static int32_t q_rows(const gen_attn_fwd_problem *p, int64_t b)
{
    if (!p->varlen || b == 0)
        return p->q_len;
    return b == 3 ? 0 : (int32_t)(gen__scatter(0, b) * (p->q_len + 1.0));
}

static int32_t kv_rows(const gen_attn_fwd_problem *p, int64_t b)
{
    if (!p->varlen || b == 0)
        return p->kv_len;
    return b == 1 ? 0 : (int32_t)(gen__scatter(1, b) * (p->kv_len + 1.0));
}

static int64_t all_rows(const gen_attn_fwd_problem *p,
                        int32_t (*rows)(const gen_attn_fwd_problem *, int64_t))
{
    int64_t sum = p->varlen ? EXTRA_ROWS : 0;
    for (int64_t b = 0; b < p->batch; b++)
        sum += rows(p, b);
    return sum;
}

/* ---- tensors ----------------------------------------------------------- */

/*
 * Tolerances. A kernel that does everything in fp32, but rounds the probabilities
 * to 16 bits before it multiplies the values, and the output once more, is off
 * by about half a unit of the output's last place, however many keys there are:
 * 2^-p of the whole, where the type has p significant bits, is allowed, and 1.5
 * times that of every row. The log-sum-exp is a sum in fp32.
 *
 * Of 8-bit inputs probabilities have four significant bits, each off by a sixteenth at most and
 * by 2.6 % usually. Those of a row are off independently of each other, and so are its values: the
 * output is off by as much as one of them, were it the only one. 1/20 of the whole is allowed, and
 * somewhat more than a sixteenth of a row, which may depend on one key. Tensor cores add 8-bit
 * products with some 14 bits, and so scores far apart, which are great numbers, are off by more
 * than scores of normal numbers: in the form `steep` the log-sum-exp is.
 */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double row_factor = 1.5;
static const double fp8_tolerance = 0.05, fp8_row_tolerance = 0.08;
/* The tensor cores truncate sums in fp32. Where values have one sign that makes sums smaller, by a
 * share of each key's: fp16 is 0.0007 off at 131,072 keys, FlashAttention-3 likewise. */
static const double lost_of_a_key = 0x1p-28;
static const double lse_tolerance = 1e-3, fp8_steep_lse_tolerance = 0.05;

/*
 * The same of 8 bits where the errors of probabilities cannot hide what sums lose. Of values that
 * are all the same an output is off by what a row's probabilities are rounded by together, which is
 * nothing over thousands of keys, and by its own rounding, 2^-9 at most: 0.006 is allowed. Of
 * values of mean 1 a half of the output's square at least is the mean's, and so the errors of
 * probabilities are a small part of it where keys are many: 0.02, of e5m2 0.04. A sum that the
 * tensor cores keep over 4,096 keys is 0.07 off.
 */
static const double fp8_same_tolerance = 0.006;
static const double e4m3_mean_tolerance = 0.02, e5m2_mean_tolerance = 0.04;

#define TENSOR(...) GEN__TENSOR(gen_attn_fwd_args, __VA_ARGS__)

uint32_t gen__attn_fwd_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, index = GEN_DTYPE_INT32;
    const int64_t q = all_rows(p, q_rows) * p->num_q_heads, width = p->head_dim;
    const int64_t kv = all_rows(p, kv_rows) * p->num_kv_heads;
    const int64_t list_length = p->varlen && p->batch ? p->batch + 1 : 0;
    const enum gen_dtype output = gen__attn_output(p->dtype, p->o_dtype), fp32 = GEN_DTYPE_FP32;
    const bool fp8 = gen__attn_of_8_bits(p->dtype);
    const double rounded = output == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    const double tolerance = fp8 ? fp8_tolerance : rounded;
    const double row_tolerance = fp8 ? fp8_row_tolerance : row_factor * rounded;
    const struct gen__tensor list[ATTN_FWD_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, q * width), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, kv * width), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, kv * width), .cold = true},
        {TENSOR(o, output, GEN__OUT, GEN__FILL_POISON, 0, q * width), .tolerance = tolerance,
         .row_tolerance = row_tolerance, .row = (uint32_t)width},
        {TENSOR(lse, fp32, GEN__OUT, GEN__FILL_POISON, 0, q), .absolute = lse_tolerance},
        {TENSOR(cu_seqlens_q, index, GEN__IN, GEN__FILL_FAMILY, 0, list_length), .cold = true},
        {TENSOR(cu_seqlens_k, index, GEN__IN, GEN__FILL_FAMILY, 0, list_length), .cold = true},
        {TENSOR(q_descale, fp32, GEN__IN, GEN__FILL_FAMILY, 0, 0)}, /* only in a form */
        {TENSOR(k_descale, fp32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},
        {TENSOR(v_descale, fp32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},
    };
    memcpy(tensors, list, sizeof list);
    return ATTN_FWD_NUM_TENSORS;
}

#undef TENSOR

void gen__attn_fwd_default_args(const gen_problem *base, gen_args *args)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    gen_attn_fwd_args *a = (gen_attn_fwd_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_ATTN_FWD;
    a->scale = (float)(1 / sqrt(p->head_dim));
    a->softcap = p->softcap ? 1.5f : 0.0f; /* low enough to bend normal scores */
    if (p->varlen) {
        a->total_q = (int32_t)all_rows(p, q_rows);
        a->total_k = (int32_t)all_rows(p, kv_rows);
    }
}

/* ---- what stands in them ----------------------------------------------- */

static void fill_list(const gen_attn_fwd_problem *p,
                      int32_t (*rows)(const gen_attn_fwd_problem *, int64_t), int32_t *list)
{
    list[0] = 0;
    for (int64_t b = 0; b < p->batch; b++)
        list[b + 1] = list[b] + rows(p, b);
}

/* NaN and infinity, where the type has it, in row `at` of every head. */
static void poison_row(enum gen_dtype dtype, void *data, int64_t at, int64_t heads,
                       int64_t head_stride, int64_t width)
{
    const uint16_t infinity = dtype == GEN_DTYPE_FP16 ? 0x7c00 : 0x7f80;
    const uint8_t infinity_of_8 = dtype == GEN_DTYPE_E5M2 ? 0x7c : 0xff;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t d = 0; d < width; d++)
            if (gen__attn_of_8_bits((int32_t)dtype))
                ((uint8_t *)data)[at + h * head_stride + d] = d % 2 ? infinity_of_8 : 0x7f;
            else
                ((uint16_t *)data)[at + h * head_stride + d] = d % 2 ? infinity : 0x7fff;
}

/* Rows of keys or values that no query reads: those of a request without queries, those behind the
 * last request and, where requests have room between them, those behind each. */
static void poison_unused(const gen_attn_fwd_problem *p, int64_t batch_stride, int64_t row_stride,
                          int64_t head_stride, void *data)
{
    const int64_t width = p->head_dim, heads = p->num_kv_heads;
    const int64_t head = head_stride ? head_stride : width;
    const int64_t row = row_stride ? row_stride : heads * width;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype;
    int64_t at = 0;
    for (int64_t b = 0; b < p->batch && p->varlen; b++) {
        const int64_t end = at + kv_rows(p, b);
        for (; at < end; at++)
            if (q_rows(p, b) == 0)
                poison_row(dtype, data, at * row, heads, head, width);
    }
    for (int64_t i = 0; i < EXTRA_ROWS && p->varlen; i++)
        poison_row(dtype, data, (at + i) * row, heads, head, width);
    for (int64_t b = 0; b + 1 < p->batch && !p->varlen && row >= heads * head; b++)
        for (int64_t i = p->kv_len; (i + 1) * row <= batch_stride; i++)
            poison_row(dtype, data, b * batch_stride + i * row, heads, head, width);
}

/* All rows of one key head of a request: of the first the last head, of the third the first. */
static void poison_heads(const gen_attn_fwd_problem *p, int64_t batch_stride, int64_t row_stride,
                         int64_t head_stride, void *data)
{
    const int64_t width = p->head_dim, heads = p->num_kv_heads;
    const int64_t head = head_stride ? head_stride : width;
    const int64_t row = row_stride ? row_stride : heads * width;
    const int64_t batch = batch_stride ? batch_stride : p->kv_len * row;
    int64_t at = 0;
    for (int64_t b = 0; b < p->batch && b < 3; b++) {
        for (int64_t i = 0; i < kv_rows(p, b) && b != 1; i++)
            poison_row((enum gen_dtype)p->dtype, data, at + i * row + (b ? 0 : heads - 1) * head, 1,
                       head, width);
        at += p->varlen ? kv_rows(p, b) * row : batch;
    }
}

/* Half to one and a half, v's of either sign: `which` is 0 for q, 1 for k, 2 for v. */
static void fill_descales(const gen_attn_fwd_problem *p, int which, float *descales)
{
    const int64_t count = (int64_t)p->batch * p->num_kv_heads;
    for (int64_t i = 0; i < count; i++) {
        const double x = 0.5 + gen__scatter(UINT64_C(2) + (uint64_t)which, i);
        descales[i] = (float)(which == 2 && i % 2 ? -x : x);
    }
}

enum gen_status gen__attn_fwd_fill(const gen_problem *base, const gen_args *args,
                                   const struct gen__tensor *tensors,
                                   const struct gen__fill_options *options, void *const *data)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    const gen_attn_fwd_args *a = (const gen_attn_fwd_args *)args;
    (void)tensors;
    if (data[ATTN_FWD_CU_Q])
        fill_list(p, q_rows, data[ATTN_FWD_CU_Q]);
    if (data[ATTN_FWD_CU_K])
        fill_list(p, kv_rows, data[ATTN_FWD_CU_K]);
    for (int i = 0; i < 3; i++)
        if (data[ATTN_FWD_Q_DESCALE + i])
            fill_descales(p, i, data[ATTN_FWD_Q_DESCALE + i]);
    if (options->poisoned && data[ATTN_FWD_K])
        poison_heads(p, a->k_batch_stride, a->k_row_stride, a->k_head_stride, data[ATTN_FWD_K]);
    if (options->poisoned && data[ATTN_FWD_V])
        poison_heads(p, a->v_batch_stride, a->v_row_stride, a->v_head_stride, data[ATTN_FWD_V]);
    if (options->non_finite && data[ATTN_FWD_K])
        poison_unused(p, a->k_batch_stride, a->k_row_stride, a->k_head_stride, data[ATTN_FWD_K]);
    if (options->non_finite && data[ATTN_FWD_V])
        poison_unused(p, a->v_batch_stride, a->v_row_stride, a->v_head_stride, data[ATTN_FWD_V]);
    return GEN_OK;
}

/* ---- other ways to pass the same problem ------------------------------- */

enum form {
    FORM_HEADS_FIRST, /* [batch, heads, rows, head_dim], with varlen [heads, rows, head_dim] */
    FORM_JOINT,       /* q, k and v in one buffer, as a projection writes them */
    FORM_STRIDES,     /* gaps everywhere */
    FORM_NO_LSE,
    FORM_STEEP, /* scores so far apart that a row's maximum moves from block to block */
    FORM_CUT,   /* varlen: fewer rows in all than the lists name; what is beyond is not touched */
    FORM_DESCALES
};

const char *const gen__attn_fwd_forms[ATTN_FWD_NUM_FORMS] = {
    "heads_first", "joint", "strides", "no_lse", "steep", "cut", "descales"};

static void heads_first_form(const gen_attn_fwd_problem *p, gen_attn_fwd_args *a)
{
    const int64_t width = p->head_dim;
    const int64_t q = p->varlen ? a->total_q : p->q_len, kv = p->varlen ? a->total_k : p->kv_len;
    a->q_row_stride = a->k_row_stride = a->v_row_stride = a->o_row_stride = width;
    a->q_head_stride = a->o_head_stride = q * width;
    a->k_head_stride = a->v_head_stride = kv * width;
    a->q_batch_stride = a->o_batch_stride = p->num_q_heads * q * width;
    a->k_batch_stride = a->v_batch_stride = p->num_kv_heads * kv * width;
}

static bool joint_form(const gen_attn_fwd_problem *p, gen_attn_fwd_args *a, struct gen__tensor *t)
{
    const int64_t q_width = (int64_t)p->num_q_heads * p->head_dim;
    const int64_t kv_width = (int64_t)p->num_kv_heads * p->head_dim;
    const int64_t row = q_width + 2 * kv_width, batch = row * p->q_len;
    a->q_row_stride = a->k_row_stride = a->v_row_stride = row;
    a->q_batch_stride = a->k_batch_stride = a->v_batch_stride = batch;
    t[ATTN_FWD_Q].count = (uint64_t)(p->batch * batch);
    t[ATTN_FWD_K].count = t[ATTN_FWD_V].count = 0;
    t[ATTN_FWD_K].view_of = t[ATTN_FWD_V].view_of = ATTN_FWD_Q + 1;
    t[ATTN_FWD_K].view_at = (uint64_t)q_width;
    t[ATTN_FWD_V].view_at = (uint64_t)(q_width + kv_width);
    return p->q_len == p->kv_len && !p->varlen;
}

static void stride_form(const gen_attn_fwd_problem *p, gen_attn_fwd_args *a, struct gen__tensor *t)
{
    const int64_t step = gen__attn_of_8_bits(p->dtype) ? 16 : 8;
    const int64_t width = p->head_dim, q_row = p->num_q_heads * (width + step) + 16;
    const int64_t kv_row = p->num_kv_heads * (width + 16) + step;
    const int64_t q = p->varlen ? a->total_q : (int64_t)p->batch * (p->q_len + 1);
    const int64_t kv = p->varlen ? a->total_k : (int64_t)p->batch * (p->kv_len + 3);
    const int64_t o_row = p->num_q_heads * width; /* so that rows are equally far apart */
    a->q_head_stride = width + step;
    a->q_row_stride = q_row;
    a->q_batch_stride = (p->q_len + 1) * q_row;
    a->k_head_stride = a->v_head_stride = width + 16;
    a->k_row_stride = a->v_row_stride = kv_row;
    a->k_batch_stride = a->v_batch_stride = (p->kv_len + 3) * kv_row;
    a->o_batch_stride = (p->q_len + 2) * o_row;
    t[ATTN_FWD_Q].count = (uint64_t)(q * q_row);
    t[ATTN_FWD_K].count = t[ATTN_FWD_V].count = (uint64_t)(kv * kv_row);
    if (!p->varlen)
        t[ATTN_FWD_O].count = (uint64_t)(p->batch * a->o_batch_stride);
    const int64_t lse_rows = p->varlen ? a->total_q : p->q_len;
    a->lse_head_stride = lse_rows + 3;
    a->lse_batch_stride = p->num_q_heads * a->lse_head_stride + 1;
    t[ATTN_FWD_LSE].count =
        (uint64_t)((p->varlen ? 1 : p->batch) * (p->num_q_heads * (lse_rows + 3) + 1));
}

bool gen__attn_fwd_form(const gen_problem *base, uint32_t index, gen_args *args,
                        struct gen__tensor *t)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    gen_attn_fwd_args *a = (gen_attn_fwd_args *)args;
    switch ((enum form)index) {
    case FORM_HEADS_FIRST:
        heads_first_form(p, a);
        return true;
    case FORM_JOINT:
        return joint_form(p, a, t);
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_NO_LSE:
        t[ATTN_FWD_LSE].count = 0;
        return true;
    case FORM_STEEP:
        a->scale = 1.5f;
        if (gen__attn_of_8_bits(p->dtype))
            t[ATTN_FWD_LSE].absolute = fp8_steep_lse_tolerance;
        return true;
    case FORM_CUT:
        a->total_q -= a->total_q / 3;
        a->total_k -= a->total_k / 3;
        return p->varlen;
    case FORM_DESCALES:
        for (int i = 0; i < 3; i++)
            t[ATTN_FWD_Q_DESCALE + i].count = (uint64_t)p->batch * (uint64_t)p->num_kv_heads;
        return gen__attn_of_8_bits(p->dtype);
    }
    return false;
}

bool gen__attn_fwd_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                        struct gen__tensor *t)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    (void)args;
    gen__data_queries(kind, &t[ATTN_FWD_Q], t[ATTN_FWD_K].dtype, p->head_dim);
    gen__data_keys(kind, &t[ATTN_FWD_K], p->head_dim);
    gen__data_values(kind, &t[ATTN_FWD_V], p->head_dim, true);
    if (p->dtype == GEN_DTYPE_FP16 && (kind == GEN__DATA_ONES || kind == GEN__DATA_MEAN1)) {
        t[ATTN_FWD_O].tolerance += p->kv_len * lost_of_a_key;
        t[ATTN_FWD_O].row_tolerance += p->kv_len * lost_of_a_key;
    }
    if (!gen__attn_of_8_bits(p->dtype))
        return true;
    if (kind == GEN__DATA_ONES || kind == GEN__DATA_CONSTANT)
        t[ATTN_FWD_O].tolerance = t[ATTN_FWD_O].row_tolerance = fp8_same_tolerance;
    if (kind == GEN__DATA_MEAN1)
        t[ATTN_FWD_O].tolerance = t[ATTN_FWD_O].row_tolerance =
            p->dtype == GEN_DTYPE_E5M2 ? e5m2_mean_tolerance : e4m3_mean_tolerance;
    return true;
}

/* ---- what it costs, what it is called ---------------------------------- */

/* Pairs of a query and a key that counts, of a request and head. With Sq = Sk causality leaves half
 * of all, as everybody counts. */
static double pairs_of(const gen_attn_fwd_problem *p, int64_t b)
{
    const int64_t q = q_rows(p, b), k = kv_rows(p, b);
    const bool windows = p->left_window || p->right_window;
    double pairs = 0;
    if (!windows && !p->causal)
        return (double)q * (double)k;
    if (!windows && q <= k)
        return (double)q * ((double)(k - q) + (double)q / 2);
    for (int64_t i = 0; i < q; i++) {
        const int64_t place = i + k - q;
        const int64_t first = p->left_window ? place + 1 - p->left_window : 0;
        const int64_t end = p->causal ? place + 1 : p->right_window ? place + p->right_window : k;
        const int64_t count = (end < k ? end : k) - (first > 0 ? first : 0);
        pairs += count > 0 ? (double)count : 0;
    }
    return pairs;
}

/* All tensors once. */
void gen__attn_fwd_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    double q = 0, kv = 0, pairs = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        q += q_rows(p, b);
        kv += kv_rows(p, b);
        pairs += p->varlen || b == 0 ? pairs_of(p, b) : 0;
    }
    if (!p->varlen)
        pairs *= p->batch;
    const double in = gen__attn_of_8_bits(p->dtype) ? 1 : 2, heads = p->num_q_heads;
    *bytes = (q * heads * (in + 2) + kv * p->num_kv_heads * 2 * in) * p->head_dim + q * heads * 4;
    *flops = pairs * p->num_q_heads * 4 * p->head_dim;
}

/* Three octaves of heads, two of the lengths: time goes with the product of all three. */
const uint8_t gen__attn_fwd_grid[] = {6, 4, 4};

/* As many heads as models have, one request where they are fewer than 32. */
void gen__attn_fwd_set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS])
{
    gen_attn_fwd_problem *p = (gen_attn_fwd_problem *)base;
    const int64_t heads = lroundf(counts[0]);
    p->num_q_heads = p->num_kv_heads = heads % 32 ? (heads < 1024 ? (int32_t)heads : 1024) : 32;
    p->batch = (int32_t)(heads / p->num_q_heads);
    p->q_len = (int32_t)lroundf(counts[1]);
    p->kv_len = (int32_t)lroundf(counts[2]);
}

/* "Z4-H32-D128-N8192-causal-fp16". What is not said there changes a word, so that no case is taken
 * for another: H32of8 (key heads), N8192of16384 (keys), windowL,R, varlen, softcap, ofp16 (of 8
 * bits). */
void gen__attn_fwd_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_attn_fwd_problem *p = (const gen_attn_fwd_problem *)base;
    char heads[24] = "", keys[24] = "", window[40] = "";
    if (p->num_kv_heads != p->num_q_heads)
        snprintf(heads, sizeof heads, "of%" PRId32, p->num_kv_heads);
    if (p->kv_len != p->q_len)
        snprintf(keys, sizeof keys, "of%" PRId32, p->kv_len);
    if (p->left_window || p->right_window) /* as text has them */
        snprintf(window, sizeof window, "-window%" PRId32 "_%" PRId32, p->left_window - 1,
                 p->right_window - 1);
    static const char *const names[] = {"bf16", "fp16", "fp32", "int32", "e4m3", "e5m2"};
    const bool other = gen__attn_of_8_bits(p->dtype) && p->o_dtype == GEN_DTYPE_FP16;
    snprintf(text, capacity,
             "Z%" PRId32 "-H%" PRId32 "%s-D%" PRId32 "-N%" PRId32 "%s-%s%s%s%s%s-%s", p->batch,
             p->num_q_heads, heads, p->head_dim, p->q_len, keys, p->causal ? "causal" : "full",
             window, p->varlen ? "-varlen" : "", p->softcap ? "-softcap" : "",
             other ? "-ofp16" : "", names[p->dtype]);
}
