/* Preloading and launching on the fake driver: what it is called with, every call that
 * fails in turn, capture, and plans that are none. */
#include "test.h"

#include "fake.h"
#include "family/family.h"
#include "product/plan.h"
#include "toy.h"

#define BIG90 "line_bf16_d64__sm90a_big"

static const float in[4];
static float out[4];

static int start(void **state)
{
    fake_start();
    *state = toy_open(toy_product());
    return 0;
}

static int stop(void **state)
{
    toy_close(*state);
    return fake.cuda->num_loads == fake.cuda->num_unloads ? 0 : -1;
}

static gen_plan plan_for(const gen_library *library, uint32_t family)
{
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(family, 4);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    return plan;
}

static gen_toy_args args_for(uint32_t family)
{
    return (gen_toy_args){{sizeof(gen_toy_args), family}, in, out};
}

static gen_stream a_stream(void)
{
    return NULL; /* the default stream: the fake looks into others */
}

static enum gen_status launch(const gen_library *library, const gen_plan *plan)
{
    const gen_toy_args args = args_for(plan->family);
    return gen_launch(library, plan, &args.base, NULL, a_stream());
}

static void what_the_driver_is_told(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE); /* BIG90: 100 KiB */
    fake.cuda->copy_params = sizeof(struct toy_params);
    assert_int_equal(fake.cuda->num_calls, 0); /* up to here no driver was needed */
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_loads, 1);
    assert_int_equal(fake.cuda->num_func_loads, 1);
    assert_int_equal(fake.cuda->num_attributes, 1); /* the H200 alone: sm_90a code */
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_loads, 1);
    const gen_toy_args args = args_for(GEN_LINE);
    const unsigned long before = fake.cuda->num_calls;
    assert_status(gen_launch(library, &plan, &args.base, NULL, a_stream()), GEN_OK);
    assert_int_equal(fake.cuda->num_calls, before + 1); /* cuLaunchKernel and nothing else */
    assert_int_equal(fake.cuda->num_launches, 1);
    const struct fake_launch *l = &fake.cuda->launches[0];
    assert_string_equal(l->symbol, BIG90);
    assert_int_equal(l->grid[0], 4);
    assert_int_equal(l->grid[1], 1);
    assert_int_equal(l->grid[2], 1);
    assert_int_equal(l->threads, 128);
    assert_int_equal(l->shared, 100 * 1024);
    struct toy_params params;
    memcpy(&params, l->params, sizeof(params));
    assert_ptr_equal(params.in, in);
    assert_ptr_equal(params.out, out);
    assert_int_equal(params.count, 4);
}

static void a_dependent_launch(void **state)
{
    gen_library *library = *state;
    gen_plan plan = plan_for(library, GEN_LINE);
    assert_status(launch(library, &plan), GEN_OK);
    assert_false(fake.cuda->launches[0].dependent);
    plan.launch[0].dependent = 1;
    gen__plan_seal(&plan);
    assert_status(launch(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_launches, 2);
    const struct fake_launch *l = &fake.cuda->launches[1];
    assert_true(l->dependent);
    assert_string_equal(l->symbol, BIG90);
    assert_int_equal(l->grid[0], 4);
    assert_int_equal(l->threads, 128);
    assert_int_equal(l->shared, 100 * 1024);
    assert_ptr_equal(l->stream, fake.cuda->launches[0].stream);
    fake_fail("cuLaunchKernelEx", 1, 719);
    assert_status(launch(library, &plan), GEN_STATUS_DRIVER);
    assert_message("cuLaunchKernelEx returned FAKE_ERROR_719 (719)");
}

static void launching_loads_what_is_not_loaded(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    assert_status(launch(library, &plan), GEN_OK);
    assert_status(launch(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_loads, 1);
    assert_int_equal(fake.cuda->num_launches, 2);
}

static void several_launches_and_a_workspace(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_TOY); /* split: 2 launches, 2 MiB */
    const gen_toy_args args = args_for(GEN_TOY);
    assert_int_equal(plan.num_launches, 2);
    assert_status(gen_launch(library, &plan, &args.base, NULL, a_stream()), GEN_STATUS_WORKSPACE);
    assert_message("workspace is NULL, the plan needs 2097152 bytes");
    void *odd = (void *)(uintptr_t)0x10080;
    assert_status(gen_launch(library, &plan, &args.base, odd, a_stream()), GEN_STATUS_WORKSPACE);
    assert_message("allowed are multiples of 256");
    assert_int_equal(fake.cuda->num_calls, 0);
    void *workspace = (void *)(uintptr_t)0x10000;
    fake.cuda->copy_params = sizeof(struct toy_params);
    toy_num_params = 0;
    assert_status(gen_launch(library, &plan, &args.base, workspace, a_stream()), GEN_OK);
    assert_int_equal(fake.cuda->num_launches, 2);
    assert_int_equal(toy_num_params, 2); /* once a launch */
    for (uint32_t i = 0; i < 2; i++) {
        struct toy_params params;
        memcpy(&params, fake.cuda->launches[i].params, sizeof(params));
        assert_int_equal(params.launch, i);
        assert_ptr_equal(params.workspace, workspace);
    }
}

/* Only calls that succeeded may leave something behind. */
static void every_call_of_a_preload_fails_in_turn(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        int calls;
    } functions[] = {{"cuInit", 1},
                     {"cuLibraryLoadData", 1},
                     {"cuLibraryGetKernel", 1},
                     {"cuDeviceGetCount", 1},
                     {"cuDeviceGet", 2},
                     {"cuDeviceGetAttribute", 6},
                     {"cuKernelSetAttribute", 1},
                     {"cuKernelGetFunction", 1},
                     {"cuFuncLoad", 1}};
    for (size_t f = 0; f < sizeof(functions) / sizeof(functions[0]); f++) {
        for (int nth = 1; nth <= functions[f].calls; nth++) {
            char piece[128];
            fake_start();
            gen_library *library = toy_open(toy_product());
            const gen_plan plan = plan_for(library, GEN_LINE);
            fake_fail(functions[f].function, nth, 719);
            assert_status(gen_preload(library, &plan), GEN_STATUS_DRIVER);
            assert_int_equal(fake.cuda->fail_at, 0);
            snprintf(piece, sizeof(piece), "%s returned FAKE_ERROR_719 (719)",
                     functions[f].function);
            assert_message(piece);
            if (f > 0)
                assert_message(BIG90);
            /* What came after the loading failed in one context alone. */
            const unsigned long kept = f >= 7;
            assert_int_equal(fake.cuda->num_loads - fake.cuda->num_unloads, kept);
            assert_status(gen_preload(library, &plan), GEN_OK); /* and then it works */
            assert_status(launch(library, &plan), GEN_OK);
            toy_close(library);
            assert_int_equal(fake.cuda->num_loads, fake.cuda->num_unloads);
        }
    }
}

