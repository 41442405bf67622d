/*
 * The product on a GPU: every variant against the reference, graph capture, two
 * contexts, eight threads, arguments that are errors. Exit status 77 without a
 * GPU. Runs anywhere the sources of bench/ lie beside it:
 *
 *   ATTNGEN_PRODUCT=attngen.fatbin ./test_gpu
 *
 * ATTNGEN_TEST_ONLY: a glob of variants for the first test; of the second, problems that one of
 * them serves. ATTNGEN_TEST_FAMILY: a glob of families; a simulated GPU computes but one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "verify/ahead.h"
#include "common/gpu.h"
#include "common/session.h"
#include "verify/verify.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NUM_THREADS 8
#define THREAD_ROUNDS 20
#define SKIPPED 77

static struct session session;
static struct shape_list cases;

static gen_library *open_library(void)
{
    gen_open_options options = {.size = sizeof options, .path = session.product};
    gen_library *library = NULL;
    if (gen_open(&options, &library) != GEN_OK)
        fail_msg("%s", gen_last_error());
    return library;
}

/* The first case whose controls are exactly these and which the device can run. */
static const struct shape *case_with(const char *controls)
{
    for (size_t i = 0; i < cases.count; i++) {
        gen_plan plan = {.size = sizeof plan};
        if (strcmp(cases.item[i].controls, controls) == 0 &&
            gen_select(session.library, &session.gpu.device, cases.item[i].problem, &plan) ==
                GEN_OK)
            return &cases.item[i];
    }
    fail_msg("no case with controls '%s'", controls);
    return NULL;
}

/* A case on the device with its plan, ready to be launched. */
struct ready {
    struct verify_case check;
    gen_plan plan;
    gen_args *args;
    CUdeviceptr workspace;
};

static enum gen_status get_ready(struct ready *r, const struct gpu *gpu, const struct shape *shape,
                                 const char *controls)
{
    memset(r, 0, sizeof *r);
    r->plan.size = sizeof r->plan;
    if (!verify_prepare(&r->check, shape, controls, session.library))
        return GEN_STATUS_INVALID_ARGUMENT;
    enum gen_status status = verify_upload(&r->check, gpu);
    if (status == GEN_OK)
        status = gen_select(session.library, &gpu->device, shape->problem, &r->plan);
    if (status == GEN_OK && r->plan.workspace_bytes)
        status = gpu_alloc(gpu, r->plan.workspace_bytes, &r->workspace);
    /* Room behind the struct, for a newer caller's longer one. */
    r->args = xmalloc(shape->family->args_size + sizeof(uint64_t));
    memset((char *)r->args + shape->family->args_size, 0, sizeof(uint64_t));
    buffers_args(&r->check.buffers, r->check.device, 0, r->args);
    return status;
}

static enum gen_status reset(struct ready *r, const struct gpu *gpu)
{
    enum gen_status status =
        gpu_copy(gpu, r->check.device, r->check.pristine, r->check.buffers.total_bytes);
    return status == GEN_OK ? gpu_sync(gpu) : status;
}

static enum gen_status launch(struct ready *r, const gen_library *library, const struct gpu *gpu)
{
    return gen_launch(library, &r->plan, r->args, (void *)(uintptr_t)r->workspace, gpu->stream);
}

static bool is_right(struct ready *r, const struct gpu *gpu, struct verify_result *result)
{
    memset(result, 0, sizeof *result);
    if (gpu_sync(gpu) != GEN_OK || gpu_download(gpu, r->check.actual, r->check.device,
                                                r->check.buffers.total_bytes) != GEN_OK) {
        snprintf(result->reason, sizeof result->reason, "%s", gen_last_error());
        return false;
    }
    verify_compare(&r->check, result);
    return result->ok;
}

static void put_away(struct ready *r, const struct gpu *gpu)
{
    gpu_free(gpu, r->workspace);
    free(r->args);
    verify_free(&r->check, gpu);
}

