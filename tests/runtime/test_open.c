/* Opening products: what the library says about them, and every way they are broken. */
#include "test.h"

#include "product/library.h"
#include "toy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <stdbool.h>
#include <unistd.h>

static gen_open_options of_bytes(const void *bytes, size_t size)
{
    return (gen_open_options){.size = sizeof(gen_open_options), .data = bytes, .data_size = size};
}

/* A product with a table, as bytes. */
static unsigned char *sample(size_t *size)
{
    char table[4096] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=16", "line_bf16_d64__sm90a_a", "9");
    struct product *product = toy_product();
    product_table(product, "sm90_132sm", table);
    unsigned char *bytes = product_bytes(product, size);
    product_free(product);
    return bytes;
}

static void what_is_told(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = sample(&size);
    gen_open_options options = of_bytes(bytes, size);
    gen_library *library;
    assert_status(gen_open(&options, &library), GEN_OK);
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    assert_int_equal(info.size, sizeof(info));
    assert_int_equal(info.num_variants, 12);
    assert_int_equal(info.num_families, 3);
    assert_int_equal(info.num_tables, 1);
    assert_int_equal(info.num_rows, 1);
    assert_int_equal(info.num_rows_bad, 0);
    assert_int_equal(info.num_rows_expired, 0);
    assert_int_equal(info.num_groups_skipped, 0);
    assert_string_equal(info.toolkit, "13.0");
    assert_true(info.digest != 0);

    char before[128] = "";
    for (uint32_t i = 0; i < info.num_variants; i++) {
        gen_variant_info v = {.size = sizeof(v)};
        assert_status(gen_variant_get(library, i, &v), GEN_OK);
        assert_true(strcmp(before, v.name) < 0);
        snprintf(before, sizeof(before), "%s", v.name);
        if (!strcmp(v.name, "line_bf16_d64__sm90a_big")) {
            assert_string_equal(v.family, "line");
            assert_string_equal(v.required, "line_bf16_d64");
            assert_string_equal(v.target, "sm_90a");
            assert_int_equal(v.threads, 128);
            assert_int_equal(v.shared_dynamic, 100 * 1024);
            assert_int_equal(v.shared_static, 1024);
            assert_int_equal(v.registers, 32);
            assert_int_equal(v.cluster, 1);
            assert_int_equal(v.is_fallback, 0);
        }
        if (!strcmp(v.name, "line_bf16_d64__sm90a_c"))
            assert_int_equal(v.is_fallback, 1);
    }
    gen_variant_info v = {.size = sizeof(v)};
    assert_status(gen_variant_get(library, info.num_variants, &v), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("variant index 12, the library has variants 0 to 11");
    assert_status(gen_variant_get(library, 0, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_variant_get(NULL, 0, &v), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_library_info_get(NULL, &info), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_library_info_get(library, NULL), GEN_STATUS_INVALID_ARGUMENT);
    gen_close(library);
    gen_close(NULL);
    free(bytes);
}

static void from_a_file(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = sample(&size);
    const char *path = SCRATCH_DIR "/test_open.fatbin";
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    gen_open_options options = {.size = sizeof(options), .path = path};
    gen_library *library = NULL;
    assert_status(gen_open(&options, &library), GEN_OK);
    gen_close(library);

    library = (gen_library *)(void *)bytes;
    options.path = SCRATCH_DIR "/no such file";
    assert_status(gen_open(&options, &library), GEN_STATUS_IO);
    assert_message("no such file: cannot be opened: No such file");
    options.path = SCRATCH_DIR;
    assert_status(gen_open(&options, &library), GEN_STATUS_IO);
    assert_message("not a regular file");
    file = fopen(path, "wb");
    fclose(file);
    options.path = path;
    assert_status(gen_open(&options, &library), GEN_STATUS_FORMAT);
    assert_message("0 bytes are too few for a product file");
    assert_ptr_equal(library, bytes); /* untouched */
    unlink(path);
    free(bytes);
}

static void wrong_options(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = sample(&size);
    gen_library *library = NULL;
    gen_open_options options = of_bytes(bytes, size);
    assert_status(gen_open(&options, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_open(NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    options.size = 8;
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("options->size is 8");
    options = of_bytes(bytes, size);
    options.flags = 1;
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("options->flags is 0x1");
    options = of_bytes(bytes, size);
    options.path = "x";
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("both of path and data");
    options = of_bytes(bytes, size);
    options.num_table_paths = 1;
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("table_paths has no path 0");
    const char *const no_path[] = {NULL};
    options.table_paths = no_path;
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("table_paths has no path 0");
    options = of_bytes(bytes + 4, size - 4);
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("not 8-byte aligned");
    assert_null(library);
    free(bytes);
}

/* Opens bytes that may be broken; where they open all the same, uses them. The
 * bytes end at the end of a page, so that a read beyond them is a crash. */
static enum gen_status try_bytes(const unsigned char *bytes, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (size + page - 1) / page * page;
    unsigned char *map =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map + room, page, PROT_NONE), 0);
    unsigned char *copy = map + (size % 8 ? 0 : room - size);
    memcpy(copy, bytes, size);
    gen_open_options options = of_bytes(copy, size);
    gen_library *library = NULL;
    const enum gen_status status = gen_open(&options, &library);
    if (status) {
        assert_null(library);
        assert_true(gen_last_error()[0] != '\0');
    } else {
        static const char *const devices[] = {"h200", "a100", "b200", "h20"};
        for (size_t i = 0; i < 4; i++) {
            const gen_device device = toy_device(devices[i]);
            const gen_toy_problem problem = toy_problem(i & 1 ? GEN_TOY : GEN_LINE, 16);
            gen_plan plan = {.size = sizeof(plan)};
            char text[512];
            size_t needed;
            (void)gen_select(library, &device, &problem.base, &plan);
            (void)gen_explain(library, &device, &problem.base, text, sizeof(text), &needed);
        }
        gen_library_info info = {.size = sizeof(info)};
        gen_variant_info v = {.size = sizeof(v)};
        assert_status(gen_library_info_get(library, &info), GEN_OK);
        for (uint32_t i = 0; i < info.num_variants; i++)
            assert_status(gen_variant_get(library, i, &v), GEN_OK);
        gen_close(library);
    }
    munmap(map, room + page);
    return status;
}

static void truncated_files(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = sample(&size);
    assert_status(try_bytes(bytes, size), GEN_OK);
    for (size_t cut = 1; cut < size; cut += cut < size - 256 ? 64 : 1)
        assert_status(try_bytes(bytes, cut), GEN_STATUS_FORMAT);
    assert_status(try_bytes(bytes, size - 1), GEN_STATUS_FORMAT);
    free(bytes);
}

static void flipped_bytes(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = sample(&size);
    struct gen_pack_footer footer;
    memcpy(&footer, bytes + size - sizeof(footer), sizeof(footer));
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0xff;
        const enum gen_status status = try_bytes(bytes, size);
        if (i >= footer.index_offset && status != GEN_STATUS_FORMAT)
            fail_msg("byte %zu of the index or footer is flipped, and gen_open says %s", i,
                     gen_status_name(status));
        bytes[i] ^= 0xff;
    }
    free(bytes);
}

/* Nonsense in the index with a hash that fits it: only the checks of every
 * number stand between it and a crash. */
static void nonsense_with_the_right_hash(void **state)
{
    (void)state;
    static const uint32_t values[] = {0,          1,          2,          7,          8,
                                      0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff, 4096};
    size_t size;
    unsigned char *bytes = sample(&size);
    struct gen_pack_footer footer;
    memcpy(&footer, bytes + size - sizeof(footer), sizeof(footer));
    unsigned refused = 0, opened = 0;
    for (size_t at = footer.index_offset; at + 4 <= size - sizeof(footer); at += 4) {
        uint32_t before;
        memcpy(&before, bytes + at, 4);
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            memcpy(bytes + at, &values[v], 4);
            struct gen_pack_footer forged = footer;
            forged.hash = gen_pack_seal(&forged, bytes + footer.index_offset);
            memcpy(bytes + size - sizeof(footer), &forged, sizeof(forged));
            if (try_bytes(bytes, size))
                refused++;
            else
                opened++;
        }
        memcpy(bytes + at, &before, 4);
    }
    assert_true(refused > 100 && opened > 100);
    free(bytes);
}

static void other_formats(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = sample(&size);
    struct gen_pack_footer footer;
    unsigned char *end = bytes + size - sizeof(footer);
    memcpy(&footer, end, sizeof(footer));
    /* The formats before had the footer that this one has. */
    static const uint32_t versions[] = {3, 4, 9};
    for (size_t i = 0; i < 3; i++) {
        char message[64];
        footer.version = versions[i];
        memcpy(end, &footer, sizeof(footer));
        assert_status(try_bytes(bytes, size), GEN_STATUS_FORMAT);
        snprintf(message, sizeof(message), "product format %u, this runtime reads format 5",
                 versions[i]);
        assert_message(message);
    }
    end[0] = 'X';
    assert_status(try_bytes(bytes, size), GEN_STATUS_FORMAT);
    assert_message("not an attngen product");
    free(bytes);
    static unsigned char zeros[4096];
    assert_status(try_bytes(zeros, sizeof(zeros)), GEN_STATUS_FORMAT);
    assert_status(try_bytes(zeros, 8), GEN_STATUS_FORMAT);
    assert_message("8 bytes are too few");
}

static void families_of_another_version(void **state)
{
    (void)state;
    static const struct {
        const char *required, *facts;
    } wrong[] = {
        {"dtype", "blocks,weight,launches,workspace"},
        {"dtype,dim,layout", "blocks,weight,launches,workspace"},
        {"dim,dtype", "blocks,weight,launches,workspace"},
        {"", "blocks,weight,launches,workspace"},
        {"dtypo,dim", "blocks,weight,launches,workspace"},
        {"dtype;dim", "blocks,weight,launches,workspace"},
        {"dtype,dim,", "blocks,weight,launches,workspace"},
        {"dtype,dim", "blocks,weight,launches"},
        {"dtype,dim", "weight,blocks,launches,workspace"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct product *product = product_new();
        product_family(product, "toy", wrong[i].required, wrong[i].facts);
        gen_library *library = NULL;
        assert_status(toy_open_tables(product, NULL, 0, &library), GEN_STATUS_FORMAT);
        assert_message("family toy has required axes");
        assert_message("rebuild the product");
    }
}

static void unknown_families_and_values_are_skipped(void **state)
{
    (void)state;
    struct product *product = toy_product();
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t later = product_family(product, "zeta", "x", "");
    uint32_t group = product_group(product, "zeta_1", "1", later, target);
    product_variant(product, group, (struct product_variant){.name = "zeta_1__sm90a_a"});
    group = product_group(product, "toy_fp8_d64", "fp8,64", 1, target);
    product_variant(product, group, (struct product_variant){.name = "toy_fp8_d64__sm90a_a"});
    group = product_group(product, "toy_fp16_d64x", "fp16,64,vk", 1, target);
    product_variant(product, group, (struct product_variant){.name = "toy_fp16_d64x__sm90a_a"});
    gen_library *library = toy_open(product);
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    assert_int_equal(info.num_groups_skipped, 3);
    assert_int_equal(info.num_variants, 15);
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_TOY, 1);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    toy_close(library);
}

static void texts(void **state)
{
    (void)state;
    assert_string_equal(gen_version(), "0.2.0");
    assert_string_equal(gen_status_name(GEN_OK), "OK");
    assert_string_equal(gen_status_string(GEN_OK), "success");
    for (int i = 0; i < GEN_STATUS_COUNT; i++) {
        assert_true(strlen(gen_status_name((enum gen_status)i)) > 1);
        assert_true(strlen(gen_status_string((enum gen_status)i)) > 6);
    }
    for (int i = 0; i < GEN_WHY_COUNT; i++)
        assert_true(strlen(gen_why_string((enum gen_why)i)) > 6);
    assert_string_equal(gen_status_name((enum gen_status)99), "UNKNOWN");
    assert_string_equal(gen_status_string((enum gen_status) - 1), "unknown status");
    assert_string_equal(gen_why_string((enum gen_why)99), "unknown rule");
}

static void first_message_is_empty(void **state)
{
    (void)state;
    assert_string_equal(gen_last_error(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_message_is_empty),
        cmocka_unit_test(what_is_told),
        cmocka_unit_test(from_a_file),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(truncated_files),
        cmocka_unit_test(flipped_bytes),
        cmocka_unit_test(nonsense_with_the_right_hash),
        cmocka_unit_test(other_formats),
        cmocka_unit_test(families_of_another_version),
        cmocka_unit_test(unknown_families_and_values_are_skipped),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests_name("open", tests, NULL, NULL);
}
