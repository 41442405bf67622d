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

#include "common/problem_text.h"
#include "common/session.h"
#include "families/kda/backward.h"
#include "families/kda/reference_inputs.h"
#include "families/kda_bwd_dav/api.h"
#include "families/kda_bwd_dhu/api.h"
#include "families/kda_bwd_intra/api.h"
#include "families/kda_bwd_wy/api.h"
#include "families/kda_chunk_h/api.h"
#include "families/kda_gate/api.h"
#include "families/kda_gate_bwd/api.h"
#include "families/kda_qk_bwd/api.h"
#include "families/kda/stage.h"
#include "reference/scatter.h"

#include <stdlib.h>
#include <string.h>

#define SKIPPED 77

enum { BATCH = 4, QK_HEADS = 4, HEADS = 8, MAX_D = 128, MAX_TOKENS = 512 };
enum { MAX_ELEMENTS = BATCH * HEADS * MAX_D * MAX_D };
_Static_assert(MAX_ELEMENTS >= MAX_TOKENS * HEADS * MAX_D, "states have the most elements");

static struct session session;
static bool on_device;

/* ---- memory --------------------------------------------------------------- */

/* Host memory, and where there is a device its image there. Results of nobody are NaN. */
enum { ARENA = 48 << 20 };
static struct {
    _Alignas(256) char host[ARENA];
    CUdeviceptr device;
    size_t used;
} arena;

static void *room(size_t bytes)
{
    void *at = arena.host + arena.used;
    arena.used += (bytes + 255) / 256 * 256;
    assert_true(arena.used <= ARENA);
    return at;
}

/* As the stages are given it. */
static void *given(const void *host)
{
    const ptrdiff_t offset = (const char *)host - arena.host;
    return on_device ? (void *)(uintptr_t)(arena.device + (uint64_t)offset)
                     : (void *)(arena.host + offset);
}

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
enum { Q, K, V, G, BETA, INITIAL, BIAS, A_LOG, NUM_GRADIENTS };
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

static int64_t rows(void)
{
    return (int64_t)the->tokens * HEADS;
}

static int64_t slots(void)
{
    return the->tokens / 64 + BATCH;
}

static bool is_given(void)
{
    return the->gates != BOUND && the->gates != SOFTPLUS;
}

static int32_t gate_form(void)
{
    return is_given()            ? GEN_KDA_GATE_GIVEN
           : the->gates == BOUND ? GEN_KDA_GATE_LOWER_BOUND
                                 : GEN_KDA_GATE_SOFTPLUS;
}

static gen_kda_stage_problem problem_of(uint32_t tag)
{
    return (gen_kda_stage_problem){
        .base = {sizeof(gen_kda_stage_problem), tag, 0, 0},
        .batch = BATCH,
        .seq_len = the->tokens,
        .num_tokens = the->tokens,
        .num_qk_heads = QK_HEADS,
        .num_v_heads = HEADS,
        .head_dim = the->head_dim,
        .dtype = the->dtype,
        .gate_dtype = is_given() ? GEN_DTYPE_FP32 : the->dtype,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = the->gates != CUTS && the->gates != SOFTPLUS,
    };
}

/* ---- inputs --------------------------------------------------------------- */

/* On the host; of the stages' type where void. */
static struct {
    void *q, *k, *v, *g, *d_o;
    float *beta, *active_beta, *A_log, *dt_bias, *initial, *d_final;
    int32_t *cu_seqlens;
} in;

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
    void *to = room((size_t)count * (dtype == GEN_DTYPE_FP32 ? 4 : 2));
    for (int64_t i = 0; i < count; i++)
        put(dtype, to, i, size * (uniform ? gen__scatter(seed, i) : normal(seed, i)));
    return to;
}

static void draw_inputs(void)
{
    const int64_t d = the->head_dim, states = BATCH * HEADS * d * d;
    const int32_t gate_dtype = is_given() ? GEN_DTYPE_FP32 : the->dtype;
    const bool uniform = the->keys == UNIFORM;
    in.q = draw(the->dtype, 1, the->tokens * QK_HEADS * d, uniform, 1);
    in.k = draw(the->dtype, 2, the->tokens * QK_HEADS * d, uniform, 1);
    in.v = draw(the->dtype, 6, rows() * d, uniform, 1);
    in.d_o = draw(the->dtype, 7, rows() * d, false, the->loss_scale);
    in.g = room((size_t)(rows() * d) * 4);
    for (int64_t i = 0; i < rows() * d; i++)
        put(gate_dtype, in.g, i, gate(i));
    in.beta = draw(GEN_DTYPE_FP32, 8, rows(), the->beta_form == GEN_KDA_BETA_GIVEN, 1);
    in.active_beta = room((size_t)rows() * sizeof *in.active_beta);
    for (int64_t i = 0; i < rows(); i++) {
        const double s = gen__kda_sigmoid((double)in.beta[i]);
        in.active_beta[i] = the->beta_form ? (float)(the->beta_form * s) : in.beta[i];
    }
    in.A_log = draw(GEN_DTYPE_FP32, 9, HEADS, true, the->gates == SOFTPLUS ? 2.7 : 0.5);
    in.dt_bias = draw(GEN_DTYPE_FP32, 10, HEADS * d, false, 1);
    in.initial = draw(GEN_DTYPE_FP32, 11, states, false, 0.3);
    in.d_final = draw(GEN_DTYPE_FP32, 12, states, false, the->loss_scale);
    const int32_t starts[BATCH + 1] = {0, 65, 65, 66, the->tokens}; /* 65, 0, 1, and the rest */
    in.cu_seqlens = room(sizeof starts);
    memcpy(in.cu_seqlens, starts, sizeof starts);
}

