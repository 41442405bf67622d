/*
 * The stages of the backward pass of Kimi Delta Attention one after the other, behind those of the
 * forward pass that they take, from raw inputs to their gradients: held to the recurrence in
 * reverse, which knows no chunks, in double. Inputs are those on which stages go wrong: gates at
 * their bound and that leave nothing, keys that are much alike, betas up to 2, gradients of a
 * scaled loss.
 *
 *   test_kda_bwd          the stages' references
 *   test_kda_bwd device   ATTNGEN_PRODUCT on a GPU, or on that of GEN_LIBCUDA
 *
 * Limits are relative RMS errors: a pipeline whose operands are 16 bits comes to half of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "kda_bwd_chain.h"

#include "families/kda/backward.h"
#include "families/kda/reference_inputs.h"
#include "reference/scatter.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = BATCH * HEADS * MAX_D * MAX_D };
_Static_assert(MAX_ELEMENTS >= MAX_TOKENS * HEADS * MAX_D, "states have the most elements");

static void put(int32_t dtype, void *to, int64_t at, double x)
{
    if (dtype == GEN_DTYPE_FP32)
        ((float *)to)[at] = (float)x;
    else
        gen__kda_store(dtype == GEN_DTYPE_FP16, to, at, x);
}

static double get(int32_t dtype, const void *from, int64_t at)
{
    return gen__kda_load(dtype == GEN_DTYPE_FP32, dtype == GEN_DTYPE_FP16, from, at);
}

/* ---- cases ---------------------------------------------------------------- */

enum gates { BOUND, SOFTPLUS, SLOW, NONE, STRONG, CUTS };
enum keys { NORMAL, UNIFORM };
static const char *const names[NUM_GRADIENTS] = {"d_q",    "d_k",   "d_v",       "d_g",
                                                 "d_beta", "d_h_0", "d_dt_bias", "d_A_log"};

/* By inputs: the usual ones, keys that are alike with gates that hardly decay, betas up to 2. */
enum limits { USUAL, ALIKE, GREAT_BETAS };
static const double limits[][NUM_GRADIENTS] = {
    {0.007, 0.007, 0.007, 0.008, 0.012, 0.007, 0.008, 0.02},
    {0.010, 0.010, 0.010, 0.010, 0.018, 0.010, 0.015, 0.03},
    {0.015, 0.015, 0.015, 0.015, 0.030, 0.015, 0.020, 0.03},
};

static const struct test_case {
    const char *name;
    int32_t tokens, head_dim, dtype, beta_form, state_layout;
    enum gates gates;
    enum keys keys;
    enum limits limits;
    double loss_scale;
} cases[] = {
    {"a lower bound", 200, 64, GEN_DTYPE_BF16, 1, 1, BOUND, NORMAL, USUAL, 1},
    {"a lower bound, many tokens", 512, 64, GEN_DTYPE_BF16, 1, 1, BOUND, NORMAL, USUAL, 1},
    {"a lower bound, wide heads", 200, 128, GEN_DTYPE_BF16, 1, 0, BOUND, NORMAL, USUAL, 1},
    {"a lower bound, fp16", 200, 64, GEN_DTYPE_FP16, 1, 0, BOUND, NORMAL, USUAL, 1},
    {"a scaled loss", 200, 64, GEN_DTYPE_BF16, 1, 1, BOUND, NORMAL, USUAL, 0x1p60},
    {"softplus", 200, 64, GEN_DTYPE_BF16, 1, 1, SOFTPLUS, NORMAL, USUAL, 1},
    {"slow gates", 200, 64, GEN_DTYPE_BF16, 0, 1, SLOW, NORMAL, USUAL, 1},
    {"gates at the bound", 200, 64, GEN_DTYPE_BF16, 0, 1, STRONG, NORMAL, USUAL, 1},
    {"gates at the bound, scaled", 200, 64, GEN_DTYPE_BF16, 0, 1, STRONG, UNIFORM, USUAL, 0x1p60},
    {"gates at the bound, fp16", 200, 128, GEN_DTYPE_FP16, 0, 0, STRONG, UNIFORM, USUAL, 1},
    {"gates that leave nothing", 200, 64, GEN_DTYPE_BF16, 1, 1, CUTS, NORMAL, USUAL, 1},
    {"gates that leave nothing, wide", 200, 128, GEN_DTYPE_FP16, 1, 1, CUTS, NORMAL, USUAL, 1},
    {"keys alike, slow gates", 200, 64, GEN_DTYPE_BF16, 1, 1, SLOW, UNIFORM, ALIKE, 1},
    {"keys alike, no gates", 200, 64, GEN_DTYPE_BF16, 1, 0, NONE, UNIFORM, ALIKE, 1},
    {"betas up to 2", 200, 64, GEN_DTYPE_BF16, 2, 1, NONE, NORMAL, GREAT_BETAS, 1},
};

static const struct test_case *the;

static void describe(void)
{
    const bool given = the->gates != BOUND && the->gates != SOFTPLUS;
    chain.gate_form = given                 ? GEN_KDA_GATE_GIVEN
                      : the->gates == BOUND ? GEN_KDA_GATE_LOWER_BOUND
                                            : GEN_KDA_GATE_SOFTPLUS;
    chain.beta_form = the->beta_form;
    chain.state_layout = the->state_layout;
    chain.problem = (gen_kda_stage_problem){
        .batch = BATCH,
        .seq_len = the->tokens,
        .num_tokens = the->tokens,
        .num_qk_heads = QK_HEADS,
        .num_v_heads = HEADS,
        .head_dim = the->head_dim,
        .dtype = the->dtype,
        .gate_dtype = given ? GEN_DTYPE_FP32 : the->dtype,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = the->gates != CUTS && the->gates != SOFTPLUS,
    };
}

