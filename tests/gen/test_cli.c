/* The command line: help, options, exit statuses. */
#include "support.h"

#include <iconv.h>

static void help_of_everything(void **state)
{
    (void)state;
    static const char *const commands[] = {"list", "plan", "expand", "build", "check", "why"};
    struct outcome o = attngen("--help", NULL);
    assert_run(o, 0);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n  %-8s ", commands[i]);
        assert_holds(o.out, line);
        snprintf(line, sizeof line, "usage: attngen %s", commands[i]);
        struct outcome h = attngen(commands[i], "--help", NULL);
        assert_run(h, 0);
        assert_holds(h.out, line);
        assert_holds(h.out, "--targets LIST");
        assert_holds(h.out, "Exit status: 0 done, 1 bad input, 2 a fault of the program.");
        struct outcome w = attngen("help", commands[i], NULL);
        assert_run(w, 0);
        assert_string_equal(w.out, h.out);
        outcome_free(&h);
        outcome_free(&w);
    }
    outcome_free(&o);
    o = attngen("--version", NULL);
    assert_run(o, 0);
    assert_int_equal(strncmp(o.out, "attngen ", 8), 0);
    outcome_free(&o);
}

/* What an option does and where it starts from differs from command to command. */
static void help_says_what_is_true_of_the_command(void **state)
{
    (void)state;
    static const struct {
        const char *command, *line;
    } lines[] = {
        {"build", "or 'all'; default: the GPU's own, sm_90a without one\n"},
        {"plan", "or 'all'; default: the GPU's own, sm_90a without one\n"},
        {"list", "or 'all'; default: the GPU's own, sm_90a without one; all for families, targets "
                 "and axes\n"},
        {"expand", "or 'all'; default: all\n"},
        {"check", "or 'all'; default: the catalog's, else the product's, else all\n"},
        {"why", "or 'all'; default: all for a name; for AXIS=VALUE the GPU's own, sm_90a without"},
        {"build", "table picks, and the fallback of every required key (repeatable)\n"},
        {"expand", "variants that this tuning table picks (repeatable)\n"},
        {"list", "variants that this tuning table picks (repeatable)\n"},
        {"build", "--cache DIR        compiled variants; default: $ATTNGEN_CACHE, "
                  "$XDG_CACHE_HOME/attngen, ~/.cache/attngen\n"},
        {"build", "$ATTNGEN_CACHE_LIMIT, 1G\n"},
        {"build", "--output PATH      the product; default: attngen.fatbin\n"},
        {"expand", "--output PATH      a folder, "},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct outcome o = attngen(lines[i].command, "--help", NULL);
        assert_run(o, 0);
        assert_holds(o.out, lines[i].line);
        outcome_free(&o);
    }
    /* An option has one row in a command's help. */
    static const char *const commands[] = {"list", "plan", "expand", "build", "check", "why"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct outcome o = attngen(commands[i], "--help", NULL);
        const char *first = strstr(o.out, "--targets LIST");
        assert_non_null(first);
        assert_null(strstr(first + 1, "--targets LIST"));
        outcome_free(&o);
    }
}

static void wrong(const char *message, const char *a, const char *b, const char *c)
{
    struct outcome o = a != NULL ? attngen(a, b, c, NULL) : attngen(NULL, NULL);
    assert_run(o, 1);
    assert_holds(o.err, message);
    outcome_free(&o);
}

