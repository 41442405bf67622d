/*
 * Gated DeltaNet inside a chunk, in plain C: api.h has the maths. X comes by forward substitution,
 * row by row, of (I + A_kk) X = diag(beta).
 */
#include "families/kda/gdn_intra.h"
#include "families/kda/layout.h"
#include "families/kda/reference_inputs.h"

#include <stdlib.h>

/* One chunk of one head; rows beyond `count` are zeros. */
struct chunk {
    struct gen__kda_token token[KDA_CHUNK];                      /* q and k as they came */
    double q_norm[KDA_CHUNK], k_norm[KDA_CHUNK], sum[KDA_CHUNK]; /* reciprocal norms; G */
    double x[KDA_CHUNK][KDA_CHUNK], a_qk[KDA_CHUNK][KDA_CHUNK];
    int64_t count, d;
};

static double dot(const double *x, const double *y, int64_t d)
{
    double sum = 0.0;
    for (int64_t i = 0; i < d; i++)
        sum += x[i] * y[i];
    return sum;
}

static void load(const int32_t *dims, const gen_gdn_intra_args *a, int64_t first, int64_t head,
                 struct chunk *c)
{
    const gen_kda_intra_args inputs = {
        .q = a->q,
        .k = a->k,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .q_stride = a->q_stride,
        .k_stride = a->k_stride,
        .g_stride = a->g_stride,
        .beta_stride = a->beta_stride,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
    };
    for (int64_t i = 0; i < c->count; i++) {
        struct gen__kda_token *t = &c->token[i];
        gen__kda_token_of(dims, &inputs, first + i, head, true, t);
        c->sum[i] = (i ? c->sum[i - 1] : 0.0) + t->g[0];
        c->q_norm[i] = a->qk_l2norm ? 1.0 / sqrt(dot(t->q, t->q, c->d) + 1e-6) : 1.0;
        c->k_norm[i] = a->qk_l2norm ? 1.0 / sqrt(dot(t->k, t->k, c->d) + 1e-6) : 1.0;
    }
}

static void work_out(struct chunk *c, double scale)
{
    for (int64_t i = 0; i < KDA_CHUNK; i++)
        for (int64_t j = 0; j < KDA_CHUNK; j++)
            c->x[i][j] = c->a_qk[i][j] = 0.0;
    for (int64_t i = 0; i < c->count; i++) {
        const struct gen__kda_token *t = &c->token[i];
        c->x[i][i] = t->beta;
        for (int64_t j = 0; j <= i; j++) {
            const double factor = exp(c->sum[i] - c->sum[j]) * c->k_norm[j];
            const double *const k = c->token[j].k;
            c->a_qk[i][j] = scale * c->q_norm[i] * factor * dot(t->q, k, c->d);
            const double l = t->beta * c->k_norm[i] * factor * dot(t->k, k, c->d);
            for (int64_t m = 0; m <= j && j < i; m++)
                c->x[i][m] -= l * c->x[j][m];
        }
    }
}

static void store(const struct chunk *c, const gen_gdn_intra_args *a, bool fp16, int64_t record)
{
    const int64_t cell = record * KDA_CHUNK * KDA_CHUNK;
    const double last = c->sum[c->count - 1];
    float *const factors = a->factors + record * GDN_FACTORS;
    for (int64_t i = 0; i < KDA_CHUNK; i++) {
        const bool here = i < c->count;
        for (int64_t j = 0; j < KDA_CHUNK; j++) {
            gen__kda_store(fp16, a->x, cell + gen__kda_tile_at(j, i), c->x[i][j]);
            gen__kda_store(fp16, a->a_qk, cell + gen__kda_tile_at(i, j), c->a_qk[i][j]);
        }
        factors[GDN_K_IN + i] = here ? (float)(c->k_norm[i] * exp(c->sum[i])) : 0.0f;
        factors[GDN_Q_OUT + i] =
            here ? (float)((double)a->scale * c->q_norm[i] * exp(c->sum[i])) : 0.0f;
        factors[GDN_K_OUT + i] = here ? (float)(c->k_norm[i] * exp(last - c->sum[i])) : 0.0f;
    }
    factors[GDN_DECAY] = (float)exp(last);
    for (int64_t i = GDN_DECAY + 1; i < GDN_FACTORS; i++)
        factors[i] = 0.0f;
}

enum gen_status gen__gdn_intra_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_gdn_intra_args *a = (const gen_gdn_intra_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t heads = dims[KDA_V_HEADS];
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "gdn_intra: no %zu bytes for a chunk",
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
