/*
 * kda_intra, kda_inter, kda_prefill: what they allow and what they say where they do
 * not, geometry and parameters.
 */
#include "h200.h"
#include "kda_prefill.h"
#include "families/kda/layout.h"
#include "families/kda/prefill.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const struct gen__family gen__family_kda_intra, gen__family_kda_inter,
    gen__family_kda_prefill;
static const struct gen__family *const family = &gen__family_kda_prefill;

/* ---- the problem -------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(3, 100, 8);
    struct gen__key key;
    p.head_dim = 64;
    p.dtype = GEN_DTYPE_FP16;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "fp16");
    assert_string_equal(family->required[1].values[key.codes[1]], "64");
    assert_true(key.counts[0] == 24 && key.counts[1] == 100 && !key.empty);
    assert_int_equal(key.codes[2], 0); /* of an axis that it has not */
    gen_kda_intra_problem intra = {.base = {sizeof intra, GEN_KDA_INTRA, 0, 0}};
    memcpy(&intra.batch, &p.batch, KDA_NUM_DIMS * sizeof(int32_t));
    for (intra.safe_gate = 0; intra.safe_gate < 2; intra.safe_gate++) {
        const struct gen__family *other = &gen__family_kda_intra;
        assert_int_equal(other->check(&intra.base, &key), GEN_OK);
        assert_string_equal(other->required[2].values[key.codes[2]],
                            intra.safe_gate ? "safe" : "any");
        assert_true(key.counts[0] == 48); /* 3 sequences, 2 chunks, 8 heads */
    }
    p.seq_len = 0; /* states are handed on */
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(!key.empty);
    p.base.flags = GEN_BATCH_INVARIANT;
    const float invariant = (family->check(&p.base, &key), key.counts[0]);
    p.batch = 17;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[0] == invariant);
    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
}

/* What states there are at once depends on the longest sequence, which has no more tokens than all.
 */
static void counts_of_packed_sequences(void **state)
{
    (void)state;
    static const struct {
        int32_t batch, seq_len, num_tokens;
        float states, longest;
    } cases[] = {
        {20, 820, 16384, 160, 820},   /* 260 chunks at most, of 13 */
        {20, 8192, 16384, 17, 8192},  /* 276 of 128 */
        {2, 32768, 36864, 9, 32768},  /* 578 of 512 */
        {2, 117656, 33931, 8, 33931}, /* one may have them all */
        {3, 64, 192, 24, 64},         {5, 8192, 1, 40, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_kda_prefill_problem p = kda_prefill_problem(cases[i].batch, cases[i].seq_len, 8);
        struct gen__key key;
        p.num_tokens = cases[i].num_tokens;
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[0] == cases[i].states);
        assert_true(key.counts[1] == cases[i].longest);
        p.base.flags = GEN_BATCH_INVARIANT; /* as if there were four of one length, whatever are */
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[0] == 32 && key.counts[1] == 4096);
        p.num_tokens = 0; /* each has this length, so its results may depend on it */
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[0] == 32 && key.counts[1] == (float)cases[i].seq_len);
    }
    const gen_kda_prefill_problem most =
        kda_prefill_problem(32767, 64, 65536); /* tiles that 31 bits count */
    struct gen__key key;
    assert_int_equal(family->check(&most.base, &key), GEN_OK);
    assert_true(key.counts[0] == 32767.0f * 65536.0f && key.counts[1] == 64);
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_kda_prefill_problem, field)
        {AT(batch), -1, "kda_prefill: batch = -1; allowed: 0 to 65535"},
        {AT(batch), 65536, "kda_prefill: batch = 65536; allowed: 0 to 65535"},
        {AT(seq_len), -1, "kda_prefill: seq_len = -1; allowed: 0 to 1073741824"},
        {AT(seq_len), 1 << 29, "kda_prefill: batch * seq_len = 2147483648; allowed: <= 1073741824"},
        {AT(num_tokens), -1,
         "kda_prefill: num_tokens = -1; allowed: 0 to 1073741824, and at most batch * seq_len = "
         "400"},
        {AT(num_tokens), 401,
         "kda_prefill: num_tokens = 401; allowed: 0 to 1073741824, and at most batch * seq_len = "
         "400"},
        {AT(num_qk_heads), 0, "kda_prefill: head count num_qk_heads = 0; allowed: 1 to 65536"},
        {AT(num_v_heads), 65537,
         "kda_prefill: head count num_v_heads = 65537; allowed: 1 to 65536"},
        {AT(num_v_heads), 5,
         "kda_prefill: head count num_v_heads = 5; allowed: a multiple of num_qk_heads = 3"},
        {AT(head_dim), 96, "kda_prefill: head_dim = 96; allowed: 64, 128"},
        {AT(dtype), 2, "kda_prefill: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(gate_dtype), GEN_DTYPE_FP16, /* beside bf16 */
         "kda_prefill: gate_dtype = 1; allowed: that of q, k, v, or GEN_DTYPE_FP32 (2)"},
        {AT(beta_dtype), -1,
         "kda_prefill: beta_dtype = -1; allowed: that of q, k, v, or GEN_DTYPE_FP32 (2)"},
        {AT(safe_gate), 2, "kda_prefill: safe_gate = 2; allowed: 0, 1"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_kda_prefill_problem p = kda_prefill_problem(4, 100, 3);
        struct gen__key key;
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, cases[i].message);
    }
}

