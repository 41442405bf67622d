/*
 * The stages of Kimi Delta Attention prefill: what they allow and what they say where
 * they do not, and their geometry.
 */
#include "kda_stages.h"

#include <string.h>

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
    p.num_tokens = 100000;
    few.batch = 1, few.seq_len = few.num_tokens = 5000;
    assert_true(f->predict(&p.base, &h200, &wgmma) != f->predict(&few.base, &h200, &wgmma));
    p.base.flags = few.base.flags = GEN_BATCH_INVARIANT;
    assert_true(f->predict(&p.base, &h200, &wgmma) == f->predict(&few.base, &h200, &wgmma));
    assert_true(f->predict(&p.base, &h200, &mma) == f->predict(&few.base, &h200, &mma));
}

/* ---- arguments ----------------------------------------------------------- */

/* Nothing reads or writes them. */
static struct {
    _Alignas(16) uint16_t q[8], k[8], v[8], w[8], u[8], kg[8], qg[8], v_new[8], o[8], a_qk[8],
        a_kk[8], h[8];
    _Alignas(16) float g[8], gk[8], beta[8], rstd[1][8];
} x;

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
                                    .gate_form = GEN_KDA_GATE_LOWER_BOUND};
    gen_kda_gate_args a = good;
    char text[200];
    assert_int_equal(check_args(GATE, &a.base), GEN_OK);
    a.gate_form = 3;
    assert_failed(
        check_args(GATE, &a.base), INVALID_ARGUMENT,
        "kda_gate: gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
        "GEN_KDA_GATE_LOWER_BOUND (2)");
    a = good, a.lower_bound = -6;
    assert_failed(check_args(GATE, &a.base), INVALID_ARGUMENT,
                  "kda_gate: lower_bound = -6; allowed: -5 <= lower_bound < 0");
    a = good, a.gate_form = GEN_KDA_GATE_SOFTPLUS;
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
                  "kda_chunk_h: state_layout = 2; allowed: GEN_KDA_STATE_VK (0), "
                  "GEN_KDA_STATE_KV (1)");
    h.state_layout = 1, h.num_chunks = -1;
    assert_failed(check_args(STATES, &h.base), INVALID_ARGUMENT,
                  "kda_chunk_h: num_chunks = -1; allowed: 0 (all), or more");
    const int32_t cu[] = {0, 100};
    h.num_chunks = 0, h.cu_seqlens = cu;
    char text[200];
    snprintf(text, sizeof text,
             "kda_chunk_h: cu_seqlens = %p with num_tokens = 0; allowed: NULL, for all sequences "
             "have seq_len = 100 tokens (a batch of empty ones has seq_len 0)",
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
        cmocka_unit_test(gate_arguments),
        cmocka_unit_test(intra_arguments),
        cmocka_unit_test(other_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
