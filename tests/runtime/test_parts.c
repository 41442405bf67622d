/* Plans that take launches from other families: what is chosen for them, what is
 * said where nothing can be, and how they are launched. */
#include "test.h"

#include "fake.h"
#include "product/plan.h"
#include "toy.h"

#include <stdbool.h>

#define B90 "pair_bf16_d64__sm90a_b"
#define LINE_C90 "line_bf16_d64__sm90a_c"
#define LINE_BIG90 "line_bf16_d64__sm90a_big"
#define TOY_A90 "toy_bf16_d64__sm90a_a"
#define TOY_B90 "toy_bf16_d64__sm90a_b"

static const float in[4];
static float out[4];

/* Rows for toy, and for line where `line` says so. */
static gen_library *open_product(bool line)
{
    char table[4096] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "toy_bf16_d64", "tiles=2,length=128", TOY_A90, "7");
    toy_table_row(table, sizeof(table), "toy_bf16_d64", "tiles=64,length=128", TOY_B90, "8");
    if (line) {
        toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=2", LINE_C90, "5");
        toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=64", LINE_BIG90, "6");
    }
    struct product *product = toy_product();
    toy_add_pair(product);
    product_table(product, "sm90_132sm", table);
    return toy_open(product);
}

static int start(void **state)
{
    fake_start();
    *state = open_product(true);
    return 0;
}

static int stop(void **state)
{
    toy_close(*state);
    return fake.cuda->num_loads == fake.cuda->num_unloads ? 0 : -1;
}

static gen_toy_problem pair_problem(int32_t batch, int32_t length)
{
    gen_toy_problem problem = toy_problem(GEN_PAIR, batch);
    problem.length = length;
    return problem;
}

static gen_plan plan_for(const gen_library *library, int32_t batch, int32_t length)
{
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = pair_problem(batch, length);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    return plan;
}

static void check_launch(const gen_library *library, const gen_plan *plan, uint32_t launch,
                         const char *variant, uint32_t grid)
{
    gen_variant_info info = {.size = sizeof(info)};
    assert_status(gen_variant_get(library, plan->launch[launch].variant, &info), GEN_OK);
    assert_string_equal(info.name, variant);
    assert_int_equal(plan->launch[launch].grid[0], grid);
    assert_int_equal(plan->launch[launch].grid[1], 1);
    assert_int_equal(plan->launch[launch].threads, 128);
    assert_int_equal(plan->launch[launch].shared, info.shared_dynamic);
}

static void each_part_is_chosen_by_its_own_table(void **state)
{
    const gen_library *library = *state;
    gen_plan plan = plan_for(library, 1, 64);
    assert_int_equal(plan.num_launches, 2);
    assert_int_equal(plan.family, GEN_PAIR);
    assert_string_equal(gen_why_string(plan.why), gen_why_string(GEN_WHY_MODEL)); /* the first's */
    assert_true(plan.predicted_us == 2.0f);
    assert_int_equal(plan.workspace_bytes, 1 << 20);
    check_launch(library, &plan, 0, B90, 1);
    check_launch(library, &plan, 1, LINE_C90, 2);

    plan = plan_for(library, 32, 128);
    assert_int_equal(plan.num_launches, 3);
    check_launch(library, &plan, 0, B90, 32);
    check_launch(library, &plan, 1, LINE_BIG90, 64);
    check_launch(library, &plan, 2, TOY_B90, 64);
    check_launch(library, &(gen_plan){.launch = {plan_for(library, 1, 128).launch[2]}}, 0, TOY_A90,
                 2);
}

static void without_a_table_the_model_or_the_nearest_class_decides(void **state)
{
    (void)state;
    gen_library *library = open_product(false);
    gen_plan plan = plan_for(library, 1, 64);
    check_launch(library, &plan, 1, LINE_BIG90, 2); /* the least estimate */
    const gen_device h20 = toy_device("h20");
    const gen_toy_problem problem = pair_problem(16, 128);
    assert_status(gen_select(library, &h20, &problem.base, &plan), GEN_OK);
    check_launch(library, &plan, 2, TOY_B90, 32); /* 32 on 78 SMs are as 54 on 132 */
    toy_close(library);
}

static void a_named_variant_brings_its_parts(void **state)
{
    const gen_library *library = *state;
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = pair_problem(1, 64);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(
        gen_select_variant(library, &device, &problem.base, "pair_bf16_d64__sm90a_a", &plan),
        GEN_OK);
    assert_int_equal(plan.num_launches, 2);
    assert_int_equal(plan.workspace_bytes, 0);
    check_launch(library, &plan, 0, "pair_bf16_d64__sm90a_a", 1);
    check_launch(library, &plan, 1, LINE_C90, 2);
}

static void an_empty_problem_has_no_parts(void **state)
{
    const gen_library *library = *state;
    assert_int_equal(plan_for(library, 0, 128).num_launches, 0);
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = pair_problem(0, 128);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select_variant(library, &device, &problem.base, B90, &plan), GEN_OK);
    assert_int_equal(plan.num_launches, 0);
}

/* A part that nothing can do fails the selection, says whose it is, and leaves
 * the plan alone. */