/* ---- stages --------------------------------------------------------------- */

static struct {
    void *q, *k, *a_qk, *a_kk, *w, *u, *kg, *qg, *h, *v_new, *d_v, *d_h, *d_v_new; /* 16 bits */
    float *gk, *d_a_qk, *d_a_kk, *d_q, *d_k, *d_g, *d_beta, *partials;
    void *results[NUM_GRADIENTS];
} mid;

static void *halves(int64_t count)
{
    return room((size_t)count * 2);
}

static float *floats(int64_t count)
{
    return room((size_t)count * 4);
}

static void make_room(void)
{
    const int64_t d = the->head_dim, v = rows() * d, qk = the->tokens * QK_HEADS * d;
    void **const list[] = {&mid.w, &mid.u, &mid.kg, &mid.qg, &mid.v_new, &mid.d_v, &mid.d_v_new};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        *list[i] = halves(v);
    mid.q = halves(qk), mid.k = halves(qk);
    mid.a_qk = halves(rows() * 64), mid.a_kk = halves(rows() * 64);
    mid.h = halves(slots() * HEADS * d * d), mid.d_h = halves(slots() * HEADS * d * d);
    mid.gk = floats(v), mid.d_q = floats(v), mid.d_k = floats(v), mid.d_g = floats(v);
    mid.d_a_qk = floats(rows() * 64), mid.d_a_kk = floats(rows() * 64), mid.d_beta = floats(rows());
    mid.partials = room((size_t)GEN_KDA_GATE_BWD_PARTIALS(slots(), HEADS, d));
    const int64_t counts[] = {qk, qk, v, v, rows(), BATCH * HEADS * d * d, HEADS * d, HEADS};
    for (int i = 0; i < NUM_GRADIENTS; i++)
        mid.results[i] = floats(counts[i]);
}

static void run(const gen_args *args)
{
    const struct gen__family *family = gen__family_by_tag(args->family);
    const gen_kda_stage_problem p = problem_of(family->tag);
    gen_plan plan = {.size = sizeof plan};
    enum gen_status status;
    if (on_device) {
        status = gen_select(session.library, &session.gpu.device, &p.base, &plan);
        if (!status)
            status = gen_launch(session.library, &plan, args, NULL, session.gpu.stream);
    } else {
        const gen_device cpu = {.size = sizeof cpu};
        struct gen__key key;
        status = family->check(&p.base, &key);
        family->plan(&p.base, &cpu, NULL, &plan);
        if (!status)
            status = family->params(&plan, 0, args, NULL, NULL);
        if (!status)
            status = family->reference(&plan, args);
    }
    if (status)
        fail_msg("%s: %s", family->name, gen_last_error());
}

#define ARGS(type, tag) .base = {sizeof(type), tag}
#define GIVEN(name, from) .name = given(from)

static void run_forward(void)
{
    const gen_kda_gate_args gates = {ARGS(gates, GEN_KDA_GATE),
                                     GIVEN(g, in.g),
                                     .A_log = is_given() ? NULL : given(in.A_log),
                                     .dt_bias = is_given() ? NULL : given(in.dt_bias),
                                     GIVEN(q, in.q),
                                     GIVEN(k, in.k),
                                     GIVEN(cu_seqlens, in.cu_seqlens),
                                     GIVEN(gk, mid.gk),
                                     GIVEN(q_norm, mid.q),
                                     GIVEN(k_norm, mid.k),
                                     .lower_bound = -5,
                                     .gate_form = gate_form()};
    const gen_kda_chunk_intra_args intra = {ARGS(intra, GEN_KDA_CHUNK_INTRA),
                                            GIVEN(q, mid.q),
                                            GIVEN(k, mid.k),
                                            GIVEN(v, in.v),
                                            GIVEN(gk, mid.gk),
                                            GIVEN(beta, in.active_beta),
                                            GIVEN(cu_seqlens, in.cu_seqlens),
                                            GIVEN(a_qk, mid.a_qk),
                                            GIVEN(a_kk, mid.a_kk),
                                            GIVEN(w, mid.w),
                                            GIVEN(u, mid.u),
                                            GIVEN(kg, mid.kg),
                                            GIVEN(qg, mid.qg),
                                            .scale = 0.1f};
    const gen_kda_chunk_h_args states = {ARGS(states, GEN_KDA_CHUNK_H),
                                         GIVEN(kg, mid.kg),
                                         GIVEN(w, mid.w),
                                         GIVEN(u, mid.u),
                                         GIVEN(gk, mid.gk),
                                         GIVEN(initial_state, in.initial),
                                         GIVEN(cu_seqlens, in.cu_seqlens),
                                         GIVEN(h, mid.h),
                                         GIVEN(v_new, mid.v_new),
                                         .state_layout = the->state_layout};
    run(&gates.base), run(&intra.base), run(&states.base);
}

