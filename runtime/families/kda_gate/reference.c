/*
 * A stage of Kimi Delta Attention prefill, gates and norms, in plain C:
 * kda_gate/args.h has the maths.
 */
#include "families/kda_gate/api.h"
#include "families/kda/reference_stage.h"

enum gen_status gen__kda_gate_reference(const gen_plan *plan, const gen_args *args);

static void cumulate(const int32_t *dims, const struct gen__kda_place *at,
                     const gen_kda_gate_args *a)
{
    const double log2_e = 1.4426950408889634;
    const bool fp32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32;
    const bool fp16 = dims[KDA_DTYPE] == GEN_DTYPE_FP16;
    const int64_t d = dims[KDA_HEAD_DIM], width = gen__kda_v_width(dims);
    const double rate = a->A_log ? exp((double)a->A_log[at->head]) : 1.0;
    const gen_kda_intra_args form = {.gate_form = a->gate_form, .lower_bound = a->lower_bound};
    for (int64_t n = at->head * d; n < (at->head + 1) * d; n++) {
        double sum = 0.0;
        for (int64_t i = 0; i < at->count; i++) {
            const int64_t token = at->first + i;
            const int64_t from = token * (a->g_stride ? a->g_stride : width) + n;
            const double x =
                gen__kda_load(fp32, fp16, a->g, from) + (a->dt_bias ? (double)a->dt_bias[n] : 0.0);
            sum += gen__kda_gate(&form, x, rate);
            a->gk[token * width + n] = (float)(log2_e * sum);
        }
    }
}

static void normalize(const int32_t *dims, int64_t token, int64_t head, const void *from,
                      int64_t stride, void *to, float *rstd)
{
    const int64_t d = dims[KDA_HEAD_DIM], row = token * dims[KDA_QK_HEADS] + head;
    double x[KDA_MAX_HEAD_DIM], sum = 1e-6;
    gen__kda_load_row(dims, from, stride, token, head, true, d, x);
    for (int64_t i = 0; i < d; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < d; i++)
        gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, to, row * d + i, x[i] / sqrt(sum));
    if (rstd)
        rstd[row] = (float)(1.0 / sqrt(sum));
}

static void one_chunk(const int32_t *dims, const struct gen__kda_place *at, void *context)
{
    const gen_kda_gate_args *a = context;
    const bool first_of_group = at->head % (dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]) == 0;
    cumulate(dims, at, a);
    for (int64_t token = at->first; a->q && first_of_group && token < at->first + at->count;
         token++) {
        normalize(dims, token, at->qk_head, a->q, a->q_stride, a->q_norm, a->q_rstd);
        normalize(dims, token, at->qk_head, a->k, a->k_stride, a->k_norm, a->k_rstd);
    }
}

enum gen_status gen__kda_gate_reference(const gen_plan *plan, const gen_args *base)
{
    gen_kda_gate_args a = *(const gen_kda_gate_args *)base;
    gen__kda_each_chunk(plan->dims, a.cu_seqlens, one_chunk, &a);
    return GEN_OK;
}