static void wrong_words(void **state)
{
    (void)state;
    wrong("no command given; allowed: list, plan, expand, build, check, why", NULL, NULL, NULL);
    wrong("unknown command 'bild'; allowed: list, plan, expand, build, check, why", "bild", NULL,
          NULL);
    wrong("unknown command '../x'", "../x", NULL, NULL);
    wrong("build: unknown option --frobnicate; allowed: --families, --targets", "build",
          "--frobnicate", NULL);
    wrong("list: unknown option --jobs; allowed: ", "list", "--jobs", "3");
    wrong("build: unknown option -x", "build", "-x", NULL);
    wrong("build: --output wants a value: PATH", "build", "-o", NULL);
    wrong("build: --quiet takes no value, found 'yes'", "build", "--quiet=yes", NULL);
    wrong("--jobs: '0' is no number; allowed: 1 to 1000000", "build", "-j0", NULL);
    wrong("--jobs: 'many' is no number", "build", "--jobs", "many");
    wrong("--jobs: '3x' is no number", "build", "--jobs=3x", NULL);
    wrong("--format: 'xml' is unknown; allowed: table, tsv, json", "list", "--format", "xml");
    wrong("--targets: unknown target 'sm_75'; allowed: all, sm_80, sm_86, sm_89, sm_90a, sm_100a, "
          "sm_103a, sm_120a, compute_80",
          "list", "-t", "sm_75");
    wrong("--output: it is empty", "build", "-o", "");
    wrong("--families: '' names nothing; allowed: names, comma-separated", "build", "-f", "");
    wrong("--targets: '' names nothing; allowed: names, comma-separated", "list",
          "--targets=", NULL);
    wrong("--targets: ',' names nothing", "check", "--targets", ",");
    wrong("--only: it is empty; allowed: GLOB", "plan", "--only", "");
    wrong("--tables: it is empty; allowed: PATH", "build", "--tables", "");
    wrong("expand: unknown option --line-info", "expand", "--line-info", NULL);
    wrong("build: unexpected word 'all'", "build", "all", NULL);
    wrong("list: 'things'; allowed: families, targets, axes, keys, variants", "list", "things",
          NULL);
    wrong("expand: which variants?", "expand", "--templates", FIXTURES);
}

static void sizes(void **state)
{
    (void)state;
    static const char *const bad[] = {"0",     "x", "-1", "1X", "1.5M", "99999999999999999999",
                                      "1KiBs", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct outcome o = attngen("plan", "--max-bytes", bad[i], NULL);
        assert_run(o, 1);
        assert_holds(o.err, "is no size; allowed: bytes, or a number with K, M, G, KiB, MiB, GiB");
        outcome_free(&o);
    }
}

static void list_of_targets(void **state)
{
    (void)state;
    struct outcome o = attngen("list", "targets", "--templates", FIXTURES, "-t", "sm90a,ptx,80",
                               "--format", "tsv", NULL);
    assert_run(o, 0);
    /* In the table's order, whatever order was asked for. */
    assert_string_equal(
        o.out, "target\tcompute_capability\tkind\ttoolkit\tshared_per_block\tshared_per_sm\t"
               "registers_per_sm\tmax_threads_per_sm\tfeatures\n"
               "sm_80\t80\tmajor\t11.0\t166912\t167936\t65536\t2048\tcp_async\n"
               "sm_90a\t90\texact\t12.0\t232448\t233472\t65536\t2048\t"
               "cp_async,fp8,bulk_copy,cluster,wgmma\n"
               "compute_80\t80\tptx\t11.0\t101376\t102400\t65536\t1536\tcp_async\n");
    outcome_free(&o);
}

