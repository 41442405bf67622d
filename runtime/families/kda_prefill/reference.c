/*
 * Kimi Delta Attention in plain C, token by token, in double: what the chunked
 * kernels are compared with. kda_prefill/args.h has the maths.
 */
#include "families/kda/prefill.h"
#include "families/kda/pools.h"
#include "families/kda/reference_inputs.h"
#include "reference/state.h"

#include <stdlib.h>

struct state {
    double s[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM]; /* [K][V] */
    struct gen__kda_token token;
    double error[KDA_MAX_HEAD_DIM], o[KDA_MAX_HEAD_DIM];
};

/* One token: the state decays, takes what it mispredicts of v, and answers q. */
static void step(struct state *x, int64_t d, double scale)
{
    const struct gen__kda_token *t = &x->token;
    for (int64_t v = 0; v < d; v++) {
        x->error[v] = t->v[v];
        x->o[v] = 0.0;
    }
    for (int64_t k = 0; k < d; k++) {
        const double decay = exp(t->g[k]);
        for (int64_t v = 0; v < d; v++) {
            x->s[k][v] *= decay;
            x->error[v] -= t->k[k] * x->s[k][v];
        }
    }
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++) {
            x->s[k][v] += t->beta * t->k[k] * x->error[v];
            x->o[v] += scale * t->q[k] * x->s[k][v];
        }
}

static gen_kda_intra_args inputs_of(const gen_kda_prefill_args *a)
{
    return (gen_kda_intra_args){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .q_stride = a->q_stride,
        .k_stride = a->k_stride,
        .v_stride = a->v_stride,
        .g_stride = a->g_stride,
        .beta_stride = a->beta_stride,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
    };
}

static int64_t state_at(const int32_t *dims, const gen_kda_prefill_args *a, int64_t state,
                        int64_t k, int64_t v)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    return state * d * d + (a->state_layout == GEN_KDA_STATE_VK ? v * d + k : k * d + v);
}

/* The head's state from slot `slot` of a pool; zeros of slot -1. */
static void load_slot(const int32_t *dims, const gen_kda_prefill_args *a, int64_t slot,
                      int64_t head, struct state *x)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++)
            x->s[k][v] = a->initial_state && slot >= 0
                             ? gen__state_get(dims[KDA_STATE_DTYPE], a->initial_state,
                                              gen__kda_pool_at(dims, a->state_layout, slot,
                                                               a->pools.stride_in, head, k, v))
                             : 0.0;
}

/* And to one; nothing of slot -1. */
static void store_slot(const int32_t *dims, const gen_kda_prefill_args *a, void *pool, int64_t slot,
                       int64_t stride, int64_t head, const struct state *x, double *exact)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d && pool && slot >= 0; k++)
        for (int64_t v = 0; v < d; v++) {
            const int64_t at = gen__kda_pool_at(dims, a->state_layout, slot, stride, head, k, v);
            gen__state_put(dims[KDA_STATE_DTYPE], pool, at, x->s[k][v]);
            if (exact)
                exact[at] = x->s[k][v];
        }
}

/* The state before chunk `number` of all. */
static void store_state(const int32_t *dims, const gen_kda_prefill_args *a, int64_t number,
                        int64_t head, const struct state *x, double *exact)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    if (!a->states || number >= gen__kda_all_chunks(dims))
        return;
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++) {
            const int64_t at = state_at(dims, a, number * dims[KDA_V_HEADS] + head, k, v);
            gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->states, at, x->s[k][v]);
            if (exact)
                exact[at] = x->s[k][v];
        }
}

/* `before`: chunks of earlier sequences. The sequence's states are read before and written after,
 * so they may be the same. */
static void run(const int32_t *dims, const gen_kda_prefill_args *a, int64_t n, int64_t before,
                int64_t head, struct state *x, double *const *exact)
{
    const gen_kda_intra_args inputs = inputs_of(a);
    const bool scalar = gen__kda_prefill_scalar(a->base.family);
    const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
    const int64_t d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const int64_t o_stride = a->o_stride ? a->o_stride : heads * d;
    load_slot(dims, a, gen__kda_slot_in(dims, &a->pools, n), head, x);
    for (int64_t i = 0; i < s.length; i++) {
        const int64_t at = (s.first + i) * o_stride + head * d;
        store_slot(dims, a, a->pools.ckpt_pool, gen__kda_checkpoint_slot(&a->pools, n, i),
                   a->pools.ckpt_state_stride, head, x, exact[KDA_PREFILL_CKPT_POOL]);
        if (i % KDA_CHUNK == 0)
            store_state(dims, a, before + i / KDA_CHUNK, head, x, exact[KDA_PREFILL_STATES]);
        gen__kda_token_of(dims, &inputs, s.first + i, head, scalar, &x->token);
        step(x, d, (double)a->scale);
        for (int64_t v = 0; v < d; v++) {
            gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->o, at + v, x->o[v]);
            if (exact[KDA_PREFILL_O])
                exact[KDA_PREFILL_O][at + v] = x->o[v];
        }
    }
    store_slot(dims, a, a->pools.ckpt_pool, gen__kda_checkpoint_slot(&a->pools, n, s.length),
               a->pools.ckpt_state_stride, head, x, exact[KDA_PREFILL_CKPT_POOL]);
    store_slot(dims, a, a->final_state, gen__kda_slot_out(dims, &a->pools, n), a->pools.stride_out,
               head, x, exact[KDA_PREFILL_FINAL_STATE]);
}

enum gen_status gen__kda_prefill_exact(const gen_plan *plan, const gen_args *base,
                                       double *const *exact)
{
    const gen_kda_prefill_args *a = (const gen_kda_prefill_args *)base;
    const int32_t *dims = plan->dims;
    struct state *x = malloc(sizeof *x);
    if (!x)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no %zu bytes for a state",
                         gen__kda_prefill_scalar(base->family) ? "gdn_prefill" : "kda_prefill",
                         sizeof *x);
    int64_t before = 0;
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        for (int64_t head = 0; head < dims[KDA_V_HEADS]; head++)
            run(dims, a, n, before, head, x, exact);
        before += gen__kda_chunks(gen__kda_sequence(dims, a->cu_seqlens, n).length);
    }
    free(x);
    return GEN_OK;
}

enum gen_status gen__kda_prefill_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[KDA_PREFILL_NUM_TENSORS] = {NULL};
    return gen__kda_prefill_exact(plan, base, none);
}
