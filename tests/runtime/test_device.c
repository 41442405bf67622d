/* Devices by name and by asking the (fake) driver, and the driver itself. */
#include "test.h"

#include "family/gpus.h"
#include "fake.h"
#include "toy.h"

static int start(void **state)
{
    (void)state;
    fake_start();
    return 0;
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t compute_capability, num_sms, gbps, l2_mib, shared_kib;
    } known[] = {
        {"h200", 90, 132, 4800, 60, 227},
        {"H200", 90, 132, 4800, 60, 227},
        {"h20", 90, 78, 4000, 60, 227},
        {"h20-3e", 90, 78, 4800, 60, 227},
        {"h100", 90, 132, 3350, 50, 227},
        {"h100-sxm", 90, 132, 3350, 50, 227},
        {"h100-pcie", 90, 114, 2039, 50, 227},
        {"a100", 80, 108, 2039, 40, 163},
        {"a100-40", 80, 108, 1555, 40, 163},
        {"a100-80", 80, 108, 2039, 40, 163},
        {"a10", 86, 72, 600, 6, 99},
        {"l40s", 89, 142, 864, 96, 99},
        {"l4", 89, 58, 300, 48, 99},
        {"rtx4090", 89, 128, 1008, 72, 99},
        {"b200", 100, 148, 8000, 126, 227},
        {"b300", 103, 148, 8000, 126, 227},
        {"rtx5090", 120, 170, 1792, 96, 99},
        {"rtxpro6000", 120, 188, 1792, 128, 99},
        {"sm_90:78", 90, 78, 4000, 60, 227},
        {"sm_90a:80", 90, 80, 4800, 60, 227},
        {"SM_90", 90, 132, 4800, 60, 227},
        {"sm_80:54", 80, 54, 2039, 40, 163},
        {"sm_120:170", 120, 170, 1792, 96, 99},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        gen_device d;
        memset(&d, 0x5a, sizeof(d));
        d.size = sizeof(d);
        assert_status(gen_device_named(known[i].name, &d), GEN_OK);
        assert_int_equal(d.size, sizeof(d));
        assert_int_equal(d.backend, GEN_BACKEND_CUDA);
        assert_int_equal(d.compute_capability, known[i].compute_capability);
        assert_int_equal(d.num_sms, known[i].num_sms);
        assert_int_equal(d.memory_gbps, known[i].gbps);
        assert_int_equal(d.l2_bytes, known[i].l2_mib << 20);
        assert_int_equal(d.shared_per_block, known[i].shared_kib << 10);
        assert_int_equal(d.shared_per_sm, (known[i].shared_kib + 1) << 10);
        assert_int_equal(d.ordinal, -1);
        assert_true(strlen(d.name) > 3);
        assert_status(gen__device_check(&d), GEN_OK);
    }
    gen_device cpu = {.size = sizeof(cpu)};
    assert_status(gen_device_named("CPU", &cpu), GEN_OK);
    assert_int_equal(cpu.backend, GEN_BACKEND_CPU);
    assert_status(gen__device_check(&cpu), GEN_OK);
    assert_int_equal(fake.cuda->num_calls, 0); /* no driver was asked */
}

