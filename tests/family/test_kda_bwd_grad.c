/*
 * kda_bwd_grad: what it allows and what it says where it does not, its blocks, and that its
 * reference's sums over tokens are those of kda_gate_bwd. What it computes is held to the
 * recurrence in reverse by kda_bwd, whose plans launch it.
 */
#include "kda_bwd_grad/args.h"
#include "families/kda_bwd_grad/kda_bwd_grad.h"
#include "reference/half.h"
#include "h200.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const struct gen__family gen__family_kda_bwd_grad;
static const struct gen__family *const family = &gen__family_kda_bwd_grad;

static gen_kda_bwd_grad_problem problem(int32_t seq_len, int32_t qk_heads, int32_t heads)
{
    return (gen_kda_bwd_grad_problem){
        .base = {sizeof(gen_kda_bwd_grad_problem), GEN_KDA_BWD_GRAD, 0, 0},
        .batch = 3,
        .seq_len = seq_len,
        .num_qk_heads = qk_heads,
        .num_v_heads = heads,
        .head_dim = 64,
        .dtype = GEN_DTYPE_BF16,
        .gate_dtype = GEN_DTYPE_BF16,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = 1,
    };
}

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_kda_bwd_grad_problem p = problem(130, 4, 8);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "bf16");
    assert_string_equal(family->required[1].values[key.codes[1]], "64");
    assert_true(!key.empty && key.counts[0] == 72); /* 3 sequences, 3 chunks, 8 heads */
    assert_true(key.counts[1] == 2);                /* of a query head */
    p.seq_len = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    p.safe_gate = 0;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_bwd_grad: safe_gate = 0; allowed: 1");
}

/* A block for each chunk of a head, or as many as run at a time. */
static void blocks_of_a_launch(void **state)
{
    (void)state;
    const struct gen__facts one = {.index = 7,
                                   .threads = 512,
                                   .shared_dynamic = 230976,
                                   .registers = 128,
                                   .cluster = 1,
                                   .fact = {1}};
    static const struct {
        int32_t seq_len, heads;
        uint32_t blocks;
    } cases[] = {{64, 4, 12}, {65, 4, 24}, {64 * 44, 1, 132}, {8192, 64, 132}, {0, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gen_kda_bwd_grad_problem p = problem(cases[i].seq_len, 1, cases[i].heads);
        gen_plan plan = {0};
        family->plan(&p.base, &h200, &one, &plan);
        assert_int_equal(plan.num_launches, cases[i].blocks > 0);
        assert_int_equal(plan.launch[0].grid[0], cases[i].blocks);
    }
    /* No more than there is room for in `sums`. */
    gen_device wide = h200;
    wide.num_sms = 300;
    const gen_kda_bwd_grad_problem p = problem(8192, 1, 64);
    gen_plan plan = {0};
    family->plan(&p.base, &wide, &one, &plan);
    assert_int_equal(plan.launch[0].grid[0], GEN_KDA_BWD_GRAD_BLOCKS);
}

/* ---- arguments ----------------------------------------------------------- */

enum { D = 64, TOKENS = 3 * 70, HEADS = 2, ROWS = TOKENS * HEADS, ELEMENTS = ROWS * D };
enum { SLOTS = 6, STATES = SLOTS * HEADS * D * D };

static struct {
    _Alignas(16) uint16_t q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], v_new[ELEMENTS], g[ELEMENTS],
        a_kk[ROWS * KDA_CHUNK], h[STATES], d_o[ELEMENTS], d_h[STATES], d_v_new[ELEMENTS],
        d_q[ELEMENTS], d_k[ELEMENTS], d_v[ELEMENTS], d_g[ELEMENTS];
    _Alignas(16) float gk[ELEMENTS], beta[ROWS], A_log[HEADS], dt_bias[HEADS * D], d_beta[ROWS],
        d_q_heads[ELEMENTS], d_k_heads[ELEMENTS], sums[GEN_KDA_BWD_GRAD_SUMS(D)],
        partials[GEN_KDA_BWD_GRAD_PARTIALS(SLOTS, HEADS, D)];
} x;

static gen_kda_bwd_grad_args good_args(void)
{
    return (gen_kda_bwd_grad_args){.base = {sizeof(gen_kda_bwd_grad_args), GEN_KDA_BWD_GRAD},
                                   .q = x.q,
                                   .k = x.k,
                                   .v = x.v,
                                   .v_new = x.v_new,
                                   .gk = x.gk,
                                   .g = x.g,
                                   .A_log = x.A_log,
                                   .dt_bias = x.dt_bias,
                                   .beta = x.beta,
                                   .a_kk = x.a_kk,
                                   .h = x.h,
                                   .d_o = x.d_o,
                                   .d_h = x.d_h,
                                   .d_v_new = x.d_v_new,
                                   .d_q = x.d_q,
                                   .d_k = x.d_k,
                                   .d_v = x.d_v,
                                   .d_g = x.d_g,
                                   .d_beta = x.d_beta,
                                   .partials = x.partials,
                                   .scale = 0.125f,
                                   .lower_bound = -5,
                                   .gate_form = GEN_KDA_GATE_LOWER_BOUND,
                                   .beta_form = GEN_KDA_BETA_SIGMOID,
                                   .qk_l2norm = 1,
                                   .state_layout = GEN_KDA_STATE_KV};
}

static gen_plan plan_of(int32_t qk_heads)
{
    const gen_kda_bwd_grad_problem p = problem(70, qk_heads, HEADS);
    gen_plan plan = {0};
    family->plan(&p.base, &h200, NULL, &plan);
    return plan;
}