static void every_call_of_a_launch_fails_in_turn(void **state)
{
    (void)state;
    static const char *const functions[] = {"cuInit",
                                            "cuCtxGetCurrent",
                                            "cuStreamIsCapturing",
                                            "cuLibraryLoadData",
                                            "cuLibraryGetKernel",
                                            "cuDeviceGetCount",
                                            "cuDeviceGet",
                                            "cuDeviceGetAttribute",
                                            "cuKernelSetAttribute",
                                            "cuLaunchKernel"};
    for (size_t f = 0; f < sizeof(functions) / sizeof(functions[0]); f++) {
        char piece[128];
        fake_start();
        gen_library *library = toy_open(toy_product());
        const gen_plan plan = plan_for(library, GEN_LINE);
        fake_fail(functions[f], 1, 719);
        assert_status(launch(library, &plan), GEN_STATUS_DRIVER);
        snprintf(piece, sizeof(piece), "%s returned FAKE_ERROR_719 (719)", functions[f]);
        assert_message(piece);
        assert_int_equal(fake.cuda->num_launches, 0);
        assert_status(launch(library, &plan), GEN_OK);
        toy_close(library);
        assert_int_equal(fake.cuda->num_loads, fake.cuda->num_unloads);
    }
}

static void half_of_an_operator_never_runs(void **state)
{
    gen_library *library = *state;
    gen_plan plan = plan_for(library, GEN_TOY);
    const gen_toy_args args = args_for(GEN_TOY);
    void *workspace = (void *)(uintptr_t)0x10000;
    /* The second launch is of another kernel, which cannot be loaded. */
    gen_plan other = {.size = sizeof(other)};
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_TOY, 4);
    assert_status(
        gen_select_variant(library, &device, &problem.base, "toy_bf16_d64__sm90a_a", &other),
        GEN_OK);
    plan.launch[1] = other.launch[0];
    gen__plan_seal(&plan);
    fake_fail("cuLibraryLoadData", 2, 719);
    assert_status(gen_launch(library, &plan, &args.base, workspace, a_stream()), GEN_STATUS_DRIVER);
    assert_int_equal(fake.cuda->num_launches, 0);
    fake.cuda->capturing = 1; /* the first kernel is loaded, the second is not */
    assert_status(gen_launch(library, &plan, &args.base, workspace, a_stream()),
                  GEN_STATUS_NOT_LOADED);
    assert_int_equal(fake.cuda->num_launches, 0);
}

