/* A build with -DATTNGEN_NVTX=ON marks each launch for a profiler: its family and its variant. */
#include "test.h"

#include "fake.h"
#include "toy.h"

#include <dlfcn.h>

static float in[64], out[64];

/* What the profiler has written down since the last call. */
static const char *told(void)
{
    static char text[4096];
    void *profiler = dlopen(FAKE_NVTX, RTLD_NOW | RTLD_NOLOAD);
    char *log = profiler ? dlsym(profiler, "fake_nvtx_log") : NULL;
    snprintf(text, sizeof(text), "%s", log ? log : "no profiler was asked for");
    if (log)
        log[0] = '\0';
    if (profiler)
        dlclose(profiler);
    return text;
}

static enum gen_status launch(const gen_library *library, uint32_t family)
{
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(family, 16);
    const gen_toy_args args = {{sizeof(args), family}, in, out};
    static _Alignas(256) char workspace[1 << 22];
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    return gen_launch(library, &plan, &args.base, workspace, NULL);
}

static void a_range_a_launch(void **state)
{
    (void)state;
    setenv("NVTX_INJECTION64_PATH", FAKE_NVTX, 1);
    struct product *product = toy_product();
    toy_add_pair(product);
    gen_library *library = toy_open(product);
    fake_start();
    assert_status(launch(library, GEN_LINE), GEN_OK);
    assert_string_equal(told(), "domain attngen;push line line_bf16_d64__sm90a_big;pop;");
    assert_status(launch(library, GEN_LINE), GEN_OK);
    assert_string_equal(told(), "push line line_bf16_d64__sm90a_big;pop;");
    /* A part is marked with the family of its plan. */
    assert_status(launch(library, GEN_PAIR), GEN_OK);
    assert_string_equal(told(), "push pair pair_bf16_d64__sm90a_b;pop;"
                                "push pair line_bf16_d64__sm90a_big;pop;");
    /* What the driver refuses ends its range, too. */
    fake_fail("cuLaunchKernel", 1, 1);
    assert_status(launch(library, GEN_LINE), GEN_STATUS_DRIVER);
    assert_string_equal(told(), "push line line_bf16_d64__sm90a_big;pop;");
    toy_close(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_range_a_launch)};
    return cmocka_run_group_tests_name("nvtx", tests, fake_open, NULL);
}
