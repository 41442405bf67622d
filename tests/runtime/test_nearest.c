/*
 * The search for tuning rows against a plain one in double precision: rows of one to four
 * coordinates, as a tuner has them and at random, fewer than a block and more than a chunk, with
 * equal rows, with variants passed over, and with more variants than there are slots.
 */
#include "draw.h"
#include "test.h"

#include "product/nearest.h"
#include "format/rows.h"

#include <math.h>

#define MOST_ROWS 1400
#define MOST_VARIANTS 400

static struct gen_pack_row rows[MOST_ROWS];
static uint32_t refused_variants; /* those below */

static float draw_count(bool grid)
{
    return grid ? (float)(1u << draw(12)) * (draw(3) ? 1.0f : 1.5f)
                : floorf(exp2f((float)draw(1u << 16) / 3000.0f));
}

static int order_rows(const void *a, const void *b)
{
    return gen_table_order_counts(((const struct gen_pack_row *)a)->counts,
                                  ((const struct gen_pack_row *)b)->counts);
}

static void draw_rows(uint32_t num_coords, uint32_t count, uint32_t num_variants)
{
    const bool grid = draw(2);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < GEN__MAX_COORDS; c++)
            rows[i].counts[c] = c < num_coords ? draw_count(grid) : 1.0f;
        rows[i].us = 1.0f + (float)draw(1000);
        rows[i].variant = draw(num_variants);
    }
    qsort(rows, count, sizeof(*rows), order_rows);
}

static double distance_to(uint32_t row, uint32_t num_coords, const float *counts)
{
    double sum = 0.0;
    for (uint32_t c = 0; c < num_coords; c++)
        sum += fabs(log2((double)rows[row].counts[c]) - log2((double)counts[c]));
    return sum;
}

static bool passed_over(uint32_t row)
{
    return rows[row].variant < refused_variants;
}

/* The two least distances. */
static void search_plainly(uint32_t num_coords, uint32_t count, const float *counts,
                           double least[2])
{
    least[0] = least[1] = INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        const double d = passed_over(i) ? INFINITY : distance_to(i, num_coords, counts);
        if (d < least[0]) {
            least[1] = least[0];
            least[0] = d;
        } else if (d < least[1]) {
            least[1] = d;
        }
    }
}

/* As far as it should be, and no row before it as near. */
static void check_row(uint32_t row, uint32_t distance, double expected, const float *counts,
                      uint32_t num_coords)
{
    const double near = 2e-4;
    if (isinf(expected)) {
        assert_true(row == GEN__NO_ROW);
        return;
    }
    assert_true(row != GEN__NO_ROW && !passed_over(row));
    assert_true(fabs(distance_to(row, num_coords, counts) - expected) < near);
    assert_true(fabs((double)distance / GEN__OCTAVE - expected) < near);
}

static void check_search(const struct gen__class_rows *class_rows, uint32_t num_coords,
                         uint32_t count, const uint32_t *refused)
{
    float counts[GEN__MAX_COORDS] = {1.0f, 1.0f, 1.0f, 1.0f};
    double least[2];
    if (draw(4))
        for (uint32_t c = 0; c < num_coords; c++)
            counts[c] = draw_count(draw(2));
    else
        memcpy(counts, rows[draw(count)].counts, sizeof(counts));
    const struct gen__position at = gen__position_of(counts, 1.0f);
    const struct gen__nearest found = gen__nearest_rows(class_rows, &at, refused);
    search_plainly(num_coords, count, counts, least);
    check_row(found.row, found.distance, least[0], counts, num_coords);
    check_row(found.second, found.second_distance, least[1], counts, num_coords);
    assert_true(found.row == GEN__NO_ROW || found.row != found.second);
    /* Of rows that are equally near the first counts. */
    for (uint32_t i = 0; found.row != GEN__NO_ROW && i < found.row; i++)
        assert_true(passed_over(i) ||
                    memcmp(rows[i].counts, rows[found.row].counts, sizeof(rows[i].counts)) != 0);
    if (!refused && num_coords > 1 && found.second != GEN__NO_ROW) {
        const double part = least[0] + least[1] > 0.0 ? least[0] / (least[0] + least[1]) : 0.0;
        const double us = (double)rows[found.row].us *
                          pow((double)rows[found.second].us / (double)rows[found.row].us, part);
        assert_true(fabs((double)gen__rows_time(class_rows, &at, &found) / us - 1.0) < 5e-3);
    }
}

static void nearest_two(void **state)
{
    static const uint32_t sizes[] = {1, 2, 7, 8, 9, 60, 251, 511, 512, 513, 1030, MOST_ROWS};
    (void)state;
    for (uint32_t num_coords = 1; num_coords <= GEN__MAX_COORDS; num_coords++) {
        const struct gen__family family = {.num_coords = num_coords};
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            for (int round = 0; round < 6; round++) {
                const uint32_t num_variants = round % 2 ? 11 : 1 + draw(200);
                uint32_t refused[GEN__MAX_SLOTS];
                draw_rows(num_coords, sizes[s], num_variants);
                struct gen__class_rows *class_rows = gen__class_rows_new(&family, rows, sizes[s]);
                assert_non_null(class_rows);
                refused_variants = 0;
                for (int i = 0; i < 60; i++)
                    check_search(class_rows, num_coords, sizes[s], NULL);
                refused_variants = draw(num_variants + 1);
                for (uint32_t i = 0; i < sizes[s]; i++)
                    refused[class_rows->slots[i]] =
                        rows[i].variant < refused_variants ? UINT32_MAX : 0;
                for (int i = 0; i < 60; i++)
                    check_search(class_rows, num_coords, sizes[s], refused);
                free(class_rows);
            }
    }
}

/* The last slot is for all variants that have none of their own. */
static void more_variants_than_slots(void **state)
{
    const struct gen__family family = {.num_coords = 1};
    (void)state;
    for (uint32_t i = 0; i < MOST_VARIANTS; i++)
        rows[i] = (struct gen_pack_row){
            .counts = {(float)(i + 1), 1.0f, 1.0f, 1.0f}, .us = 1.0f, .variant = i};
    struct gen__class_rows *class_rows = gen__class_rows_new(&family, rows, MOST_VARIANTS);
    assert_non_null(class_rows);
    assert_int_equal(class_rows->num_slots, GEN__MAX_SLOTS);
    for (uint32_t i = 0; i < MOST_VARIANTS; i++)
        assert_int_equal(class_rows->slots[i],
                         i < GEN__MAX_SLOTS - 1 ? i : (uint32_t)GEN__MAX_SLOTS - 1);
    free(class_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nearest_two),
                                       cmocka_unit_test(more_variants_than_slots)};
    return cmocka_run_group_tests_name("nearest", tests, NULL, NULL);
}
