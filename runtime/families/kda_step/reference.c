/*
 * A decode step of KDA or Gated DeltaNet in plain C: what the kernels are compared with, what the
 * maths is (api.h), and the backend where there is no GPU.
 *
 * Everything between load and store is double: a state is rounded where it goes to the pool, an
 * output once. Windows are copied as they are.
 */
#include "families/kda/step.h"
#include "reference/half.h"
#include "reference/state.h"

#include <math.h>
#include <string.h>

#define D KDA_STEP_HEAD_DIM
#define NORM_EPSILON 1e-6
#define SOFTPLUS_THRESHOLD 20

/* The shape of one call. */
struct shape {
    int64_t batch, num_qk_heads, num_v_heads, channels;
    struct gen__kda_step_strides stride;
    enum gen_dtype dtype, gate_dtype, beta_dtype;
    int32_t state_dtype;
    bool scalar;
};

/* One value head's inputs, activated; q is scaled. */
struct token {
    double q[D], k[D], decay[D], v[D];
    double beta;
};

static struct shape shape_of(const gen_plan *plan, const gen_kda_step_args *args)
{
    const int32_t *dims = plan->dims;
    return (struct shape){
        .batch = dims[KDA_STEP_BATCH],
        .num_qk_heads = dims[KDA_STEP_QK_HEADS],
        .num_v_heads = dims[KDA_STEP_V_HEADS],
        .channels = gen__kda_step_channels(dims),
        .stride = gen__kda_step_strides(dims, args),
        .dtype = (enum gen_dtype)dims[KDA_STEP_DTYPE],
        .gate_dtype = (enum gen_dtype)dims[KDA_STEP_GATE_DTYPE],
        .beta_dtype = (enum gen_dtype)dims[KDA_STEP_BETA_DTYPE],
        .state_dtype = dims[KDA_STEP_STATE_DTYPE],
        .scalar = gen__kda_step_scalar(args->base.family),
    };
}

static double load(enum gen_dtype dtype, const void *tensor, int64_t i)
{
    if (dtype == GEN_DTYPE_FP32)
        return (double)((const float *)tensor)[i];
    const uint16_t bits = ((const uint16_t *)tensor)[i];
    return dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(bits) : gen__bf16_to_double(bits);
}