/* Two launches, of which the first is kda_intra's; one where there is no token. */
static void geometry(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(3, 130, 6);
    struct gen__part part[GEN_PLAN_MAX_LAUNCHES];
    gen_plan plan = {0};
    struct gen__facts v = kda_prefill_variant(2);
    family->plan(&p.base, &h200, &v, &plan);
    assert_int_equal(plan.num_launches, 2);
    assert_int_equal(plan.launch[1].grid[0], 6);
    assert_int_equal(plan.launch[1].grid[1], 3);
    assert_int_equal(plan.launch[1].threads, 384);
    assert_int_equal(plan.launch[1].dependent, 1);
    /* 9 chunks of 6 heads: four tiles of 16 KiB, one of 8, 128 floats. */
    assert_int_equal(plan.workspace_bytes, 54 * (4 * 16384 + 8192 + 512));
    assert_int_equal(family->parts(&p.base, &h200, &v, &plan, part), 1);
    assert_int_equal(part[0].launch, 0);
    const gen_kda_intra_problem *intra = (const gen_kda_intra_problem *)(void *)&part[0].problem;
    assert_int_equal(intra->base.family, GEN_KDA_INTRA);
    assert_int_equal(intra->seq_len, 130);
    assert_int_equal(intra->safe_gate, 1);
    gen_plan first = {0};
    const struct gen__facts any = {.threads = 256, .registers = 128, .fact = {1}};
    gen__family_kda_intra.plan(&intra->base, &h200, &any, &first);
    assert_int_equal(first.launch[0].grid[0], 54);

    v = kda_prefill_variant(1);
    p.base.flags = GEN_SERIAL_LAUNCH;
    p.num_tokens = 200; /* slots: 200 / 64 + 3 */
    memset(&plan, 0, sizeof plan);
    family->plan(&p.base, &h200, &v, &plan);
    assert_int_equal(plan.launch[1].grid[0], 12);
    assert_int_equal(plan.launch[1].dependent, 0);
    assert_int_equal(plan.workspace_bytes, 36 * (4 * 16384 + 8192 + 512));

    p = kda_prefill_problem(3, 0, 6);
    memset(&plan, 0, sizeof plan);
    family->plan(&p.base, &h200, &v, &plan);
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.workspace_bytes, 0);
    assert_int_equal(plan.launch[0].grid[0], 12);
    assert_int_equal(family->parts(&p.base, &h200, &v, &plan, part), 0);
}

/* A variant that does all of it: one launch, no parts, no workspace. */
static void one_launch(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(3, 130, 6);
    struct gen__facts v = kda_prefill_variant(2);
    v.fact[KDA_PREFILL_ONE] = 1;
    gen_plan plan = {0};
    family->plan(&p.base, &h200, &v, &plan);
    assert_true(plan.num_launches == 1 && plan.workspace_bytes == 0);
    assert_int_equal(family->parts(&p.base, &h200, &v, &plan, NULL), 0);
    assert_null(family->fits(&p.base, &h200, &v));
    p.segment_chunks = 2;
    assert_string_equal(family->fits(&p.base, &h200, &v),
                        "one launch cuts no sequence: segment_chunks is -1 or 0");
    p.segment_chunks = p.safe_gate = 0;
    assert_string_equal(family->fits(&p.base, &h200, &v),
                        "one launch takes gates of at least -5: safe_gate = 1");
}

