/* Plans that were changed, and structs of another size than the library's. */
#include "test.h"

#include "core/status.h"
#include "fake.h"
#include "toy.h"

#include <stdbool.h>

static const float in[4] = {1, 2, 3, 4};

struct library {
    gen_library *library;
    gen_device h200, cpu;
};

static struct library open_library(void)
{
    struct library l = {
        .library = toy_open(toy_product()), .h200 = toy_device("h200"), .cpu = toy_device("cpu")};
    fake_start();
    return l;
}

/* ---- plans --------------------------------------------------------------- */

static void refuse(const gen_library *library, const gen_plan *plan, float *out)
{
    const gen_toy_args args = {{sizeof(args), plan->family}, in, out};
    assert_status(gen_launch(library, plan, &args.base, NULL, NULL), GEN_STATUS_MISMATCH);
    assert_status(gen_preload(library, plan), GEN_STATUS_MISMATCH);
}

/* Of every byte one bit, and of every word some values that a wrong program may write. */
static void a_changed_plan_is_refused(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 1, 2, 5, 64, 1u << 20, INT32_MAX, 1u << 31, UINT32_MAX};
    struct library l = open_library();
    const gen_device *devices[] = {&l.h200, &l.cpu};
    const gen_toy_problem problem = toy_problem(GEN_LINE, 4);
    for (size_t d = 0; d < 2; d++) {
        gen_plan plan = {.size = sizeof(plan)}, good;
        float out[4] = {0};
        assert_status(gen_select(l.library, devices[d], &problem.base, &plan), GEN_OK);
        const unsigned long calls = fake.cuda->num_calls;
        good = plan;
        for (size_t i = 0; i < sizeof(plan); i++) {
            ((unsigned char *)&plan)[i] ^= (unsigned char)(1u << i % 8);
            refuse(l.library, &plan, out);
            plan = good;
        }
        for (size_t i = 0; i + 4 <= sizeof(plan); i += 4)
            for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
                memcpy((char *)&plan + i, &values[v], 4);
                if (memcmp(&plan, &good, sizeof(plan)) != 0)
                    refuse(l.library, &plan, out);
                plan = good;
            }
        assert_int_equal(fake.cuda->num_calls, calls);
        assert_true(out[0] == 0.0f && out[3] == 0.0f);
        const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
        assert_status(gen_launch(l.library, &plan, &args.base, NULL, NULL), GEN_OK);
        if (d == 1)
            assert_true(out[0] == 2.0f && out[3] == 8.0f);
    }
    toy_close(l.library);
}

static void halves_of_two_plans_are_none(void **state)
{
    (void)state;
    struct library l = open_library();
    const gen_toy_problem small = toy_problem(GEN_LINE, 1), large = toy_problem(GEN_LINE, 1000);
    gen_plan a = {.size = sizeof(a)}, b = {.size = sizeof(b)};
    float out[1] = {0};
    assert_status(gen_select(l.library, &l.cpu, &small.base, &a), GEN_OK);
    assert_status(gen_select(l.library, &l.cpu, &large.base, &b), GEN_OK);
    memcpy(a.dims, b.dims, sizeof(a.dims));
    refuse(l.library, &a, out);
    assert_message("the plan of line is not as gen_select() made it");
    toy_close(l.library);
}

/* As many launches as a plan has room for; and a number that is allowed is not what is wrong. */
static void as_many_launches_as_there_may_be(void **state)
{
    (void)state;
    struct product *product = product_new();
    const uint32_t family =
        product_family(product, "line", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t group = product_group(product, "line_bf16_d64", "bf16,64", family, target);
    product_variant(product, group,
                    (struct product_variant){.name = "line_bf16_d64__sm90a_a",
                                             .facts = {1, 10, GEN_PLAN_MAX_LAUNCHES},
                                             .image_for = 90});
    gen_library *library = toy_open(product);
    const gen_device h200 = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 4);
    gen_plan plan = {.size = sizeof(plan)};
    float out[4];
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    fake_start();
    assert_status(gen_select(library, &h200, &problem.base, &plan), GEN_OK);
    assert_int_equal(plan.num_launches, GEN_PLAN_MAX_LAUNCHES);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    assert_int_equal(fake.cuda->num_launches, GEN_PLAN_MAX_LAUNCHES);
    plan.dims[0]++;
    refuse(library, &plan, out);
    assert_message("is not as gen_select() made it");
    toy_close(library);
}

