/* The files that the bench programs read and write: tables, peers' times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "measure/peer_file.h"
#include "tune/tuning_table.h"
#include "common/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *scratch(const char *name)
{
    return xasprintf("%s/%s", SCRATCH_DIR, name);
}

static void write_text(const char *path, const char *text)
{
    assert_true(file_write(path, text, strlen(text)));
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

static void tables_come_back_sorted(void **state)
{
    struct table a = {0}, b = {0};
    char *path = scratch("deep/folder/table.tsv");
    const char *problems[] = {"states=4096", "states=64", "states=512"};
    (void)state;
    for (int i = 0; i < 3; i++)
        table_put(&a, &(struct table_row){.family = "f",
                                          .required = "f_d64",
                                          .problem = problems[i],
                                          .variant = "v",
                                          .us = 1.5 * (i + 1),
                                          .spread = 0.01,
                                          .runner_up = "-",
                                          .digest = "0123456789abcdef",
                                          .toolkit = "13.0",
                                          .driver = "1.2"});
    table_put(&a, &(struct table_row){.family = "f",
                                      .required = "f_d64",
                                      .problem = "states=64",
                                      .variant = "w",
                                      .us = 9,
                                      .runner_up = "v",
                                      .runner_up_us = 10,
                                      .digest = "0123456789abcdef",
                                      .toolkit = "13.0",
                                      .driver = "1.2"});
    table_fail(&a, "bad", "wrong\tresult\nhere");
    table_fail(&a, "bad", "again");
    memcpy(a.row[0].code, "fedcba9876543210", sizeof a.row[0].code);
    assert_true(table_write(&a, path));
    assert_int_equal(table_read(&b, path), 0);
    assert_string_equal(b.row[0].code, "-");
    assert_string_equal(b.row[2].code, "fedcba9876543210");
    assert_int_equal(b.num_rows, 3);
    assert_string_equal(b.row[0].problem, "states=64");
    assert_string_equal(b.row[0].variant, "w");
    assert_string_equal(b.row[1].problem, "states=512");
    assert_string_equal(b.row[2].problem, "states=4096");
    assert_int_equal(b.num_failures, 1);
    assert_string_equal(b.failure[0].variant, "bad");
    assert_string_equal(b.failure[0].reason, "wrong result here");
    char *text = file_read(path, NULL);
    assert_non_null(strstr(text, "# failed: bad: wrong result here\n"));
    assert_null(strstr(text, "again"));
    assert_null(strstr(text, "others"));
    free(text);
    /* The column is there where a row has further times. */
    free((void *)(uintptr_t)a.row[1].others);
    a.row[1].others = xstrdup("x=1.000,y=2.000");
    table_free(&b);
    assert_true(table_write(&a, path));
    assert_int_equal(table_read(&b, path), 0);
    assert_int_equal(b.num_rows, 3);
    assert_string_equal(b.row[0].others, "-");
    assert_string_equal(b.row[1].others, "x=1.000,y=2.000");
    table_free(&a);
    table_free(&b);
    free(path);
}

static void put_row(struct table *table, const char *problem, const char *variant)
{
    table_put(table, &(struct table_row){.family = "f",
                                         .required = "k",
                                         .problem = problem,
                                         .variant = variant,
                                         .us = 1,
                                         .runner_up = "-",
                                         .digest = "0123456789abcdef",
                                         .toolkit = "t",
                                         .driver = "d"});
}

static void a_refused_variant_wins_nothing(void **state)
{
    struct table t = {0};
    (void)state;
    put_row(&t, "states=1", "good");
    put_row(&t, "states=2", "bad");
    put_row(&t, "states=4", "good");
    put_row(&t, "states=8", "bad");
    table_fail(&t, "bad", "hangs");
    assert_int_equal(t.num_rows, 2);
    assert_string_equal(t.row[0].problem, "states=1");
    assert_string_equal(t.row[1].problem, "states=4");
    table_fail(&t, "worse", "is wrong");
    table_pass(&t, "good");
    assert_int_equal(t.num_failures, 2);
    table_pass(&t, "bad");
    assert_int_equal(t.num_failures, 1);
    assert_string_equal(t.failure[0].variant, "worse");
    table_free(&t);
}

static void only_the_same_class_goes_on(void **state)
{
    struct table t = {0};
    char *path = scratch("class.tsv"), text[160];
    (void)state;
    write_text(path, "# attngen tuning table\n# class: sm90_132sm\n");
    assert_int_equal(table_read(&t, path), 0);
    assert_true(t.found);
    assert_null(table_refusal(&t, "sm90_132sm", text, sizeof text));
    assert_non_null(table_refusal(&t, "sm90_13sm", text, sizeof text));
    assert_string_equal(text, "is a table of class sm90_132sm, this GPU's is sm90_13sm");
    table_free(&t);
    write_text(path, "Notes of mine.\n");
    assert_int_equal(table_read(&t, path), 1);
    assert_string_equal(table_refusal(&t, "sm90_132sm", text, sizeof text),
                        "has no line \"# class: sm90_132sm\": no tuning table");
    table_free(&t);
    write_text(path, "");
    assert_int_equal(table_read(&t, path), 0);
    assert_false(t.found);
    assert_int_equal(table_read(&t, SCRATCH_DIR), -1);
    table_free(&t);
    free(path);
}

