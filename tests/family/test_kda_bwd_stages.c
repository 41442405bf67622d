/*
 * The stages of the backward pass of Kimi Delta Attention: what they refuse, and their references,
 * which one after the other, and behind those of the forward pass, come to the gradients that the
 * recurrence in reverse has.
 */
#include "reference/half.h"
#include "families/kda/backward.h"
#include "families/kda_bwd_dav/api.h"
#include "families/kda_bwd_dhu/api.h"
#include "families/kda_bwd_wy/api.h"
#include "kda_stages.h"

#include <math.h>
#include <string.h>

extern const struct gen__family gen__family_kda_bwd_dav, gen__family_kda_bwd_dhu,
    gen__family_kda_bwd_wy;

enum { D = 64, TOKENS = 150, QK_HEADS = 2, HEADS = 4, BATCH = 4 };
enum { ROWS = TOKENS * HEADS, ELEMENTS = ROWS * D, CHUNKS = TOKENS / 64 + BATCH };
enum { NUM_STATES = BATCH * HEADS * D * D };

static const int32_t cu_seqlens[BATCH + 1] = {0, 65, 65, 66, 150};

static struct {
    _Alignas(16) uint16_t q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], w[ELEMENTS], u[ELEMENTS],
        kg[ELEMENTS], qg[ELEMENTS], v_new[ELEMENTS], d_o[ELEMENTS], d_v[ELEMENTS],
        d_v_new[ELEMENTS], d_value[ELEMENTS], a_qk[ROWS * 64], a_kk[ROWS * 64],
        h[CHUNKS * HEADS * D * D], d_h[CHUNKS * HEADS * D * D];
    _Alignas(16) float g[ELEMENTS], gk[ELEMENTS], beta[ROWS], initial[NUM_STATES],
        d_final[NUM_STATES], d_initial[NUM_STATES], d_a_qk[ROWS * 64], d_a_kk[ROWS * 64],
        d_q[ELEMENTS], d_k[ELEMENTS], d_g[ELEMENTS], d_beta[ROWS];
} x;

/* Gradients: of the recurrence, and of the stages. */
static struct gradients {
    double q[ELEMENTS / 2], k[ELEMENTS / 2], v[ELEMENTS], g[ELEMENTS], beta[ROWS],
        initial[NUM_STATES];
} expected, got;

static gen_kda_stage_problem packed(const struct gen__family *family)
{
    gen_kda_stage_problem p = problem(GATE, BATCH, 90, QK_HEADS, HEADS);
    p.base.family = family->tag;
    p.num_tokens = TOKENS;
    return p;
}

static enum gen_status check_args(const struct gen__family *family, const gen_args *args)
{
    const gen_kda_stage_problem p = packed(family);
    gen_plan plan = {0};
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    family->plan(&p.base, &h200, NULL, &plan);
    return family->params(&plan, 0, args, NULL, NULL);
}

static void run(const struct gen__family *family, const gen_args *args)
{
    const gen_kda_stage_problem p = packed(family);
    gen_plan plan = {0};
    assert_int_equal(check_args(family, args), GEN_OK);
    family->plan(&p.base, &h200, NULL, &plan);
    assert_int_equal(family->reference(&plan, args), GEN_OK);
}

static const gen_kda_bwd_dav_args dav = {.base = {sizeof dav, GEN_KDA_BWD_DAV},
                                         .v_new = x.v_new,
                                         .d_o = x.d_o,
                                         .a_qk = x.a_qk,
                                         .cu_seqlens = cu_seqlens,
                                         .d_a_qk = x.d_a_qk,
                                         .d_v = x.d_v,
                                         .scale = 0.125f};
static const gen_kda_bwd_dhu_args dhu = {.base = {sizeof dhu, GEN_KDA_BWD_DHU},
                                         .qg = x.qg,
                                         .kg = x.kg,
                                         .w = x.w,
                                         .d_o = x.d_o,
                                         .d_v = x.d_v,
                                         .gk = x.gk,
                                         .d_final_state = x.d_final,
                                         .cu_seqlens = cu_seqlens,
                                         .d_h = x.d_h,
                                         .d_v_new = x.d_v_new,
                                         .d_initial_state = x.d_initial,
                                         .scale = 0.125f,
                                         .state_layout = GEN_KDA_STATE_KV};
