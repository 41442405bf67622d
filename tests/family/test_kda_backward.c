/*
 * The gradients of Kimi Delta Attention against central differences of the forward reference, for
 * each form of gates and betas.
 */
#include "reference/half.h"
#include "families/kda/backward.h"
#include "families/kda/prefill.h"
#include "test.h"

#include <math.h>
#include <string.h>

/* Widths that no kernel has make a small case; the references take any. */
enum { D = 8, TOKENS = 90, HEADS = 4, BATCH = 4, PROBES = 16 };
enum { ROWS = TOKENS * HEADS, ELEMENTS = ROWS * D, STATES = BATCH * HEADS * D * D };

struct tensors {
    uint16_t q[2 * ELEMENTS], k[2 * ELEMENTS], v[ELEMENTS], d_o[ELEMENTS], o[ELEMENTS];
    float g[ELEMENTS], beta[ROWS], A_log[HEADS], dt_bias[HEADS * D];
    float initial[STATES], d_final[STATES], final[STATES];
};

struct gradients {
    double q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], g[ELEMENTS], beta[ROWS], A_log[HEADS],
        dt_bias[HEADS * D], initial[STATES];
};

static struct tensors x;
static struct gradients grad, other;
static double exact_o[ELEMENTS];

/* Sequences of 3, 0, 70 and 1 tokens; two tokens in front and the rest behind are no sequence's. */
static const int32_t cu_seqlens[BATCH + 1] = {2, 5, 5, 75, 76};

/* Multiples of 2^-4: steps from them are exact in every type. */
static double draw(uint64_t *seed)
{
    return floor(16 * random_unit(seed)) / 16;
}

static void fill(int32_t gate, int32_t beta)
{
    uint64_t seed = 5;
    for (int i = 0; i < 2 * ELEMENTS; i++) {
        x.q[i] = gen__fp16_from_double(draw(&seed));
        x.k[i] = gen__fp16_from_double(0.5 * draw(&seed));
    }
    for (int i = 0; i < ELEMENTS; i++) {
        x.v[i] = gen__fp16_from_double(draw(&seed));
        x.d_o[i] = gen__fp16_from_double(draw(&seed));
        x.g[i] =
            (float)(gate == GEN_KDA_GATE_GIVEN ? 0.25 * draw(&seed) - 0.3125 : 2 * draw(&seed));
    }
    for (int i = 0; i < ROWS; i++)
        x.beta[i] =
            (float)(beta == GEN_KDA_BETA_GIVEN ? 0.5 + 0.25 * draw(&seed) : 2 * draw(&seed));
    for (int i = 0; i < HEADS; i++)
        x.A_log[i] = (float)(0.5 * draw(&seed));
    for (int i = 0; i < HEADS * D; i++)
        x.dt_bias[i] = (float)draw(&seed);
    for (int i = 0; i < STATES; i++) {
        x.initial[i] = (float)draw(&seed);
        x.d_final[i] = (float)draw(&seed);
    }
}

struct run {
    int32_t dims[KDA_ALL_DIMS];
    struct gen__kda_backward b;
};

static struct run run_of(int32_t qk_heads, int32_t gate, int32_t beta, int32_t norm)
{
    struct run r = {
        .dims = {[KDA_BATCH] = BATCH,
                 [KDA_SEQ_LEN] = 80,
                 [KDA_NUM_TOKENS] = TOKENS,
                 [KDA_QK_HEADS] = qk_heads,
                 [KDA_V_HEADS] = HEADS,
                 [KDA_HEAD_DIM] = D,
                 [KDA_DTYPE] = GEN_DTYPE_FP16,
                 [KDA_GATE_DTYPE] = GEN_DTYPE_FP32,
                 [KDA_BETA_DTYPE] = GEN_DTYPE_FP32},
        .b = {.in = {.q = x.q,
                     .k = x.k,
                     .v = x.v,
                     .g = x.g,
                     .beta = x.beta,
                     .cu_seqlens = cu_seqlens,
                     .scale = 0.375f,
                     .lower_bound = -3,
                     .gate_form = gate,
                     .beta_form = beta,
                     .qk_l2norm = norm},
              .initial_state = x.initial,
              .d_o = x.d_o,
              .d_final_state = x.d_final,
              .state_layout = GEN_KDA_STATE_KV},
    };
    if (gate != GEN_KDA_GATE_GIVEN)
        r.b.in.A_log = x.A_log, r.b.in.dt_bias = x.dt_bias;
    return r;
}

