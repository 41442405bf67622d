/* Pretended GPUs and problems -> names of variants, for every rule. */
#include "select_fixture.h"

#include <math.h>

static void exact_class_takes_the_nearest_row(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=1024", C90, "40");
    row("tiles=1", A90, "10"); /* order in the file does not matter */
    row("tiles=16", BIG90, "20");
    gen_library *library = open_with_table();
    expect(library, "h200", 1, GEN_WHY_TABLE, A90);
    expect(library, "h200", 3, GEN_WHY_TABLE, A90);
    expect(library, "h200", 5, GEN_WHY_TABLE, BIG90);
    expect(library, "h200", 16, GEN_WHY_TABLE, BIG90);
    expect(library, "h200", 127, GEN_WHY_TABLE, BIG90);
    expect(library, "h200", 129, GEN_WHY_TABLE, C90);
    expect(library, "h200", 1 << 30, GEN_WHY_TABLE, C90);
    /* The same number of SMs and architecture is the same class. */
    expect(library, "h100", 1, GEN_WHY_TABLE, A90);
    toy_close(library);
}

static void equal_distances_take_the_smaller_problem(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=1", A90, "10");
    row("tiles=16", C90, "20");
    row("tiles=16", BIG90, "19"); /* a second row for the same problem */
    gen_library *library = open_with_table();
    expect(library, "h200", 4, GEN_WHY_TABLE, A90);
    expect(library, "h200", 16, GEN_WHY_TABLE, C90);
    toy_close(library);
}

static void rows_that_do_not_fit_are_passed_over(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=1", C90, "10");
    row("tiles=16", B90, "20"); /* wants a length that is a multiple of 128 */
    row("tiles=64", BIG90, "30");
    gen_library *library = open_with_table();
    expect(library, "h200", 16, GEN_WHY_TABLE, BIG90);
    gen_toy_problem problem = toy_problem(GEN_LINE, 16);
    problem.length = 256;
    gen_plan plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), B90);

    gen_device device = toy_device("h200");
    problem.length = 64;
    device.shared_per_block = 100 * 1024; /* less than dynamic and static together */
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), C90);
    device.shared_per_block = 101 * 1024;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), BIG90);
    toy_close(library);
}

static void a_table_without_fitting_rows_leaves_it_to_the_model(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=16", B90, "20");
    gen_library *library = open_with_table();
    expect(library, "h200", 16, GEN_WHY_MODEL, BIG90);
    toy_close(library);
}

/* Between rows selection takes a curve within 0.05 %, for speed. */
static void measured_time(const gen_library *library, const char *device, int batch, double us)
{
    const gen_toy_problem problem = toy_problem(GEN_LINE, batch);
    const gen_plan plan = ask(library, device, &problem);
    if (fabs(plan.predicted_us - us) > 6e-4 * us)
        fail_msg("%s, batch %d: predicted %g us, expected %g", device, batch,
                 (double)plan.predicted_us, us);
}

static void times_are_interpolated(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=4", A90, "10");
    row("tiles=16", C90, "20");
    row("tiles=256", C90, "320");
    gen_library *library = open_with_table();
    measured_time(library, "h200", 4, 10.0);
    measured_time(library, "h200", 8, 10.0 * sqrt(2.0));
    measured_time(library, "h200", 16, 20.0);
    measured_time(library, "h200", 64, 80.0);
    measured_time(library, "h200", 1, 10.0);      /* the launch is all there is */
    measured_time(library, "h200", 1024, 1280.0); /* in proportion */
    /* The same class with less bandwidth. */
    measured_time(library, "h100", 16, 20.0 * 4800.0 / 3350.0);
    toy_close(library);
}

