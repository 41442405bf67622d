/*
 * Segments of sequences, kda_scan and what kda_prefill makes of it: problems and
 * arguments that are refused, slots, layouts, geometry, the choice, and the reference
 * against that of kda_inter.
 */
#include "h200.h"
#include "kda_prefill.h"
#include "reference/half.h"
#include "families/kda/layout.h"
#include "families/kda/segments.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_kda_scan, gen__family_kda_prefill;
static const struct gen__family *const scan = &gen__family_kda_scan;
static const struct gen__family *const prefill = &gen__family_kda_prefill;

static gen_kda_scan_problem scan_problem(int32_t batch, int32_t seq_len, int32_t segment_chunks)
{
    return (gen_kda_scan_problem){
        .base = {sizeof(gen_kda_scan_problem), GEN_KDA_SCAN, 0, 0},
        .batch = batch,
        .seq_len = seq_len,
        .num_v_heads = 2,
        .head_dim = 64,
        .dtype = GEN_DTYPE_BF16,
        .segment_chunks = segment_chunks,
    };
}

static struct gen__facts variant(int32_t groups)
{
    return (struct gen__facts){.index = 7,
                               .threads = (uint32_t)(groups > 1 ? 384 : 160),
                               .shared_dynamic = 146 << 10,
                               .registers = 168,
                               .cluster = 1,
                               .fact = {groups, 1, 1}};
}

/* ---- problems ------------------------------------------------------------ */

static void check_errors(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_prefill_problem p = kda_prefill_problem(4, 100, 3);
    p.segment_chunks = -2;
    assert_failed(prefill->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_prefill: segment_chunks = -2; allowed: -1 (none), 0 (as estimated), 1 to "
                  "16777216");
    p.segment_chunks = (1 << 24) + 1;
    assert_failed(prefill->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_prefill: segment_chunks = 16777217; allowed: -1 (none), 0 (as estimated), 1 "
                  "to 16777216");
    p = kda_prefill_problem(2, 1 << 22, 1);
    p.segment_chunks = 2;
    assert_failed(prefill->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_prefill: segment_chunks = 2 makes 65536 segments; allowed: 65535");
    p.segment_chunks = 3;
    assert_int_equal(prefill->check(&p.base, &key), GEN_OK);
    /* It is the batch as it is that counts, with GEN_BATCH_INVARIANT as without. */
    p = kda_prefill_problem(15000, 65536, 1);
    p.base.flags = GEN_BATCH_INVARIANT;
    p.segment_chunks = 128;
    assert_failed(prefill->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_prefill: segment_chunks = 128 makes 120000 segments; allowed: 65535");
    gen_kda_scan_problem s = scan_problem(1, 100, 0);
    assert_failed(scan->check(&s.base, &key), INVALID_ARGUMENT,
                  "kda_scan: segment_chunks = 0; allowed: 1 to 16777216");
    s = scan_problem(3, 200, 5);
    s.num_v_heads = 0;
    assert_failed(scan->check(&s.base, &key), INVALID_ARGUMENT,
                  "kda_scan: head count num_v_heads = 0; allowed: 1 to 65536");
    s.num_v_heads = 7;
    assert_int_equal(scan->check(&s.base, &key), GEN_OK);
    assert_true(key.counts[0] == 84 && !key.empty);
    s.seq_len = 0;
    assert_int_equal(scan->check(&s.base, &key), GEN_OK);
    assert_true(key.empty);
}

/* Slots of segments never overlap, and lie within their number. */
static void slots(void **state)
{
    (void)state;
    uint64_t random = 9;
    for (int round = 0; round < 400; round++) {
        int32_t cu[12] = {0};
        for (int n = 0; n < 11; n++)
            cu[n + 1] = cu[n] + (int32_t)(random_bits(&random) % (round % 2 ? 1400 : 140));
        const int32_t each = 1 + (int32_t)(random_bits(&random) % 7);
        const int32_t dims[KDA_ALL_DIMS] = {11, 1400, cu[11], 1, 1, 64, 0, 0, 0, 1, each};
        int64_t next = 0;
        for (int n = 0; n < 11; n++) {
            const int64_t slot = gen__kda_segment_slot(dims, cu, n);
            assert_true(slot >= next);
            next = slot + gen__kda_segments_of(gen__kda_chunks(cu[n + 1] - cu[n]), each);
        }
        assert_true(next <= gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]));
    }
    const int32_t dims[KDA_ALL_DIMS] = {3, 130, 0, 1, 1, 64, 0, 0, 0, 1, 2};
    assert_int_equal(gen__kda_segment_slot(dims, NULL, 2), 4);
    assert_int_equal(gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]), 6);
}

