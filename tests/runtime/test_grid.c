/*
 * The grids of several coordinates: gen_select()'s short way, which they serve, must
 * come to the same plan as the rules at length, which search all rows, to the last
 * byte. An argument multiplies the number of problems.
 */
#include "draw.h"
#include "test.h"

#include "product/grid_find.h"
#include "core/simd.h"
#include "wide.h"

#include <math.h>

#define MOST_ROWS 400
#define KIB_OF_8_KEYS 2048

static unsigned multiple = 1;

/* ---- logarithms -------------------------------------------------------- */

static void logarithms_rise_and_double(void **state)
{
    (void)state;
    float before = -1.0f;
    for (uint32_t i = 0; i < 1u << 17; i++) {
        const float x = 1.0f + (float)i / (1u << 17);
        const float log = gen__doublings(x);
        assert_true(log >= before);
        assert_true(fabs((double)log - log2((double)x)) < 3.0 / 65536);
        assert_true(log * 65536.0f == truncf(log * 65536.0f));
        for (int n = -40; n < 60; n += 9)
            assert_true(gen__doublings(ldexpf(x, n)) == log + (float)n);
        before = log;
    }
    assert_true(gen__doublings(1.0f) == 0.0f);
}

/* ---- tables ------------------------------------------------------------ */

enum kind {
    TUNED,     /* a grid, now and then with a hole */
    THIRDS,    /* 1, 1.5, 2, 3, 4, 6, ... */
    ANY_WHOLE, /* whole numbers, evenly in the logarithm */
    CLOSE,     /* whole numbers up to 40, many of them twice */
    FRACTIONS, /* any numbers, also below 1 */
    NUM_KINDS
};

static const double largest[4] = {2048, 16777216, 2048, 64};

static double draw_count(enum kind kind, unsigned c)
{
    const double octaves = log2(largest[c]);
    const double x = exp2(octaves * (draw(1u << 20) + 0.5) / (1u << 20));
    switch (kind) {
    case TUNED: /* here: powers of 4 */
        return exp2(2 * draw((unsigned)octaves / 2 + 1));
    case THIRDS:
        return exp2(draw((unsigned)octaves)) * (draw(2) ? 1.5 : 1.0);
    case ANY_WHOLE:
        return floor(x);
    case CLOSE:
        return 1 + draw(40);
    default:
        return x / 10;
    }
}

struct rows {
    unsigned num_coords, count;
    double counts[MOST_ROWS][4];
};

static void draw_rows(struct rows *rows, enum kind kind, unsigned num_coords, unsigned count)
{
    rows->num_coords = num_coords;
    rows->count = count;
    for (unsigned i = 0; i < count; i++)
        for (unsigned c = 0; c < 4; c++)
            rows->counts[i][c] = i && draw(10) == 0 ? rows->counts[draw(i)][c] /* in a line */
                                                    : draw_count(kind, c);
}

/* With a share of variants that do not fit every problem. */
static void add_rows(struct wide_text *text, const struct rows *rows, unsigned key, unsigned unfit)
{
    for (unsigned i = 0; i < rows->count; i++)
        wide_row(text, rows->num_coords, key, rows->counts[i],
                 draw(100) < unfit ? 5 + draw(3) : draw(5), 2.0 + draw(1000) / 7.0);
}

static int32_t whole(double x)
{
    return x < 1 ? 1 : x > 16777216 ? 16777216 : (int32_t)x;
}

/* At a row, beside one, half way between two, or anywhere. */
static void draw_problem(gen_wide_problem *problem, const struct rows *rows)
{
    const unsigned how = draw(6);
    const double *a = rows->counts[draw(rows->count)], *b = rows->counts[draw(rows->count)];
    for (unsigned c = 0; c < 4; c++) {
        double x = exp2(draw(2600) / 100.0 - 0.5);
        if (how < 2)
            x = how ? a[c] : draw(2) ? a[c] : b[c];
        else if (how < 4)
            x = how == 2 ? sqrt(a[c] * b[c]) : a[c] * (0.7 + draw(600) / 1000.0);
        problem->counts[c] = whole(x);
    }
    if ((int64_t)problem->counts[0] * problem->counts[2] > INT32_MAX)
        problem->counts[2] = 1;
    problem->counts[0] = whole(problem->counts[0]);
}

