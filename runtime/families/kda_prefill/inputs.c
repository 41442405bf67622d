/*
 * Kimi Delta Attention, prefill, for the tuner, the verifier and the tests: tensors,
 * other ways to pass a problem, bytes and operations.
 */
#include "families/kda/prefill.h"
#include "reference/data.h"
#include "reference/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Relative Frobenius errors against the recurrence, token by token, in double. Public
 * tests of this operator allow 0.005 of both; 0.0045 is the most that was seen of the
 * verify list. Rounded operands are off by a share of |q| |k|, not of the product, so a
 * problem of few numbers may have more: two tokens of four heads without an initial state
 * have 0.0065. A state has more, for the verifier holds single elements to 16 times that of the
 * whole's size, and nearly all of a state may be in a few channels that hardly decay. */
static const double output_tolerance = 0.005, state_tolerance = 0.0075;
/* Where keys are alike and nothing decays an update takes away nearly all of what the last ones
 * wrote: twice as much is allowed. Of bf16 0.006 was seen of the output, and 0.0076 of the state
 * behind 8,192 tokens. */
static const double correlated_tolerance = 0.01;
/* Where keys are much alike and nothing decays, each token's update takes back most of the last
 * one's, and what is rounded to 16 bits is rounded of the greater numbers. Of the verify list,
 * uniform_keys has 0.0068, mixed_keys 0.0073 and constant_beta 0.0094; without kda_intra's care for
 * alike keys the first one had 0.0087, and an inverse whose entries are rounded by themselves gave
 * 0.0093 and, of constant_beta, 0.048. */
static const double uniform_tolerance = 0.0071, alike_tolerance = 0.009, constant_tolerance = 0.015;
/* gdn_intra rounds the inverse's entries by themselves: uniform_keys has 0.0073. */
static const double scalar_uniform_tolerance = 0.008;

#define TENSOR(...) GEN__TENSOR(gen_kda_prefill_args, __VA_ARGS__)

uint32_t gen__kda_prefill_tensors(const gen_problem *base,
                                  struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const int32_t *dims = gen__kda_prefill_dims(base);
    const enum gen_dtype dtype = (enum gen_dtype)dims[KDA_DTYPE], fp32 = GEN_DTYPE_FP32;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t d = dims[KDA_HEAD_DIM], qk = tokens * dims[KDA_QK_HEADS] * d;
    const int64_t v = tokens * heads * d, states = dims[KDA_BATCH] * heads * d * d;
    const int64_t cu = dims[KDA_NUM_TOKENS] ? dims[KDA_BATCH] + 1 : 0;
    const int64_t gates = gen__kda_prefill_gates(dims, base->family);
    const enum gen_dtype state =
        gen__state_element(((const gen_kda_prefill_problem *)base)->state_dtype);
    const enum gen_dtype g = (enum gen_dtype)dims[KDA_GATE_DTYPE];
    const enum gen_dtype beta = (enum gen_dtype)dims[KDA_BETA_DTYPE];
    const struct gen__tensor list[KDA_PREFILL_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1, qk), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1, v), .cold = true},
        {TENSOR(g, g, GEN__IN, GEN__FILL_NORMAL, 1, tokens * gates), .cold = true},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_UNIFORM, 1, tokens * heads), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 1, heads)},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1, gates)},
        {TENSOR(cu_seqlens, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, cu)},
        {TENSOR(initial_state, state, GEN__IN, GEN__FILL_NORMAL, 1, states), .cold = true},
        {TENSOR(final_state, state, GEN__OUT, GEN__FILL_POISON, 0, states),
         .tolerance = state_tolerance, .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, v), .tolerance = output_tolerance,
         .cold = true},
        {TENSOR(states, dtype, GEN__OUT, GEN__FILL_POISON, 0, 0), .tolerance = state_tolerance},
        GEN__KDA_POOL_TENSORS(gen_kda_prefill_args, state, state_tolerance),
    };
    memcpy(tensors, list, sizeof list);
    return KDA_PREFILL_NUM_TENSORS;
}

#undef TENSOR