/* Older than digests of machine code, and with a column of a later version. */
static void columns_are_found_by_name(void **state)
{
    struct table t = {0};
    char *path = scratch("columns.tsv");
    (void)state;
    write_text(path, "# attngen tuning table\nfamily\trequired\tproblem\tvariant\tus\tspread\t"
                     "runner_up\trunner_up_us\tdigest\ttoolkit\tdriver\n"
                     "f\tk\tp\tv\t1.5\t0\tw\t2\t0123456789abcdef\tt\td\n");
    assert_int_equal(table_read(&t, path), 0);
    assert_int_equal(t.num_rows, 1);
    assert_string_equal(t.row[0].code, "-");
    assert_string_equal(t.row[0].driver, "d");
    table_free(&t);
    write_text(path, "# attngen tuning table\ndriver\tcode\tlater\ttoolkit\tdigest\trunner_up_us\t"
                     "runner_up\tspread\tus\tvariant\tproblem\trequired\tfamily\n"
                     "d\tfedcba9876543210\tx\tt\t0123456789abcdef\t2\tw\t0\t1.5\tv\tp\tk\tf\n"
                     "d\tshort\tx\tt\t0123456789abcdef\t2\tw\t0\t1.5\tv\tp2\tk\tf\n");
    assert_int_equal(table_read(&t, path), 1);
    assert_int_equal(t.num_rows, 1);
    assert_string_equal(t.row[0].code, "fedcba9876543210");
    assert_string_equal(t.row[0].digest, "0123456789abcdef");
    assert_string_equal(t.row[0].runner_up, "w");
    assert_near(t.row[0].us, 1.5);
    table_free(&t);
    free(path);
}

static void malformed_rows_are_counted(void **state)
{
    struct table t = {0};
    char *path = scratch("bad.tsv");
    (void)state;
    write_text(path, "# attngen tuning table\nfamily\trequired\tproblem\tvariant\tus\tspread\t"
                     "runner_up\trunner_up_us\tdigest\ttoolkit\tdriver\n"
                     "f\tk\tp\tv\t1\t0\t-\t0\t0123456789abcdef\tt\td\n"
                     "f\tk\tp2\tv\tfast\t0\t-\t0\t0123456789abcdef\tt\td\n"
                     "f\tk\tp3\tv\t1\t0\t-\t0\tshort\tt\td\n"
                     "too\tfew\n"
                     "f\tk\tp4\tv\t1\t0\t-\t0\t0123456789abcdef\tt\td\textra\n"
                     "# failed: no reason\n# failed: w: slow: too slow\n");
    assert_int_equal(table_read(&t, path), 5);
    assert_int_equal(t.num_failures, 1);
    assert_string_equal(t.failure[0].reason, "slow: too slow");
    assert_int_equal(t.num_rows, 1);
    assert_int_equal(table_read(&t, "/nonexistent"), 0);
    table_free(&t);
    free(path);
}

static void peer_files_are_read(void **state)
{
    struct peer_list list = {0};
    char *path = scratch("peers.tsv");
    (void)state;
    write_text(path, "# made by hand\n# note: fla-graph:  by replay \n# note: nobody\n"
                     "peer\tcase\tms\terr\nfla-graph\tB1\t0.5\t1e-3\n"
                     "fla-eager\tB1\t0.7\t-\nbroken\tB1\t-3\n\n"
                     "# family: whole\n# note: cula: earlier\ncula\tB1\t0.9\n");
    assert_int_equal(peers_read(&list, path), 1);
    assert_int_equal(list.count, 3);
    assert_near(list.item[0].ms, 0.5);
    assert_near(list.item[0].err, 1e-3);
    assert_true(list.item[1].err < 0);
    assert_false(peer_is_eager(&list.item[0]));
    assert_true(peer_is_eager(&list.item[1]));
    assert_true(peer_is_for(list.item[0].family, "stage"));
    assert_true(peer_is_for(list.item[2].family, "whole"));
    assert_false(peer_is_for(list.item[2].family, "stage"));
    assert_int_equal(list.num_notes, 2);
    assert_string_equal(list.note[1].family, "whole");
    assert_string_equal(list.note[0].peer, "fla-graph");
    assert_string_equal(list.note[0].text, "by replay");
    /* A later file's figures replace those that it has, too. */
    write_text(path, "# note: fla-graph: now\nfla-graph\tB1\t0.4\t-\nfla-graph\tB2\t0.6\t-\n"
                     "# family: other\n# note: fla-graph: other\nfla-graph\tB1\t0.8\t-\n");
    assert_int_equal(peers_read(&list, path), 0);
    assert_int_equal(list.count, 5);
    assert_near(list.item[0].ms, 0.4);
    assert_true(list.item[0].err < 0);
    assert_near(list.item[4].ms, 0.8);
    assert_int_equal(list.num_notes, 3);
    assert_string_equal(list.note[0].text, "now");
    /* An error alone. */
    write_text(path, "fa3\tB3\t-\t2e-2\n");
    assert_int_equal(peers_read(&list, path), 0);
    assert_near(list.item[5].ms, 0);
    assert_near(list.item[5].err, 2e-2);
    peers_free(&list);
    free(path);
}

static void files_appear_whole_or_not_at_all(void **state)
{
    char *path = scratch("whole.txt");
    (void)state;
    write_text(path, "old");
    assert_false(file_write("/proc/no/such/place", "x", 1));
    write_text(path, "new text");
    char *text = file_read(path, NULL);
    assert_string_equal(text, "new text");
    free(text);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_come_back_sorted),
        cmocka_unit_test(a_refused_variant_wins_nothing),
        cmocka_unit_test(only_the_same_class_goes_on),
        cmocka_unit_test(columns_are_found_by_name),
        cmocka_unit_test(malformed_rows_are_counted),
        cmocka_unit_test(peer_files_are_read),
        cmocka_unit_test(files_appear_whole_or_not_at_all),
    };
    util_set_program("test-bench-files");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
