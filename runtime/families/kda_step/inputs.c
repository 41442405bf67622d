/*
 * Problems of kda_step and gdn_step for the tuner, the verifier and the tests: which tensors they
 * have, and what stands in them. By default all is as a layer of Kimi Linear has it (of gdn_step:
 * of Qwen3-Next): four taps, gates activated in the kernel, a norm with a gate. forms.c has other
 * ways.
 */
#include "families/kda/step.h"
#include "reference/data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots of default_args() beyond those that are named: a test sees there whether a kernel strays.
 */
#define EXTRA_SLOTS 3
#define D KDA_STEP_HEAD_DIM

static int64_t channels_of(const gen_kda_step_problem *p)
{
    return (2 * (int64_t)p->num_qk_heads + p->num_v_heads) * D;
}

static enum gen_dtype state_element(const gen_kda_step_problem *p)
{
    return p->state_dtype == GEN_STATE_FP32   ? GEN_DTYPE_FP32
           : p->state_dtype == GEN_STATE_FP16 ? GEN_DTYPE_FP16
                                              : GEN_DTYPE_BF16;
}

/* ---- tensors ----------------------------------------------------------- */

/* Greatest relative Frobenius errors.
 *
 * Output: one rounding to nearest with p significant bits is off by at most 2^-p of the value, p =
 * 8 for bf16 and 11 for fp16; what fp32 adds before it is the verifier's slack for outputs that are
 * rounded once.
 *
 * State of fp32: sums of 4 and of 128 terms and the activations in fp32; a GPU's exponentials are
 * off by two units in the last place, and there are three on the way to a decay or a value. Of 16
 * bits: its own rounding.
 */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double fp32_tolerance = 4e-6;

static double tolerance_of(enum gen_dtype dtype)
{
    return dtype == GEN_DTYPE_FP32   ? fp32_tolerance
           : dtype == GEN_DTYPE_FP16 ? fp16_tolerance
                                     : bf16_tolerance;
}

#define TENSOR(...) GEN__TENSOR(gen_kda_step_args, __VA_ARGS__)

uint32_t gen__kda_step_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, fp32 = GEN_DTYPE_FP32;
    const enum gen_dtype gate = (enum gen_dtype)p->gate_dtype, beta = (enum gen_dtype)p->beta_dtype;
    const enum gen_dtype state = state_element(p);
    const bool scalar = gen__kda_step_scalar(p->base.family);
    const int64_t rows = p->batch, heads = rows ? p->num_v_heads : 0, v = rows * p->num_v_heads * D;
    const int64_t channels = channels_of(p), all = rows ? channels : 0, norms = rows ? D : 0;
    const int64_t slots = rows + EXTRA_SLOTS, gates = scalar ? 1 : D;
    const struct gen__tensor list[KDA_STEP_NUM_TENSORS] = {
        {TENSOR(x, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, rows * channels), .cold = true},
        {TENSOR(conv_w, fp32, GEN__IN, GEN__FILL_NORMAL, 0.5, 4 * all), .cold = true},
        {TENSOR(conv_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 0.2, all), .cold = true},
        {TENSOR(conv_state, dtype, GEN__INOUT, GEN__FILL_NORMAL, 1.0, slots * 3 * channels),
         .absolute = 1e-30, .cold = true},
        {TENSOR(gate, gate, GEN__IN, GEN__FILL_NORMAL, 2.0, rows * p->num_v_heads * gates),
         .cold = true},
        {TENSOR(beta, beta, GEN__IN, GEN__FILL_NORMAL, 1.0, rows * p->num_v_heads), .cold = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 0.5, heads), .cold = true},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1.0, heads * gates), .cold = true},
        {TENSOR(z, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, v), .cold = true},
        {TENSOR(norm_w, fp32, GEN__IN, GEN__FILL_NORMAL, 0.3, norms), .mean = 1, .cold = true},
        {TENSOR(state, state, GEN__INOUT, GEN__FILL_NORMAL, 0.3, slots * p->num_v_heads * D * D),
         .tolerance = tolerance_of(state), .cold = true},
        {TENSOR(slots, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_SLOTS, (double)slots, rows),
         .cold = true},
        {TENSOR(out, dtype, GEN__OUT, GEN__FILL_POISON, 0.0, v), .tolerance = tolerance_of(dtype),
         .rounded_once = true},
    };
    memcpy(tensors, list, sizeof list);
    return KDA_STEP_NUM_TENSORS;
}