static void a_capturing_stream_never_loads(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    fake.cuda->capturing = 1;
    assert_status(launch(library, &plan), GEN_STATUS_NOT_LOADED);
    assert_message(BIG90 " is not loaded and the stream is being captured; call gen_preload()");
    assert_int_equal(fake.cuda->num_loads, 0);
    assert_int_equal(fake.cuda->num_launches, 0);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(launch(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_launches, 1);
}

static void the_legacy_stream_beside_a_capture(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    fake_fail("cuStreamIsCapturing", 1, 906);
    assert_status(launch(library, &plan), GEN_STATUS_NOT_LOADED);
}

static void without_a_context(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    fake.cuda->no_context = 1;
    assert_status(launch(library, &plan), GEN_STATUS_DRIVER);
    assert_message("no CUDA context is current on this thread; call cuCtxSetCurrent()");
    assert_status(gen_preload(library, &plan), GEN_OK); /* needs none */
    assert_int_equal(fake.cuda->num_func_loads, 0);
    assert_status(launch(library, &plan), GEN_STATUS_DRIVER);
    assert_message("no CUDA context is current on this thread: cuLaunchKernel returned "
                   "FAKE_ERROR_201");
    fake.cuda->no_context = 0;
    assert_status(launch(library, &plan), GEN_OK);
}

static void on_another_device(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    fake.cuda->current_device = 1;
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(launch(library, &plan), GEN_STATUS_DRIVER);
    assert_message("made for sm_90a, the current context's device is sm_80; select for the device");
}

static void without_a_driver(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    setenv("GEN_LIBCUDA", SCRATCH_DIR "/no-libcuda.so", 1);
    assert_status(gen_preload(library, &plan), GEN_STATUS_NO_DRIVER);
    assert_status(launch(library, &plan), GEN_STATUS_NO_DRIVER);
}

static void an_optional_function_may_be_missing(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    const struct gen__driver *driver;
    assert_status(gen__driver_open(&driver), GEN_OK);
    struct gen__driver *table = (struct gen__driver *)(uintptr_t)driver;
    table->cuFuncLoad = NULL;
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_func_loads, 0);
}

