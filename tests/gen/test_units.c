/* The parts that have no need of the whole program: hash, globs, targets,
 * compiler reports, gates, cache entries, files and scratch folders. */
#include "spec/arch.h"
#include "compile/cache.h"
#include "util/error.h"
#include "util/file.h"
#include "util/glob.h"
#include "util/hash.h"
#include "util/tsv.h"
#include "product/pack.h"
#include "compile/pool.h"
#include "compile/ptxas_log.h"
#include "support.h"
#include "expand/tokens.h"
#include "compile/scratch_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void sha256_of(const char *data, size_t size, size_t piece, char hex[65])
{
    struct hash hash;
    unsigned char digest[HASH_BYTES];
    hash_begin(&hash);
    for (size_t i = 0; i < size; i += piece)
        hash_add(&hash, data + i, size - i < piece ? size - i : piece);
    hash_end(&hash, digest);
    hash_hex(digest, hex);
}

/* What differs in layout and comments alone comes out alike, and nothing else does. */
static void tokens_are_what_the_compiler_sees(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tokens; /* NULL: it is not said what counts */
    } cases[] = {
        {"", ""},
        {"int  a;\n\n\tint b; // why\n", "int a; int b;"},
        {"a/* x\n * y */b", "a b"},
        {"  # pragma unroll\nfor (;;)\n    x();\n", "# pragma unroll\nfor (;;) x();"},
        {"x\n#define A 1 /* one */\n#define B \\\n  2\ny", "x\n#define A 1\n#define B 2\ny"},
        {"#define A 1 /* over\nlines */ + 2\nb", "#define A 1 + 2\nb"},
        {"#line 7 \"a // b\"\na\n # line 9\nb\n#linear", "a b\n#linear"},
        {"s = \"a  // b /* \\\" */\"; c = '\"'; // d", "s = \"a  // b /* \\\" */\"; c = '\"';"},
        {"n = 1'000'0ff; // \"", "n = 1'000'0ff;"},
        {"a // joined \\\nstill a comment\nb", "a b"},
        {"ab\\\ncd -\\\n-e", "abcd --e"},
        {"a - -b", "a - -b"},
        {"static_assert(x, \"y\");  z", "static_assert(x, \"y\"); z"},
        {"asserted  = 1", "asserted = 1"},
        {"a  /* open", "a"},
        {"\\", "\\"},
        {"a  = __LINE__;", NULL},
        {"assert (a);  b // c", NULL},
        {"R\"(  // )\"  c", NULL},
        {"x = u8' '; y = '//'; // z", NULL},
        {"x = u8'a'; y", NULL},
        {"a  = 'b\n", NULL},
    };
    char out[256];
    size_t none;
    assert_false(tokens_of("a\0b", 3, out, &none));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = strlen(cases[i].text), got;
        assert_int_equal(tokens_of(cases[i].text, size, out, &got), cases[i].tokens != NULL);
        assert_true(got <= size);
        if (cases[i].tokens == NULL)
            continue;
        if (got != strlen(cases[i].tokens) || memcmp(out, cases[i].tokens, got) != 0)
            fail_msg("'%s': '%.*s'", cases[i].text, (int)got, out);
    }
}