static void assert_begins(const gen_plan *plan, const gen_kda_bwd_grad_args *a, const char *message)
{
    char text[128];
    assert_int_equal(family->params(plan, 0, &a->base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    snprintf(text, sizeof text, "%.*s", (int)strlen(message), gen_last_error());
    assert_string_equal(text, message);
}

static void argument_errors(void **state)
{
    (void)state;
    const gen_plan plan = plan_of(HEADS);
    gen_kda_bwd_grad_args a = good_args();
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
#define WRONG(change, message)                              \
    do {                                                    \
        a = good_args();                                    \
        change;                                             \
        assert_begins(&plan, &a, "kda_bwd_grad: " message); \
    } while (0)
    WRONG(a.q = NULL, "q is NULL");
    WRONG(a.g = NULL, "g is NULL");
    WRONG(a.h = x.h + 1, "h = ");
    WRONG(a.d_q = NULL, "d_q is NULL");
    WRONG(a.d_q_heads = x.d_q_heads, "d_q = ");
    WRONG((a.d_q = a.d_k = NULL, a.d_q_heads = x.d_q_heads), "d_k_heads is NULL");
    WRONG(a.d_beta = NULL, "d_beta is NULL");
    WRONG(a.partials = x.partials + 1, "partials = ");
    WRONG(a.q_stride = 120, "q_stride = 120 elements; allowed: 0 (packed), or a multiple of 8");
    WRONG(a.scale = INFINITY, "scale = inf; allowed: a finite number");
    WRONG(a.lower_bound = -6, "lower_bound = -6; allowed: -5 <= lower_bound < 0");
    WRONG(a.gate_form = 3, "gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0)");
    WRONG(a.gate_form = GEN_KDA_GATE_GIVEN, "A_log = ");
    WRONG((a.gate_form = GEN_KDA_GATE_SOFTPLUS, a.A_log = NULL), "A_log is NULL");
    WRONG(a.beta_form = 3, "beta_form = 3; allowed: GEN_KDA_BETA_GIVEN (0)");
    WRONG(a.qk_l2norm = 2, "qk_l2norm = 2; allowed: 0, 1");
    WRONG(a.state_layout = 2, "state_layout = 2; allowed: GEN_KDA_STATE_VK (0)");
    WRONG(a.num_chunks = -1, "num_chunks = -1; allowed: 0 (all), or more");
#undef WRONG
}

/* What may be absent, and groups, whose heads are added or written one by one. */
static void other_arguments(void **state)
{
    (void)state;
    const gen_plan plan = plan_of(HEADS), groups = plan_of(1);
    gen_kda_bwd_grad_args a = good_args();
    struct gen_kda_bwd_grad_params k;
    assert_begins(&groups, &a, "kda_bwd_grad: sums is NULL");
    a.sums = x.sums;
    assert_begins(&plan, &a, "kda_bwd_grad: sums = ");
    assert_int_equal(family->params(&groups, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.unit, HEADS);
    assert_ptr_equal(k.sums, x.sums);
    a.d_q = a.d_k = NULL;
    a.d_q_heads = x.d_q_heads;
    a.d_k_heads = x.d_k_heads;
    assert_begins(&groups, &a, "kda_bwd_grad: sums = ");
    a.sums = NULL;
    assert_int_equal(family->params(&groups, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.unit, 1);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a = good_args();
    a.A_log = a.dt_bias = NULL;
    a.partials = NULL;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.gate_form = GEN_KDA_GATE_GIVEN;
    a.g = NULL;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

/* ---- the reference --------------------------------------------------------- */

/* Shares of a chunk are sums of what it stores, and of nothing where no chunk has a slot. */
static void partials_are_sums(void **state)
{
    (void)state;
    const gen_plan plan = plan_of(HEADS);
    gen_kda_bwd_grad_args a = good_args();
    uint64_t seed = 3;
    memset(&x, 0, sizeof x);
    for (int i = 0; i < ELEMENTS; i++) {
        uint16_t *const rows[] = {x.q, x.k, x.v, x.v_new, x.g, x.d_o, x.d_v_new};
        for (size_t t = 0; t < sizeof rows / sizeof *rows; t++)
            rows[t][i] = gen__bf16_from_double(random_unit(&seed));
    }
    for (int row = 0; row < ROWS; row++)
        x.a_kk[row * KDA_CHUNK + row / HEADS % 70 % KDA_CHUNK] = gen__bf16_from_double(1.0);
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    for (int n = 0; n < HEADS * D; n++) {
        double sum = 0.0, got = 0.0, size = 0.0;
        for (int token = 0; token < TOKENS; token++) {
            sum += gen__bf16_to_double(x.d_g[token * HEADS * D + n]);
            size += fabs(gen__bf16_to_double(x.d_g[token * HEADS * D + n]));
        }
        for (int slot = 0; slot < SLOTS; slot++)
            got += (double)x.partials[(slot * HEADS + n / D) * (D + 4) + n % D];
        assert_true(size > 0 && fabs(sum - got) < size / 256); /* d_g is rounded */
    }
    for (int i = 0; i < SLOTS * HEADS; i++)
        for (int last = D + 1; last < D + 4; last++)
            assert_true(x.partials[i * (D + 4) + last] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),  cmocka_unit_test(blocks_of_a_launch),
        cmocka_unit_test(argument_errors),   cmocka_unit_test(other_arguments),
        cmocka_unit_test(partials_are_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
