/*
 * A stage of the backward pass of Kimi Delta Attention, the state's gradient from chunk to chunk,
 * in plain C: api.h has the maths. Nothing is rounded on the way.
 */
#include "families/kda_bwd_dhu/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>
#include <string.h>

enum gen_status gen__kda_bwd_dhu_reference(const gen_plan *plan, const gen_args *args);

struct head {
    const int32_t *dims;
    const gen_kda_bwd_dhu_args *a;
    int64_t head, d, num_chunks;
    /* The gradient of the state, [K][V], behind a chunk and in front of it. */
    double behind[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM], front[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM];
};

static int64_t at(const struct head *c, int64_t k, int64_t v)
{
    return c->a->state_layout == GEN_KDA_STATE_VK ? v * c->d + k : k * c->d + v;
}

static void store_chunk_state(const struct head *c, int64_t chunk)
{
    const int64_t first = (chunk * c->dims[KDA_V_HEADS] + c->head) * c->d * c->d;
    for (int64_t i = 0; chunk < c->num_chunks && i < c->d * c->d; i++)
        gen__kda_store(c->dims[KDA_DTYPE] == GEN_DTYPE_FP16, c->a->d_h,
                       first + at(c, i / c->d, i % c->d), c->behind[i / c->d][i % c->d]);
}

/* One token's share of the gradient in front of its chunk. */
static void one_token(struct head *c, int64_t token)
{
    const gen_kda_bwd_dhu_args *a = c->a;
    double qg[KDA_MAX_HEAD_DIM], kg[KDA_MAX_HEAD_DIM], w[KDA_MAX_HEAD_DIM], d_o[KDA_MAX_HEAD_DIM],
        d_v[KDA_MAX_HEAD_DIM];
    gen__kda_load_row(c->dims, a->qg, 0, token, c->head, false, c->d, qg);
    gen__kda_load_row(c->dims, a->kg, 0, token, c->head, false, c->d, kg);
    gen__kda_load_row(c->dims, a->w, 0, token, c->head, false, c->d, w);
    gen__kda_load_row(c->dims, a->d_o, 0, token, c->head, false, c->d, d_o);
    gen__kda_load_row(c->dims, a->d_v, 0, token, c->head, false, c->d, d_v);
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            d_v[v] += kg[k] * c->behind[k][v];
    gen__kda_store_row(c->dims, a->d_v_new, token, c->head, c->d, d_v);
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            c->front[k][v] += (double)a->scale * qg[k] * d_o[v] - w[k] * d_v[v];
}

static void one_chunk(struct head *c, int64_t first, int64_t count)
{
    double gk[KDA_MAX_HEAD_DIM];
    gen__kda_load_gk(c->dims, c->a->gk, first + count - 1, c->head, gk);
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            c->front[k][v] = exp2(gk[k]) * c->behind[k][v];
    for (int64_t token = first; token < first + count; token++)
        one_token(c, token);
    memcpy(c->behind, c->front, sizeof c->behind);
}

/* Of a sequence whose first chunk is `chunk`. */
static void one_head(struct head *c, int64_t n, const struct gen__kda_sequence *s, int64_t chunk)
{
    const gen_kda_bwd_dhu_args *a = c->a;
    const int64_t state = (n * c->dims[KDA_V_HEADS] + c->head) * c->d * c->d;
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            c->behind[k][v] =
                a->d_final_state ? (double)a->d_final_state[state + at(c, k, v)] : 0.0;
    for (int64_t i = gen__kda_chunks(s->length) - 1; i >= 0; i--) {
        const int64_t left = s->length - i * KDA_CHUNK;
        store_chunk_state(c, chunk + i);
        one_chunk(c, s->first + i * KDA_CHUNK, left < KDA_CHUNK ? left : KDA_CHUNK);
    }
    for (int64_t k = 0; a->d_initial_state && k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            a->d_initial_state[state + at(c, k, v)] = (float)c->behind[k][v];
}

enum gen_status gen__kda_bwd_dhu_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_bwd_dhu_args *a = (const gen_kda_bwd_dhu_args *)base;
    const int32_t *dims = plan->dims;
    struct head *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd_dhu: no %zu bytes for a state",
                         sizeof *c);
    c->dims = dims;
    c->a = a;
    c->d = dims[KDA_HEAD_DIM];
    c->num_chunks = a->num_chunks ? a->num_chunks : gen__kda_slots(dims);
    for (int64_t n = 0, chunk = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
        for (c->head = 0; c->head < dims[KDA_V_HEADS]; c->head++)
            one_head(c, n, &s, chunk);
        chunk += gen__kda_chunks(s.length);
    }
    free(c);
    return GEN_OK;
}
