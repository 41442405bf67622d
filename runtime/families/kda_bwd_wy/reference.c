/*
 * A stage of the backward pass of Kimi Delta Attention, gradients of a chunk's inputs from those of
 * its states, in plain C: api.h has the maths. Nothing is rounded on the way.
 */
#include "families/kda_bwd_wy/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>
#include <string.h>

enum gen_status gen__kda_bwd_wy_reference(const gen_plan *plan, const gen_args *args);

typedef double matrix[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM];

struct chunk {
    const gen_kda_bwd_wy_args *a;
    int64_t num_chunks, d;
    matrix h, d_h; /* [K][V] */
    double d_r[KDA_CHUNK][KDA_MAX_HEAD_DIM], v_new[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double last[KDA_MAX_HEAD_DIM]; /* what the last row of d_g has besides */
};

static void load_state(const int32_t *dims, const struct chunk *c, const struct gen__kda_place *at,
                       const void *states, matrix to)
{
    const bool vk = c->a->state_layout == GEN_KDA_STATE_VK;
    const int64_t first = (at->chunk * dims[KDA_V_HEADS] + at->head) * c->d * c->d;
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            to[k][v] = at->chunk < c->num_chunks
                           ? gen__kda_load(false, dims[KDA_DTYPE] == GEN_DTYPE_FP16, states,
                                           first + (vk ? v * c->d + k : k * c->d + v))
                           : 0.0;
}

/* d_r, and v_new. */
static void load_values(const int32_t *dims, struct chunk *c, const struct gen__kda_place *at)
{
    double x[KDA_MAX_HEAD_DIM], inverse[KDA_CHUNK];
    memset(c->d_r, 0, sizeof c->d_r);
    for (int64_t i = 0; i < at->count; i++) {
        const int64_t token = at->first + i;
        gen__kda_load_row(dims, c->a->v_new, 0, token, at->head, false, c->d, c->v_new[i]);
        gen__kda_load_row(dims, c->a->d_v_new, 0, token, at->head, false, c->d, x);
        gen__kda_load_row(dims, c->a->a_kk, 0, token, at->head, false, KDA_CHUNK, inverse);
        for (int64_t j = 0; j <= i; j++)
            for (int64_t v = 0; v < c->d; v++)
                c->d_r[j][v] += inverse[j] * x[v];
    }
}

/* d_v, d_a_kk, and the first part of d_beta. */
static void value_row(const int32_t *dims, const struct chunk *c, const struct gen__kda_place *at,
                      int64_t i)
{
    const int64_t token = at->first + i, row = token * dims[KDA_V_HEADS] + at->head;
    const double beta = gen__kda_load_beta(dims, c->a->beta, 0, token, at->head);
    double v[KDA_MAX_HEAD_DIM], d_v[KDA_MAX_HEAD_DIM], d_beta = 0.0;
    gen__kda_load_row(dims, c->a->v, 0, token, at->head, false, c->d, v);
    for (int64_t n = 0; n < c->d; n++) {
        d_v[n] = beta * c->d_r[i][n];
        d_beta += c->d_r[i][n] * v[n];
    }
    gen__kda_store_row(dims, c->a->d_v, token, at->head, c->d, d_v);
    c->a->d_beta[row] = (float)d_beta;
    for (int64_t j = 0; j < KDA_CHUNK; j++) {
        double sum = 0.0;
        for (int64_t n = 0; j < i && n < c->d; n++)
            sum -= c->d_r[i][n] * c->v_new[j][n];
        c->a->d_a_kk[row * KDA_CHUNK + j] = (float)sum;
    }
}

/* d_q, d_k, d_g, and the rest of d_beta. Rows in ascending order: the last one has sums of all. */
static void key_row(const int32_t *dims, struct chunk *c, const struct gen__kda_place *at,
                    int64_t i, const double *last_gk)
{
    const gen_kda_bwd_wy_args *a = c->a;
    const int64_t token = at->first + i, row = token * dims[KDA_V_HEADS] + at->head;
    const double beta = gen__kda_load_beta(dims, a->beta, 0, token, at->head);
    double q[KDA_MAX_HEAD_DIM], k[KDA_MAX_HEAD_DIM], gk[KDA_MAX_HEAD_DIM], d_o[KDA_MAX_HEAD_DIM];
    double d_beta = (double)a->d_beta[row];
    gen__kda_load_row(dims, a->q, 0, token, at->qk_head, true, c->d, q);
    gen__kda_load_row(dims, a->k, 0, token, at->qk_head, true, c->d, k);
    gen__kda_load_row(dims, a->d_o, 0, token, at->head, false, c->d, d_o);
    gen__kda_load_gk(dims, a->gk, token, at->head, gk);
    for (int64_t n = 0; n < c->d; n++) {
        double d_q = 0.0, along = 0.0, d_kg = 0.0, besides = 0.0;
        for (int64_t v = 0; v < c->d; v++) {
            d_q += d_o[v] * c->h[n][v];
            along += c->d_r[i][v] * c->h[n][v];
            d_kg += c->v_new[i][v] * c->d_h[n][v];
            besides += c->h[n][v] * c->d_h[n][v];
        }
        d_q *= (double)a->scale * exp2(gk[n]);
        along *= exp2(gk[n]);
        d_kg *= exp2(last_gk[n] - gk[n]);
        d_beta -= along * k[n];
        c->last[n] += k[n] * d_kg;
        a->d_q[row * c->d + n] = (float)d_q;
        a->d_k[row * c->d + n] = (float)(d_kg - beta * along);
        a->d_g[row * c->d + n] =
            (float)(q[n] * d_q - k[n] * (beta * along + d_kg) +
                    (i == at->count - 1 ? c->last[n] + exp2(gk[n]) * besides : 0.0));
    }
    a->d_beta[row] = (float)d_beta;
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    struct chunk *c = context;
    double last_gk[KDA_MAX_HEAD_DIM];
    gen__kda_load_gk(dims, c->a->gk, at->first + at->count - 1, at->head, last_gk);
    load_state(dims, c, at, c->a->h, c->h);
    load_state(dims, c, at, c->a->d_h, c->d_h);
    load_values(dims, c, at);
    memset(c->last, 0, sizeof c->last);
    for (int64_t i = 0; i < at->count; i++) {
        value_row(dims, c, at, i);
        key_row(dims, c, at, i, last_gk);
    }
}

enum gen_status gen__kda_bwd_wy_reference(const gen_plan *plan, const gen_args *base)
{
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd_wy: no %zu bytes for a chunk",
                         sizeof *c);
    c->a = (const gen_kda_bwd_wy_args *)base;
    c->d = plan->dims[KDA_HEAD_DIM];
    c->num_chunks = c->a->num_chunks ? c->a->num_chunks : gen__kda_slots(plan->dims);
    gen__kda_each_chunk(plan->dims, c->a->cu_seqlens, one_chunk, c);
    free(c);
    return GEN_OK;
}