void gen__kda_prefill_default_args(const gen_problem *base, gen_args *args)
{
    gen_kda_prefill_args *a = (gen_kda_prefill_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = base->family;
    a->scale = 1.0f / sqrtf((float)gen__kda_prefill_dims(base)[KDA_HEAD_DIM]);
    a->gate_form =
        gen__kda_prefill_scalar(base->family) ? GEN_KDA_GATE_SOFTPLUS : GEN_KDA_GATE_LOWER_BOUND;
    a->lower_bound = -5.0f;
    a->qk_l2norm = 1;
    a->state_layout = GEN_KDA_STATE_KV;
}

/* NaN in the first head of every second sequence that has tokens: of one's values, of the next
 * one's keys. */
static void poison_sequences(const int32_t *dims, const gen_kda_prefill_args *a,
                             const int32_t *cu_seqlens, uint16_t *k, uint16_t *v)
{
    const int64_t width = dims[KDA_HEAD_DIM];
    const int64_t k_row = a->k_stride ? a->k_stride : dims[KDA_QK_HEADS] * width;
    const int64_t v_row = a->v_stride ? a->v_stride : dims[KDA_V_HEADS] * width;
    int64_t seen = 0;
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        seen += s.length > 0;
        uint16_t *const to = seen % 4 ? v : k;
        const int64_t row = seen % 4 ? v_row : k_row;
        for (int64_t i = 0; i < s.length * width && seen % 2 == 0; i++)
            to[(s.first + i / width) * row + i % width] = 0x7fff; /* of either type */
    }
}

static const struct gen__kda_pool_places places = {KDA_PREFILL_INITIAL_STATE,
                                                   KDA_PREFILL_FINAL_STATE, KDA_PREFILL_CU_SEQLENS,
                                                   KDA_PREFILL_CKPT_POOL};

enum gen_status gen__kda_prefill_fill(const gen_problem *base, const gen_args *args,
                                      const struct gen__tensor *list,
                                      const struct gen__fill_options *options, void *const *data)
{
    gen__kda_fill(gen__kda_prefill_dims(base), &list[KDA_PREFILL_CU_SEQLENS], options,
                  data[KDA_PREFILL_CU_SEQLENS]);
    if (options->poisoned && data[KDA_PREFILL_K] && data[KDA_PREFILL_V])
        poison_sequences(gen__kda_prefill_dims(base), (const gen_kda_prefill_args *)args,
                         data[KDA_PREFILL_CU_SEQLENS], data[KDA_PREFILL_K], data[KDA_PREFILL_V]);
    gen__kda_fill_hard(gen__kda_prefill_dims(base), options->seed, &list[KDA_PREFILL_K],
                       data[KDA_PREFILL_K], &list[KDA_PREFILL_BETA], data[KDA_PREFILL_BETA]);
    gen__kda_fill_gates(&list[KDA_PREFILL_G], data[KDA_PREFILL_G]);
    gen__kda_fill_pools(gen__kda_prefill_dims(base), &places,
                        &((const gen_kda_prefill_args *)args)->pools, list, options, data);
    return GEN_OK;
}

void gen__kda_prefill_cost(const gen_problem *base, double *bytes, double *flops)
{
    const int32_t *dims = gen__kda_prefill_dims(base);
    const double d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const double tiles = (double)gen__kda_all_chunks(dims) * heads;
    const double g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const double beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const double gates = (double)gen__kda_prefill_gates(dims, base->family);
    /* Inputs and outputs alone. */
    *bytes = (double)gen__kda_tokens(dims) *
                 (dims[KDA_QK_HEADS] * 4 * d + heads * (d * 4 + beta) + gates * g) +
             8 * dims[KDA_BATCH] * heads * d * d;
    *flops = tiles * (10 * 256 * d * 2 * 4 + 2 * 64 * 64 * 16 + 3 * 2 * KDA_CHUNK * d * d +
                      2 * KDA_CHUNK * KDA_CHUNK * d);
}

void gen__kda_prefill_case_name(const gen_problem *base, char *text, size_t capacity)
{
    char name[96];
    const int32_t wanted = gen__kda_prefill_wanted(base);
    gen__kda_case_name(gen__kda_prefill_dims(base), name, sizeof name);
    if (wanted > 0)
        snprintf(text, capacity, "%s-S%" PRId32, name, wanted);
    else
        snprintf(text, capacity, "%s%s", name, wanted ? "-whole" : "");
}

