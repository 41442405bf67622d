/*
 * A stage of the backward pass of Kimi Delta Attention, gradients of raw gates, in plain C: api.h
 * has the maths. Nothing is rounded on the way.
 */
#include "families/kda_gate_bwd/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>

enum gen_status gen__kda_gate_bwd_reference(const gen_plan *plan, const gen_args *args);

/* A head and channel of a chunk. */
struct column {
    int64_t first, count; /* tokens */
    int64_t head, channel;
};

/* What A_log takes of the gradient of an activated gate, which becomes the raw one's. */
static double activation_back(const gen_kda_gate_bwd_args *a, double rate, double x, double *dy)
{
    const gen_kda_intra_args form = {.gate_form = a->gate_form, .lower_bound = a->lower_bound};
    double log_share = 0.0;
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS) {
        log_share = *dy * gen__kda_gate(&form, x, rate);
        *dy *= -rate * gen__kda_sigmoid(x);
    } else if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND) {
        *dy *= (double)a->lower_bound * rate * gen__kda_sigmoid(rate * x) *
               gen__kda_sigmoid(-rate * x);
        log_share = *dy * x;
    }
    return log_share;
}

static void store(const int32_t *dims, void *to, int64_t at, double x)
{
    if (dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32)
        ((float *)to)[at] = (float)x;
    else
        gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, to, at, x);
}

/* Its gradients; their sum is returned, and *log_sum gets A_log's share added. */
static double column_back(const int32_t *dims, const gen_kda_gate_bwd_args *a,
                          const struct column *c, double *log_sum)
{
    const bool given = a->gate_form == GEN_KDA_GATE_GIVEN;
    const int64_t width = gen__kda_v_width(dims), at = c->head * dims[KDA_HEAD_DIM] + c->channel;
    const double rate = a->A_log ? exp((double)a->A_log[c->head]) : 1.0;
    double later = 0.0, sum = 0.0;
    for (int64_t token = c->first + c->count - 1; token >= c->first; token--) {
        double x = 0.0, dy = (double)a->d_gk[token * width + at];
        if (a->suffix_sum)
            dy = later += dy;
        if (!given)
            x = gen__kda_load(dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
                              dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->g,
                              token * (a->g_stride ? a->g_stride : width) + at) +
                (a->dt_bias ? (double)a->dt_bias[at] : 0.0);
        *log_sum += activation_back(a, rate, x, &dy);
        sum += dy;
        store(dims, a->d_g, token * (a->d_g_stride ? a->d_g_stride : width) + at, dy);
    }
    return sum;
}

/* A chunk of a head: `sums` gets channels' sums and A_log's added, and `partials`, where there is
 * room for them, the chunk's own. */
static void head_back(const int32_t *dims, const gen_kda_gate_bwd_args *a, struct column c,
                      double *sums, float *partials)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    double log_sum = 0.0;
    for (c.channel = 0; c.channel < d; c.channel++) {
        const double sum = column_back(dims, a, &c, &log_sum);
        sums[c.head * (d + 1) + c.channel] += sum;
        if (partials)
            partials[c.channel] = (float)sum;
    }
    sums[c.head * (d + 1) + d] += log_sum;
    if (partials)
        partials[d] = (float)log_sum;
}

static void sequence_back(const int32_t *dims, const gen_kda_gate_bwd_args *a, int64_t n,
                          double *sums)
{
    const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
    const int64_t heads = dims[KDA_V_HEADS], width = dims[KDA_HEAD_DIM] + 4;
    for (int64_t row = 0; row < s.length; row += KDA_CHUNK) {
        const int64_t left = s.length - row, slot = s.slot + row / KDA_CHUNK;
        for (int64_t head = 0; head < heads; head++) {
            const struct column c = {
                .first = s.first + row, .count = left < KDA_CHUNK ? left : KDA_CHUNK, .head = head};
            head_back(dims, a, c, sums,
                      a->d_A_log || a->d_dt_bias ? a->partials + (slot * heads + head) * width
                                                 : NULL);
        }
    }
}

/* As the kernels leave them where no chunk has a slot, and what they count in. */
static void clear_partials(const int32_t *dims, const gen_kda_gate_bwd_args *a)
{
    const int64_t slots = gen__kda_slots(dims), heads = dims[KDA_V_HEADS];
    float *const words = a->partials + slots * heads * (dims[KDA_HEAD_DIM] + 4);
    memset(a->partials, 0, (size_t)(words - a->partials) * sizeof *words);
    for (int64_t head = 0; slots && head < heads; head++)
        words[4 * head] = words[4 * head + 1] = 0.0f;
}

enum gen_status gen__kda_gate_bwd_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_gate_bwd_args *a = (const gen_kda_gate_bwd_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    double *sums = calloc((size_t)(heads * (d + 1)), sizeof *sums);
    if (!sums)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_gate_bwd: no %zu bytes for sums",
                         (size_t)(heads * (d + 1)) * sizeof *sums);
    if (a->d_A_log || a->d_dt_bias)
        clear_partials(dims, a);
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++)
        sequence_back(dims, a, n, sums);
    for (int64_t head = 0; head < heads; head++) {
        if (a->d_A_log)
            a->d_A_log[head] = (float)sums[head * (d + 1) + d];
        for (int64_t channel = 0; a->d_dt_bias && channel < d; channel++)
            a->d_dt_bias[head * d + channel] = (float)sums[head * (d + 1) + channel];
    }
    free(sums);
    return GEN_OK;
}
