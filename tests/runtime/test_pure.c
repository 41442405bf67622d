/* gen_select() allocates nothing and calls the system for nothing; neither does
 * gen_launch() once its kernel is loaded. The first is shown by counting in
 * wrappers that the linker puts before malloc and its kin, the second by a
 * child process that the kernel kills at its first system call. */
#include "test.h"

#include "fake.h"
#include "toy.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long num_allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void __real_free(void *at);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);
void __wrap_free(void *at);

void *__wrap_malloc(size_t size)
{
    num_allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    num_allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    num_allocations++;
    return __real_realloc(at, size);
}

void __wrap_free(void *at)
{
    num_allocations++;
    __real_free(at);
}

static gen_library *open_with_table(void)
{
    char table[4096] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=1", "line_bf16_d64__sm90a_b", "5");
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=64", "line_bf16_d64__sm90a_c", "6");
    toy_table_row(table, sizeof(table), "toy_bf16_d64", "tiles=64,length=64",
                  "toy_bf16_d64__sm90a_b", "6");
    struct product *product = toy_product();
    toy_add_pair(product);
    product_table(product, "sm90_132sm", table);
    return toy_open(product);
}

/* Selections by every rule, of a plan with parts, and ones that fail, and how
 * often they went as they should: 3 x 6 x 64 times. */
#define EXPECTED (3u * 6u * 64u)

static unsigned select_all(const gen_library *library, const gen_device devices[6])
{
    unsigned good = 0;
    for (int d = 0; d < 6; d++) {
        for (int batch = 1; batch <= 64; batch++) {
            gen_plan plan = {.size = sizeof(plan)};
            gen_toy_problem problem = toy_problem(d < 2 ? GEN_TOY : GEN_LINE, batch);
            good += gen_select(library, &devices[d], &problem.base, &plan) == GEN_OK;
            problem.batch = -1;
            good += gen_select(library, &devices[d], &problem.base, &plan) ==
                    GEN_STATUS_INVALID_ARGUMENT;
            problem = toy_problem(GEN_PAIR, batch);
            good += gen_select(library, &devices[d], &problem.base, &plan) == GEN_OK;
        }
    }
    return good;
}

static void devices_of_every_rule(gen_device devices[6])
{
    static const char *const names[6] = {"h200", "h20", "h200", "h20", "a100", "cpu"};
    for (int i = 0; i < 6; i++)
        devices[i] = toy_device(names[i]);
}

static void select_allocates_nothing(void **state)
{
    (void)state;
    gen_library *library = open_with_table();
    gen_device devices[6];
    devices_of_every_rule(devices);
    assert_true(num_allocations > 0); /* the wrappers do count */
    const unsigned long before = num_allocations;
    const unsigned good = select_all(library, devices);
    assert_int_equal(num_allocations, before);
    assert_int_equal(good, EXPECTED);
    toy_close(library);
}

static void launch_allocates_nothing(void **state)
{
    (void)state;
    fake_start();
    gen_library *library = open_with_table();
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 4);
    static const float in[4];
    static float out[4];
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_status(gen_preload(library, &plan), GEN_OK);
    const unsigned long before = num_allocations;
    enum gen_status status = GEN_OK;
    for (int i = 0; !status && i < 100; i++)
        status = gen_launch(library, &plan, &args.base, NULL, NULL);
    assert_int_equal(num_allocations, before);
    assert_status(status, GEN_OK);
    toy_close(library);
}

/* From here on any system call but exit_group() kills the process. */
static int forbid_system_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Exit status of a child under the filter; -signal where it was killed; skips
 * the test where the kernel has no filter. */
static int in_a_cage(const gen_library *library, const gen_device devices[6], int misbehave)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (forbid_system_calls())
            _exit(77);
        if (misbehave)
            (void)syscall(SYS_getppid);
        _exit(select_all(library, devices) == EXPECTED ? 0 : 1);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void select_calls_no_system(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizers' own system calls would be caught */
#endif
    gen_library *library = open_with_table();
    gen_device devices[6];
    devices_of_every_rule(devices);
    assert_int_equal(in_a_cage(library, devices, 1), -SIGSYS); /* the cage holds */
    assert_int_equal(in_a_cage(library, devices, 0), 0);
    toy_close(library);
}

static void select_writes_to_the_plan_alone(void **state)
{
    (void)state;
    gen_library *library = open_with_table();
    gen_device devices[6];
    devices_of_every_rule(devices);
    gen_toy_problem problem = toy_problem(GEN_LINE, 5);
    gen_plan first, second;
    memset(&first, 0x11, sizeof(first));
    first.size = sizeof(first);
    memset(&second, 0xee, sizeof(second));
    second.size = sizeof(second);
    for (int i = 2; i < 6; i++) {
        const gen_device device = devices[i];
        const gen_toy_problem same = problem;
        assert_status(gen_select(library, &devices[i], &problem.base, &first), GEN_OK);
        assert_status(gen_select(library, &devices[i], &problem.base, &second), GEN_OK);
        assert_memory_equal(&first, &second, sizeof(first));
        assert_memory_equal(&device, &devices[i], sizeof(device));
        assert_memory_equal(&same, &problem, sizeof(same));
    }
    toy_close(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select_allocates_nothing),
        cmocka_unit_test(launch_allocates_nothing),
        cmocka_unit_test(select_calls_no_system),
        cmocka_unit_test(select_writes_to_the_plan_alone),
    };
    return cmocka_run_group_tests_name("pure", tests, fake_open, NULL);
}
