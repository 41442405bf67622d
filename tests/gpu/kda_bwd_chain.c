/* The stages of Kimi Delta Attention one after the other: kda_bwd_chain.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "kda_bwd_chain.h"

#include "families/kda_bwd_dav/api.h"
#include "families/kda_bwd_dhu/api.h"
#include "families/kda_bwd_intra/api.h"
#include "families/kda_bwd_wy/api.h"
#include "families/kda_chunk_h/api.h"
#include "families/kda_gate/api.h"
#include "families/kda_gate_bwd/api.h"
#include "families/kda_qk_bwd/api.h"

#include <string.h>

#define SKIPPED 77

struct chain chain;
static struct session session;
static bool on_device;

/* ---- memory --------------------------------------------------------------- */

/* Host memory, and where there is a device its image there. Results of no tensor are NaN. */
enum { ARENA = 48 << 20 };
static struct {
    _Alignas(256) char host[ARENA];
    CUdeviceptr device;
    size_t used;
} arena;

void *chain_room(size_t bytes)
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

void chain_begin(void)
{
    arena.used = 0;
    memset(arena.host, 0xff, sizeof arena.host);
}

bool chain_open(int *status)
{
    const enum gen_status opened = gpu_open(&session.gpu, 0, 0);
    if (opened) {
        const bool none = opened == GEN_STATUS_NO_DRIVER || opened == GEN_STATUS_NO_DEVICE;
        printf("%s: %s\n", none ? "skipped" : "FAILED", gen_last_error());
        *status = none ? SKIPPED : 1;
        return false;
    }
    session_open_library(&session);
    on_device = gpu_alloc(&session.gpu, ARENA, &arena.device) == GEN_OK;
    *status = !on_device;
    if (!on_device)
        printf("FAILED: %s\n", gen_last_error());
    return on_device;
}

void chain_close(void)
{
    if (!on_device)
        return;
    gpu_free(&session.gpu, arena.device);
    session_close(&session);
}

/* ---- stages --------------------------------------------------------------- */

static struct {
    void *q, *k, *a_qk, *a_kk, *w, *u, *kg, *qg, *h, *v_new, *d_v, *d_h, *d_v_new; /* 16 bits */
    float *gk, *d_a_qk, *d_a_kk, *d_q, *d_k, *d_g, *d_beta, *partials;
} mid;

static void *halves(int64_t count)
{
    return chain_room((size_t)count * 2);
}

static float *floats(int64_t count)
{
    return chain_room((size_t)count * 4);
}

static void make_room(void)
{
    const int64_t d = chain.problem.head_dim, rows = chain_rows(), v = rows * d;
    const int64_t qk = (int64_t)chain.problem.num_tokens * QK_HEADS * d, states = HEADS * d * d;
    const int64_t slots = chain.problem.num_tokens / 64 + BATCH;
    const int64_t counts[NUM_GRADIENTS] = {[Q] = qk,
                                           [K] = qk,
                                           [V] = v,
                                           [G] = v,
                                           [BETA] = rows,
                                           [INITIAL] = BATCH * states,
                                           [BIAS] = HEADS * d,
                                           [A_LOG] = HEADS};
    void **const list[] = {&mid.w, &mid.u, &mid.kg, &mid.qg, &mid.v_new, &mid.d_v, &mid.d_v_new};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        *list[i] = halves(v);
    mid.q = halves(qk), mid.k = halves(qk);
    mid.a_qk = halves(rows * 64), mid.a_kk = halves(rows * 64);
    mid.h = halves(slots * states), mid.d_h = halves(slots * states);
    mid.gk = floats(v), mid.d_q = floats(v), mid.d_k = floats(v), mid.d_g = floats(v);
    mid.d_a_qk = floats(rows * 64), mid.d_a_kk = floats(rows * 64), mid.d_beta = floats(rows);
    mid.partials = chain_room((size_t)GEN_KDA_GATE_BWD_PARTIALS(slots, HEADS, d));
    for (int i = 0; i < NUM_GRADIENTS; i++)
        chain.gradients[i] = floats(counts[i]);
    memcpy(chain.counts, counts, sizeof counts);
}

static void run(const gen_args *args)
{
    const struct gen__family *family = gen__family_by_tag(args->family);
    gen_kda_stage_problem p = chain.problem;
    gen_plan plan = {.size = sizeof plan};
    enum gen_status status;
    p.base = (gen_problem){.size = sizeof p, .family = family->tag};
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
                                     GIVEN(g, chain.in.g),
                                     .A_log = chain_is_given() ? NULL : given(chain.in.A_log),
                                     .dt_bias = chain_is_given() ? NULL : given(chain.in.dt_bias),
                                     GIVEN(q, chain.in.q),
                                     GIVEN(k, chain.in.k),
                                     GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                     GIVEN(gk, mid.gk),
                                     GIVEN(q_norm, mid.q),
                                     GIVEN(k_norm, mid.k),
                                     .lower_bound = -5,
                                     .gate_form = chain.gate_form};
    const gen_kda_chunk_intra_args intra = {ARGS(intra, GEN_KDA_CHUNK_INTRA),
                                            GIVEN(q, mid.q),
                                            GIVEN(k, mid.k),
                                            GIVEN(v, chain.in.v),
                                            GIVEN(gk, mid.gk),
                                            GIVEN(beta, chain.in.active_beta),
                                            GIVEN(cu_seqlens, chain.in.cu_seqlens),
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
                                         GIVEN(initial_state, chain.in.initial),
                                         GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                         GIVEN(h, mid.h),
                                         GIVEN(v_new, mid.v_new),
                                         .state_layout = chain.state_layout};
    run(&gates.base), run(&intra.base), run(&states.base);
}

