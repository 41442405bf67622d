/*
 * The slots of la_decode's reference: any order, padding, states that hold NaN; and what it must
 * leave alone.
 */
#include "la_decode_call.h"

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
        cmocka_unit_test(slots_are_a_permutation),
        cmocka_unit_test(padding_rows),
        cmocka_unit_test(nan_stays_in_its_state),
        cmocka_unit_test(empty_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