enum form {
    FORM_SOFTPLUS,
    FORM_ACTIVATED,
    FORM_SIGMOID,
    FORM_NEGATIVE,
    FORM_STRIDES,
    FORM_BARE,
    FORM_VK,
    FORM_NO_STATE,
    FORM_LOOSE,
    FORM_SLOW,
    FORM_STATES,
    FORM_IDENTITY,
    FORM_UNIFORM_KEYS,
    FORM_CONSTANT_KEYS,
    FORM_CONSTANT_BETA,
    FORM_LARGE_KEYS,
    FORM_MIXED_KEYS,
    FORM_STEEP_KEYS,
    FORM_CHECKPOINTS_VK,
    FORM_POOLS, /* and the others of pools */
    NUM_FORMS = FORM_POOLS + GEN__KDA_POOL_NUM_FORMS
};
_Static_assert((int)NUM_FORMS == (int)GEN__KDA_PREFILL_NUM_FORMS, "every form has a name");
const char *const gen__kda_prefill_forms[GEN__KDA_PREFILL_NUM_FORMS] = {
    "softplus",     "activated",     "sigmoid",        "negative",   "strides",    "bare",
    "vk",           "no_state",      "loose",          "slow",       "states",     "identity",
    "uniform_keys", "constant_keys", "constant_beta",  "large_keys", "mixed_keys", "steep_keys",
    "slots",        "checkpoints",   "checkpoints_vk", "in_place",   "regular"};

static void stride_form(const int32_t *dims, gen_kda_prefill_args *a, struct gen__tensor *t)
{
    const struct gen__kda_strides s = gen__kda_stride_form(dims);
    a->q_stride = a->k_stride = a->v_stride = s.qkv;
    a->g_stride = s.g;
    a->beta_stride = s.beta;
    a->o_stride = s.o;
    t[KDA_PREFILL_Q].count = t[KDA_PREFILL_K].count = s.qk_count;
    t[KDA_PREFILL_V].count = s.v_count;
    t[KDA_PREFILL_G].count = s.g_count;
    t[KDA_PREFILL_BETA].count = s.beta_count;
    t[KDA_PREFILL_O].count = s.o_count;
    if (gen__kda_prefill_scalar(a->base.family)) { /* as beta, but for a type of its own */
        a->g_stride = s.beta;
        t[KDA_PREFILL_G].count = s.beta_count;
    }
}

/* Keys, gates and steps on which small errors add up or terms cancel. */
static bool hard_form(const gen_problem *base, enum form form, gen_kda_prefill_args *a,
                      struct gen__tensor *t)
{
    const int32_t *dims = gen__kda_prefill_dims(base);
    const struct gen__kda_hard hard = {
        &t[KDA_PREFILL_Q],    &t[KDA_PREFILL_K],     &t[KDA_PREFILL_V],      &t[KDA_PREFILL_G],
        &t[KDA_PREFILL_BETA], &t[KDA_PREFILL_A_LOG], &t[KDA_PREFILL_DT_BIAS]};
    switch (form) {
    case FORM_IDENTITY:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_no_gates(&hard);
        t[KDA_PREFILL_BETA].amount = 0; /* so a state comes back to the last bit */
        t[KDA_PREFILL_FINAL_STATE].tolerance = 0;
        return true;
    case FORM_UNIFORM_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_uniform_keys(&hard);
        t[KDA_PREFILL_O].tolerance =
            gen__kda_prefill_scalar(base->family) ? scalar_uniform_tolerance : uniform_tolerance;
        return true;
    case FORM_CONSTANT_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_constant_keys(&hard);
        t[KDA_PREFILL_O].tolerance = t[KDA_PREFILL_FINAL_STATE].tolerance = constant_tolerance;
        return true;
    case FORM_CONSTANT_BETA:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_constant_beta(&hard);
        t[KDA_PREFILL_O].tolerance = constant_tolerance;
        return true;
    case FORM_LARGE_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        return gen__kda_large_keys(dims, &hard);
    case FORM_MIXED_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        t[KDA_PREFILL_O].tolerance = alike_tolerance;
        return gen__kda_mixed_keys(dims, &hard);
    case FORM_STEEP_KEYS:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        a->qk_l2norm = 0;
        t[KDA_PREFILL_O].tolerance = t[KDA_PREFILL_FINAL_STATE].tolerance = constant_tolerance;
        return gen__kda_steep_keys(dims, &hard);
    default:
        return false;
    }
}

static bool pool_form(const gen_problem *base, enum form form, gen_kda_prefill_args *a,
                      struct gen__tensor *t)
{
    if (!((const gen_kda_prefill_problem *)base)->state_pool)
        return false;
    if (form == FORM_CHECKPOINTS_VK)
        a->state_layout = GEN_KDA_STATE_VK;
    gen__kda_pool_form(gen__kda_prefill_dims(base),
                       form == FORM_CHECKPOINTS_VK ? GEN__KDA_POOL_CHECKPOINTS
                                                   : (enum gen__kda_pool_form)(form - FORM_POOLS),
                       &places, &a->pools, t);
    return true;
}

