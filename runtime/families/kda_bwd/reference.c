/*
 * Kimi Delta Attention, the backward pass, in plain C: the recurrence in reverse, token by token,
 * in double (families/kda/backward.c), rounded once.
 */
#include "families/kda/backward.h"
#include "families/kda/reference_inputs.h"
#include "families/kda_bwd/kda_bwd.h"

#include <stdlib.h>

enum { FIRST = KDA_BWD_D_Q, COUNT = KDA_BWD_NUM_TENSORS - FIRST };

/* A gradient: in double, and where it goes; a row is what a token has, or 0: no tokens' rows. */
struct gradient {
    double *from;
    void *to;
    enum gen_dtype dtype;
    int64_t row, count;
};

static void list_gradients(const int32_t *dims, const gen_kda_bwd_args *a,
                           struct gradient list[COUNT])
{
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE];
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    const int64_t states = dims[KDA_BATCH] * v * dims[KDA_HEAD_DIM];
    const struct gradient all[COUNT] = {
        {NULL, a->d_q, dtype, qk, tokens * qk},
        {NULL, a->d_k, dtype, qk, tokens * qk},
        {NULL, a->d_v, dtype, v, tokens * v},
        {NULL, a->d_g, (enum gen_dtype)dims[KDA_GATE_DTYPE], v, tokens * v},
        {NULL, a->d_beta, (enum gen_dtype)dims[KDA_BETA_DTYPE], heads, tokens * heads},
        {NULL, a->d_A_log, GEN_DTYPE_FP32, 0, heads},
        {NULL, a->d_dt_bias, GEN_DTYPE_FP32, 0, v},
        {NULL, a->d_initial_state, GEN_DTYPE_FP32, 0, states},
    };
    memcpy(list, all, sizeof all);
}

static void store(const struct gradient *g, int64_t first, int64_t count, double *exact)
{
    for (int64_t i = first; i < first + count; i++) {
        if (g->dtype == GEN_DTYPE_FP32)
            ((float *)g->to)[i] = (float)g->from[i];
        else
            gen__kda_store(g->dtype == GEN_DTYPE_FP16, g->to, i, g->from[i]);
        if (exact)
            exact[i] = g->from[i];
    }
}

/* Rows of tokens that no sequence has stay as they are. */
static void store_all(const int32_t *dims, const int32_t *cu_seqlens, const struct gradient *g,
                      double *exact)
{
    if (!g->to)
        return;
    if (!g->row)
        store(g, 0, g->count, exact);
    for (int64_t n = 0; g->row && n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        store(g, s.first * g->row, s.length * g->row, exact);
    }
}

enum gen_status gen__kda_bwd_exact(const gen_plan *plan, const gen_args *base, double *const *exact)
{
    const gen_kda_bwd_args *a = (const gen_kda_bwd_args *)base;
    const struct gen__kda_backward b = {
        .in = gen__kda_bwd_inputs(a),
        .initial_state = a->initial_state,
        .d_o = a->d_o,
        .d_o_stride = a->d_o_stride,
        .d_final_state = a->d_final_state,
        .state_layout = a->state_layout,
    };
    struct gradient list[COUNT];
    enum gen_status status = GEN_OK;
    list_gradients(plan->dims, a, list);
    for (int i = 0; i < COUNT; i++) {
        const size_t bytes = (size_t)(list[i].count ? list[i].count : 1) * sizeof(double);
        list[i].from = list[i].to ? calloc(1, bytes) : NULL;
        if (list[i].to && !list[i].from)
            status =
                gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd: no %zu bytes for gradients", bytes);
    }
    const struct gen__kda_gradients out = {
        .q = list[0].from,
        .k = list[1].from,
        .v = list[2].from,
        .g = list[3].from,
        .beta = list[4].from,
        .A_log = list[5].from,
        .dt_bias = list[6].from,
        .initial_state = list[7].from,
    };
    if (!status)
        status = gen__kda_backward(plan->dims, &b, &out);
    for (int i = 0; i < COUNT; i++) {
        if (!status)
            store_all(plan->dims, a->cu_seqlens, &list[i], exact ? exact[FIRST + i] : NULL);
        free(list[i].from);
    }
    return status;
}

enum gen_status gen__kda_bwd_reference(const gen_plan *plan, const gen_args *base)
{
    return gen__kda_bwd_exact(plan, base, NULL);
}
