/*
 * Several tokens with a ring of records: steps of which some tokens are accepted are the accepted
 * tokens one after the other, counters by kda_ring_advance; and what such a problem may be.
 */
#include "families/kda_ring_advance/api.h"
#include "kda_decode_call.h"

#include <math.h>

extern const struct gen__family gen__family_kda_ring_advance;

enum { ROWS = 3, HEADS = 2, D = 64, TOKENS = 3, SIZE = 8, STEPS = 14 };

static void advance(struct call *c, const int32_t *accepted)
{
    const struct gen__family *const counters = &gen__family_kda_ring_advance;
    const gen_device cpu = {.size = sizeof cpu, .backend = GEN_BACKEND_CPU, .ordinal = -1};
    const gen_kda_ring_advance_problem p = {.base = {sizeof p, GEN_KDA_RING_ADVANCE, 0, 0},
                                            .batch = ROWS,
                                            .num_tokens = TOKENS,
                                            .ring_len = 5,
                                            .ring_size = SIZE};
    const gen_kda_ring_advance_args a = {.base = {sizeof a, GEN_KDA_RING_ADVANCE},
                                         .slots = c->args.slots,
                                         .flush = c->args.flush,
                                         .ring_base = c->data[KDA_DECODE_RING_BASE],
                                         .ring_fill = c->data[KDA_DECODE_RING_FILL],
                                         .num_slots = c->args.num_slots,
                                         .accepted = accepted};
    gen_plan plan = {.size = sizeof plan};
    struct gen__key key;
    assert_int_equal(counters->check(&p.base, &key), GEN_OK);
    assert_string_equal(counters->required[0].values[key.codes[0]], "accept");
    counters->plan(&p.base, &cpu, NULL, &plan);
    assert_int_equal(counters->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    assert_int_equal(counters->reference(&plan, &a.base), GEN_OK);
}

/* Token t of each row of `all` becomes that of `one`. */
static void take_token(const struct call *all, struct call *one, int t)
{
    for (uint32_t n = KDA_DECODE_Q; n <= KDA_DECODE_BETA; n++) {
        const size_t bytes = one->tensor[n].count / ROWS * element_size(one->tensor[n].dtype);
        for (size_t b = 0; b < ROWS; b++)
            memcpy((char *)one->data[n] + b * bytes,
                   (const char *)all->data[n] + (b * TOKENS + (size_t)t) * bytes, bytes);
    }
}

static void expect_outputs(const struct call *all, const struct call *one, int t, int row)
{
    for (int64_t i = 0; i < HEADS * D; i++) {
        const double a =
            element_get(GEN_DTYPE_BF16, one->data[KDA_DECODE_O], row * INT64_C(2) * D + i);
        const double b = element_get(GEN_DTYPE_BF16, all->data[KDA_DECODE_O],
                                     (row * TOKENS + t) * INT64_C(2) * D + i);
        assert_true(fabs(a - b) <= 0x1p-7 * fabs(a) + 1e-5);
    }
}

static void accepted_tokens_are_decode(void **state)
{
    (void)state;
    for (int32_t layout = 0; layout < 2; layout++) {
        struct call plain, ring;
        gen_kda_decode_problem p = kda_problem(ROWS, 1, 1, HEADS, D);
        p.state_layout = layout;
        p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
        assert_true(open_call(&plain, p, 9, false)); /* softplus, keys as they are: no rounding */
        p.ring_len = 5;
        p.ring_size = SIZE;
        p.num_tokens = TOKENS;
        assert_true(open_call(&ring, p, 9, false));
        assert_int_equal(ring.args.write, GEN_KDA_DECODE_WRITE_RECORDS);
        memcpy(ring.data[KDA_DECODE_STATE], plain.data[KDA_DECODE_STATE],
               plain.tensor[KDA_DECODE_STATE].count * sizeof(float));
        int32_t *const fills = ring.data[KDA_DECODE_RING_FILL];
        int32_t *const slots = plain.data[KDA_DECODE_SLOTS], kept[ROWS];
        memcpy(kept, slots, sizeof kept);
        assert_memory_equal(ring.data[KDA_DECODE_SLOTS], kept, sizeof kept);
        memset(fills, 0, ring.tensor[KDA_DECODE_RING_FILL].count * sizeof(int32_t));
        uint8_t flush[ROWS] = {0};
        ring.args.flush = flush;
        for (int step = 0; step < STEPS; step++) {
            const int32_t accepted[ROWS] = {step % 4, 3 - step % 3, step % 2 ? 7 : -1};
            flush[1] = step % 5 == 3;
            for (uint32_t n = KDA_DECODE_Q; n <= KDA_DECODE_BETA; n++)
                fill(&ring, n, (uint64_t)(100 * step) + n);
            run(&ring);
            for (int t = 0; t < TOKENS; t++) {
                take_token(&ring, &plain, t);
                for (int b = 0; b < ROWS; b++) /* the others keep their states */
                    slots[b] = t < accepted[b] ? kept[b] : -1;
                run(&plain);
                for (int b = 0; b < ROWS; b++)
                    if (t < accepted[b])
                        expect_outputs(&ring, &plain, t, b);
            }
            advance(&ring, accepted);
            for (int b = 0; b < ROWS; b++)
                assert_true(fills[kept[b]] >= 0 && fills[kept[b]] <= SIZE - TOKENS);
        }
        ring.plan.dims[KDA_DECODE_TOKENS] = 0;
        ring.args.write = GEN_KDA_DECODE_WRITE_LAST;
        run(&ring);
        for (int b = 0; b < ROWS; b++)
            for (int64_t i = 0; i < HEADS * D * D; i++) {
                const int64_t at = kept[b] * INT64_C(2) * D * D + i;
                assert_true(fabs(state_get(&plain, at) - state_get(&ring, at)) < 1e-5);
            }
        close_call(&plain);
        ring.args.flush = NULL;
        close_call(&ring);
    }
}

static void keys_and_errors(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_decode_problem p = kda_problem(ROWS, 4, 1, HEADS, 128);
    p.ring_len = 8;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[2].values[key.codes[2]], "verify");
    p.state_dtype = GEN_STATE_BF16;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[2].values[key.codes[2]], "verify16");
    p.num_tokens = 5;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_decode: num_tokens with a ring = 5; allowed: 0 (fold alone), 1, 2 to half "
                  "of ring_size");
    p.ring_size = 10;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);

    struct call c;
    p.num_tokens = 4;
    assert_true(open_call(&c, p, -1, false));
    c.args.write = GEN_KDA_DECODE_WRITE_LAST;
    assert_failed(family->params(&c.plan, 0, &c.args.base, NULL, NULL), INVALID_ARGUMENT,
                  "kda_decode: write = 0 with a ring and several tokens; allowed: "
                  "GEN_KDA_DECODE_WRITE_RECORDS (3)");
    close_call(&c);
    p.num_tokens = 1;
    assert_true(open_call(&c, p, -1, false));
    c.args.write = GEN_KDA_DECODE_WRITE_RECORDS;
    assert_failed(family->params(&c.plan, 0, &c.args.base, NULL, NULL), INVALID_ARGUMENT,
                  "kda_decode: write = 3 with a ring; allowed: GEN_KDA_DECODE_WRITE_LAST (0)");
    close_call(&c);
}

static void counters_and_errors(void **state)
{
    (void)state;
    const struct gen__family *const counters = &gen__family_kda_ring_advance;
    struct gen__key key;
    gen_kda_ring_advance_problem p = {
        .base = {sizeof p, GEN_KDA_RING_ADVANCE, 0, 0}, .batch = 1, .num_tokens = 4, .ring_len = 8};
    assert_int_equal(counters->check(&p.base, &key), GEN_OK);
    p.num_tokens = 5;
    assert_failed(counters->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_ring_advance: num_tokens = 5; allowed: 0, 1, 2 to half of ring_size");
    p.num_tokens = -1;
    assert_failed(counters->check(&p.base, &key), INVALID_ARGUMENT,
                  "kda_ring_advance: num_tokens = -1; allowed: 0, 1, 2 to half of ring_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted_tokens_are_decode),
        cmocka_unit_test(keys_and_errors),
        cmocka_unit_test(counters_and_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