static const gen_kda_bwd_wy_args wy = {.base = {sizeof wy, GEN_KDA_BWD_WY},
                                       .q = x.q,
                                       .k = x.k,
                                       .v = x.v,
                                       .v_new = x.v_new,
                                       .gk = x.gk,
                                       .beta = x.beta,
                                       .a_kk = x.a_kk,
                                       .h = x.h,
                                       .d_o = x.d_o,
                                       .d_h = x.d_h,
                                       .d_v_new = x.d_v_new,
                                       .cu_seqlens = cu_seqlens,
                                       .d_q = x.d_q,
                                       .d_k = x.d_k,
                                       .d_v = x.d_value,
                                       .d_beta = x.d_beta,
                                       .d_g = x.d_g,
                                       .d_a_kk = x.d_a_kk,
                                       .scale = 0.125f,
                                       .state_layout = GEN_KDA_STATE_KV};

/* ---- against the recurrence in reverse ------------------------------------ */

static void draw(void)
{
    uint64_t seed = 3;
    for (int i = 0; i < ELEMENTS; i++) {
        x.q[i] = gen__fp16_from_double(random_unit(&seed) / 4);
        x.k[i] = gen__fp16_from_double(random_unit(&seed) / 4);
        x.v[i] = gen__fp16_from_double(random_unit(&seed));
        x.d_o[i] = gen__fp16_from_double(random_unit(&seed));
        x.g[i] = (float)(0.5 * random_unit(&seed) - 0.5);
    }
    for (int i = 0; i < ROWS; i++)
        x.beta[i] = (float)fabs(random_unit(&seed));
    for (int i = 0; i < NUM_STATES; i++) {
        x.initial[i] = (float)random_unit(&seed);
        x.d_final[i] = (float)random_unit(&seed);
    }
}

static void run_forward(int32_t layout)
{
    const gen_kda_gate_args gate = {.base = {sizeof gate, GEN_KDA_GATE},
                                    .g = x.g,
                                    .cu_seqlens = cu_seqlens,
                                    .gk = x.gk,
                                    .gate_form = GEN_KDA_GATE_GIVEN};
    run(stages[GATE], &gate.base);
    const gen_kda_chunk_intra_args intra = {.base = {sizeof intra, GEN_KDA_CHUNK_INTRA},
                                            .q = x.q,
                                            .k = x.k,
                                            .v = x.v,
                                            .gk = x.gk,
                                            .beta = x.beta,
                                            .cu_seqlens = cu_seqlens,
                                            .a_qk = x.a_qk,
                                            .a_kk = x.a_kk,
                                            .w = x.w,
                                            .u = x.u,
                                            .kg = x.kg,
                                            .qg = x.qg,
                                            .scale = 0.125f};
    run(stages[INTRA], &intra.base);
    const gen_kda_chunk_h_args states = {.base = {sizeof states, GEN_KDA_CHUNK_H},
                                         .kg = x.kg,
                                         .w = x.w,
                                         .u = x.u,
                                         .gk = x.gk,
                                         .initial_state = x.initial,
                                         .cu_seqlens = cu_seqlens,
                                         .h = x.h,
                                         .v_new = x.v_new,
                                         .state_layout = layout};
    run(stages[STATES], &states.base);
}

/* A channel of a chunk: what the scores' gradients add, and gates' gradients summed over rows. */
static void finish_channel(int64_t first, int64_t count, int64_t head, int64_t c)
{
    double sum = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        const int64_t row = (first + i) * HEADS + head, at = row * D + c;
        const int64_t qk_at = ((first + i) * QK_HEADS + head / (HEADS / QK_HEADS)) * D + c;
        const double q_i = gen__fp16_to_double(x.q[qk_at]), k_i = gen__fp16_to_double(x.k[qk_at]);
        double d_q = 0, along = 0, d_column = 0;
        for (int64_t j = 0; j < count; j++) {
            const int64_t other = (first + j) * HEADS + head;
            const int64_t qk_other = ((first + j) * QK_HEADS + head / (HEADS / QK_HEADS)) * D + c;
            const double q_j = gen__fp16_to_double(x.q[qk_other]),
                         k_j = gen__fp16_to_double(x.k[qk_other]),
                         ratio = exp2((double)x.gk[at] - (double)x.gk[other * D + c]);
            if (j <= i) {
                d_q += (double)x.d_a_qk[row * 64 + j] * k_j * ratio;
                along += (double)x.d_a_kk[row * 64 + j] * k_j * ratio;
            }
            if (j >= i)
                d_column += ((double)x.d_a_qk[other * 64 + i] * q_j +
                             (double)x.d_a_kk[other * 64 + i] * (double)x.beta[other] * k_j) /
                            ratio;
        }
        const double d_row = (double)x.beta[row] * along;
        got.q[qk_at] += (double)x.d_q[at] + d_q;
        got.k[qk_at] += (double)x.d_k[at] + d_row + d_column;
        got.beta[row] += k_i * along;
        sum += (double)x.d_g[at] + q_i * d_q + k_i * (d_row - d_column);
        got.g[at] = sum;
    }
}

