/*
 * All gradients of the backward pass of Kimi Delta Attention from a chunk's states, for the tuner,
 * the verifier and the tests: tensors, other ways to pass a problem, bytes and operations.
 */
#include "families/kda_bwd_grad/kda_bwd_grad.h"

#include "reference/data.h"

void gen__kda_bwd_grad_cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    const double gates = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 8 : 4;
    /* q, k and their gradients; v, v_new, d_o, d_v_new, d_v; gk, g, d_g; A_kk; beta and its
     * gradient; both states */
    *bytes = (double)gen__kda_tokens(dims) *
                 (dims[KDA_QK_HEADS] * 8 * d + heads * ((5 * 2 + 4 + gates) * d + KDA_CHUNK * 2 +
                                                        2 * (double)gen__kda_beta_bytes(dims))) +
             tiles * d * d * 4;
    *flops = tiles * ((3 * 10 + 40) * 256 * d * 2 + 3 * KDA_CHUNK * d * d * 2);
}

/* Relative Frobenius errors of sums of products that were rounded to 16 bits. */
static const double tolerance = 0.005, gate_tolerance = 0.006, beta_tolerance = 0.008,
                    sum_tolerance = 0.01;

enum tensor {
    Q,
    K,
    V,
    V_NEW,
    GK,
    G,
    A_LOG,
    DT_BIAS,
    BETA,
    A_KK,
    H,
    D_O,
    D_H,
    D_V_NEW,
    CU_SEQLENS,
    D_Q,
    D_K,
    D_Q_HEADS,
    D_K_HEADS,
    D_V,
    D_G,
    D_BETA,
    PARTIALS,
    SUMS,
    NUM_TENSORS
};

#define TENSOR(...) GEN__TENSOR(gen_kda_bwd_grad_args, __VA_ARGS__)

