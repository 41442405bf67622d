/* The program in an installation: sub-programs, templates, and no generator. */
#include "support.h"

#include <sys/stat.h>
#include <unistd.h>

/* Runs a copy of the program from a made-up installation. */
static struct outcome installed(const char *arguments)
{
    char command[2048];
    struct outcome o = {0};
    snprintf(command, sizeof command, "cd '%s' && inst/bin/attngen %s >inst.out 2>inst.err",
             scratch(), arguments);
    int status = system(command);
    o.status = WEXITSTATUS(status);
    o.out = get(in_scratch("inst.out"), NULL);
    o.err = get(in_scratch("inst.err"), NULL);
    return o;
}

static void install_program(const char *from, const char *to)
{
    size_t size;
    char *program = get(from, &size);
    put_bytes(in_scratch("%s", to), program, size);
    free(program);
    assert_int_equal(chmod(in_scratch("%s", to), 0755), 0);
}

static void install(void)
{
    install_program(ATTNGEN, "inst/bin/attngen");
    install_program(GENERATOR, "inst/libexec/attngen/attngen-generator");
}

/* An installation of the runtime and its programs, without the generator. */
static void programs_without_a_generator(void **state)
{
    (void)state;
    install();
    assert_int_equal(unlink(in_scratch("inst/libexec/attngen/attngen-generator")), 0);
    put("inst/libexec/attngen/attngen-within", "#!/bin/sh\necho within \"$@\"\n");
    chmod(in_scratch("inst/libexec/attngen/attngen-within"), 0755);
    struct outcome o = installed("within a");
    assert_run(o, 0);
    assert_string_equal(o.out, "within a\n");
    outcome_free(&o);
    static const char *const commands[] = {"build -t sm_90a", "generator", ""};
    for (size_t i = 0; i < 3; i++) {
        o = installed(commands[i]);
        assert_run(o, 1);
        assert_string_equal(o.out, "");
        assert_holds(o.err, i < 2 ? "attngen: unknown command " : "attngen: no command given");
        assert_holds(o.err, "this installation has no generator");
        assert_holds(o.err, "\n  within   attngen within --help says more\n");
        outcome_free(&o);
    }
    o = installed("--help");
    assert_run(o, 0);
    assert_holds(o.out, "  within   attngen within --help says more\n");
    outcome_free(&o);
    o = installed("--version");
    assert_run(o, 0);
    assert_holds(o.out, "attngen ");
    outcome_free(&o);
}

static void sub_programs(void **state)
{
    (void)state;
    install();
    put("inst/bin/attngen-beside", "#!/bin/sh\necho beside \"$@\"\nexit 7\n");
    put("inst/libexec/attngen/attngen-within", "#!/bin/sh\necho within \"$@\"\n");
    put("inst/libexec/attngen/attngen-beside", "#!/bin/sh\necho hidden\n");
    put("inst/libexec/attngen/attngen-data", "not executable\n");
    chmod(in_scratch("inst/bin/attngen-beside"), 0755);
    chmod(in_scratch("inst/libexec/attngen/attngen-beside"), 0755);
    chmod(in_scratch("inst/libexec/attngen/attngen-within"), 0755);
    struct outcome o = installed("beside a 'b c' --help");
    assert_run(o, 7);
    assert_string_equal(o.out, "beside a b c --help\n");
    outcome_free(&o);
    o = installed("within");
    assert_run(o, 0);
    assert_string_equal(o.out, "within\n");
    outcome_free(&o);
    o = installed("help within");
    assert_run(o, 0);
    assert_string_equal(o.out, "within --help\n");
    outcome_free(&o);
    o = installed("data");
    assert_run(o, 1);
    assert_holds(o.err, "unknown command 'data'");
    outcome_free(&o);
    o = installed("--help");
    assert_run(o, 0);
    assert_holds(o.out, "\n  within ");
    assert_holds(o.out, "\n  beside ");
    assert_lacks(o.out, "  generator");
    outcome_free(&o);
}

static void installed_templates_are_found(void **state)
{
    (void)state;
    install();
    copy_fixtures("inst/share/attngen/templates");
    struct outcome o = installed("list families -t sm_90a --format tsv");
    assert_run(o, 0);
    assert_holds(o.out, "tiny\tsm_90a\t2\t24\t32\n");
    outcome_free(&o);
}

/* Every command that prints, and how standard output may fail it. */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sub_programs),
        cmocka_unit_test(programs_without_a_generator),
        cmocka_unit_test(installed_templates_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