static void run_states(void)
{
    const gen_kda_bwd_dav_args dav = {ARGS(dav, GEN_KDA_BWD_DAV), GIVEN(v_new, mid.v_new),
                                      GIVEN(d_o, in.d_o),         GIVEN(a_qk, mid.a_qk),
                                      GIVEN(d_a_qk, mid.d_a_qk),  GIVEN(cu_seqlens, in.cu_seqlens),
                                      GIVEN(d_v, mid.d_v),        .scale = 0.1f};
    const gen_kda_bwd_dhu_args dhu = {ARGS(dhu, GEN_KDA_BWD_DHU),
                                      GIVEN(qg, mid.qg),
                                      GIVEN(kg, mid.kg),
                                      GIVEN(w, mid.w),
                                      GIVEN(d_o, in.d_o),
                                      GIVEN(d_v, mid.d_v),
                                      GIVEN(gk, mid.gk),
                                      GIVEN(d_final_state, in.d_final),
                                      GIVEN(cu_seqlens, in.cu_seqlens),
                                      GIVEN(d_h, mid.d_h),
                                      GIVEN(d_v_new, mid.d_v_new),
                                      GIVEN(d_initial_state, mid.results[INITIAL]),
                                      .scale = 0.1f,
                                      .state_layout = the->state_layout};
    const gen_kda_bwd_wy_args wy = {ARGS(wy, GEN_KDA_BWD_WY),
                                    GIVEN(q, mid.q),
                                    GIVEN(k, mid.k),
                                    GIVEN(v, in.v),
                                    GIVEN(v_new, mid.v_new),
                                    GIVEN(gk, mid.gk),
                                    GIVEN(beta, in.active_beta),
                                    GIVEN(a_kk, mid.a_kk),
                                    GIVEN(h, mid.h),
                                    GIVEN(d_o, in.d_o),
                                    GIVEN(d_h, mid.d_h),
                                    GIVEN(d_v_new, mid.d_v_new),
                                    GIVEN(cu_seqlens, in.cu_seqlens),
                                    GIVEN(d_q, mid.d_q),
                                    GIVEN(d_k, mid.d_k),
                                    GIVEN(d_v, mid.results[V]),
                                    GIVEN(d_beta, mid.d_beta),
                                    GIVEN(d_g, mid.d_g),
                                    GIVEN(d_a_kk, mid.d_a_kk),
                                    .scale = 0.1f,
                                    .state_layout = the->state_layout};
    run(&dav.base), run(&dhu.base), run(&wy.base);
}