uint32_t gen__kda_bwd_grad_tensors(const gen_problem *base,
                                   struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_stage_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype beta_dtype = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const enum gen_dtype g = (enum gen_dtype)dims[KDA_GATE_DTYPE];
    const int64_t tokens = gen__kda_tokens(dims), width = gen__kda_v_width(dims);
    const int64_t v = tokens * width, betas = tokens * dims[KDA_V_HEADS];
    const int64_t qk = tokens * gen__kda_qk_width(dims);
    const bool alone = dims[KDA_QK_HEADS] == dims[KDA_V_HEADS];
    const int64_t sums = alone ? 0 : GEN_KDA_BWD_GRAD_SUMS(dims[KDA_HEAD_DIM]);
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t states = gen__kda_slots(dims) * width * dims[KDA_HEAD_DIM];
    const int64_t partials =
        GEN_KDA_BWD_GRAD_PARTIALS(gen__kda_slots(dims), dims[KDA_V_HEADS], dims[KDA_HEAD_DIM]);
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(v_new, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(gk, fp32, GEN__IN, GEN__FILL_FAMILY, 0, v), .cold = true},
        {TENSOR(g, g, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 0.5, dims[KDA_V_HEADS])},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, width)},
        {TENSOR(beta, beta_dtype, GEN__IN, GEN__FILL_NORMAL, 1, betas), .cold = true},
        {TENSOR(a_kk, dtype, GEN__IN, GEN__FILL_FAMILY, 0, betas * KDA_CHUNK), .cold = true},
        {TENSOR(h, dtype, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(d_o, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_h, dtype, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(d_v_new, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(d_q, dtype, GEN__OUT, GEN__FILL_POISON, 0, qk), .tolerance = tolerance,
         .cold = true},
        {TENSOR(d_k, dtype, GEN__OUT, GEN__FILL_POISON, 0, qk), .tolerance = tolerance,
         .cold = true},
        {TENSOR(d_q_heads, fp32, GEN__OUT, GEN__FILL_POISON, 0, 0), .tolerance = tolerance,
         .cold = true},
        {TENSOR(d_k_heads, fp32, GEN__OUT, GEN__FILL_POISON, 0, 0), .tolerance = tolerance,
         .cold = true},
        {TENSOR(d_v, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = tolerance,
         .cold = true},
        {TENSOR(d_g, g, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = gate_tolerance,
         .cold = true},
        {TENSOR(d_beta, beta_dtype, GEN__OUT, GEN__FILL_POISON, 0, betas),
         .tolerance = beta_tolerance, .cold = true},
        {TENSOR(partials, fp32, GEN__OUT, GEN__FILL_POISON, 0, partials),
         .tolerance = sum_tolerance, .cold = true},
        {TENSOR(sums, fp32, GEN__SCRATCH, GEN__FILL_POISON, 0, sums)},
    };
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

#undef TENSOR

void gen__kda_bwd_grad_default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_bwd_grad_args *a = (gen_kda_bwd_grad_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_BWD_GRAD;
    a->scale = 1.0f / sqrtf((float)gen__kda_stage_dims(base)[KDA_HEAD_DIM]);
    a->lower_bound = -5.0f;
    a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
    a->beta_form = GEN_KDA_BETA_SIGMOID;
    a->qk_l2norm = 1;
    a->state_layout = GEN_KDA_STATE_KV;
}

enum gen_status gen__kda_bwd_grad_fill(const gen_problem *base, const gen_args *args,
                                       const struct gen__tensor *list,
                                       const struct gen__fill_options *options, void *const *data)
{
    const struct gen__kda_stage_inputs inputs = {.cu_tensor = &list[CU_SEQLENS],
                                                 .cu_seqlens = data[CU_SEQLENS],
                                                 .gk = data[GK],
                                                 .a_kk = data[A_KK]};
    (void)args;
    gen__kda_stage_fill(gen__kda_stage_dims(base), options, &inputs);
    return GEN_OK;
}

void gen__kda_bwd_grad_case_name(const gen_problem *base, char *text, size_t capacity)
{
    gen__kda_stage_case_name("kda_bwd_grad", base, text, capacity);
}

enum form {
    FORM_VK,
    FORM_FEW,
    FORM_SOFTPLUS,
    FORM_GIVEN,
    FORM_BARE,
    FORM_HEADS,
    FORM_TWICE,
    FORM_STRIDES,
    FORM_LOOSE,
    NUM_FORMS
};
_Static_assert((int)NUM_FORMS == (int)GEN__KDA_BWD_GRAD_NUM_FORMS, "all of them");
const char *const gen__kda_bwd_grad_forms[NUM_FORMS] = {
    "vk", "few", "softplus", "given", "bare", "heads", "twice", "strides", "loose"};

/* Gates and betas as they are, no norm: rows of length 1. */
static void without_activations(const int32_t *dims, gen_kda_bwd_grad_args *a,
                                struct gen__tensor *t)
{
    a->gate_form = GEN_KDA_GATE_GIVEN;
    a->beta_form = GEN_KDA_BETA_GIVEN;
    a->qk_l2norm = 0;
    t[Q].amount = t[K].amount = 1.0 / sqrt((double)dims[KDA_HEAD_DIM]);
    t[BETA].fill = GEN__FILL_UNIFORM;
    t[G].count = t[A_LOG].count = t[DT_BIAS].count = t[PARTIALS].count = 0;
}

static void strided(const int32_t *dims, gen_kda_bwd_grad_args *a, struct gen__tensor *t)
{
    const struct gen__kda_strides s = gen__kda_stride_form(dims);
    a->q_stride = a->k_stride = s.qkv;
    a->g_stride = s.g;
    a->beta_stride = s.beta;
    t[Q].count = t[K].count = s.qk_count;
    t[G].count = s.g_count;
    t[BETA].count = s.beta_count;
}

bool gen__kda_bwd_grad_form(const gen_problem *base, uint32_t index, gen_args *args,
                            struct gen__tensor *t)
{
    gen_kda_bwd_grad_args *a = (gen_kda_bwd_grad_args *)args;
    const int32_t *dims = gen__kda_stage_dims(base);
    switch ((enum form)index) {
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_FEW: /* there are two chunks' states */
        a->num_chunks = 2;
        t[H].count = t[D_H].count =
            2 * (uint64_t)(gen__kda_v_width(dims) * (int64_t)dims[KDA_HEAD_DIM]);
        return gen__kda_slots(dims) > 2;
    case FORM_SOFTPLUS:
        a->gate_form = GEN_KDA_GATE_SOFTPLUS;
        return true;
    case FORM_GIVEN:
        without_activations(dims, a, t);
        return true;
    case FORM_BARE: /* the lower bound alone: a = 1, and no sums */
        t[A_LOG].count = t[DT_BIAS].count = t[PARTIALS].count = 0;
        return true;
    case FORM_HEADS: /* each by itself */
        t[D_Q].count = t[D_K].count = t[SUMS].count = 0;
        t[D_Q_HEADS].count = t[D_K_HEADS].count = t[V].count;
        return true;
    case FORM_TWICE:
        a->beta_form = GEN_KDA_BETA_TWO_SIGMOID;
        return true;
    case FORM_STRIDES:
        strided(dims, a, t);
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[CU_SEQLENS]);
    case NUM_FORMS:
        break;
    }
    return false;
}

/* Values and gradients of one sign, or gradients scaled up as a loss scale does. */
bool gen__kda_bwd_grad_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                            struct gen__tensor *t)
{
    const enum gen_dtype dtype = (enum gen_dtype)gen__kda_stage_dims(base)[KDA_DTYPE];
    (void)args;
    switch (kind) {
    case GEN__DATA_MEAN1:
        t[V].mean = t[V_NEW].mean = t[D_O].mean = t[D_V_NEW].mean = 1.0;
        return true;
    case GEN__DATA_EXTREME: /* outputs stay below the type's greatest number */
        t[D_O].amount = t[D_H].amount = t[D_V_NEW].amount = dtype == GEN_DTYPE_FP16 ? 16.0 : 0x1p60;
        return true;
    default:
        return false;
    }
}
