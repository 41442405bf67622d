/* Tensor maps: asked of the (fake) driver once a thread, and whenever anything is different. */
#include "test.h"

#include "fake.h"
#include "families/common/tensor_map.h"

#include <pthread.h>

static int start(void **state)
{
    (void)state;
    fake_start();
    return 0;
}

/* Addresses that no test before used: a thread keeps its maps. */
static char memory[1 << 16];
static size_t used;

static struct gen__boxed fresh(void)
{
    const struct gen__boxed x = {
        .memory = memory + used,
        .extent = {64, 100, 8, 3},
        .strides = {1024, 128, 102400},
        .box = {64, 32, 1, 1},
        .type = GEN__TENSOR_BF16,
        .swizzle = GEN__TENSOR_SWIZZLE_128,
    };
    used += 256;
    return x;
}

static unsigned long encoded(void)
{
    return fake.calls("cuTensorMapEncodeTiled");
}

static const struct gen__driver *opened(void)
{
    const struct gen__driver *driver = NULL;
    assert_status(gen__tensor_maps_open("toy", &driver), GEN_OK);
    return driver;
}

/* What the driver was given of the tensor is in the map. */
static void assert_map(const struct gen__boxed *x)
{
    _Alignas(64) unsigned long long map[16];
    struct fake_tensor_map made;
    memset(map, 0x5a, sizeof map);
    assert_int_equal(gen__tensor_map(opened(), x, map), 0);
    memcpy(&made, map, sizeof made);
    assert_int_equal(made.memory, (uintptr_t)x->memory);
    assert_memory_equal(made.extent, x->extent, sizeof x->extent);
    assert_memory_equal(made.strides, x->strides, sizeof x->strides);
    assert_memory_equal(made.box, x->box, sizeof x->box);
    assert_int_equal(made.type, x->type);
    assert_int_equal(made.swizzle, x->swizzle);
    assert_int_equal(made.rank, 4);
    for (int d = 0; d < 4; d++)
        assert_int_equal(made.steps[d], 1);
    assert_true(!made.interleave && !made.promotion && !made.fill);
}

static void kept(void **state)
{
    (void)state;
    const struct gen__boxed x = fresh();
    for (int i = 0; i < 3; i++) {
        assert_map(&x);
        assert_int_equal(encoded(), 1);
    }
}

/* Those of one launch do not drive each other out, wherever they lie. */
static void several_in_turn(void **state)
{
    (void)state;
    for (int set = 0; set < 64; set++) {
        const struct gen__boxed x[3] = {fresh(), fresh(), fresh()};
        const unsigned long before = encoded();
        for (int i = 0; i < 12; i++)
            assert_map(&x[i % 3]);
        assert_int_equal(encoded() - before, 3);
    }
}

static void anything_different(void **state)
{
    (void)state;
    const struct gen__boxed x = fresh();
    assert_map(&x);
    for (size_t word = 0; word < sizeof x / 4; word++) {
        struct gen__boxed y = x;
        char *const at = (char *)&y + 4 * word;
        uint32_t value;
        memcpy(&value, at, 4);
        value += word < 18 ? 16 : 1; /* address and strides: as the driver wants them */
        memcpy(at, &value, 4);
        const unsigned long before = encoded();
        assert_map(&y);
        assert_int_equal(encoded() - before, 1);
    }
    assert_map(&x);
}

/* What the driver refuses is asked for anew. */
static void refused(void **state)
{
    (void)state;
    _Alignas(64) unsigned long long map[16];
    struct gen__boxed x = fresh();
    fake_fail("cuTensorMapEncodeTiled", 1, 7);
    assert_int_equal(gen__tensor_map(opened(), &x, map), 7);
    assert_map(&x);
    assert_int_equal(encoded(), 2);
}

static void *elsewhere(void *tensor)
{
    assert_map(tensor);
    return NULL;
}

static void threads_have_their_own(void **state)
{
    (void)state;
    struct gen__boxed x = fresh();
    pthread_t thread;
    assert_map(&x);
    assert_int_equal(pthread_create(&thread, NULL, elsewhere, &x), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(encoded(), 2);
}

static void old_driver(void **state)
{
    (void)state;
    const struct gen__driver *driver = opened();
    ((struct gen__driver *)(uintptr_t)driver)->cuTensorMapEncodeTiled = NULL;
    assert_status(gen__tensor_maps_open("toy", &driver), GEN_STATUS_NO_DRIVER);
    assert_message("toy: the CUDA driver has no function cuTensorMapEncodeTiled, which this "
                   "variant needs; a driver of CUDA 12.0 or newer has it");
    gen__driver_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(kept, start),
        cmocka_unit_test_setup(several_in_turn, start),
        cmocka_unit_test_setup(anything_different, start),
        cmocka_unit_test_setup(refused, start),
        cmocka_unit_test_setup(threads_have_their_own, start),
        cmocka_unit_test_setup(old_driver, start),
    };
    return cmocka_run_group_tests_name("tensor maps", tests, fake_open, NULL);
}
