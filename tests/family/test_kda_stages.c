/*
 * The stages of Kimi Delta Attention prefill: what they allow and what they say where
 * they do not, geometry, and the references: one after the other they come to what the
 * recurrence does.
 */
#include "families/kda_stage.h"
#include "h200.h"
#include "kda_chunk_h/args.h"
#include "kda_chunk_o/args.h"
#include "kda_gate/args.h"
#include "kda_prefill/args.h"
#include "kda_recompute_wu/args.h"
#include "reference/half.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_kda_gate, gen__family_kda_chunk_intra,
    gen__family_kda_recompute_wu, gen__family_kda_chunk_h, gen__family_kda_chunk_o,
    gen__family_kda_prefill;

enum { GATE, INTRA, WU, STATES, OUTPUT, NUM_STAGES };
static const struct gen__family *const stages[NUM_STAGES] = {
    &gen__family_kda_gate, &gen__family_kda_chunk_intra, &gen__family_kda_recompute_wu,
    &gen__family_kda_chunk_h, &gen__family_kda_chunk_o};

static gen_kda_stage_problem problem(int stage, int32_t batch, int32_t seq_len, int32_t qk_heads,
                                     int32_t v_heads)
{
    return (gen_kda_stage_problem){
        .base = {sizeof(gen_kda_stage_problem), stages[stage]->tag, 0, 0},
        .batch = batch,
        .seq_len = seq_len,
        .num_qk_heads = qk_heads,
        .num_v_heads = v_heads,
        .head_dim = 64,
        .dtype = GEN_DTYPE_FP16,
        .gate_dtype = GEN_DTYPE_FP32,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = 1,
    };
}

/* ---- the problem -------------------------------------------------------- */

static void keys(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_STAGES; i++) {
        gen_kda_stage_problem p = problem(i, 3, 100, 2, 8);
        struct gen__key key;
        assert_int_equal(stages[i]->check(&p.base, &key), GEN_OK);
        assert_string_equal(stages[i]->required[0].values[key.codes[0]], "fp16");
        assert_string_equal(stages[i]->required[1].values[key.codes[1]], "64");
        assert_true(key.counts[0] == (i == STATES ? 24 : 48) &&
                    !key.empty); /* 3 sequences, 2 chunks, 8 heads */
        assert_int_equal(key.codes[2], i == INTRA);
        assert_string_equal(stages[i]->results, "kda_stages");
        p.base.flags = GEN_BATCH_INVARIANT;
        const float invariant = (stages[i]->check(&p.base, &key), key.counts[0]);
        p.batch = 17;
        assert_int_equal(stages[i]->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[0] == invariant);
        p.seq_len = 0; /* but states are handed on */
        assert_int_equal(stages[i]->check(&p.base, &key), GEN_OK);
        assert_true(key.empty == (i != STATES));
        p.batch = 0;
        assert_int_equal(stages[i]->check(&p.base, &key), GEN_OK);
        assert_true(key.empty);
    }
}

/* A head count that is wrong is called one. */
static void head_counts(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_STAGES; i++) {
        gen_kda_stage_problem p = problem(i, 1, 100, 3, 5);
        struct gen__key key;
        char text[160];
        snprintf(text, sizeof text,
                 "%s: head count num_v_heads = 5; allowed: a multiple of num_qk_heads = 3",
                 stages[i]->name);
        assert_failed(stages[i]->check(&p.base, &key), INVALID_ARGUMENT, text);
        p.num_qk_heads = 0;
        snprintf(text, sizeof text, "%s: head count num_qk_heads = 0; allowed: 1 to 65536",
                 stages[i]->name);
        assert_failed(stages[i]->check(&p.base, &key), INVALID_ARGUMENT, text);
        p = problem(i, 1, 1 << 20, 65536, 65536); /* 2^30 tiles, and blocks for q and k */
        snprintf(text, sizeof text,
                 "%s: chunks * (num_v_heads + 2 * num_qk_heads) = 3221225472; allowed: <= "
                 "2147483647",
                 stages[i]->name);
        assert_failed(stages[i]->check(&p.base, &key), INVALID_ARGUMENT, text);
    }
}