static void nearest_class_looks_up_the_same_work_per_sm(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=64", A90, "10");
    row("tiles=256", C90, "40");
    struct product *product = toy_product();
    product_table(product, "h200", table);
    gen_library *library = toy_open(product);
    /* Half way between the rows is 128: 76 tiles on 78 SMs are as 129 on 132. */
    expect(library, "h20", 75, GEN_WHY_NEAREST, A90);
    expect(library, "h20", 76, GEN_WHY_NEAREST, C90);
    expect(library, "h200", 76, GEN_WHY_TABLE, A90);
    /* The time is of the problem itself, by bandwidth. */
    measured_time(library, "h20", 64, 10.0 * 4800.0 / 4000.0);
    measured_time(library, "h20", 256, 40.0 * 4800.0 / 4000.0);
    toy_close(library);
}

static void nearest_class_goes_by_sms_bandwidth_and_l2(void **state)
{
    (void)state;
    struct product *product = toy_product();
    head(90, 132, 4800);
    row("tiles=64", A90, "10");
    product_table(product, "h200", table);
    head(90, 80, 4800);
    row("tiles=64", C90, "10");
    product_table(product, "h200 of 80 SMs", table);
    head(80, 108, 2039);
    row("tiles=64", A80, "10");
    product_table(product, "a100", table);
    gen_library *library = toy_open(product);
    expect(library, "h200", 64, GEN_WHY_TABLE, A90);
    expect(library, "sm_90:80", 64, GEN_WHY_TABLE, C90);
    expect(library, "h20", 64, GEN_WHY_NEAREST, C90);
    expect(library, "h100-pcie", 64, GEN_WHY_NEAREST, A90);
    expect(library, "a100", 64, GEN_WHY_TABLE, A80);
    /* Never a class of another architecture: sm_86 runs sm_80's code. */
    expect(library, "a10", 64, GEN_WHY_MODEL, B80);

    gen_device device = toy_device("sm_90:104");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 64);
    gen_plan plan = {.size = sizeof(plan)};
    device.memory_gbps = device.l2_bytes = 0; /* not known: no part of the distance */
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), A90);
    assert_true(fabsf(plan.predicted_us - 10.0f) < 1e-3f);
    toy_close(library);
}

static void nearest_class_without_fitting_rows_is_passed_over(void **state)
{
    (void)state;
    struct product *product = toy_product();
    head(90, 132, 4800);
    row("tiles=64", A90, "10");
    product_table(product, "far", table);
    head(90, 80, 4800);
    row("tiles=64", B90, "10");
    product_table(product, "near", table);
    gen_library *library = toy_open(product);
    expect(library, "h20", 64, GEN_WHY_NEAREST, A90);
    expect(library, "sm_90:80", 64, GEN_WHY_NEAREST, A90);
    toy_close(library);
}

/* The driver compiles PTX when it is first used: a row that names it does not count where the
 * product has machine code for the row's class and key, whoever was faster. */
static void rows_of_ptx_do_not_count_beside_machine_code(void **state)
{
    (void)state;
    struct product *product = toy_product();
    head(90, 132, 4800);
    row("tiles=1", PTX, "1");
    row("tiles=1024", C90, "40");
    row("tiles=4096", PTX, "50");
    product_table(product, "h200", table);
    head(90, 80, 4800);
    row("tiles=1", PTX, "1");
    product_table(product, "h200 of 80 SMs", table);
    head(86, 80, 600); /* machine code of sm_80 runs there */
    row("tiles=1", PTX, "1");
    row("tiles=64", A80, "9");
    product_table(product, "a10", table);
    head(100, 148, 8000); /* no machine code for it */
    row("tiles=1", PTX, "1");
    product_table(product, "b200", table);
    gen_library *library = toy_open(product);
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    assert_int_equal(info.num_rows, 3);
    assert_int_equal(info.num_rows_ptx, 4);
    assert_int_equal(info.num_rows_bad, 0);
    expect(library, "h200", 1, GEN_WHY_TABLE, C90);
    expect(library, "h200", 4096, GEN_WHY_TABLE, C90);
    measured_time(library, "h200", 1, 40.0); /* nor does its time */
    expect(library, "sm_90:80", 1, GEN_WHY_NEAREST, C90);
    expect(library, "sm_86:80", 1, GEN_WHY_TABLE, A80);
    expect(library, "b200", 1, GEN_WHY_TABLE, PTX);
    /* By name it is to be had. */
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 1);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select_variant(library, &device, &problem.base, PTX, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), PTX);
    assert_int_equal(plan.why, GEN_WHY_ASKED);
    toy_close(library);
}

