/* The pool and the cache: warm builds, crashes and hangs of the compiler,
 * damaged entries, interrupts. The compiler is the real one with faults put
 * in front (fault_nvrtc.c). */
#include "support.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int set_up(void **state)
{
    (void)state;
    environment("LD_PRELOAD", FAULT_NVRTC);
    environment("ASAN_OPTIONS", "verify_asan_link_order=0");
    environment("FAULT_COUNT", in_scratch("count"));
    return 0;
}

static int compiles(void)
{
    struct stat st;
    int count = stat(in_scratch("count"), &st) == 0 ? (int)st.st_size : 0;
    unlink(in_scratch("count"));
    return count;
}

#define BUILD(cache, ...)                                                                         \
    attngen("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "p.fatbin", "--cache", cache, \
            "--format", "tsv", __VA_ARGS__, NULL)

static int number(const struct outcome *o, const char *column)
{
    char *text = cell(o->out, 0, column);
    int value = atoi(text);
    free(text);
    return value;
}

static void nothing_changed_nothing_compiled(void **state)
{
    (void)state;
    struct outcome o = BUILD("warm", "--catalog", "p.tsv");
    assert_run(o, 0);
    assert_int_equal(number(&o, "compiled"), 24);
    assert_int_equal(compiles(), 24);
    outcome_free(&o);
    assert_int_equal(rename(in_scratch("p.fatbin"), in_scratch("first.fatbin")), 0);
    o = BUILD("warm", "--catalog", "p.tsv");
    assert_run(o, 0);
    assert_int_equal(number(&o, "compiled"), 0);
    assert_int_equal(number(&o, "cached"), 24);
    assert_int_equal(compiles(), 0);
    assert_true(same_files(in_scratch("p.fatbin"), in_scratch("first.fatbin")));
    outcome_free(&o);
    /* Entries, and nothing else: no temporary file is left. */
    assert_int_equal(count_files(in_scratch("warm")), 24);
}

static void a_header_touches_what_includes_it(void **state)
{
    (void)state;
    copy_fixtures("h");
    put("h/tiny/tiny.cu.in", "$ if WIDTH == 4 then\n"
                             "#include \"lib/extra.cuh\"\n"
                             "$ end\n"
                             "extern \"C\" __global__ void ${NAME}(float *x) { *x = ${WIDTH}; }\n");
    put("h/lib/extra.cuh", "#include \"lib/deeper.cuh\"\n");
    put("h/lib/deeper.cuh", "// one\n");
    struct outcome o = attngen("build", "--templates", "h", "-t", "sm_90a", "-q", NULL);
    assert_run(o, 0);
    assert_int_equal(compiles(), 24);
    outcome_free(&o);
    put("h/lib/deeper.cuh", "// two\n");
    o = attngen("build", "--templates", "h", "-t", "sm_90a", "-q", NULL);
    assert_run(o, 0);
    assert_int_equal(compiles(), 8);
    outcome_free(&o);
}

static void a_crash_costs_one_variant(void **state)
{
    (void)state;
    environment("FAULT_CRASH", "tiny_fp32__sm90a_v2_w4_ring");
    put("p.fatbin", "the old one");
    struct outcome o = BUILD("crash", "-j2", "-q");
    assert_run(o, 1);
    assert_holds(o.err,
                 "attngen: 1 variants are lost because the compiler crashed or hung; the first "
                 "is tiny_fp32__sm90a_v2_w4_ring: the compiler crashed: Aborted; the same "
                 "command tries them again, and with --allow-lost the product is made");
    outcome_free(&o);
    char *old = get(in_scratch("p.fatbin"), NULL);
    assert_string_equal(old, "the old one");
    free(old);
    o = BUILD("crash", "-j2", "--allow-lost");
    assert_run(o, 0);
    assert_holds(o.err, "refused: tiny_fp32__sm90a_v2_w4_ring: the compiler crashed: Aborted");
    assert_int_equal(number(&o, "variants"), 23);
    assert_int_equal(number(&o, "crashed"), 1);
    outcome_free(&o);
    environment("FAULT_CRASH", NULL);
    compiles();
    /* It is tried again: a crash is no property of the source. */
    o = BUILD("crash", "-j2");
    assert_run(o, 0);
    assert_int_equal(number(&o, "variants"), 24);
    assert_int_equal(compiles(), 1);
    outcome_free(&o);
}

/* Memory is the machine's: a product must not lack a variant for it. */
static void a_killed_compiler_ends_the_build(void **state)
{
    (void)state;
    environment("FAULT_KILL", "tiny_fp32__sm90a_v2_w4_ring");
    struct outcome o = BUILD("killed", "-j2", "-q");
    assert_run(o, 1);
    assert_holds(o.err, "a compiler process was killed, as the system does when memory is short; a "
                        "lower --jobs needs less");
    outcome_free(&o);
    environment("FAULT_KILL", NULL);
    compiles();
    o = BUILD("killed", "-j1");
    assert_run(o, 0);
    assert_int_equal(number(&o, "variants"), 24);
    assert_true(number(&o, "cached") > 0);
    outcome_free(&o);
    compiles();
}

static void a_crash_of_every_compile(void **state)
{
    (void)state;
    environment("FAULT_CRASH", "tiny");
    struct outcome o = BUILD("crash-all", "-j2", "--allow-lost");
    assert_run(o, 1);
    assert_holds(o.err, "required key tiny_fp32 is left with no variant on sm_90a: "
                        "tiny_fp32__sm90a_v1_w4_plain was refused: the compiler crashed");
    outcome_free(&o);
    environment("FAULT_CRASH", NULL);
    compiles();
}

static void a_hang_costs_one_variant(void **state)
{
    (void)state;
    environment("FAULT_HANG", "tiny_fp64__sm90a_v8_w4_plain");
    struct outcome o = BUILD("hang", "-j2", "--timeout", "6", "-q");
    assert_run(o, 1);
    assert_holds(o.err, "1 variants are lost because the compiler crashed or hung; the first is "
                        "tiny_fp64__sm90a_v8_w4_plain: the compiler ran for more than 6 s");
    outcome_free(&o);
    o = BUILD("hang", "-j2", "--timeout", "6", "-q", "--allow-lost");
    assert_run(o, 0);
    assert_string_equal(o.err, "attngen: 1 variants are left out because the compiler crashed or "
                               "hung; the same command tries them again\n");
    outcome_free(&o);
    o = BUILD("hang", "-j2", "--timeout", "6", "--allow-lost");
    assert_run(o, 0);
    assert_holds(o.err,
                 "refused: tiny_fp64__sm90a_v8_w4_plain: the compiler ran for more than 6 s");
    assert_int_equal(number(&o, "variants"), 23);
    outcome_free(&o);
    environment("FAULT_HANG", NULL);
    compiles();
    assert_int_equal(count_files(in_scratch("hang")), 23);
}

/* Every file of a folder, damaged; returns how many. */
static int damage(const char *folder)
{
    char command[1024];
    snprintf(command, sizeof command, "find '%s' -type f | sort | head -5 >'%s'", folder,
             in_scratch("files"));
    assert_int_equal(system(command), 0);
    char *list = get(in_scratch("files"), NULL), *rest = NULL;
    int count = 0;
    for (char *path = strtok_r(list, "\n", &rest); path != NULL;
         path = strtok_r(NULL, "\n", &rest)) {
        size_t size;
        char *data = get(path, &size);
        data[size / 2] ^= 1;
        put_bytes(path, data, count % 2 == 0 ? size : size / 2);
        free(data);
        count++;
    }
    free(list);
    return count;
}

static void damaged_entries_are_made_anew(void **state)
{
    (void)state;
    struct outcome o = BUILD("damaged", "-j2");
    assert_run(o, 0);
    outcome_free(&o);
    compiles();
    assert_int_equal(rename(in_scratch("p.fatbin"), in_scratch("first.fatbin")), 0);
    assert_int_equal(damage(in_scratch("damaged")), 5);
    o = BUILD("damaged", "-j2");
    assert_run(o, 0);
    assert_holds(o.err, "a damaged cache entry of tiny_");
    assert_int_equal(compiles(), 5);
    assert_true(same_files(in_scratch("p.fatbin"), in_scratch("first.fatbin")));
    outcome_free(&o);
}

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void interrupt(int number)
{
    char cache[32];
    snprintf(cache, sizeof cache, "stopped-%d", number);
    environment("FAULT_SLOW", "200");
    put("p.fatbin", "the old one");
    int process = attngen_start("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "p.fatbin",
                                "--cache", cache, "-j2", NULL);
    /* Of what is seen there two may be on their way, one of each worker. */
    for (int i = 0; i < 200 && count_files(in_scratch("%s", cache)) < 6; i++)
        pause_ms(50);
    assert_int_equal(kill(process, number), 0);
    struct outcome o = attngen_wait(process);
    assert_run(o, 128 + number);
    environment("FAULT_SLOW", NULL);
    char *old = get(in_scratch("p.fatbin"), NULL);
    assert_string_equal(old, "the old one");
    free(old);
    if (number != SIGKILL)
        assert_holds(o.err, "interrupted; what was compiled is kept in ");
    outcome_free(&o);
    pause_ms(300); /* killed workers end */
    compiles();
    o = BUILD(cache, "-j2");
    assert_run(o, 0);
    int resumed = number == SIGKILL ? 2 : 4;
    assert_true(compiles() <= 24 - resumed);
    assert_true(count_files(in_scratch("%s", cache)) >= 24);
    outcome_free(&o);
    /* Nor does a killed build's scratch folder stay. */
    char command[512];
    snprintf(command, sizeof command, "ls '%s' | grep -q tmp", in_scratch("%s", cache));
    assert_int_not_equal(system(command), 0);
}

static void an_interrupted_build_resumes(void **state)
{
    (void)state;
    interrupt(SIGINT);
    interrupt(SIGTERM);
}

static void a_killed_build_resumes(void **state)
{
    (void)state;
    interrupt(SIGKILL);
}

static void two_builds_share_a_cache(void **state)
{
    (void)state;
    int a = attngen_start("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "a.fatbin",
                          "--cache", "shared", "-q", "-j2", NULL);
    int b = attngen_start("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "b.fatbin",
                          "--cache", "shared", "-q", "-j2", NULL);
    struct outcome x = attngen_wait(a), y = attngen_wait(b);
    assert_run(x, 0);
    assert_run(y, 0);
    assert_true(same_files(in_scratch("a.fatbin"), in_scratch("b.fatbin")));
    outcome_free(&x);
    outcome_free(&y);
    compiles();
}

/* In two containers processes have the same numbers, and neither sees the
 * other's: the builds must neither mix nor clean each other away. */
static void two_containers_share_a_cache(void **state)
{
    (void)state;
    environment("FAULT_PID", "4194305"); /* more than Linux gives */
    environment("FAULT_SLOW", "100");
    int first = attngen_start("build", "--templates", FIXTURES, "-t", "sm_80", "-o", "a.fatbin",
                              "--cache", "containers", "-q", "-j2", NULL);
    environment("FAULT_SLOW", NULL);
    for (int i = 0; i < 200 && count_files(in_scratch("containers")) < 3; i++)
        pause_ms(50);
    int second = attngen_start("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "b.fatbin",
                               "--cache", "containers", "-q", "-j2", NULL);
    struct outcome x = attngen_wait(first), y = attngen_wait(second);
    assert_run(x, 0);
    assert_run(y, 0);
    outcome_free(&x);
    outcome_free(&y);
    environment("FAULT_PID", NULL);
    x = attngen("build", "--templates", FIXTURES, "-t", "sm_80", "-o", "alone-a.fatbin", "--cache",
                "alone", "-q", NULL);
    y = attngen("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "alone-b.fatbin", "--cache",
                "alone", "-q", NULL);
    assert_run(x, 0);
    assert_run(y, 0);
    outcome_free(&x);
    outcome_free(&y);
    assert_true(same_files(in_scratch("a.fatbin"), in_scratch("alone-a.fatbin")));
    assert_true(same_files(in_scratch("b.fatbin"), in_scratch("alone-b.fatbin")));
    assert_int_equal(count_files(in_scratch("containers")), 14 + 24);
    compiles();
}

/* A build that ends over a mistake waits for what is at work; an interrupt ends
 * that wait too. */
static void an_interrupt_hurries_a_build_that_is_stopping(void **state)
{
    (void)state;
    struct timespec start, end;
    copy_fixtures("s");
    edit("s/tiny/tiny.cu.in", "// y = x / 2", "$ if WIDTH == 2 then\nthis is no C\n$ end");
    environment("FAULT_HANG", "tiny_fp32__sm90a_v1_w1_plain");
    int process = attngen_start("build", "--templates", "s", "-t", "sm_90a", "--cache", "stopping",
                                "-q", "-j2", "--timeout", "60", NULL);
    struct stat st;
    for (int i = 0; i < 400 && (stat(in_scratch("count"), &st) != 0 || st.st_size < 3); i++)
        pause_ms(50);
    pause_ms(2000); /* the third is rejected */
    assert_int_equal(compiles(), 3);
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(kill(process, SIGINT), 0);
    struct outcome o = attngen_wait(process);
    clock_gettime(CLOCK_MONOTONIC, &end);
    environment("FAULT_HANG", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "(found in tiny_fp32__sm90a_v2_w1_plain)");
    assert_true(end.tv_sec - start.tv_sec < 20);
    outcome_free(&o);
}

static time_t long_ago;

static int age_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    struct timespec times[2] = {{.tv_sec = long_ago}, {.tv_sec = long_ago}};
    return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

/* What is in the folder was used two days ago. */
static void age(const char *folder)
{
    long_ago = time(NULL) - 2 * 86400;
    assert_int_equal(nftw(folder, age_one, 16, FTW_PHYS), 0);
}

static struct outcome build_within(const char *target, const char *limit)
{
    return attngen("build", "--templates", FIXTURES, "-t", target, "-o", "p.fatbin", "--cache",
                   "limited", "--format", "tsv", limit != NULL ? "--cache-limit" : NULL, limit,
                   NULL);
}

static void a_cache_has_its_limit(void **state)
{
    (void)state;
    struct outcome o = build_within("sm_80", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    o = build_within("sm_80", "1K"); /* what was used a moment ago stays */
    assert_run(o, 0);
    outcome_free(&o);
    assert_int_equal(count_files(in_scratch("limited")), 14);
    put("limited/00/attngen-tmp-0123456789abcdef", "half an ent");
    put("limited/notes.txt", "not the cache's");
    age(in_scratch("limited"));
    put("limited/01/attngen-tmp-0123456789abcdef", "another build writes it now");
    environment("ATTNGEN_CACHE_LIMIT", "1K");
    o = build_within("sm_90a", NULL);
    assert_run(o, 0);
    assert_holds(o.err, "limited: dropped 14 compiled variants, those used longest ago, for "
                        "--cache-limit 1000\n");
    outcome_free(&o);
    assert_int_equal(count_files(in_scratch("limited")), 24 + 2);
    /* The entries that a build only reads are in use as well. */
    age(in_scratch("limited"));
    o = build_within("sm_90a", "1");
    assert_run(o, 0);
    assert_int_equal(number(&o, "cached"), 24);
    assert_lacks(o.err, "dropped");
    outcome_free(&o);
    environment("ATTNGEN_CACHE_LIMIT", "much");
    o = build_within("sm_90a", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "ATTNGEN_CACHE_LIMIT: 'much' is no size; allowed: bytes, or");
    outcome_free(&o);
    environment("ATTNGEN_CACHE_LIMIT", NULL);
    compiles();
}

/* Workers run the toolkit's program from folders of their own. */
static void the_toolkit_may_be_named_relative(void **state)
{
    (void)state;
    char script[512];
    snprintf(script, sizeof script, "#!/bin/sh\necho ran >>'%s'\nexit 3\n", in_scratch("ran"));
    put("relative/bin/fatbinary", script);
    assert_int_equal(chmod(in_scratch("relative/bin/fatbinary"), 0755), 0);
    environment("CUDA_HOME", "relative");
    struct outcome o = BUILD("relative-cache", "-j1");
    assert_run(o, 1);
    assert_holds(o.err, "relative/bin/fatbinary: it failed");
    assert_int_equal(count_files(in_scratch("ran")), 1);
    outcome_free(&o);
    environment("CUDA_HOME", NULL);
    compiles();
}

static void no_fatbinary_is_told(void **state)
{
    (void)state;
    put("broken-toolkit/bin/fatbinary", "#!/bin/sh\nexit 3\n");
    assert_int_equal(chmod(in_scratch("broken-toolkit/bin/fatbinary"), 0755), 0);
    environment("CUDA_HOME", in_scratch("broken-toolkit"));
    struct outcome o = BUILD("no-fatbinary", "-j2");
    assert_run(o, 1);
    assert_holds(o.err, "broken-toolkit/bin/fatbinary: it failed");
    outcome_free(&o);
    environment("CUDA_HOME", NULL);
    compiles();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_changed_nothing_compiled),
        cmocka_unit_test(a_header_touches_what_includes_it),
        cmocka_unit_test(a_crash_costs_one_variant),
        cmocka_unit_test(a_killed_compiler_ends_the_build),
        cmocka_unit_test(a_crash_of_every_compile),
        cmocka_unit_test(a_hang_costs_one_variant),
        cmocka_unit_test(damaged_entries_are_made_anew),
        cmocka_unit_test(an_interrupted_build_resumes),
        cmocka_unit_test(a_killed_build_resumes),
        cmocka_unit_test(two_builds_share_a_cache),
        cmocka_unit_test(two_containers_share_a_cache),
        cmocka_unit_test(an_interrupt_hurries_a_build_that_is_stopping),
        cmocka_unit_test(a_cache_has_its_limit),
        cmocka_unit_test(the_toolkit_may_be_named_relative),
        cmocka_unit_test(no_fatbinary_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, remove_scratch);
}