#undef TENSOR

void gen__kda_step_default_args(const gen_problem *base, gen_args *args)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    const bool scalar = gen__kda_step_scalar(p->base.family);
    *(gen_kda_step_args *)args = (gen_kda_step_args){
        .base = {sizeof(gen_kda_step_args), p->base.family},
        .num_slots = p->batch + EXTRA_SLOTS,
        .conv_width = GEN_KDA_STEP_MAX_WIDTH,
        .conv_state_update = 1,
        .gate_form = scalar ? GEN_KDA_GATE_SOFTPLUS : GEN_KDA_GATE_LOWER_BOUND,
        .beta_form = GEN_KDA_BETA_SIGMOID,
        .z_form = scalar ? GEN_KDA_Z_SILU : GEN_KDA_Z_SIGMOID,
        .scale = 1.0f / sqrtf(D),
        .lower_bound = -5.0f,
        .eps = 1e-5f,
    };
}

/* ---- what stands in them ----------------------------------------------- */

static void put_nan(enum gen_dtype dtype, void *tensor, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++) {
        if (dtype == GEN_DTYPE_FP32)
            ((float *)tensor)[i] = NAN;
        else
            ((uint16_t *)tensor)[i] = 0x7fff; /* of both types */
    }
}

static bool in_pool(const gen_kda_step_args *a, int64_t slot)
{
    return slot >= 0 && slot < a->num_slots && slot != (int64_t)a->null_slot - 1;
}

/* What is not finite of a state becomes so. */
static void mend(enum gen_dtype dtype, void *tensor, int64_t first, int64_t count)
{
    float *const x = (float *)tensor + first;
    for (int64_t i = 0; i < count && dtype == GEN_DTYPE_FP32; i++)
        x[i] = isfinite(x[i]) ? x[i] : 0.25f;
}

/* NaN in the slots that no row names and between slots, which may not be read. */
static bool poison_unused(const gen_kda_step_problem *p, const gen_kda_step_args *a,
                          const struct gen__tensor *tensors, void *const *data)
{
    int32_t dims[KDA_STEP_NUM_DIMS];
    memcpy(dims, &p->batch, sizeof dims);
    const struct gen__kda_step_strides s = gen__kda_step_strides(dims, a);
    const int32_t *slots = data[KDA_STEP_SLOTS];
    uint8_t *used = calloc((size_t)a->num_slots, 1);
    if (!used)
        return false;
    for (int64_t row = 0; row < p->batch; row++) {
        const int64_t slot = slots ? slots[row] : row;
        if (in_pool(a, slot))
            used[slot] = 1;
    }
    for (int64_t slot = 0; slot < a->num_slots; slot++) {
        const int64_t last = slot + 1 == a->num_slots;
        const int64_t state = used[slot] ? s.state_slot : 0, conv = used[slot] ? s.conv_slot : 0;
        mend(tensors[KDA_STEP_STATE].dtype, data[KDA_STEP_STATE], slot * s.state, state);
        put_nan(tensors[KDA_STEP_STATE].dtype, data[KDA_STEP_STATE], slot * s.state + state,
                (last ? s.state_slot : s.state) - state);
        put_nan(tensors[KDA_STEP_CONV_STATE].dtype, data[KDA_STEP_CONV_STATE],
                slot * s.conv_state + conv, (last ? s.conv_slot : s.conv_state) - conv);
    }
    free(used);
    return true;
}