#define assert_ok(call)                                  \
    do {                                                 \
        if ((call) != GEN_OK)                            \
            fail_msg("%s: %s", #call, gen_last_error()); \
    } while (0)

#define assert_right(ready, gpu)                                     \
    do {                                                             \
        struct verify_result result_;                                \
        if (!is_right(ready, gpu, &result_))                         \
            fail_msg("%s: %s", (ready)->check.name, result_.reason); \
    } while (0)

/* ---- every variant ----------------------------------------------------- */

/* Is the variant to be checked, and can it do the problem? */
static bool is_asked_for(const struct shape *shape, const gen_variant_info *v)
{
    gen_plan plan = {.size = sizeof plan};
    return glob_match(getenv("ATTNGEN_TEST_ONLY"), v->name) &&
           strcmp(v->family, shape->family->name) == 0 &&
           gen_select_variant(session.library, &session.gpu.device, shape->problem, v->name,
                              &plan) == GEN_OK;
}

static bool any_is_asked_for(void *context, const struct shape *shape)
{
    (void)context;
    for (uint32_t i = 0; i < session.info.num_variants; i++) {
        const gen_variant_info v = session_variant(&session, i);
        if (is_asked_for(shape, &v))
            return true;
    }
    return false;
}

static void every_variant_agrees_with_the_reference(void **state)
{
    size_t checks = 0, failures = 0;
    struct verify_case c;
    (void)state;
    struct ahead *ahead = ahead_open(&cases, 0, any_is_asked_for, NULL, session.library);
    for (size_t at; ahead_take(ahead, &c, &at);) {
        assert_ok(verify_upload(&c, &session.gpu));
        for (uint32_t i = 0; i < session.info.num_variants; i++) {
            const gen_variant_info v = session_variant(&session, i);
            struct verify_result result;
            if (!is_asked_for(c.shape, &v))
                continue;
            verify_variant(&c, &session.gpu, session.library, v.name, 2, &result);
            checks++;
            if (!result.ok) {
                failures++;
                print_error("%s on %s: %s\n", v.name, c.name, result.reason);
                assert_false(gpu_is_lost(&session.gpu));
            }
        }
        verify_free(&c, &session.gpu);
    }
    ahead_close(ahead);
    print_message("%zu checks over %zu cases\n", checks, cases.count);
    assert_true(checks > 0);
    assert_int_equal(failures, 0);
}

/* Does the product hold anything for this problem? It may be one of few keys. */
static bool is_served(const struct shape *shape)
{
    for (uint32_t i = 0; i < session.info.num_variants; i++) {
        gen_variant_info v = session_variant(&session, i);
        gen_plan plan = {.size = sizeof plan};
        if (strcmp(v.family, shape->family->name) == 0 &&
            gen_select_variant(session.library, &session.gpu.device, shape->problem, v.name,
                               &plan) == GEN_OK)
            return true;
    }
    return false;
}

/* Both layouts and every dtype come from the list's keys. */
static void padding_rows_touch_nothing(void **state)
{
    size_t keys = 0;
    (void)state;
    for (size_t i = 0; i < cases.count; i++) {
        struct ready r;
        if (strcmp(cases.item[i].controls, "@pad") != 0 || !any_is_asked_for(NULL, &cases.item[i]))
            continue;
        assert_ok(get_ready(&r, &session.gpu, &cases.item[i], "@pad"));
        assert_ok(reset(&r, &session.gpu));
        assert_ok(launch(&r, session.library, &session.gpu));
        assert_right(&r, &session.gpu);
        put_away(&r, &session.gpu);
        keys++;
    }
    assert_true(keys >= 2 ||
                getenv("ATTNGEN_TEST_ONLY")); /* whose variants may have no such case */
}

/* ---- graph capture ----------------------------------------------------- */

static void a_captured_launch_replays(void **state)
{
    const struct gpu *gpu = &session.gpu;
    struct ready r;
    CUgraphExec graph = NULL;
    (void)state;
    assert_ok(get_ready(&r, gpu, case_with("@pad"), "@pad"));
    assert_ok(gen_preload(session.library, &r.plan));
    assert_ok(gpu_capture_begin(gpu));
    assert_ok(launch(&r, session.library, gpu));
    assert_ok(gpu_capture_end(gpu, &graph));
    for (int i = 0; i < 3; i++) {
        assert_ok(reset(&r, gpu));
        assert_ok(gpu_graph_launch(gpu, graph));
        assert_right(&r, gpu);
    }
    gpu_graph_free(gpu, graph);
    put_away(&r, gpu);
}

static void an_unloaded_kernel_does_not_load_under_capture(void **state)
{
    const struct gpu *gpu = &session.gpu;
    struct ready r;
    CUgraphExec graph = NULL;
    (void)state;
    gen_library *fresh = open_library();
    assert_ok(get_ready(&r, gpu, case_with("@pad"), "@pad"));
    assert_ok(reset(&r, gpu));
    assert_ok(gpu_capture_begin(gpu));
    assert_int_equal(launch(&r, fresh, gpu), GEN_STATUS_NOT_LOADED);
    assert_ok(gpu_capture_end(gpu, &graph)); /* the capture was not spoiled */
    gpu_graph_free(gpu, graph);
    assert_ok(gen_preload(fresh, &r.plan));
    assert_ok(launch(&r, fresh, gpu));
    assert_right(&r, gpu);
    put_away(&r, gpu);
    gen_close(fresh);
}

/* ---- contexts, threads ------------------------------------------------- */

static void one_library_serves_two_contexts(void **state)
{
    struct gpu *first = &session.gpu;
    struct gpu second = *first;
    struct ready here, there;
    (void)state;
    assert_ok(get_ready(&here, first, case_with("@pad"), "@pad"));
    assert_ok(gpu_context_create(first, &second.context));
    assert_ok(gpu_stream_create(&second, &second.stream));
    assert_ok(get_ready(&there, &second, case_with("@pad"), "@pad"));
    for (int i = 0; i < 3; i++) {
        assert_ok(gpu_context_use(first, first->context));
        assert_ok(reset(&here, first));
        assert_ok(launch(&here, session.library, first));
        assert_right(&here, first);
        assert_ok(gpu_context_use(first, second.context));
        assert_ok(reset(&there, &second));
        assert_ok(launch(&there, session.library, &second));
        assert_right(&there, &second);
    }
    put_away(&there, &second);
    gpu_stream_destroy(&second, second.stream);
    gpu_context_destroy(first, second.context);
    assert_ok(gpu_context_use(first, first->context));
    put_away(&here, first);
}

struct thread {
    pthread_t id;
    const gen_library *library;
    const struct shape *shape;
    char failure[256]; /* "": none */
};

static void run_thread(struct thread *t, const struct gpu *gpu, struct ready *r)
{
    struct verify_result result;
    for (int i = 0; i < THREAD_ROUNDS && !t->failure[0]; i++) {
        gen_plan plan = {.size = sizeof plan};
        if (reset(r, gpu) != GEN_OK ||
            gen_select(t->library, &gpu->device, t->shape->problem, &plan) != GEN_OK ||
            gen_launch(t->library, &plan, r->args, (void *)(uintptr_t)r->workspace, gpu->stream) !=
                GEN_OK)
            snprintf(t->failure, sizeof t->failure, "%s", gen_last_error());
        else if (!is_right(r, gpu, &result))
            snprintf(t->failure, sizeof t->failure, "%.200s", result.reason);
    }
}

static void *thread_main(void *argument)
{
    struct thread *t = argument;
    struct gpu gpu = session.gpu; /* the same context, a stream of its own */
    struct ready r;
    if (gpu_context_use(&gpu, gpu.context) != GEN_OK ||
        gpu_stream_create(&gpu, &gpu.stream) != GEN_OK ||
        get_ready(&r, &gpu, t->shape, "@pad") != GEN_OK) {
        snprintf(t->failure, sizeof t->failure, "%s", gen_last_error());
        return NULL;
    }
    run_thread(t, &gpu, &r);
    put_away(&r, &gpu);
    gpu_stream_destroy(&gpu, gpu.stream);
    return NULL;
}

/* A fresh library, so that the threads also race to load the kernels. */
static void eight_threads_share_a_library(void **state)
{
    struct thread thread[NUM_THREADS];
    gen_library *fresh = open_library();
    size_t next = (size_t)(case_with("@pad") - cases.item); /* so that there is one */
    (void)state;
    for (int i = 0; i < NUM_THREADS; i++) {
        while (strcmp(cases.item[next % cases.count].controls, "@pad") != 0)
            next++;
        /* Pairs of threads with the same problem, pairs with different ones. */
        thread[i] = (struct thread){.library = fresh, .shape = &cases.item[next % cases.count]};
        next += (size_t)(i & 1);
        assert_int_equal(pthread_create(&thread[i].id, NULL, thread_main, &thread[i]), 0);
    }
    for (int i = 0; i < NUM_THREADS; i++)
        assert_int_equal(pthread_join(thread[i].id, NULL), 0);
    for (int i = 0; i < NUM_THREADS; i++)
        assert_string_equal(thread[i].failure, "");
    gen_close(fresh);
}

/* ---- errors ------------------------------------------------------------ */

/* Arrays of bytes that are flags lie anywhere. */
static bool is_aligned_anywhere(const char *tensor)
{
    return !strcmp(tensor, "flush") || !strcmp(tensor, "pools.has_initial");
}

/* A pointer that is not aligned is refused by its name, and so is NULL unless that says it is
 * allowed. */
static void pointers_are_checked(struct ready *r, const struct gpu *gpu)
{
    const struct buffers *b = &r->check.buffers;
    for (uint32_t t = 0; t < b->num_tensors; t++) {
        char *at = (char *)r->args + b->tensor[t].pointer_offset;
        char *pointer, *wrong, name[64];
        snprintf(name, sizeof name, ": %s ", b->tensor[t].name);
        memcpy(&pointer, at, sizeof pointer);
        if (!pointer || is_aligned_anywhere(b->tensor[t].name))
            continue; /* left out, or right */
        wrong = pointer + 1;
        memcpy(at, &wrong, sizeof wrong);
        if (launch(r, session.library, gpu) != GEN_STATUS_INVALID_ARGUMENT)
            fail_msg("%s takes%sat an odd address", r->check.shape->family->name, name + 1);
        assert_non_null(strstr(gen_last_error(), name));
        if (!strstr(gen_last_error(), "NULL, or ")) {
            wrong = NULL;
            memcpy(at, &wrong, sizeof wrong);
            assert_int_equal(launch(r, session.library, gpu), GEN_STATUS_INVALID_ARGUMENT);
            assert_non_null(strstr(gen_last_error(), name));
        }
        memcpy(at, &pointer, sizeof pointer);
    }
}

/* What a newer caller's struct has more must be zero: this library does not know it. */
static void longer_structs_have_zeros_behind(struct ready *r, const struct gpu *gpu)
{
    unsigned char *behind = (unsigned char *)r->args + r->args->size;
    r->args->size += (uint32_t)sizeof(uint64_t);
    assert_ok(launch(r, session.library, gpu));
    for (size_t i = 0; i < sizeof(uint64_t); i += sizeof(uint64_t) - 1) {
        behind[i] = 1;
        assert_int_equal(launch(r, session.library, gpu), GEN_STATUS_INVALID_ARGUMENT);
        behind[i] = 0;
    }
    r->args->size -= (uint32_t)sizeof(uint64_t);
    assert_ok(reset(r, gpu));
}

static void garbage_is_refused(const struct shape *shape, const struct gpu *gpu)
{
    struct ready r;
    assert_ok(get_ready(&r, gpu, shape, shape->controls));
    pointers_are_checked(&r, gpu);
    longer_structs_have_zeros_behind(&r, gpu);
    r.args->family++;
    assert_int_equal(launch(&r, session.library, gpu), GEN_STATUS_INVALID_ARGUMENT);
    r.args->family--;
    r.plan.library_digest++;
    assert_int_equal(launch(&r, session.library, gpu), GEN_STATUS_MISMATCH);
    r.plan.library_digest--;
    /* None of that launched anything or harmed the context. */
    assert_ok(reset(&r, gpu));
    assert_ok(launch(&r, session.library, gpu));
    assert_right(&r, gpu);
    put_away(&r, gpu);
}

/* The first case of each family that the product serves. */
static void garbage_arguments_are_errors(void **state)
{
    const struct gen__family *last = NULL;
    size_t families = 0;
    (void)state;
    for (size_t i = 0; i < cases.count; i++) {
        const struct shape *shape = &cases.item[i];
        if (shape->family == last || !is_served(shape))
            continue;
        last = shape->family;
        families++;
        garbage_is_refused(shape, &session.gpu);
    }
    assert_true(families >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_agrees_with_the_reference),
        cmocka_unit_test(padding_rows_touch_nothing),
        cmocka_unit_test(a_captured_launch_replays),
        cmocka_unit_test(an_unloaded_kernel_does_not_load_under_capture),
        cmocka_unit_test(one_library_serves_two_contexts),
        cmocka_unit_test(eight_threads_share_a_library),
        cmocka_unit_test(garbage_arguments_are_errors),
    };
    struct option_list wanted = {0}; /* none: all */
    const struct gen__family *family[64];
    util_set_program("test-gpu");
    const char *glob = getenv("ATTNGEN_TEST_FAMILY");
    if (glob)
        wanted.item[wanted.count++] = glob;
    const enum gen_status opened = gpu_open(&session.gpu, 0, 0);
    if (opened != GEN_OK) {
        const bool none = opened == GEN_STATUS_NO_DRIVER || opened == GEN_STATUS_NO_DEVICE;
        printf("%s: %s\n", none ? "skipped: no GPU" : "FAILED: a GPU that does not open",
               gen_last_error());
        return none ? SKIPPED : 1;
    }
    session_open_library(&session);
    uint32_t n = families_named(&wanted, family, 64);
    for (uint32_t i = 0; i < n; i++)
        verify_list(&cases, family[i], NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shapes_free(&cases);
    session_close(&session);
    return failed;
}
