/* Selection: limits, named variants, wrong arguments and unsupported problems. */
#include "family/family.h"
#include "select_fixture.h"

/* A limit that every variant keeps makes no other plan, to the last byte, and neither does asking
 * again. */
static void a_limit_that_all_keep_changes_nothing(void **state)
{
    (void)state;
    static const char *const devices[] = {"h200", "h20", "h100", "sm_90:104", "h100-pcie", "a100"};
    struct product *product = toy_product();
    head(90, 132, 4800);
    row("tiles=1", A90, "3");
    row("tiles=2", B90, "4"); /* does not fit */
    row("tiles=12", C90, "5");
    row("tiles=48", BIG90, "9");
    row("tiles=49", A90, "9.5");
    row("tiles=50", C90, "9.6");
    row("tiles=1000", A90, "90");
    product_table(product, "far", table);
    head(90, 80, 4800);
    row("tiles=30", C90, "10");
    row("tiles=300", A90, "70");
    product_table(product, "near", table);
    gen_library *library = toy_open(product);
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
        for (int batch = 1; batch < 100000; batch += 1 + batch / 40) {
            gen_toy_problem problem = toy_problem(GEN_LINE, batch);
            const gen_plan plan = ask(library, devices[d], &problem);
            problem.base.max_workspace_mib = 1000;
            const gen_plan limited = ask(library, devices[d], &problem);
            assert_memory_equal(&plan, &limited, sizeof(plan));
            const gen_plan again = ask(library, devices[d], &problem);
            assert_memory_equal(&plan, &again, sizeof(plan));
        }
    }
    toy_close(library);
}

static void workspace_limit_is_a_matter_of_eligibility(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=8,length=64", "toy_bf16_d64__sm90a_split", "10");
    row("tiles=64,length=64", "toy_bf16_d64__sm90a_b", "20");
    gen_library *library = open_with_table();
    gen_toy_problem problem = toy_problem(GEN_TOY, 8);
    gen_plan plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_split");
    assert_int_equal(plan.workspace_bytes, 2 << 20);
    assert_int_equal(plan.num_launches, 2);
    problem.base.max_workspace_mib = 2;
    plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_split");
    problem.base.max_workspace_mib = 1;
    plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_b");
    toy_close(library);
}

/* Fields that an older caller lacks are 0, and what a newer one has more must be. */
static void problems_of_other_versions(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    const gen_device device = toy_device("h200");
    union {
        gen_toy_problem problem;
        unsigned char bytes[2 * GEN__MAX_PROBLEM];
    } caller;
    const uint32_t full = sizeof(gen_toy_problem), least = offsetof(gen_toy_problem, dim);
    const uint32_t good[] = {least, least + 1, full, full + 1, GEN__MAX_PROBLEM};
    const uint32_t bad[] = {0, 16, least - 1, GEN__MAX_PROBLEM + 1, UINT32_MAX};
    gen_toy_problem usual = toy_problem(GEN_LINE, 8);
    const gen_plan expected = ask(library, "h200", &usual);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        gen_plan plan = {.size = sizeof(plan)};
        memset(&caller, 0, sizeof(caller));
        caller.problem = usual;
        if (good[i] < full) /* what is behind is not the caller's */
            caller.problem.dim = 7;
        caller.problem.base.size = good[i];
        if (good[i] == least + 1) /* a part of a field */
            caller.problem.dim = 0x700;
        for (int again = 0; again < 3; again++) {
            assert_status(gen_select(library, &device, &caller.problem.base, &plan), GEN_OK);
            assert_memory_equal(&plan, &expected, sizeof(plan));
            assert_status(
                gen_explain(library, &device, &caller.problem.base, NULL, 0, &(size_t){0}), GEN_OK);
        }
        caller.bytes[good[i] - 1] = 1;
        if (good[i] > full)
            assert_status(gen_select(library, &device, &caller.problem.base, &plan),
                          GEN_STATUS_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gen_plan plan = {.size = sizeof(plan)};
        memset(&caller, 0, sizeof(caller));
        caller.problem = usual;
        caller.problem.base.size = bad[i];
        assert_status(gen_select(library, &device, &caller.problem.base, &plan),
                      GEN_STATUS_INVALID_ARGUMENT);
        assert_message("expected 36 (sizeof(gen_line_problem))");
    }
    toy_close(library);
}

