/*
 * Kimi Delta Attention between chunks, in plain C: kda_inter/args.h has the maths.
 */
#include "families/kda/pools.h"
#include "families/kda/reference_inputs.h"
#include "families/kda/layout.h"
#include "reference/state.h"

#include <stdlib.h>

struct chain {
    double state[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM]; /* [K][V] */
    double vn[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    double o[KDA_MAX_HEAD_DIM];
};

/* x = x + sum over k of row[k] state[k] */
static void add_row_times_state(bool fp16, const void *tile, int64_t first, int64_t row,
                                const struct chain *c, int64_t d, double *x)
{
    for (int64_t k = 0; k < d; k++) {
        const double factor = gen__kda_load(false, fp16, tile, first + gen__kda_tile_at(row, k));
        for (int64_t v = 0; v < d; v++)
            x[v] += factor * c->state[k][v];
    }
}

static void step(const int32_t *dims, const gen_kda_inter_args *a, int64_t record, int64_t token,
                 int64_t count, int64_t head, struct chain *c)
{
    const bool fp16 = dims[KDA_DTYPE] == GEN_DTYPE_FP16;
    const int64_t d = dims[KDA_HEAD_DIM], tile = record * KDA_CHUNK * d;
    const int64_t o_stride = a->o_stride ? a->o_stride : dims[KDA_V_HEADS] * d;
    for (int64_t i = 0; i < KDA_CHUNK; i++) {
        for (int64_t v = 0; v < d; v++)
            c->vn[i][v] = gen__kda_load(false, fp16, a->u, tile + gen__kda_u_at(v, i));
        add_row_times_state(fp16, a->w, tile, i, c, d, c->vn[i]); /* w is -w */
    }
    for (int64_t i = 0; i < count; i++) {
        memset(c->o, 0, sizeof c->o);
        add_row_times_state(fp16, a->qg, tile, i, c, d, c->o);
        for (int64_t j = 0; j < KDA_CHUNK; j++) {
            const double x = gen__kda_load(false, fp16, a->a_qk,
                                           record * KDA_CHUNK * KDA_CHUNK + gen__kda_tile_at(i, j));
            for (int64_t v = 0; v < d; v++)
                c->o[v] += x * c->vn[j][v];
        }
        for (int64_t v = 0; v < d; v++)
            gen__kda_store(fp16, a->o, (token + i) * o_stride + head * d + v, c->o[v]);
    }
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++)
            c->state[k][v] *= (double)a->decay[record * d + k];
    for (int64_t i = 0; i < KDA_CHUNK; i++)
        for (int64_t k = 0; k < d; k++) {
            const double x = gen__kda_load(false, fp16, a->kg, tile + gen__kda_tile_at(i, k));
            for (int64_t v = 0; v < d; v++)
                c->state[k][v] += x * c->vn[i][v];
        }
}

static int64_t state_at(const int32_t *dims, const gen_kda_inter_args *a, int64_t state, int64_t k,
                        int64_t v)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    return state * d * d + (a->state_layout == GEN_KDA_STATE_VK ? v * d + k : k * d + v);
}

/* The state before chunk `number` of all, rounded. */
static void store_state(const int32_t *dims, const gen_kda_inter_args *a, int64_t number,
                        int64_t head, const struct chain *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    if (!a->states || number >= gen__kda_all_chunks(dims))
        return;
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++)
            gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->states,
                           state_at(dims, a, number * dims[KDA_V_HEADS] + head, k, v),
                           c->state[k][v]);
}

/* The head's state from a slot, zeros of slot -1; and to one, nothing of slot -1. */
static void load_slot(const int32_t *dims, const gen_kda_inter_args *a, int64_t slot, int64_t head,
                      struct chain *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++)
            c->state[k][v] = a->initial_state && slot >= 0
                                 ? gen__state_get(dims[KDA_STATE_DTYPE], a->initial_state,
                                                  gen__kda_pool_at(dims, a->state_layout, slot,
                                                                   a->pools.stride_in, head, k, v))
                                 : 0.0;
}

static void store_slot(const int32_t *dims, const gen_kda_inter_args *a, void *pool, int64_t slot,
                       int64_t stride, int64_t head, const struct chain *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d && pool && slot >= 0; k++)
        for (int64_t v = 0; v < d; v++)
            gen__state_put(dims[KDA_STATE_DTYPE], pool,
                           gen__kda_pool_at(dims, a->state_layout, slot, stride, head, k, v),
                           c->state[k][v]);
}

static void store_checkpoint(const int32_t *dims, const gen_kda_inter_args *a, int64_t n,
                             int64_t tokens, int64_t head, const struct chain *c)
{
    store_slot(dims, a, a->pools.ckpt_pool, gen__kda_checkpoint_slot(&a->pools, n, tokens),
               a->pools.ckpt_state_stride, head, c);
}

enum gen_status gen__kda_inter_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_inter_args *a = (const gen_kda_inter_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t heads = dims[KDA_V_HEADS];
    struct chain *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_inter: no %zu bytes for a state",
                         sizeof *c);
    int64_t before = 0; /* chunks of earlier sequences */
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
        for (int64_t head = 0; head < heads; head++) {
            load_slot(dims, a, gen__kda_slot_in(dims, &a->pools, n), head, c);
            for (int64_t chunk = 0; chunk < gen__kda_chunks(s.length); chunk++) {
                const int64_t row = chunk * KDA_CHUNK, left = s.length - row;
                store_state(dims, a, before + chunk, head, c);
                store_checkpoint(dims, a, n, row, head, c);
                step(dims, a, (s.slot + chunk) * heads + head, s.first + row,
                     left < KDA_CHUNK ? left : KDA_CHUNK, head, c);
            }
            store_checkpoint(dims, a, n, s.length, head, c);
            store_slot(dims, a, a->final_state, gen__kda_slot_out(dims, &a->pools, n),
                       a->pools.stride_out, head, c);
        }
        before += gen__kda_chunks(s.length);
    }
    free(c);
    return GEN_OK;
}
