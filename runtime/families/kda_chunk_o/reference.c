/*
 * A stage of Kimi Delta Attention prefill, outputs from states, in plain C:
 * kda_chunk_o/args.h has the maths.
 */
#include "families/kda_chunk_o/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>

enum gen_status gen__kda_chunk_o_reference(const gen_plan *plan, const gen_args *args);

struct chunk {
    const gen_kda_chunk_o_args *a;
    int64_t num_chunks;
    double v[KDA_CHUNK][KDA_MAX_HEAD_DIM];
};

/* An element of the state. */
static double state(const int32_t *dims, const struct chunk *c, const struct gen__kda_place *at,
                    int64_t k, int64_t v)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    const int64_t first = (at->chunk * dims[KDA_V_HEADS] + at->head) * d * d;
    if (at->chunk >= c->num_chunks)
        return 0.0;
    return gen__kda_load(false, dims[KDA_DTYPE] == GEN_DTYPE_FP16, c->a->h,
                         first + (c->a->state_layout == GEN_KDA_STATE_VK ? v * d + k : k * d + v));
}

static void one_row(const int32_t *dims, const struct chunk *c, const struct gen__kda_place *at,
                    int64_t i)
{
    const gen_kda_chunk_o_args *a = c->a;
    const int64_t d = dims[KDA_HEAD_DIM], token = at->first + i;
    const int64_t out = token * (a->o_stride ? a->o_stride : gen__kda_v_width(dims)) + at->head * d;
    double q[KDA_MAX_HEAD_DIM], gk[KDA_MAX_HEAD_DIM], x[KDA_CHUNK];
    gen__kda_load_row(dims, a->q, a->q_stride, token, at->qk_head, true, d, q);
    gen__kda_load_gk(dims, a->gk, token, at->head, gk);
    gen__kda_load_row(dims, a->a_qk, 0, token, at->head, false, KDA_CHUNK, x);
    for (int64_t k = 0; k < d; k++)
        q[k] *= (double)a->scale * exp2(gk[k]);
    for (int64_t v = 0; v < d; v++) {
        double o = 0.0;
        for (int64_t k = 0; k < d; k++)
            o += q[k] * state(dims, c, at, k, v);
        for (int64_t j = 0; j <= i; j++)
            o += x[j] * c->v[j][v];
        gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->o, out + v, o);
    }
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    struct chunk *c = context;
    for (int64_t i = 0; i < at->count; i++)
        gen__kda_load_row(dims, c->a->v_new, 0, at->first + i, at->head, false, dims[KDA_HEAD_DIM],
                          c->v[i]);
    for (int64_t i = 0; i < at->count; i++)
        one_row(dims, c, at, i);
}

enum gen_status gen__kda_chunk_o_reference(const gen_plan *plan, const gen_args *base)
{
    struct chunk *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_chunk_o: no %zu bytes for a chunk",
                         sizeof *c);
    c->a = (const gen_kda_chunk_o_args *)base;
    c->num_chunks = c->a->num_chunks ? c->a->num_chunks : gen__kda_slots(plan->dims);
    gen__kda_each_chunk(plan->dims, c->a->cu_seqlens, one_chunk, c);
    free(c);
    return GEN_OK;
}
