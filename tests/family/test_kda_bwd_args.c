/*
 * kda_bwd: the arguments that it allows and what it says where it does not, and its reference,
 * whose gradients stand where they should.
 */
#include "reference/half.h"
#include "families/kda/backward.h"
#include "kda_bwd_problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- arguments ----------------------------------------------------------- */

enum { D = 64, TOKENS = 90, QK_HEADS = 2, HEADS = 4, BATCH = 4 };
enum { ROWS = TOKENS * HEADS, ELEMENTS = ROWS * D, STATES = BATCH * HEADS * D * D };

static struct {
    _Alignas(16) uint16_t q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], d_o[ELEMENTS], d_q[ELEMENTS],
        d_k[ELEMENTS], d_v[ELEMENTS];
    _Alignas(16) float g[ELEMENTS], beta[ROWS], A_log[HEADS], dt_bias[HEADS * D], initial[STATES],
        d_final[STATES], d_g[ELEMENTS], d_beta[ROWS], d_A_log[HEADS], d_dt_bias[HEADS * D],
        d_initial[STATES];
} x;

/* Sequences of 3, 0, 70 and 1 tokens; those behind are no sequence's. */
static const int32_t cu_seqlens[BATCH + 1] = {2, 5, 5, 75, 76};

static gen_kda_bwd_args good_args(void)
{
    return (gen_kda_bwd_args){.base = {sizeof(gen_kda_bwd_args), GEN_KDA_BWD},
                              .q = x.q,
                              .k = x.k,
                              .v = x.v,
                              .g = x.g,
                              .beta = x.beta,
                              .A_log = x.A_log,
                              .dt_bias = x.dt_bias,
                              .cu_seqlens = cu_seqlens,
                              .initial_state = x.initial,
                              .d_o = x.d_o,
                              .d_final_state = x.d_final,
                              .d_q = x.d_q,
                              .d_k = x.d_k,
                              .d_v = x.d_v,
                              .d_g = x.d_g,
                              .d_beta = x.d_beta,
                              .d_A_log = x.d_A_log,
                              .d_dt_bias = x.d_dt_bias,
                              .d_initial_state = x.d_initial,
                              .scale = 0.125f,
                              .lower_bound = -5,
                              .gate_form = GEN_KDA_GATE_LOWER_BOUND,
                              .qk_l2norm = 1,
                              .state_layout = GEN_KDA_STATE_KV};
}

static gen_plan plan_of(int32_t keep)
{
    gen_kda_bwd_problem p = problem(BATCH, 80, QK_HEADS, HEADS);
    gen_plan plan = {0};
    p.num_tokens = TOKENS;
    p.keep = keep;
    family->plan(&p.base, &h200, NULL, &plan);
    return plan;
}

static void assert_begins(enum gen_status status, const char *message)
{
    char text[128];
    assert_int_equal(status, GEN_STATUS_INVALID_ARGUMENT);
    snprintf(text, sizeof text, "%.*s", (int)strlen(message), gen_last_error());
    assert_string_equal(text, message);
}

static void argument_errors(void **state)
{
    (void)state;
    const gen_plan plan = plan_of(0);
    gen_kda_bwd_args a = good_args();
    static const int32_t back[BATCH + 1] = {0, 5, 4, 80, 90};
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
#define WRONG(change, message)                                                             \
    do {                                                                                   \
        a = good_args();                                                                   \
        change;                                                                            \
        assert_begins(family->params(&plan, 0, &a.base, NULL, NULL), "kda_bwd: " message); \
    } while (0)
    WRONG(a.q = NULL, "q is NULL");
    WRONG(a.v = x.v + 1, "v = ");
    WRONG(a.beta = NULL, "beta is NULL");
    WRONG(a.d_o = NULL, "d_o is NULL");
    WRONG(a.d_q = NULL, "d_q is NULL");
    WRONG(a.d_k = NULL, "d_k is NULL");
    WRONG(a.d_v = NULL, "d_v is NULL");
    WRONG(a.d_g = NULL, "d_g is NULL");
    WRONG(a.d_beta = NULL, "d_beta is NULL");
    WRONG(a.d_g = x.d_g + 1, "d_g = ");
    WRONG(a.d_initial_state = x.d_initial + 1, "d_initial_state = ");
    WRONG(a.d_final_state = x.d_final + 1, "d_final_state = ");
    WRONG(a.initial_state = x.initial + 1, "initial_state = ");
    WRONG(a.A_log = NULL, "d_A_log = ");
    WRONG(a.dt_bias = NULL, "d_dt_bias = ");
    WRONG(a.d_dt_bias = x.d_dt_bias + 1, "d_dt_bias = ");
    WRONG(a.states = x.q, "states = ");
    WRONG(a.d_o_stride = 260, "d_o_stride = 260 elements; allowed: 0 (packed), or a multiple of 8");
    WRONG(a.d_o_stride = 248, "d_o_stride = 248 elements; allowed: 0 (packed), or a multiple of 8");
    WRONG(a.g_stride = 4,
          "g_stride = 4 elements; allowed: 0 (packed), or a multiple of 8 from 256");
    WRONG(a.scale = NAN, "scale = nan; allowed: a finite number");
    WRONG(a.lower_bound = 0, "lower_bound = 0; allowed: -5 <= lower_bound < 0");
    WRONG(a.gate_form = 3, "gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0)");
    WRONG(a.gate_form = GEN_KDA_GATE_GIVEN, "A_log = ");
    WRONG(a.beta_form = -1, "beta_form = -1; allowed: GEN_KDA_BETA_GIVEN (0)");
    WRONG(a.qk_l2norm = 2, "qk_l2norm = 2; allowed: 0, 1");
    WRONG(a.state_layout = 2, "state_layout = 2; allowed: GEN_KDA_STATE_VK (0)");
    WRONG(a.cu_seqlens = NULL, "cu_seqlens is NULL");
    WRONG(a.cu_seqlens_host = back, "cu_seqlens_host[2] = 4 behind 5; allowed: 0 to seq_len");
#undef WRONG
}

