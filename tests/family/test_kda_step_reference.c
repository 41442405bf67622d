/*
 * The reference of kda_step and gdn_step against cases computed by hand, against the convolution of
 * whole sequences and the recurrence behind it, and what it must leave alone.
 */
#include "kda_step.h"
#include "reference/state.h"

#include <math.h>

#define D 128

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

/* ---- by hand ----------------------------------------------------------- */

/* One row and head, every tensor zero but what the test sets; nothing is activated but by SiLU. */
static void open_zero(struct step_call *c)
{
    gen_kda_step_problem p = step_problem(1, 1, 1);
    p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
    assert_true(step_open(c, p, -1));
    for (uint32_t t = 0; t < KDA_STEP_NUM_TENSORS; t++)
        if (t != KDA_STEP_SLOTS && c->data[t])
            memset(c->data[t], 0, c->tensor[t].count * element_size(c->tensor[t].dtype));
    *(int32_t *)c->data[KDA_STEP_SLOTS] = 2;
    c->args.gate_form = GEN_KDA_GATE_GIVEN;
    c->args.beta_form = GEN_KDA_BETA_GIVEN;
    c->args.A_log = c->args.dt_bias = NULL;
    c->args.z = NULL, c->args.norm_w = NULL;
    c->args.scale = 1;
}

/*
 * Channel 5 of q and of k alone, all of v. k: taps 1, 2, 4, 8 of a window 1, 1/2, 1/4 and x = 1/8:
 * y = 4, normalised 1 but for the 1e-6. v: bias 2, so v = silu(2). With a state of 3 in channel 5,
 * a decay of 1/2 and beta of 1/2: e = v - 3/2, the state becomes 3/2 + e/2, and so does o.
 */
static void a_step_by_hand(void **state)
{
    (void)state;
    struct step_call c;
    open_zero(&c);
    float *w = c.data[KDA_STEP_CONV_W], *bias = c.data[KDA_STEP_CONV_BIAS];
    float *s = c.data[KDA_STEP_STATE];
    uint16_t *window = c.data[KDA_STEP_CONV_STATE];
    const int64_t slot = 2, channels = 3 * D, at_q = 5, at_k = D + 5;
    for (int64_t tap = 0; tap < 4; tap++)
        w[tap * channels + at_k] = (float)(1 << tap);
    for (int64_t tap = 0; tap < 3; tap++)
        element_put(GEN_DTYPE_BF16, window, (slot * 3 + tap) * channels + at_k, 1.0 / (1 << tap));
    element_put(GEN_DTYPE_BF16, c.data[KDA_STEP_X], at_k, 0.125);
    bias[at_q] = 3;
    for (int64_t v = 0; v < D; v++) {
        bias[2 * D + v] = 2;
        s[(slot * D + v) * D + 5] = 3;
        s[(slot * D + v) * D + 6] = 7; /* not decayed, and not seen */
    }
    *(float *)c.data[KDA_STEP_BETA] = 0.5f;
    ((float *)c.data[KDA_STEP_GATE])[5] = (float)log(0.5);
    step_run(&c);
    const double k = silu(4) / sqrt(silu(4) * silu(4) + 1e-6);
    const double q = silu(3) / sqrt(silu(3) * silu(3) + 1e-6);
    const double e = silu(2) - 1.5 * k, wanted = 1.5 + 0.5 * k * e;
    for (int64_t v = 0; v < D; v++) {
        assert_true(fabs((double)s[(slot * D + v) * D + 5] - wanted) < 1e-6);
        assert_true(s[(slot * D + v) * D + 6] == 7.0f);
        assert_true(fabs(element_get(GEN_DTYPE_BF16, c.data[KDA_STEP_OUT], v) - q * wanted) <
                    0x1p-8 * q * wanted);
    }
    /* The window moved on. */
    assert_true(element_get(GEN_DTYPE_BF16, window, slot * 3 * channels + at_k) == 0.5);
    assert_true(element_get(GEN_DTYPE_BF16, window, (slot * 3 + 1) * channels + at_k) == 0.25);
    assert_true(element_get(GEN_DTYPE_BF16, window, (slot * 3 + 2) * channels + at_k) == 0.125);
    step_close(&c);
}