/* ---- both ways --------------------------------------------------------- */

static void same_both_ways(const gen_library *library, const struct rows *rows, unsigned key,
                           unsigned problems, unsigned counts_of[GEN_WHY_COUNT])
{
    static const char *const names[] = {"h200",     "h20",       "h100",
                                        "sm_90:80", "h100-pcie", "sm_90:104"};
    gen_device devices[6];
    for (unsigned d = 0; d < 6; d++)
        assert_status(gen_device_named(names[d], &devices[d]), GEN_OK);
    devices[5].memory_gbps = 0; /* not known */
    devices[4].shared_per_block = 100 * 1024;
    for (unsigned i = 0; i < problems; i++) {
        gen_wide_problem problem = wide_problem(rows->num_coords, key);
        const gen_device *device = &devices[draw(2) ? 0 : draw(6)];
        gen_plan plan, at_length;
        draw_problem(&problem, rows);
        assert_status(gen_select(library, device, &problem.base, &plan), GEN_OK);
        problem.base.max_workspace_mib = 1u << 20; /* by every rule in turn */
        assert_status(gen_select(library, device, &problem.base, &at_length), GEN_OK);
        if (memcmp(&plan, &at_length, sizeof(plan)) != 0)
            fail_msg(
                "%u coordinates, %u rows, problem %d %d %d %d on %s: variant %u, %.9g us (%s); "
                "at length %u, %.9g us (%s)",
                rows->num_coords, rows->count, problem.counts[0], problem.counts[1],
                problem.counts[2], problem.counts[3], device->name, plan.launch[0].variant,
                (double)plan.predicted_us, gen_why_string(plan.why), at_length.launch[0].variant,
                (double)at_length.predicted_us, gen_why_string(at_length.why));
        counts_of[plan.why]++;
    }
}

static void the_short_way_is_the_long_way(void **state)
{
    (void)state;
    unsigned counts_of[GEN_WHY_COUNT] = {0};
    for (unsigned round = 0; round < 240; round++) {
        static struct rows rows[3];
        const unsigned unfit = round % 4 == 3 ? 100 : round % 4 * 20;
        struct product *product = wide_product();
        struct wide_text tables[2] = {{0}, {0}};
        for (unsigned t = 0; t < 2; t++)
            wide_head(&tables[t], t ? 80 : 132);
        for (unsigned k = 0; k < 3; k++) {
            const unsigned count = 1 + draw(round % 8 == 0 ? 4 : round % 8 == 1 ? MOST_ROWS : 120);
            draw_rows(&rows[k], (enum kind)(draw(NUM_KINDS)), 2 + k, count);
            add_rows(&tables[0], &rows[k], k, unfit);
            add_rows(&tables[1], &rows[k], k, unfit);
        }
        for (unsigned t = 0; t < 2; t++)
            product_table(product, t ? "other" : "own", tables[t].at);
        void *bytes;
        gen_library *library;
        assert_status(product_open(product, &bytes, &library), GEN_OK);
        for (unsigned k = 0; k < 3; k++)
            same_both_ways(library, &rows[k], k, 1000 * multiple, counts_of);
        gen_close(library);
        free(bytes);
        free(tables[0].at);
        free(tables[1].at);
    }
    assert_true(counts_of[GEN_WHY_TABLE] > 1000 && counts_of[GEN_WHY_NEAREST] > 1000 &&
                counts_of[GEN_WHY_MODEL] > 100);
}

/* ---- what a grid covers, and what it takes ------------------------------- */