/* Sums take the places of what they are added to. */
static void run_inputs(void)
{
    const gen_kda_bwd_intra_args intra = {ARGS(intra, GEN_KDA_BWD_INTRA),
                                          GIVEN(q, mid.q),
                                          GIVEN(k, mid.k),
                                          GIVEN(gk, mid.gk),
                                          GIVEN(beta, in.active_beta),
                                          GIVEN(d_a_qk, mid.d_a_qk),
                                          GIVEN(d_a_kk, mid.d_a_kk),
                                          GIVEN(d_q_states, mid.d_q),
                                          GIVEN(d_k_states, mid.d_k),
                                          GIVEN(d_beta_states, mid.d_beta),
                                          GIVEN(d_g_states, mid.d_g),
                                          GIVEN(cu_seqlens, in.cu_seqlens),
                                          GIVEN(d_q, mid.d_q),
                                          GIVEN(d_k, mid.d_k),
                                          GIVEN(d_beta, mid.d_beta),
                                          GIVEN(d_g, mid.d_g)};
    gen_kda_gate_bwd_args gates = {ARGS(gates, GEN_KDA_GATE_BWD),
                                   GIVEN(d_gk, mid.d_g),
                                   GIVEN(cu_seqlens, in.cu_seqlens),
                                   GIVEN(d_g, mid.results[G]),
                                   .lower_bound = -5,
                                   .gate_form = gate_form(),
                                   .suffix_sum = 1};
    if (!is_given()) {
        gates.g = given(in.g);
        gates.A_log = given(in.A_log), gates.dt_bias = given(in.dt_bias);
        gates.d_A_log = given(mid.results[A_LOG]), gates.d_dt_bias = given(mid.results[BIAS]);
        gates.partials = given(mid.partials);
    }
    const gen_kda_qk_bwd_args rows = {ARGS(rows, GEN_KDA_QK_BWD),
                                      GIVEN(q, in.q),
                                      GIVEN(k, in.k),
                                      GIVEN(beta, in.beta),
                                      GIVEN(d_q_heads, mid.d_q),
                                      GIVEN(d_k_heads, mid.d_k),
                                      GIVEN(d_beta_heads, mid.d_beta),
                                      GIVEN(cu_seqlens, in.cu_seqlens),
                                      GIVEN(d_q, mid.results[Q]),
                                      GIVEN(d_k, mid.results[K]),
                                      GIVEN(d_beta, mid.results[BETA]),
                                      .qk_l2norm = 1,
                                      .beta_form = the->beta_form};
    run(&intra.base), run(&gates.base), run(&rows.base);
}

static void assert_ok(enum gen_status status)
{
    if (status)
        fail_msg("%s", gen_last_error());
}

static void run_stages(void)
{
    if (on_device)
        assert_ok(gpu_upload(&session.gpu, arena.device, arena.host, arena.used));
    run_forward();
    run_states();
    run_inputs();
    if (on_device)
        assert_ok(gpu_download(&session.gpu, arena.host, arena.device, arena.used));
}

/* ---- against the recurrence ------------------------------------------------ */

static double expected[NUM_GRADIENTS][MAX_ELEMENTS];

static void run_recurrence(void)
{
    const gen_kda_stage_problem p = problem_of(GEN_KDA_GATE);
    const struct gen__kda_backward b = {.in = {.q = in.q,
                                               .k = in.k,
                                               .v = in.v,
                                               .g = in.g,
                                               .beta = in.beta,
                                               .A_log = is_given() ? NULL : in.A_log,
                                               .dt_bias = is_given() ? NULL : in.dt_bias,
                                               .cu_seqlens = in.cu_seqlens,
                                               .scale = 0.1f,
                                               .lower_bound = -5,
                                               .gate_form = gate_form(),
                                               .beta_form = the->beta_form,
                                               .qk_l2norm = 1},
                                        .initial_state = in.initial,
                                        .d_o = in.d_o,
                                        .d_final_state = in.d_final,
                                        .state_layout = the->state_layout};
    const struct gen__kda_gradients to = {.q = expected[Q],
                                          .k = expected[K],
                                          .v = expected[V],
                                          .g = expected[G],
                                          .beta = expected[BETA],
                                          .A_log = expected[A_LOG],
                                          .dt_bias = expected[BIAS],
                                          .initial_state = expected[INITIAL]};
    assert_ok(gen__kda_backward(gen__kda_stage_dims(&p.base), &b, &to));
}

static double error_of(int gradient)
{
    const int64_t d = the->head_dim, v = rows() * d, qk = the->tokens * QK_HEADS * d;
    const int64_t counts[] = {qk, qk, v, v, rows(), BATCH * HEADS * d * d, HEADS * d, HEADS};
    const int32_t fp32 = GEN_DTYPE_FP32, gates = is_given() ? fp32 : the->dtype;
    const int32_t dtypes[] = {the->dtype, the->dtype, the->dtype, gates, fp32, fp32, fp32, fp32};
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < counts[gradient]; i++) {
        const double x = get(dtypes[gradient], mid.results[gradient], i), y = expected[gradient][i];
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static void one_case(void **state)
{
    int wrong = 0;
    the = *state;
    arena.used = 0;
    memset(arena.host, 0xff, sizeof arena.host);
    draw_inputs();
    make_room();
    run_recurrence();
    run_stages();
    printf("#  ");
    for (int i = 0; i < (is_given() ? BIAS : NUM_GRADIENTS); i++) {
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
    on_device = argc > 1 && strcmp(argv[1], "device") == 0;
    if (on_device) {
        const enum gen_status opened = gpu_open(&session.gpu, 0, 0);
        if (opened) {
            printf("skipped: %s\n", gen_last_error());
            return SKIPPED;
        }
        session_open_library(&session);
        if (gpu_alloc(&session.gpu, ARENA, &arena.device))
            return fprintf(stderr, "%s\n", gen_last_error()), 1;
    }
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = one_case,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (on_device) {
        gpu_free(&session.gpu, arena.device);
        session_close(&session);
    }
    return failed;
}