/* Every element has a place of its own. */
static void layouts(void **state)
{
    (void)state;
    static char seen[2][2 * 128 * 128];
    for (int64_t d = 64; d <= 128; d += 64) {
        memset(seen, 0, sizeof seen);
        for (int64_t x = 0; x < d; x++)
            for (int64_t k = 0; k < d; k++) {
                assert_in_range(gen__kda_added_at(d, x, k), 0, d * d - 1);
                assert_int_equal(seen[0][gen__kda_added_at(d, x, k)]++, 0);
                assert_int_equal(seen[1][gen__kda_transition_at(d, x, k)]++, 0);
                assert_int_equal(seen[1][gen__kda_transition_at(d, x, k) + 64 * d]++, 0);
            }
    }
    /* Columns of V 64 + 16 + 8 + 3, row of K 9: warp 1, lane 12, of the second 8 columns. */
    assert_int_equal(gen__kda_added_at(128, 91, 9), 64 * 128 + 512 + (32 + 12) * 4 + 2 + 1);
}

/* ---- the plan ------------------------------------------------------------- */

static gen_plan planned(const gen_kda_prefill_problem *p, int32_t groups)
{
    const struct gen__facts v = variant(groups);
    gen_plan plan = {0};
    prefill->plan(&p->base, &h200, &v, &plan);
    return plan;
}

static void geometry(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = kda_prefill_problem(2, 700, 6); /* 11 chunks */
    p.segment_chunks = 4;
    gen_plan plan = planned(&p, 1);
    assert_int_equal(plan.num_launches, 3);
    assert_int_equal(plan.launch[2].grid[0], 12);
    assert_int_equal(plan.launch[2].grid[1], 6);
    assert_int_equal(plan.workspace_bytes,
                     132 * (4 * 16384 + 8192 + 512) + 36 * (2 * 128 + 1) * 128 * 4);
    struct gen__part part[GEN_PLAN_MAX_LAUNCHES];
    const struct gen__facts v = variant(1);
    assert_int_equal(prefill->parts(&p.base, &h200, &v, &plan, part), 2);
    assert_int_equal(part[1].launch, 1);
    const gen_kda_scan_problem *s = (const gen_kda_scan_problem *)(void *)&part[1].problem;
    assert_int_equal(s->base.family, GEN_KDA_SCAN);
    assert_int_equal(s->segment_chunks, 4);
    gen_plan second = {0};
    const struct gen__facts two = variant(2);
    scan->plan(&s->base, &h200, &two, &second);
    assert_int_equal(second.num_launches, 1);
    assert_int_equal(second.launch[0].grid[0], 12);
    assert_int_equal(second.launch[0].grid[1], 6);
    /* Where no sequence is longer, there is nothing to cut. */
    p.segment_chunks = 11;
    assert_int_equal(planned(&p, 1).num_launches, 2);
    p.segment_chunks = -1;
    assert_int_equal(planned(&p, 1).num_launches, 2);
    p.batch = 0;
    p.segment_chunks = 4;
    assert_int_equal(planned(&p, 1).num_launches, 0);
    p = kda_prefill_problem(3, 0, 6);
    p.segment_chunks = 4;
    assert_int_equal(planned(&p, 1).num_launches, 1);
}

/* Chunks of a segment that are chosen. */
static int32_t chosen(gen_kda_prefill_problem p, int32_t num_tokens)
{
    p.num_tokens = num_tokens;
    const gen_plan plan = planned(&p, 1);
    assert_int_equal(plan.num_launches, plan.dims[KDA_SEGMENT_CHUNKS] ? 3 : 2);
    return plan.dims[KDA_SEGMENT_CHUNKS];
}

static void choice(void **state)
{
    (void)state;
    /* Few heads, one long sequence: cut. Enough of either: whole. */
    assert_true(chosen(kda_prefill_problem(1, 32768, 8), 0) > 0);
    assert_true(chosen(kda_prefill_problem(1, 131072, 4), 0) > 0);
    assert_int_equal(chosen(kda_prefill_problem(1, 8192, 64), 0), 0);
    assert_int_equal(chosen(kda_prefill_problem(16, 8192, 8), 0), 0);
    assert_int_equal(chosen(kda_prefill_problem(1, 256, 8), 0), 0);
    /* One long sequence beside short ones. */
    assert_true(chosen(kda_prefill_problem(3, 32768, 8), 32768 + 512) > 0);
    /* No sequence is longer than all of them: a bound beyond that is none. */
    for (int32_t heads = 4; heads <= 64; heads *= 4)
        assert_int_equal(chosen(kda_prefill_problem(2, 131072, heads), 16384),
                         chosen(kda_prefill_problem(2, 16384, heads), 16384));
    assert_int_equal(chosen(kda_prefill_problem(2, 131072, 64), 16384), 0);
    /* A workspace that is limited holds whole sequences' at least. */
    gen_kda_prefill_problem p = kda_prefill_problem(1, 32768, 8);
    p.base.max_workspace_mib = (uint32_t)((512 * 8 * (4 * 16384 + 8192 + 512) >> 20) + 1);
    assert_int_equal(chosen(p, 0), 0);
}

