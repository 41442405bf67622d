/* Pretended GPUs and problems -> names of variants, for every rule. */
#include "test.h"

#include "toy.h"

#include <math.h>

#define A90 "line_bf16_d64__sm90a_a"
#define B90 "line_bf16_d64__sm90a_b"
#define C90 "line_bf16_d64__sm90a_c"
#define BIG90 "line_bf16_d64__sm90a_big"
#define NOTHING90 "line_bf16_d64__sm90a_nothing"
#define A80 "line_bf16_d64__sm80_a"
#define B80 "line_bf16_d64__sm80_b"
#define PTX "line_bf16_d64__compute80_a"

static char table[1 << 16];

static void head(unsigned compute_capability, unsigned num_sms, unsigned gbps)
{
    table[0] = '\0';
    toy_table_head(table, sizeof(table), compute_capability, num_sms, gbps);
}

static void row(const char *problem, const char *variant, const char *us)
{
    toy_table_row(table, sizeof(table), variant[0] == 't' ? "toy_bf16_d64" : "line_bf16_d64",
                  problem, variant, us);
}

static gen_library *open_with_table(void)
{
    struct product *product = toy_product();
    product_table(product, "built-in", table);
    return toy_open(product);
}

static gen_plan ask(const gen_library *library, const char *device_name,
                    const gen_toy_problem *problem)
{
    const gen_device device = toy_device(device_name);
    gen_plan plan;
    assert_status(gen_select(library, &device, &problem->base, &plan), GEN_OK);
    return plan;
}

static void expect(const gen_library *library, const char *device, int batch, enum gen_why why,
                   const char *variant)
{
    const gen_toy_problem problem = toy_problem(GEN_LINE, batch);
    const gen_plan plan = ask(library, device, &problem);
    assert_string_equal(toy_chosen(library, &plan), variant);
    assert_string_equal(gen_why_string(plan.why), gen_why_string(why));
}

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
    gen_plan plan;
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
    gen_library_info info;
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
    gen_plan plan;
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
    gen_plan plan;
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
    problem.length = 512; /* 1 doubling from length=1024, 3 from tiles=4,length=256 and 64 */
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

/* Is a nearer to x than b is, in doublings? In whole numbers, so that ties are ties. */
static int nearer(int a, int b, int x)
{
    const int64_t above_a = a > x ? a : x, below_a = a > x ? x : a;
    const int64_t above_b = b > x ? b : x, below_b = b > x ? x : b;
    return above_a * below_b < above_b * below_a;
}

/* Of one coordinate, against a plain search: rows far apart, several to an eighth of a doubling,
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

/* A limit that every variant keeps makes no other plan, to the last byte, and neither does asking
 * again. */
static void a_limit_that_all_keep_changes_nothing(void **state)
{
    (void)state;
    static const char *const devices[] = {"h200", "h20", "h100", "sm_90:104", "h100-pcie", "a100"};
    struct product *product = toy_product();
    head(90, 132, 4800);
    row("tiles=1", A90, "3");
    row("tiles=2", B90, "4"); /* does not fit */
    row("tiles=12", C90, "5");
    row("tiles=48", BIG90, "9");
    row("tiles=49", A90, "9.5");
    row("tiles=50", C90, "9.6");
    row("tiles=1000", A90, "90");
    product_table(product, "far", table);
    head(90, 80, 4800);
    row("tiles=30", C90, "10");
    row("tiles=300", A90, "70");
    product_table(product, "near", table);
    gen_library *library = toy_open(product);
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
        for (int batch = 1; batch < 100000; batch += 1 + batch / 40) {
            gen_toy_problem problem = toy_problem(GEN_LINE, batch);
            const gen_plan plan = ask(library, devices[d], &problem);
            problem.base.max_workspace_mib = 1000;
            const gen_plan limited = ask(library, devices[d], &problem);
            assert_memory_equal(&plan, &limited, sizeof(plan));
            const gen_plan again = ask(library, devices[d], &problem);
            assert_memory_equal(&plan, &again, sizeof(plan));
        }
    }
    toy_close(library);
}

