/* Hard cases: their lists, the sums that tell inputs apart, and what the error of a result is. No
 * GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "families/attn_fwd/attn_fwd.h"
#include "make_product.h"
#include "measure/numerics.h"
#include "reference/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *scratch(const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", SCRATCH_DIR, name);
    assert_true(file_write(path, text, strlen(text)));
    return path;
}

static const struct gen__family *attention(void)
{
    return gen__family_by_name("attn_fwd");
}

static gen_library *library;
static void *product;

static int open_library(void **state)
{
    struct product *empty = product_new();
    gen_open_options options = {.size = sizeof options};
    (void)state;
    product = product_bytes(empty, &options.data_size);
    product_free(empty);
    options.data = product;
    return gen_open(&options, &library) == GEN_OK ? 0 : -1;
}

static int close_library(void **state)
{
    (void)state;
    gen_close(library);
    free(product);
    return 0;
}

static void lists_name_their_cases(void **state)
{
    struct hard_list list = {0};
    char *path = scratch("numerics.txt",
                         "# a comment\n"
                         "e5m2-one: head_dim=64 dtype=e5m2 kv_len=256 @every # another\n"
                         "e4m3-two: head_dim=64 dtype=e4m3 @unrounded,@every @form=no_lse\n");
    (void)state;
    assert_int_equal(hard_list_read(&list, attention(), path), 0);
    assert_int_equal(list.problems.count, 3);
    assert_string_equal(list.hard[0].name, "e5m2-one");
    assert_true(list.hard[0].every && !list.hard[0].is_reference);
    /* The problem of fp16 comes first, so that it is ready when the other one is. */
    assert_true(list.hard[1].is_reference);
    assert_string_equal(list.hard[2].name, "e4m3-two");
    assert_true(list.hard[2].every && !list.hard[2].is_reference);
    const gen_attn_fwd_problem *exact = (const void *)list.problems.item[1].problem;
    const gen_attn_fwd_problem *rounded = (const void *)list.problems.item[2].problem;
    assert_int_equal(exact->dtype, GEN_DTYPE_FP16);
    assert_int_equal(rounded->dtype, GEN_DTYPE_E4M3);
    assert_int_equal(exact->head_dim, 64);
    assert_string_equal(list.problems.item[1].controls, "@form=no_lse");
    assert_string_equal(list.problems.item[2].controls, "@form=no_lse");
    hard_list_free(&list);
    free(path);
}

static void bad_lines_are_counted(void **state)
{
    struct hard_list list = {0};
    char *path = scratch("bad_numerics.txt", "head_dim=64 dtype=e4m3\n"
                                             "a,b: head_dim=64 dtype=e4m3\n"
                                             ": head_dim=64 dtype=e4m3\n"
                                             "good: head_dim=64 dtype=e4m3\n"
                                             "good: head_dim=128 dtype=e4m3\n"
                                             "steps: head_dim=64 dtype=e4m3 @steps=0\n"
                                             "words: head_dim=64 dtype=e4m3 @everything\n"
                                             "fields: head_dim=64 nothing=1\n");
    (void)state;
    assert_int_equal(hard_list_read(&list, attention(), path), 7);
    assert_int_equal(list.problems.count, 1);
    hard_list_free(&list);
    assert_int_equal(hard_list_read(&list, attention(), "/nonexistent"), -1);
    /* A family without a list has no hard case. */
    assert_int_equal(hard_list_read(&list, gen__family_by_name("mla_merge"), NULL), 0);
    assert_int_equal(list.problems.count, 0);
    hard_list_free(&list);
    free(path);
}

/* Every list that is committed can be read. */
static void the_lists_are_whole(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < gen__num_families; i++) {
        struct hard_list list = {0};
        assert_int_equal(hard_list_read(&list, gen__families[i], NULL), 0);
        hard_list_free(&list);
    }
}

static void prepare(struct verify_case *c, struct shape_list *list, const char *words)
{
    assert_true(shapes_parse(list, attention(), SHAPES_VERIFIED, words));
    const struct shape *shape = &list->item[list->count - 1];
    assert_true(verify_prepare(c, shape, shape->controls, library));
    memcpy(c->actual, c->expected, c->buffers.total_bytes);
}

/* The program beside FlashAttention-3 draws the same bytes. */
static void the_peer_draws_the_same_inputs(void **state)
{
    static const char *const dtypes[] = {"e4m3", "e5m2", "fp16", "bf16"};
    struct text text = {0};
    (void)state;
    for (int i = 0; i < 4; i++)
        text_add(&text, "%s: num_q_heads=4 num_kv_heads=2 q_len=3 kv_len=50 head_dim=64 dtype=%s\n",
                 dtypes[i], dtypes[i]);
    char *path = scratch("drawn_numerics.txt", text.data);
    char *command =
        xasprintf("python3 %s/bench/peers/fa3_numerics.py --checksums --list %s", SOURCE_DIR, path);
    FILE *peer = popen(command, "r");
    assert_non_null(peer);
    struct hard_list list = {0};
    assert_int_equal(hard_list_read(&list, attention(), path), 0);
    for (int i = 0; i < 4; i++) {
        struct verify_case c;
        char line[96] = "";
        assert_true(verify_prepare(&c, &list.problems.item[i], "", library));
        char *name = xasprintf("%s@%016" PRIx64 "\n", dtypes[i], numerics_checksum(&c));
        assert_non_null(fgets(line, sizeof line, peer));
        assert_string_equal(line, name);
        /* One bit, and it is another. */
        const uint64_t checksum = numerics_checksum(&c);
        c.initial[buffers_at(&c.buffers, 0, ATTN_FWD_V) + 77] ^= 1;
        assert_true(numerics_checksum(&c) != checksum);
        free(name);
        verify_free(&c, NULL);
    }
    (void)pclose(peer);
    hard_list_free(&list);
    free(command);
    free(path);
    text_free(&text);
}

