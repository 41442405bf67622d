/*
 * A stage of the backward pass of Kimi Delta Attention, gradients of raw q, k and beta, in plain C:
 * api.h has the maths. y alone is rounded on the way.
 */
#include "families/kda_qk_bwd/api.h"
#include "families/kda/reference_stage.h"

enum gen_status gen__kda_qk_bwd_reference(const gen_plan *plan, const gen_args *args);

/* Of q or of k. */
struct side {
    const void *x;
    const float *rstd, *d_heads;
    void *d_x;
    int64_t stride, d_stride;
};

static double rounded(const int32_t *dims, double x)
{
    return dims[KDA_DTYPE] == GEN_DTYPE_FP16 ? gen__fp16_to_double(gen__fp16_from_double(x))
                                             : gen__bf16_to_double(gen__bf16_from_double(x));
}

static void norm_back(const int32_t *dims, const struct side *s, int64_t token, int64_t head,
                      double *dy)
{
    const int64_t d = dims[KDA_HEAD_DIM], row = token * dims[KDA_QK_HEADS] + head;
    double y[KDA_MAX_HEAD_DIM], sum = 1e-6, rstd, along = 0.0;
    gen__kda_load_row(dims, s->x, s->stride, token, head, true, d, y);
    for (int64_t i = 0; i < d; i++)
        sum += y[i] * y[i];
    rstd = s->rstd ? (double)s->rstd[row] : 1.0 / sqrt(sum);
    for (int64_t i = 0; i < d; i++) {
        y[i] = s->rstd ? y[i] : rounded(dims, y[i] * rstd);
        along += y[i] * dy[i];
    }
    for (int64_t i = 0; i < d; i++)
        dy[i] = rstd * (dy[i] - y[i] * along);
}

static void row_back(const int32_t *dims, const struct side *s, bool norm, int64_t token,
                     int64_t head)
{
    const int64_t d = dims[KDA_HEAD_DIM], heads = dims[KDA_QK_HEADS];
    const int64_t group = dims[KDA_V_HEADS] / heads;
    double dy[KDA_MAX_HEAD_DIM] = {0};
    for (int64_t h = head * group; h < (head + 1) * group; h++)
        for (int64_t i = 0; i < d; i++)
            dy[i] += (double)s->d_heads[(token * dims[KDA_V_HEADS] + h) * d + i];
    if (norm)
        norm_back(dims, s, token, head, dy);
    for (int64_t i = 0; i < d; i++)
        gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, s->d_x,
                       token * (s->d_stride ? s->d_stride : heads * d) + head * d + i, dy[i]);
}

static void beta_back(const int32_t *dims, const gen_kda_qk_bwd_args *a, int64_t token,
                      int64_t head)
{
    const int64_t heads = dims[KDA_V_HEADS];
    const int64_t to = token * (a->d_beta_stride ? a->d_beta_stride : heads) + head;
    double d_beta = (double)a->d_beta_heads[token * heads + head];
    if (a->beta_form != GEN_KDA_BETA_GIVEN) {
        const double x = gen__kda_load_beta(dims, a->beta, a->beta_stride, token, head);
        d_beta *= gen__kda_sigmoid(x) * gen__kda_sigmoid(-x);
    }
    if (a->beta_form == GEN_KDA_BETA_TWO_SIGMOID)
        d_beta *= 2.0;
    if (dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32)
        ((float *)a->d_beta)[to] = (float)d_beta;
    else
        gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->d_beta, to, d_beta);
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    const gen_kda_qk_bwd_args *a = context;
    const struct side q = {a->q, a->q_rstd, a->d_q_heads, a->d_q, a->q_stride, a->d_q_stride};
    const struct side k = {a->k, a->k_rstd, a->d_k_heads, a->d_k, a->k_stride, a->d_k_stride};
    const bool first_of_group = at->head % (dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]) == 0;
    for (int64_t token = at->first; token < at->first + at->count; token++) {
        if (a->d_q && first_of_group)
            row_back(dims, &q, a->qk_l2norm, token, at->qk_head);
        if (a->d_k && first_of_group)
            row_back(dims, &k, a->qk_l2norm, token, at->qk_head);
        if (a->d_beta)
            beta_back(dims, a, token, at->head);
    }
}

enum gen_status gen__kda_qk_bwd_reference(const gen_plan *plan, const gen_args *base)
{
    gen_kda_qk_bwd_args a = *(const gen_kda_qk_bwd_args *)base;
    gen__kda_each_chunk(plan->dims, a.cu_seqlens, one_chunk, &a);
    return GEN_OK;
}
