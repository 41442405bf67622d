/*
 * Kimi Delta Attention, the backward pass, for the tuner, the verifier and the tests: tensors,
 * other ways to pass a problem, bytes and operations.
 */
#include "families/kda_bwd/kda_bwd.h"

#include "families/kda_prefill/api.h"
#include "reference/data.h"
#include "reference/scatter.h"
#include "reference/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Relative Frobenius errors against the recurrence in reverse, token by token, in double, of
 * operands that are rounded to 16 bits between the stages. Emulated roundings of normal keys gave
 * 0.0031 of q, 0.0039 of k, 0.0037 of v, 0.0042 of gates and 0.0033 of betas; public tests of this
 * operator allow 0.008 and 0.02. A_log's is a sum over all tokens and channels of terms of both
 * signs, which may nearly cancel in one head (0.12 was seen of values of 1): judge it over
 * several.
 */
static const double tolerance = 0.007, gate_tolerance = 0.008, beta_tolerance = 0.012,
                    bias_tolerance = 0.008, rate_tolerance = 0.02, one_rate_tolerance = 0.1;
/* Uniform keys and gates that hardly decay: each token's update takes back most of the last one's.
 */
static const double alike_tolerance = 0.01, alike_beta_tolerance = 0.018;
/* Values and gradients of 1: rounding is the same in all columns of V, and does not average out. */
static const double ones_gate_tolerance = 0.016;
enum { ENOUGH_HEADS = 8 }; /* for A_log's errors to cancel */

#define TENSOR(...) GEN__TENSOR(gen_kda_bwd_args, __VA_ARGS__)

uint32_t gen__kda_bwd_tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_bwd_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype gate = (enum gen_dtype)dims[KDA_GATE_DTYPE];
    const enum gen_dtype step = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t width = gen__kda_v_width(dims), v = tokens * width, betas = tokens * heads;
    const int64_t qk = tokens * gen__kda_qk_width(dims);
    const int64_t states = dims[KDA_BATCH] * width * dims[KDA_HEAD_DIM];
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const uint64_t kept = dims[KDA_BWD_KEEP] ? gen__kda_states_count(dims) : 0;
    const double rate = heads < ENOUGH_HEADS ? one_rate_tolerance : rate_tolerance;
#define GRADIENT(name, type, elements, allowed)                                              \
    {                                                                                        \
        TENSOR(name, type, GEN__OUT, GEN__FILL_POISON, 0, elements), .tolerance = (allowed), \
                                                                     .cold = true            \
    }
    const struct gen__tensor list[KDA_BWD_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(g, gate, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(beta, step, GEN__IN, GEN__FILL_UNIFORM, 1, betas), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, width)},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(initial_state, fp32, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(states, dtype, GEN__IN, GEN__FILL_FAMILY, 0, kept), .cold = true},
        {TENSOR(d_o, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(d_final_state, fp32, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        GRADIENT(d_q, dtype, qk, tolerance),
        GRADIENT(d_k, dtype, qk, tolerance),
        GRADIENT(d_v, dtype, v, tolerance),
        GRADIENT(d_g, gate, v, gate_tolerance),
        GRADIENT(d_beta, step, betas, beta_tolerance),
        GRADIENT(d_A_log, fp32, heads, rate),
        GRADIENT(d_dt_bias, fp32, width, bias_tolerance),
        GRADIENT(d_initial_state, fp32, states, tolerance),
    };
#undef GRADIENT
    memcpy(tensors, list, sizeof list);
    return KDA_BWD_NUM_TENSORS;
}

#undef TENSOR

void gen__kda_bwd_default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_bwd_args *a = (gen_kda_bwd_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_KDA_BWD;
    a->scale = 1.0f / sqrtf((float)gen__kda_bwd_dims(base)[KDA_HEAD_DIM]);
    a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
    a->lower_bound = -5.0f;
    a->qk_l2norm = 1;
    a->state_layout = GEN_KDA_STATE_KV;
}

/* ---- inputs that follow from others -------------------------------------- */

/* Small numbers, where the others are on a device: some, and again. */
static void draw_states(const struct gen__tensor *t, uint64_t seed, uint16_t *states)
{
    enum { DRAWN = 1 << 16 };
    for (uint64_t i = 0; i < t->count; i++) {
        const double x = 0.2 * (gen__scatter(seed, (int64_t)(i % DRAWN)) - 0.5);
        states[i] = i >= DRAWN                   ? states[i - DRAWN]
                    : t->dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x)
                                                 : gen__bf16_from_double(x);
    }
}