/* NaN in the first head of the first row's state. */
static void poison_first(const gen_kda_step_problem *p, const gen_kda_step_args *a,
                         const struct gen__tensor *tensors, void *const *data)
{
    int32_t dims[KDA_STEP_NUM_DIMS];
    memcpy(dims, &p->batch, sizeof dims);
    const int64_t slot = data[KDA_STEP_SLOTS] ? ((const int32_t *)data[KDA_STEP_SLOTS])[0] : 0;
    if (p->batch && in_pool(a, slot))
        put_nan(tensors[KDA_STEP_STATE].dtype, data[KDA_STEP_STATE],
                slot * gen__kda_step_strides(dims, a).state, INT64_C(1) * D * D);
}

enum gen_status gen__kda_step_fill(const gen_problem *base, const gen_args *args,
                                   const struct gen__tensor *tensors,
                                   const struct gen__fill_options *options, void *const *data)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    const gen_kda_step_args *a = (const gen_kda_step_args *)args;
    if (!data[KDA_STEP_STATE] || !data[KDA_STEP_CONV_STATE])
        return GEN_OK;
    if (options->poisoned)
        poison_first(p, a, tensors, data);
    if (options->non_finite && !poison_unused(p, a, tensors, data))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to mark %" PRId32 " slots",
                         gen__kda_step_name(a->base.family), a->num_slots);
    return GEN_OK;
}

/* Queries, keys and values are parts of one tensor: the kinds that move all of it alike. */
bool gen__kda_step_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                        struct gen__tensor *t)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    struct gen__tensor *const x = &t[KDA_STEP_X], *const past = &t[KDA_STEP_CONV_STATE];
    (void)args;
    gen__data_gates(kind, &t[KDA_STEP_GATE], &t[KDA_STEP_BETA]);
    switch (kind) {
    case GEN__DATA_ONES:
    case GEN__DATA_MEAN1:
        gen__data_values(kind, x, D, false);
        gen__data_values(kind, past, D, false);
        return true;
    case GEN__DATA_CONSTANT:
    case GEN__DATA_CORRELATED:
        gen__data_keys(kind, x, channels_of(p));
        gen__data_keys(kind, past, channels_of(p));
        return true;
    case GEN__DATA_EXTREME: /* what SiLU lets through is as great as the type has it */
        x->amount = past->amount = gen__data_extreme(x->dtype) / GEN__DATA_MOST_NORMAL;
        return true;
    default:
        return false;
    }
}

/* ---- what it costs, what it is called ---------------------------------- */

/* A state and its windows read and written; gate, z, out, x, beta once; weights once. */
void gen__kda_step_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    const double rows = p->batch, heads = p->num_v_heads, states = rows * heads;
    const double gates = gen__kda_step_scalar(p->base.family) ? heads : heads * D;
    const double gate = (double)gen__kda_step_side_bytes(p->gate_dtype);
    const double beta = (double)gen__kda_step_side_bytes(p->beta_dtype);
    const double element = p->state_dtype == GEN_STATE_FP32 ? 4 : 2;
    const double channels = (double)channels_of(p);
    *bytes = states * (2 * element * D * D + 2 * 2 * D + beta) + rows * gates * gate +
             rows * channels * 2 * (3 + 3 + 1) +
             (p->batch ? 4 * (gates + heads + D + 5 * channels) : 0);
    /* An element: the decay, two dot products, the update. A channel: the taps and SiLU. */
    *flops = states * 7 * D * D + rows * channels * 12;
}

/* "N128-H12". What is not said there adds a word, so that no case is taken for another. */
void gen__kda_step_case_name(const gen_problem *base, char *text, size_t capacity)
{
    static const char *const states[] = {"", "-sbf16", "-sfp16"};
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    char heads[24] = "";
    if (p->num_v_heads != p->num_qk_heads)
        snprintf(heads, sizeof heads, "-HV%" PRId32, p->num_v_heads);
    snprintf(text, capacity, "N%" PRId32 "-H%" PRId32 "%s%s%s%s%s", p->batch, p->num_qk_heads,
             heads, states[p->state_dtype], p->dtype == GEN_DTYPE_FP16 ? "-fp16" : "",
             p->gate_dtype == GEN_DTYPE_FP32 ? "-g32" : "",
             p->beta_dtype == GEN_DTYPE_FP32 ? "-b32" : "");
}