/* Slots of sequences never overlap, and lie within their number. */
static void slots(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int round = 0; round < 200; round++) {
        int32_t cu[12] = {0};
        for (int n = 0; n < 11; n++)
            cu[n + 1] = cu[n] + (int32_t)(random_bits(&random) % 140);
        const int32_t dims[KDA_NUM_DIMS] = {11, 140, cu[11], 1, 1, 64, 0, 0, 0, 1};
        int64_t next = 0;
        for (int n = 0; n < 11; n++) {
            const struct gen__kda_sequence s = gen__kda_sequence(dims, cu, n);
            assert_int_equal(s.length, cu[n + 1] - cu[n]);
            assert_true(s.slot >= next);
            next = s.slot + gen__kda_chunks(s.length);
        }
        assert_true(next <= gen__kda_slots(dims));
    }
    /* What cu_seqlens holds is not believed. */
    const int32_t dims[KDA_NUM_DIMS] = {2, 40, 60, 1, 1, 64, 0, 0, 0, 1};
    const int32_t bad[3] = {-5, 1000, 3};
    struct gen__kda_sequence s = gen__kda_sequence(dims, bad, 0);
    assert_true(s.first == 0 && s.length == 40);
    s = gen__kda_sequence(dims, bad, 1);
    assert_true(s.first == 60 && s.length == 0);
    int32_t cu[8];
    const int32_t spread[KDA_NUM_DIMS] = {7, 129, 330, 1, 1, 64, 0, 0, 0, 1};
    gen__kda_fill_cu_seqlens(spread, true, cu);
    assert_true(cu[1] == 129 && cu[2] == 129 && cu[3] == 130 && cu[4] == 193 && cu[7] == 330);
    gen__kda_fill_cu_seqlens(spread, false, cu);
    assert_true(cu[1] == 129 && cu[2] == 162 && cu[7] == 330);
}

/* The form "loose": cu_seqlens that is wrong in every way, and sequences all the same lie
 * within the tokens, do not overlap, and have slots of their own. */
static void loose_form(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(7, 129, 2);
    struct gen__tensor list[GEN__MAX_TENSORS];
    const struct gen__fill_options options = {.padding = true};
    gen_kda_prefill_args a;
    int32_t cu[8];
    void *data[KDA_PREFILL_NUM_TENSORS] = {NULL};
    data[KDA_PREFILL_CU_SEQLENS] = cu;
    uint32_t loose = 0;
    while (strcmp(family->forms[loose], "loose"))
        assert_true(++loose < family->num_forms);
    assert_false(family->form(&p.base, loose, &a.base, list)); /* all of one length */
    p.num_tokens = 330;
    family->default_args(&p.base, &a.base);
    assert_int_equal(family->tensors(&p.base, list), KDA_PREFILL_NUM_TENSORS);
    assert_true(family->form(&p.base, loose, &a.base, list));
    assert_int_equal(family->fill(&p.base, &a.base, list, &options, data), GEN_OK);
    assert_true(cu[0] < 0 && cu[1] > 129 && cu[2] < cu[1] && cu[7] > 330);
    int64_t end = 0, next = 0;
    for (int n = 0; n < 7; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(&p.batch, cu, n);
        assert_true(s.length <= 129 && s.first + s.length <= 330);
        if (!s.length)
            continue;
        assert_true(s.first >= end && s.slot >= next);
        end = s.first + s.length;
        next = s.slot + gen__kda_chunks(s.length);
    }
    assert_true(next <= gen__kda_slots(&p.batch));
    p.batch = 1;
    assert_false(family->form(&p.base, loose, &a.base, list));
}

static void assert_named(gen_kda_prefill_problem p, int32_t num_tokens, const char *expected)
{
    char name[128];
    p.num_tokens = num_tokens;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, expected);
}