static void geometry(void **state)
{
    (void)state;
    const struct gen__facts v = {
        .index = 7, .threads = 256, .shared_dynamic = 1 << 10, .cluster = 1, .fact = {1, 2, 1}};
    static const uint32_t grids[NUM_STAGES][2] = {[GATE] = {9 * (8 + 4), 1},
                                                  [INTRA] = {9 * 8, 1},
                                                  [WU] = {9 * 8, 1},
                                                  [STATES] = {8, 3},
                                                  [OUTPUT] = {9 * 8, 1}};
    for (int i = 0; i < NUM_STAGES; i++) {
        gen_kda_stage_problem p = problem(i, 3, 130, 2, 8);
        gen_plan plan = {0};
        char name[96];
        stages[i]->plan(&p.base, &h200, &v, &plan);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].grid[0], grids[i][0]);
        assert_int_equal(plan.launch[0].grid[1], grids[i][1]);
        assert_int_equal(plan.launch[0].dependent, 1);
        stages[i]->case_name(&p.base, name, sizeof name);
        assert_non_null(strstr(name, "-B3-T130-HQK2-HV8-D64-fp16-g32"));
        assert_true(strncmp(name, stages[i]->name + 4, strlen(stages[i]->name) - 4) == 0);
    }
}

/* Few states' chains are as long as their chunks take; many wait for memory. */
static void states_are_predicted(void **state)
{
    (void)state;
    const struct gen__facts mma = {.threads = 128,
                                   .shared_dynamic = 65 << 10,
                                   .registers = 168,
                                   .cluster = 1,
                                   .fact = {1, 0}},
                            wgmma = {.threads = 256,
                                     .shared_dynamic = 130 << 10,
                                     .registers = 240,
                                     .cluster = 1,
                                     .fact = {1, 1}};
    gen_kda_stage_problem p = problem(STATES, 1, 8192, 8, 8);
    p.head_dim = 128;
    const struct gen__family *f = stages[STATES];
    const float few_us = f->predict(&p.base, &h200, &wgmma);
    assert_true(2 * few_us < f->predict(&p.base, &h200, &mma));
    p.num_qk_heads = p.num_v_heads = 16;
    assert_true(f->predict(&p.base, &h200, &wgmma) == few_us);
    p.batch = 16, p.num_qk_heads = p.num_v_heads = 64;
    assert_true(f->predict(&p.base, &h200, &wgmma) > 20 * few_us);
    /* A batch-invariant choice goes by the same estimate whatever the batch. */
    gen_kda_stage_problem few = p;
    few.batch = 1, few.num_tokens = 5000;
    assert_true(f->predict(&p.base, &h200, &wgmma) != f->predict(&few.base, &h200, &wgmma));
    p.base.flags = few.base.flags = GEN_BATCH_INVARIANT;
    assert_true(f->predict(&p.base, &h200, &wgmma) == f->predict(&few.base, &h200, &wgmma));
    assert_true(f->predict(&p.base, &h200, &mma) == f->predict(&few.base, &h200, &mma));
}

/* ---- the references ------------------------------------------------------ */

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

