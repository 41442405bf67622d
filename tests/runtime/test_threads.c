/* Eight threads on one library: select, preload, launch, fail. Run it under the
 * thread sanitizer too. */
#include "test.h"

#include "fake.h"
#include "toy.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define VARIANTS 64
#define ROUNDS 400

static gen_library *library;
static pthread_barrier_t barrier;

struct worker {
    pthread_t thread;
    unsigned seed;
    unsigned launches;
    char failure[320];
};

static gen_library *open_many(void)
{
    struct product *product = product_new();
    const uint32_t family =
        product_family(product, "line", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t group = product_group(product, "line_bf16_d64", "bf16,64", family, target);
    for (int i = 0; i < VARIANTS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "line_bf16_d64__sm90a_%02d", i);
        product_variant(
            product, group,
            (struct product_variant){
                .name = name, .shared_dynamic = 64 * 1024, .facts = {1, i + 1}, .image_for = 90});
    }
    return toy_open(product);
}

#define CHECK(condition)                                                                      \
    if (!(condition)) {                                                                       \
        snprintf(w->failure, sizeof(w->failure), "%s: %.180s", #condition, gen_last_error()); \
        break;                                                                                \
    }

static void *work(void *argument)
{
    struct worker *w = argument;
    const gen_device device = toy_device("h200");
    static const float in[1];
    static float out[1];
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned variant = (w->seed = w->seed * 1103515245u + 12345u) >> 16;
        gen_toy_problem problem = toy_problem(GEN_LINE, 1 + round);
        char name[64], piece[64];
        gen_plan plan = {.size = sizeof(plan)};
        snprintf(name, sizeof(name), "line_bf16_d64__sm90a_%02u", variant % VARIANTS);
        CHECK(!gen_select(library, &device, &problem.base, &plan));
        CHECK(!gen_select_variant(library, &device, &problem.base, name, &plan));
        if (variant & 1u << 10)
            CHECK(!gen_preload(library, &plan));
        CHECK(!gen_launch(library, &plan, &args.base, NULL, NULL));
        w->launches++;
        /* The message is this thread's own. */
        problem.dim = (int32_t)(1000 + w->seed % 1000);
        snprintf(piece, sizeof(piece), "dim = %d;", problem.dim);
        CHECK(gen_select(library, &device, &problem.base, &plan) == GEN_STATUS_INVALID_ARGUMENT);
        CHECK(strstr(gen_last_error(), piece));
    }
    return NULL;
}

static void eight_threads(void **state)
{
    (void)state;
    for (int repeat = 0; repeat < 5; repeat++) {
        struct worker workers[THREADS];
        fake_start();
        library = open_many();
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (unsigned i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){.seed = 77 * i + (unsigned)repeat};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        unsigned launches = 0;
        for (int i = 0; i < THREADS; i++) {
            pthread_join(workers[i].thread, NULL);
            launches += workers[i].launches;
            if (workers[i].failure[0])
                fail_msg("thread %d: %s", i, workers[i].failure);
        }
        pthread_barrier_destroy(&barrier);
        assert_int_equal(launches, THREADS * ROUNDS);
        assert_int_equal(fake.cuda->num_launches, launches);
        assert_int_equal(fake.cuda->num_loads, VARIANTS); /* each once */
        assert_int_equal(fake.cuda->num_attributes, VARIANTS);
        assert_int_equal(fake.calls("cuInit"), 1);
        toy_close(library);
        assert_int_equal(fake.cuda->num_unloads, VARIANTS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(eight_threads)};
    return cmocka_run_group_tests_name("threads", tests, fake_open, NULL);
}
