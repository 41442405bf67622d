/*
 * The last stages of the backward pass of Kimi Delta Attention, kda_bwd_intra, kda_gate_bwd and
 * kda_qk_bwd: their launches, what they refuse, and what they do without tokens. Their results are
 * tests/gpu/test_kda_bwd.c's affair.
 */
#include "families/kda_bwd_intra/api.h"
#include "families/kda_gate_bwd/api.h"
#include "families/kda_qk_bwd/api.h"
#include "kda_stages.h"

#include <math.h>

extern const struct gen__family gen__family_kda_bwd_intra, gen__family_kda_gate_bwd,
    gen__family_kda_qk_bwd;

enum { BWD_INTRA, BWD_GATE, BWD_QK, NUM_FAMILIES };
static const struct gen__family *const families[NUM_FAMILIES] = {
    &gen__family_kda_bwd_intra, &gen__family_kda_gate_bwd, &gen__family_kda_qk_bwd};

/* As good an address as any: nothing is read. */
static _Alignas(16) float memory[16];

static gen_kda_stage_problem problem_of(int family, int32_t batch, int32_t seq_len)
{
    gen_kda_stage_problem p = problem(GATE, batch, seq_len, 2, 8);
    p.base.family = families[family]->tag;
    return p;
}

static enum gen_status check_args(int family, const gen_args *args)
{
    const gen_kda_stage_problem p = problem_of(family, 3, 130);
    gen_plan plan = {0};
    struct gen__key key;
    assert_int_equal(families[family]->check(&p.base, &key), GEN_OK);
    families[family]->plan(&p.base, &h200, NULL, &plan);
    return families[family]->params(&plan, 0, args, NULL, NULL);
}

/* ---- geometry ---------------------------------------------------------------- */

static void geometry(void **state)
{
    (void)state;
    const struct gen__facts v = {
        .index = 7, .threads = 256, .shared_dynamic = 1 << 10, .cluster = 1, .fact = {1}};
    /* Nine chunks: of eight value heads; of two query heads' q and k, and of betas. */
    static const uint32_t grids[NUM_FAMILIES] = {9 * 8, 9 * 8, 9 * 5};
    for (int i = 0; i < NUM_FAMILIES; i++) {
        gen_kda_stage_problem p = problem_of(i, 3, 130);
        gen_plan plan = {0};
        struct gen__key key;
        families[i]->plan(&p.base, &h200, &v, &plan);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.workspace_bytes, 0);
        assert_int_equal(plan.launch[0].variant, 7);
        assert_int_equal(plan.launch[0].grid[0], grids[i]);
        assert_int_equal(plan.launch[0].dependent, 1);
        assert_string_equal(families[i]->results, "kda_stages");
        p.base.flags = GEN_SERIAL_LAUNCH;
        families[i]->plan(&p.base, &h200, &v, &plan);
        assert_int_equal(plan.launch[0].dependent, 0);
        p.num_qk_heads = 3;
        assert_int_equal(families[i]->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    }
}

/* Gates' sums are written though no sequence has tokens: a block a head does so. */
static void without_tokens(void **state)
{
    (void)state;
    const struct gen__facts v = {.threads = 256, .cluster = 1, .fact = {1}};
    static const int32_t shapes[][2] = {{3, 0}, {0, 130}};
    for (int i = 0; i < NUM_FAMILIES; i++)
        for (int n = 0; n < 2; n++) {
            const gen_kda_stage_problem p = problem_of(i, shapes[n][0], shapes[n][1]);
            gen_plan plan = {0};
            struct gen__key key;
            assert_int_equal(families[i]->check(&p.base, &key), GEN_OK);
            assert_true(key.empty == (i != BWD_GATE));
            families[i]->plan(&p.base, &h200, &v, &plan);
            assert_int_equal(plan.num_launches, i == BWD_GATE);
            assert_int_equal(plan.launch[0].grid[0], i == BWD_GATE ? 8 : 0);
        }
    float rates[8] = {0}, d_rates[8];
    _Alignas(16) float partials[8 * 4], bias[8 * 64] = {0}, d_bias[8 * 64];
    const gen_kda_gate_bwd_args args = {.base = {sizeof args, GEN_KDA_GATE_BWD},
                                        .A_log = rates,
                                        .dt_bias = bias,
                                        .d_A_log = d_rates,
                                        .d_dt_bias = d_bias,
                                        .partials = partials,
                                        .lower_bound = -5,
                                        .gate_form = GEN_KDA_GATE_LOWER_BOUND};
    const gen_kda_stage_problem p = problem_of(BWD_GATE, 0, 130);
    gen_plan plan = {0};
    memset(d_rates, 0xff, sizeof d_rates);
    memset(d_bias, 0xff, sizeof d_bias);
    families[BWD_GATE]->plan(&p.base, &h200, NULL, &plan);
    assert_int_equal(families[BWD_GATE]->params(&plan, 0, &args.base, NULL, NULL), GEN_OK);
    assert_int_equal(families[BWD_GATE]->reference(&plan, &args.base), GEN_OK);
    for (int i = 0; i < 8 * 64; i++)
        assert_true(d_bias[i] == 0.0f && d_rates[i / 64] == 0.0f);
}