/* o = 2 in half of the rows and 1 in the others: the mean of squares is 5/2. */
static void norms_by_hand(void **state)
{
    (void)state;
    struct step_call c;
    open_zero(&c);
    float *s = c.data[KDA_STEP_STATE], *norm = c.data[KDA_STEP_NORM_W];
    ((float *)c.data[KDA_STEP_CONV_BIAS])[0] = 9;
    for (int64_t v = 0; v < D; v++) {
        s[(2 * D + v) * D] = v % 2 ? 2 : 1;
        norm[v] = (float)(v + 1);
        element_put(GEN_DTYPE_BF16, c.data[KDA_STEP_Z], v, v < 3 ? -1.5 : 0.5);
    }
    c.args.norm_w = norm;
    c.args.z = c.data[KDA_STEP_Z];
    c.args.eps = 1.5f;
    for (int32_t form = 0; form < 2; form++) {
        c.args.z_form = form;
        step_run(&c);
        for (int64_t v = 0; v < D; v++) {
            const double z = v < 3 ? -1.5 : 0.5;
            const double gate = form == GEN_KDA_Z_SILU ? silu(z) : sigmoid(z);
            const double wanted = (v % 2 ? 2 : 1) / sqrt(4.0) * (double)(v + 1) * gate;
            assert_true(fabs(element_get(GEN_DTYPE_BF16, c.data[KDA_STEP_OUT], v) - wanted) <
                        0x1p-8 * fabs(wanted) + 1e-6);
        }
    }
    step_close(&c);
}

/* ---- a sequence, step by step ------------------------------------------------ */

enum { STEPS = 7, QK = 2, V = 4, CHANNELS = (2 * QK + V) * D };

/* Inputs of all steps. */
struct sequence {
    uint16_t x[STEPS][CHANNELS], gate[STEPS][V * D], beta[STEPS][V], z[STEPS][V * D];
};

static void draw_sequence(struct sequence *s, enum gen_dtype dtype)
{
    uint64_t seed = 77;
    uint16_t *all = (uint16_t *)(void *)s;
    for (size_t i = 0; i < sizeof *s / 2; i++)
        element_put(dtype, all, (int64_t)i, 2 * random_unit(&seed) + 0.3);
}

/* Channel `c` of the convolution of the whole sequence, before which there was nothing. */
static double convolved(const struct step_call *call, const struct sequence *s, int64_t t,
                        int64_t c)
{
    const float *w = call->args.conv_w;
    const int64_t taps = call->args.conv_width;
    double y = (double)call->args.conv_bias[c];
    for (int64_t i = 0; i < taps; i++)
        if (t - (taps - 1) + i >= 0)
            y += (double)w[i * CHANNELS + c] *
                 element_get((enum gen_dtype)call->problem.dtype, s->x[t - (taps - 1) + i], c);
    return silu(y);
}

/* The recurrence over the sequence by itself: outputs of value head `head`, and its last state. */
static void recur(const struct step_call *call, const struct sequence *s, int64_t head,
                  double o[STEPS][D], double state[D][D])
{
    const enum gen_dtype dtype = (enum gen_dtype)call->problem.dtype;
    const gen_kda_step_args *a = &call->args;
    const bool scalar = call->problem.base.family == GEN_GDN_STEP;
    memset(state, 0, sizeof(double[D][D]));
    for (int64_t t = 0; t < STEPS; t++) {
        double q[D], k[D], qq = 1e-6, kk = 1e-6, squares = 0;
        for (int64_t i = 0; i < D; i++) {
            q[i] = convolved(call, s, t, head / (V / QK) * D + i);
            k[i] = convolved(call, s, t, (QK + head / (V / QK)) * D + i);
            qq += q[i] * q[i], kk += k[i] * k[i];
        }
        const double beta = sigmoid(element_get(dtype, s->beta[t], head));
        for (int64_t v = 0; v < D; v++) {
            double u = convolved(call, s, t, (2 * QK + head) * D + v);
            for (int64_t i = 0; i < D; i++) {
                const int64_t at = scalar ? head : head * D + i;
                const double x = element_get(dtype, s->gate[t], at) + (double)a->dt_bias[at];
                const double g = a->gate_form == GEN_KDA_GATE_SOFTPLUS
                                     ? -exp((double)a->A_log[head]) * log1p(exp(x))
                                     : -5 * sigmoid(exp((double)a->A_log[head]) * x);
                state[v][i] *= exp(g);
                u -= k[i] / sqrt(kk) * state[v][i];
            }
            o[t][v] = 0;
            for (int64_t i = 0; i < D; i++) {
                state[v][i] += beta * u * k[i] / sqrt(kk);
                o[t][v] += q[i] / sqrt(qq) / sqrt(D) * state[v][i];
            }
            squares += o[t][v] * o[t][v];
        }
        for (int64_t v = 0; v < D; v++) {
            const double z = element_get(dtype, s->z[t], head * D + v);
            o[t][v] *= (double)a->norm_w[v] / sqrt(squares / D + (double)a->eps) *
                       (a->z_form == GEN_KDA_Z_SILU ? silu(z) : sigmoid(z));
        }
    }
}