static void run_states(void)
{
    const gen_kda_bwd_dav_args dav = {
        ARGS(dav, GEN_KDA_BWD_DAV), GIVEN(v_new, mid.v_new),
        GIVEN(d_o, chain.in.d_o),   GIVEN(a_qk, mid.a_qk),
        GIVEN(d_a_qk, mid.d_a_qk),  GIVEN(cu_seqlens, chain.in.cu_seqlens),
        GIVEN(d_v, mid.d_v),        .scale = 0.1f};
    const gen_kda_bwd_dhu_args dhu = {ARGS(dhu, GEN_KDA_BWD_DHU),
                                      GIVEN(qg, mid.qg),
                                      GIVEN(kg, mid.kg),
                                      GIVEN(w, mid.w),
                                      GIVEN(d_o, chain.in.d_o),
                                      GIVEN(d_v, mid.d_v),
                                      GIVEN(gk, mid.gk),
                                      GIVEN(d_final_state, chain.in.d_final),
                                      GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                      GIVEN(d_h, mid.d_h),
                                      GIVEN(d_v_new, mid.d_v_new),
                                      GIVEN(d_initial_state, chain.gradients[INITIAL]),
                                      .scale = 0.1f,
                                      .state_layout = chain.state_layout};
    const gen_kda_bwd_wy_args wy = {ARGS(wy, GEN_KDA_BWD_WY),
                                    GIVEN(q, mid.q),
                                    GIVEN(k, mid.k),
                                    GIVEN(v, chain.in.v),
                                    GIVEN(v_new, mid.v_new),
                                    GIVEN(gk, mid.gk),
                                    GIVEN(beta, chain.in.active_beta),
                                    GIVEN(a_kk, mid.a_kk),
                                    GIVEN(h, mid.h),
                                    GIVEN(d_o, chain.in.d_o),
                                    GIVEN(d_h, mid.d_h),
                                    GIVEN(d_v_new, mid.d_v_new),
                                    GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                    GIVEN(d_q, mid.d_q),
                                    GIVEN(d_k, mid.d_k),
                                    GIVEN(d_v, chain.gradients[V]),
                                    GIVEN(d_beta, mid.d_beta),
                                    GIVEN(d_g, mid.d_g),
                                    GIVEN(d_a_kk, mid.d_a_kk),
                                    .scale = 0.1f,
                                    .state_layout = chain.state_layout};
    run(&dav.base), run(&dhu.base), run(&wy.base);
}

/* Sums take the places of what they are added to. */
static void run_inputs(void)
{
    const gen_kda_bwd_intra_args intra = {ARGS(intra, GEN_KDA_BWD_INTRA),
                                          GIVEN(q, mid.q),
                                          GIVEN(k, mid.k),
                                          GIVEN(gk, mid.gk),
                                          GIVEN(beta, chain.in.active_beta),
                                          GIVEN(d_a_qk, mid.d_a_qk),
                                          GIVEN(d_a_kk, mid.d_a_kk),
                                          GIVEN(d_q_states, mid.d_q),
                                          GIVEN(d_k_states, mid.d_k),
                                          GIVEN(d_beta_states, mid.d_beta),
                                          GIVEN(d_g_states, mid.d_g),
                                          GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                          GIVEN(d_q, mid.d_q),
                                          GIVEN(d_k, mid.d_k),
                                          GIVEN(d_beta, mid.d_beta),
                                          GIVEN(d_g, mid.d_g)};
    gen_kda_gate_bwd_args gates = {ARGS(gates, GEN_KDA_GATE_BWD),
                                   GIVEN(d_gk, mid.d_g),
                                   GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                   GIVEN(d_g, chain.gradients[G]),
                                   .lower_bound = -5,
                                   .gate_form = chain.gate_form,
                                   .suffix_sum = 1};
    if (!chain_is_given()) {
        gates.g = given(chain.in.g);
        gates.A_log = given(chain.in.A_log), gates.dt_bias = given(chain.in.dt_bias);
        gates.d_A_log = given(chain.gradients[A_LOG]),
        gates.d_dt_bias = given(chain.gradients[BIAS]);
        gates.partials = given(mid.partials);
    }
    const gen_kda_qk_bwd_args rows = {ARGS(rows, GEN_KDA_QK_BWD),
                                      GIVEN(q, chain.in.q),
                                      GIVEN(k, chain.in.k),
                                      GIVEN(beta, chain.in.beta),
                                      GIVEN(d_q_heads, mid.d_q),
                                      GIVEN(d_k_heads, mid.d_k),
                                      GIVEN(d_beta_heads, mid.d_beta),
                                      GIVEN(cu_seqlens, chain.in.cu_seqlens),
                                      GIVEN(d_q, chain.gradients[Q]),
                                      GIVEN(d_k, chain.gradients[K]),
                                      GIVEN(d_beta, chain.gradients[BETA]),
                                      .qk_l2norm = 1,
                                      .beta_form = chain.beta_form};
    run(&intra.base), run(&gates.base), run(&rows.base);
}

static void assert_ok(enum gen_status status)
{
    if (status)
        fail_msg("%s", gen_last_error());
}

void chain_run(void)
{
    make_room();
    if (on_device)
        assert_ok(gpu_upload(&session.gpu, arena.device, arena.host, arena.used));
    run_forward();
    run_states();
    run_inputs();
    if (on_device)
        assert_ok(gpu_download(&session.gpu, arena.host, arena.device, arena.used));
}