/* Machine code that does not fit is no reason to do without PTX. */
static void ptx_serves_where_no_machine_code_fits(void **state)
{
    (void)state;
    struct product *product = toy_product();
    head(90, 132, 4800);
    row("tiles=1", PTX, "1");
    product_table(product, "h200", table);
    gen_library *library = toy_open(product);
    gen_device device = toy_device("h200");
    gen_toy_problem problem = toy_problem(GEN_LINE, 1);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), BIG90);
    toy_close(library);

    product = product_new();
    const uint32_t family =
        product_family(product, "line", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t exact = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t text = product_target(product, "compute_80", 80, GEN_PACK_PTX);
    uint32_t group = product_group(product, "line_bf16_d64", "bf16,64", family, exact);
    product_variant(product, group,
                    (struct product_variant){.name = B90, .fallback = 1, .facts = {128, 20}});
    group = product_group(product, "line_bf16_d64", "bf16,64", family, text);
    product_variant(product, group,
                    (struct product_variant){.name = PTX, .fallback = 1, .facts = {1, 90}});
    product_table(product, "h200", table);
    library = toy_open(product);
    expect(library, "h200", 1, GEN_WHY_MODEL, PTX);
    problem.length = 128;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), B90);
    toy_close(library);
}

static void model_takes_the_least_estimate_of_the_best_target(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    expect(library, "h200", 8, GEN_WHY_MODEL, BIG90);
    expect(library, "a100", 8, GEN_WHY_MODEL, B80);
    expect(library, "l40s", 8, GEN_WHY_MODEL, B80);
    expect(library, "b200", 8, GEN_WHY_MODEL, PTX);
    expect(library, "rtx5090", 8, GEN_WHY_MODEL, PTX);
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    const gen_plan plan = ask(library, "h200", &problem);
    assert_true(plan.predicted_us == 1.0f);
    toy_close(library);
}

static void fallback_where_nothing_is_known(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    problem.dtype = 1;
    const gen_plan plan = ask(library, "h200", &problem);
    assert_int_equal(plan.why, GEN_WHY_FALLBACK);
    assert_string_equal(toy_chosen(library, &plan), "line_fp16_d64__sm90a_a");
    assert_true(plan.predicted_us == 0.0f);
    toy_close(library);
}

static void two_coordinates(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=1,length=64", "toy_bf16_d64__sm90a_a", "10");
    row("length=1024 tiles=1", "toy_bf16_d64__sm90a_b", "20");
    row("tiles=64,length=1024", "toy_bf16_d64__sm90a_a", "80");
    row("tiles=4,length=256", "toy_bf16_d64__sm90a_b", "15");
    gen_library *library = open_with_table();
    gen_toy_problem problem = toy_problem(GEN_TOY, 1);
    gen_plan plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_a");
    assert_true(fabsf(plan.predicted_us - 10.0f) < 1e-4f);
    problem.length = 512; /* 1 octave from length=1024, 3 from tiles=4,length=256 and 64 */
    plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_b");
    /* Between the nearest (1 away, 20 us) and the second (3 away, 10 us). */
    assert_true(fabs(plan.predicted_us - exp2(0.75 * log2(20) + 0.25 * log2(10))) < 1e-4);
    problem.batch = 32;
    plan = ask(library, "h200", &problem); /* 2 from 64,1024; 4 from 4,256 */
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_a");
    toy_close(library);
}