/* A table as a tuner makes it. */
static unsigned tuned_rows(struct rows *rows, unsigned key)
{
    rows->num_coords = 3;
    rows->count = 0;
    for (double requests = 1; requests <= 1024; requests *= 4)
        for (double kv = 256 << (key & 1); kv <= 131072; kv *= 4)
            for (double q = 16; q <= 256; q *= 4)
                if (requests * kv <= 16777216 && !(requests * q > 65536)) {
                    double *at = rows->counts[rows->count++];
                    at[0] = requests, at[1] = kv, at[2] = q, at[3] = 64;
                }
    return rows->count;
}

static uint32_t bytes_of_grids(const gen_library *library, unsigned *num_grids)
{
    uint32_t bytes = 0;
    *num_grids = 0;
    for (const struct gen__grid *grid = library->grids; grid; grid = grid->next, ++*num_grids)
        bytes += grid->bytes;
    return bytes;
}

/* How many of a thousand problems over the whole of a table find their rows in a cell's list. */
static unsigned per_mille_listed(const gen_library *library)
{
    unsigned found = 0, asked = 0;
    for (uint32_t r = 0; r < library->num_ranges; r++) {
        const struct gen__range *range = &library->ranges[r];
        assert_non_null(range->place.at);
        for (unsigned i = 0; i < 1000; i++, asked++) {
            float counts[4], us;
            const struct gen__row *next;
            for (unsigned c = 0; c < 4; c++)
                counts[c] = (float)draw_count(ANY_WHOLE, c);
            found += gen__grid_cell(&range->place, 3, gen__grid_counts(counts, 3)) != GEN__GRID_ALL;
            assert_non_null(gen__grid_find(range, 3, counts, &us, &next));
        }
    }
    return (unsigned)(1000.0 * found / asked);
}

static gen_library *open_eight_keys(void (*fill)(struct rows *, unsigned), void **bytes)
{
    static struct rows rows;
    struct product *product = wide_product();
    for (unsigned t = 0; t < 2; t++) {
        struct wide_text table = {0};
        wide_head(&table, t ? 80 : 132);
        for (unsigned key = 0; key < WIDE_KEYS; key++) {
            fill(&rows, key);
            add_rows(&table, &rows, key, 0);
        }
        product_table(product, t ? "other" : "own", table.at);
        free(table.at);
    }
    gen_library *library;
    assert_status(product_open(product, bytes, &library), GEN_OK);
    return library;
}

static void fill_tuned(struct rows *rows, unsigned key)
{
    assert_in_range(tuned_rows(rows, key), 60, 150);
}

static void fill_any(struct rows *rows, unsigned key)
{
    (void)key;
    draw_rows(rows, ANY_WHOLE, 3, 100);
}

struct coverage {
    unsigned per_mille, num_grids;
    uint32_t bytes;
};

static struct coverage coverage_of(const char *what, void (*fill)(struct rows *, unsigned))
{
    void *bytes;
    gen_library *library = open_eight_keys(fill, &bytes);
    struct coverage c = {.per_mille = per_mille_listed(library)};
    c.bytes = bytes_of_grids(library, &c.num_grids);
    print_message("%s: %u of 1000 problems, %u bytes in %u grids\n", what, c.per_mille, c.bytes,
                  c.num_grids);
    gen_close(library);
    free(bytes);
    return c;
}

static void a_tuned_table_is_covered(void **state)
{
    (void)state;
    const struct coverage c = coverage_of("tuned tables", fill_tuned);
    assert_true(c.per_mille > 990);
    assert_int_equal(c.num_grids, 2); /* ranges with the same rows share one */
}

static void memory_is_bounded(void **state)
{
    (void)state;
    const struct coverage c = coverage_of("any rows", fill_any);
    assert_int_equal(c.num_grids, 2 * WIDE_KEYS);
    assert_true(c.bytes < KIB_OF_8_KEYS * 1024);
    assert_true(c.per_mille > 500);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithms_rise_and_double),
        cmocka_unit_test(the_short_way_is_the_long_way),
        cmocka_unit_test(a_tuned_table_is_covered),
        cmocka_unit_test(memory_is_bounded),
    };
    if (argc > 1)
        multiple = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests_name("grid", tests, NULL, NULL);
}