/* What the gradients are of: outputs and final states, weighted by d_o and d_final. */
static double objective(const struct run *r)
{
    const gen_kda_intra_args *in = &r->b.in;
    const gen_kda_prefill_args a = {.q = in->q,
                                    .k = in->k,
                                    .v = in->v,
                                    .g = in->g,
                                    .beta = in->beta,
                                    .A_log = in->A_log,
                                    .dt_bias = in->dt_bias,
                                    .cu_seqlens = in->cu_seqlens,
                                    .initial_state = r->b.initial_state,
                                    .final_state = x.final,
                                    .o = x.o,
                                    .scale = in->scale,
                                    .lower_bound = in->lower_bound,
                                    .gate_form = in->gate_form,
                                    .beta_form = in->beta_form,
                                    .qk_l2norm = in->qk_l2norm,
                                    .state_layout = r->b.state_layout};
    double *exact[KDA_PREFILL_NUM_TENSORS] = {NULL}, sum = 0;
    gen_plan plan = {0};
    memcpy(plan.dims, r->dims, sizeof r->dims);
    exact[KDA_PREFILL_O] = exact_o;
    assert_int_equal(gen__kda_prefill_exact(&plan, &a.base, exact), GEN_OK);
    for (int i = cu_seqlens[0] * HEADS * D; i < cu_seqlens[BATCH] * HEADS * D; i++)
        sum += exact_o[i] * gen__fp16_to_double(x.d_o[i]);
    for (int i = 0; i < STATES && r->b.d_final_state; i++)
        sum += (double)x.final[i] * (double)x.d_final[i];
    return sum;
}

static void backward(const struct run *r, struct gradients *to)
{
    memset(to, 0, sizeof *to);
    to->v[0] = to->v[ELEMENTS - 1] = 7;
    const struct gen__kda_gradients out = {to->q,    to->k,     to->v,       to->g,
                                           to->beta, to->A_log, to->dt_bias, to->initial};
    assert_int_equal(gen__kda_backward(r->dims, &r->b, &out), GEN_OK);
    assert_true(to->v[0] == 7 && to->v[ELEMENTS - 1] == 7); /* no sequence's */
    to->v[0] = to->v[ELEMENTS - 1] = 0;
}

/* Five points, of which the error is the fourth power of the step. */
static double difference(const struct run *r, bool fp16, void *tensor, int at)
{
    static const double weights[] = {1, -8, 8, -1}, steps[] = {-2, -1, 1, 2};
    const double step = 0x1p-6;
    uint16_t *const half = (uint16_t *)tensor + at;
    float *const single = (float *)tensor + at;
    const double kept = fp16 ? gen__fp16_to_double(*half) : (double)*single;
    double sum = 0;
    for (int i = 0; i < 5; i++) {
        const double value = kept + (i < 4 ? steps[i] * step : 0);
        if (fp16)
            *half = gen__fp16_from_double(value);
        else
            *single = (float)value;
        sum += i < 4 ? weights[i] * objective(r) : 0;
    }
    return sum / (12 * step);
}

static void probe(const struct run *r, const char *name, bool fp16, void *tensor, const double *got,
                  int count)
{
    uint64_t seed = (uint64_t)count;
    double error = 0, norm = 0;
    for (int i = 0; i < PROBES; i++) {
        const int at = (int)(random_bits(&seed) % (uint64_t)count);
        const double expected = difference(r, fp16, tensor, at);
        error += (got[at] - expected) * (got[at] - expected);
        norm += expected * expected;
    }
    if (!(sqrt(error) <= 1e-4 * sqrt(norm)) || !(norm > 0))
        fail_msg("%s: gate %d, beta %d, norm %d, %d query heads: error %g of %g", name,
                 r->b.in.gate_form, r->b.in.beta_form, r->b.in.qk_l2norm, r->dims[KDA_QK_HEADS],
                 sqrt(error), sqrt(norm));
}

