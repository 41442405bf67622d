/* The cache, files that appear whole, and scratch folders of builds that died. */
#include "compile/cache.h"
#include "compile/scratch_dir.h"
#include "support.h"
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void cache_round_trip(void **state)
{
    (void)state;
    struct arena arena = {0};
    const unsigned char key[HASH_BYTES] = {0xab, 0xcd}, other[HASH_BYTES] = {0xab, 0xce};
    const char *folder = in_scratch("units-cache");
    struct cache_entry entry = {.seconds = 1.5, .log = "", .image = "im\0ge", .image_size = 5}, got;
    assert_int_equal(cache_get(&arena, folder, key, &got), CACHE_MISS);
    assert_true(cache_put(folder, key, &entry));
    assert_int_equal(cache_get(&arena, folder, other, &got), CACHE_MISS);
    assert_int_equal(cache_get(&arena, folder, key, &got), CACHE_HIT);
    assert_true(got.seconds == 1.5);
    assert_string_equal(got.log, "");
    assert_int_equal(got.image_size, 5);
    assert_memory_equal(got.image, "im\0ge", 5);
    arena_free(&arena);
}

/* Every byte of an entry counts, and so does its length and its name. */
static void cache_notices_damage(void **state)
{
    (void)state;
    struct arena arena = {0};
    const unsigned char key[HASH_BYTES] = {0x12}, other[HASH_BYTES] = {0x13};
    const char *folder = in_scratch("damage");
    struct cache_entry entry = {
        .seconds = 2, .log = "log", .log_size = 3, .image = "image", .image_size = 5};
    struct cache_entry got;
    assert_true(cache_put(folder, key, &entry));
    char path[512], moved[512], zeros[65] = {0};
    memset(zeros, '0', 62);
    snprintf(path, sizeof path, "%s/12/%s", folder, zeros);
    snprintf(moved, sizeof moved, "%s/13/%s", folder, zeros);
    size_t size;
    char *bytes = get(path, &size);
    for (size_t i = 0; i <= size; i++) {
        if (i < size)
            bytes[i] ^= 0x20;
        put_bytes(path, bytes, i < size ? size : size - 1); /* the last: cut short */
        assert_int_equal(cache_get(&arena, folder, key, &got), CACHE_CORRUPT);
        assert_int_equal(cache_get(&arena, folder, key, &got), CACHE_MISS); /* removed */
        if (i < size)
            bytes[i] ^= 0x20;
    }
    put_bytes(path, "", 0);
    assert_int_equal(cache_get(&arena, folder, key, &got), CACHE_CORRUPT);
    put_bytes(path, bytes, size);
    assert_int_equal(cache_get(&arena, folder, key, &got), CACHE_HIT);
    put_bytes(moved, bytes, size);
    assert_int_equal(cache_get(&arena, folder, other, &got), CACHE_CORRUPT);
    free(bytes);
    arena_free(&arena);
}

