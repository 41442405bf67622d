/*
 * The references of the stages of Kimi Delta Attention prefill: one after the other
 * they come to what the recurrence does.
 */
#include "families/kda_prefill/api.h"
#include "kda_stages.h"
#include "reference/half.h"

#include <math.h>
#include <string.h>

#define MAX_ELEMENTS (1 << 17)

/* All that a forward reads and writes, and what goes from stage to stage. */
static struct {
    uint16_t q[MAX_ELEMENTS], k[MAX_ELEMENTS], v[MAX_ELEMENTS], q_norm[MAX_ELEMENTS],
        k_norm[MAX_ELEMENTS], w[MAX_ELEMENTS], u[MAX_ELEMENTS], kg[MAX_ELEMENTS], qg[MAX_ELEMENTS],
        w_again[MAX_ELEMENTS], u_again[MAX_ELEMENTS], kg_again[MAX_ELEMENTS],
        qg_again[MAX_ELEMENTS], v_new[MAX_ELEMENTS], o[MAX_ELEMENTS], expected[MAX_ELEMENTS],
        a_qk[MAX_ELEMENTS], a_kk[MAX_ELEMENTS], h[MAX_ELEMENTS];
    float g[MAX_ELEMENTS], gk[MAX_ELEMENTS], beta[MAX_ELEMENTS], initial[MAX_ELEMENTS],
        final[MAX_ELEMENTS], expected_final[MAX_ELEMENTS], rstd[2][MAX_ELEMENTS];
} x;

static void draw(void)
{
    uint64_t seed = 11;
    for (int64_t i = 0; i < MAX_ELEMENTS; i++) {
        x.q[i] = gen__fp16_from_double(random_unit(&seed));
        x.k[i] = gen__fp16_from_double(random_unit(&seed));
        x.v[i] = gen__fp16_from_double(random_unit(&seed));
        x.g[i] = (float)(3 * random_unit(&seed) - 3);
        x.beta[i] = (float)fabs(random_unit(&seed));
        x.initial[i] = (float)random_unit(&seed);
    }
}

static double error(const uint16_t *a, const uint16_t *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        const double y = gen__fp16_to_double(a[i]), z = gen__fp16_to_double(b[i]);
        difference += (y - z) * (y - z);
        norm += z * z;
    }
    return sqrt(difference / norm);
}

/* Checks the arguments and runs the reference. */
static void run(int stage, gen_kda_stage_problem p, const gen_args *args)
{
    gen_plan plan = {0};
    p.base.family = stages[stage]->tag;
    stages[stage]->plan(&p.base, &h200, NULL, &plan);
    assert_int_equal(stages[stage]->params(&plan, 0, args, NULL, NULL), GEN_OK);
    assert_int_equal(stages[stage]->reference(&plan, args), GEN_OK);
}

static void run_within_chunks(gen_kda_stage_problem p, const int32_t *cu)
{
    const gen_kda_gate_args gate = {.base = {sizeof gate, GEN_KDA_GATE},
                                    .g = x.g,
                                    .q = x.q,
                                    .k = x.k,
                                    .cu_seqlens = cu,
                                    .gk = x.gk,
                                    .q_norm = x.q_norm,
                                    .k_norm = x.k_norm,
                                    .q_rstd = x.rstd[0],
                                    .k_rstd = x.rstd[1],
                                    .lower_bound = -5,
                                    .gate_form = GEN_KDA_GATE_LOWER_BOUND};
    run(GATE, p, &gate.base);
    const gen_kda_chunk_intra_args intra = {.base = {sizeof intra, GEN_KDA_CHUNK_INTRA},
                                            .q = x.q_norm,
                                            .k = x.k_norm,
                                            .v = x.v,
                                            .gk = x.gk,
                                            .beta = x.beta,
                                            .cu_seqlens = cu,
                                            .a_qk = x.a_qk,
                                            .a_kk = x.a_kk,
                                            .w = x.w,
                                            .u = x.u,
                                            .kg = x.kg,
                                            .qg = x.qg,
                                            .scale = 0.125f};
    run(INTRA, p, &intra.base);
    const gen_kda_recompute_wu_args wu = {.base = {sizeof wu, GEN_KDA_RECOMPUTE_WU},
                                          .q = x.q_norm,
                                          .k = x.k_norm,
                                          .v = x.v,
                                          .gk = x.gk,
                                          .beta = x.beta,
                                          .a_kk = x.a_kk,
                                          .cu_seqlens = cu,
                                          .w = x.w_again,
                                          .u = x.u_again,
                                          .kg = x.kg_again,
                                          .qg = x.qg_again};
    run(WU, p, &wu.base);
}

static void run_stages(gen_kda_stage_problem p, const int32_t *cu, int32_t layout)
{
    run_within_chunks(p, cu);
    const gen_kda_chunk_h_args states = {.base = {sizeof states, GEN_KDA_CHUNK_H},
                                         .kg = x.kg,
                                         .w = x.w,
                                         .u = x.u,
                                         .gk = x.gk,
                                         .initial_state = x.initial,
                                         .cu_seqlens = cu,
                                         .h = x.h,
                                         .v_new = x.v_new,
                                         .final_state = x.final,
                                         .state_layout = layout};
    run(STATES, p, &states.base);
    const gen_kda_chunk_o_args output = {.base = {sizeof output, GEN_KDA_CHUNK_O},
                                         .q = x.q_norm,
                                         .v_new = x.v_new,
                                         .gk = x.gk,
                                         .a_qk = x.a_qk,
                                         .h = x.h,
                                         .cu_seqlens = cu,
                                         .o = x.o,
                                         .scale = 0.125f,
                                         .state_layout = layout};
    run(OUTPUT, p, &output.base);
}