static void empty_problem(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 0);
    problem.dim = 128; /* the product has none, and none is needed */
    gen_plan plan = ask(library, "h200", &problem);
    assert_int_equal(plan.num_launches, 0);
    assert_int_equal(plan.size, sizeof(plan));
    plan = ask(library, "cpu", &problem);
    assert_int_equal(plan.num_launches, 0);
    toy_close(library);
}

static void cpu_needs_no_variant(void **state)
{
    (void)state;
    gen_library *library = toy_open(product_new());
    gen_toy_problem problem = toy_problem(GEN_TOY, 3);
    problem.dim = 128;
    const gen_plan plan = ask(library, "cpu", &problem);
    assert_int_equal(plan.why, GEN_WHY_REFERENCE);
    assert_int_equal(plan.backend, GEN_BACKEND_CPU);
    const float in[3] = {1, 2, 3};
    float out[3] = {0};
    gen_toy_args args = {{sizeof(args), GEN_TOY}, in, out};
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    assert_true(out[0] == 2.0f && out[1] == 4.0f && out[2] == 6.0f);
    args.in = NULL;
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    toy_close(library);
}

static void the_caller_names_the_variant(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    const gen_device h200 = toy_device("h200"), a100 = toy_device("a100"), cpu = toy_device("cpu");
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    gen_plan plan = {.size = sizeof(plan)}, before = {.size = sizeof(before)};
    assert_status(gen_select_variant(library, &h200, &problem.base, A80, &plan),
                  GEN_STATUS_UNSUPPORTED);
    assert_message("is made for sm_80, the device is sm_90");
    assert_status(gen_select_variant(library, &h200, &problem.base, A90, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), A90);
    assert_int_equal(plan.why, GEN_WHY_ASKED);
    assert_true(plan.predicted_us == 3.0f);
    assert_status(gen_select_variant(library, &a100, &problem.base, A80, &plan), GEN_OK);
    memset(&plan, 0x5a, sizeof(plan));
    plan.size = sizeof(plan);
    before = plan;
    assert_status(gen_select_variant(library, &h200, &problem.base, B90, &plan),
                  GEN_STATUS_UNSUPPORTED);
    assert_message("length is not a multiple of blocks");
    assert_status(
        gen_select_variant(library, &h200, &problem.base, "line_fp16_d64__sm90a_a", &plan),
        GEN_STATUS_UNSUPPORTED);
    assert_message("line_fp16_d64");
    assert_status(gen_select_variant(library, &h200, &problem.base, A90 "x", &plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_select_variant(library, &h200, &problem.base, "", &plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_select_variant(library, &h200, &problem.base, NULL, &plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_select_variant(library, &cpu, &problem.base, A90, &plan),
                  GEN_STATUS_UNSUPPORTED);
    assert_memory_equal(&plan, &before, sizeof(plan));
    toy_close(library);
}

static void wrong_arguments(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    gen_device device = toy_device("h200");
    gen_plan plan = {.size = sizeof(plan)}, before = {.size = sizeof(before)};
    memset(&plan, 0x5a, sizeof(plan));
    plan.size = sizeof(plan);
    before = plan;
#define BAD(change, piece)                                                \
    {                                                                     \
        problem = toy_problem(GEN_LINE, 8);                               \
        device = toy_device("h200");                                      \
        change;                                                           \
        assert_status(gen_select(library, &device, &problem.base, &plan), \
                      GEN_STATUS_INVALID_ARGUMENT);                       \
        assert_message(piece);                                            \
    }
    BAD(problem.base.size = 16, "problem->size is 16, expected 36 (sizeof(gen_line_problem))")
    BAD(problem.base.family = 7, "problem->family is 0x00000007, this runtime knows line")
    BAD(problem.base.flags = 8, "problem->flags is 0x8")
    BAD(problem.dim = 7, "dim = 7; allowed: 64, 128")
    BAD(device.size = 0, "device->size is 0")
    BAD(device.backend = 2, "device->backend is 2")
    BAD(device.compute_capability = 9, "device->compute_capability is 9")
    BAD(device.num_sms = 0, "device->num_sms is 0")
    BAD(device.shared_per_block = 0, "device->shared_per_block is 0")
    /* No class, though there are no rows either that would differ. */
    BAD((device.compute_capability = UINT32_MAX, device.num_sms = 0), "device->")
    BAD((device.compute_capability = 0, device.num_sms = 0), "device->")
#undef BAD
    problem = toy_problem(GEN_LINE, 8);
    device = toy_device("h200");
    assert_status(gen_select(NULL, &device, &problem.base, &plan), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("library is NULL");
    assert_status(gen_select(library, NULL, &problem.base, &plan), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("device is NULL");
    assert_status(gen_select(library, &device, NULL, &plan), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("problem is NULL");
    assert_status(gen_select(library, &device, &problem.base, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("plan is NULL");
    assert_memory_equal(&plan, &before, sizeof(plan));
    toy_close(library);
}

static void unsupported(const gen_library *library, const char *device_name,
                        const gen_toy_problem *problem)
{
    const gen_device device = toy_device(device_name);
    gen_plan plan = {.size = sizeof(plan)}, before = {.size = sizeof(before)};
    memset(&plan, 0x5a, sizeof(plan));
    plan.size = sizeof(plan);
    before = plan;
    assert_status(gen_select(library, &device, &problem->base, &plan), GEN_STATUS_UNSUPPORTED);
    assert_memory_equal(&plan, &before, sizeof(plan));
}

static void unsupported_problems_say_what_is_near_and_what_helps(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    problem.dim = 128;
    unsupported(library, "h200", &problem);
    assert_message("no variant of line (dtype=bf16 dim=128) for sm_90");
    assert_message("line_bf16_d64: has dim 64, asked is 128");
    assert_message("line_fp16_d64: has dtype fp16, asked is bf16; dim 64, asked is 128");
    assert_message("attngen build --families line --targets sm_90a");

    problem = toy_problem(GEN_LINE, 8);
    problem.dtype = 1;
    unsupported(library, "b200", &problem);
    assert_message("line_fp16_d64__sm90a_a is made for sm_90a, the device is sm_100");
    assert_message("attngen build --families line --targets sm_100a");

    problem = toy_problem(GEN_TOY, 8);
    gen_device device = toy_device("h200");
    unsupported(library, "a100", &problem);
    assert_message("--targets sm_80");
    device.compute_capability = 75;
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_STATUS_UNSUPPORTED);
    assert_message("no build adds it: the targets run on sm_80 and later");
    assert_null(strstr(gen_last_error(), "attngen build")); /* PTX is of sm_80, too */
    device.compute_capability = 90;
    toy_close(library);

    struct product *product = product_new();
    const uint32_t family =
        product_family(product, "toy", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t group = product_group(product, "toy_bf16_d64", "bf16,64", family, target);
    product_variant(product, group, (struct product_variant){.name = "toy_x", .facts = {128, 1}});
    library = toy_open(product);
    unsupported(library, "h200", &problem);
    assert_message("toy_x does not fit: length is not a multiple of blocks");
    assert_null(strstr(gen_last_error(), "attngen build")); /* it would not help */
    problem.length = 128;
    device.shared_per_block = 1;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    problem = toy_problem(GEN_LINE, 8);
    unsupported(library, "h200", &problem);
    assert_message("the product has no variant of line");
    toy_close(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_that_all_keep_changes_nothing),
        cmocka_unit_test(workspace_limit_is_a_matter_of_eligibility),
        cmocka_unit_test(problems_of_other_versions),
        cmocka_unit_test(empty_problem),
        cmocka_unit_test(cpu_needs_no_variant),
        cmocka_unit_test(the_caller_names_the_variant),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(unsupported_problems_say_what_is_near_and_what_helps),
    };
    return cmocka_run_group_tests_name("select_args", tests, NULL, NULL);
}