static void a_part_that_nothing_can_do(void **state)
{
    const gen_library *library = *state;
    const gen_device device = toy_device("h200");
    gen_toy_problem problem = pair_problem(4, 128);
    gen_plan plan = {.size = sizeof(plan)}, before = {.size = sizeof(before)};
    problem.dtype = 1; /* toy has none of it */
    memset(&plan, 0x5a, sizeof(plan));
    plan.size = sizeof(plan);
    before = plan;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_STATUS_UNSUPPORTED);
    assert_message("pair, launch 2: no variant of toy (dtype=fp16 dim=64) for sm_90");
    assert_memory_equal(&plan, &before, sizeof(plan));
    assert_status(
        gen_select_variant(library, &device, &problem.base, "pair_fp16_d64__sm90a_a", &plan),
        GEN_STATUS_UNSUPPORTED);
    assert_message("pair, launch 2: no variant of toy");
    assert_memory_equal(&plan, &before, sizeof(plan));
    problem.length = 64; /* line alone */
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    check_launch(library, &plan, 1, "line_fp16_d64__sm90a_a", 8);
}

static void a_part_is_one_launch(void **state)
{
    (void)state;
    struct product *product = toy_product();
    toy_add_pair(product);
    gen_library *library = toy_open(product);
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = pair_problem(4, 128);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_STATUS_UNSUPPORTED);
    assert_message(
        "pair, launch 2: toy_bf16_d64__sm90a_split takes 2 launches and 2097152 bytes of "
        "workspace; allowed for a part of a plan: 1 and 0");
    toy_close(library);
}

static void every_launch_of_a_composed_plan(void **state)
{
    const gen_library *library = *state;
    const gen_plan plan = plan_for(library, 4, 128);
    const gen_toy_args args = {{sizeof(args), GEN_PAIR}, in, out};
    static const char *const symbols[] = {B90, LINE_C90, TOY_A90};
    void *workspace = (void *)(uintptr_t)0x10000;
    fake.cuda->copy_params = sizeof(struct toy_params);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_loads, 3);
    assert_status(gen_launch(library, &plan, &args.base, workspace, NULL), GEN_OK);
    assert_int_equal(fake.cuda->num_loads, 3);
    assert_int_equal(fake.cuda->num_launches, 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct toy_params params;
        const struct fake_launch *l = &fake.cuda->launches[i];
        assert_string_equal(l->symbol, symbols[i]);
        assert_int_equal(l->grid[0], i ? 8 : 4);
        memcpy(&params, l->params, sizeof(params));
        assert_int_equal(params.launch, i); /* made by the first family */
        assert_ptr_equal(params.workspace, workspace);
    }
}

static void no_launches_of_strangers(void **state)
{
    const gen_library *library = *state;
    const gen_plan composed = plan_for(library, 4, 64);
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 4);
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    plan.launch[0] = composed.launch[0];
    gen__plan_seal(&plan);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_MISMATCH);
    assert_message("the plan of line is not as gen_select() made it");
    assert_status(gen_preload(library, &plan), GEN_STATUS_MISMATCH);
    assert_int_equal(fake.cuda->num_calls, 0);
}

static void on_the_cpu(void **state)
{
    const gen_library *library = *state;
    const gen_device device = toy_device("cpu");
    const gen_toy_problem problem = pair_problem(4, 128);
    const float four[4] = {1, 2, 3, 4};
    float twice[4] = {0};
    const gen_toy_args args = {{sizeof(args), GEN_PAIR}, four, twice};
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_int_equal(plan.num_launches, 1);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    assert_true(twice[3] == 8.0f);
}

static void explained(void **state)
{
    const gen_library *library = *state;
    static char text[16384];
    const gen_device device = toy_device("h200");
    gen_toy_problem problem = pair_problem(1, 64);
    assert_status(gen_explain(library, &device, &problem.base, text, sizeof(text), NULL), GEN_OK);
    static const char *const pieces[] = {
        "problem   pair batch=1 heads=1 length=64 dtype=bf16 dim=64\n",
        "rule      analytic model\n",
        "*        2.000 estimate  " B90 "\n",
        "launch 1  line batch=2 heads=1 length=64 dtype=bf16 dim=64\n",
        "rule      measured on this class of GPU: sm90_132sm (sm90_132sm), row tiles=2, 0.00 "
        "octaves away\n",
        "*        5.000 measured  " LINE_C90 "\n",
    };
    const char *at = text;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        at = strstr(at, pieces[i]); /* in this order */
        if (!at)
            fail_msg("\"%s\" is not where it should be in:\n%s", pieces[i], text);
    }
    problem.length = 128;
    problem.dtype = 1;
    assert_status(gen_explain(library, &device, &problem.base, text, sizeof(text), NULL), GEN_OK);
    assert_non_null(strstr(text, "launch 2  toy batch=2 heads=1 length=128 dtype=fp16 dim=64\n"
                                 "rule      none: no variant of toy (dtype=fp16 dim=64)"));
    problem = toy_problem(GEN_LINE, 1);
    assert_status(gen_explain(library, &device, &problem.base, text, sizeof(text), NULL), GEN_OK);
    assert_null(strstr(text, "launch "));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_part_is_chosen_by_its_own_table),
        TEST(without_a_table_the_model_or_the_nearest_class_decides),
        TEST(a_named_variant_brings_its_parts),
        TEST(an_empty_problem_has_no_parts),
        TEST(a_part_that_nothing_can_do),
        TEST(a_part_is_one_launch),
        TEST(every_launch_of_a_composed_plan),
        TEST(no_launches_of_strangers),
        TEST(on_the_cpu),
        TEST(explained),
    };
    return cmocka_run_group_tests_name("parts", tests, fake_open, NULL);
}