static void errors_are_relative(void **state)
{
    static const char words[] = "num_q_heads=2 q_len=3 kv_len=40 head_dim=64 dtype=e4m3";
    struct shape_list list = {0};
    struct verify_case c;
    (void)state;
    prepare(&c, &list, words);
    uint16_t *o = (void *)(c.actual + buffers_at(&c.buffers, 0, ATTN_FWD_O));
    float *lse = (void *)(c.actual + buffers_at(&c.buffers, 0, ATTN_FWD_LSE));
    const uint64_t count = c.buffers.tensor[ATTN_FWD_O].count;
    /* What o's rounding costs. */
    assert_true(numerics_error(&c, &c) > 0 && numerics_error(&c, &c) < 0x1p-8);
    lse[1] += 1;
    assert_true(numerics_error(&c, &c) < 0x1p-8);
    for (uint64_t i = 0; i < count; i++)
        o[i] = gen__bf16_from_double(0.93 * c.exact[ATTN_FWD_O][i]);
    assert_true(fabs(numerics_error(&c, &c) - 0.07) < 0.002);
    o[5] = 0x7fc0;
    assert_true(isinf(numerics_error(&c, &c)));
    memset(c.actual, 0xff, c.buffers.total_bytes); /* no launch at all */
    assert_true(isinf(numerics_error(&c, &c)));
    verify_free(&c, NULL);
    shapes_free(&list);
}

/* Against the numbers before they were rounded to 8 bits: the exact result on the rounded ones is
 * off by their rounding. */
static void errors_against_unrounded_inputs(void **state)
{
    struct shape_list list = {0};
    struct verify_case c, exact, other;
    (void)state;
    prepare(&c, &list, "num_q_heads=2 q_len=8 kv_len=200 head_dim=64 dtype=e4m3");
    prepare(&exact, &list, "num_q_heads=2 q_len=8 kv_len=200 head_dim=64 dtype=fp16");
    prepare(&other, &list, "num_q_heads=2 q_len=9 kv_len=200 head_dim=64 dtype=fp16");
    assert_true(numerics_same_inputs(&c, &exact));
    assert_false(numerics_same_inputs(&c, &other));
    const double error = numerics_error(&c, &exact);
    assert_true(error > 0.03 && error < 0.07);
    verify_free(&c, NULL);
    verify_free(&exact, NULL);
    verify_free(&other, NULL);
    shapes_free(&list);
}

/* @steps: what three launches leave, each on the last one's state. */
static void states_go_through_every_step(void **state)
{
    const struct gen__family *family = gen__family_by_name("la_decode");
    struct shape_list list = {0};
    struct verify_case once, thrice;
    (void)state;
    assert_true(shapes_parse(&list, family, SHAPES_VERIFIED, "batch=2 num_qk_heads=1 @steps=3"));
    assert_true(verify_prepare(&thrice, &list.item[0], "@steps=3", library));
    assert_true(verify_prepare(&once, &list.item[0], "", library));
    assert_int_equal(once.steps, 1);
    assert_int_equal(thrice.steps, 3);
    gen_device cpu = {.size = sizeof cpu};
    gen_plan plan = {.size = sizeof plan};
    gen_args *args = xmalloc(family->args_size);
    assert_int_equal(gen_device_named("cpu", &cpu), GEN_OK);
    assert_int_equal(gen_select(library, &cpu, list.item[0].problem, &plan), GEN_OK);
    buffers_args(&once.buffers, (uint64_t)(uintptr_t)once.expected, 0, args);
    assert_memory_not_equal(once.expected, thrice.expected, once.buffers.total_bytes);
    for (int i = 1; i < 3; i++)
        assert_int_equal(gen_launch(library, &plan, args, NULL, NULL), GEN_OK);
    assert_memory_equal(once.expected, thrice.expected, once.buffers.total_bytes);
    free(args);
    verify_free(&once, NULL);
    verify_free(&thrice, NULL);
    shapes_free(&list);
}

int main(void)
{
    util_set_program("test-numerics");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_name_their_cases),
        cmocka_unit_test(bad_lines_are_counted),
        cmocka_unit_test(the_lists_are_whole),
        cmocka_unit_test(the_peer_draws_the_same_inputs),
        cmocka_unit_test(errors_are_relative),
        cmocka_unit_test(errors_against_unrounded_inputs),
        cmocka_unit_test(states_go_through_every_step),
    };
    return cmocka_run_group_tests_name("numerics", tests, open_library, close_library);
}
