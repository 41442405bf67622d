/*
 * The slots of la_decode's reference: any order, padding, states that hold NaN; and what it must
 * leave alone.
 */
#include "la_decode_call.h"

#include "reference/state.h"

#include <math.h>

static size_t bytes_of_slot(const struct call *c)
{
    return c->state_count / (size_t)c->args.num_slots * sizeof(float);
}

static float *slot_at(const struct call *c, int32_t slot)
{
    return c->state + (size_t)slot * (bytes_of_slot(c) / sizeof(float));
}

/* Rows may lie in any slots; the others keep every bit. */
static void slots_are_a_permutation(void **state)
{
    (void)state;
    enum { B = 5, POOL = 9 };
    static const int32_t slots[B] = {7, 0, 8, 3, 4};
    struct call *plain = new_call(la_problem(B, 2, 2, 64), POOL - B, 0);
    struct call *sparse = new_call(la_problem(B, 2, 2, 64), POOL - B, 0);
    fill(plain, 8);
    fill(sparse, 8);
    plain->args.slots = NULL;
    float *before = allocate(sparse->state_count, sizeof(float));
    bool used[POOL] = {false};
    for (int32_t b = 0; b < B; b++) {
        sparse->slots[b] = slots[b];
        used[slots[b]] = true;
        memcpy(slot_at(sparse, slots[b]), slot_at(plain, b), bytes_of_slot(plain));
    }
    memcpy(before, sparse->state, sparse->state_count * sizeof(float));
    run(plain);
    run(sparse);
    assert_memory_equal(plain->o, sparse->o, plain->o_count * 2);
    for (int32_t b = 0; b < B; b++)
        assert_memory_equal(slot_at(sparse, slots[b]), slot_at(plain, b), bytes_of_slot(plain));
    for (int32_t slot = 0; slot < POOL; slot++)
        if (!used[slot])
            assert_memory_equal(slot_at(sparse, slot),
                                (char *)before + (size_t)slot * bytes_of_slot(sparse),
                                bytes_of_slot(sparse));
    free(before);
    free_call(plain);
    free_call(sparse);
}

static void padding_rows(void **state)
{
    (void)state;
    enum { B = 6, POOL = 8, GAP = 8, WIDTH = 2 * 64 };
    static const int32_t slots[B] = {-1, 5, POOL, INT32_MIN, 2, INT32_MAX};
    for (int32_t zero = 0; zero < 2; zero++) {
        struct call *c = new_call(la_problem(B, 2, 2, 64), POOL - B, GAP);
        fill(c, 9);
        memcpy(c->slots, slots, sizeof slots);
        c->args.zero_padding = zero;
        float *before = allocate(c->state_count, sizeof(float));
        memcpy(before, c->state, c->state_count * sizeof(float));
        run(c);
        for (int32_t slot = 0; slot < POOL; slot++) {
            const bool same =
                !memcmp(slot_at(c, slot), (char *)before + (size_t)slot * bytes_of_slot(c),
                        bytes_of_slot(c));
            assert_int_equal(same, slot != 5 && slot != 2);
        }
        for (int32_t b = 0; b < B; b++) {
            int32_t touched = 0;
            for (int32_t i = 0; i < WIDTH; i++)
                touched += c->o[at_o(c, b, 0, i)] != SENTINEL;
            if (slots[b] == 5 || slots[b] == 2) {
                assert_int_equal(touched, WIDTH);
            } else if (zero) {
                for (int32_t i = 0; i < WIDTH; i++)
                    assert_int_equal(c->o[at_o(c, b, 0, i)], 0);
            } else {
                assert_int_equal(touched, 0);
            }
            for (int32_t i = WIDTH; i < WIDTH + GAP; i++)
                assert_int_equal(c->o[at_o(c, b, 0, i)], SENTINEL);
        }
        free(before);
        free_call(c);
    }
}

/* A NaN or an infinity stays in its own state and output. */
static void nan_stays_in_its_state(void **state)
{
    (void)state;
    enum { B = 3, HV = 4, D = 64, BAD_ROW = 1, BAD_HEAD = 2 };
    const double bad[] = {NAN, INFINITY};
    for (int n = 0; n < 2; n++) {
        struct call *clean = new_call(la_problem(B, 2, HV, D), 0, 0);
        struct call *c = new_call(la_problem(B, 2, HV, D), 0, 0);
        fill(clean, 10);
        fill(c, 10);
        c->state[at_state(c, BAD_ROW, BAD_HEAD, 11, 13)] = (float)bad[n];
        run(clean);
        run(c);
        for (int32_t m = 0; m < B * HV; m++)
            for (int32_t v = 0; v < D; v++) {
                const bool hit = m == BAD_ROW * HV + BAD_HEAD && v == 13;
                const uint16_t o = c->o[at_o(c, m / HV, m % HV, v)];
                if (hit)
                    assert_true(!isfinite(decoded(c, o)));
                else
                    assert_int_equal(o, clean->o[at_o(c, m / HV, m % HV, v)]);
                for (int32_t k = 0; k < D; k++) {
                    const size_t at = at_state(c, m / HV, m % HV, k, v);
                    if (hit && k == 11)
                        assert_true(!isfinite(c->state[at]));
                    else
                        assert_true(c->state[at] == clean->state[at]);
                }
            }
        free_call(clean);
        free_call(c);
    }
}

