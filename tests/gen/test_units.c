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
#include "expand/source.h"
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
        {"int  a;\n\n\tint b; // why\n", "int a;int b;"},
        {"a/* x\n * y */b", "a b"},
        {"  # pragma unroll\nfor (;;)\n    x();\n", "#pragma unroll\nfor(;;)x();"},
        {"x\n#define A 1 /* one */\n#define B \\\n  2\ny", "x\n#define A 1\n#define B 2\ny"},
        {"#define A 1 /* over\nlines */ + 2\nb", "#define A 1+2\nb"},
        {"#line 7 \"a // b\"\na\n # line 9\nb\n#linear", "a b\n#linear"},
        {"s = \"a  // b /* \\\" */\"; c = '\"'; // d", "s=\"a  // b /* \\\" */\";c='\"';"},
        {"n = 1'000'0ff; // \"", "n=1'000'0ff;"},
        {"a // joined \\\nstill a comment\nb", "a b"},
        {"ab\\\ncd -\\\n-e", "abcd--e"},
        {"a - -b", "a- -b"},
        {"a -- b", "a--b"},
        {"f ( x [ 1 ] , -2 ) ;", "f(x[1],-2);"},
        {"x = -1; y=- 1", "x=-1;y=-1"},
        {"a & &b && c", "a& &b&&c"},
        {"p -> q", "p->q"},
        {"p-> *q, p->*q", "p-> *q,p->*q"},
        {"v<w<1> > x", "v<w<1> >x"},
        {"1e +2, 1e+2, 0x1p -2, 1 - 2, e - 2", "1e +2,1e+2,0x1p -2,1-2,e-2"},
        {"1 .x 1.x . 5", "1 .x 1.x . 5"},
        {"asm(\"a\" \"b\" : \"=r\" (c))", "asm(\"a\"\"b\":\"=r\"(c))"},
        {"u8 'a' \"b\" x", "u8 'a'\"b\" x"},
        {"#define F(x) f (x)\n#define G (x)", "#define F(x)f (x)\n#define G (x)"},
        {"#define H - 1", "#define H-1"},
        {"static_assert(x, \"y\");  z", "static_assert(x,\"y\");z"},
        {"asserted  = 1", "asserted=1"},
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

static void paths_out_of_the_templates(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool out;
    } cases[] = {
        {"", false},      {"a", false},    {"/a", true},    {"..", true},    {"../a", true},
        {"a/../b", true}, {"a/..", true},  {"..a", false},  {".a", false},   {"a/..b/c", false},
        {"./a", false},   {"a./b", false}, {"a/.x", false}, {"x./..", true}, {"a/b/c", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (source_leads_out(cases[i].name, strlen(cases[i].name)) != cases[i].out)
            fail_msg("%s", cases[i].name);
    assert_false(source_leads_out("a/..", 3)); /* no more of the name than its size */
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
        cmocka_unit_test(paths_out_of_the_templates),
        cmocka_unit_test(globs),
        cmocka_unit_test(target_names),
        cmocka_unit_test(targets_for_gpus),
        cmocka_unit_test(report_of_a_clean_kernel),
        cmocka_unit_test(report_of_warnings),
        cmocka_unit_test(gates),
        cmocka_unit_test(lines_and_fields),
        cmocka_unit_test(a_folder_of_tables_that_cannot_be_read),
        cmocka_unit_test(jobs_are_for_the_own_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
