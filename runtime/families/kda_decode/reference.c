/*
 * Kimi Delta Attention decode in plain C: what the kernels are compared with,
 * what the maths is, and the backend where there is no GPU.
 *
 * For every row and value head hv, with qh = hv / (num_v_heads / num_qk_heads),
 * and each of the row's tokens in turn:
 *
 *     S[k,v] = exp(g[k]) * S[k,v]
 *     e[v]   = v[v] - sum over k of k[k] * S[k,v]
 *     S[k,v] = S[k,v] + beta * k[k] * e[v]
 *     o[v]   = scale * sum over k of q[k] * S[k,v]
 *
 * Everything between load and store is double, from the first token to the last:
 * a state is rounded where it goes to the pool, an output once.
 */
#include "families/kda/decode.h"
#include "reference/half.h"
#include "reference/state.h"

#include <math.h>
#include <string.h>

#define MAX_HEAD_DIM 128
#define MAX_RECORDS 32
#define NORM_EPSILON 1e-6
#define SOFTPLUS_THRESHOLD 20

/* The shape of one call. */
struct shape {
    int64_t batch, num_tokens, num_qk_heads, num_v_heads, head_dim;
    struct gen__kda_decode_strides stride;
    enum gen_dtype dtype, gate_dtype, beta_dtype;
    int32_t state_dtype, ring_dtype;
    int64_t ring_len, ring_size;
    bool vk;
};

/* A row's tokens and where its first state is. */
struct row {
    int64_t index, first, count, slot;
    bool padding;
};

/* One token's inputs for one head, activated; q is scaled. */
struct token {
    double q[MAX_HEAD_DIM], k[MAX_HEAD_DIM], decay[MAX_HEAD_DIM], v[MAX_HEAD_DIM];
    double beta;
};

static struct shape shape_of(const gen_plan *plan, const gen_kda_decode_args *args)
{
    const int32_t *dims = plan->dims;
    return (struct shape){
        .batch = dims[KDA_DECODE_BATCH],
        .num_tokens = dims[KDA_DECODE_TOKENS],
        .num_qk_heads = dims[KDA_DECODE_QK_HEADS],
        .num_v_heads = dims[KDA_DECODE_V_HEADS],
        .head_dim = dims[KDA_DECODE_HEAD_DIM],
        .stride = gen__kda_decode_strides(dims, args),
        .dtype = (enum gen_dtype)dims[KDA_DECODE_DTYPE],
        .gate_dtype = (enum gen_dtype)dims[KDA_DECODE_GATE_DTYPE],
        .beta_dtype = (enum gen_dtype)dims[KDA_DECODE_BETA_DTYPE],
        .state_dtype = dims[KDA_DECODE_STATE_DTYPE],
        .ring_dtype = dims[KDA_DECODE_RING_DTYPE],
        .ring_len = dims[KDA_DECODE_RING_LEN],
        .ring_size =
            gen__kda_decode_ring_size(dims[KDA_DECODE_RING_LEN], dims[KDA_DECODE_RING_SIZE]),
        .vk = dims[KDA_DECODE_LAYOUT] == GEN_KDA_STATE_VK,
    };
}

static double load(enum gen_dtype dtype, const void *tensor, int64_t i)
{
    if (dtype == GEN_DTYPE_FP32)
        return (double)((const float *)tensor)[i];
    const uint16_t bits = ((const uint16_t *)tensor)[i];
    return dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(bits) : gen__bf16_to_double(bits);
}

static void load_row(enum gen_dtype dtype, const void *tensor, int64_t first, int64_t count,
                     double *x)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = load(dtype, tensor, first + i);
}

/* ---- rows -------------------------------------------------------------- */

static bool in_pool(const gen_kda_decode_args *args, int64_t slot)
{
    return slot >= 0 && slot < args->num_slots && slot != args->null_slot - INT64_C(1);
}