static double error(const double *a, const double *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}

static void run_backward(int32_t layout)
{
    gen_kda_bwd_dhu_args states = dhu;
    gen_kda_bwd_wy_args inputs = wy;
    states.state_layout = inputs.state_layout = layout;
    run(&gen__family_kda_bwd_dav, &dav.base);
    run(&gen__family_kda_bwd_dhu, &states.base);
    run(&gen__family_kda_bwd_wy, &inputs.base);
    memset(&got, 0, sizeof got);
    for (int i = 0; i < ROWS; i++)
        got.beta[i] = (double)x.d_beta[i];
    for (int i = 0; i < ELEMENTS; i++)
        got.v[i] = gen__fp16_to_double(x.d_value[i]);
    for (int i = 0; i < NUM_STATES; i++)
        got.initial[i] = (double)x.d_initial[i];
    for (int64_t n = 0; n < BATCH; n++)
        for (int64_t first = cu_seqlens[n]; first < cu_seqlens[n + 1]; first += 64) {
            const int64_t left = cu_seqlens[n + 1] - first, count = left < 64 ? left : 64;
            for (int64_t i = 0; i < HEADS * D; i++)
                finish_channel(first, count, i / D, i % D);
        }
}

static void stages_come_to_the_gradients(void **state)
{
    (void)state;
    static const int32_t layouts[] = {GEN_KDA_STATE_KV, GEN_KDA_STATE_VK};
    for (int i = 0; i < 2; i++) {
        draw();
        const gen_kda_stage_problem p = packed(stages[GATE]);
        const struct gen__kda_backward b = {.in = {.q = x.q,
                                                   .k = x.k,
                                                   .v = x.v,
                                                   .g = x.g,
                                                   .beta = x.beta,
                                                   .cu_seqlens = cu_seqlens,
                                                   .scale = 0.125f},
                                            .initial_state = x.initial,
                                            .d_o = x.d_o,
                                            .d_final_state = x.d_final,
                                            .state_layout = layouts[i]};
        const struct gen__kda_gradients to = {.q = expected.q,
                                              .k = expected.k,
                                              .v = expected.v,
                                              .g = expected.g,
                                              .beta = expected.beta,
                                              .initial_state = expected.initial};
        assert_int_equal(gen__kda_backward(gen__kda_stage_dims(&p.base), &b, &to), GEN_OK);
        run_forward(layouts[i]);
        run_backward(layouts[i]);
        assert_true(error(got.q, expected.q, ELEMENTS / 2) < 1e-3);
        assert_true(error(got.k, expected.k, ELEMENTS / 2) < 1e-3);
        assert_true(error(got.v, expected.v, ELEMENTS) < 1e-3);
        assert_true(error(got.g, expected.g, ELEMENTS) < 2e-3);
        assert_true(error(got.beta, expected.beta, ROWS) < 2e-3);
        assert_true(error(got.initial, expected.initial, NUM_STATES) < 1e-3);
    }
}

/* ---- geometry and arguments ------------------------------------------------ */

static void geometry(void **state)
{
    (void)state;
    const struct gen__facts v = {
        .index = 7, .threads = 256, .shared_dynamic = 1 << 10, .cluster = 1, .fact = {1}};
    const struct gen__family *const families[] = {
        &gen__family_kda_bwd_dav, &gen__family_kda_bwd_dhu, &gen__family_kda_bwd_wy};
    static const uint32_t grids[][2] = {{9 * 8, 1}, {8, 3}, {9 * 8, 1}};
    for (int i = 0; i < 3; i++) {
        gen_kda_stage_problem p = problem(GATE, 3, 130, 2, 8);
        gen_plan plan = {0};
        struct gen__key key;
        p.base.family = families[i]->tag;
        families[i]->plan(&p.base, &h200, &v, &plan);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].grid[0], grids[i][0]);
        assert_int_equal(plan.launch[0].grid[1], grids[i][1]);
        assert_int_equal(plan.launch[0].dependent, 1);
        assert_string_equal(families[i]->results, "kda_stages");
        p.seq_len = 0; /* but a state's gradient is handed on */
        assert_int_equal(families[i]->check(&p.base, &key), GEN_OK);
        assert_true(key.empty == (i != 1));
        p.batch = 0;
        assert_int_equal(families[i]->check(&p.base, &key), GEN_OK);
        assert_true(key.empty);
    }
}