static double element(const struct call *c, const void *pool, size_t i)
{
    return gen__state_get(c->problem.state_dtype, pool, (int64_t)i);
}

/* Pools as engines keep them: each row's state has the bits of a packed fp32 call, rounded once; a
 * null slot is neither read nor written, and nothing between the slots is. */
static void engine_pools(void **state)
{
    (void)state;
    enum { B = 4, POOL = 9, HV = 2, D = 64, SLOT = HV * D * D, GAP = 8, STRIDE = SLOT + GAP };
    static const int32_t slots[B] = {7, 0, 8, 3}, slots_out[B] = {1, 2, 8, -1};
    for (int32_t dtype = GEN_STATE_FP32; dtype <= GEN_STATE_FP16; dtype++) {
        struct call *plain = new_call(la_problem(B, 2, HV, D), 0, 0);
        struct call *c = new_call(la_problem(B, 2, HV, D), POOL - B, 0);
        fill(plain, 8);
        fill(c, 8);
        c->problem.state_dtype = dtype;
        c->problem.pool = dtype == GEN_STATE_FP32;
        uint8_t *pool = allocate(POOL * STRIDE, 4), *before = allocate(POOL * STRIDE, 4);
        for (int64_t i = 0; i < POOL * STRIDE; i++)
            gen__state_put(dtype, pool, i, (double)NAN);
        for (int32_t b = 0; b < B; b++)
            for (int64_t i = 0; i < SLOT; i++) {
                if (b != 1) /* slot 0 is null and stays NaN */
                    gen__state_put(dtype, pool, slots[b] * STRIDE + i,
                                   (double)plain->state[b * SLOT + i]);
                plain->state[b * SLOT + i] =
                    (float)(b == 1 ? 0 : gen__state_get(dtype, pool, slots[b] * STRIDE + i));
            }
        memcpy(before, pool, POOL * STRIDE * 4);
        memcpy(c->slots, slots, sizeof slots);
        c->args.state = pool;
        c->args.slots_out = slots_out;
        c->args.null_slot = 1;
        c->args.state_stride = STRIDE;
        run(plain);
        run(c);
        for (int64_t i = 0; i < B * HV * D; i++)
            if (i / (HV * D) == 1)
                assert_int_equal(c->o[i], SENTINEL);
            else
                assert_int_equal(c->o[i], plain->o[i]);
        for (int64_t i = 0; i < POOL * STRIDE; i++) {
            const int64_t slot = i / STRIDE, at = i % STRIDE;
            const int64_t row = slot == 1 ? 0 : slot == 8 ? 2 : -1;
            if (row < 0 || at >= SLOT) {
                assert_memory_equal(pool + i * (dtype ? 2 : 4), before + i * (dtype ? 2 : 4),
                                    dtype ? 2 : 4);
                continue;
            }
            /* The packed call's is rounded to fp32 first: to a unit of the pool's type. */
            const double is = element(c, pool, (size_t)i),
                         want = (double)plain->state[row * SLOT + at];
            const double unit = dtype == GEN_STATE_FP32   ? 0
                                : dtype == GEN_STATE_BF16 ? 0x1.01p-8
                                                          : 0x1.01p-11;
            assert_true(fabs(is - want) <= unit * fmax(fabs(want), 0x1p-14));
        }
        free(pool);
        free(before);
        free_call(plain);
        free_call(c);
    }
}

/* Of fp16, what lies beyond its range stays at its end. */
static void fp16_states_saturate(void **state)
{
    (void)state;
    struct call *c = new_call(la_problem(1, 1, 1, 64), 0, 0);
    c->problem.state_dtype = GEN_STATE_FP16;
    for (int i = 0; i < 64; i++) {
        c->k[i] = encoded(c, i % 2 ? -300.0 : 300.0);
        c->v[i] = encoded(c, 300.0);
    }
    run(c);
    for (size_t i = 0; i < 64 * 64; i++)
        assert_true(element(c, c->state, i) == (i % 2 ? -65504.0 : 65504.0));
    free_call(c);
}

static void empty_batch(void **state)
{
    (void)state;
    struct call *c = new_call(la_problem(0, 2, 2, 64), 2, 0);
    fill(c, 11);
    float *before = allocate(c->state_count, sizeof(float));
    memcpy(before, c->state, c->state_count * sizeof(float));
    run(c);
    assert_memory_equal(c->state, before, c->state_count * sizeof(float));
    free(before);
    free_call(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_a_permutation), cmocka_unit_test(padding_rows),
        cmocka_unit_test(nan_stays_in_its_state),  cmocka_unit_test(engine_pools),
        cmocka_unit_test(fp16_states_saturate),    cmocka_unit_test(empty_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