static struct row row_of(const struct shape *s, const gen_kda_decode_args *args, int64_t b)
{
    struct row row = {.index = b, .first = b * s->num_tokens, .count = s->num_tokens, .slot = b};
    if (args->slots) {
        const int64_t column = args->accepted ? (int64_t)args->accepted[b] - 1 : 0;
        row.slot = -1;
        if (column >= 0 && column < s->stride.slots)
            row.slot = args->slots[b * s->stride.slots + column];
    }
    row.padding = !in_pool(args, row.slot);
    if (args->cu_seqlens) {
        const int64_t first = args->cu_seqlens[b], end = args->cu_seqlens[b + 1];
        const bool legal =
            first >= 0 && first <= end && end <= args->total_tokens && end - first <= s->num_tokens;
        row.first = first;
        row.count = legal ? end - first : 0;
    }
    return row;
}

/* The slot that the state behind a token goes to; -1: none. */
static int64_t slot_after(const struct shape *s, const gen_kda_decode_args *args,
                          const struct row *row, int64_t t)
{
    const bool each = args->write == GEN_KDA_DECODE_WRITE_EACH;
    int64_t slot = row->slot;
    if (!each && (args->write == GEN_KDA_DECODE_WRITE_NONE || t != row->count - 1))
        return -1;
    if (args->slots_out)
        slot = args->slots_out[row->index * s->stride.slots_out + (each ? t : 0)];
    else if (each && args->slots)
        slot = args->slots[row->index * s->stride.slots + t];
    return in_pool(args, slot) ? slot : -1;
}

static void zero_row(const struct shape *s, const gen_kda_decode_args *args, const struct row *row,
                     double *exact)
{
    for (int64_t t = 0; t < row->count; t++) {
        const int64_t first = (row->first + t) * s->stride.o;
        for (int64_t i = first; i < first + s->num_v_heads * s->head_dim; i++) {
            ((uint16_t *)args->o)[i] = 0;
            if (exact)
                exact[i] = 0.0;
        }
    }
}

/* ---- activations ------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The logarithm of the decay. */
static double gate_of(const gen_kda_decode_args *args, double gate, double bias, double a_log)
{
    const double x = gate + bias;
    if (args->gate_form == GEN_KDA_GATE_GIVEN)
        return gate;
    if (args->gate_form == GEN_KDA_GATE_LOWER_BOUND)
        return (double)args->lower_bound * sigmoid(exp(a_log) * x);
    return -exp(a_log) * (x > SOFTPLUS_THRESHOLD ? x : log1p(exp(x)));
}

static double beta_of(const gen_kda_decode_args *args, double x)
{
    if (args->beta_form == GEN_KDA_BETA_GIVEN)
        return x;
    return (args->beta_form == GEN_KDA_BETA_TWO_SIGMOID ? 2 : 1) * sigmoid(x);
}

static void scale_row(double *x, int64_t count, double factor, bool normalise)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += x[i] * x[i];
    if (normalise)
        factor /= sqrt(squares + NORM_EPSILON);
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

static void load_token(const struct shape *s, const gen_kda_decode_args *args, int64_t token,
                       int64_t hv, struct token *in)
{
    const int64_t d = s->head_dim, qh = hv / (s->num_v_heads / s->num_qk_heads);
    const double a_log = args->A_log ? (double)args->A_log[hv] : 0;
    load_row(s->dtype, args->q, token * s->stride.q + qh * d, d, in->q);
    load_row(s->dtype, args->k, token * s->stride.k + qh * d, d, in->k);
    load_row(s->dtype, args->v, token * s->stride.v + hv * d, d, in->v);
    for (int64_t i = 0; i < d; i++) {
        const int64_t at = gen__kda_decode_scalar(args->base.family) ? hv : hv * d + i;
        const double gate = load(s->gate_dtype, args->g, token * s->stride.gate + at);
        const double bias = args->dt_bias ? (double)args->dt_bias[at] : 0;
        in->decay[i] = exp(gate_of(args, gate, bias, a_log));
    }
    scale_row(in->q, d, (double)args->scale, args->qk_l2norm);
    scale_row(in->k, d, 1, args->qk_l2norm);
    in->beta = beta_of(args, load(s->beta_dtype, args->beta, token * s->stride.beta + hv));
}