bool gen__kda_prefill_form(const gen_problem *base, uint32_t index, gen_args *args,
                           struct gen__tensor *t)
{
    gen_kda_prefill_args *a = (gen_kda_prefill_args *)args;
    const int32_t *dims = gen__kda_prefill_dims(base);
    switch ((enum form)index) {
    case FORM_SOFTPLUS:
        a->gate_form = GEN_KDA_GATE_SOFTPLUS;
        gen__kda_softplus_form(gen__kda_prefill_dims(base), &t[KDA_PREFILL_A_LOG]);
        return true;
    case FORM_ACTIVATED:
        a->gate_form = GEN_KDA_GATE_GIVEN;
        gen__kda_activated_form(gen__kda_prefill_dims(base), &t[KDA_PREFILL_G],
                                &t[KDA_PREFILL_A_LOG], &t[KDA_PREFILL_DT_BIAS]);
        return true;
    case FORM_SIGMOID:
    case FORM_NEGATIVE:
        a->beta_form = index == FORM_SIGMOID ? GEN_KDA_BETA_SIGMOID : GEN_KDA_BETA_TWO_SIGMOID;
        t[KDA_PREFILL_BETA].fill = GEN__FILL_NORMAL;
        return true;
    case FORM_STRIDES:
        stride_form(gen__kda_prefill_dims(base), a, t);
        return true;
    case FORM_BARE: /* no norm, no A_log, no bias: keys small enough */
        a->qk_l2norm = 0;
        a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
        a->lower_bound = -0.25f;
        t[KDA_PREFILL_K].amount = 0.1;
        t[KDA_PREFILL_A_LOG].count = t[KDA_PREFILL_DT_BIAS].count = 0;
        return true;
    case FORM_VK:
        a->state_layout = GEN_KDA_STATE_VK;
        return true;
    case FORM_NO_STATE:
        t[KDA_PREFILL_INITIAL_STATE].count = t[KDA_PREFILL_FINAL_STATE].count = 0;
        return true;
    case FORM_LOOSE:
        return gen__kda_loose_form(gen__kda_prefill_dims(base), &t[KDA_PREFILL_CU_SEQLENS]);
    case FORM_SLOW: /* states that hardly change, so that what each step rounds adds up */
        a->gate_form = GEN_KDA_GATE_GIVEN;
        t[KDA_PREFILL_BETA].amount = 0.02;
        t[KDA_PREFILL_G].fill = GEN__FILL_UNIFORM;
        t[KDA_PREFILL_G].amount = -0.001;
        t[KDA_PREFILL_A_LOG].count = t[KDA_PREFILL_DT_BIAS].count = 0;
        return true;
    case FORM_STATES:
        t[KDA_PREFILL_STATES].count = gen__kda_states_count(dims);
        return true;
    default:
        if (index >= FORM_CHECKPOINTS_VK)
            return pool_form(base, (enum form)index, a, t);
        return hard_form(base, (enum form)index, a, t);
    }
}

bool gen__kda_prefill_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                           struct gen__tensor *t)
{
    const int64_t width = gen__kda_prefill_dims(base)[KDA_HEAD_DIM];
    (void)args;
    if (kind != GEN__DATA_EXTREME) /* keys are normalized: nothing is to be taken back */
        gen__data_queries(kind, &t[KDA_PREFILL_Q], t[KDA_PREFILL_K].dtype, width);
    gen__data_keys(kind, &t[KDA_PREFILL_K], width);
    gen__data_values(kind, &t[KDA_PREFILL_V], width, false);
    gen__data_gates(kind, &t[KDA_PREFILL_G], &t[KDA_PREFILL_BETA]);
    if (kind == GEN__DATA_CORRELATED)
        t[KDA_PREFILL_O].tolerance = t[KDA_PREFILL_FINAL_STATE].tolerance = correlated_tolerance;
    return true;
}

void gen__kda_prefill_set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS])
{
    if (gen__kda_set_counts(counts, GEN__KDA_DIMS_OF(gen_kda_prefill_problem, base)))
        ((gen_kda_prefill_problem *)base)->segment_chunks = 0;
}
