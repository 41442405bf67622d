/*
 * Plans that a thread keeps: what is asked again has the same plan, and never that of another
 * problem, device or library, open or closed. Threads select while another opens and closes
 * libraries, also under the thread sanitizer.
 */
#include "test.h"

#include "select/memo.h"
#include "toy.h"

#include <pthread.h>

#define A90 "line_bf16_d64__sm90a_a"
#define C90 "line_bf16_d64__sm90a_c"

/* The same product but for its table: the plans' digest is the same, too. */
static gen_library *open_with(const char *variant, const char *us)
{
    char text[1024] = "";
    struct product *product = toy_product();
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=8", variant, us);
    product_table(product, "sm90_132sm", text);
    return toy_open(product);
}

static gen_plan ask(const gen_library *library, const gen_device *device,
                    const gen_toy_problem *problem)
{
    gen_plan plan = {.size = sizeof(plan)}, again = {.size = sizeof(again)};
    memset(&plan, 0x5a, sizeof(plan));
    plan.size = sizeof(plan);
    assert_status(gen_select(library, device, &problem->base, &plan), GEN_OK);
    /* Until it is one that was kept. */
    for (int i = 0; i < 3; i++) {
        memset(&again, 0xa5, sizeof(again));
        again.size = sizeof(again);
        assert_status(gen_select(library, device, &problem->base, &again), GEN_OK);
        assert_memory_equal(&plan, &again, sizeof(plan));
    }
    return plan;
}

static void asked_again(void **state)
{
    (void)state;
    gen_library *library = open_with(A90, "5");
    gen_device device = toy_device("h200");
    gen_plan plans[200];
    for (int round = 0; round < 3; round++)
        for (int batch = 1; batch <= 200; batch++) {
            const gen_toy_problem problem = toy_problem(GEN_LINE, batch);
            const gen_plan plan = ask(library, &device, &problem);
            if (round)
                assert_memory_equal(&plan, &plans[batch - 1], sizeof(plan));
            plans[batch - 1] = plan;
            assert_int_equal(plan.dims[0], plans[0].dims[0] * batch);
        }
    toy_close(library);
}

/* Each byte that selection reads makes another question. */
static void every_byte_counts(void **state)
{
    (void)state;
    gen_library *library = open_with(A90, "5");
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    const gen_plan plan = ask(library, &device, &problem);
    const uint64_t own = UINT64_MAX; /* no library has it */
    struct gen__memo_key key;
    gen_plan found = {.size = sizeof(found)};
    for (size_t i = 0; i < sizeof(problem); i++) {
        gen_toy_problem other = problem;
        for (int twice = 0; twice < 2; twice++)
            if (!gen__memo_get(&key, own, &device, &problem.base, &found))
                gen__memo_put(&key, &plan, false);
        assert_true(gen__memo_get(&key, own, &device, &problem.base, &found));
        if (i < offsetof(gen_problem, flags))
            continue; /* size and family are checked before */
        ((unsigned char *)&other)[i] ^= 1;
        assert_false(gen__memo_get(&key, own, &device, &other.base, &found));
    }
    for (size_t i = 0; i < offsetof(gen_device, ordinal); i++) {
        gen_device other = device;
        ((unsigned char *)&other)[i] ^= 1;
        assert_false(gen__memo_get(&key, own, &other, &problem.base, &found));
    }
    assert_true(gen__memo_get(&key, own, &device, &problem.base, &found));
    assert_memory_equal(&found, &plan, sizeof(plan));
    assert_false(gen__memo_get(&key, own - 1, &device, &problem.base, &found));
    toy_close(library);
}

static void of_the_same_library_alone(void **state)
{
    (void)state;
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    for (int round = 0; round < 20; round++) {
        gen_library *a = open_with(A90, "5"), *b = open_with(C90, "6");
        for (int i = 0; i < 4; i++) {
            const gen_plan first = ask(a, &device, &problem), second = ask(b, &device, &problem);
            assert_string_equal(toy_chosen(a, &first), A90);
            assert_string_equal(toy_chosen(b, &second), C90);
            assert_true(first.library_digest == second.library_digest);
            assert_true(first.predicted_us == 5.0f && second.predicted_us == 6.0f);
        }
        toy_close(a);
        /* Likely where the closed one was. */
        a = open_with(C90, "7");
        assert_true(ask(a, &device, &problem).predicted_us == 7.0f);
        toy_close(a);
        toy_close(b);
    }
}

static void failures_are_not_kept(void **state)
{
    (void)state;
    gen_library *library = open_with(A90, "5");
    const gen_device device = toy_device("h200");
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    problem.dim = 128;
    for (int i = 0; i < 3; i++) {
        gen_plan plan = {.size = sizeof(plan)}, before = {.size = sizeof(before)};
        memset(&plan, 0x5a, sizeof(plan));
        plan.size = sizeof(plan);
        before = plan;
        assert_status(gen_select(library, &device, &problem.base, &plan), GEN_STATUS_UNSUPPORTED);
        assert_memory_equal(&plan, &before, sizeof(plan));
    }
    toy_close(library);
}

/* ---- threads ------------------------------------------------------------ */

#define THREADS 6
#define ROUNDS 4000

struct worker {
    pthread_t thread;
    const gen_library *library;
    float us;
    bool failed;
};

static void *select_often(void *argument)
{
    struct worker *w = argument;
    const gen_device device = toy_device("h200");
    for (int i = 0; i < ROUNDS; i++) {
        const gen_toy_problem problem = toy_problem(GEN_LINE, i % 3 ? 8 : 1 + i % 50);
        gen_plan plan = {.size = sizeof(plan)};
        if (gen_select(w->library, &device, &problem.base, &plan) ||
            (problem.batch == 8 && plan.predicted_us != w->us))
            w->failed = true;
    }
    return NULL;
}

static void others_close_meanwhile(void **state)
{
    (void)state;
    struct worker workers[THREADS];
    gen_library *libraries[2] = {open_with(A90, "5"), open_with(C90, "6")};
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.library = libraries[i % 2], .us = i % 2 ? 6.0f : 5.0f};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, select_often, &workers[i]), 0);
    }
    for (int i = 0; i < 30; i++) {
        gen_library *other = open_with(i % 2 ? A90 : C90, "9");
        assert_true(ask(other, &device, &problem).predicted_us == 9.0f);
        toy_close(other);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_false(workers[i].failed);
    }
    toy_close(libraries[0]);
    toy_close(libraries[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_again), cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(of_the_same_library_alone), cmocka_unit_test(failures_are_not_kept),
        cmocka_unit_test(others_close_meanwhile)};
    return cmocka_run_group_tests_name("memo", tests, NULL, NULL);
}
