/* Which variants the tuner and the regret benchmark let compete. No GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tune/race.h"
#include "make_product.h"
#include "common/problems.h"
#include "families/attn_paged/api.h"
#include "tune/tune.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRED "la_decode_bf16_d128_vk"
#define CODE0 REQUIRED "__sm90a_0"
#define CODE1 REQUIRED "__sm90a_1"
#define PTX0 REQUIRED "__ptx80_0"
#define PTX1 REQUIRED "__ptx80_1"

struct fixture {
    struct session session;
    struct shape_list list;
    void *product;
};

/* la_decode with machine code for sm_90 and PTX, or PTX alone. */
static void open_fixture(struct fixture *f, const char *device)
{
    static const char *const names[2][2] = {{CODE0, CODE1}, {PTX0, PTX1}};
    const struct gen__family *family = gen__family_by_name("la_decode");
    struct product *product = product_new();
    gen_open_options options = {.size = sizeof options};
    memset(f, 0, sizeof *f);
    const uint32_t la =
        product_family(product, "la_decode", "dtype,head_dim,layout,state_pool", family->facts);
    const uint32_t target[2] = {product_target(product, "sm_90a", 90, GEN_PACK_EXACT),
                                product_target(product, "compute_80", 80, GEN_PACK_PTX)};
    for (int t = 0; t < 2; t++) {
        const uint32_t group = product_group(product, REQUIRED, "bf16,128,vk,none", la, target[t]);
        for (int i = 0; i < 2; i++)
            product_variant(product, group,
                            (struct product_variant){.name = names[t][i],
                                                     .fallback = i == 0,
                                                     .facts = {1 << i, 0, 1024, 4096}});
    }
    f->product = product_bytes(product, &options.data_size);
    product_free(product);
    options.data = f->product;
    assert_int_equal(gen_open(&options, &f->session.library), GEN_OK);
    f->session.info.size = sizeof f->session.info;
    f->session.gpu.device.size = sizeof f->session.gpu.device;
    assert_int_equal(gen_library_info_get(f->session.library, &f->session.info), GEN_OK);
    assert_int_equal(gen_device_named(device, &f->session.gpu.device), GEN_OK);
    assert_true(shapes_parse(&f->list, family, SHAPES_TIMED, "batch=16 num_qk_heads=8"));
}

static void close_fixture(struct fixture *f)
{
    shapes_free(&f->list);
    gen_close(f->session.library);
    free(f->product);
}

/* Those that compete, in the order of names: "sm90a_0 sm90a_1". */
static void expect_race(const char *device, const char *glob, const char *expected)
{
    struct fixture f;
    struct race c = {.rest_ms = 0};
    char found[256] = "";
    const struct option_list only = {.item = {glob}, .count = glob ? 1 : 0};
    open_fixture(&f, device);
    race_find(&c, &f.session, &f.list.item[0], &only, NULL);
    const size_t left = race_strike(&c);
    assert_int_equal(left, c.count);
    for (size_t i = 0; i < c.count; i++) {
        const char *name = session_variant(&f.session, c.candidate[i].variant).name;
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i ? " " : "",
                 strstr(name, "__") + 2);
    }
    assert_string_equal(found, expected);
    race_close(&c);
    close_fixture(&f);
}

static void ptx_does_not_compete_with_machine_code(void **state)
{
    (void)state;
    expect_race("h200", NULL, "sm90a_0 sm90a_1");
    expect_race("h200", "*_1", "sm90a_1");
    /* Not even by itself: the runtime would drop its row. */
    expect_race("h200", "*ptx80*", "");
    expect_race("a100", NULL, "ptx80_0 ptx80_1"); /* no machine code for it */
}

static void expect_pair(const char *device, const char *variant, const char *runner_up,
                        const char *first, const char *second)
{
    struct fixture f;
    struct option_list pair, all = {.count = 0};
    open_fixture(&f, device);
    const struct tuner tuner = {.session = &f.session, .only = &all};
    const struct table_row row = {.variant = variant, .runner_up = runner_up};
    tune_pair(&tuner, &f.list.item[0], &row, &pair);
    assert_int_equal(pair.count, (first != NULL) + (second != NULL));
    if (first)
        assert_string_equal(pair.item[0], first);
    if (second)
        assert_string_equal(pair.item[1], second);
    close_fixture(&f);
}