/* The forward pass gives them. */
static enum gen_status make_states(const int32_t *dims, const gen_kda_bwd_args *args,
                                   void *const *data)
{
    gen_plan plan = {.num_launches = 1};
    memcpy(plan.dims, dims, KDA_NUM_DIMS * sizeof *dims);
    void *const o = malloc((size_t)(gen__kda_tokens(dims) * gen__kda_v_width(dims)) * 2 + 1);
    if (!o)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd: no memory for outputs");
    const gen_kda_prefill_args a = {
        .base = {sizeof a, GEN_KDA_PREFILL},
        .q = data[KDA_BWD_Q],
        .k = data[KDA_BWD_K],
        .v = data[KDA_BWD_V],
        .g = data[KDA_BWD_G],
        .beta = data[KDA_BWD_BETA],
        .A_log = data[KDA_BWD_A_LOG],
        .dt_bias = data[KDA_BWD_DT_BIAS],
        .cu_seqlens = data[KDA_BWD_CU_SEQLENS],
        .initial_state = data[KDA_BWD_INITIAL_STATE],
        .o = o,
        .states = data[KDA_BWD_STATES],
        .q_stride = args->q_stride,
        .k_stride = args->k_stride,
        .v_stride = args->v_stride,
        .g_stride = args->g_stride,
        .beta_stride = args->beta_stride,
        .scale = args->scale,
        .lower_bound = args->lower_bound,
        .gate_form = args->gate_form,
        .beta_form = args->beta_form,
        .qk_l2norm = args->qk_l2norm,
        .state_layout = args->state_layout,
    };
    const enum gen_status status = gen__kda_prefill_reference(&plan, &a.base);
    free(o);
    return status;
}

/* NaN in the first head of every second sequence's keys. */
static void poison_keys(const int32_t *dims, const gen_kda_bwd_args *a, const int32_t *cu_seqlens,
                        uint16_t *k)
{
    const int64_t width = dims[KDA_HEAD_DIM];
    const int64_t row = a->k_stride ? a->k_stride : gen__kda_qk_width(dims);
    int64_t seen = 0;
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        seen += s.length > 0;
        for (int64_t i = 0; i < s.length * width && seen % 2 == 0; i++)
            k[(s.first + i / width) * row + i % width] = 0x7fff; /* of either type */
    }
}

enum gen_status gen__kda_bwd_fill(const gen_problem *base, const gen_args *args,
                                  const struct gen__tensor *list,
                                  const struct gen__fill_options *options, void *const *data)
{
    const int32_t *dims = gen__kda_bwd_dims(base);
    const gen_kda_bwd_args *a = (const gen_kda_bwd_args *)args;
    gen__kda_fill(dims, &list[KDA_BWD_CU_SEQLENS], options, data[KDA_BWD_CU_SEQLENS]);
    if (options->poisoned && data[KDA_BWD_K])
        poison_keys(dims, a, data[KDA_BWD_CU_SEQLENS], data[KDA_BWD_K]);
    gen__kda_fill_hard(dims, options->seed, &list[KDA_BWD_K], data[KDA_BWD_K], &list[KDA_BWD_BETA],
                       data[KDA_BWD_BETA]);
    gen__kda_fill_gates(&list[KDA_BWD_G], data[KDA_BWD_G]);
    if (!data[KDA_BWD_STATES])
        return GEN_OK;
    if (data[KDA_BWD_Q] && data[KDA_BWD_K] && data[KDA_BWD_V] && data[KDA_BWD_G])
        return make_states(dims, a, data);
    draw_states(&list[KDA_BWD_STATES], options->seed, data[KDA_BWD_STATES]);
    return GEN_OK;
}

