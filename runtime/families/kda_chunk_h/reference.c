/*
 * A stage of Kimi Delta Attention prefill, the state from chunk to chunk, in plain C:
 * kda_chunk_h/args.h has the maths. Nothing is rounded on the way.
 */
#include "families/kda_chunk_h/api.h"
#include "families/kda/reference_stage.h"

#include <stdlib.h>
#include <string.h>

enum gen_status gen__kda_chunk_h_reference(const gen_plan *plan, const gen_args *args);

struct head {
    const int32_t *dims;
    const gen_kda_chunk_h_args *a;
    int64_t head, d, num_chunks;
    double s[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM], next[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM];
};

static int64_t at(const struct head *c, int64_t k, int64_t v)
{
    return c->a->state_layout == GEN_KDA_STATE_VK ? v * c->d + k : k * c->d + v;
}

static void store_h(const struct head *c, int64_t chunk)
{
    const int64_t first = (chunk * c->dims[KDA_V_HEADS] + c->head) * c->d * c->d;
    if (chunk >= c->num_chunks)
        return;
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            gen__kda_store(c->dims[KDA_DTYPE] == GEN_DTYPE_FP16, c->a->h, first + at(c, k, v),
                           c->s[k][v]);
}

static void one_chunk(struct head *c, int64_t first, int64_t count)
{
    const int32_t *dims = c->dims;
    double gk[KDA_MAX_HEAD_DIM], w[KDA_MAX_HEAD_DIM], kg[KDA_MAX_HEAD_DIM], vn[KDA_MAX_HEAD_DIM];
    gen__kda_load_gk(dims, c->a->gk, first + count - 1, c->head, gk);
    for (int64_t k = 0; k < c->d; k++)
        for (int64_t v = 0; v < c->d; v++)
            c->next[k][v] = exp2(gk[k]) * c->s[k][v];
    for (int64_t token = first; token < first + count; token++) {
        gen__kda_load_row(dims, c->a->w, 0, token, c->head, false, c->d, w);
        gen__kda_load_row(dims, c->a->kg, 0, token, c->head, false, c->d, kg);
        gen__kda_load_row(dims, c->a->u, 0, token, c->head, false, c->d, vn);
        for (int64_t k = 0; k < c->d; k++)
            for (int64_t v = 0; v < c->d; v++)
                vn[v] -= w[k] * c->s[k][v];
        gen__kda_store_row(dims, c->a->v_new, token, c->head, c->d, vn);
        for (int64_t k = 0; k < c->d; k++)
            for (int64_t v = 0; v < c->d; v++)
                c->next[k][v] += kg[k] * vn[v];
    }
    memcpy(c->s, c->next, sizeof c->s);
}

enum gen_status gen__kda_chunk_h_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_chunk_h_args *a = (const gen_kda_chunk_h_args *)base;
    const int32_t *dims = plan->dims;
    struct head *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_chunk_h: no %zu bytes for a state",
                         sizeof *c);
    c->dims = dims;
    c->a = a;
    c->d = dims[KDA_HEAD_DIM];
    c->num_chunks = a->num_chunks ? a->num_chunks : gen__kda_slots(dims);
    for (int64_t n = 0, chunk = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
        for (c->head = 0; c->head < dims[KDA_V_HEADS]; c->head++) {
            const int64_t state = (n * dims[KDA_V_HEADS] + c->head) * c->d * c->d;
            for (int64_t k = 0; k < c->d; k++)
                for (int64_t v = 0; v < c->d; v++)
                    c->s[k][v] =
                        a->initial_state ? (double)a->initial_state[state + at(c, k, v)] : 0.0;
            for (int64_t row = 0; row < s.length; row += KDA_CHUNK) {
                const int64_t left = s.length - row;
                store_h(c, chunk + row / KDA_CHUNK);
                one_chunk(c, s.first + row, left < KDA_CHUNK ? left : KDA_CHUNK);
            }
            for (int64_t k = 0; a->final_state && k < c->d; k++)
                for (int64_t v = 0; v < c->d; v++)
                    a->final_state[state + at(c, k, v)] = (float)c->s[k][v];
        }
        chunk += gen__kda_chunks(s.length);
    }
    free(c);
    return GEN_OK;
}