/* With GEN_BATCH_INVARIANT what is done to a sequence is the same in any batch: it is not cut, for
 * whether that is worth it depends on its mates; or as the problem says. And no grid is too large.
 */
static void invariant_choice(void **state)
{
    (void)state;
    static const struct {
        int32_t batch, seq_len, num_tokens;
    } mates[] = {{1, 4096, 0},    {1, 65536, 0},    {4, 65536, 0},        {3, 65536, 66000},
                 {2, 4096, 4160}, {15000, 4096, 0}, {15000, 4096, 70000}, {15000, 65536, 0}};
    int cut = 0;
    for (size_t i = 0; i < sizeof mates / sizeof *mates; i++) {
        gen_kda_prefill_problem p = kda_prefill_problem(mates[i].batch, mates[i].seq_len, 1);
        cut += chosen(p, mates[i].num_tokens) > 0;
        p.base.flags = GEN_BATCH_INVARIANT;
        assert_int_equal(chosen(p, mates[i].num_tokens), 0);
        p.num_tokens = mates[i].num_tokens;
        const gen_plan whole = planned(&p, 1);
        assert_int_equal(whole.launch[1].grid[1], p.batch);
        p.segment_chunks = 40;
        struct gen__key key;
        if (prefill->check(&p.base, &key))
            continue;
        const gen_plan plan = planned(&p, 1);
        assert_int_equal(plan.num_launches, 3);
        assert_int_equal(plan.dims[KDA_SEGMENT_CHUNKS], 40);
        assert_in_range(plan.launch[2].grid[1], p.batch, 65535);
        /* Of packed sequences it is not looked at whether all are that short. */
        p.segment_chunks = 1024;
        assert_int_equal(planned(&p, 1).num_launches, p.num_tokens ? 3 : 2);
    }
    assert_true(cut >= 4); /* without the flag some are, and some are not */
    assert_true(cut < (int)(sizeof mates / sizeof *mates));
}

/* The tuner's problems have the counts that they are asked for, up to a size. */
static void tuned_counts(void **state)
{
    (void)state;
    struct gen__key key;
    for (int i = 0; i < 4; i++) {
        static const float counts[4][GEN__MAX_COORDS] = {
            {12, 8192}, {256, 512}, {4, 131072}, {91, 512}};
        gen_kda_prefill_problem p = kda_prefill_problem(3, 100, 5);
        p.num_tokens = 120;
        p.segment_chunks = -1;
        prefill->set_counts(&p.base, counts[i]);
        assert_int_equal(prefill->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[0] == counts[i][0] && key.counts[1] == counts[i][1]);
        assert_int_equal(p.num_tokens, 0);
        assert_int_equal(p.segment_chunks, 0);
    }
    static const float many[GEN__MAX_COORDS] = {256, 131072};
    gen_kda_prefill_problem p = kda_prefill_problem(3, 100, 5);
    prefill->set_counts(&p.base, many);
    assert_int_equal(p.batch, 3);
    assert_int_equal(p.seq_len, 100);
}

static void case_names(void **state)
{
    (void)state;
    char name[128];
    gen_kda_prefill_problem p = kda_prefill_problem(1, 8192, 8);
    p.gate_dtype = GEN_DTYPE_BF16;
    p.segment_chunks = 16;
    prefill->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "B1-T8192-H8-S16");
    p.segment_chunks = -1;
    prefill->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "B1-T8192-H8-whole");
}

/* ---- arguments ------------------------------------------------------------ */

static _Alignas(64) unsigned char memory[256];

static void assert_refused(gen_plan plan, gen_kda_scan_args a, enum gen_status status,
                           const char *message)
{
    assert_int_equal(scan->params(&plan, 0, &a.base, NULL, NULL), status);
    assert_memory_equal(gen_last_error(), message, strlen(message));
}