static void check(const struct run *r)
{
    const int qk = TOKENS * r->dims[KDA_QK_HEADS] * D;
    backward(r, &grad);
    probe(r, "q", true, x.q, grad.q, qk);
    probe(r, "k", true, x.k, grad.k, qk);
    probe(r, "v", true, x.v, grad.v, ELEMENTS);
    probe(r, "g", false, x.g, grad.g, ELEMENTS);
    probe(r, "beta", false, x.beta, grad.beta, ROWS);
    if (r->b.in.A_log)
        probe(r, "A_log", false, x.A_log, grad.A_log, HEADS);
    if (r->b.in.dt_bias)
        probe(r, "dt_bias", false, x.dt_bias, grad.dt_bias, HEADS * D);
    if (r->b.initial_state)
        probe(r, "initial_state", false, x.initial, grad.initial, STATES);
}

static void every_form(void **state)
{
    (void)state;
    static const int32_t qk_heads[] = {4, 2, 1};
    for (int32_t i = 0; i < 18; i++) {
        struct run r = run_of(qk_heads[i % 3], i / 3 % 3, (i + i / 3) % 3, i / 9);
        r.b.state_layout = i % 2 ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV;
        fill(r.b.in.gate_form, r.b.in.beta_form);
        check(&r);
    }
}

/* Sequences of one length, no states, no bias, no rate; what is not wanted is not written. */
static void bare(void **state)
{
    (void)state;
    struct run r = run_of(2, GEN_KDA_GATE_LOWER_BOUND, GEN_KDA_BETA_SIGMOID, 1);
    fill(r.b.in.gate_form, r.b.in.beta_form);
    r.b.in.A_log = r.b.in.dt_bias = NULL;
    r.b.initial_state = r.b.d_final_state = NULL;
    check(&r);
    memset(x.initial, 0, sizeof x.initial);
    memset(x.d_final, 0, sizeof x.d_final);
    struct run zeros = r;
    zeros.b.initial_state = x.initial, zeros.b.d_final_state = x.d_final;
    backward(&zeros, &other);
    assert_memory_equal(&grad, &other, sizeof grad);
    const struct gen__kda_gradients none = {0};
    assert_int_equal(gen__kda_backward(r.dims, &r.b, &none), GEN_OK);
    r.b.in.cu_seqlens = NULL;
    r.dims[KDA_BATCH] = 1, r.dims[KDA_SEQ_LEN] = cu_seqlens[BATCH], r.dims[KDA_NUM_TOKENS] = 0;
    const struct gen__kda_gradients v = {.v = other.v};
    assert_int_equal(gen__kda_backward(r.dims, &r.b, &v), GEN_OK);
    assert_true(other.v[0] != 0); /* now a sequence has it */
}

/* A sequence without tokens hands the final state's gradient on. */
static void empty_sequences(void **state)
{
    (void)state;
    struct run r = run_of(4, GEN_KDA_GATE_SOFTPLUS, GEN_KDA_BETA_GIVEN, 0);
    fill(r.b.in.gate_form, r.b.in.beta_form);
    backward(&r, &grad);
    for (int i = HEADS * D * D; i < 2 * HEADS * D * D; i++)
        assert_true(grad.initial[i] == (double)x.d_final[i]);
}

static void strides(void **state)
{
    (void)state;
    enum { WIDTH = HEADS * D };
    static struct tensors packed;
    struct run r = run_of(4, GEN_KDA_GATE_SOFTPLUS, GEN_KDA_BETA_SIGMOID, 1);
    fill(r.b.in.gate_form, r.b.in.beta_form);
    backward(&r, &grad);
    memcpy(&packed, &x, sizeof x);
    for (int i = 0; i < ELEMENTS; i++) {
        const int at = i / WIDTH * 2 * WIDTH + i % WIDTH;
        x.q[at] = packed.q[i];
        x.k[at] = packed.k[i];
    }
    r.b.in.q_stride = r.b.in.k_stride = 2 * WIDTH;
    backward(&r, &other);
    assert_memory_equal(&grad, &other, sizeof grad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(bare),
        cmocka_unit_test(empty_sequences),
        cmocka_unit_test(strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
