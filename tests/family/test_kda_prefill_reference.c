/* The references of kda_prefill: against values computed by hand, and the chunked form's against
 * the recurrence. */
#include "h200.h"
#include "kda_prefill.h"
#include "reference/half.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_kda_prefill;
static const struct gen__family *const family = &gen__family_kda_prefill;

/* Buffers of a problem, filled with numbers of no pattern. */
struct run {
    gen_kda_prefill_problem p;
    gen_kda_prefill_args a;
    gen_plan plan;
    uint16_t *q, *k, *v, *o;
    float *g, *beta, *initial, *final;
    double *exact;
    int64_t tokens, elements, states;
};

static void set_up(struct run *r, gen_kda_prefill_problem p)
{
    uint64_t random = 42;
    memset(r, 0, sizeof *r);
    r->p = p;
    memcpy(r->plan.dims, &p.batch, KDA_NUM_DIMS * sizeof(int32_t));
    r->tokens = gen__kda_tokens(r->plan.dims);
    r->elements = r->tokens * p.num_v_heads * p.head_dim;
    r->states = (int64_t)p.batch * p.num_v_heads * p.head_dim * p.head_dim;
    const int64_t qk = r->tokens * p.num_qk_heads * p.head_dim;
    family->default_args(&p.base, (gen_args *)&r->a);
    r->a.q = r->q = random_bf16(qk, 2, &random);
    r->a.k = r->k = random_bf16(qk, 2, &random);
    r->a.v = r->v = random_bf16(r->elements, 2, &random);
    r->a.o = r->o = random_bf16(r->elements, 2, &random);
    r->a.g = r->g = random_fp32(r->elements, 0, 2, &random);
    r->a.beta = r->beta = random_fp32(r->tokens * p.num_v_heads, 0.5, 0.5, &random);
    r->a.initial_state = r->initial = random_fp32(r->states, 0, 1, &random);
    r->a.final_state = r->final = random_fp32(r->states, 0, 1, &random);
    r->exact = malloc((size_t)r->elements * sizeof *r->exact);
}

static void tear_down(struct run *r)
{
    free(r->q), free(r->k), free(r->v), free(r->o);
    free(r->g), free(r->beta), free(r->initial), free(r->final), free(r->exact);
}

static void exact_reference(struct run *r)
{
    double *exact[KDA_PREFILL_NUM_TENSORS] = {NULL};
    exact[KDA_PREFILL_O] = r->exact;
    assert_int_equal(family->exact(&r->plan, &r->a.base, exact), GEN_OK);
}

/* Two tokens of one channel that is not zero: everything can be computed. */
static void reference_by_hand(void **state)
{
    (void)state;
    struct run r;
    gen_kda_prefill_problem p = kda_prefill_problem(1, 2, 1);
    p.head_dim = 64;
    set_up(&r, p);
    r.a.gate_form = GEN_KDA_GATE_GIVEN;
    r.a.qk_l2norm = 0;
    r.a.scale = 0.5f;
    memset(r.initial, 0, (size_t)r.states * sizeof *r.initial);
    for (int64_t i = 0; i < 128; i++) {
        const bool first = i % 64 == 0;
        r.q[i] = gen__bf16_from_double(first ? 2.0 : 0.0);
        r.k[i] = gen__bf16_from_double(first ? (i < 64 ? 1.0 : 0.5) : 0.0);
        r.v[i] = gen__bf16_from_double(i < 64 ? 3.0 : 4.0);
        r.g[i] = -logf(2.0f);
    }
    r.initial[0] = 8.0f; /* S[0][0]; of the other columns 0 */
    r.beta[0] = 0.5f;
    r.beta[1] = 1.0f;
    exact_reference(&r);
    /* S = 8 / 2 = 4, error 3 - 4 = -1, S = 4 - 1/2; o = 0.5 * 2 * 3.5. Then S = 1.75, error
     * 4 - 0.875, S = 1.75 + 0.5 * 3.125. Column 1: S = 0, error 3, S = 1.5; 0.75, 3.625, 2.5625. */
    assert_true(fabs(r.exact[0] - 3.5) < 1e-6 && fabs(r.exact[64] - 3.3125) < 1e-6);
    assert_true(fabs(r.exact[1] - 1.5) < 1e-6 && fabs(r.exact[65] - 2.5625) < 1e-6);
    assert_true(fabs((double)r.final[0] - 3.3125) < 1e-6 &&
                fabs((double)r.final[1] - 2.5625) < 1e-6);
    r.a.state_layout = GEN_KDA_STATE_VK;
    exact_reference(&r);
    assert_true(fabs((double)r.final[0] - 3.3125) < 1e-6 &&
                fabs((double)r.final[64] - 2.5625) < 1e-6);
    tear_down(&r);
}