static void says_which_target_it_takes(void **state)
{
    (void)state;
    struct outcome o = attngen("list", "--templates", FIXTURES, "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_string_equal(o.err, "attngen: no --targets: no GPU found, so sm_90a\n");
    assert_holds(o.out, "tiny_fp32__sm90a_v1_w1_plain");
    outcome_free(&o);
}

static void targets_by_the_name_of_a_gpu(void **state)
{
    (void)state;
    static const struct {
        const char *given, *target;
    } cases[] = {{"sm_90", "sm_90a"}, {"90", "sm_90a"}, {"SM_100", "sm_100a"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char says[128];
        struct outcome o = attngen("list", "keys", "--templates", FIXTURES, "--format", "tsv", "-t",
                                   cases[i].given, NULL);
        assert_run(o, 0);
        snprintf(says, sizeof says, "attngen: --targets %s: taken as %s, the target of such GPUs\n",
                 cases[i].given, cases[i].target);
        assert_string_equal(o.err, says);
        char *target = cell(o.out, 0, "target");
        assert_string_equal(target, cases[i].target);
        free(target);
        outcome_free(&o);
    }
    static const char *const unknown[] = {"sm_91", "sm_", "sm_90b", "sm_75"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        struct outcome o = attngen("list", "keys", "--templates", FIXTURES, "-t", unknown[i], NULL);
        assert_run(o, 1);
        assert_holds(o.err, "unknown target '");
        outcome_free(&o);
    }
}

/* A GPU that is too old is not the same as none. */
static void a_gpu_that_no_target_runs_on(void **state)
{
    (void)state;
    environment("GEN_LIBCUDA", FAKE_GPUS);
    environment("FAKE_CCS", "75");
    struct outcome o = attngen("list", "keys", "--templates", FIXTURES, NULL);
    assert_run(o, 0);
    assert_string_equal(
        o.err, "attngen: no --targets: no target runs on this machine's GPU, sm_75, so sm_90a\n");
    outcome_free(&o);
    environment("GEN_LIBCUDA", "/nonexistent/libcuda.so");
}

/* As the driver counts GPUs is no order: the product would depend on it. */
static void own_targets_are_in_order(void **state)
{
    (void)state;
    environment("GEN_LIBCUDA", FAKE_GPUS);
    environment("FAKE_CCS", "90,80,90");
    struct outcome o = attngen("list", "keys", "--templates", FIXTURES, "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_string_equal(o.err, "attngen: no --targets: this machine's GPU, sm_80 sm_90a\n");
    char *first = cell(o.out, 0, "target");
    assert_string_equal(first, "sm_80");
    free(first);
    outcome_free(&o);
    o = attngen("build", "--templates", FIXTURES, "-q", "-o", "own.fatbin", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    environment("GEN_LIBCUDA", "/nonexistent/libcuda.so");
    o = attngen("build", "--templates", FIXTURES, "-q", "-o", "asked.fatbin", "-t", "sm_80,sm_90a",
                NULL);
    assert_run(o, 0);
    outcome_free(&o);
    assert_true(same_files(in_scratch("own.fatbin"), in_scratch("asked.fatbin")));
}

static void expand_to_a_folder(void **state)
{
    (void)state;
    struct outcome o = attngen("expand", "tiny_*__sm90a_v4*", "--templates", FIXTURES, NULL);
    assert_run(o, 1);
    assert_holds(o.err, "expand: 8 variants match; standard output takes one, --output DIR all");
    outcome_free(&o);
    o = attngen("expand", "tiny_*__sm90a_v4*", "--templates", FIXTURES, "-o", "sources", NULL);
    assert_run(o, 0);
    assert_int_equal(count_files(in_scratch("sources")), 8);
    char *text = get(in_scratch("sources/tiny_fp32__sm90a_v4_w1_ring.cu"), NULL);
    assert_holds(text, "tiny_fp32__sm90a_v4_w1_ring(const __grid_constant__ tiny_params p)");
    free(text);
    outcome_free(&o);
    o = attngen("expand", "tiny_fp32__sm90a_v1_w4_ring", "--templates", FIXTURES, NULL);
    assert_run(o, 1);
    assert_holds(o.err, "matches none of");
    assert_holds(o.err, "`attngen why 'tiny_fp32__sm90a_v1_w4_ring'` may say why");
    outcome_free(&o);
    /* Each word is held to it, not the first alone. */
    o = attngen("expand", "tiny_*__sm90a_v4*", "tiny_fp32__sm90a_v5*", "--templates", FIXTURES,
                "-o", "some", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "expand: 'tiny_fp32__sm90a_v5*' matches none of 152 variants");
    assert_int_equal(count_files(in_scratch("some")), 0);
    outcome_free(&o);
}

static void json_is_json(void **state)
{
    (void)state;
    struct outcome o =
        attngen("list", "keys", "--templates", FIXTURES, "-t", "ptx", "--format=json", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out,
                        "[\n  {\"family\": \"tiny\", \"required\": \"tiny_fp32\", \"values\": "
                        "\"fp32\", \"target\": \"compute_80\", \"variants\": 7, \"fallback\": "
                        "\"tiny_fp32__ptx80_v1_w4_plain\"},\n"
                        "  {\"family\": \"tiny\", \"required\": \"tiny_fp64\", \"values\": "
                        "\"fp64\", \"target\": \"compute_80\", \"variants\": 7, \"fallback\": "
                        "\"tiny_fp64__ptx80_v1_w4_plain\"}\n]\n");
    outcome_free(&o);
}

/* Every string of `json` ends and holds no byte that JSON forbids, and all of it is UTF-8. */
static void assert_json_strings(const char *json)
{
    bool inside = false;
    for (const char *p = json; *p != '\0'; p++) {
        if (inside && (unsigned char)*p < ' ')
            fail_msg("a control character in:\n%s", json);
        if (inside && *p == '\\') {
            p++;
            if (*p == 'u')
                assert_int_equal(strspn(p + 1, "0123456789abcdef") >= 4, 1);
            else
                assert_non_null(strchr("\"\\/bfnrt", *p));
        } else if (*p == '"') {
            inside = !inside;
        }
    }
    assert_false(inside);
    iconv_t utf8 = iconv_open("UTF-16", "UTF-8");
    assert_true(utf8 != (iconv_t)-1);
    char *from = (char *)(uintptr_t)json, out[8192], *to = out;
    size_t left = strlen(json), room = sizeof out;
    if (iconv(utf8, &from, &left, &to, &room) == (size_t)-1)
        fail_msg("no UTF-8 from byte %zu on:\n%s", (size_t)(from - json), json);
    iconv_close(utf8);
}

/* What a family says may hold any byte. */
static void json_of_any_byte(void **state)
{
    (void)state;
    static const char *const sequences[] = {
        /* The first and the last of each length, and what surrounds the surrogates. */
        "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\x80",
        "\xc2",
        "\xe2\x82",
        "\xf0\x9f\x98",
        "\xe2\x28\xa1",
        "\xc2\"",
    };
    enum { SEQUENCES = sizeof sequences / sizeof sequences[0], EACH = 16 };
    for (size_t i = 0; i < SEQUENCES + 255;) {
        /* Each stands by itself, the last one at the string's end. */
        char line[1024];
        size_t used = (size_t)snprintf(line, sizeof line, "\"");
        for (size_t j = 0; j < EACH && i < SEQUENCES + 255; j++, i++) {
            const char byte[] = {(char)(i - SEQUENCES + 1), '\0'};
            for (const char *p = i < SEQUENCES ? sequences[i] : byte; *p != '\0'; p++)
                used +=
                    (size_t)snprintf(line + used, sizeof line - used, "\\%03d", (unsigned char)*p);
            used +=
                (size_t)snprintf(line + used, sizeof line - used, "%s", j + 1 < EACH ? " " : "");
        }
        snprintf(line + used, sizeof line - used, "\"");
        copy_fixtures("j");
        edit("j/tiny/family.lua", "\"the ring needs bulk copies\"", line);
        struct outcome o =
            attngen("why", "path=ring", "--templates", "j", "-t", "ptx", "--format", "json", NULL);
        assert_run(o, 0);
        assert_holds(o.out, "\"combinations\": 16");
        assert_json_strings(o.out);
        /* What is UTF-8 stays as it is. */
        if (i == EACH)
            assert_holds(o.out, sequences[0]);
        outcome_free(&o);
    }
}

static void output_that_cannot_be_written(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "list --templates " FIXTURES " -t all",
        "list targets --templates " FIXTURES,
        "list axes --templates " FIXTURES " --format json",
        "plan --templates " FIXTURES " -t sm_90a --only '*v1_w1*' --cache cache",
        "expand tiny_fp32__sm90a_v1_w1_plain --templates " FIXTURES,
        "build --templates " FIXTURES " -t sm_90a --only '*v1_w1*' --cache cache -o full.fatbin "
        "--format tsv",
        "check --templates " FIXTURES " --format tsv",
        "why tiny_fp32__sm90a_v1_w1_plain --templates " FIXTURES " --cache cache",
        "why path=ring --templates " FIXTURES,
        "--help",
        "--version",
        "help list",
        "build --help",
    };
    static const char *const ways[] = {">/dev/full", ">&-"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        for (size_t j = 0; j < 2; j++) {
            char command[4096];
            snprintf(command, sizeof command, "cd '%s' && '%s' %s %s 2>full.err", scratch(),
                     ATTNGEN, commands[i], ways[j]);
            int status = system(command);
            if (WEXITSTATUS(status) != 1)
                fail_msg("%s: status %d", command, WEXITSTATUS(status));
            char *err = get(in_scratch("full.err"), NULL);
            assert_holds(err, "attngen: standard output: ");
            free(err);
        }
    /* What was closed is no file's number: the product is whole. */
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && '%s' build --templates " FIXTURES
             " -t sm_90a --only '*v1_w1*' --cache cache "
             "-q -o open.fatbin && cmp open.fatbin full.fatbin",
             scratch(), ATTNGEN);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_of_everything),
        cmocka_unit_test(help_says_what_is_true_of_the_command),
        cmocka_unit_test(wrong_words),
        cmocka_unit_test(sizes),
        cmocka_unit_test(list_of_targets),
        cmocka_unit_test(says_which_target_it_takes),
        cmocka_unit_test(targets_by_the_name_of_a_gpu),
        cmocka_unit_test(a_gpu_that_no_target_runs_on),
        cmocka_unit_test(own_targets_are_in_order),
        cmocka_unit_test(expand_to_a_folder),
        cmocka_unit_test(json_is_json),
        cmocka_unit_test(json_of_any_byte),
        cmocka_unit_test(output_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