/* What may be absent, and plans that are none. */
static void arguments_of_plans(void **state)
{
    (void)state;
    const gen_plan plan = plan_of(0), kept = plan_of(1);
    static const int32_t back[BATCH + 1] = {0, 5, 4, 80, 90};
    gen_kda_bwd_args a = good_args();
    assert_begins(family->params(&kept, 0, &a.base, NULL, NULL), "kda_bwd: states is NULL");
    a.states = x.q;
    assert_int_equal(family->params(&kept, 0, &a.base, NULL, NULL), GEN_OK);
    a = good_args();
    a.A_log = a.dt_bias = NULL;
    a.d_A_log = a.d_dt_bias = a.d_initial_state = NULL;
    a.initial_state = a.d_final_state = NULL;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    gen_plan bad = plan;
    bad.dims[KDA_NUM_TOKENS] = 0; /* all of seq_len tokens */
    a.cu_seqlens = NULL;
    a.cu_seqlens_host = back;
    assert_begins(family->params(&bad, 0, &a.base, NULL, NULL), "kda_bwd: cu_seqlens_host = ");
    a.cu_seqlens_host = NULL;
    assert_int_equal(family->params(&bad, 0, &a.base, NULL, NULL), GEN_OK);
    bad.dims[KDA_QK_HEADS] = 3;
    assert_failed(family->params(&bad, 0, &a.base, NULL, NULL), MISMATCH,
                  "kda_bwd: the plan's problem is not what gen_select() writes");
    bad = plan;
    bad.dims[KDA_BWD_KEEP] = 2;
    assert_failed(family->params(&bad, 0, &a.base, NULL, NULL), MISMATCH,
                  "kda_bwd: the plan's launches are not what gen_select() writes");
}

/* ---- the reference --------------------------------------------------------- */

static void draw(void)
{
    uint64_t seed = 7;
    memset(&x, 0xff, sizeof x);
    for (int i = 0; i < ELEMENTS; i++) {
        x.q[i] = gen__fp16_from_double(random_unit(&seed));
        x.k[i] = gen__fp16_from_double(random_unit(&seed));
        x.v[i] = gen__fp16_from_double(random_unit(&seed));
        x.d_o[i] = gen__fp16_from_double(random_unit(&seed));
        x.g[i] = (float)random_unit(&seed);
    }
    for (int i = 0; i < ROWS; i++)
        x.beta[i] = (float)random_unit(&seed);
    for (int i = 0; i < HEADS; i++)
        x.A_log[i] = (float)(0.3 * random_unit(&seed));
    for (int i = 0; i < HEADS * D; i++)
        x.dt_bias[i] = (float)random_unit(&seed);
    for (int i = 0; i < STATES; i++) {
        x.initial[i] = (float)random_unit(&seed);
        x.d_final[i] = (float)random_unit(&seed);
    }
}

static struct {
    double q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], g[ELEMENTS], beta[ROWS], A_log[HEADS],
        dt_bias[HEADS * D], initial[STATES];
} exact;

static void assert_row_is(const uint16_t *got, const double *expected, bool there, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(got[i], there ? gen__fp16_from_double(expected[i]) : 0xffff);
}

static void assert_floats_are(const float *got, const double *expected, bool there, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_true(there ? got[i] == (float)expected[i] : isnan(got[i]));
}

