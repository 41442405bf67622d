/*
 * Sparse MLA decode in plain C: what the kernels are compared with, and the backend where there is
 * no GPU. families/mla_sparse/api.h has the maths.
 *
 * Everything is double from the load to the store, so each result is rounded once; an element of a
 * 656-byte row is its scale times it in fp32, rounded to bf16, as api.h says. A list is walked 64
 * entries at a time for all heads.
 */
#include "families/mla_sparse/mla_sparse.h"
#include "reference/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LATENT = MLA_LATENT, WIDTH = MLA_LATENT + MLA_ROPE, ROWS = 64, MAX_HEADS = 128 };

/* One call. */
struct shape {
    const gen_mla_sparse_args *args;
    const int32_t *dims;
    struct gen__mla_sparse_strides strides;
    enum gen_dtype dtype;
    int32_t rope;
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

/* ---- where things lie -------------------------------------------------- */

static void load(enum gen_dtype dtype, const void *tensor, int64_t offset, int64_t count, double *x)
{
    const uint16_t *codes = (const uint16_t *)tensor + offset;
    for (int64_t i = 0; i < count; i++)
        x[i] =
            dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(codes[i]) : gen__bf16_to_double(codes[i]);
}

static void load_ds_row(const struct shape *s, int64_t offset, double *row)
{
    const uint8_t *const bytes = (const uint8_t *)s->args->kv + offset;
    float scales[LATENT / MLA_SPARSE_GROUP];
    memcpy(scales, bytes + MLA_SPARSE_SCALES_AT, sizeof scales);
    for (int i = 0; i < LATENT; i++) {
        const float x = scales[i / MLA_SPARSE_GROUP] * (float)gen__e4m3_to_double(bytes[i]);
        row[i] = gen__bf16_to_double(gen__bf16_from_double((double)x));
    }
    for (int i = 0; i < s->rope; i++) {
        uint16_t code;
        memcpy(&code, bytes + MLA_SPARSE_ROPE_AT + (ptrdiff_t)2 * i, sizeof code);
        row[LATENT + i] = gen__bf16_to_double(code);
    }
}

static void load_row(const struct shape *s, int64_t entry, double *row)
{
    const int64_t page_size = s->dims[MLA_SPARSE_PAGE_SIZE];
    const int64_t offset =
        entry / page_size * s->strides.kv_page + entry % page_size * s->strides.kv_row;
    if (s->dims[MLA_SPARSE_CACHE] == GEN_MLA_SPARSE_DS)
        load_ds_row(s, offset, row);
    else
        load(s->dtype, s->args->kv, offset, LATENT + s->rope, row);
}

static int64_t length_of(const struct shape *s, int64_t b, int64_t token)
{
    const int64_t most = s->dims[MLA_SPARSE_TOPK];
    if (!s->args->topk_length)
        return most;
    const int64_t length = s->args->topk_length[s->args->length_per_token ? token : b];
    return length < 0 ? 0 : length < most ? length : most;
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
    const struct gen__mla_sparse_strides *strides = &s->strides;
    memset(head, 0, sizeof *head);
    head->max = -INFINITY;
    load(s->dtype, s->args->q_nope, token * strides->q_nope_token + h * strides->q_nope_head,
         LATENT, head->q);
    if (s->rope)
        load(s->dtype, s->args->q_pe, token * strides->q_pe_token + h * strides->q_pe_head,
             MLA_ROPE, head->q + LATENT);
}

static void end_head(const struct shape *s, int64_t token, int64_t h, const struct head *head,
                     double *exact)
{
    const int64_t at = token * s->strides.o_token + h * s->strides.o_head;
    /* The sink as so many more of the sum. Infinite ones have a limit each: 0, and no sink. */
    const double sink = s->dims[MLA_SPARSE_SINK] && head->sum != 0
                            ? exp((double)s->args->sink[h] - head->max)
                            : 0.0;
    for (int i = 0; i < LATENT; i++) {
        const double o = head->sum != 0 ? head->o[i] / (head->sum + sink) : 0.0;
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

/* Token t of request b. */
static void decode_token(const struct shape *s, int64_t b, int64_t t, struct memory *memory,
                         double *exact)
{
    const int64_t heads = s->dims[MLA_SPARSE_NUM_HEADS];
    const int64_t token = b * s->dims[MLA_SPARSE_Q_LEN] + t, length = length_of(s, b, token);
    const int64_t rows = (int64_t)s->args->num_pages * s->dims[MLA_SPARSE_PAGE_SIZE];
    const int32_t *list =
        s->args->indices + b * s->strides.indices_batch + t * s->strides.indices_token;
    for (int64_t h = 0; h < heads; h++)
        begin_head(s, token, h, &memory->heads[h]);
    for (int64_t i = 0; i < length;) {
        int64_t count = 0;
        for (; i < length && count < ROWS; i++)
            if (list[i] >= 0 && list[i] < rows)
                load_row(s, list[i], memory->rows[count++]);
        for (int64_t h = 0; h < heads && count > 0; h++)
            attend(s, (const double(*)[WIDTH])memory->rows, count, &memory->heads[h]);
    }
    for (int64_t h = 0; h < heads; h++)
        end_head(s, token, h, &memory->heads[h], exact);
}

enum gen_status gen__mla_sparse_exact(const gen_plan *plan, const gen_args *base,
                                      double *const *exact)
{
    const gen_mla_sparse_args *a = (const gen_mla_sparse_args *)base;
    const int32_t *dims = plan->dims;
    const struct shape s = {.args = a,
                            .dims = dims,
                            .strides = gen__mla_sparse_strides(dims, a),
                            .dtype = (enum gen_dtype)dims[MLA_SPARSE_DTYPE],
                            .rope = dims[MLA_SPARSE_ROPE_DIM]};
    struct memory *memory = malloc(sizeof *memory);
    if (!memory)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY,
                         "mla_sparse: no memory for the reference: %zu bytes", sizeof *memory);
    for (int64_t b = 0; b < dims[MLA_SPARSE_BATCH]; b++)
        for (int64_t t = 0; t < dims[MLA_SPARSE_Q_LEN]; t++)
            decode_token(&s, b, t, memory, exact[MLA_SPARSE_T_O]);
    free(memory);
    return GEN_OK;
}

enum gen_status gen__mla_sparse_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[MLA_SPARSE_NUM_TENSORS] = {NULL};
    return gen__mla_sparse_exact(plan, base, none);
}