/* ---- bytes, operations, names --------------------------------------------- */

void gen__kda_bwd_cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_bwd_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    const double g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const double beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const double kept = dims[KDA_BWD_KEEP] ? 2 * tiles * d * d : 0;
    /* Inputs and outputs alone: q, k and v, d_o and the gradients; states. */
    *bytes = (double)gen__kda_tokens(dims) *
                 (dims[KDA_QK_HEADS] * 8 * d + heads * (d * (6 + 2 * g) + 2 * beta)) +
             12 * dims[KDA_BATCH] * heads * d * d + kept;
    /* In products of 64 x 64 x head_dim: 20, and 8 for what forward is rebuilt of, or 6. */
    *flops = tiles * (dims[KDA_BWD_KEEP] ? 26 : 28) * 2 * KDA_CHUNK * KDA_CHUNK * d;
}

void gen__kda_bwd_case_name(const gen_problem *base, char *text, size_t capacity)
{
    char name[96];
    gen__kda_case_name(gen__kda_bwd_dims(base), name, sizeof name);
    snprintf(text, capacity, "%s%s", name, gen__kda_bwd_dims(base)[KDA_BWD_KEEP] ? "-keep" : "");
}

/* ---- other ways to pass a problem ----------------------------------------- */

enum form {
    FORM_SOFTPLUS,
    FORM_ACTIVATED,
    FORM_SIGMOID,
    FORM_NEGATIVE,
    FORM_STRIDES,
    FORM_BARE,
    FORM_BARE_STRIDES,
    FORM_VK,
    FORM_NO_STATE,
    FORM_NO_FINAL,
    FORM_NO_SUMS,
    FORM_LOOSE,
    FORM_STRONG,
    FORM_UNIFORM_KEYS,
    NUM_FORMS
};
_Static_assert((int)NUM_FORMS == (int)GEN__KDA_BWD_NUM_FORMS, "every form has a name");
const char *const gen__kda_bwd_forms[GEN__KDA_BWD_NUM_FORMS] = {
    "softplus", "activated", "sigmoid",  "negative", "strides", "bare",   "bare_strides",
    "vk",       "no_state",  "no_final", "no_sums",  "loose",   "strong", "uniform_keys"};

static bool stride_form(const int32_t *dims, gen_kda_bwd_args *a, struct gen__tensor *t)
{
    const struct gen__kda_strides s = gen__kda_stride_form(dims);
    a->q_stride = a->k_stride = a->v_stride = s.qkv;
    a->g_stride = s.g;
    a->beta_stride = s.beta;
    a->d_o_stride = s.o;
    t[KDA_BWD_Q].count = t[KDA_BWD_K].count = s.qk_count;
    t[KDA_BWD_V].count = s.v_count;
    t[KDA_BWD_G].count = s.g_count;
    t[KDA_BWD_BETA].count = s.beta_count;
    t[KDA_BWD_D_O].count = s.o_count;
    return true;
}

/* No norm, no A_log, no bias: keys small enough. */
static bool bare_form(gen_kda_bwd_args *a, struct gen__tensor *t)
{
    a->qk_l2norm = 0;
    a->lower_bound = -0.25f;
    t[KDA_BWD_K].amount = 0.1;
    t[KDA_BWD_A_LOG].count = t[KDA_BWD_DT_BIAS].count = 0;
    t[KDA_BWD_D_A_LOG].count = t[KDA_BWD_D_DT_BIAS].count = 0;
    return true;
}

/* Gates that are given have neither a rate nor a bias. */
static void given_gates(gen_kda_bwd_args *a, struct gen__tensor *t)
{
    a->gate_form = GEN_KDA_GATE_GIVEN;
    t[KDA_BWD_A_LOG].count = t[KDA_BWD_DT_BIAS].count = 0;
    t[KDA_BWD_D_A_LOG].count = t[KDA_BWD_D_DT_BIAS].count = 0;
}