static void reference_rounds_the_gradients(void **state)
{
    (void)state;
    const gen_plan plan = plan_of(0);
    gen_kda_bwd_args a = good_args();
    a.beta_form = GEN_KDA_BETA_SIGMOID;
    const struct gen__kda_backward b = {.in = gen__kda_bwd_inputs(&a),
                                        .initial_state = x.initial,
                                        .d_o = x.d_o,
                                        .d_final_state = x.d_final,
                                        .state_layout = a.state_layout};
    const struct gen__kda_gradients out = {exact.q,    exact.k,     exact.v,       exact.g,
                                           exact.beta, exact.A_log, exact.dt_bias, exact.initial};
    draw();
    assert_int_equal(gen__kda_backward(plan.dims, &b, &out), GEN_OK);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    for (int64_t t = 0; t < TOKENS; t++) { /* tokens of no sequence stay as they were */
        const bool there = t >= cu_seqlens[0] && t < cu_seqlens[BATCH];
        const int64_t qk = QK_HEADS * D, v = HEADS * D;
        assert_row_is(x.d_q + t * qk, exact.q + t * qk, there, qk);
        assert_row_is(x.d_k + t * qk, exact.k + t * qk, there, qk);
        assert_row_is(x.d_v + t * v, exact.v + t * v, there, v);
        assert_floats_are(x.d_g + t * v, exact.g + t * v, there, v);
        assert_floats_are(x.d_beta + t * HEADS, exact.beta + t * HEADS, there, HEADS);
    }
    assert_floats_are(x.d_A_log, exact.A_log, true, HEADS);
    assert_floats_are(x.d_dt_bias, exact.dt_bias, true, HEADS * D);
    assert_floats_are(x.d_initial, exact.initial, true, STATES);
    /* A sequence without tokens hands its state's gradient on. */
    assert_memory_equal(x.d_initial + HEADS * D * D, x.d_final + HEADS * D * D,
                        HEADS * D * D * sizeof(float));
}

/* Sums are zeros, and d_initial_state is d_final_state, or zeros. */
static void reference_without_tokens(void **state)
{
    (void)state;
    for (int32_t batch = 0; batch < 3; batch += 2) {
        const gen_kda_bwd_problem p = problem(batch, 0, QK_HEADS, HEADS);
        const int64_t states = batch * HEADS * D * D;
        gen_plan plan = {0};
        gen_kda_bwd_args a = good_args();
        draw();
        a.cu_seqlens = NULL;
        a.q = a.k = a.v = a.g = a.beta = a.d_o = NULL;
        a.d_q = a.d_k = a.d_v = a.d_g = a.d_beta = NULL;
        family->plan(&p.base, &h200, NULL, &plan);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
        assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
        for (int i = 0; i < HEADS * D; i++)
            assert_true(x.d_dt_bias[i] == 0 && x.d_A_log[i % HEADS] == 0);
        assert_memory_equal(x.d_initial, x.d_final, (size_t)states * sizeof(float));
        assert_true(isnan(x.d_initial[states])); /* and nothing behind them */
        a.d_final_state = NULL;
        assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
        for (int64_t i = 0; i < states; i++)
            assert_true(x.d_initial[i] == 0);
    }
}

/* What the stages are given passes their own checks, in every form and with every argument that may
 * be absent. */
static void stages_accept_what_they_get(void **state)
{
    (void)state;
    static _Alignas(256) unsigned char memory[1 << 23];
    _Alignas(GEN__PARAMS_ALIGNMENT) unsigned char out[GEN__MAX_PARAMS];
    for (int32_t keep = 0; keep < 4; keep++)
        for (int form = 0; form < 16; form++) {
            gen_plan plan = plan_of(keep % 2);
            gen_kda_bwd_args a = good_args();
            plan.dims[KDA_BWD_FUSED] = keep / 2;
            assert_true(gen__kda_bwd_workspace(plan.dims) <= sizeof memory);
            plan.num_launches = gen__kda_bwd_num_launches(plan.dims);
            a.states = keep % 2 ? x.q : NULL;
            a.qk_l2norm = form & 1;
            a.beta_form = form & 2 ? GEN_KDA_BETA_SIGMOID : GEN_KDA_BETA_GIVEN;
            a.gate_form = form & 4 ? GEN_KDA_GATE_SOFTPLUS : GEN_KDA_GATE_GIVEN;
            if (!(form & 4))
                a.A_log = a.dt_bias = a.d_A_log = a.d_dt_bias = NULL;
            if (form & 8) {
                a.q_stride = a.k_stride = 2 * QK_HEADS * D;
                a.v_stride = a.d_o_stride = a.g_stride = 2 * HEADS * D;
                a.beta_stride = HEADS + 1;
                a.d_A_log = a.d_dt_bias = a.d_initial_state = NULL;
                a.initial_state = a.d_final_state = NULL;
            }
            for (uint32_t launch = 0; launch < plan.num_launches; launch++)
                if (family->params(&plan, launch, &a.base, memory, out))
                    fail_msg("form %d, launch %u: %s", form, launch, gen_last_error());
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(argument_errors), cmocka_unit_test(arguments_of_plans),
        cmocka_unit_test(reference_rounds_the_gradients),
        cmocka_unit_test(reference_without_tokens), cmocka_unit_test(stages_accept_what_they_get)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