/* Problems that differ have names that do. */
static void case_names(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(20, 820, 64);
    p.gate_dtype = GEN_DTYPE_BF16;
    assert_named(p, 0, "B20-T820-H64");
    assert_named(p, 16384, "varlen-uniform-N20-T16384-H64");
    p.seq_len = 8192;
    assert_named(p, 16384, "varlen-skewed-N20-T16384-H64");
    p.seq_len = 821; /* nearly as the first, and another problem */
    assert_named(p, 16384, "varlen-max821-N20-T16384-H64");
    p.seq_len = 4000;
    p.num_qk_heads = 16;
    p.head_dim = 64;
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = GEN_DTYPE_FP32;
    p.beta_dtype = GEN_DTYPE_FP16;
    p.safe_gate = 0;
    assert_named(p, 16384, "varlen-max4000-N20-T16384-HQK16-HV64-D64-fp16-g32-b16-any");
}

/* Every element has a place of its own. */
static void layouts(void **state)
{
    (void)state;
    static char seen[2][128 * 64];
    memset(seen, 0, sizeof seen);
    for (int64_t row = 0; row < 64; row++)
        for (int64_t column = 0; column < 128; column++) {
            assert_int_equal(seen[0][gen__kda_tile_at(row, column)]++, 0);
            assert_int_equal(seen[1][gen__kda_u_at(column, row)]++, 0);
        }
    assert_int_equal(gen__kda_tile_at(9, 70), 4096 + 9 * 64 + 8 + 6);
    assert_int_equal(gen__kda_u_at(17 + 8, 16 + 8 + 3), ((4 + 1) * 32 + 4 + 1) * 8 + 3 * 2 + 1);
}

/* ---- arguments ---------------------------------------------------------- */

static _Alignas(64) unsigned char memory[256];

static gen_kda_prefill_args good_args(const gen_kda_prefill_problem *p)
{
    gen_kda_prefill_args a;
    family->default_args(&p->base, (gen_args *)&a);
    a.q = a.k = a.v = a.g = a.beta = memory;
    a.A_log = a.dt_bias = (const float *)(const void *)memory;
    a.initial_state = (const float *)(const void *)memory;
    a.final_state = (float *)(void *)memory;
    a.o = memory;
    return a;
}

static void argument_errors(void **state)
{
    (void)state;
    const gen_kda_prefill_problem p = kda_prefill_problem(2, 100, 2);
    gen_plan plan = {.num_launches = 2};
    memcpy(plan.dims, &p.batch, KDA_NUM_DIMS * sizeof(int32_t));
    _Alignas(GEN__PARAMS_ALIGNMENT) unsigned char out[GEN__MAX_PARAMS];
    gen_kda_prefill_args a = good_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, memory, out), GEN_OK);
    assert_int_equal(family->params(&plan, 1, &a.base, memory, NULL), GEN_OK);
