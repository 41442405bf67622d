/*
 * A stage of the backward pass of Kimi Delta Attention, what the scores' gradients make of a
 * chunk's inputs, in plain C: api.h has the maths. Nothing is rounded on the way.
 */
#include "families/kda_bwd_intra/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>

enum gen_status gen__kda_bwd_intra_reference(const gen_plan *plan, const gen_args *args);

typedef double matrix[KDA_CHUNK][KDA_MAX_HEAD_DIM];

struct chunk {
    const gen_kda_bwd_intra_args *a;
    matrix q, k, gk;
    double beta[KDA_CHUNK];
};

static void load_chunk(const int32_t *dims, const struct gen__kda_place *at, struct chunk *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t i = 0; i < at->count; i++) {
        const int64_t token = at->first + i;
        gen__kda_load_row(dims, c->a->q, 0, token, at->qk_head, true, d, c->q[i]);
        gen__kda_load_row(dims, c->a->k, 0, token, at->qk_head, true, d, c->k[i]);
        gen__kda_load_gk(dims, c->a->gk, token, at->head, c->gk[i]);
        c->beta[i] = gen__kda_load_beta(dims, c->a->beta, 0, token, at->head);
    }
}

/* A channel of row i; returns its share of beta's gradient. */
static double one_channel(const struct chunk *c, const struct gen__kda_place *at, int64_t heads,
                          int64_t i, int64_t d, int64_t channel)
{
    const gen_kda_bwd_intra_args *a = c->a;
    const int64_t row = (at->first + i) * heads + at->head, to = row * d + channel;
    double d_q = 0.0, along = 0.0, d_column = 0.0;
    for (int64_t j = 0; j <= i; j++) {
        const double key = c->k[j][channel] * exp2(c->gk[i][channel] - c->gk[j][channel]);
        d_q += (double)a->d_a_qk[row * KDA_CHUNK + j] * key;
        along += j < i ? (double)a->d_a_kk[row * KDA_CHUNK + j] * key : 0.0;
    }
    for (int64_t j = i; j < at->count; j++) {
        const int64_t from = ((at->first + j) * heads + at->head) * KDA_CHUNK + i;
        const double decay = exp2(c->gk[j][channel] - c->gk[i][channel]);
        d_column += (double)a->d_a_qk[from] * c->q[j][channel] * decay;
        if (j > i)
            d_column += (double)a->d_a_kk[from] * c->beta[j] * c->k[j][channel] * decay;
    }
    const double d_row = c->beta[i] * along;
    a->d_q[to] = (float)((double)a->d_q_states[to] + d_q);
    a->d_k[to] = (float)((double)a->d_k_states[to] + d_row + d_column);
    a->d_g[to] = (float)((double)a->d_g_states[to] + c->q[i][channel] * d_q +
                         c->k[i][channel] * (d_row - d_column));
    return c->k[i][channel] * along;
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    struct chunk *c = context;
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    load_chunk(dims, at, c);
    for (int64_t i = 0; i < at->count; i++) {
        const int64_t row = (at->first + i) * heads + at->head;
        double d_beta = (double)c->a->d_beta_states[row];
        for (int64_t channel = 0; channel < d; channel++)
            d_beta += one_channel(c, at, heads, i, d, channel);
        c->a->d_beta[row] = (float)d_beta;
    }
}

enum gen_status gen__kda_bwd_intra_reference(const gen_plan *plan, const gen_args *base)
{
    struct chunk *c = malloc(sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd_intra: no %zu bytes for a chunk",
                         sizeof *c);
    c->a = (const gen_kda_bwd_intra_args *)base;
    gen__kda_each_chunk(plan->dims, c->a->cu_seqlens, one_chunk, c);
    free(c);
    return GEN_OK;
}