static void workspace_limit_is_a_matter_of_eligibility(void **state)
{
    (void)state;
    head(90, 132, 4800);
    row("tiles=8,length=64", "toy_bf16_d64__sm90a_split", "10");
    row("tiles=64,length=64", "toy_bf16_d64__sm90a_b", "20");
    gen_library *library = open_with_table();
    gen_toy_problem problem = toy_problem(GEN_TOY, 8);
    gen_plan plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_split");
    assert_int_equal(plan.workspace_bytes, 2 << 20);
    assert_int_equal(plan.num_launches, 2);
    problem.base.max_workspace_mib = 2;
    plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_split");
    problem.base.max_workspace_mib = 1;
    plan = ask(library, "h200", &problem);
    assert_string_equal(toy_chosen(library, &plan), "toy_bf16_d64__sm90a_b");
    toy_close(library);
}

static void empty_problem(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 0);
    problem.dim = 128; /* the product has none, and none is needed */
    gen_plan plan = ask(library, "h200", &problem);
    assert_int_equal(plan.num_launches, 0);
    assert_int_equal(plan.size, sizeof(plan));
    plan = ask(library, "cpu", &problem);
    assert_int_equal(plan.num_launches, 0);
    toy_close(library);
}

static void cpu_needs_no_variant(void **state)
{
    (void)state;
    gen_library *library = toy_open(product_new());
    gen_toy_problem problem = toy_problem(GEN_TOY, 3);
    problem.dim = 128;
    const gen_plan plan = ask(library, "cpu", &problem);
    assert_int_equal(plan.why, GEN_WHY_REFERENCE);
    assert_int_equal(plan.backend, GEN_BACKEND_CPU);
    const float in[3] = {1, 2, 3};
    float out[3] = {0};
    gen_toy_args args = {{sizeof(args), GEN_TOY}, in, out};
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    assert_true(out[0] == 2.0f && out[1] == 4.0f && out[2] == 6.0f);
    args.in = NULL;
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    toy_close(library);
}