#define WRONG(change, message)                                                          \
    do {                                                                                \
        a = good_args(&p);                                                              \
        change;                                                                         \
        assert_failed(family->params(&plan, 0, &a.base, memory, out), INVALID_ARGUMENT, \
                      "kda_prefill: " message);                                         \
    } while (0)
    WRONG(a.q = NULL, "q is NULL");
    WRONG(a.beta = NULL, "beta is NULL");
    WRONG(a.o = NULL, "o is NULL");
    WRONG(a.q_stride = 260, "q_stride = 260 elements; allowed: 0 (packed), or a multiple of 8 from "
                            "256 (one token) to 5764607523034234");
    WRONG(a.o_stride = 248, "o_stride = 248 elements; allowed: 0 (packed), or a multiple of 8 from "
                            "256 (one token) to 5764607523034234");
    WRONG(a.beta_stride = 1, "beta_stride = 1 elements; allowed: 0 (packed), or a multiple of 1 "
                             "from 2 (one token) to 5764607523034234");
    WRONG(a.scale = NAN, "scale = nan; allowed: a finite number");
    WRONG(a.lower_bound = 0, "lower_bound = 0; allowed: -5 <= lower_bound < 0");
    WRONG(a.lower_bound = -5.5f, "lower_bound = -5.5; allowed: -5 <= lower_bound < 0");
    WRONG(a.gate_form = 3,
          "gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
          "GEN_KDA_GATE_LOWER_BOUND (2)");
    WRONG((a.gate_form = GEN_KDA_GATE_SOFTPLUS, a.A_log = NULL),
          "A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: num_v_heads numbers");
    WRONG(a.beta_form = -1,
          "beta_form = -1; allowed: GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
          "GEN_KDA_BETA_TWO_SIGMOID (2)");
    WRONG(a.qk_l2norm = 2, "qk_l2norm = 2; allowed: 0, 1");
    WRONG(a.state_layout = 2,
          "state_layout = 2; allowed: GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    static const int32_t good[3] = {0, 30, 90}, late[3] = {1, 30, 90}, back[3] = {0, 95, 90},
                         far[3] = {0, 30, 131}, few[3] = {0, 30, 80};
    plan.dims[KDA_NUM_TOKENS] = 90;
    WRONG((void)0, "cu_seqlens is NULL");
#define HOST(array) (a.cu_seqlens = good, a.cu_seqlens_host = (array))
    WRONG(HOST(late), "cu_seqlens_host[0] = 1; allowed: 0");
    WRONG(HOST(back), "cu_seqlens_host[2] = 90 behind 95; allowed: 0 to seq_len = 100 more");
    WRONG(HOST(far), "cu_seqlens_host[2] = 131 behind 30; allowed: 0 to seq_len = 100 more");
    WRONG(HOST(few), "cu_seqlens_host[2] = 80; allowed: num_tokens = 90");
    a = good_args(&p);
    HOST(good);
    assert_int_equal(family->params(&plan, 1, &a.base, memory, out), GEN_OK);
#undef HOST
    plan.dims[KDA_QK_HEADS] = 0;
    a = good_args(&p);
    assert_failed(family->params(&plan, 0, &a.base, memory, out), MISMATCH,
                  "kda_prefill: the plan's problem is not what gen_select() writes");
}

/* A message with an address in it. */
/* Requests of no tokens at all: the lists may be there and say so, and states are handed on. */
static void a_batch_of_empty_sequences(void **state)
{
    (void)state;
    static const int32_t none[3] = {0, 0, 0}, some[3] = {0, 0, 1};
    const gen_kda_prefill_problem p = kda_prefill_problem(2, 0, 2);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_false(key.empty);
    gen_plan plan = {.num_launches = 2};
    memcpy(plan.dims, &p.batch, KDA_NUM_DIMS * sizeof(int32_t));
    static _Alignas(16) float states[2 * 2 * 128 * 128], before[2 * 2 * 128 * 128];
    for (int i = 0; i < 2 * 2 * 128 * 128; i++)
        before[i] = (float)i;
    gen_kda_prefill_args a = good_args(&p);
    a.q = a.k = a.v = a.g = a.beta = NULL;
    a.o = NULL;
    a.initial_state = before;
    a.final_state = states;
    for (int with_host = 0; with_host < 2; with_host++) {
        memset(states, 0, sizeof states);
        a.cu_seqlens = none;
        a.cu_seqlens_host = with_host ? none : NULL;
        assert_int_equal(family->params(&plan, 0, &a.base, memory, NULL), GEN_OK);
        assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
        assert_memory_equal(states, before, sizeof states);
    }
    a.cu_seqlens_host = some;
    assert_failed(family->params(&plan, 0, &a.base, memory, NULL), INVALID_ARGUMENT,
                  "kda_prefill: cu_seqlens_host[2] = 1 behind 0; allowed: 0 to seq_len = 0 more");
}

static void assert_begins(enum gen_status status, enum gen_status expected, const char *message)
{
    char text[96];
    assert_int_equal(status, expected);
    snprintf(text, sizeof text, "%.*s", (int)strlen(message), gen_last_error());
    assert_string_equal(text, message);
}