/* The outputs and the final states are as far from the recurrence's as allowed. */
static void check_chunks(const struct run *r, const float *expected, double allowed)
{
    double difference = 0, all = 0;
    for (int64_t i = 0; i < r->elements; i++) {
        difference += pow(gen__bf16_to_double(r->o[i]) - r->exact[i], 2);
        all += r->exact[i] * r->exact[i];
    }
    assert_true(sqrt(difference / all) < allowed);
    difference = all = 0;
    for (int64_t i = 0; i < r->states; i++) {
        difference += pow((double)r->final[i] - (double)expected[i], 2);
        all += pow((double)expected[i], 2);
    }
    assert_true(sqrt(difference / all) < allowed);
}

/* kda_intra's reference, then kda_inter's on what it left. */
static void run_chunks(struct run *r, const gen_kda_prefill_problem *p)
{
    const struct gen__facts v = kda_prefill_variant(1);
    gen_plan plan = {0};
    family->plan(&p->base, &h200, &v, &plan);
    char *workspace = calloc(1, plan.workspace_bytes);
    union {
        struct gen_kda_intra_params intra;
        struct gen_kda_inter_pool_params last;
    } k;
    assert_int_equal(family->params(&plan, 0, &r->a.base, workspace, &k), GEN_OK);
    gen_kda_intra_args intra = {
        .base = {sizeof intra, GEN_KDA_INTRA},
        .q = r->q,
        .k = r->k,
        .v = r->v,
        .g = r->g,
        .beta = r->beta,
        .A_log = r->a.A_log,
        .cu_seqlens = r->a.cu_seqlens,
        .w = k.intra.w,
        .u = k.intra.u,
        .qg = k.intra.qg,
        .kg = k.intra.kg,
        .a_qk = k.intra.a_qk,
        .decay = k.intra.decay,
        .scale = r->a.scale,
        .lower_bound = r->a.lower_bound,
        .gate_form = r->a.gate_form,
        .beta_form = r->a.beta_form,
        .qk_l2norm = 1,
    };
    assert_int_equal(gen__kda_intra_reference(&plan, &intra.base), GEN_OK);
    assert_int_equal(family->params(&plan, 1, &r->a.base, workspace, &k), GEN_OK);
    const gen_kda_inter_args inter = {
        .base = {sizeof inter, GEN_KDA_INTER},
        .w = k.last.inter.w,
        .u = k.last.inter.u,
        .qg = k.last.inter.qg,
        .kg = k.last.inter.kg,
        .a_qk = k.last.inter.a_qk,
        .decay = k.last.inter.decay,
        .cu_seqlens = r->a.cu_seqlens,
        .initial_state = r->initial,
        .final_state = r->final,
        .o = r->o,
        .state_layout = r->a.state_layout,
    };
    assert_int_equal(gen__kda_inter_reference(&plan, &inter.base), GEN_OK);
    free(workspace);
}

/* kda_intra's reference and then kda_inter's come to what the recurrence does, but for
 * the rounding of what goes from one to the other. */
static void chunks_against_recurrence(gen_kda_prefill_problem p, const int32_t *cu, int32_t gate,
                                      double allowed)
{
    struct run r;
    set_up(&r, p);
    r.a.cu_seqlens = cu;
    r.a.gate_form = gate;
    r.a.beta_form = gate == GEN_KDA_GATE_SOFTPLUS ? GEN_KDA_BETA_SIGMOID : 0;
    float rates[4] = {-1, 0, -2, 0.5f};
    r.a.A_log = gate == GEN_KDA_GATE_GIVEN ? NULL : rates;
    if (gate == GEN_KDA_GATE_GIVEN)
        for (int64_t i = 0; i < r.elements; i++)
            r.g[i] = -fabsf(r.g[i]);
    exact_reference(&r);
    float *expected = malloc((size_t)r.states * sizeof *expected);
    memcpy(expected, r.final, (size_t)r.states * sizeof *expected);

    run_chunks(&r, &p);
    check_chunks(&r, expected, allowed);
    free(expected);
    tear_down(&r);
}

static void chunked_form(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(2, 130, 2);
    p.num_v_heads = 4;
    chunks_against_recurrence(p, NULL, GEN_KDA_GATE_LOWER_BOUND, 0.004);
    p.head_dim = 64;
    chunks_against_recurrence(p, NULL, GEN_KDA_GATE_SOFTPLUS, 0.004);
    static const int32_t cu[6] = {0, 65, 65, 66, 129, 193};
    p = kda_prefill_problem(5, 65, 2);
    p.num_tokens = 193;
    p.head_dim = 64;
    chunks_against_recurrence(p, cu, GEN_KDA_GATE_GIVEN, 0.004);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_by_hand),
        cmocka_unit_test(chunked_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