/* FIPS 180-4's examples. */
static void hash_is_sha256(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char hex[65];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sha256_of(cases[i].text, strlen(cases[i].text), 1000, hex);
        assert_string_equal(hex, cases[i].hex);
    }
    char *million = malloc(1000000);
    memset(million, 'a', 1000000);
    for (size_t piece = 1; piece < 300; piece += 61) {
        sha256_of(million, 1000000, piece, hex);
        assert_string_equal(hex,
                            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(million);
}

static void fields_do_not_run_together(void **state)
{
    (void)state;
    unsigned char x[HASH_BYTES], y[HASH_BYTES];
    struct hash hash;
    hash_begin(&hash);
    hash_string(&hash, "ab");
    hash_string(&hash, "c");
    hash_end(&hash, x);
    hash_begin(&hash);
    hash_string(&hash, "a");
    hash_string(&hash, "bc");
    hash_end(&hash, y);
    assert_memory_not_equal(x, y, HASH_BYTES);
    assert_int_equal(hash_short((const unsigned char[HASH_BYTES]){1, 2, 3, 4, 5, 6, 7, 8, 9}),
                     0x0102030405060708);
}

static void globs(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"", "", true},           {"", "a", false},
        {"*", "", true},          {"a*", "abc", true},
        {"*c", "abc", true},      {"*b*", "abc", true},
        {"a?c", "abc", true},     {"a?", "abc", false},
        {"a*c*e", "abcde", true}, {"a*ce", "abcde", false},
        {"*ab", "aab", true},     {"*a*a*b", "aaaaaaaaaaaaaaac", false},
        {"[a]", "a", false},      {"x__sm90a*", "x__sm90a_t4", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (glob_match(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("'%s' against '%s'", cases[i].pattern, cases[i].name);
}

static void target_names(void **state)
{
    (void)state;
    const struct arch *hopper = arch_find("sm_90a");
    assert_non_null(hopper);
    assert_ptr_equal(arch_find("sm90a"), hopper);
    assert_ptr_equal(arch_find("90a"), hopper);
    assert_ptr_equal(arch_find("SM_90A"), hopper);
    assert_non_null(arch_find("compute_80"));
    assert_ptr_equal(arch_find("ptx80"), arch_find("compute_80"));
    assert_ptr_equal(arch_find("ptx"), arch_find("compute_80"));
    assert_ptr_not_equal(arch_find("80"), arch_find("compute_80"));
    const char *const unknown[] = {"", "90", "sm_90", "sm_", "a", "compute_90", "x80", "all"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_null(arch_find(unknown[i]));
}

static void targets_for_gpus(void **state)
{
    (void)state;
    static const struct {
        int cc;
        const char *target;
    } cases[] = {{80, "sm_80"},       {86, "sm_86"},      {87, "sm_86"},    {89, "sm_89"},
                 {90, "sm_90a"},      {100, "sm_100a"},   {103, "sm_103a"}, {120, "sm_120a"},
                 {121, "compute_80"}, {110, "compute_80"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(arch_for_gpu(cases[i].cc)->name, cases[i].target);
    assert_null(arch_for_gpu(75));
}

static const char clean[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 66 registers, used 1 barriers, 1024 bytes smem\n"
    "ptxas info    : Compile time = 13.008 ms\n";

static void report_of_a_clean_kernel(void **state)
{
    (void)state;
    struct report report;
    struct arena arena = {0};
    ptxas_log_parse(clean, &report);
    assert_int_equal(report.entries, 1);
    assert_string_equal(report.entry, "k");
    assert_int_equal(report.registers, 66);
    assert_int_equal(report.shared_static, 1024);
    assert_int_equal(report.stack + report.spill_stores + report.spill_loads, 0);
    assert_false(report.serialized);
    assert_null(ptxas_log_messages(&arena, clean));
    arena_free(&arena);
}

static void report_of_warnings(void **state)
{
    (void)state;
    struct arena arena = {0};
    char *text = ptxas_log_messages(
        &arena, "/attngen/templates/a/b.cu.in(77): warning #177-D: variable \"x\" was declared\n"
                "   int x;\n"
                "       ^\n"
                "\n"
                "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n"
                "lib/c.cuh(3): error: identifier \"y\" is undefined\n"
                "f(x): not a place\n"
                "ptxas info    : Used 3 registers\n");
    assert_string_equal(text, "a/b.cu.in:77: warning #177-D: variable \"x\" was declared\n"
                              "   int x;\n"
                              "       ^\n"
                              "\n"
                              "lib/c.cuh:3: error: identifier \"y\" is undefined\n"
                              "f(x): not a place");
    arena_free(&arena);
}

static const char *gate(const char *log, struct variant *variant)
{
    static struct arena arena;
    arena_free(&arena);
    struct report report;
    ptxas_log_parse(log, &report);
    return ptxas_log_gate(&arena, variant, &report);
}

#define ENTRY "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"

static void gates(void **state)
{
    (void)state;
    struct variant v = {.arch = arch_find("sm_90a"), .threads = 128, .max_registers = 128};
    assert_null(gate(clean, &v));
    assert_string_equal(gate(ENTRY "ptxas         .     8 bytes stack frame, 4 bytes spill stores, "
                                   "12 bytes spill loads\n",
                             &v),
                        "spills registers: 4 bytes stored, 12 bytes loaded");
    assert_string_equal(gate(ENTRY
                             "ptxas         .     400 bytes stack frame, 0 bytes spill stores, "
                             "0 bytes spill loads\n",
                             &v),
                        "uses local memory: a stack frame of 400 bytes");
    assert_string_equal(gate(ENTRY "ptxas info    : (C7510) Potential Performance Loss: "
                                   "wgmma.mma_async instructions are serialized\n",
                             &v),
                        "ptxas serialized its wgmma instructions (C75xx)");
    /* Text in the kernel's own warnings is no report. */
    assert_null(gate("x.cu(1): warning: (C7510) 400 bytes stack frame\n", &v));
    v.max_registers = 65;
    assert_string_equal(gate(clean, &v), "uses 66 registers, its plan allows 65");
    v.max_registers = 255;
    v.threads = 1024;
    assert_string_equal(gate(clean, &v),
                        "a block needs 73728 registers, an SM of sm_90a has 65536");
    v.threads = 128;
    v.shared = 232448 - 1024;
    assert_null(gate(clean, &v));
    v.shared++;
    assert_string_equal(gate(clean, &v), "needs 232449 bytes of shared memory (1024 static, "
                                         "231425 dynamic), sm_90a allows 232448");
}

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

static void lines_and_fields(void **state)
{
    (void)state;
    char text[] = "a\tb\r\n\nc", *fields[3];
    struct tsv lines = {.rest = text};
    char *line = tsv_next(&lines);
    assert_int_equal(tsv_split(line, fields, 3), 2);
    assert_string_equal(fields[0], "a");
    assert_string_equal(fields[1], "b");
    assert_string_equal(tsv_next(&lines), "");
    assert_string_equal(tsv_next(&lines), "c");
    assert_int_equal(lines.number, 3);
    assert_null(tsv_next(&lines));
    assert_null(tsv_next(&(struct tsv){.rest = NULL}));
    char many[] = "1\t2\t3\t4";
    assert_int_equal(tsv_split(many, fields, 3), 3);
    assert_string_equal(fields[2], "3");
}

static int read_tables(lua_State *L)
{
    struct session *session = lua_touserdata(L, 1);
    const char *const paths[] = {in_scratch("sealed")};
    struct pack_tables tables = {0};
    pack_read_tables(session, paths, 1, &tables);
    return 0;
}

/* As another user, where this one may read everything. */
static void a_folder_of_tables_that_cannot_be_read(void **state)
{
    (void)state;
    struct session session = {.L = luaL_newstate()};
    char message[512] = "";
    put("sealed/sm90_132sm.tsv", "x\n");
    assert_int_equal(chmod(in_scratch("sealed"), 0), 0);
    assert_int_equal(chmod(scratch(), 0755), 0);
    if (geteuid() == 0 && seteuid(65534) != 0) {
        lua_close(session.L);
        skip();
    }
    lua_pushcfunction(session.L, read_tables);
    lua_pushlightuserdata(session.L, &session);
    int status = lua_pcall(session.L, 1, 0, 0);
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    if (status != LUA_OK && failure_message(session.L, -1) != NULL)
        snprintf(message, sizeof message, "%s", failure_message(session.L, -1));
    chmod(in_scratch("sealed"), 0700);
    lua_close(session.L);
    arena_free(&session.arena);
    assert_holds(message, "/sealed: cannot read the folder: Permission denied");
}

/* A container may have some of the machine's CPUs. */
static void jobs_are_for_the_own_cpus(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int jobs = pool_default_jobs();
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(jobs, 1);
    assert_in_range(pool_default_jobs(), 1, CPU_COUNT(&all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_sha256),
        cmocka_unit_test(tokens_are_what_the_compiler_sees),
        cmocka_unit_test(fields_do_not_run_together),
        cmocka_unit_test(globs),
        cmocka_unit_test(target_names),
        cmocka_unit_test(targets_for_gpus),
        cmocka_unit_test(report_of_a_clean_kernel),
        cmocka_unit_test(report_of_warnings),
        cmocka_unit_test(gates),
        cmocka_unit_test(cache_round_trip),
        cmocka_unit_test(cache_notices_damage),
        cmocka_unit_test(cache_drops_what_was_used_longest_ago),
        cmocka_unit_test(files_appear_whole),
        cmocka_unit_test(scratch_dirs_of_the_dead_are_removed),
        cmocka_unit_test(lines_and_fields),
        cmocka_unit_test(a_folder_of_tables_that_cannot_be_read),
        cmocka_unit_test(jobs_are_for_the_own_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