static void put(enum gen_dtype dtype, void *tensor, int64_t i, double x)
{
    ((uint16_t *)tensor)[i] =
        dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

/* ---- the convolution ----------------------------------------------------- */

/* The window of a channel in the pool: its first input, and the distance to the next. */
static uint16_t *window_of(const struct shape *s, const gen_kda_step_args *args, int64_t slot,
                           int64_t channel, int64_t *next)
{
    const bool rows_first = args->conv_layout == GEN_KDA_CONV_SD;
    *next = rows_first ? s->channels : 1;
    return (uint16_t *)args->conv_state + slot * s->stride.conv_state +
           channel * (rows_first ? 1 : args->conv_width - 1);
}

/* Channel i of a part (q, k, v), activated. */
static double convolve(const struct shape *s, const gen_kda_step_args *args, int64_t row,
                       int64_t slot, int64_t part, int64_t i)
{
    const int64_t channel = part * s->num_qk_heads * D + i;
    const int64_t past = args->conv_width - 1;
    const float *w = args->conv_w + part * s->stride.conv_w_part + i;
    int64_t next;
    const uint16_t *window = window_of(s, args, slot, channel, &next);
    double y = args->conv_bias ? (double)args->conv_bias[channel] : 0;
    for (int64_t tap = 0; tap < past; tap++)
        y += (double)w[tap * s->stride.conv_w_tap] * load(s->dtype, window, tap * next);
    y += (double)w[past * s->stride.conv_w_tap] *
         load(s->dtype, args->x, row * s->stride.x + channel);
    return y / (1 + exp(-y));
}

static void move_windows(const struct shape *s, const gen_kda_step_args *args, int64_t row,
                         int64_t slot)
{
    for (int64_t channel = 0; channel < s->channels; channel++) {
        int64_t next;
        uint16_t *window = window_of(s, args, slot, channel, &next);
        for (int32_t tap = 0; tap + 2 < args->conv_width; tap++)
            window[tap * next] = window[(tap + 1) * next];
        window[(args->conv_width - 2) * next] =
            ((const uint16_t *)args->x)[row * s->stride.x + channel];
    }
}

/* ---- activations ------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The logarithm of the decay. */
static double gate_of(const gen_kda_step_args *args, double gate, double bias, double a_log)
{
    const double x = gate + bias;
    if (args->gate_form == GEN_KDA_GATE_GIVEN)
        return gate;
    if (args->gate_form == GEN_KDA_GATE_LOWER_BOUND)
        return (double)args->lower_bound * sigmoid(exp(a_log) * x);
    return -exp(a_log) * (x > SOFTPLUS_THRESHOLD ? x : log1p(exp(x)));
}

static double beta_of(const gen_kda_step_args *args, double x)
{
    if (args->beta_form == GEN_KDA_BETA_GIVEN)
        return x;
    return (args->beta_form == GEN_KDA_BETA_TWO_SIGMOID ? 2 : 1) * sigmoid(x);
}

static void normalise(double x[D], double factor)
{
    double squares = 0;
    for (int64_t i = 0; i < D; i++)
        squares += x[i] * x[i];
    for (int64_t i = 0; i < D; i++)
        x[i] *= factor / sqrt(squares + NORM_EPSILON);
}

static void load_token(const struct shape *s, const gen_kda_step_args *args, int64_t row,
                       int64_t slot, int64_t hv, struct token *in)
{
    const int64_t qh = hv / (s->num_v_heads / s->num_qk_heads);
    const double a_log = args->A_log ? (double)args->A_log[hv] : 0;
    for (int64_t i = 0; i < D; i++) {
        const int64_t at = s->scalar ? hv : hv * D + i;
        const double gate = load(s->gate_dtype, args->gate, row * s->stride.gate + at);
        const double bias = args->dt_bias ? (double)args->dt_bias[at] : 0;
        in->q[i] = convolve(s, args, row, slot, 0, qh * D + i);
        in->k[i] = convolve(s, args, row, slot, 1, qh * D + i);
        in->v[i] = convolve(s, args, row, slot, 2, hv * D + i);
        in->decay[i] = exp(gate_of(args, gate, bias, a_log));
    }
    normalise(in->q, (double)args->scale);
    normalise(in->k, 1);
    in->beta = beta_of(args, load(s->beta_dtype, args->beta, row * s->stride.beta + hv));
}

/* ---- the recurrence, and the norm ------------------------------------------ */

/* One row of the state: all k of one v. */
static double advance(const struct token *in, int64_t v, double row[D])
{
    double predicted = 0, o = 0;
    for (int64_t k = 0; k < D; k++) {
        row[k] *= in->decay[k];
        predicted += in->k[k] * row[k];
    }
    const double correction = in->beta * (in->v[v] - predicted);
    for (int64_t k = 0; k < D; k++) {
        row[k] += in->k[k] * correction;
        o += in->q[k] * row[k];
    }
    return o;
}

static void gate_output(const struct shape *s, const gen_kda_step_args *args, int64_t row,
                        int64_t hv, double o[D])
{
    double squares = 0;
    for (int64_t v = 0; v < D; v++)
        squares += o[v] * o[v];
    for (int64_t v = 0; v < D; v++) {
        const double z = load(s->dtype, args->z, row * s->stride.z + hv * D + v);
        o[v] *= (double)args->norm_w[v] / sqrt(squares / D + (double)args->eps) * sigmoid(z) *
                (args->z_form == GEN_KDA_Z_SILU ? z : 1);
    }
}

static void step_head(const struct shape *s, const gen_kda_step_args *args, int64_t row,
                      int64_t slot, int64_t hv, double *exact)
{
    struct token in;
    double o[D], state[D];
    load_token(s, args, row, slot, hv, &in);
    for (int64_t v = 0; v < D; v++) {
        const int64_t at = slot * s->stride.state + (hv * D + v) * D;
        for (int64_t k = 0; k < D; k++)
            state[k] = gen__state_get(s->state_dtype, args->state, at + k);
        o[v] = advance(&in, v, state);
        for (int64_t k = 0; k < D; k++)
            gen__state_put(s->state_dtype, args->state, at + k, state[k]);
    }
    if (args->norm_w)
        gate_output(s, args, row, hv, o);
    for (int64_t v = 0; v < D; v++) {
        const int64_t at = row * s->stride.out + hv * D + v;
        put(s->dtype, args->out, at, o[v]);
        if (exact)
            exact[at] = o[v];
    }
}

static void zero_row(const struct shape *s, const gen_kda_step_args *args, int64_t row,
                     double *exact)
{
    for (int64_t i = 0; i < s->num_v_heads * D; i++) {
        ((uint16_t *)args->out)[row * s->stride.out + i] = 0;
        if (exact)
            exact[row * s->stride.out + i] = 0;
    }
}

enum gen_status gen__kda_step_exact(const gen_plan *plan, const gen_args *base,
                                    double *const *exact)
{
    const gen_kda_step_args *args = (const gen_kda_step_args *)base;
    const struct shape s = shape_of(plan, args);
    for (int64_t row = 0; row < s.batch; row++) {
        const int64_t slot = args->slots ? args->slots[row] : row;
        if (slot < 0 || slot >= args->num_slots || slot == (int64_t)args->null_slot - 1) {
            if (args->zero_padding)
                zero_row(&s, args, row, exact[KDA_STEP_OUT]);
            continue;
        }
        for (int64_t hv = 0; hv < s.num_v_heads; hv++)
            step_head(&s, args, row, slot, hv, exact[KDA_STEP_OUT]);
        if (args->conv_state_update)
            move_windows(&s, args, row, slot);
    }
    return GEN_OK;
}

enum gen_status gen__kda_step_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[KDA_STEP_NUM_TENSORS] = {NULL};
    return gen__kda_step_exact(plan, base, none);
}
