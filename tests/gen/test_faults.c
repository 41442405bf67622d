/*
 * Every call that may fail, failed once, for every command: the command says so and leaves no
 * half-written file, or it does without and its work is the same.
 */
#include "support.h"

#include <sys/stat.h>
#include <unistd.h>

#define ONLY "--templates", FIXTURES, "-t", "sm_90a", "--only", "tiny_fp32__sm90a_v1_w1_plain"

struct command {
    const char *name;
    const char *words[20];
    bool compares; /* what it prints is the same where it succeeds */
};

static const struct command commands[] = {
    {"build",
     {"build", ONLY, "-q", "-o", "out/p.fatbin", "--catalog", "out/p.tsv", "--tables", "t"},
     true},
    {"check", {"check", "--templates", FIXTURES, "-t", "sm_90a"}, true},
    {"check a product",
     {"check", "--templates", FIXTURES, "-t", "sm_90a", "--product", "good/p.fatbin", "--catalog",
      "good/p.tsv"},
     true},
    {"list", {"list", ONLY}, true},
    /* Whether a variant is in the cache is a part of these answers. */
    {"plan", {"plan", ONLY, "-q"}, false},
    {"why", {"why", "tiny_fp32__sm90a_v1_w1_plain", "--templates", FIXTURES}, false},
    {"expand", {"expand", "tiny_fp32__sm90a_v1_w1_plain", "--templates", FIXTURES}, true},
    {"expand to a folder", {"expand", ONLY, "-o", "out/sources"}, true},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

#ifdef __SANITIZE_ADDRESS__
enum { EVERY_CALL = 24 }; /* a run takes four times as long: of the calls behind these, some */
#else
enum { EVERY_CALL = 100000000 };
#endif

/* Calls whose failure no command may survive. */
static bool is_fatal(const char *call)
{
    return strcmp(call, "calloc") == 0 || strcmp(call, "write") == 0 ||
           strcmp(call, "fsync") == 0 || strcmp(call, "rename") == 0;
}

static struct outcome run(const struct command *c)
{
    const char *const *w = c->words;
    return attngen(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                   w[13], w[14], w[15], w[16], w[17], NULL);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* What stood there before, or all of what the command makes. */
static void assert_whole(const struct command *c, const char *what, const char *file)
{
    const char *path = in_scratch("out/%s", file);
    if (!exists(path))
        return;
    char *text = get(path, NULL);
    if (strcmp(text, "old") != 0 && !same_files(path, in_scratch("good/%s", file)))
        fail_msg("%s, %s: %s is half-written", c->name, what, file);
    free(text);
}

static void clear_output(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s/out' '%s/failed'", scratch(), scratch());
    assert_int_equal(system(command), 0);
    put("out/p.fatbin", "old");
    put("out/p.tsv", "old");
}

/* Files that are neither the two nor an expanded source. */
static int strange_files(void)
{
    char command[512];
    snprintf(command, sizeof command,
             "find '%s/out' -type f ! -name p.fatbin ! -name p.tsv ! -name '*.cu' | wc -l >'%s/n'",
             scratch(), scratch());
    assert_int_equal(system(command), 0);
    char *text = get(in_scratch("n"), NULL);
    int count = atoi(text);
    free(text);
    return count;
}

/* One run; false once the command made no such call any more. */
static bool fails_well(const struct command *c, const struct outcome *good, const char *call,
                       long nth, bool on)
{
    char number[32], what[128];
    snprintf(number, sizeof number, "%ld", nth);
    snprintf(what, sizeof what, "%s %ld%s", call, nth, on ? " and all later" : "");
    clear_output();
    environment("FAULT_CALL", call);
    environment("FAULT_NTH", number);
    environment("FAULT_ON", on ? "1" : NULL);
    struct outcome o = run(c);
    environment("FAULT_CALL", NULL);
    bool failed = exists(in_scratch("failed"));
    if (o.status > 2)
        fail_msg("%s, %s: status %d\n%s", c->name, what, o.status, o.err);
    if (failed && o.status != 0 && strstr(o.err, "attngen: ") == NULL)
        fail_msg("%s, %s: no message:\n%s", c->name, what, o.err);
    if (failed && o.status == 0 && (is_fatal(call) || on))
        fail_msg("%s, %s: it succeeds", c->name, what);
    if (o.status == 0 && c->compares && strcmp(o.out, good->out) != 0)
        fail_msg("%s, %s: it prints\n%s", c->name, what, o.out);
    if (!failed && o.status != 0)
        fail_msg("%s, %s was not called, and status %d\n%s", c->name, what, o.status, o.err);
    assert_whole(c, what, "p.fatbin");
    assert_whole(c, what, "p.tsv");
    if (o.status == 0 && strcmp(c->name, "build") == 0)
        assert_true(same_files(in_scratch("out/p.fatbin"), in_scratch("good/p.fatbin")));
    if (strange_files() != 0)
        fail_msg("%s, %s: it leaves a file", c->name, what);
    outcome_free(&o);
    return failed;
}

static void every_call(const char *call, bool on)
{
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        environment("FAULT_CALL", NULL);
        clear_output();
        struct outcome good = run(&commands[i]);
        assert_run(good, 0);
        /* Lua calls realloc() ten thousand times, always from the same line. */
        long nth = 1, step = strcmp(call, "realloc") == 0 ? 5 : EVERY_CALL;
        while (fails_well(&commands[i], &good, call, nth, on))
            nth += 1 + nth / step;
        print_message("%s of %s: up to %ld\n", call, commands[i].name, nth);
        /* A product and a catalog, each with its folder, are written and synced. */
        if (i == 0 && strcmp(call, "fsync") == 0)
            assert_int_equal(nth, 5);
        if (i == 0 && (strcmp(call, "write") == 0 || strcmp(call, "rename") == 0))
            assert_int_equal(nth, 3);
        outcome_free(&good);
    }
}

static int set_up(void **state)
{
    (void)state;
    use_program(ATTNGEN_FAULTY);
    environment("FAULT_FILE", in_scratch("failed"));
    environment("ASAN_OPTIONS", "detect_leaks=0"); /* it ends where it stands */
    put("t/sm90_132sm.tsv",
        "# attngen tuning table\n# format: 1\n# class: sm90_132sm\n# compute_capability: 90\n"
        "# num_sms: 132\n# memory_gbps: 4800\n# l2_bytes: 52428800\n"
        "family\trequired\tproblem\tvariant\tus\tdigest\n");
    clear_output();
    struct outcome o = run(&commands[0]);
    assert_run(o, 0);
    outcome_free(&o);
    return rename(in_scratch("out"), in_scratch("good"));
}

static void memory(void **state)
{
    (void)state;
    every_call("calloc", false);
    every_call("malloc", false);
    every_call("realloc", false);
}

static void no_memory_from_there_on(void **state)
{
    (void)state;
    every_call("calloc", true);
    every_call("realloc", true);
}

static void the_disk(void **state)
{
    (void)state;
    static const char *const calls[] = {"write", "fsync", "rename",   "close",
                                        "open",  "mkdir", "getrandom"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        every_call(calls[i], false);
}

static void reading(void **state)
{
    (void)state;
    static const char *const calls[] = {"read",    "fstat",   "stat",     "access",
                                        "opendir", "readdir", "realpath", "readlink"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        every_call(calls[i], false);
}

static void the_rest(void **state)
{
    (void)state;
    every_call("fflush", false);
    every_call("timer_create", false);
    every_call("sigaction", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),   cmocka_unit_test(no_memory_from_there_on),
        cmocka_unit_test(the_disk), cmocka_unit_test(reading),
        cmocka_unit_test(the_rest),
    };
    return cmocka_run_group_tests(tests, set_up, remove_scratch);
}