static void argument_errors(void **state)
{
    (void)state;
    static const int32_t cu[3] = {0, 200, 400};
    const gen_kda_scan_problem p = scan_problem(2, 200, 1);
    const struct gen__facts v = variant(1);
    gen_plan plan = {0};
    scan->plan(&p.base, &h200, &v, &plan);
    const gen_kda_scan_args good = {.base = {sizeof good, GEN_KDA_SCAN},
                                    .w = memory,
                                    .u = memory,
                                    .kg = memory,
                                    .decay = (float *)(void *)memory,
                                    .added = (float *)(void *)memory,
                                    .transition = memory,
                                    .segment_decay = (float *)(void *)memory,
                                    .state_layout = GEN_KDA_STATE_KV};
    assert_int_equal(scan->params(&plan, 0, &good.base, NULL, NULL), GEN_OK);
#define REFUSED(change, message)                                                    \
    do {                                                                            \
        gen_kda_scan_args a = good;                                                 \
        change;                                                                     \
        assert_refused(plan, a, GEN_STATUS_INVALID_ARGUMENT, "kda_scan: " message); \
    } while (0)
    REFUSED(a.w = NULL, "w is NULL");
    REFUSED(a.u = memory + 8, "u = ");
    REFUSED(a.kg = NULL, "kg is NULL");
    REFUSED(a.decay = NULL, "decay is NULL");
    REFUSED(a.initial_state = (float *)(void *)(memory + 4), "initial_state = ");
    REFUSED(a.added = NULL, "added is NULL");
    REFUSED(a.transition = memory + 2, "transition = ");
    REFUSED(a.segment_decay = NULL, "segment_decay is NULL");
    REFUSED(a.cu_seqlens = cu, "cu_seqlens = ");
    REFUSED(a.state_layout = 2, "state_layout = 2; allowed: ");
#undef REFUSED
    plan.dims[KDA_SEGMENT_CHUNKS] = 0;
    assert_refused(plan, good, GEN_STATUS_MISMATCH,
                   "kda_scan: the plan's problem is not what gen_select() writes");

    /* A plan of kda_prefill that was tampered with. */
    gen_kda_prefill_problem whole = kda_prefill_problem(1, 500, 1);
    whole.segment_chunks = 2;
    gen_plan other = planned(&whole, 1);
    gen_kda_prefill_args args;
    other.dims[KDA_SEGMENT_CHUNKS] = -5;
    prefill->default_args(&whole.base, &args.base);
    assert_failed(prefill->params(&other, 0, &args.base, NULL, NULL), MISMATCH,
                  "kda_prefill: the plan's segments are not what gen_select() writes");
    other.dims[KDA_SEGMENT_CHUNKS] = 0; /* of three launches: the kernels would divide by it */
    assert_int_equal(other.num_launches, 3);
    assert_failed(prefill->params(&other, 0, &args.base, NULL, NULL), MISMATCH,
                  "kda_prefill: the plan's segments are not what gen_select() writes");
    whole.segment_chunks = -1;
    other = planned(&whole, 1);
    other.dims[KDA_SEGMENT_CHUNKS] = 2;
    assert_failed(prefill->params(&other, 0, &args.base, NULL, NULL), MISMATCH,
                  "kda_prefill: the plan's segments are not what gen_select() writes");
}

/* ---- the reference --------------------------------------------------------- */

struct operands {
    uint16_t *w, *u, *kg, *qg, *a_qk;
    float *decay, *initial;
};

/* The state of one head behind `tokens` tokens of a sequence, [K][V], by kda_inter's reference. */
static void state_behind(const struct operands *x, int64_t tokens, int64_t d, float *s)
{
    gen_plan plan = {.num_launches = 1};
    const int32_t dims[KDA_NUM_DIMS] = {1,          (int32_t)tokens, 0, 1, 1,
                                        (int32_t)d, GEN_DTYPE_BF16,  2, 2, 1};
    memcpy(plan.dims, dims, sizeof dims);
    uint16_t *o = calloc((size_t)(tokens * d), sizeof *o);
    const gen_kda_inter_args a = {.base = {sizeof a, GEN_KDA_INTER},
                                  .w = x->w,
                                  .u = x->u,
                                  .qg = x->qg,
                                  .kg = x->kg,
                                  .a_qk = x->a_qk,
                                  .decay = x->decay,
                                  .initial_state = x->initial,
                                  .final_state = s,
                                  .o = o,
                                  .state_layout = GEN_KDA_STATE_KV};
    assert_int_equal(gen__kda_inter_reference(&plan, &a.base), GEN_OK);
    free(o);
}