static void run_stages(gen_kda_stage_problem p, const int32_t *cu, int32_t layout)
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
                                    .gate = GEN_KDA_GATE_LOWER_BOUND};
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
                                  .gate = GEN_KDA_GATE_LOWER_BOUND,
                                  .l2_norm = 1,
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
    against_recurrence(p, NULL, GEN_KDA_DECODE_KV);
    p.batch = 4;
    p.seq_len = 90;
    p.num_tokens = 150;
    against_recurrence(p, cu, GEN_KDA_DECODE_VK);
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
    run_stages(p, NULL, GEN_KDA_DECODE_KV);
    memcpy(o, x.o, sizeof o);
    memcpy(w, x.w, sizeof w);
    for (int64_t row = 0; row < 100 * 4; row++) {
        const int64_t from = row / 4 * 2 + row % 4 / 2;
        memcpy(x.q + row * 64, q + from * 64, 128);
        memcpy(x.k + row * 64, k + from * 64, 128);
    }
    p.num_qk_heads = 4;
    run_stages(p, NULL, GEN_KDA_DECODE_KV);
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
                           .gate = GEN_KDA_GATE_SOFTPLUS};
    run(GATE, p, &a.base);
    const double log2_e = 1.4426950408889634;
    assert_true(fabs((double)x.gk[3] + 2 * 22 * log2_e) < 1e-5);
    assert_true(fabs((double)x.gk[64 + 3] + 4 * 22 * log2_e) < 1e-5);
    /* the next chunk begins anew */
    assert_true(fabs((double)x.gk[64 * 64 + 4] + 2 * log2_e * log1p(exp(-1))) < 1e-6);
    assert_true(fabs(gen__fp16_to_double(x.q_norm[6]) - 0.8) < 4e-4);
    assert_true(fabsf(x.rstd[0][0] - 0.2f) < 1e-6f);
    a.A_log = NULL, a.dt_bias = NULL, a.gate = GEN_KDA_GATE_GIVEN;
    run(GATE, p, &a.base);
    assert_true(fabs((double)x.gk[64 + 3] - 2 * log2_e) < 1e-6);
}

/* ---- arguments ----------------------------------------------------------- */

static enum gen_status check_args(int stage, const gen_args *args)
{
    gen_kda_stage_problem p = problem(stage, 1, 100, 2, 4);
    gen_plan plan = {0};
    stages[stage]->plan(&p.base, &h200, NULL, &plan);
    return stages[stage]->params(&plan, 0, args, NULL, NULL);
}

static void gate_arguments(void **state)
{
    (void)state;
    const gen_kda_gate_args good = {.base = {sizeof good, GEN_KDA_GATE},
                                    .g = x.g,
                                    .gk = x.gk,
                                    .lower_bound = -5,
                                    .gate = GEN_KDA_GATE_LOWER_BOUND};
    gen_kda_gate_args a = good;
    char text[200];
    assert_int_equal(check_args(GATE, &a.base), GEN_OK);
    a.gate = 3;
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate: gate = 3; allowed: GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
                  "GEN_KDA_GATE_LOWER_BOUND (2)");
    a = good, a.lower_bound = -6;
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate: lower_bound = -6; allowed: -5 <= lower_bound < 0");
    a = good, a.gate = GEN_KDA_GATE_SOFTPLUS;
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate: A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: "
                  "num_v_heads numbers");
    a = good, a.gk = NULL;
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT, "kda_gate: gk is NULL");
    a = good, a.g_stride = 250;
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate: g_stride = 250 elements; allowed: 0 (packed), or a multiple of 8 from "
                  "256 (one token) to 11529215046068469");
    a = good, a.q = x.q;
    snprintf(text, sizeof text,
             "kda_gate: q = %p, k = %p, q_norm = %p, k_norm = %p; allowed: all of them or none",
             (void *)x.q, NULL, NULL, NULL);
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT, text);
    for (int i = 0; i < 2; i++) { /* of nothing */
        a = good;
        *(i ? &a.k_rstd : &a.q_rstd) = x.rstd[0];
        snprintf(text, sizeof text,
                 "kda_gate: q_rstd = %p, k_rstd = %p without q and k; allowed: NULL",
                 (void *)a.q_rstd, (void *)a.k_rstd);
        assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT, text);
    }
}

