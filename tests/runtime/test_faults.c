/*
 * Every call of the runtime that may fail, failed once in turn: opening a product and a table from
 * files, selecting, explaining, loading and launching. What fails says so and leaves nothing behind
 * (the address sanitizer looks for leaks), and the same works right after.
 */
#include "test.h"

#include "fake.h"
#include "toy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the calls (linked in front of libc's by --wrap) ---------------------- */

enum call { MALLOC, CALLOC, STRDUP, OPEN, FSTAT, PREAD, NUM_CALLS };
static const enum gen_status expected[NUM_CALLS] = {[MALLOC] = GEN_STATUS_OUT_OF_MEMORY,
                                                    [CALLOC] = GEN_STATUS_OUT_OF_MEMORY,
                                                    [STRDUP] = GEN_STATUS_OUT_OF_MEMORY,
                                                    [OPEN] = GEN_STATUS_IO,
                                                    [FSTAT] = GEN_STATUS_IO,
                                                    [PREAD] = GEN_STATUS_IO};
static unsigned long nth[NUM_CALLS], count[NUM_CALLS];
static bool failed, interrupts;

static bool fails(enum call call)
{
    if (++count[call] != nth[call])
        return false;
    failed = true;
    errno = expected[call] == GEN_STATUS_IO ? EIO : ENOMEM;
    return true;
}

#define CALL(kind, type, name, parameters, arguments, result)  \
    type __real_##name parameters;                             \
    type __wrap_##name parameters;                             \
    type __wrap_##name parameters                              \
    {                                                          \
        return fails(kind) ? result : __real_##name arguments; \
    }
CALL(MALLOC, void *, malloc, (size_t size), (size), NULL)
CALL(CALLOC, void *, calloc, (size_t n, size_t size), (n, size), NULL)
CALL(STRDUP, char *, strdup, (const char *text), (text), NULL)
CALL(OPEN, int, open, (const char *path, int flags), (path, flags), -1)
CALL(FSTAT, int, fstat, (int fd, struct stat *about), (fd, about), -1)

/* Interrupted, it is called again; and it may give a part of what is asked for. */
static ssize_t read_at(int fd, void *data, size_t size, off_t offset)
{
    if (fails(PREAD)) {
        if (interrupts)
            errno = EINTR;
        return -1;
    }
    const size_t part = interrupts && size > 7 ? size / 2 : size;
    return lseek(fd, offset, SEEK_SET) < 0 ? -1 : read(fd, data, part);
}

ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset)
{
    return read_at(fd, data, size, offset);
}

/* What _FORTIFY_SOURCE makes of it. */
ssize_t __wrap___pread_chk(int fd, void *data, size_t size, off_t offset, size_t room);
ssize_t __wrap___pread_chk(int fd, void *data, size_t size, off_t offset, size_t room)
{
    assert_true(size <= room);
    return read_at(fd, data, size, offset);
}

/* ---- what is done --------------------------------------------------------- */

static const char product_path[] = SCRATCH_DIR "/test_faults.fatbin";
static const char more_path[] = SCRATCH_DIR "/test_faults_more.fatbin";
static const char table_path[] = SCRATCH_DIR "/test_faults.tsv";
static const float in[16];
static float out[16];

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static int write_files(void **state)
{
    char table[8192] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    for (int i = 1; i < 40; i++) { /* more rows than the reader has room for at first */
        char problem[32];
        snprintf(problem, sizeof(problem), "tiles=%d", i);
        toy_table_row(table, sizeof(table), "line_bf16_d64", problem, "line_bf16_d64__sm90a_a",
                      "9");
    }
    struct product *product = toy_product();
    product_table(product, "sm90_132sm", table);
    size_t size;
    void *bytes = product_bytes(product, &size);
    product_free(product);
    write_file(product_path, bytes, size);
    write_file(more_path, bytes, size);
    write_file(table_path, table, strlen(table));
    free(bytes);
    return fake_open(state);
}

static int remove_files(void **state)
{
    (void)state;
    unlink(product_path);
    unlink(more_path);
    unlink(table_path);
    return 0;
}

static enum gen_status launch(gen_library *library)
{
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 16);
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    gen_plan plan = {.size = sizeof(plan)};
    char text[64];
    enum gen_status status = gen_select(library, &device, &problem.base, &plan);
    if (!status)
        status = gen_explain(library, &device, &problem.base, text, sizeof(text), NULL);
    if (!status)
        status = gen_preload(library, &plan);
    if (!status)
        status = gen_launch(library, &plan, &args.base, NULL, NULL);
    return status;
}

/* All of it; what fails is asked once more, and must work then. */
static enum gen_status work(void)
{
    const char *table = table_path, *more = more_path;
    const gen_open_options options = {.size = sizeof(options),
                                      .table_paths = &table,
                                      .num_table_paths = 1,
                                      .more_paths = &more,
                                      .num_more_paths = 1};
    gen_library *const none = (gen_library *)(void *)&failed;
    gen_library *library = none;
    fake_start();
    enum gen_status status = gen_open(&options, &library);
    if (status) {
        assert_ptr_equal(library, none);
        return status;
    }
    status = launch(library);
    if (status)
        assert_status(launch(library), GEN_OK);
    gen_close(library);
    assert_int_equal(fake.cuda->num_loads, fake.cuda->num_unloads);
    return status;
}

static int count_descriptors(void)
{
    int open = 0;
    for (int fd = 0; fd < 64; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    setenv("ATTNGEN_PRODUCT_PATH", product_path, 1);
    assert_status(work(), GEN_OK); /* what is made once in a process */
    static const unsigned least[NUM_CALLS] = {
        [MALLOC] = 13, [CALLOC] = 11, [STRDUP] = 1, [OPEN] = 3, [FSTAT] = 3, [PREAD] = 6};
    for (enum call call = 0; call < NUM_CALLS; call++) {
        const int open = count_descriptors();
        unsigned long n = 0;
        do {
            n++;
            memset(count, 0, sizeof(count));
            nth[call] = n;
            failed = false;
            const enum gen_status status = work();
            nth[call] = 0;
            if (status != (failed ? expected[call] : GEN_OK))
                fail_msg("call %d, number %lu: %s: %s", call, n, gen_status_name(status),
                         gen_last_error());
            if (status)
                assert_true(gen_last_error()[0] != '\0');
            assert_int_equal(count_descriptors(), open);
        } while (failed);
        if (n - 1 < least[call])
            fail_msg("call %d was made %lu times, expected %u at least", call, n - 1, least[call]);
    }
}

static void interrupted_reads_go_on(void **state)
{
    (void)state;
    interrupts = true;
    for (unsigned long n = 1; n < 8; n++) {
        memset(count, 0, sizeof(count));
        nth[PREAD] = n;
        assert_status(work(), GEN_OK);
    }
    nth[PREAD] = 0;
    interrupts = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(interrupted_reads_go_on),
    };
    return cmocka_run_group_tests_name("faults", tests, write_files, remove_files);
}