/* Entries 0 to 3 were used so many hours ago. */
static void fill_cache(const char *folder, const int *hours, size_t count)
{
    const struct cache_entry entry = {.log = "", .image = "image", .image_size = 5};
    for (size_t i = 0; i < count; i++) {
        unsigned char key[HASH_BYTES] = {(unsigned char)i};
        char path[512], zeros[63] = {0};
        memset(zeros, '0', 62);
        assert_true(cache_put(folder, key, &entry));
        snprintf(path, sizeof path, "%s/%02zx/%s", folder, i, zeros);
        const time_t used = time(NULL) - 3600 * hours[i];
        const struct timespec times[2] = {{.tv_sec = used}, {.tv_sec = used}};
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
}

static bool cached(const char *folder, int entry)
{
    const unsigned char key[HASH_BYTES] = {(unsigned char)entry};
    struct arena arena = {0};
    struct cache_entry got;
    bool found = cache_get(&arena, folder, key, &got) == CACHE_HIT;
    arena_free(&arena);
    return found;
}

static void cache_drops_what_was_used_longest_ago(void **state)
{
    (void)state;
    static const int hours[] = {5, 90, 30, 0};
    struct arena arena = {0};
    const char *folder = in_scratch("pruned");
    struct stat st;
    char path[512];
    fill_cache(folder, hours, 4);
    snprintf(path, sizeof path, "%s/03/%062d", folder, 0);
    assert_int_equal(stat(path, &st), 0);
    uint64_t size = (uint64_t)st.st_size;
    assert_int_equal(cache_prune(&arena, folder, 4 * size, time(NULL)), 0);
    assert_int_equal(cache_prune(&arena, folder, 3 * size, time(NULL)), 1);
    assert_false(cached(folder, 1));
    /* To be read is to be used. */
    assert_true(cached(folder, 2));
    assert_int_equal(cache_prune(&arena, folder, 3 * size - 1, time(NULL)), 1);
    assert_false(cached(folder, 0));
    /* What was used since the build began, or little before, stays. */
    assert_int_equal(cache_prune(&arena, folder, 1, time(NULL)), 0);
    assert_true(cached(folder, 2));
    assert_true(cached(folder, 3));
    assert_int_equal(cache_prune(&arena, folder, 1, time(NULL) + 7200), 2);
    assert_int_equal(count_files(folder), 0);
    arena_free(&arena);
}

/* A file is written beside its place under a name that nothing else has, and
 * that fits where the file's own does. */
static void files_appear_whole(void **state)
{
    (void)state;
    char name[256] = {0};
    struct stat st;
    const char *folder = in_scratch("files");
    mode_t mask = umask(027);
    memset(name, 'n', 255);
    const char *path = in_scratch("files/%s", name);
    assert_true(file_write(path, "text", 4));
    umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(st.st_size, 4);
    /* Another container's process of this number may have left this. */
    char stale[512];
    snprintf(stale, sizeof stale, "%s/x.tmp%ld", folder, (long)getpid());
    assert_int_equal(mkdir(stale, 0777), 0);
    assert_true(file_write(in_scratch("files/x"), "more", 4));
    assert_int_equal(rmdir(stale), 0);
    assert_int_equal(count_files(folder), 2);
    assert_false(file_write(folder, "", 0));
    assert_int_equal(errno, EISDIR);
    assert_true(file_remove_folder(folder));
    assert_false(file_exists(folder));
}

/* A process with a scratch folder that something was left in; killed by SIGKILL. */
static void die_in_a_scratch_dir(const char *cache)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct arena arena = {0};
        struct scratch_dir place;
        if (!scratch_dir_open(&arena, cache, &place))
            _exit(1);
        file_write(arena_printf(&arena, "%s/0/core", place.folder), "core", 4);
        file_write(arena_printf(&arena, "%s/0/.hidden", place.folder), "", 0);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void scratch_dirs_of_the_dead_are_removed(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct scratch_dir a, b;
    const char *cache = in_scratch("scratch_dirs");
    assert_int_equal(mkdir(cache, 0777), 0);
    assert_true(scratch_dir_open(&arena, cache, &a));
    assert_true(scratch_dir_open(&arena, cache, &b));
    assert_string_not_equal(a.folder, b.folder);
    put("scratch_dirs/tmp.file", "no folder");
    put("scratch_dirs/ab/entry", "no scratch folder");
    assert_int_equal(mkdir(in_scratch("scratch_dirs/tmp.begun"), 0777), 0);
    die_in_a_scratch_dir(cache);
    assert_int_equal(count_files(cache), 2 + 2 + 3);
    scratch_dir_clean(&arena, cache);
    assert_int_equal(count_files(cache), 2 + 2);
    assert_false(file_exists(in_scratch("scratch_dirs/tmp.begun")));
    assert_true(file_exists(a.folder) && file_exists(b.folder));
    const char *folder = a.folder;
    scratch_dir_close(&arena, &a);
    assert_false(file_exists(folder));
    assert_true(file_exists(b.folder));
    scratch_dir_close(&arena, &b);
    assert_int_equal(count_files(cache), 2);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_round_trip),
        cmocka_unit_test(cache_notices_damage),
        cmocka_unit_test(cache_drops_what_was_used_longest_ago),
        cmocka_unit_test(files_appear_whole),
        cmocka_unit_test(scratch_dirs_of_the_dead_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