/* Against a plain search of all rows, for random tables. */
static void nearest_row_is_the_nearest(void **state)
{
    (void)state;
    enum { ROWS = 40 };
    unsigned seed = 1;
    for (int round = 0; round < 50; round++) {
        int tiles[ROWS], length[ROWS], which[ROWS];
        head(90, 132, 4800);
        for (int i = 0; i < ROWS; i++) {
            char problem[64];
            tiles[i] = 1 << ((seed = seed * 1103515245u + 12345u) >> 16) % 12;
            length[i] = 1 << ((seed = seed * 1103515245u + 12345u) >> 16) % 12;
            which[i] = (int)((seed = seed * 1103515245u + 12345u) >> 16) & 1;
            snprintf(problem, sizeof(problem), "tiles=%d,length=%d", tiles[i], length[i]);
            row(problem, which[i] ? "toy_bf16_d64__sm90a_a" : "toy_bf16_d64__sm90a_b", "10");
        }
        gen_library *library = open_with_table();
        for (int ask_round = 0; ask_round < 50; ask_round++) {
            gen_toy_problem problem = toy_problem(GEN_TOY, 1);
            problem.batch = 1 + (int)((seed = seed * 1103515245u + 12345u) >> 16) % 3000;
            problem.length = 1 + (int)((seed = seed * 1103515245u + 12345u) >> 16) % 3000;
            if (ask_round & 1) { /* often midway between rows: fewer tiles, or a greater length */
                problem.batch = 1 << problem.batch % 12;
                problem.length = 1 << problem.length % 12;
            }
            const float x = log2f((float)problem.batch), y = log2f((float)problem.length);
            float best = INFINITY;
            int best_row = 0;
            for (int i = 0; i < ROWS; i++) {
                const float a = log2f((float)tiles[i]), b = log2f((float)length[i]);
                const float d = fabsf(a - x) + fabsf(b - y);
                const int better =
                    d < best ||
                    (d == best && (tiles[i] < tiles[best_row] ||
                                   (tiles[i] == tiles[best_row] && length[i] > length[best_row])));
                if (better) {
                    best = d;
                    best_row = i;
                }
            }
            const gen_plan plan = ask(library, "h200", &problem);
            assert_string_equal(toy_chosen(library, &plan), which[best_row]
                                                                ? "toy_bf16_d64__sm90a_a"
                                                                : "toy_bf16_d64__sm90a_b");
        }
        toy_close(library);
    }
}

/* Is a nearer to x than b is, in octaves? In whole numbers, so that ties are ties. */
static int nearer(int a, int b, int x)
{
    const int64_t above_a = a > x ? a : x, below_a = a > x ? x : a;
    const int64_t above_b = b > x ? b : x, below_b = b > x ? x : b;
    return above_a * below_b < above_b * below_a;
}

/* Of one coordinate, against a plain search: rows far apart, several to an eighth of an octave,
 * and repeated. */