static void step_through(struct step_call *c, const struct sequence *s, uint16_t out[STEPS][V * D])
{
    memset(c->data[KDA_STEP_STATE], 0,
           c->tensor[KDA_STEP_STATE].count * element_size(c->tensor[KDA_STEP_STATE].dtype));
    memset(c->data[KDA_STEP_CONV_STATE], 0, c->tensor[KDA_STEP_CONV_STATE].count * 2);
    for (int64_t t = 0; t < STEPS; t++) {
        c->args.x = s->x[t], c->args.gate = s->gate[t], c->args.beta = s->beta[t];
        c->args.z = s->z[t], c->args.out = out[t];
        step_run(c);
    }
}

/* The last inputs, as they came. */
static void check_windows(const struct step_call *c, const struct sequence *s, int64_t slot)
{
    const int64_t past = c->args.conv_width - 1;
    const uint16_t *window =
        (const uint16_t *)c->data[KDA_STEP_CONV_STATE] + slot * past * CHANNELS;
    for (int64_t channel = 0; channel < CHANNELS; channel++)
        for (int64_t i = 0; i < past; i++)
            assert_int_equal(c->args.conv_layout == GEN_KDA_CONV_SD ? window[i * CHANNELS + channel]
                                                                    : window[channel * past + i],
                             s->x[STEPS - past + i][channel]);
}

static void check_sequence(uint32_t family, enum gen_dtype dtype, const char *form_name)
{
    static struct sequence s;
    static uint16_t out[STEPS][V * D];
    static double o[STEPS][D], last[D][D];
    struct step_call c;
    gen_kda_step_problem p = step_problem(1, QK, V);
    p.base.family = family;
    p.dtype = p.gate_dtype = p.beta_dtype = (int32_t)dtype;
    int form = -1;
    for (int i = 0; form_name && i < KDA_STEP_NUM_FORMS; i++)
        form = strcmp(gen__kda_step_forms[i], form_name) == 0 ? i : form;
    assert_true(step_open(&c, p, form));
    draw_sequence(&s, dtype);
    step_through(&c, &s, out);
    const int64_t slot = *(int32_t *)c.data[KDA_STEP_SLOTS];
    const float *states = (const float *)c.data[KDA_STEP_STATE] + slot * V * D * D;
    const double unit = dtype == GEN_DTYPE_FP16 ? 0x1p-11 : 0x1p-8;
    for (int64_t head = 0; head < V; head++) {
        recur(&c, &s, head, o, last);
        for (int64_t t = 0; t < STEPS; t++)
            for (int64_t v = 0; v < D; v++)
                assert_true(fabs(element_get(dtype, out[t], head * D + v) - o[t][v]) <=
                            unit * fabs(o[t][v]) + 1e-6);
        for (int64_t i = 0; i < D * D; i++)
            assert_true(fabs((double)states[head * D * D + i] - last[i / D][i % D]) < 1e-6);
    }
    check_windows(&c, &s, slot);
    step_close(&c);
}

static void steps_are_the_sequence(void **state)
{
    (void)state;
    check_sequence(GEN_KDA_STEP, GEN_DTYPE_BF16, NULL);
    check_sequence(GEN_KDA_STEP, GEN_DTYPE_FP16, "softplus-sigmoid");
    check_sequence(GEN_KDA_STEP, GEN_DTYPE_BF16, "channels_first");
    check_sequence(GEN_KDA_STEP, GEN_DTYPE_BF16, "width_2");
    check_sequence(GEN_KDA_STEP, GEN_DTYPE_FP16, "width_3_ds");
    check_sequence(GEN_GDN_STEP, GEN_DTYPE_BF16, NULL);
}

