/*
 * All gradients of the backward pass of Kimi Delta Attention from a chunk's states, in plain C: the
 * references of the stages, one after the other, with what they hand each other in fp32.
 */
#include "families/kda/reference_stage.h"
#include "families/kda_bwd_dav/api.h"
#include "families/kda_bwd_grad/api.h"
#include "families/kda_bwd_intra/api.h"
#include "families/kda_bwd_wy/api.h"
#include "families/kda_gate_bwd/api.h"
#include "families/kda_qk_bwd/api.h"

#include <stdlib.h>

enum gen_status gen__kda_bwd_grad_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_bwd_dav_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_bwd_wy_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_bwd_intra_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_gate_bwd_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_qk_bwd_reference(const gen_plan *plan, const gen_args *args);

/* What stages hand each other. */
struct between {
    uint16_t *q, *k, *d_values; /* normalized; kda_bwd_dav's d_v, which is not used here */
    float *beta, *d_a_qk, *d_a_kk, *d_q, *d_k, *d_beta, *d_g, *partials, *sums;
};

/* q or k as the other stages take it. */
static void normalize(const int32_t *dims, const gen_kda_bwd_grad_args *a, const void *from,
                      int64_t stride, uint16_t *to)
{
    const int64_t d = dims[KDA_HEAD_DIM], heads = dims[KDA_QK_HEADS];
    double x[KDA_MAX_HEAD_DIM];
    for (int64_t row = 0; row < gen__kda_tokens(dims) * heads; row++) {
        gen__kda_load_row(dims, from, stride, row / heads, row % heads, true, d, x);
        if (a->qk_l2norm)
            gen__kda_normalize(x, d);
        for (int64_t i = 0; i < d; i++)
            gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, to, row * d + i, x[i]);
    }
}

static void activate(const int32_t *dims, const gen_kda_bwd_grad_args *a, float *to)
{
    const int64_t heads = dims[KDA_V_HEADS];
    for (int64_t i = 0; i < gen__kda_tokens(dims) * heads; i++) {
        double x = gen__kda_load_beta(dims, a->beta, a->beta_stride, i / heads, i % heads);
        if (a->beta_form != GEN_KDA_BETA_GIVEN)
            x = gen__kda_sigmoid(x) * (a->beta_form == GEN_KDA_BETA_TWO_SIGMOID ? 2 : 1);
        to[i] = (float)x;
    }
}

static enum gen_status from_states(const gen_plan *plan, const gen_kda_bwd_grad_args *a,
                                   const struct between *x)
{
    const gen_kda_bwd_dav_args dav = {.v_new = a->v_new,
                                      .d_o = a->d_o,
                                      .a_qk = a->a_kk, /* any */
                                      .cu_seqlens = a->cu_seqlens,
                                      .d_a_qk = x->d_a_qk,
                                      .d_v = x->d_values,
                                      .scale = a->scale};
    const gen_kda_bwd_wy_args wy = {.q = x->q,
                                    .k = x->k,
                                    .v = a->v,
                                    .v_new = a->v_new,
                                    .gk = a->gk,
                                    .beta = x->beta,
                                    .a_kk = a->a_kk,
                                    .h = a->h,
                                    .d_o = a->d_o,
                                    .d_h = a->d_h,
                                    .d_v_new = a->d_v_new,
                                    .cu_seqlens = a->cu_seqlens,
                                    .d_q = x->d_q,
                                    .d_k = x->d_k,
                                    .d_v = a->d_v,
                                    .d_beta = x->d_beta,
                                    .d_g = x->d_g,
                                    .d_a_kk = x->d_a_kk,
                                    .scale = a->scale,
                                    .num_chunks = a->num_chunks,
                                    .state_layout = a->state_layout};
    const enum gen_status status = gen__kda_bwd_dav_reference(plan, &dav.base);
    return status ? status : gen__kda_bwd_wy_reference(plan, &wy.base);
}

static enum gen_status from_scores(const gen_plan *plan, const gen_kda_bwd_grad_args *a,
                                   const struct between *x)
{
    const gen_kda_bwd_intra_args intra = {.q = x->q,
                                          .k = x->k,
                                          .gk = a->gk,
                                          .beta = x->beta,
                                          .d_a_qk = x->d_a_qk,
                                          .d_a_kk = x->d_a_kk,
                                          .d_q_states = x->d_q,
                                          .d_k_states = x->d_k,
                                          .d_beta_states = x->d_beta,
                                          .d_g_states = x->d_g,
                                          .cu_seqlens = a->cu_seqlens,
                                          .d_q = x->d_q,
                                          .d_k = x->d_k,
                                          .d_beta = x->d_beta,
                                          .d_g = x->d_g};
    return gen__kda_bwd_intra_reference(plan, &intra.base);
}