/* Whatever the arguments point at. */
static void nothing_to_do_on_the_cpu(void **state)
{
    (void)state;
    struct library l = open_library();
    const gen_toy_problem problem = toy_problem(GEN_LINE, 0);
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, NULL, NULL};
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(l.library, &l.cpu, &problem.base, &plan), GEN_OK);
    assert_int_equal(plan.num_launches, 0);
    assert_status(gen_launch(l.library, &plan, &args.base, NULL, NULL), GEN_OK);
    toy_close(l.library);
}

/* Every way to a plan seals it: kept, by name, empty, logged. */
static void every_plan_is_sealed(void **state)
{
    (void)state;
    for (int logged = 0; logged < 2; logged++) {
        if (logged) {
            setenv("GEN_LOG", "select", 1);
            assert_non_null(freopen("/dev/null", "w", stderr));
        }
        struct library l = open_library();
        unsetenv("GEN_LOG");
        for (int batch = 0; batch < 5; batch++)
            for (int again = 0; again < 3; again++) {
                const gen_toy_problem problem = toy_problem(GEN_LINE, batch);
                gen_plan plan = {.size = sizeof(plan)};
                assert_status(gen_select(l.library, &l.h200, &problem.base, &plan), GEN_OK);
                assert_status(gen_preload(l.library, &plan), GEN_OK);
                assert_status(gen_select_variant(l.library, &l.h200, &problem.base,
                                                 "line_bf16_d64__sm90a_a", &plan),
                              GEN_OK);
                assert_status(gen_preload(l.library, &plan), GEN_OK);
                assert_status(gen_select(l.library, &l.cpu, &problem.base, &plan), GEN_OK);
                assert_status(gen_preload(l.library, &plan), GEN_OK);
            }
        toy_close(l.library);
    }
}

/* ---- sizes --------------------------------------------------------------- */

/* A caller of another version has this much room, and then something of its own. */
union room {
    uint32_t size;
    gen_device device;
    gen_library_info info;
    gen_variant_info variant;
    gen_plan plan;
    unsigned char bytes[GEN__MOST_OUTPUT + 64];
};

static struct library opened;
static gen_toy_problem asked;

static enum gen_status call_query(union room *r)
{
    return gen_device_query(0, &r->device);
}

static enum gen_status call_named(union room *r)
{
    return gen_device_named("h200", &r->device);
}

static enum gen_status call_named_cpu(union room *r)
{
    return gen_device_named("cpu", &r->device);
}

static enum gen_status call_named_arch(union room *r)
{
    return gen_device_named("sm_90:78", &r->device);
}

static enum gen_status call_info(union room *r)
{
    return gen_library_info_get(opened.library, &r->info);
}

static enum gen_status call_variant(union room *r)
{
    return gen_variant_get(opened.library, 0, &r->variant);
}

static enum gen_status call_select(union room *r)
{
    return gen_select(opened.library, &opened.h200, &asked.base, &r->plan);
}

static enum gen_status call_select_variant(union room *r)
{
    return gen_select_variant(opened.library, &opened.h200, &asked.base, "line_bf16_d64__sm90a_a",
                              &r->plan);
}

static void structs_of_other_versions(void **state)
{
    (void)state;
    static const struct {
        enum gen_status (*call)(union room *);
        size_t size;
        const char *message;
    } calls[] = {
        {call_query, sizeof(gen_device), "device->size is "},
        {call_named, sizeof(gen_device), "device->size is "},
        {call_named_cpu, sizeof(gen_device), "device->size is "},
        {call_named_arch, sizeof(gen_device), "device->size is "},
        {call_info, sizeof(gen_library_info), "info->size is "},
        {call_variant, sizeof(gen_variant_info), "info->size is "},
        {call_select, sizeof(gen_plan), "plan->size is "},
        {call_select_variant, sizeof(gen_plan), "plan->size is "},
    };
    opened = open_library();
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
        const uint32_t full = (uint32_t)calls[c].size;
        const uint32_t sizes[] = {0, 4, full - 8, full - 1, GEN__MOST_OUTPUT + 1, UINT32_MAX};
        const uint32_t more[] = {full, full + 1, full + 8, GEN__MOST_OUTPUT};
        union room room, before;
        asked = toy_problem(GEN_LINE, 4 + (int32_t)c);
        for (int again = 0; again < 3; again++) { /* also of what is kept */
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                memset(&room, 0x5a, sizeof(room));
                room.size = sizes[i];
                before = room;
                assert_status(calls[c].call(&room), GEN_STATUS_INVALID_ARGUMENT);
                assert_message(calls[c].message);
                assert_message("; set it before the call");
                assert_memory_equal(&room, &before, sizeof(room));
            }
            union room usual = {.size = full};
            assert_status(calls[c].call(&usual), GEN_OK);
            for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
                memset(&room, 0x5a, sizeof(room));
                room.size = more[i];
                assert_status(calls[c].call(&room), GEN_OK);
                assert_int_equal(room.size, more[i]);
                /* A plan's seal is of its size, too. */
                const size_t same = full == sizeof(gen_plan) ? offsetof(gen_plan, seal) : full;
                assert_memory_equal(room.bytes + 4, usual.bytes + 4, same - 4);
                for (size_t k = full; k < sizeof(room); k++)
                    assert_int_equal(room.bytes[k], k < more[i] ? 0 : 0x5a);
            }
        }
    }
    toy_close(opened.library);
}

