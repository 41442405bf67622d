/* Which of several tuning tables counts. */
#include "table_fixture.h"

#include <unistd.h>

static void expect(const gen_library *library, const char *device_name, int batch,
                   const char *variant)
{
    const gen_device device = toy_device(device_name);
    const gen_toy_problem problem = toy_problem(GEN_LINE, batch);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), variant);
}

static void the_first_table_with_rows_for_a_key_and_class_counts(void **state)
{
    (void)state;
    char text[4096] = "";
    struct product *product = toy_product();
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=1", A90, "5");
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=64", A90, "6");
    toy_table_row(text, sizeof(text), "line_fp16_d64", "tiles=64", "line_fp16_d64__sm90a_a", "6");
    product_table(product, "sm90_132sm", text);
    text[0] = '\0';
    toy_table_head(text, sizeof(text), 90, 80, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=64", A90, "6");
    product_table(product, "sm90_80sm", text);

    const char *paths[2] = {SCRATCH_DIR "/first.tsv", SCRATCH_DIR "/second.tsv"};
    text[0] = '\0';
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=64", BIG90, "6");
    write_text(paths[0], text);
    text[0] = '\0';
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=64", C90, "6");
    write_text(paths[1], text);

    gen_library *library;
    assert_status(toy_open_tables(product, paths, 2, &library), GEN_OK);
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    assert_int_equal(info.num_tables, 4);
    assert_int_equal(info.num_rows, 3); /* the user's one, fp16's, the 80 SMs' */
    assert_int_equal(info.num_rows_bad, 0);
    expect(library, "h200", 1, BIG90); /* built-in rows of the key are gone, nearer or not */
    expect(library, "sm_90:80", 64, A90);
    assert_explained(library, "second.tsv (sm90_132sm): 0 rows in use, 1 behind another table");
    assert_explained(library, "sm90_132sm (sm90_132sm): 1 rows in use, 2 behind another table");
    toy_close(library);
    unlink(paths[0]);
    unlink(paths[1]);
}

/* Passed to the letter a built-in table is not read again, which nobody may notice. */
static void a_built_in_table_may_be_passed_too(void **state)
{
    (void)state;
    const char *path = SCRATCH_DIR "/same.tsv";
    for (int to_the_letter = 0; to_the_letter < 2; to_the_letter++) {
        char text[4096] = "";
        struct product *product = toy_product();
        toy_table_head(text, sizeof(text), 90, 132, 4800);
        toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=1", A90, "5");
        toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=64", C90, "6");
        toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=64", C90, "-");
        product_table(product, "built-in", text);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s",
                 to_the_letter ? "" : "# a comment\n");
        write_text(path, text);
        gen_library *library;
        gen_library_info info = {.size = sizeof(info)};
        assert_status(toy_open_tables(product, &path, 1, &library), GEN_OK);
        assert_status(gen_library_info_get(library, &info), GEN_OK);
        assert_int_equal(info.num_tables, 2);
        assert_int_equal(info.num_rows, 2);
        assert_int_equal(info.num_rows_bad, 2);
        expect(library, "h200", 1, A90);
        assert_explained(library, "same.tsv (sm90_132sm): 2 rows in use, 0 behind another table");
        assert_explained(library, "built-in (sm90_132sm): 0 rows in use, 2 behind another table, "
                                  "0 expired, 1 bad (the first: line 12: \"-\": not a finite");
        toy_close(library);
    }
    unlink(path);
}

static void a_table_whose_rows_are_all_bad_hides_nothing(void **state)
{
    (void)state;
    char text[4096] = "";
    struct product *product = toy_product();
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=1", A90, "5");
    product_table(product, "sm90_132sm", text);
    const char *path = SCRATCH_DIR "/all_bad.tsv";
    text[0] = '\0';
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    toy_table_row(text, sizeof(text), "line_bf16_d64", "tiles=1", C90, "-");
    write_text(path, text);
    gen_library *library;
    assert_status(toy_open_tables(product, &path, 1, &library), GEN_OK);
    expect(library, "h200", 1, A90);
    toy_close(library);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_table_with_rows_for_a_key_and_class_counts),
        cmocka_unit_test(a_built_in_table_may_be_passed_too),
        cmocka_unit_test(a_table_whose_rows_are_all_bad_hides_nothing),
    };
    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