static void a_row_of_ptx_is_refreshed_by_its_runner_up(void **state)
{
    (void)state;
    expect_pair("h200", CODE1, CODE0, CODE1, CODE0);
    expect_pair("h200", CODE1, "-", CODE1, NULL);
    expect_pair("h200", CODE1, PTX0, CODE1, NULL);
    expect_pair("h200", PTX0, CODE0, CODE0, NULL);
    expect_pair("h200", PTX0, PTX1, NULL, NULL);
    expect_pair("h200", REQUIRED "__sm90a_gone", CODE0, NULL, NULL);
    expect_pair("a100", PTX0, PTX1, PTX0, PTX1);
}

/* Of those that went all the way, by their times; of equal ones the first in the list. */
static void a_row_gets_further_times(void **state)
{
    (void)state;
    struct halving_candidate m[] = {{.name = "a", .us = 3.0, .passes = 2},
                                    {.name = "winner", .us = 1.0, .passes = 2},
                                    {.name = "b", .us = 1.5, .passes = 1},
                                    {.name = "c", .us = 2.0, .passes = 2},
                                    {.name = "second", .us = 1.1, .passes = 2},
                                    {.name = "d", .us = 2.0, .passes = 2},
                                    {.name = "e", .us = 1.2, .passes = 2, .failed = true},
                                    {.name = "f", .us = 4.0, .passes = 2}};
    struct race c = {.measured = m, .count = 8};
    char *text = race_others(&c, 1, 4);
    assert_string_equal(text, "c=2.000,d=2.000,a=3.000");
    free(text);
    c.count = 4; /* without the second, d, e and f */
    text = race_others(&c, 1, -1);
    assert_string_equal(text, "c=2.000,a=3.000");
    free(text);
    c.count = 2;
    text = race_others(&c, 1, 0);
    assert_string_equal(text, "-");
    free(text);
}

/* attn_paged's first small problem has pages of five rows, which TMA boxes do not take. */
static void a_variant_is_verified_on_a_case_that_it_fits(void **state)
{
    static const char *const names[] = {"attn_paged_bf16_same_d128__sm90a_any",
                                        "attn_paged_bf16_same_d128__sm90a_boxes",
                                        "attn_paged_bf16_same_d128__sm90a_never"};
    const struct gen__family *family = gen__family_by_name("attn_paged");
    struct product *product = product_new();
    struct session session = {.info = {.size = sizeof session.info}};
    struct shape_list shapes = {0}, small = {0}, none = {0};
    void *bytes;
    (void)state;
    const uint32_t paged =
        product_family(product, "attn_paged", "dtype,cache,head_dim", family->facts);
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t group =
        product_group(product, "attn_paged_bf16_same_d128", "bf16,same,128", paged, target);
    for (int i = 0; i < 3; i++) /* rows, keys, stages, teams, dependent, wgmma; shared memory */
        product_variant(product, group,
                        (struct product_variant){.name = names[i],
                                                 .fallback = i == 0,
                                                 .shared_dynamic = i == 2 ? 1 << 20 : 0,
                                                 .facts = {8, 128, 2, 1, 1, i == 1}});
    assert_int_equal(product_open(product, &bytes, &session.library), GEN_OK);
    assert_int_equal(gen_library_info_get(session.library, &session.info), GEN_OK);
    session.gpu.device.size = sizeof session.gpu.device;
    assert_int_equal(gen_device_named("h200", &session.gpu.device), GEN_OK);
    verify_small(&small, family);
    assert_true(shapes_parse(&shapes, family, SHAPES_TIMED, "batch=2 num_q_heads=8 page_size=24"));
    const struct shape *shape = &shapes.item[0];
    const struct shape *any = tune_case(&session, &small, shape, names[0]);
    const struct shape *boxes = tune_case(&session, &small, shape, names[1]);
    assert_ptr_equal(any, shapes_of_key(&small, shape));
    assert_int_equal(((const gen_attn_paged_problem *)any->problem)->page_size, 5);
    assert_non_null(boxes);
    assert_true(shapes_same_key(boxes, shape));
    assert_int_equal(((const gen_attn_paged_problem *)boxes->problem)->page_size % 8, 0);
    assert_null(tune_case(&session, &small, shape, names[2]));
    /* Without small problems the shape itself, where it fits. */
    assert_ptr_equal(tune_case(&session, &none, shape, names[1]), shape);
    assert_null(tune_case(&session, &none, any, names[1]));
    shapes_free(&shapes);
    shapes_free(&small);
    gen_close(session.library);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ptx_does_not_compete_with_machine_code),
        cmocka_unit_test(a_row_of_ptx_is_refreshed_by_its_runner_up),
        cmocka_unit_test(a_row_gets_further_times),
        cmocka_unit_test(a_variant_is_verified_on_a_case_that_it_fits),
    };
    return cmocka_run_group_tests_name("race", tests, NULL, NULL);
}