/* ---- arguments ---------------------------------------------------------------- */

/* Pointers of a struct, one after the other: none may be NULL or off its alignment. */
static void pointers(int family, gen_args *args, const size_t *offsets, const char *const *names,
                     int count, uintptr_t alignment)
{
    for (int i = 0; i < count; i++) {
        void **const pointer = (void **)(void *)((char *)args + offsets[i]);
        void *const good = *pointer;
        char text[160];
        assert_int_equal(check_args(family, args), GEN_OK);
        *pointer = NULL;
        snprintf(text, sizeof text, "%s: %s is NULL", families[family]->name, names[i]);
        assert_failed(check_args(family, args), INVALID_ARGUMENT, text);
        *pointer = (char *)good + alignment / 2;
        snprintf(text, sizeof text, "%s: %s = %p; allowed: a multiple of %d bytes",
                 families[family]->name, names[i], *pointer, (int)alignment);
        assert_failed(check_args(family, args), INVALID_ARGUMENT, text);
        *pointer = good;
    }
}

#define AT(type, name) offsetof(gen_##type##_args, name)

static void intra_arguments(void **state)
{
    (void)state;
    gen_kda_bwd_intra_args a = {.base = {sizeof a, GEN_KDA_BWD_INTRA},
                                .q = memory,
                                .k = memory,
                                .gk = memory,
                                .beta = memory,
                                .d_a_qk = memory,
                                .d_a_kk = memory,
                                .d_q_states = memory,
                                .d_k_states = memory,
                                .d_beta_states = memory,
                                .d_g_states = memory,
                                .d_q = memory,
                                .d_k = memory,
                                .d_beta = memory,
                                .d_g = memory};
    static const size_t wide[] = {
        AT(kda_bwd_intra, q),          AT(kda_bwd_intra, k),          AT(kda_bwd_intra, gk),
        AT(kda_bwd_intra, d_a_qk),     AT(kda_bwd_intra, d_a_kk),     AT(kda_bwd_intra, d_q_states),
        AT(kda_bwd_intra, d_k_states), AT(kda_bwd_intra, d_g_states), AT(kda_bwd_intra, d_q),
        AT(kda_bwd_intra, d_k),        AT(kda_bwd_intra, d_g)};
    static const char *const wide_names[] = {"q",      "k",          "gk",         "d_a_qk",
                                             "d_a_kk", "d_q_states", "d_k_states", "d_g_states",
                                             "d_q",    "d_k",        "d_g"};
    static const size_t narrow[] = {AT(kda_bwd_intra, beta), AT(kda_bwd_intra, d_beta_states),
                                    AT(kda_bwd_intra, d_beta)};
    static const char *const narrow_names[] = {"beta", "d_beta_states", "d_beta"};
    pointers(BWD_INTRA, &a.base, wide, wide_names, 11, 16);
    pointers(BWD_INTRA, &a.base, narrow, narrow_names, 3, 4);
}

static const gen_kda_gate_bwd_args gate_args = {.base = {sizeof gate_args, GEN_KDA_GATE_BWD},
                                                .g = memory,
                                                .A_log = memory,
                                                .dt_bias = memory,
                                                .d_gk = memory,
                                                .d_g = memory,
                                                .d_A_log = memory,
                                                .d_dt_bias = memory,
                                                .partials = memory,
                                                .lower_bound = -5,
                                                .gate_form = GEN_KDA_GATE_LOWER_BOUND,
                                                .suffix_sum = 1};

static void gate_arguments(void **state)
{
    (void)state;
    gen_kda_gate_bwd_args a = gate_args;
    static const size_t wide[] = {AT(kda_gate_bwd, g), AT(kda_gate_bwd, d_gk),
                                  AT(kda_gate_bwd, d_g), AT(kda_gate_bwd, partials)};
    static const char *const names[] = {"g", "d_gk", "d_g", "partials"};
    pointers(BWD_GATE, &a.base, wide, names, 4, 16);
    a.suffix_sum = 2;
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate_bwd: suffix_sum = 2; allowed: 0, 1");
    a = gate_args, a.lower_bound = 0;
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate_bwd: lower_bound = 0; allowed: -5 <= lower_bound < 0");
    a = gate_args, a.lower_bound = -5.5f;
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate_bwd: lower_bound = -5.5; allowed: -5 <= lower_bound < 0");
    a = gate_args, a.g_stride = 504;
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate_bwd: g_stride = 504 elements; allowed: 0 (packed), or a multiple of 8 "
                  "from 512 (one token) to 2956208986171402");
    a = gate_args, a.d_g_stride = 516;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_STATUS_INVALID_ARGUMENT);
    a.d_g_stride = 520;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_OK);
}