static void nearest_row_of_one_coordinate(void **state)
{
    (void)state;
    enum { ROWS = 90 };
    unsigned seed = 7;
    for (int round = 0; round < 40; round++) {
        const unsigned spread = round % 2 ? 100 : 4000;
        int tiles[ROWS];
        double us[ROWS];
        int is_a[ROWS];
        head(90, 132, 4800);
        for (int i = 0; i < ROWS; i++) {
            char problem[64], time[32];
            tiles[i] = 1 + (int)(((seed = seed * 1103515245u + 12345u) >> 16) % spread);
            /* Noise of a thousandth: neighbours may be as near as coordinates tell apart. */
            us[i] = 5 + tiles[i] / 100.0;
            us[i] *= 1 + (((seed = seed * 1103515245u + 12345u) >> 16) % 100) / 1e5;
            is_a[i] = (seed = seed * 1103515245u + 12345u) >> 16 & 1;
            snprintf(problem, sizeof(problem), "tiles=%d", tiles[i]);
            snprintf(time, sizeof(time), "%.9g", us[i]);
            row(problem, is_a[i] ? A90 : C90, time);
        }
        gen_library *library = open_with_table();
        for (int batch = 1; batch < 5000; batch += 1 + batch / 50) {
            int near = -1, left = -1, right = -1; /* the first in the file of equal ones */
            for (int i = 0; i < ROWS; i++) {
                if (near < 0 || nearer(tiles[i], tiles[near], batch) ||
                    (!nearer(tiles[near], tiles[i], batch) && tiles[i] < tiles[near]))
                    near = i;
                if (tiles[i] < batch && (left < 0 || tiles[i] > tiles[left]))
                    left = i;
                if (tiles[i] >= batch && (right < 0 || tiles[i] < tiles[right]))
                    right = i;
            }
            /* Distances are good to a ten-thousandth of an octave. */
            double least[2] = {1e9, 1e9};
            for (int i = 0; i < ROWS; i++)
                least[is_a[i]] =
                    fmin(least[is_a[i]], fabs(log2((double)tiles[i]) - log2((double)batch)));
            if (fabs(least[0] - least[1]) > 1e-4)
                expect(library, "h200", batch, GEN_WHY_TABLE, is_a[near] ? A90 : C90);
            double time;
            if (left < 0)
                time = us[right];
            else if (right < 0)
                time = us[left] * batch / tiles[left];
            else
                time = us[left] *
                       pow(us[right] / us[left], log2((double)batch / tiles[left]) /
                                                     log2((double)tiles[right] / tiles[left]));
            measured_time(library, "h200", batch, time);
        }
        toy_close(library);
    }
}

/* Where other rows' variants are missing, a row serves an octave around it. */
static void a_row_does_not_reach_over_holes(void **state)
{
    (void)state;
    enum { MAJOR = 1, EXACT = 2 }; /* groups of toy_product() */
    static const bool lacking[] = {false, true};
    for (int i = 0; i < 2; i++) {
        head(90, 132, 4800);
        row("tiles=8", A90, "20");
        struct product *product = toy_product();
        product_table(product, "built-in", table);
        if (lacking[i])
            product_lacks_rows(product, EXACT);
        product_lacks_rows(product, MAJOR); /* does not run on an H200 */
        gen_library *library = toy_open(product);
        const enum gen_why far = lacking[i] ? GEN_WHY_MODEL : GEN_WHY_TABLE;
        expect(library, "h200", 4, GEN_WHY_TABLE, A90);
        expect(library, "h200", 16, GEN_WHY_TABLE, A90);
        expect(library, "h200", 3, far, lacking[i] ? BIG90 : A90);
        expect(library, "h200", 17, far, lacking[i] ? BIG90 : A90);
        /* Of another class, too: as much work an SM is 8 * 78 / 132 tiles. */
        expect(library, "h20", 4, GEN_WHY_NEAREST, A90);
        expect(library, "h20", 1, lacking[i] ? GEN_WHY_MODEL : GEN_WHY_NEAREST,
               lacking[i] ? BIG90 : A90);
        toy_close(library);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_class_takes_the_nearest_row),
        cmocka_unit_test(equal_distances_take_the_smaller_problem),
        cmocka_unit_test(rows_that_do_not_fit_are_passed_over),
        cmocka_unit_test(a_table_without_fitting_rows_leaves_it_to_the_model),
        cmocka_unit_test(times_are_interpolated),
        cmocka_unit_test(nearest_class_looks_up_the_same_work_per_sm),
        cmocka_unit_test(nearest_class_goes_by_sms_bandwidth_and_l2),
        cmocka_unit_test(nearest_class_without_fitting_rows_is_passed_over),
        cmocka_unit_test(rows_of_ptx_do_not_count_beside_machine_code),
        cmocka_unit_test(ptx_serves_where_no_machine_code_fits),
        cmocka_unit_test(model_takes_the_least_estimate_of_the_best_target),
        cmocka_unit_test(fallback_where_nothing_is_known),
        cmocka_unit_test(two_coordinates),
        cmocka_unit_test(nearest_row_is_the_nearest),
        cmocka_unit_test(nearest_row_of_one_coordinate),
        cmocka_unit_test(a_row_does_not_reach_over_holes),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