/* S = diag(D) S + R S + A of one segment, as kda_scan left them. */
static void pass(const float *added, const uint16_t *transition, const float *decay, int64_t d,
                 double *s)
{
    double *next = malloc((size_t)(d * d) * sizeof *next);
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++) {
            double sum =
                (double)added[gen__kda_added_at(d, v, k)] + (double)decay[k] * s[k * d + v];
            for (int64_t j = 0; j < d; j++) {
                const int64_t at = gen__kda_transition_at(d, j, k);
                sum += (gen__bf16_to_double(transition[at]) +
                        gen__bf16_to_double(transition[at + 64 * d])) *
                       s[j * d + v];
            }
            next[k * d + v] = sum;
        }
    memcpy(s, next, (size_t)(d * d) * sizeof *s);
    free(next);
}

static double distance(const double *s, const float *expected, int64_t count)
{
    double difference = 0, all = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow(s[i] - (double)expected[i], 2);
        all += pow((double)expected[i], 2);
    }
    return sqrt(difference / all);
}

/* What segments add and their transitions give the states that the recurrence has there. */
static void scan_against_recurrence(int64_t d, bool vk)
{
    enum { CHUNKS = 7, EACH = 2, SEGMENTS = 4 };
    uint64_t random = 11;
    const struct operands x = {.w = random_bf16(CHUNKS * 64 * d, 0.1, &random),
                               .u = random_bf16(CHUNKS * 64 * d, 1, &random),
                               .kg = random_bf16(CHUNKS * 64 * d, 0.1, &random),
                               .qg = random_bf16(CHUNKS * 64 * d, 1, &random),
                               .a_qk = random_bf16(CHUNKS * 64 * 64, 1, &random),
                               .decay = random_fp32(CHUNKS * d, 0.5, 0.5, &random),
                               .initial = random_fp32(d * d, 0, 1, &random)};
    gen_plan plan = {.num_launches = 1};
    const int32_t dims[KDA_ALL_DIMS] = {
        1, CHUNKS * 64 - 9, 0, 1, 1, (int32_t)d, GEN_DTYPE_BF16, 2, 2, 1, EACH};
    memcpy(plan.dims, dims, sizeof dims);
    float *turned = malloc((size_t)(d * d) * sizeof *turned);
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++)
            turned[v * d + k] = x.initial[k * d + v];
    float *added = malloc((size_t)(SEGMENTS * d * d) * sizeof *added);
    uint16_t *transition = malloc((size_t)(SEGMENTS * 2 * d * d) * sizeof *transition);
    float *segment_decay = malloc((size_t)(SEGMENTS * d) * sizeof *segment_decay);
    const gen_kda_scan_args a = {.base = {sizeof a, GEN_KDA_SCAN},
                                 .w = x.w,
                                 .u = x.u,
                                 .kg = x.kg,
                                 .decay = x.decay,
                                 .initial_state = vk ? turned : x.initial,
                                 .added = added,
                                 .transition = transition,
                                 .segment_decay = segment_decay,
                                 .state_layout = vk ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV};
    assert_int_equal(gen__kda_scan_reference(&plan, &a.base), GEN_OK);
    double *s = malloc((size_t)(d * d) * sizeof *s);
    float *expected = malloc((size_t)(d * d) * sizeof *expected);
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++) {
            s[k * d + v] = (double)added[gen__kda_added_at(d, v, k)];
            assert_true(added[3 * d * d + gen__kda_added_at(d, v, k)] == x.initial[k * d + v]);
        }
    for (int64_t j = 1; j < SEGMENTS; j++) {
        state_behind(&x, j * EACH * 64, d, expected);
        assert_true(distance(s, expected, d * d) < 3e-5);
        if (j + 1 < SEGMENTS)
            pass(added + j * d * d, transition + j * 2 * d * d, segment_decay + j * d, d, s);
    }
    free(x.w), free(x.u), free(x.kg), free(x.qg), free(x.a_qk), free(x.decay), free(x.initial);
    free(turned), free(added), free(transition), free(segment_decay), free(s), free(expected);
}

static void reference(void **state)
{
    (void)state;
    scan_against_recurrence(64, false);
    scan_against_recurrence(128, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_errors),    cmocka_unit_test(slots),
        cmocka_unit_test(layouts),         cmocka_unit_test(geometry),
        cmocka_unit_test(choice),          cmocka_unit_test(invariant_choice),
        cmocka_unit_test(tuned_counts),    cmocka_unit_test(case_names),
        cmocka_unit_test(argument_errors), cmocka_unit_test(reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