static void the_caller_names_the_variant(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    const gen_device h200 = toy_device("h200"), a100 = toy_device("a100"), cpu = toy_device("cpu");
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    gen_plan plan, before;
    assert_status(gen_select_variant(library, &h200, &problem.base, A80, &plan),
                  GEN_STATUS_UNSUPPORTED);
    assert_message("is made for sm_80, the device is sm_90");
    assert_status(gen_select_variant(library, &h200, &problem.base, A90, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), A90);
    assert_int_equal(plan.why, GEN_WHY_ASKED);
    assert_true(plan.predicted_us == 3.0f);
    assert_status(gen_select_variant(library, &a100, &problem.base, A80, &plan), GEN_OK);
    memset(&plan, 0x5a, sizeof(plan));
    before = plan;
    assert_status(gen_select_variant(library, &h200, &problem.base, B90, &plan),
                  GEN_STATUS_UNSUPPORTED);
    assert_message("length is not a multiple of blocks");
    assert_status(
        gen_select_variant(library, &h200, &problem.base, "line_fp16_d64__sm90a_a", &plan),
        GEN_STATUS_UNSUPPORTED);
    assert_message("line_fp16_d64");
    assert_status(gen_select_variant(library, &h200, &problem.base, A90 "x", &plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_select_variant(library, &h200, &problem.base, "", &plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_select_variant(library, &h200, &problem.base, NULL, &plan),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_select_variant(library, &cpu, &problem.base, A90, &plan),
                  GEN_STATUS_UNSUPPORTED);
    assert_memory_equal(&plan, &before, sizeof(plan));
    toy_close(library);
}

static void wrong_arguments(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    gen_device device = toy_device("h200");
    gen_plan plan, before;
    memset(&plan, 0x5a, sizeof(plan));
    before = plan;
#define BAD(change, piece)                                                \
    {                                                                     \
        problem = toy_problem(GEN_LINE, 8);                               \
        device = toy_device("h200");                                      \
        change;                                                           \
        assert_status(gen_select(library, &device, &problem.base, &plan), \
                      GEN_STATUS_INVALID_ARGUMENT);                       \
        assert_message(piece);                                            \
    }
    BAD(problem.base.size = 16, "problem->size is 16, expected 36 (sizeof(gen_line_problem))")
    BAD(problem.base.family = 7, "problem->family is 0x00000007, this runtime knows line")
    BAD(problem.base.flags = 8, "problem->flags is 0x8")
    BAD(problem.dim = 7, "dim = 7; allowed: 64, 128")
    BAD(device.size = 0, "device->size is 0")
    BAD(device.backend = 2, "device->backend is 2")
    BAD(device.compute_capability = 9, "device->compute_capability is 9")
    BAD(device.num_sms = 0, "device->num_sms is 0")
    BAD(device.shared_per_block = 0, "device->shared_per_block is 0")
    /* No class, though there are no rows either that could tell. */
    BAD((device.compute_capability = UINT32_MAX, device.num_sms = 0), "device->")
    BAD((device.compute_capability = 0, device.num_sms = 0), "device->")
#undef BAD
    problem = toy_problem(GEN_LINE, 8);
    device = toy_device("h200");
    assert_status(gen_select(NULL, &device, &problem.base, &plan), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("library is NULL");
    assert_status(gen_select(library, NULL, &problem.base, &plan), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("device is NULL");
    assert_status(gen_select(library, &device, NULL, &plan), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("problem is NULL");
    assert_status(gen_select(library, &device, &problem.base, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("plan is NULL");
    assert_memory_equal(&plan, &before, sizeof(plan));
    toy_close(library);
}

static void unsupported(const gen_library *library, const char *device_name,
                        const gen_toy_problem *problem)
{
    const gen_device device = toy_device(device_name);
    gen_plan plan, before;
    memset(&plan, 0x5a, sizeof(plan));
    before = plan;
    assert_status(gen_select(library, &device, &problem->base, &plan), GEN_STATUS_UNSUPPORTED);
    assert_memory_equal(&plan, &before, sizeof(plan));
}

static void unsupported_problems_say_what_is_near_and_what_helps(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    problem.dim = 128;
    unsupported(library, "h200", &problem);
    assert_message("no variant of line (dtype=bf16 dim=128) for sm_90");
    assert_message("line_bf16_d64: has dim 64, asked is 128");
    assert_message("line_fp16_d64: has dtype fp16, asked is bf16; dim 64, asked is 128");
    assert_message("attngen build --families line --targets sm_90a");

    problem = toy_problem(GEN_LINE, 8);
    problem.dtype = 1;
    unsupported(library, "b200", &problem);
    assert_message("line_fp16_d64__sm90a_a is made for sm_90a, the device is sm_100");
    assert_message("attngen build --families line --targets sm_100a");

    problem = toy_problem(GEN_TOY, 8);
    gen_device device = toy_device("h200");
    unsupported(library, "a100", &problem);
    assert_message("--targets sm_80");
    toy_close(library);

    struct product *product = product_new();
    const uint32_t family =
        product_family(product, "toy", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t group = product_group(product, "toy_bf16_d64", "bf16,64", family, target);
    product_variant(product, group, (struct product_variant){.name = "toy_x", .facts = {128, 1}});
    library = toy_open(product);
    unsupported(library, "h200", &problem);
    assert_message("toy_x does not fit: length is not a multiple of blocks");
    assert_null(strstr(gen_last_error(), "attngen build")); /* it would not help */
    gen_plan plan;
    problem.length = 128;
    device.shared_per_block = 1;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    problem = toy_problem(GEN_LINE, 8);
    unsupported(library, "h200", &problem);
    assert_message("the product has no variant of line");
    toy_close(library);
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
        cmocka_unit_test(a_limit_that_all_keep_changes_nothing),
        cmocka_unit_test(workspace_limit_is_a_matter_of_eligibility),
        cmocka_unit_test(empty_problem),
        cmocka_unit_test(cpu_needs_no_variant),
        cmocka_unit_test(the_caller_names_the_variant),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(unsupported_problems_say_what_is_near_and_what_helps),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