static void unknown_names(void **state)
{
    (void)state;
    static const char *const unknown[] = {"",          "h2000",
                                          "gtx1080",   "sm_",
                                          "sm_90:",    "sm_90:x",
                                          "sm_90:-1",  "sm_90x:78",
                                          "sm_91",     "sm_75:40",
                                          "sm_90:78x", "sm_-90",
                                          "sm_90: 8",  "sm_99999999999999999999:8"};
    gen_device d = {.size = sizeof(d)}, before = {.size = sizeof(before)};
    memset(&d, 0x5a, sizeof(d));
    d.size = sizeof(d);
    before = d;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_status(gen_device_named(unknown[i], &d), GEN_STATUS_INVALID_ARGUMENT);
        assert_message("known are cpu, a100, ");
        assert_message("rtxpro6000");
        assert_message("such as sm_90:78");
    }
    assert_status(gen_device_named("sm_90:0", &d), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("names 0 SMs, allowed are 1 to 65535");
    assert_status(gen_device_named("sm_90:65536", &d), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_device_named(NULL, &d), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_device_named("h200", NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_memory_equal(&d, &before, sizeof(d));
}

static void targets(void **state)
{
    (void)state;
    assert_string_equal(gen__target_for(80), "sm_80");
    assert_string_equal(gen__target_for(90), "sm_90a");
    assert_string_equal(gen__target_for(103), "sm_103a");
    assert_string_equal(gen__target_for(130), "compute_80");
}

static void query(void **state)
{
    (void)state;
    gen_device d = {.size = sizeof(d)};
    assert_status(gen_device_query(0, &d), GEN_OK);
    assert_int_equal(d.size, sizeof(d));
    assert_string_equal(d.name, "NVIDIA H200");
    assert_int_equal(d.backend, GEN_BACKEND_CUDA);
    assert_int_equal(d.compute_capability, 90);
    assert_int_equal(d.num_sms, 132);
    assert_int_equal(d.shared_per_block, 232448);
    assert_int_equal(d.shared_per_sm, 233472);
    assert_int_equal(d.l2_bytes, 62914560);
    assert_int_equal(d.memory_gbps, 4917); /* 2 * 3.201 GHz * 6144 bits */
    assert_int_equal(d.ordinal, 0);
    assert_status(gen_device_query(1, &d), GEN_OK);
    assert_int_equal(d.compute_capability, 80);
    assert_int_equal(d.ordinal, 1);
    /* A driver that does not report the memory clock. */
    fake.cuda->devices[0].memory_clock = 0;
    assert_status(gen_device_query(0, &d), GEN_OK);
    assert_int_equal(d.memory_gbps, 4800);
    fake.cuda->devices[0].num_sms = 1; /* the least that is a number, and what is none */
    assert_status(gen_device_query(0, &d), GEN_OK);
    assert_int_equal(d.num_sms, 1);
    fake.cuda->devices[0].num_sms = -1;
    assert_status(gen_device_query(0, &d), GEN_OK);
    assert_int_equal(d.num_sms, 0);
    fake.cuda->devices[0].major = 77;
    assert_status(gen_device_query(0, &d), GEN_OK);
    assert_int_equal(d.memory_gbps, 0);
    assert_int_equal(fake.calls("cuInit"), 1);
}

static void no_such_device(void **state)
{
    (void)state;
    gen_device d = {.size = sizeof(d)}, before = {.size = sizeof(before)};
    memset(&d, 0x5a, sizeof(d));
    d.size = sizeof(d);
    before = d;
    assert_status(gen_device_query(2, &d), GEN_STATUS_NO_DEVICE);
    assert_message("there is no CUDA device 2; this machine has 2");
    assert_status(gen_device_query(-1, &d), GEN_STATUS_NO_DEVICE);
    assert_status(gen_device_query(0, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_memory_equal(&d, &before, sizeof(d));
    gen__driver_reset();
    fake.cuda->num_devices = 0;
    assert_status(gen_device_query(0, &d), GEN_STATUS_NO_DEVICE);
    assert_message("cuInit returned FAKE_ERROR_100 (100)");
    fake.cuda->num_devices = 1; /* not remembered */
    assert_status(gen_device_query(0, &d), GEN_OK);
}

static void every_call_of_a_query_fails_in_turn(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        int calls;
    } functions[] = {{"cuInit", 1},
                     {"cuDeviceGetCount", 1},
                     {"cuDeviceGet", 1},
                     {"cuDeviceGetName", 1},
                     {"cuDeviceGetAttribute", 8}};
    gen_device d = {.size = sizeof(d)}, before = {.size = sizeof(before)};
    memset(&d, 0x5a, sizeof(d));
    d.size = sizeof(d);
    before = d;
    for (size_t f = 0; f < sizeof(functions) / sizeof(functions[0]); f++) {
        for (int nth = 1; nth <= functions[f].calls; nth++) {
            char piece[128];
            fake_start();
            fake_fail(functions[f].function, nth, 719);
            assert_status(gen_device_query(0, &d), GEN_STATUS_DRIVER);
            snprintf(piece, sizeof(piece), "%s returned FAKE_ERROR_719 (719): the fake driver",
                     functions[f].function);
            assert_message(piece);
            assert_memory_equal(&d, &before, sizeof(d));
        }
        assert_int_equal(fake.cuda->fail_at, 0); /* it did come to that call */
    }
    /* The names of errors may fail as well. */
    fake_start();
    assert_status(gen_device_query(0, &d), GEN_OK);
    fake_fail("cuDeviceGetCount", 1, 719);
    assert_status(gen_device_query(0, &d), GEN_STATUS_DRIVER);
}

static void no_driver(void **state)
{
    (void)state;
    gen_device d = {.size = sizeof(d)};
    setenv("GEN_LIBCUDA", SCRATCH_DIR "/no-libcuda.so", 1);
    assert_status(gen_device_query(0, &d), GEN_STATUS_NO_DRIVER);
    assert_message("cannot open the CUDA driver: ");
    assert_message("no-libcuda.so");
    /* A library that is not a driver. */
    setenv("GEN_LIBCUDA", "libc.so.6", 1);
    assert_status(gen_device_query(0, &d), GEN_STATUS_NO_DRIVER);
    assert_message("libc.so.6 has no function cuInit");
    assert_null(gen__driver_symbol("cuInit"));
    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    assert_status(gen_device_query(0, &d), GEN_OK);
    assert_non_null(gen__driver_symbol("cuInit"));
    assert_null(gen__driver_symbol("cuNoSuchThing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names, start),
        cmocka_unit_test_setup(unknown_names, start),
        cmocka_unit_test_setup(targets, start),
        cmocka_unit_test_setup(query, start),
        cmocka_unit_test_setup(no_such_device, start),
        cmocka_unit_test_setup(every_call_of_a_query_fails_in_turn, start),
        cmocka_unit_test_setup(no_driver, start),
    };
    return cmocka_run_group_tests_name("device", tests, fake_open, NULL);
}
