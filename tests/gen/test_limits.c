/* Files and scratch folders exactly at their limits, and where a call fails or another build
 * comes between. */
#include "support.h"

#include "util/arena.h"
#include "fault_calls.h"
#include "util/file.h"
#include "compile/scratch_dir.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* The length of a temporary file's name, with the slash before it. */
enum { TEMPORARY = sizeof FILE_TEMPORARY - 1 + 16 + 1 };

static int enter(void **state)
{
    (void)state;
    fault_set(NULL, 0, false);
    put("here/keep", "");
    return chdir(in_scratch("here"));
}

static int leave(void **state)
{
    (void)state;
    fault_set(NULL, 0, false);
    assert_int_equal(chdir("/"), 0);
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s/here'", scratch());
    return system(command);
}

/* "./././" of that size: a long path to a folder that is there. */
static char *dots(size_t size)
{
    char *path = malloc(size + 3);
    assert_non_null(path);
    for (size_t i = 0; i < size; i++)
        path[i] = i % 2 == 0 ? '.' : '/';
    path[size] = '\0';
    return path;
}

static bool write_below(size_t size_of_folder, const char *name)
{
    char path[2 * PATH_MAX], *folder = dots(size_of_folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    free(folder);
    errno = 0;
    return file_write(path, "x", 1);
}

/* A path has PATH_MAX bytes with its NUL, a temporary file's, too. */
static void the_longest_paths(void **state)
{
    (void)state;
    /* An even size ends in a slash, which is as good. */
    const size_t most = PATH_MAX - 1 - TEMPORARY;
    assert_true(write_below(most, "a"));
    assert_int_equal(access("a", F_OK), 0);
    assert_false(write_below(most + 1, "b"));
    assert_int_equal(errno, ENAMETOOLONG);
    assert_false(write_below(PATH_MAX, "b"));
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_not_equal(access("b", F_OK), 0);
    assert_int_equal(count_files(in_scratch("here")), 2); /* and `keep` */
    char *folder = dots(PATH_MAX - 1);
    assert_true(file_make_folder(folder));
    free(folder);
    folder = dots(PATH_MAX);
    assert_false(file_make_folder(folder));
    assert_int_equal(errno, ENAMETOOLONG);
    free(folder);
}

/* The name that is drawn is another user's: not even a link is followed. */
static void a_temporary_name_that_is_taken(void **state)
{
    (void)state;
    put("here/victim", "mine");
    assert_int_equal(symlink("victim", FILE_TEMPORARY "0000000000000000"), 0);
    fault_set("getrandom_zero", 1, false);
    assert_true(file_write("a", "new", 3));
    char *victim = get(in_scratch("here/victim"), NULL), *a = get(in_scratch("here/a"), NULL);
    assert_string_equal(victim, "mine");
    assert_string_equal(a, "new");
    free(victim);
    free(a);
    struct stat st;
    assert_int_equal(lstat(FILE_TEMPORARY "0000000000000000", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void files_have_the_rights_of_files(void **state)
{
    (void)state;
    struct stat st;
    mode_t old = umask(027);
    assert_true(file_write("a", "x", 1));
    umask(old);
    assert_int_equal(stat("a", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

/* Whichever call fails, the old file stays, and no other does. */
/* A rename would put a file where a device or a pipe was. */
static void only_files_are_replaced(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_false(file_write("pipe", "x", 1));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(stat("pipe", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(unlink("pipe"), 0);
    assert_false(file_write("../here", "x", 1));
    assert_int_equal(errno, EISDIR);
}

static void a_write_that_fails(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int error;
    } cases[] = {{"write", ENOSPC}, {"fsync", EIO}, {"close", EIO},
                 {"rename", EIO},   {"open", EIO},  {"getrandom", ENOSYS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("here/a", "old");
        fault_set(cases[i].call, 1, false);
        errno = 0;
        bool ok = file_write("a", "new text", 8);
        int error = errno;
        fault_set(NULL, 0, false);
        if (ok || error != cases[i].error)
            fail_msg("%s: %s, %s", cases[i].call, ok ? "true" : "false", strerror(error));
        char *text = get(in_scratch("here/a"), NULL);
        assert_string_equal(text, "old");
        free(text);
        assert_int_equal(count_files(in_scratch("here")), 2);
    }
    /* The folder's own: the file is whole, but may not last. */
    fault_set("fsync", 2, false);
    assert_false(file_write("a", "new", 3));
    assert_int_equal(errno, EIO);
    /* What is not synced does not call it. */
    fault_set("fsync", 1, true);
    assert_true(file_write_unsynced("a", "newer", 5));
    fault_set("close", 1, false);
    assert_false(file_write_unsynced("a", "x", 1));
    fault_set(NULL, 0, false);
    char *text = get(in_scratch("here/a"), NULL);
    assert_string_equal(text, "newer");
    free(text);
}

static int folders(void)
{
    char command[512];
    snprintf(command, sizeof command, "ls -d tmp.* 2>/dev/null | wc -l >count");
    assert_int_equal(system(command), 0);
    char *text = get(in_scratch("here/count"), NULL);
    int count = atoi(text);
    free(text);
    return count;
}

/* Between making a folder and holding its lock, a build that cleans up may take it: then it is
 * left alone and another is made. */
static void a_folder_that_another_takes(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int left; /* of the folders that were given up */
    } cases[] = {{"flock", 1}, {"stat", 1}, {"open_gone", 1}, {"flock_none", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena arena = {0};
        struct scratch_dir place;
        fault_set(cases[i].call, 1, false);
        assert_true(scratch_dir_open(&arena, ".", &place));
        fault_set(NULL, 0, false);
        if (folders() != cases[i].left + 1)
            fail_msg("%s: %d folders", cases[i].call, folders());
        scratch_dir_close(&arena, &place);
        assert_int_equal(folders(), cases[i].left);
        /* Those given up have no builds. */
        scratch_dir_clean(&arena, ".");
        assert_int_equal(folders(), 0);
        arena_free(&arena);
    }
}

static void a_folder_that_cannot_be_had(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct scratch_dir place;
    fault_set("flock", 1, true);
    errno = 0;
    assert_false(scratch_dir_open(&arena, ".", &place));
    assert_int_equal(errno, EAGAIN);
    fault_set(NULL, 0, false);
    assert_int_equal(folders(), 100);
    scratch_dir_clean(&arena, ".");
    assert_int_equal(folders(), 0);
    fault_set("open", 1, false);
    assert_false(scratch_dir_open(&arena, ".", &place));
    assert_int_equal(errno, EIO);
    fault_set("mkdtemp", 1, false);
    assert_false(scratch_dir_open(&arena, ".", &place));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_longest_paths, enter, leave),
        cmocka_unit_test_setup_teardown(a_temporary_name_that_is_taken, enter, leave),
        cmocka_unit_test_setup_teardown(files_have_the_rights_of_files, enter, leave),
        cmocka_unit_test_setup_teardown(only_files_are_replaced, enter, leave),
        cmocka_unit_test_setup_teardown(a_write_that_fails, enter, leave),
        cmocka_unit_test_setup_teardown(a_folder_that_another_takes, enter, leave),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_had, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