static void against_recurrence(gen_kda_stage_problem p, const int32_t *cu, int32_t layout)
{
    gen_kda_prefill_args whole = {.base = {sizeof whole, GEN_KDA_PREFILL},
                                  .q = x.q,
                                  .k = x.k,
                                  .v = x.v,
                                  .g = x.g,
                                  .beta = x.beta,
                                  .cu_seqlens = cu,
                                  .initial_state = x.initial,
                                  .final_state = x.expected_final,
                                  .o = x.expected,
                                  .scale = 0.125f,
                                  .lower_bound = -5,
                                  .gate_form = GEN_KDA_GATE_LOWER_BOUND,
                                  .qk_l2norm = 1,
                                  .state_layout = layout};
    gen_plan plan = {0};
    draw();
    memcpy(plan.dims, gen__kda_stage_dims(&p.base), KDA_NUM_DIMS * sizeof(int32_t));
    assert_int_equal(gen__kda_prefill_reference(&plan, &whole.base), GEN_OK);
    run_stages(p, cu, layout);
    const int64_t tokens = gen__kda_tokens(plan.dims);
    const int64_t width = gen__kda_v_width(plan.dims), elements = tokens * width;
    assert_true(error(x.o, x.expected, elements) < 1e-3);
    assert_true(error(x.w_again, x.w, elements) < 1e-3);
    assert_true(error(x.u_again, x.u, elements) < 1e-3);
    assert_memory_equal(x.kg_again, x.kg, (size_t)elements * sizeof *x.kg);
    assert_memory_equal(x.qg_again, x.qg, (size_t)elements * sizeof *x.qg);
    for (int64_t i = 0; i < p.batch * width * p.head_dim; i++)
        assert_true(fabsf(x.final[i] - x.expected_final[i]) < 2e-3f);
}

static void stages_do_what_the_recurrence_does(void **state)
{
    (void)state;
    static const int32_t cu[] = {0, 65, 65, 66, 150};
    gen_kda_stage_problem p = problem(GATE, 2, 100, 2, 4);
    against_recurrence(p, NULL, GEN_KDA_STATE_KV);
    p.batch = 4;
    p.seq_len = 90;
    p.num_tokens = 150;
    against_recurrence(p, cu, GEN_KDA_STATE_VK);
}

/* A group's value heads see their query head: the same as repeating it, to the last bit. */
static void groups_repeat_heads(void **state)
{
    (void)state;
    static uint16_t q[MAX_ELEMENTS], k[MAX_ELEMENTS], o[MAX_ELEMENTS], w[MAX_ELEMENTS];
    gen_kda_stage_problem p = problem(GATE, 1, 100, 2, 4);
    draw();
    memcpy(q, x.q, sizeof q);
    memcpy(k, x.k, sizeof k);
    run_stages(p, NULL, GEN_KDA_STATE_KV);
    memcpy(o, x.o, sizeof o);
    memcpy(w, x.w, sizeof w);
    for (int64_t row = 0; row < 100 * 4; row++) {
        const int64_t from = row / 4 * 2 + row % 4 / 2;
        memcpy(x.q + row * 64, q + from * 64, 128);
        memcpy(x.k + row * 64, k + from * 64, 128);
    }
    p.num_qk_heads = 4;
    run_stages(p, NULL, GEN_KDA_STATE_KV);
    assert_memory_equal(x.o, o, 100 * 4 * 64 * sizeof *o);
    assert_memory_equal(x.w, w, 100 * 4 * 64 * sizeof *w);
}

/* By hand: softplus and given gates, their sum, and a row's norm. */
static void gates_by_hand(void **state)
{
    (void)state;
    gen_kda_stage_problem p = problem(GATE, 1, 66, 1, 1);
    const float rate = logf(2), bias[64] = {[3] = 21};
    draw();
    for (int i = 0; i < 64; i++)
        x.q[i] = gen__fp16_from_double(i == 5 ? 3 : i == 6 ? 4 : 0);
    x.g[3] = x.g[64 + 3] = 1;
    x.g[64 * 64 + 4] = -1;
    gen_kda_gate_args a = {.base = {sizeof a, GEN_KDA_GATE},
                           .g = x.g,
                           .A_log = &rate,
                           .dt_bias = bias,
                           .q = x.q,
                           .k = x.k,
                           .gk = x.gk,
                           .q_norm = x.q_norm,
                           .k_norm = x.k_norm,
                           .q_rstd = x.rstd[0],
                           .gate_form = GEN_KDA_GATE_SOFTPLUS};
    run(GATE, p, &a.base);
    const double log2_e = 1.4426950408889634;
    assert_true(fabs((double)x.gk[3] + 2 * 22 * log2_e) < 1e-5);
    assert_true(fabs((double)x.gk[64 + 3] + 4 * 22 * log2_e) < 1e-5);
    /* the next chunk begins anew */
    assert_true(fabs((double)x.gk[64 * 64 + 4] + 2 * log2_e * log1p(exp(-1))) < 1e-6);
    assert_true(fabs(gen__fp16_to_double(x.q_norm[6]) - 0.8) < 4e-4);
    assert_true(fabsf(x.rstd[0][0] - 0.2f) < 1e-6f);
    a.A_log = NULL, a.dt_bias = NULL, a.gate_form = GEN_KDA_GATE_GIVEN;
    run(GATE, p, &a.base);
    assert_true(fabs((double)x.gk[64 + 3] - 2 * log2_e) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_do_what_the_recurrence_does),
        cmocka_unit_test(groups_repeat_heads),
        cmocka_unit_test(gates_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