/* ---- the recurrence ---------------------------------------------------- */

/* One column of the state: all k of one v. What is added to it is k times `correction`. */
static double step(int64_t head_dim, const struct token *in, int64_t v, double *column,
                   double *corrected)
{
    double predicted = 0, o = 0;
    for (int64_t k = 0; k < head_dim; k++) {
        column[k] *= in->decay[k];
        predicted += in->k[k] * column[k];
    }
    const double correction = in->beta * (in->v[v] - predicted);
    *corrected = correction;
    for (int64_t k = 0; k < head_dim; k++) {
        column[k] += in->k[k] * correction;
        o += in->q[k] * column[k];
    }
    return o;
}

static uint16_t round_to(enum gen_dtype dtype, double x)
{
    return dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

static void put_output(const struct shape *s, const gen_kda_decode_args *args, int64_t at, double o,
                       double *exact)
{
    ((uint16_t *)args->o)[at] = round_to(s->dtype, o);
    if (exact)
        exact[at] = o;
}

static void decode_head(const struct shape *s, const gen_kda_decode_args *args,
                        const struct row *row, int64_t hv, double *exact)
{
    const int64_t d = s->head_dim, stride = s->stride.state;
    const int64_t next_k = s->vk ? 1 : d, next_v = s->vk ? d : 1;
    struct token in[GEN_KDA_DECODE_MAX_TOKENS];
    for (int64_t t = 0; t < row->count; t++)
        load_token(s, args, row->first + t, hv, &in[t]);
    for (int64_t v = 0; v < d; v++) {
        double column[MAX_HEAD_DIM];
        const int64_t from = row->slot * stride + hv * d * d + v * next_v;
        for (int64_t k = 0; k < d; k++)
            column[k] = gen__state_get(s->state_dtype, args->state, from + k * next_k);
        for (int64_t t = 0; t < row->count; t++) {
            double u;
            const double o = step(d, &in[t], v, column, &u);
            const int64_t slot = slot_after(s, args, row, t);
            put_output(s, args, (row->first + t) * s->stride.o + hv * d + v, o, exact);
            const int64_t to = slot * stride + hv * d * d + v * next_v;
            for (int64_t k = 0; k < d && slot >= 0; k++)
                gen__state_put(s->state_dtype, args->state, to + k * next_k, column[k]);
        }
    }
}

/* ---- with a ring --------------------------------------------------------- */

/* A row's records, in their order, and where its next one goes. */
struct ring {
    int64_t records, base, size;
    bool fold, legal;
};

static struct ring ring_of(const struct shape *s, const gen_kda_decode_args *args,
                           const struct row *row)
{
    struct ring ring = {.size = s->ring_size, .legal = false};
    if (row->padding)
        return ring;
    ring.records = args->ring_fill[row->slot];
    ring.base = args->ring_base[row->slot];
    ring.legal = ring.records >= 0 && ring.records <= ring.size && ring.base >= 0 &&
                 ring.base < ring.size && (s->num_tokens == 0 || row->count > 0);
    ring.fold = ring.records >= s->ring_len - 1 || s->num_tokens == 0;
    if (s->num_tokens > 1) {
        ring.legal = ring.legal && ring.records <= ring.size - s->num_tokens;
        ring.fold = ring.records + 2 * s->num_tokens > ring.size;
    }
    ring.fold = ring.fold || (args->flush && args->flush[row->index]);
    return ring;
}

/* The first element of a head's record j in a tensor of the ring. */
static int64_t record_at(const struct shape *s, const struct ring *ring, int64_t slot_stride,
                         int64_t slot, int64_t head, int64_t j)
{
    return slot * slot_stride + (head * ring->size + (ring->base + j) % ring->size) * s->head_dim;
}

/* Of gates, of which a record has `gates`. */
static int64_t gates_at(const struct shape *s, const struct ring *ring, int64_t slot, int64_t head,
                        int64_t j, int64_t gates)
{
    return slot * s->stride.ring_g + (head * ring->size + (ring->base + j) % ring->size) * gates;
}

static void load_record(const struct shape *s, const gen_kda_decode_args *args,
                        const struct row *row, const struct ring *ring, int64_t hv, int64_t j,
                        struct token *record)
{
    const int64_t d = s->head_dim, qh = hv / (s->num_v_heads / s->num_qk_heads);
    const double a_log = args->A_log ? (double)args->A_log[hv] : 0;
    load_row(s->dtype, args->ring_k, record_at(s, ring, s->stride.ring_k, row->slot, qh, j), d,
             record->k);
    const bool scalar = gen__kda_decode_scalar(args->base.family);
    const int64_t gates = gates_at(s, ring, row->slot, hv, j, scalar ? 1 : d);
    for (int64_t i = 0; i < d; i++) {
        const double bias = args->dt_bias ? (double)args->dt_bias[scalar ? hv : hv * d + i] : 0;
        const double gate = load(s->gate_dtype, args->ring_g, gates + (scalar ? 0 : i));
        record->decay[i] = exp(gate_of(args, gate, bias, a_log));
    }
    const int64_t u = record_at(s, ring, s->stride.ring_u, row->slot, hv, j);
    for (int64_t v = 0; v < d; v++)
        record->v[v] = gen__state_get(s->ring_dtype, args->ring_u, u + v);
}

/* The record of a row's token but for u: record j of the ring. */
static void store_record(const struct shape *s, const gen_kda_decode_args *args,
                         const struct row *row, const struct ring *ring, int64_t hv, int64_t token,
                         const struct token *in)
{
    const int64_t j = ring->records + token;
    const int64_t d = s->head_dim, qh = hv / (s->num_v_heads / s->num_qk_heads);
    const int64_t k = record_at(s, ring, s->stride.ring_k, row->slot, qh, j);
    const int64_t count = gen__kda_decode_scalar(args->base.family) ? 1 : d;
    const int64_t g = gates_at(s, ring, row->slot, hv, j, count);
    const int64_t from = (row->first + token) * s->stride.gate + hv * count;
    const size_t bytes = s->gate_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    for (int64_t i = 0; i < d; i++)
        ((uint16_t *)args->ring_k)[k + i] = round_to(s->dtype, in->k[i]);
    memcpy((char *)args->ring_g + (size_t)g * bytes, (const char *)args->g + (size_t)from * bytes,
           (size_t)count * bytes);
}

/* The record is what the step itself uses. */
static void round_key(const struct shape *s, struct token *in)
{
    for (int64_t i = 0; i < s->head_dim; i++) {
        const uint16_t k = round_to(s->dtype, in->k[i]);
        in->k[i] = s->dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(k) : gen__bf16_to_double(k);
    }
}

static void replay_head(const struct shape *s, const gen_kda_decode_args *args,
                        const struct row *row, const struct ring *ring, int64_t hv, double *exact)
{
    const int64_t d = s->head_dim;
    const int64_t next_k = s->vk ? 1 : d, next_v = s->vk ? d : 1;
    struct token in, record[MAX_RECORDS];
    for (int64_t j = 0; j < ring->records; j++)
        load_record(s, args, row, ring, hv, j, &record[j]);
    if (row->count) {
        load_token(s, args, row->first, hv, &in);
        round_key(s, &in);
    }
    for (int64_t v = 0; v < d; v++) {
        double column[MAX_HEAD_DIM], u = 0;
        const int64_t at = row->slot * s->stride.state + hv * d * d + v * next_v;
        for (int64_t k = 0; k < d; k++)
            column[k] = gen__state_get(s->state_dtype, args->state, at + k * next_k);
        for (int64_t j = 0; j < ring->records; j++)
            for (int64_t k = 0; k < d; k++)
                column[k] = record[j].decay[k] * column[k] + record[j].k[k] * record[j].v[v];
        if (row->count)
            put_output(s, args, row->first * s->stride.o + hv * d + v, step(d, &in, v, column, &u),
                       exact);
        for (int64_t k = 0; k < d && ring->fold; k++)
            gen__state_put(s->state_dtype, args->state, at + k * next_k, column[k]);
        if (!ring->fold)
            gen__state_put(s->ring_dtype, args->ring_u,
                           record_at(s, ring, s->stride.ring_u, row->slot, hv, ring->records) + v,
                           u);
    }
    if (!ring->fold)
        store_record(s, args, row, ring, hv, 0, &in);
}

/* Several tokens: each one's record goes to the ring, as it is used by those behind it, and what
 * was there before may be folded. */
static void verify_head(const struct shape *s, const gen_kda_decode_args *args,
                        const struct row *row, const struct ring *ring, int64_t hv, double *exact)
{
    const int64_t d = s->head_dim;
    const int64_t next_k = s->vk ? 1 : d, next_v = s->vk ? d : 1;
    struct token in[GEN_KDA_DECODE_MAX_TOKENS], record[MAX_RECORDS];
    for (int64_t j = 0; j < ring->records; j++)
        load_record(s, args, row, ring, hv, j, &record[j]);
    for (int64_t t = 0; t < row->count; t++) {
        load_token(s, args, row->first + t, hv, &in[t]);
        round_key(s, &in[t]);
    }
    for (int64_t v = 0; v < d; v++) {
        double column[MAX_HEAD_DIM], next[MAX_HEAD_DIM], u;
        const int64_t at = row->slot * s->stride.state + hv * d * d + v * next_v;
        for (int64_t k = 0; k < d; k++)
            column[k] = gen__state_get(s->state_dtype, args->state, at + k * next_k);
        for (int64_t j = 0; j < ring->records; j++)
            for (int64_t k = 0; k < d; k++)
                column[k] = record[j].decay[k] * column[k] + record[j].k[k] * record[j].v[v];
        for (int64_t k = 0; k < d && ring->fold; k++)
            gen__state_put(s->state_dtype, args->state, at + k * next_k, column[k]);
        for (int64_t t = 0; t < row->count; t++) {
            const int64_t to =
                record_at(s, ring, s->stride.ring_u, row->slot, hv, ring->records + t) + v;
            memcpy(next, column, sizeof next);
            put_output(s, args, (row->first + t) * s->stride.o + hv * d + v,
                       step(d, &in[t], v, next, &u), exact);
            gen__state_put(s->ring_dtype, args->ring_u, to, u);
            u = gen__state_get(s->ring_dtype, args->ring_u, to);
            for (int64_t k = 0; k < d; k++)
                column[k] = in[t].decay[k] * column[k] + in[t].k[k] * u;
        }
    }
    for (int64_t t = 0; t < row->count; t++)
        store_record(s, args, row, ring, hv, t, &in[t]);
}

static void replay_row(const struct shape *s, const gen_kda_decode_args *args,
                       const struct row *row, double *exact)
{
    const struct ring ring = ring_of(s, args, row);
    if (!ring.legal && args->zero_padding)
        zero_row(s, args, row, exact);
    for (int64_t hv = 0; hv < s->num_v_heads && ring.legal; hv++)
        if (s->num_tokens > 1)
            verify_head(s, args, row, &ring, hv, exact);
        else
            replay_head(s, args, row, &ring, hv, exact);
}

enum gen_status gen__kda_decode_exact(const gen_plan *plan, const gen_args *base,
                                      double *const *exact)
{
    const gen_kda_decode_args *args = (const gen_kda_decode_args *)base;
    const struct shape s = shape_of(plan, args);
    for (int64_t b = 0; b < s.batch; b++) {
        const struct row row = row_of(&s, args, b);
        if (s.ring_len) {
            replay_row(&s, args, &row, exact[KDA_DECODE_O]);
            continue;
        }
        if (row.padding && args->zero_padding)
            zero_row(&s, args, &row, exact[KDA_DECODE_O]);
        for (int64_t hv = 0; hv < s.num_v_heads && !row.padding; hv++)
            decode_head(&s, args, &row, hv, exact[KDA_DECODE_O]);
    }
    return GEN_OK;
}

enum gen_status gen__kda_decode_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[KDA_DECODE_NUM_TENSORS] = {NULL};
    return gen__kda_decode_exact(plan, base, none);
}