/* Where keys are alike and nothing decays, or all is gone by the next token. */
static bool hard_form(enum form form, gen_kda_bwd_args *a, struct gen__tensor *t)
{
    const struct gen__kda_hard hard = {&t[KDA_BWD_Q],      &t[KDA_BWD_K],    &t[KDA_BWD_V],
                                       &t[KDA_BWD_G],      &t[KDA_BWD_BETA], &t[KDA_BWD_A_LOG],
                                       &t[KDA_BWD_DT_BIAS]};
    given_gates(a, t);
    if (form == FORM_STRONG) {
        t[KDA_BWD_G].fill = GEN__FILL_FAMILY;
        t[KDA_BWD_G].amount = -5;
        return true;
    }
    gen__kda_uniform_keys(&hard);
    for (int i = KDA_BWD_D_Q; i < KDA_BWD_NUM_TENSORS; i++)
        t[i].tolerance = alike_tolerance;
    t[KDA_BWD_D_BETA].tolerance = alike_beta_tolerance;
    return true;
}

bool gen__kda_bwd_form(const gen_problem *base, uint32_t index, gen_args *args,
                       struct gen__tensor *t)
{
    gen_kda_bwd_args *a = (gen_kda_bwd_args *)args;
    const int32_t *dims = gen__kda_bwd_dims(base);
    switch ((enum form)index) {
    case FORM_SOFTPLUS:
        a->gate_form = GEN_KDA_GATE_SOFTPLUS;
        gen__kda_softplus_form(dims, &t[KDA_BWD_A_LOG]);
        return true;
    case FORM_ACTIVATED:
        given_gates(a, t);
        gen__kda_activated_form(dims, &t[KDA_BWD_G], &t[KDA_BWD_A_LOG], &t[KDA_BWD_DT_BIAS]);
        return true;
    case FORM_SIGMOID:
    case FORM_NEGATIVE:
        a->beta_form = index == FORM_SIGMOID ? GEN_KDA_BETA_SIGMOID : GEN_KDA_BETA_TWO_SIGMOID;
        t[KDA_BWD_BETA].fill = GEN__FILL_NORMAL;
        return true;
    case FORM_STRIDES:
        return stride_form(dims, a, t);
    case FORM_BARE:
        return bare_form(a, t);
    case FORM_BARE_STRIDES: /* only the plan itself packs q and k */
        return bare_form(a, t) && stride_form(dims, a, t);
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_NO_STATE:
        t[KDA_BWD_INITIAL_STATE].count = t[KDA_BWD_D_INITIAL_STATE].count = 0;
        t[KDA_BWD_D_FINAL_STATE].count = 0;
        return true;
    case FORM_NO_FINAL: /* and an initial state of zeros that could be another */
        t[KDA_BWD_D_FINAL_STATE].count = t[KDA_BWD_INITIAL_STATE].count = 0;
        return true;
    case FORM_NO_SUMS:
        t[KDA_BWD_D_A_LOG].count = t[KDA_BWD_D_DT_BIAS].count = 0;
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(dims, &t[KDA_BWD_CU_SEQLENS]);
    case FORM_STRONG:
    case FORM_UNIFORM_KEYS:
        return hard_form((enum form)index, a, t);
    case NUM_FORMS:
        break;
    }
    return false;
}

bool gen__kda_bwd_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                       struct gen__tensor *t)
{
    const int32_t *dims = gen__kda_bwd_dims(base);
    const int64_t width = dims[KDA_HEAD_DIM];
    (void)args;
    switch (kind) {
    case GEN__DATA_ONES:
        /* An element's terms may be a thousand times its size, or that of most others. */
        if (!dims[KDA_SAFE_GATE])
            t[KDA_BWD_D_G].tolerance = ones_gate_tolerance;
        /* fallthrough */
    case GEN__DATA_MEAN1: /* values and gradients of one sign */
        gen__data_values(kind, &t[KDA_BWD_V], width, false);
        gen__data_values(kind, &t[KDA_BWD_D_O], width, false);
        return true;
    default:
        return false;
    }
}
