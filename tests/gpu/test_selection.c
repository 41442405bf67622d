/*
 * Selection by the product, of random problems of every family and required key: a library opened
 * by the prepared tuning tables makes the same plan, to the last byte, as one opened by their text,
 * and gen_select()'s short way the same as the rules at length. ATTNGEN_PRODUCT names the product.
 * Needs no GPU. An argument multiplies the number of problems.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "format/product.h"
#include "common/problems.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBLEMS 2000 /* of a family, on every device */

static size_t multiple = 1;

struct file {
    unsigned char *bytes;
    size_t size;
};

static struct file read_product(void)
{
    const char *path = getenv("ATTNGEN_PRODUCT");
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file)
        fail_msg("ATTNGEN_PRODUCT = %s cannot be read", path ? path : "(not set)");
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    assert_true(size > 0);
    struct file f = {malloc((size_t)size), (size_t)size};
    rewind(file);
    assert_non_null(f.bytes);
    assert_int_equal(fread(f.bytes, 1, f.size, file), f.size);
    fclose(file);
    return f;
}

static gen_library *open_bytes(const struct file *f)
{
    const gen_open_options options = {
        .size = sizeof options, .data = f->bytes, .data_size = f->size};
    gen_library *library = NULL;
    if (gen_open(&options, &library) != GEN_OK)
        fail_msg("%s", gen_last_error());
    return library;
}

/* Takes the prepared tables out; how many there were. */
static uint32_t drop_prepared(struct file *f)
{
    struct gen_pack_footer footer;
    struct gen_pack_index index;
    uint32_t dropped = 0;
    unsigned char *end = f->bytes + f->size - sizeof footer;
    memcpy(&footer, end, sizeof footer);
    memcpy(&index, f->bytes + footer.index_offset, sizeof index);
    for (uint32_t i = 0; i < index.num_tables; i++) {
        unsigned char *at = f->bytes + index.tables_offset + i * sizeof(struct gen_pack_table);
        struct gen_pack_table table;
        memcpy(&table, at, sizeof table);
        dropped += table.prepared_size > 0;
        table.prepared_size = 0;
        memcpy(at, &table, sizeof table);
    }
    footer.index_hash = gen_pack_hash(f->bytes + footer.index_offset, footer.index_size);
    memcpy(end, &footer, sizeof footer);
    return dropped;
}

typedef enum gen_status select_fn(const gen_library *library, const gen_device *device,
                                  const struct shape *shape, gen_plan *plan);

static enum gen_status as_it_is(const gen_library *library, const gen_device *device,
                                const struct shape *shape, gen_plan *plan)
{
    return gen_select(library, device, shape->problem, plan);
}

/* By every rule in turn: a limit that nothing reaches. */
static enum gen_status at_length(const gen_library *library, const gen_device *device,
                                 const struct shape *shape, gen_plan *plan)
{
    union {
        gen_problem base;
        unsigned char bytes[256];
    } problem;
    assert_true(shape->family->problem_size <= sizeof problem);
    memcpy(&problem, shape->problem, shape->family->problem_size);
    problem.base.max_workspace_mib = UINT32_MAX;
    return gen_select(library, device, &problem.base, plan);
}

/* Two libraries or two ways; how many are chosen by a table. */
static size_t same_plans(const gen_library *const libraries[2], select_fn *const ways[2],
                         const struct shape_list *list, const gen_device *device)
{
    size_t by_table = 0;
    for (size_t i = 0; i < list->count; i++) {
        gen_plan plans[2];
        enum gen_status status[2];
        memset(plans, 0, sizeof plans);
        for (int k = 0; k < 2; k++)
            status[k] = ways[k](libraries[k], device, &list->item[i], &plans[k]);
        if (status[0] != status[1] || memcmp(&plans[0], &plans[1], sizeof plans[0]) != 0)
            fail_msg("%s on %s: variant %u, %.9g us; the other way %u, %.9g us", list->item[i].name,
                     device->name, plans[0].launch[0].variant, (double)plans[0].predicted_us,
                     plans[1].launch[0].variant, (double)plans[1].predicted_us);
        by_table += status[0] == GEN_OK && plans[0].why == GEN_WHY_TABLE;
    }
    return by_table;
}

/* Of every family, on several devices. */
static void same_everywhere(const gen_library *const libraries[2], select_fn *const ways[2])
{
    static const char *const names[] = {"h200", "h100-pcie", "sm_90:80", "a100"};
    size_t by_table = 0;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        struct shape_list shapes = {0}, none = {0}, problems = {0};
        shapes_load(&shapes, gen__families[f], SHAPES_TIMED, NULL);
        shapes_random(&problems, &shapes, &none, gen__families[f], PROBLEMS * multiple, f + 1);
        for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
            gen_device device;
            if (gen_device_named(names[d], &device) != GEN_OK)
                fail_msg("%s", gen_last_error());
            by_table += same_plans(libraries, ways, &problems, &device);
        }
        shapes_free(&shapes);
        shapes_free(&problems);
    }
    assert_true(by_table > 1000);
}

static void prepared_is_parsed(void **state)
{
    struct file prepared = read_product(), parsed = read_product();
    (void)state;
    assert_true(drop_prepared(&parsed) > 0);
    gen_library *const a = open_bytes(&prepared), *const b = open_bytes(&parsed);
    same_everywhere((const gen_library *const[]){a, b}, (select_fn *const[]){as_it_is, as_it_is});
    gen_close(a);
    gen_close(b);
    free(prepared.bytes);
    free(parsed.bytes);
}

static void the_short_way_is_the_long_way(void **state)
{
    struct file product = read_product();
    (void)state;
    gen_library *const library = open_bytes(&product);
    same_everywhere((const gen_library *const[]){library, library},
                    (select_fn *const[]){as_it_is, at_length});
    gen_close(library);
    free(product.bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prepared_is_parsed),
                                       cmocka_unit_test(the_short_way_is_the_long_way)};
    if (argc > 1)
        multiple = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests_name("selection", tests, NULL, NULL);
}
