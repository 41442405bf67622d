/*
 * Kimi Delta Attention inside a chunk, in plain C: kda_intra/args.h has the maths.
 * X is never formed: w and u come by forward substitution, row by row,
 *
 *     (I + A_kk) w = beta k exp(G),    (I + A_kk) u = beta v
 */
#include "families/kda/reference_inputs.h"
#include "families/kda/layout.h"

#include <stdlib.h>

/* One chunk of one head; rows beyond `count` are zeros. */
struct chunk {
    struct gen__kda_token token[KDA_CHUNK];
    double sum[KDA_CHUNK][KDA_MAX_HEAD_DIM]; /* G */
    double w[KDA_CHUNK][KDA_MAX_HEAD_DIM], u[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double a_qk[KDA_CHUNK][KDA_CHUNK];
    int64_t count, d;
};

static void load(const int32_t *dims, const gen_kda_intra_args *a, int64_t first, int64_t head,
                 struct chunk *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        gen__kda_token(dims, a, first + i, head, &c->token[i]);
        for (int64_t k = 0; k < c->d; k++)
            c->sum[i][k] = (i ? c->sum[i - 1][k] : 0.0) + c->token[i].g[k];
    }
}

/* sum of x y exp(G_i - G_j) */
static double score(const struct chunk *c, const double *x, int64_t i, int64_t j)
{
    double sum = 0.0;
    for (int64_t k = 0; k < c->d; k++)
        sum += x[k] * c->token[j].k[k] * exp(c->sum[i][k] - c->sum[j][k]);
    return sum;
}

static void work_out(struct chunk *c, double scale)
{
    for (int64_t i = 0; i < c->count; i++) {
        const struct gen__kda_token *t = &c->token[i];
        for (int64_t k = 0; k < c->d; k++) {
            c->w[i][k] = t->beta * t->k[k] * exp(c->sum[i][k]);
            c->u[i][k] = t->beta * t->v[k];
        }
        for (int64_t j = 0; j < i; j++) {
            const double l = t->beta * score(c, t->k, i, j);
            for (int64_t k = 0; k < c->d; k++) {
                c->w[i][k] -= l * c->w[j][k];
                c->u[i][k] -= l * c->u[j][k];
            }
        }
        for (int64_t j = 0; j < KDA_CHUNK; j++)
            c->a_qk[i][j] = j <= i ? scale * score(c, t->q, i, j) : 0.0;
    }
}

static void store(const struct chunk *c, const gen_kda_intra_args *a, bool fp16, int64_t record)
{
    const int64_t tile = record * KDA_CHUNK * c->d, scores = record * KDA_CHUNK * KDA_CHUNK;
    const int64_t last = c->count - 1;
    for (int64_t i = 0; i < KDA_CHUNK; i++) {
        const bool here = i < c->count;
        const struct gen__kda_token *t = &c->token[i];
        for (int64_t k = 0; k < c->d; k++) {
            const int64_t at = tile + gen__kda_tile_at(i, k);
            const double sum = c->sum[i][k];
            gen__kda_store(fp16, a->w, at, here ? -c->w[i][k] : 0.0);
            gen__kda_store(fp16, a->u, tile + gen__kda_u_at(k, i), here ? c->u[i][k] : 0.0);
            gen__kda_store(fp16, a->qg, at, here ? (double)a->scale * t->q[k] * exp(sum) : 0.0);
            gen__kda_store(fp16, a->kg, at, here ? t->k[k] * exp(c->sum[last][k] - sum) : 0.0);
        }
        for (int64_t j = 0; j < KDA_CHUNK; j++)
            gen__kda_store(fp16, a->a_qk, scores + gen__kda_tile_at(i, j),
                           here ? c->a_qk[i][j] : 0.0);
    }
    for (int64_t k = 0; k < c->d; k++)
        a->decay[record * c->d + k] = (float)exp(c->sum[last][k]);
}

enum gen_status gen__kda_intra_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_intra_args *a = (const gen_kda_intra_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t heads = dims[KDA_V_HEADS];
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_intra: no %zu bytes for a chunk",
                         sizeof *c);
    c->d = dims[KDA_HEAD_DIM];
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
        for (int64_t chunk = 0; chunk < gen__kda_chunks(s.length); chunk++) {
            const int64_t row = chunk * KDA_CHUNK, left = s.length - row;
            c->count = left < KDA_CHUNK ? left : KDA_CHUNK;
            for (int64_t head = 0; head < heads; head++) {
                load(dims, a, s.first + row, head, c);
                work_out(c, (double)a->scale);
                store(c, a, dims[KDA_DTYPE] == GEN_DTYPE_FP16, (s.slot + chunk) * heads + head);
            }
        }
    }
    free(c);
    return GEN_OK;
}