/* What they give back: a device and a plan with more behind, which must be zero. */
static void structs_come_back_longer(void **state)
{
    (void)state;
    static float data[2][8];
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, data[0], data[1]};
    union room device, plan;
    opened = open_library();
    asked = toy_problem(GEN_LINE, 8);
    memset(&device, 0, sizeof(device));
    memset(&plan, 0, sizeof(plan));
    device.size = sizeof(gen_device) + 8;
    plan.size = sizeof(gen_plan) + 16;
    assert_status(gen_device_named("h200", &device.device), GEN_OK);
    assert_status(gen_select(opened.library, &device.device, &asked.base, &plan.plan), GEN_OK);
    assert_int_equal(plan.size, sizeof(gen_plan) + 16);
    assert_status(gen_preload(opened.library, &plan.plan), GEN_OK);
    assert_status(gen_launch(opened.library, &plan.plan, &args.base, NULL, NULL), GEN_OK);
    plan.bytes[sizeof(gen_plan) + 15] = 1;
    assert_status(gen_preload(opened.library, &plan.plan), GEN_STATUS_MISMATCH);
    assert_status(gen_launch(opened.library, &plan.plan, &args.base, NULL, NULL),
                  GEN_STATUS_MISMATCH);
    assert_message("plan->size is 448, expected 432");
    plan.bytes[sizeof(gen_plan) + 15] = 0;
    plan.size += 16; /* then nothing behind it is read */
    assert_status(gen_launch(opened.library, &plan.plan, &args.base, NULL, NULL),
                  GEN_STATUS_MISMATCH);
    plan.size -= 16;
    assert_status(gen_launch(opened.library, &plan.plan, &args.base, NULL, NULL), GEN_OK);
    plan.plan.dims[0]++;
    assert_status(gen_launch(opened.library, &plan.plan, &args.base, NULL, NULL),
                  GEN_STATUS_MISMATCH);
    assert_message("expected ");
    device.bytes[sizeof(gen_device) + 7] = 1;
    assert_status(gen_select(opened.library, &device.device, &asked.base, &plan.plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_message("device->size is 108, expected 100");
    toy_close(opened.library);
}

/* A struct that has grown since: its older callers get what they have room for. */
static void a_shorter_struct_gets_its_part(void **state)
{
    (void)state;
    const uint32_t from[] = {16, 2, 3, 4};
    uint32_t to[] = {12, 7, 7, 7, 7, 7};
    gen__give(to, from, sizeof(from));
    assert_memory_equal(to, ((uint32_t[]){12, 2, 3, 7, 7, 7}), sizeof(to));
    to[0] = 20;
    gen__give(to, from, sizeof(from));
    assert_memory_equal(to, ((uint32_t[]){20, 2, 3, 4, 0, 7}), sizeof(to));
    to[0] = 8;
    gen__give(to, from, sizeof(from));
    assert_memory_equal(to, ((uint32_t[]){8, 2, 3, 4, 0, 7}), sizeof(to));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_changed_plan_is_refused),
        cmocka_unit_test(halves_of_two_plans_are_none),
        cmocka_unit_test(as_many_launches_as_there_may_be),
        cmocka_unit_test(nothing_to_do_on_the_cpu),
        cmocka_unit_test(structs_of_other_versions),
        cmocka_unit_test(structs_come_back_longer),
        cmocka_unit_test(a_shorter_struct_gets_its_part),
        cmocka_unit_test(every_plan_is_sealed),
    };
    return cmocka_run_group_tests_name("misuse", tests, fake_open, NULL);
}
