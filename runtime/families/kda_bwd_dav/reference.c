/*
 * A stage of the backward pass of Kimi Delta Attention, an output's gradient inside a chunk, in
 * plain C: api.h has the maths.
 */
#include "families/kda_bwd_dav/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>
#include <string.h>

enum gen_status gen__kda_bwd_dav_reference(const gen_plan *plan, const gen_args *args);

struct chunk {
    const gen_kda_bwd_dav_args *a;
    double v[KDA_CHUNK][KDA_MAX_HEAD_DIM], d_v[KDA_CHUNK][KDA_MAX_HEAD_DIM];
};

static void one_row(const int32_t *dims, struct chunk *c, const struct gen__kda_place *at,
                    int64_t i)
{
    const gen_kda_bwd_dav_args *a = c->a;
    const int64_t d = dims[KDA_HEAD_DIM], token = at->first + i;
    float *const d_a = a->d_a_qk + (token * dims[KDA_V_HEADS] + at->head) * KDA_CHUNK;
    double d_o[KDA_MAX_HEAD_DIM], scores[KDA_CHUNK];
    gen__kda_load_row(dims, a->d_o, a->d_o_stride, token, at->head, false, d, d_o);
    gen__kda_load_row(dims, a->a_qk, 0, token, at->head, false, KDA_CHUNK, scores);
    for (int64_t j = 0; j < KDA_CHUNK; j++) {
        double sum = 0.0;
        for (int64_t v = 0; j <= i && v < d; v++) {
            sum += d_o[v] * c->v[j][v];
            c->d_v[j][v] += scores[j] * d_o[v];
        }
        d_a[j] = (float)((double)a->scale * sum);
    }
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    struct chunk *c = context;
    const int64_t d = dims[KDA_HEAD_DIM];
    memset(c->d_v, 0, sizeof c->d_v);
    for (int64_t i = 0; i < at->count; i++)
        gen__kda_load_row(dims, c->a->v_new, 0, at->first + i, at->head, false, d, c->v[i]);
    for (int64_t i = 0; i < at->count; i++)
        one_row(dims, c, at, i);
    for (int64_t i = 0; i < at->count; i++)
        gen__kda_store_row(dims, c->a->d_v, at->first + i, at->head, d, c->d_v[i]);
}

enum gen_status gen__kda_bwd_dav_reference(const gen_plan *plan, const gen_args *base)
{
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd_dav: no %zu bytes for a chunk",
                         sizeof *c);
    c->a = (const gen_kda_bwd_dav_args *)base;
    gen__kda_each_chunk(plan->dims, c->a->cu_seqlens, one_chunk, c);
    free(c);
    return GEN_OK;
}