/* What the stages check of arguments that are theirs alone. */
static void stage_argument_errors(void **state)
{
    (void)state;
    const gen_kda_prefill_problem p = kda_prefill_problem(2, 100, 2);
    const gen_kda_prefill_args a = good_args(&p);
    gen_plan plan = {.num_launches = 1};
    memcpy(plan.dims, &p.batch, KDA_NUM_DIMS * sizeof(int32_t));
    gen_kda_intra_args intra;
    gen_kda_inter_args inter;
#define INTRA(change, status, message)                                                         \
    do {                                                                                       \
        intra = (gen_kda_intra_args){.base = {sizeof intra, GEN_KDA_INTRA}, .q = a.q};         \
        intra.k = a.k, intra.v = a.v, intra.g = a.g, intra.beta = a.beta;                      \
        intra.w = intra.u = intra.qg = intra.kg = intra.a_qk = memory;                         \
        intra.decay = a.final_state;                                                           \
        change;                                                                                \
        assert_begins(gen__family_kda_intra.params(&plan, 0, &intra.base, NULL, NULL), status, \
                      "kda_intra: " message);                                                  \
    } while (0)
#define INTER(change, status, message)                                                         \
    do {                                                                                       \
        inter = (gen_kda_inter_args){.base = {sizeof inter, GEN_KDA_INTER}, .o = a.o};         \
        inter.w = inter.u = inter.qg = inter.kg = inter.a_qk = memory;                         \
        inter.decay = a.initial_state;                                                         \
        change;                                                                                \
        assert_begins(gen__family_kda_inter.params(&plan, 0, &inter.base, NULL, NULL), status, \
                      "kda_inter: " message);                                                  \
    } while (0)
    static const int32_t cu[3] = {0, 50, 90};
    INTRA(intra.w = NULL, GEN_STATUS_INVALID_ARGUMENT, "w is NULL");
    INTRA(intra.decay = NULL, GEN_STATUS_INVALID_ARGUMENT, "decay is NULL");
    INTRA(intra.dt_bias = a.dt_bias, GEN_STATUS_INVALID_ARGUMENT, "dt_bias = ");
    INTRA(intra.A_log = a.A_log, GEN_STATUS_INVALID_ARGUMENT, "A_log = ");
    INTRA(intra.q = memory + 8, GEN_STATUS_INVALID_ARGUMENT, "q = ");
    INTRA(intra.beta = memory + 2, GEN_STATUS_INVALID_ARGUMENT, "beta = "); /* fp32 */
    INTRA(intra.cu_seqlens = cu, GEN_STATUS_INVALID_ARGUMENT, "cu_seqlens = ");
    INTRA(intra.g_stride = INT64_MAX - 7, GEN_STATUS_INVALID_ARGUMENT, "g_stride = ");
    INTRA(intra.g_stride = -256, GEN_STATUS_INVALID_ARGUMENT, "g_stride = -256 ");
    INTER(inter.u = NULL, GEN_STATUS_INVALID_ARGUMENT, "u is NULL");
    INTER(inter.decay = NULL, GEN_STATUS_INVALID_ARGUMENT, "decay is NULL");
    INTER(inter.kg = memory + 8, GEN_STATUS_INVALID_ARGUMENT, "kg = ");
    INTER(inter.o = NULL, GEN_STATUS_INVALID_ARGUMENT, "o is NULL");
    INTER(inter.cu_seqlens = cu, GEN_STATUS_INVALID_ARGUMENT, "cu_seqlens = ");
    plan.dims[KDA_NUM_TOKENS] = 90;
    INTRA((void)0, GEN_STATUS_INVALID_ARGUMENT, "cu_seqlens is NULL");
    INTER((void)0, GEN_STATUS_INVALID_ARGUMENT, "cu_seqlens is NULL");
    plan.dims[KDA_HEAD_DIM] = 96;
    INTRA((void)0, GEN_STATUS_MISMATCH, "the plan's problem is not what gen_select() writes");
    INTER((void)0, GEN_STATUS_MISMATCH, "the plan's problem is not what gen_select() writes");
#undef INTRA
#undef INTER
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),
        cmocka_unit_test(counts_of_packed_sequences),
        cmocka_unit_test(check_errors),
        cmocka_unit_test(geometry),
        cmocka_unit_test(one_launch),
        cmocka_unit_test(slots),
        cmocka_unit_test(layouts),
        cmocka_unit_test(argument_errors),
        cmocka_unit_test(a_batch_of_empty_sequences),
        cmocka_unit_test(loose_form),
        cmocka_unit_test(case_names),
        cmocka_unit_test(stage_argument_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