static enum gen_status through_gates(const gen_plan *plan, const gen_kda_bwd_grad_args *a,
                                     const struct between *x)
{
    const int32_t *dims = plan->dims;
    const gen_kda_gate_bwd_args gate = {.g = a->g,
                                        .A_log = a->A_log,
                                        .dt_bias = a->dt_bias,
                                        .d_gk = x->d_g,
                                        .cu_seqlens = a->cu_seqlens,
                                        .d_g = a->d_g,
                                        .d_dt_bias = a->partials ? x->sums : NULL,
                                        .partials = a->partials ? x->partials : NULL,
                                        .g_stride = a->g_stride,
                                        .lower_bound = a->lower_bound,
                                        .gate_form = a->gate_form,
                                        .suffix_sum = 1};
    const enum gen_status status = gen__kda_gate_bwd_reference(plan, &gate.base);
    if (!status && a->partials)
        memcpy(a->partials, x->partials,
               (size_t)GEN_KDA_BWD_GRAD_PARTIALS(gen__kda_slots(dims), dims[KDA_V_HEADS],
                                                 dims[KDA_HEAD_DIM]) *
                   sizeof *a->partials);
    return status;
}

/* `plan` has the raw betas' type. */
static enum gen_status through_norms(const gen_plan *plan, const gen_kda_bwd_grad_args *a,
                                     const struct between *x)
{
    const bool heads = a->d_q_heads != NULL;
    const size_t bytes =
        (size_t)(gen__kda_tokens(plan->dims) * gen__kda_v_width(plan->dims)) * sizeof(float);
    const gen_kda_qk_bwd_args qk = {.q = a->q,
                                    .k = a->k,
                                    .beta = a->beta,
                                    .d_q_heads = x->d_q,
                                    .d_k_heads = x->d_k,
                                    .d_beta_heads = x->d_beta,
                                    .cu_seqlens = a->cu_seqlens,
                                    .d_q = heads ? NULL : a->d_q,
                                    .d_k = heads ? NULL : a->d_k,
                                    .d_beta = a->d_beta,
                                    .q_stride = a->q_stride,
                                    .k_stride = a->k_stride,
                                    .beta_stride = a->beta_stride,
                                    .qk_l2norm = a->qk_l2norm,
                                    .beta_form = a->beta_form};
    if (heads) { /* all of them: run() */
        memcpy(a->d_q_heads, x->d_q, bytes);
        memcpy(a->d_k_heads, x->d_k, bytes);
    }
    return gen__kda_qk_bwd_reference(plan, &qk.base);
}

static enum gen_status run(const gen_plan *plan, const gen_kda_bwd_grad_args *a,
                           const struct between *x)
{
    gen_plan stages = *plan; /* whose betas are activated, in fp32 */
    enum gen_status status;
    stages.dims[KDA_BETA_DTYPE] = GEN_DTYPE_FP32;
    if (a->d_q_heads) { /* rows of tokens that no sequence has stay as they are */
        const size_t bytes =
            (size_t)(gen__kda_tokens(plan->dims) * gen__kda_v_width(plan->dims)) * sizeof(float);
        memcpy(x->d_q, a->d_q_heads, bytes);
        memcpy(x->d_k, a->d_k_heads, bytes);
    }
    normalize(plan->dims, a, a->q, a->q_stride, x->q);
    normalize(plan->dims, a, a->k, a->k_stride, x->k);
    activate(plan->dims, a, x->beta);
    status = from_states(&stages, a, x);
    if (!status)
        status = from_scores(&stages, a, x);
    if (!status)
        status = through_gates(&stages, a, x);
    return status ? status : through_norms(plan, a, x);
}

static float *take(float **memory, int64_t count)
{
    float *const at = *memory;
    *memory += (count + 3) / 4 * 4;
    return at;
}

enum gen_status gen__kda_bwd_grad_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_bwd_grad_args *a = (const gen_kda_bwd_grad_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t tokens = gen__kda_tokens(dims), v = tokens * gen__kda_v_width(dims);
    const int64_t qk = tokens * gen__kda_qk_width(dims), rows = tokens * dims[KDA_V_HEADS];
    const int64_t partials =
        GEN_KDA_GATE_BWD_PARTIALS(gen__kda_slots(dims), dims[KDA_V_HEADS], dims[KDA_HEAD_DIM]) / 4;
    const int64_t count =
        qk + 4 * v + rows * (2 + 2 * KDA_CHUNK) + partials + gen__kda_v_width(dims) + 64;
    float *const memory = calloc((size_t)count, sizeof *memory), *at = memory;
    if (!memory)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd_grad: no %zu bytes between stages",
                         (size_t)count * sizeof *memory);
    struct between x = {.beta = take(&at, rows),
                        .d_a_qk = take(&at, rows * KDA_CHUNK),
                        .d_a_kk = take(&at, rows * KDA_CHUNK),
                        .d_q = take(&at, v),
                        .d_k = take(&at, v),
                        .d_beta = take(&at, rows),
                        .d_g = take(&at, v),
                        .partials = take(&at, partials),
                        .sums = take(&at, gen__kda_v_width(dims))};
    x.q = (uint16_t *)(void *)take(&at, (qk + 1) / 2);
    x.k = (uint16_t *)(void *)take(&at, (qk + 1) / 2);
    x.d_values = (uint16_t *)(void *)take(&at, (v + 1) / 2);
    const enum gen_status status = run(plan, a, &x);
    free(memory);
    return status;
}
