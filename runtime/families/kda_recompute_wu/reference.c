/*
 * A stage of Kimi Delta Attention prefill, w and u from the inverse, in plain C:
 * kda_recompute_wu/args.h has the maths.
 */
#include "families/kda/reference_stage.h"

#include "families/kda_recompute_wu/api.h"

#include <stdlib.h>

enum gen_status gen__kda_recompute_wu_reference(const gen_plan *plan, const gen_args *args);

struct chunk {
    const gen_kda_recompute_wu_args *a;
    double k[KDA_CHUNK][KDA_MAX_HEAD_DIM], v[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double gk[KDA_CHUNK][KDA_MAX_HEAD_DIM], beta[KDA_CHUNK];
};

static void load(const int32_t *dims, const struct gen__kda_place *at, struct chunk *c)
{
    const gen_kda_recompute_wu_args *a = c->a;
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t i = 0; i < at->count; i++) {
        const int64_t token = at->first + i;
        gen__kda_load_row(dims, a->k, a->k_stride, token, at->qk_head, true, d, c->k[i]);
        gen__kda_load_row(dims, a->v, a->v_stride, token, at->head, false, d, c->v[i]);
        gen__kda_load_gk(dims, a->gk, token, at->head, c->gk[i]);
        c->beta[i] = gen__kda_load_beta(dims, a->beta, a->beta_stride, token, at->head);
    }
}

static void one_row(const int32_t *dims, const struct gen__kda_place *at, const struct chunk *c,
                    int64_t i)
{
    const gen_kda_recompute_wu_args *a = c->a;
    const int64_t d = dims[KDA_HEAD_DIM], token = at->first + i;
    double x[KDA_CHUNK], w[KDA_MAX_HEAD_DIM] = {0}, u[KDA_MAX_HEAD_DIM] = {0};
    double kg[KDA_MAX_HEAD_DIM], qg[KDA_MAX_HEAD_DIM];
    gen__kda_load_row(dims, a->a_kk, 0, token, at->head, false, KDA_CHUNK, x);
    for (int64_t j = 0; j <= i; j++)
        for (int64_t n = 0; n < d; n++) {
            w[n] += x[j] * c->beta[j] * c->k[j][n] * exp2(c->gk[j][n]);
            u[n] += x[j] * c->beta[j] * c->v[j][n];
        }
    if (a->qg)
        gen__kda_load_row(dims, a->q, a->q_stride, token, at->qk_head, true, d, qg);
    for (int64_t n = 0; n < d; n++) {
        kg[n] = c->k[i][n] * exp2(c->gk[at->count - 1][n] - c->gk[i][n]);
        if (a->qg)
            qg[n] *= exp2(c->gk[i][n]);
    }
    gen__kda_store_row(dims, a->w, token, at->head, d, w);
    gen__kda_store_row(dims, a->u, token, at->head, d, u);
    if (a->kg)
        gen__kda_store_row(dims, a->kg, token, at->head, d, kg);
    if (a->qg)
        gen__kda_store_row(dims, a->qg, token, at->head, d, qg);
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    struct chunk *c = context;
    load(dims, at, c);
    for (int64_t i = 0; i < at->count; i++)
        one_row(dims, at, c, i);
}

enum gen_status gen__kda_recompute_wu_reference(const gen_plan *plan, const gen_args *base)
{
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_recompute_wu: no %zu bytes for a chunk",
                         sizeof *c);
    c->a = (const gen_kda_recompute_wu_args *)base;
    gen__kda_each_chunk(plan->dims, c->a->cu_seqlens, one_chunk, c);
    free(c);
    return GEN_OK;
}