/* ---- what is left alone ---------------------------------------------------- */

/* Copies a tensor. */
static void *copy_of(const struct step_call *c, uint32_t t)
{
    const size_t bytes = c->tensor[t].count * element_size(c->tensor[t].dtype);
    void *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, c->data[t], bytes);
    return copy;
}

static bool same(const struct step_call *c, uint32_t t, const void *copy)
{
    return memcmp(c->data[t], copy, c->tensor[t].count * element_size(c->tensor[t].dtype)) == 0;
}

static void padding_rows_touch_nothing(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 5, INT32_MIN, INT32_MAX, 3 /* the null slot */};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct step_call c;
        assert_true(step_open(&c, step_problem(2, 1, 2), -1));
        int32_t *slots = c.data[KDA_STEP_SLOTS];
        slots[0] = bad[i], slots[1] = bad[i];
        c.args.null_slot = 4;
        void *states = copy_of(&c, KDA_STEP_STATE), *windows = copy_of(&c, KDA_STEP_CONV_STATE);
        void *out = copy_of(&c, KDA_STEP_OUT);
        step_run(&c);
        assert_true(same(&c, KDA_STEP_STATE, states) && same(&c, KDA_STEP_CONV_STATE, windows));
        assert_true(same(&c, KDA_STEP_OUT, out));
        c.args.zero_padding = 1;
        step_run(&c);
        assert_true(same(&c, KDA_STEP_STATE, states) && same(&c, KDA_STEP_CONV_STATE, windows));
        for (uint64_t j = 0; j < c.tensor[KDA_STEP_OUT].count; j++)
            assert_int_equal(((uint16_t *)c.data[KDA_STEP_OUT])[j], 0);
        free(states), free(windows), free(out);
        step_close(&c);
    }
}

static void windows_that_are_read_alone(void **state)
{
    (void)state;
    struct step_call c;
    assert_true(step_open(&c, step_problem(2, 1, 1), -1));
    void *states = copy_of(&c, KDA_STEP_STATE), *windows = copy_of(&c, KDA_STEP_CONV_STATE);
    c.args.conv_state_update = 0;
    step_run(&c);
    assert_true(same(&c, KDA_STEP_CONV_STATE, windows));
    assert_false(same(&c, KDA_STEP_STATE, states));
    c.args.conv_state_update = 1;
    step_run(&c);
    assert_false(same(&c, KDA_STEP_CONV_STATE, windows));
    free(states), free(windows);
    step_close(&c);
}

/* States of 16 bits are rounded once; fp16 holds what it cannot at its greatest magnitude. */
static void states_of_16_bits(void **state)
{
    (void)state;
    for (int32_t dtype = GEN_STATE_BF16; dtype <= GEN_STATE_FP16; dtype++) {
        struct step_call wide, narrow;
        gen_kda_step_problem p = step_problem(1, 1, 1);
        assert_true(step_open(&wide, p, -1));
        p.state_dtype = dtype;
        assert_true(step_open(&narrow, p, -1));
        float *from = wide.data[KDA_STEP_STATE];
        for (uint64_t i = 0; i < wide.tensor[KDA_STEP_STATE].count; i++)
            from[i] = (float)gen__state_get(dtype, narrow.data[KDA_STEP_STATE], (int64_t)i);
        step_run(&wide);
        step_run(&narrow);
        assert_memory_equal(wide.data[KDA_STEP_OUT], narrow.data[KDA_STEP_OUT], 2 * D);
        const double unit = dtype == GEN_STATE_FP16 ? 0x1p-11 : 0x1p-8;
        for (uint64_t i = 0; i < wide.tensor[KDA_STEP_STATE].count; i++)
            assert_true(fabs(gen__state_get(dtype, narrow.data[KDA_STEP_STATE], (int64_t)i) -
                             (double)from[i]) <= unit * fabs((double)from[i]) + 1e-7);
        step_close(&wide), step_close(&narrow);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_by_hand),
        cmocka_unit_test(norms_by_hand),
        cmocka_unit_test(steps_are_the_sequence),
        cmocka_unit_test(padding_rows_touch_nothing),
        cmocka_unit_test(windows_that_are_read_alone),
        cmocka_unit_test(states_of_16_bits),
    };
    return cmocka_run_group_tests_name("kda_step reference", tests, NULL, NULL);
}