/* With few heads, with a block an SM, and with more than that. */
static void estimates_prefer_wgmma(void **state)
{
    (void)state;
    const struct gen__family *const family = &gen__family_kda_bwd_dhu;
    const struct gen__facts mma = {
        .registers = 173, .threads = 128, .shared_dynamic = 91136, .cluster = 1, .fact = {1}};
    struct gen__facts wgmma = {
        .registers = 255, .threads = 256, .shared_dynamic = 230976, .cluster = 1, .fact = {1, 1}};
    for (int32_t heads = 8; heads <= 256; heads *= 2)
        for (int32_t seq_len = 64; seq_len <= 8192; seq_len *= 2) {
            gen_kda_stage_problem p = problem(GATE, 1, seq_len, heads, heads);
            double bytes, flops;
            p.base.family = GEN_KDA_BWD_DHU;
            p.head_dim = 128;
            const float us = family->predict(&p.base, &h200, &wgmma);
            assert_true(us < family->predict(&p.base, &h200, &mma));
            family->cost(&p.base, &bytes, &flops);
            assert_true(us * 4.8e6 > bytes); /* not faster than the memory */
            wgmma.fact[1] = 0;               /* which instructions a variant has, not its size */
            assert_true(us < family->predict(&p.base, &h200, &wgmma));
            wgmma.fact[1] = 1;
        }
}

static void output_arguments(void **state)
{
    (void)state;
    const struct gen__family *const family = &gen__family_kda_bwd_dav;
    gen_kda_bwd_dav_args a = dav;
    assert_int_equal(check_args(family, &a.base), GEN_OK);
    a.scale = NAN;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_dav: scale = nan; allowed: a finite number");
    a = dav, a.d_a_qk = NULL;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT, "kda_bwd_dav: d_a_qk is NULL");
    a = dav, a.d_o_stride = 250;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_dav: d_o_stride = 250 elements; allowed: 0 (packed), or a multiple of 8 "
                  "from 256 (one token) to 7686143364045646");
    a = dav, a.cu_seqlens = NULL;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT, "kda_bwd_dav: cu_seqlens is NULL");
}

static void state_arguments(void **state)
{
    (void)state;
    const struct gen__family *const family = &gen__family_kda_bwd_dhu;
    gen_kda_bwd_dhu_args a = dhu;
    a.d_final_state = NULL, a.d_initial_state = NULL;
    assert_int_equal(check_args(family, &a.base), GEN_OK);
    a = dhu, a.scale = INFINITY;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_dhu: scale = inf; allowed: a finite number");
    a = dhu, a.state_layout = 2;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_dhu: state_layout = 2; allowed: GEN_KDA_STATE_VK (0), "
                  "GEN_KDA_STATE_KV (1)");
    a = dhu, a.num_chunks = -1;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_dhu: num_chunks = -1; allowed: 0 (all), or more");
    a = dhu, a.qg = NULL;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT, "kda_bwd_dhu: qg is NULL");
}

static void input_arguments(void **state)
{
    (void)state;
    const struct gen__family *const family = &gen__family_kda_bwd_wy;
    gen_kda_bwd_wy_args a = wy;
    char text[120];
    a.scale = NAN;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_wy: scale = nan; allowed: a finite number");
    a = wy, a.state_layout = -1;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_wy: state_layout = -1; allowed: GEN_KDA_STATE_VK (0), "
                  "GEN_KDA_STATE_KV (1)");
    a = wy, a.num_chunks = -1;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT,
                  "kda_bwd_wy: num_chunks = -1; allowed: 0 (all), or more");
    a = wy, a.d_g = x.d_g + 1;
    snprintf(text, sizeof text, "kda_bwd_wy: d_g = %p; allowed: a multiple of 16 bytes",
             (const void *)a.d_g);
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT, text);
    a = wy, a.d_beta = NULL;
    assert_failed(check_args(family, &a.base), INVALID_ARGUMENT, "kda_bwd_wy: d_beta is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_come_to_the_gradients),
        cmocka_unit_test(geometry),
        cmocka_unit_test(estimates_prefer_wgmma),
        cmocka_unit_test(output_arguments),
        cmocka_unit_test(state_arguments),
        cmocka_unit_test(input_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
