/*
 * A stage of Kimi Delta Attention prefill, inside a chunk, in plain C:
 * kda_chunk_intra/args.h has the maths. w and u come by forward substitution, as does
 * the inverse, column by column:
 *
 *     (I + A) w = beta k 2^gk,    (I + A) u = beta v,    (I + A) A_kk = I
 */
#include "families/kda/reference_stage.h"

#include <stdlib.h>
#include <string.h>

struct chunk {
    const gen_kda_chunk_intra_args *a;
    double *const *exact; /* outputs before they are rounded, NULL where not wanted */
    double q[KDA_CHUNK][KDA_MAX_HEAD_DIM], k[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double v[KDA_CHUNK][KDA_MAX_HEAD_DIM], gk[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double w[KDA_CHUNK][KDA_MAX_HEAD_DIM], u[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double a_qk[KDA_CHUNK][KDA_CHUNK], a_kk[KDA_CHUNK][KDA_CHUNK], beta[KDA_CHUNK];
};

static void load(const int32_t *dims, const struct gen__kda_place *at, struct chunk *c)
{
    const gen_kda_chunk_intra_args *a = c->a;
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t i = 0; i < at->count; i++) {
        const int64_t token = at->first + i;
        gen__kda_load_row(dims, a->q, a->q_stride, token, at->qk_head, true, d, c->q[i]);
        gen__kda_load_row(dims, a->k, a->k_stride, token, at->qk_head, true, d, c->k[i]);
        if (a->v)
            gen__kda_load_row(dims, a->v, a->v_stride, token, at->head, false, d, c->v[i]);
        gen__kda_load_gk(dims, a->gk, token, at->head, c->gk[i]);
        c->beta[i] = gen__kda_load_beta(dims, a->beta, a->beta_stride, token, at->head);
    }
}

/* sum of x_i k_j 2^(gk_i - gk_j) */
static double score(const struct chunk *c, const double *x, int64_t i, int64_t j, int64_t d)
{
    double sum = 0.0;
    for (int64_t n = 0; n < d; n++)
        sum += x[n] * c->k[j][n] * exp2(c->gk[i][n] - c->gk[j][n]);
    return sum;
}

static void work_out(struct chunk *c, int64_t count, int64_t d)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t n = 0; n < d; n++) {
            c->w[i][n] = c->beta[i] * c->k[i][n] * exp2(c->gk[i][n]);
            c->u[i][n] = c->beta[i] * c->v[i][n];
        }
        for (int64_t j = 0; j < KDA_CHUNK; j++)
            c->a_kk[i][j] = i == j;
        for (int64_t j = 0; j < i; j++) {
            const double l = c->beta[i] * score(c, c->k[i], i, j, d);
            for (int64_t n = 0; n < d; n++) {
                c->w[i][n] -= l * c->w[j][n];
                c->u[i][n] -= l * c->u[j][n];
            }
            for (int64_t n = 0; n <= j; n++)
                c->a_kk[i][n] -= l * c->a_kk[j][n];
        }
        for (int64_t j = 0; j < KDA_CHUNK; j++)
            c->a_qk[i][j] = j <= i ? (double)c->a->scale * score(c, c->q[i], i, j, d) : 0.0;
    }
}

static void store(const int32_t *dims, const struct chunk *c,
                  enum gen__kda_chunk_intra_tensor tensor, void *to, int64_t token, int64_t head,
                  int64_t width, const double *row)
{
    double *const exact = c->exact[tensor];
    gen__kda_store_row(dims, to, token, head, width, row);
    if (exact)
        memcpy(exact + (token * dims[KDA_V_HEADS] + head) * width, row,
               (size_t)width * sizeof *row);
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    struct chunk *c = context;
    const gen_kda_chunk_intra_args *a = c->a;
    const int64_t d = dims[KDA_HEAD_DIM], last = at->count - 1;
    load(dims, at, c);
    work_out(c, at->count, d);
    for (int64_t i = 0; i < at->count; i++) {
        double kg[KDA_MAX_HEAD_DIM], qg[KDA_MAX_HEAD_DIM];
        const int64_t token = at->first + i;
        for (int64_t n = 0; n < d; n++) {
            kg[n] = c->k[i][n] * exp2(c->gk[last][n] - c->gk[i][n]);
            qg[n] = c->q[i][n] * exp2(c->gk[i][n]);
        }
        store(dims, c, KDA_CHUNK_INTRA_A_QK, a->a_qk, token, at->head, KDA_CHUNK, c->a_qk[i]);
        store(dims, c, KDA_CHUNK_INTRA_A_KK, a->a_kk, token, at->head, KDA_CHUNK, c->a_kk[i]);
        if (a->w) {
            store(dims, c, KDA_CHUNK_INTRA_W, a->w, token, at->head, d, c->w[i]);
            store(dims, c, KDA_CHUNK_INTRA_U, a->u, token, at->head, d, c->u[i]);
            store(dims, c, KDA_CHUNK_INTRA_KG, a->kg, token, at->head, d, kg);
        }
        if (a->qg)
            store(dims, c, KDA_CHUNK_INTRA_QG, a->qg, token, at->head, d, qg);
    }
}

enum gen_status gen__kda_chunk_intra_exact(const gen_plan *plan, const gen_args *base,
                                           double *const *exact)
{
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_chunk_intra: no %zu bytes for a chunk",
                         sizeof *c);
    c->a = (const gen_kda_chunk_intra_args *)base;
    c->exact = exact;
    gen__kda_each_chunk(plan->dims, c->a->cu_seqlens, one_chunk, c);
    free(c);
    return GEN_OK;
}

enum gen_status gen__kda_chunk_intra_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[KDA_CHUNK_INTRA_NUM_TENSORS] = {NULL};
    return gen__kda_chunk_intra_exact(plan, base, none);
}