/* ---- inputs --------------------------------------------------------------- */

/* Nearly normal: a sum of uniform numbers, of variance 1. */
static double normal(uint64_t seed, int64_t at)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += gen__scatter(seed, 12 * at + i);
    return sum - 6;
}

static double gate(int64_t at)
{
    switch (the->gates) {
    case SLOW:
        return -log1p(exp(-normal(3, at))) / 16;
    case NONE:
        return 0;
    case STRONG:
        return -5;
    case CUTS:
        return gen__scatter(4, at) < 0.2 ? -1000 : -gen__scatter(5, at);
    default:
        return normal(3, at);
    }
}

static void *draw(int32_t dtype, uint64_t seed, int64_t count, bool uniform, double size)
{
    void *to = chain_room((size_t)count * (dtype == GEN_DTYPE_FP32 ? 4 : 2));
    for (int64_t i = 0; i < count; i++)
        put(dtype, to, i, size * (uniform ? gen__scatter(seed, i) : normal(seed, i)));
    return to;
}

static void draw_inputs(void)
{
    const int64_t d = the->head_dim, states = BATCH * HEADS * d * d;
    const bool uniform = the->keys == UNIFORM;
    chain.in.q = draw(the->dtype, 1, the->tokens * QK_HEADS * d, uniform, 1);
    chain.in.k = draw(the->dtype, 2, the->tokens * QK_HEADS * d, uniform, 1);
    chain.in.v = draw(the->dtype, 6, chain_rows() * d, uniform, 1);
    chain.in.d_o = draw(the->dtype, 7, chain_rows() * d, false, the->loss_scale);
    chain.in.g = chain_room((size_t)(chain_rows() * d) * 4);
    for (int64_t i = 0; i < chain_rows() * d; i++)
        put(chain.problem.gate_dtype, chain.in.g, i, gate(i));
    chain.in.beta = draw(GEN_DTYPE_FP32, 8, chain_rows(), the->beta_form == GEN_KDA_BETA_GIVEN, 1);
    chain.in.active_beta = chain_room((size_t)chain_rows() * sizeof *chain.in.active_beta);
    for (int64_t i = 0; i < chain_rows(); i++) {
        const double s = gen__kda_sigmoid((double)chain.in.beta[i]);
        chain.in.active_beta[i] = the->beta_form ? (float)(the->beta_form * s) : chain.in.beta[i];
    }
    chain.in.A_log = draw(GEN_DTYPE_FP32, 9, HEADS, true, the->gates == SOFTPLUS ? 2.7 : 0.5);
    chain.in.dt_bias = draw(GEN_DTYPE_FP32, 10, HEADS * d, false, 1);
    chain.in.initial = draw(GEN_DTYPE_FP32, 11, states, false, 0.3);
    chain.in.d_final = draw(GEN_DTYPE_FP32, 12, states, false, the->loss_scale);
    const int32_t starts[BATCH + 1] = {0, 65, 65, 66, the->tokens}; /* 65, 0, 1, and the rest */
    chain.in.cu_seqlens = chain_room(sizeof starts);
    memcpy(chain.in.cu_seqlens, starts, sizeof starts);
}

/* ---- against the recurrence ------------------------------------------------ */

static double expected[NUM_GRADIENTS][MAX_ELEMENTS];

static void run_recurrence(void)
{
    const struct gen__kda_backward b = {
        .in = {.q = chain.in.q,
               .k = chain.in.k,
               .v = chain.in.v,
               .g = chain.in.g,
               .beta = chain.in.beta,
               .A_log = chain_is_given() ? NULL : chain.in.A_log,
               .dt_bias = chain_is_given() ? NULL : chain.in.dt_bias,
               .cu_seqlens = chain.in.cu_seqlens,
               .scale = 0.1f,
               .lower_bound = -5,
               .gate_form = chain.gate_form,
               .beta_form = the->beta_form,
               .qk_l2norm = 1},
        .initial_state = chain.in.initial,
        .d_o = chain.in.d_o,
        .d_final_state = chain.in.d_final,
        .state_layout = the->state_layout};
    const struct gen__kda_gradients to = {.q = expected[Q],
                                          .k = expected[K],
                                          .v = expected[V],
                                          .g = expected[G],
                                          .beta = expected[BETA],
                                          .A_log = expected[A_LOG],
                                          .dt_bias = expected[BIAS],
                                          .initial_state = expected[INITIAL]};
    assert_int_equal(gen__kda_backward(gen__kda_stage_dims(&chain.problem.base), &b, &to), GEN_OK);
}

static double error_of(int gradient)
{
    const int32_t fp32 = GEN_DTYPE_FP32, gates = chain.problem.gate_dtype;
    const int32_t dtypes[] = {the->dtype, the->dtype, the->dtype, gates, fp32, fp32, fp32, fp32};
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < chain.counts[gradient]; i++) {
        const double x = get(dtypes[gradient], chain.gradients[gradient], i),
                     y = expected[gradient][i];
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static void one_case(void **state)
{
    int wrong = 0;
    the = *state;
    chain_begin();
    describe();
    draw_inputs();
    run_recurrence();
    chain_run();
    printf("#  ");
    for (int i = 0; i < (chain_is_given() ? BIAS : NUM_GRADIENTS); i++) {
        const double error = error_of(i), limit = limits[the->limits][i];
        printf(" %s %.2g%s", names[i], error, error <= limit ? "" : " (!)");
        wrong += !(error <= limit);
    }
    printf("\n");
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    enum { COUNT = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[COUNT];
    util_set_program("test-kda-bwd");
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "device") == 0 && !chain_open(&failed))
        return failed;
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = one_case,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    chain_close();
    return failed;
}