/* Which forms go with which tensors. */
static void gate_forms(void **state)
{
    (void)state;
    gen_kda_gate_bwd_args a = gate_args;
    char text[160];
    a.gate_form = 3;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_STATUS_INVALID_ARGUMENT);
    a.gate_form = GEN_KDA_GATE_GIVEN;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_STATUS_INVALID_ARGUMENT);
    a.A_log = a.dt_bias = a.d_A_log = a.d_dt_bias = a.partials = NULL, a.g = NULL;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_OK);
    a = gate_args, a.gate_form = GEN_KDA_GATE_SOFTPLUS, a.A_log = NULL, a.d_A_log = NULL;
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate_bwd: A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: "
                  "num_v_heads numbers");
    a.gate_form = GEN_KDA_GATE_LOWER_BOUND;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_OK);
    a.d_A_log = memory;
    snprintf(text, sizeof text, "kda_gate_bwd: d_A_log = %p without A_log; allowed: NULL",
             (void *)memory);
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT, text);
    a = gate_args, a.dt_bias = NULL;
    snprintf(text, sizeof text, "kda_gate_bwd: d_dt_bias = %p without dt_bias; allowed: NULL",
             (void *)memory);
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT, text);
    a.d_dt_bias = NULL, a.partials = NULL; /* d_A_log is wanted yet */
    assert_failed(check_args(BWD_GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate_bwd: partials is NULL");
    a.d_A_log = NULL;
    assert_int_equal(check_args(BWD_GATE, &a.base), GEN_OK);
}

static const gen_kda_qk_bwd_args qk_args = {.base = {sizeof qk_args, GEN_KDA_QK_BWD},
                                            .q = memory,
                                            .k = memory,
                                            .beta = memory,
                                            .d_q_heads = memory,
                                            .d_k_heads = memory,
                                            .d_beta_heads = memory,
                                            .d_q = memory,
                                            .d_k = memory,
                                            .d_beta = memory,
                                            .qk_l2norm = 1,
                                            .beta_form = GEN_KDA_BETA_SIGMOID};

static void qk_arguments(void **state)
{
    (void)state;
    gen_kda_qk_bwd_args a = qk_args;
    static const size_t wide[] = {AT(kda_qk_bwd, q), AT(kda_qk_bwd, k), AT(kda_qk_bwd, d_q_heads),
                                  AT(kda_qk_bwd, d_k_heads)};
    static const char *const wide_names[] = {"q", "k", "d_q_heads", "d_k_heads"};
    static const size_t narrow[] = {AT(kda_qk_bwd, beta), AT(kda_qk_bwd, d_beta_heads)};
    static const char *const narrow_names[] = {"beta", "d_beta_heads"};
    char text[160];
    pointers(BWD_QK, &a.base, wide, wide_names, 4, 16);
    pointers(BWD_QK, &a.base, narrow, narrow_names, 2, 4);
    a.qk_l2norm = 2;
    assert_failed(check_args(BWD_QK, &a.base), INVALID_ARGUMENT,
                  "kda_qk_bwd: qk_l2norm = 2; allowed: 0, 1");
    a = qk_args, a.beta_form = -1;
    assert_int_equal(check_args(BWD_QK, &a.base), GEN_STATUS_INVALID_ARGUMENT);
    a = qk_args, a.qk_l2norm = 0, a.k_rstd = memory;
    snprintf(text, sizeof text,
             "kda_qk_bwd: q_rstd = %p, k_rstd = %p without qk_l2norm; allowed: NULL", NULL,
             (void *)memory);
    assert_failed(check_args(BWD_QK, &a.base), INVALID_ARGUMENT, text);
    a = qk_args, a.d_k_stride = 120;
    assert_int_equal(check_args(BWD_QK, &a.base), GEN_STATUS_INVALID_ARGUMENT);
    a.d_k_stride = 136, a.d_beta_stride = 9;
    assert_int_equal(check_args(BWD_QK, &a.base), GEN_OK);
    a.d_beta_stride = 7;
    assert_int_equal(check_args(BWD_QK, &a.base), GEN_STATUS_INVALID_ARGUMENT);
}

/* What is not wanted, or not activated, needs no input. */
static void qk_parts(void **state)
{
    (void)state;
    gen_kda_qk_bwd_args a = {
        .base = {sizeof a, GEN_KDA_QK_BWD}, .qk_l2norm = 1, .beta_form = GEN_KDA_BETA_TWO_SIGMOID};
    assert_int_equal(check_args(BWD_QK, &a.base), GEN_OK);
    a.d_k = a.d_beta = memory;
    assert_failed(check_args(BWD_QK, &a.base), INVALID_ARGUMENT, "kda_qk_bwd: k is NULL");
    a.qk_l2norm = 0, a.beta_form = GEN_KDA_BETA_GIVEN;
    assert_failed(check_args(BWD_QK, &a.base), INVALID_ARGUMENT, "kda_qk_bwd: d_k_heads is NULL");
    a.d_k_heads = a.d_beta_heads = memory;
    assert_int_equal(check_args(BWD_QK, &a.base), GEN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry),        cmocka_unit_test(without_tokens),
        cmocka_unit_test(intra_arguments), cmocka_unit_test(gate_arguments),
        cmocka_unit_test(gate_forms),      cmocka_unit_test(qk_arguments),
        cmocka_unit_test(qk_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