/* Arguments of an older caller are ones with zeros, and what a newer one has more must be. */
static void arguments_of_other_versions(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    struct {
        gen_toy_args args;
        uint64_t more[GEN__MAX_ARGS / 8];
    } caller = {args_for(GEN_LINE), {0}};
    const gen_args *args = &caller.args.base;
    caller.args.base.size = sizeof(caller.args) + 8;
    assert_status(gen_launch(library, &plan, args, NULL, a_stream()), GEN_OK);
    caller.more[0] = UINT64_C(1) << 63;
    assert_status(gen_launch(library, &plan, args, NULL, a_stream()), GEN_STATUS_INVALID_ARGUMENT);
    assert_message(
        "size 32, the plan is of line: family 0x454e494c, size 24 (sizeof(gen_line_args))");
    caller.more[0] = 0;
    caller.args.base.size = GEN__MAX_ARGS + 1;
    assert_status(gen_launch(library, &plan, args, NULL, a_stream()), GEN_STATUS_INVALID_ARGUMENT);
    caller.args.base.size = offsetof(gen_toy_args, out);
    assert_status(gen_launch(library, &plan, args, NULL, a_stream()), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("toy: out is NULL");
    caller.args.base.size--;
    assert_status(gen_launch(library, &plan, args, NULL, a_stream()), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("size 15, the plan is of line");
}

static void plans_that_are_none(void **state)
{
    gen_library *library = *state;
    const gen_plan good = plan_for(library, GEN_LINE);
    const gen_toy_args args = args_for(GEN_LINE);
    gen_plan plan = {.size = sizeof(plan)};
#define MISUSE(change, piece)                                                                   \
    {                                                                                           \
        plan = good;                                                                            \
        change;                                                                                 \
        gen__plan_seal(&plan);                                                                  \
        assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_MISMATCH); \
        assert_message(piece);                                                                  \
        assert_status(gen_preload(library, &plan), GEN_STATUS_MISMATCH);                        \
        assert_message(piece);                                                                  \
    }
    MISUSE(memset(&plan, 0, sizeof(plan)), "plan->size is 0")
    MISUSE(memset(&plan, 0xff, sizeof(plan)), "plan->size is 4294967295")
    MISUSE(plan.library_digest ^= 1, "the plan was made with product")
    MISUSE(plan.family = 3, "the plan of no family of this runtime is not as gen_select() made it")
    static const char none[] = "the plan of line is not as gen_select() made it";
    MISUSE(plan.num_launches = 11, none)
    MISUSE(plan.launch[0].variant = 12, none)
    MISUSE(plan.launch[0].variant = UINT32_MAX, none)
    MISUSE(plan.launch[0].variant = 11, none)
#undef MISUSE
    assert_int_equal(fake.cuda->num_calls, 0);
    assert_status(gen_launch(NULL, &good, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_launch(library, NULL, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_preload(NULL, &good), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_preload(library, NULL), GEN_STATUS_INVALID_ARGUMENT);
}

static void wrong_arguments(void **state)
{
    gen_library *library = *state;
    const gen_plan plan = plan_for(library, GEN_LINE);
    gen_toy_args args = args_for(GEN_LINE);
    assert_status(gen_launch(library, &plan, NULL, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("args is NULL");
    args.base.size = 8;
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("size 8, the plan is of line");
    args = args_for(GEN_TOY);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("args has family 0x20594f54");
    args = args_for(GEN_LINE);
    args.out = NULL;
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("out is NULL");
    assert_int_equal(fake.cuda->num_launches, 0);
}

static void a_plan_without_launches(void **state)
{
    gen_library *library = *state;
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 0);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(launch(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_calls, 0);
}

static void a_failed_shared_memory_opt_in_elsewhere(void **state)
{
    (void)state;
    /* Text that needs 100 KiB is for the H200 and the A100, not for an L4. */
    struct product *product = product_new();
    const uint32_t family =
        product_family(product, "line", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t target = product_target(product, "compute_80", 80, GEN_PACK_PTX);
    const uint32_t group = product_group(product, "line_bf16_d64", "bf16,64", family, target);
    product_variant(product, group,
                    (struct product_variant){.name = "line_x", .shared_dynamic = 100 * 1024});
    gen_library *library = toy_open(product);
    fake.cuda->devices[2] = (struct fake_device){
        .name = "NVIDIA L4", .major = 8, .minor = 9, .num_sms = 58, .shared_per_block = 99 * 1024};
    fake.cuda->num_devices = 3;
    const gen_plan plan = plan_for(library, GEN_LINE);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(fake.cuda->num_attributes, 2);
    toy_close(library);
}

static void static_shared_memory_counts_towards_the_opt_in(void **state)
{
    (void)state;
    struct product *product = product_new();
    const uint32_t family =
        product_family(product, "line", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t target = product_target(product, "compute_80", 80, GEN_PACK_PTX);
    const uint32_t group = product_group(product, "line_bf16_d64", "bf16,64", family, target);
    product_variant(product, group,
                    (struct product_variant){
                        .name = "line_x", .shared_dynamic = 48 * 1024, .shared_static = 16});
    gen_library *library = toy_open(product);
    const gen_plan plan = plan_for(library, GEN_LINE);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_true(fake.cuda->num_attributes > 0);
    toy_close(library);
}

static void clusters_of_more_than_eight_are_opted_into(void **state)
{
    (void)state;
    static const struct {
        uint32_t cluster, shared;
        unsigned long clusters, attributes; /* of the H200 alone, whose code it is */
    } cases[] = {{8, 0, 0, 0}, {16, 0, 1, 0}, {9, 100 * 1024, 1, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake_start();
        struct product *product = product_new();
        const uint32_t family =
            product_family(product, "line", "dtype,dim", "blocks,weight,launches,workspace");
        const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
        const uint32_t group = product_group(product, "line_bf16_d64", "bf16,64", family, target);
        product_variant(product, group,
                        (struct product_variant){.name = "line_x",
                                                 .image_for = 90,
                                                 .cluster = cases[i].cluster,
                                                 .shared_dynamic = cases[i].shared});
        gen_library *library = toy_open(product);
        const gen_plan plan = plan_for(library, GEN_LINE);
        assert_status(gen_preload(library, &plan), GEN_OK);
        assert_int_equal(fake.cuda->num_clusters, cases[i].clusters);
        assert_int_equal(fake.cuda->num_attributes, cases[i].attributes);
        toy_close(library);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_driver_is_told),
        TEST(a_dependent_launch),
        TEST(launching_loads_what_is_not_loaded),
        TEST(several_launches_and_a_workspace),
        cmocka_unit_test(every_call_of_a_preload_fails_in_turn),
        cmocka_unit_test(every_call_of_a_launch_fails_in_turn),
        TEST(half_of_an_operator_never_runs),
        TEST(a_capturing_stream_never_loads),
        TEST(the_legacy_stream_beside_a_capture),
        TEST(without_a_context),
        TEST(on_another_device),
        TEST(without_a_driver),
        TEST(an_optional_function_may_be_missing),
        TEST(arguments_of_other_versions),
        TEST(plans_that_are_none),
        TEST(wrong_arguments),
        TEST(a_plan_without_launches),
        TEST(a_failed_shared_memory_opt_in_elsewhere),
        TEST(static_shared_memory_counts_towards_the_opt_in),
        TEST(clusters_of_more_than_eight_are_opted_into),
    };
    return cmocka_run_group_tests_name("launch", tests, fake_open, NULL);
}