static void intra_arguments(void **state)
{
    (void)state;
    const gen_kda_chunk_intra_args good = {.base = {sizeof good, GEN_KDA_CHUNK_INTRA},
                                           .q = x.q,
                                           .k = x.k,
                                           .v = x.v,
                                           .gk = x.gk,
                                           .beta = x.beta,
                                           .a_qk = x.a_qk,
                                           .a_kk = x.a_kk,
                                           .w = x.w,
                                           .u = x.u,
                                           .kg = x.kg,
                                           .scale = 1};
    gen_kda_chunk_intra_args a = good;
    char text[200];
    assert_int_equal(check_args(INTRA, &a.base), GEN_OK);
    a.v = a.w = a.u = a.kg = NULL;
    assert_int_equal(check_args(INTRA, &a.base), GEN_OK);
    a = good, a.kg = NULL;
    snprintf(text, sizeof text,
             "kda_chunk_intra: w = %p, u = %p, kg = %p, v = %p; allowed: all of them, or w, u and "
             "kg all NULL",
             (void *)x.w, (void *)x.u, NULL, (void *)x.v);
    assert_failed(check_args(INTRA, &a.base), INVALID_ARGUMENT, text);
    a = good, a.scale = INFINITY;
    assert_failed(check_args(INTRA, &a.base), INVALID_ARGUMENT,
                  "kda_chunk_intra: scale = inf; allowed: a finite number");
    a = good, a.a_kk = x.a_kk + 1;
    snprintf(text, sizeof text, "kda_chunk_intra: a_kk = %p; allowed: a multiple of 16 bytes",
             (const void *)a.a_kk);
    assert_failed(check_args(INTRA, &a.base), INVALID_ARGUMENT, text);
    a = good, a.beta_stride = 3;
    assert_failed(check_args(INTRA, &a.base), INVALID_ARGUMENT,
                  "kda_chunk_intra: beta_stride = 3 elements; allowed: 0 (packed), or a multiple "
                  "of 1 from 4 (one token) to 11529215046068469");
}

static void other_arguments(void **state)
{
    (void)state;
    const gen_kda_recompute_wu_args wu = {.base = {sizeof wu, GEN_KDA_RECOMPUTE_WU},
                                          .k = x.k,
                                          .v = x.v,
                                          .gk = x.gk,
                                          .beta = x.beta,
                                          .a_kk = x.a_kk,
                                          .w = x.w,
                                          .u = x.u,
                                          .qg = x.qg};
    assert_failed(check_args(WU, &wu.base), INVALID_ARGUMENT, "kda_recompute_wu: q is NULL");
    gen_kda_chunk_h_args h = {.base = {sizeof h, GEN_KDA_CHUNK_H},
                              .kg = x.kg,
                              .w = x.w,
                              .u = x.u,
                              .gk = x.gk,
                              .h = x.h,
                              .v_new = x.v_new,
                              .state_layout = 2};
    assert_failed(check_args(STATES, &h.base), INVALID_ARGUMENT,
                  "kda_chunk_h: state_layout = 2; allowed: GEN_KDA_DECODE_VK (0), "
                  "GEN_KDA_DECODE_KV (1)");
    h.state_layout = 1, h.num_chunks = -1;
    assert_failed(check_args(STATES, &h.base), INVALID_ARGUMENT,
                  "kda_chunk_h: num_chunks = -1; allowed: 0 (all), or more");
    const int32_t cu[] = {0, 100};
    h.num_chunks = 0, h.cu_seqlens = cu;
    char text[200];
    snprintf(text, sizeof text,
             "kda_chunk_h: cu_seqlens = %p with num_tokens = 0; allowed: NULL, for all sequences "
             "have seq_len tokens",
             (const void *)cu);
    assert_failed(check_args(STATES, &h.base), INVALID_ARGUMENT, text);
    gen_kda_chunk_o_args o = {.base = {sizeof o, GEN_KDA_CHUNK_O},
                              .q = x.q,
                              .v_new = x.v_new,
                              .gk = x.gk,
                              .a_qk = x.a_qk,
                              .o = x.o,
                              .scale = 1};
    assert_failed(check_args(OUTPUT, &o.base), INVALID_ARGUMENT, "kda_chunk_o: h is NULL");
    o.h = x.h, o.o_stride = 260;
    assert_failed(check_args(OUTPUT, &o.base), INVALID_ARGUMENT,
                  "kda_chunk_o: o_stride = 260 elements; allowed: 0 (packed), or a multiple of 8 "
                  "from 256 (one token) to 11529215046068469");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(head_counts),
        cmocka_unit_test(geometry),
        cmocka_unit_test(states_are_predicted),
        cmocka_unit_test(stages_do_what_the_recurrence_does),
        cmocka_unit_test(groups_repeat_heads),
        cmocka_unit_test(gates_by_hand),
        cmocka_unit_test(gate_arguments),
        cmocka_unit_test(intra_arguments),
        cmocka_unit_test(other_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
