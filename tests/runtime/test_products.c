/* Several products opened as one library, against one product of all that is in them. */
#include "test.h"

#include "fake.h"
#include "toy.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER SCRATCH_DIR "/test_products"
#define FACTS "blocks,weight,launches,workspace"

/* ---- products by target --------------------------------------------------- */

enum { TEXT = 1, MAJOR = 2, EXACT = 4, ALL = 7 };

static const struct {
    unsigned target;
    const char *group, *values, *name;
    int32_t blocks, weight;
    int fallback;
} variants[] = {
    {TEXT, "line_bf16_d64", "bf16,64", "line_bf16_d64__compute80_a", 1, 90, 1},
    {MAJOR, "line_bf16_d64", "bf16,64", "line_bf16_d64__sm80_a", 1, 50, 1},
    {MAJOR, "line_bf16_d64", "bf16,64", "line_bf16_d64__sm80_b", 1, 40, 0},
    {EXACT, "line_bf16_d64", "bf16,64", "line_bf16_d64__sm90a_a", 1, 30, 1},
    {EXACT, "line_bf16_d64", "bf16,64", "line_bf16_d64__sm90a_b", 128, 20, 0},
    {EXACT, "line_fp16_d64", "fp16,64", "line_fp16_d64__sm90a_a", 1, 0, 1},
    {TEXT, "toy_bf16_d64", "bf16,64", "toy_bf16_d64__compute80_a", 1, 70, 1},
    {EXACT, "toy_bf16_d64", "bf16,64", "toy_bf16_d64__sm90a_a", 1, 30, 1},
    {EXACT, "toy_bf16_d64", "bf16,64", "toy_bf16_d64__sm90a_b", 1, 20, 0},
    {TEXT, "toy_fp16_d64", "fp16,64", "toy_fp16_d64__compute80_a", 1, 60, 1},
};
enum { NUM_VARIANTS = sizeof(variants) / sizeof(variants[0]) };

/* Rows of an H200 and of an A100: for machine code, and for text beside it. */
static void add_tables(struct product *product)
{
    char h200[4096] = "", a100[4096] = "";
    toy_table_head(h200, sizeof(h200), 90, 132, 4800);
    for (int i = 1; i <= 64; i *= 4) {
        char tiles[32], us[8];
        snprintf(tiles, sizeof(tiles), "tiles=%d", i);
        snprintf(us, sizeof(us), "%d", 4 + i);
        toy_table_row(h200, sizeof(h200), "line_bf16_d64", tiles,
                      i % 16 ? "line_bf16_d64__sm90a_a" : "line_bf16_d64__sm90a_b", us);
        toy_table_row(h200, sizeof(h200), "line_bf16_d64", tiles, "line_bf16_d64__compute80_a",
                      "1");
    }
    char digest[17], row[256];
    toy_digest("toy_bf16_d64__sm90a_a", digest);
    snprintf(row, sizeof(row),
             "toy\ttoy_bf16_d64\ttiles=8,length=64\ttoy_bf16_d64__sm90a_a\t3\t-\t"
             "toy_bf16_d64__sm90a_b\t4\t%s\t-\t-\n",
             digest);
    strcat(h200, row);
    toy_table_row(h200, sizeof(h200), "toy_bf16_d64", "tiles=8,length=64",
                  "toy_bf16_d64__compute80_a", "1");
    toy_table_row(h200, sizeof(h200), "toy_fp16_d64", "tiles=8,length=64",
                  "toy_fp16_d64__compute80_a", "5");
    toy_table_head(a100, sizeof(a100), 80, 108, 2000);
    toy_table_row(a100, sizeof(a100), "line_bf16_d64", "tiles=16", "line_bf16_d64__sm80_a", "7");
    toy_table_row(a100, sizeof(a100), "toy_bf16_d64", "tiles=8,length=64",
                  "toy_bf16_d64__compute80_a", "6");
    product_table(product, "sm80_108sm", a100);
    product_table(product, "sm90_132sm", h200);
}

static uint32_t target_of(struct product *product, unsigned target)
{
    return target == TEXT    ? product_target(product, "compute_80", 80, GEN_PACK_PTX)
           : target == MAJOR ? product_target(product, "sm_80", 80, GEN_PACK_MAJOR)
                             : product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
}

/* The variants of some targets, with targets and families in another order in each. */
static struct product *of_targets(unsigned targets, uint64_t digest)
{
    struct product *product = product_new();
    const bool turned = targets == EXACT;
    uint32_t line = 0, target[8] = {0};
    if (!turned)
        line = product_family(product, "line", "dtype,dim", FACTS);
    const uint32_t toy = product_family(product, "toy", "dtype,dim", FACTS);
    if (turned)
        line = product_family(product, "line", "dtype,dim", FACTS);
    for (unsigned t = EXACT; t; t /= 2)
        if (targets & t)
            target[t] = target_of(product, t);
    const char *last = "";
    uint32_t group = 0, last_target = 0;
    for (size_t i = 0; i < NUM_VARIANTS; i++) {
        if (!(targets & variants[i].target))
            continue;
        if (strcmp(last, variants[i].group) != 0 || last_target != variants[i].target)
            group =
                product_group(product, variants[i].group, variants[i].values,
                              variants[i].group[0] == 'l' ? line : toy, target[variants[i].target]);
        last = variants[i].group;
        last_target = variants[i].target;
        product_variant(
            product, group,
            (struct product_variant){.name = variants[i].name,
                                     .facts = {variants[i].blocks, variants[i].weight, 1, 0},
                                     .fallback = variants[i].fallback,
                                     .digest = digest});
    }
    return product;
}

static struct product *one_group(const char *group, const char *values,
                                 struct product_variant variant)
{
    struct product *product = product_new();
    const uint32_t line = product_family(product, "line", "dtype,dim", FACTS);
    const uint32_t target = target_of(product, EXACT);
    variant.facts[0] = 1;
    product_variant(product, product_group(product, group, values, line, target), variant);
    return product;
}

/* A file with a product, which is freed. */
static const char *write_product(struct product *product, const char *path)
{
    size_t size;
    void *bytes = product_bytes(product, &size);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
    product_free(product);
    return path;
}

static struct product *with_tables(unsigned targets)
{
    struct product *product = of_targets(targets, 0);
    add_tables(product);
    return product;
}

#define FILE_TEXT FOLDER "/text.fatbin"
#define FILE_MAJOR FOLDER "/major.fatbin"
#define FILE_EXACT FOLDER "/exact.fatbin"
#define FILE_ALL FOLDER "/all.fatbin"

static gen_library *open_files(const char *const *paths, size_t count)
{
    const gen_open_options options = {.size = sizeof(options),
                                      .path = paths[0],
                                      .more_paths = paths + 1,
                                      .num_more_paths = count - 1};
    gen_library *library = NULL;
    assert_status(gen_open(&options, &library), GEN_OK);
    return library;
}
#define OPEN(...)                                  \
    open_files((const char *const[]){__VA_ARGS__}, \
               sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static gen_library_info info_of(const gen_library *library)
{
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    return info;
}

static gen_variant_info variant_of(const gen_library *library, uint32_t index)
{
    gen_variant_info info = {.size = sizeof(info)};
    assert_status(gen_variant_get(library, index, &info), GEN_OK);
    return info;
}

static int write_files(void **state)
{
    assert_true(mkdir(FOLDER, 0777) == 0 || access(FOLDER, W_OK) == 0);
    write_product(with_tables(TEXT), FILE_TEXT);
    write_product(with_tables(MAJOR), FILE_MAJOR);
    write_product(with_tables(EXACT), FILE_EXACT);
    write_product(with_tables(ALL), FILE_ALL);
    return fake_open(state);
}

static int remove_files(void **state)
{
    (void)state;
    return system("rm -rf '" FOLDER "'");
}

/* ---- one library of several ------------------------------------------------ */

/* Without the lines about tables, of which several products have more. */
static void explain(const gen_library *library, const gen_device *device,
                    const gen_toy_problem *problem, char text[4096])
{
    char *to = text;
    assert_status(gen_explain(library, device, &problem->base, text, 4096, NULL), GEN_OK);
    for (char *line = text; *line;) {
        const size_t length = strcspn(line, "\n") + 1;
        if (strncmp(line, "table ", 6) != 0) {
            memmove(to, line, length);
            to += length;
        }
        line += length;
    }
    *to = '\0';
}

/* Every answer of `several` is that of `one`, plans included but for the product's digest. */
static void assert_same(const gen_library *several, const gen_library *one)
{
    static const char *const devices[] = {"h200", "h20", "a100", "l40s", "b200"};
    unsigned selected = 0;
    const gen_library_info have = info_of(several), want = info_of(one);
    assert_int_equal(have.num_variants, want.num_variants);
    assert_int_equal(have.num_rows, want.num_rows);
    for (uint32_t i = 0; i < want.num_variants; i++) {
        const gen_variant_info a = variant_of(several, i), b = variant_of(one, i);
        assert_string_equal(a.name, b.name);
        assert_string_equal(a.family, b.family);
        assert_string_equal(a.required, b.required);
        assert_string_equal(a.target, b.target);
        assert_int_equal(a.is_fallback, b.is_fallback);
        assert_true(a.digest == b.digest && a.code_digest == b.code_digest);
    }
    for (uint32_t i = 0; i < 5 * 2 * 2 * 64; i++) {
        const gen_device device = toy_device(devices[i % 5]);
        gen_toy_problem problem = toy_problem(i / 5 % 2 ? GEN_LINE : GEN_TOY, 1 + (int)(i / 20));
        problem.dtype = (int)(i / 10 % 2);
        gen_plan a, b;
        memset(&a, 0, sizeof(a));
        a.size = sizeof(a);
        b = a;
        const enum gen_status status = gen_select(one, &device, &problem.base, &b);
        assert_status(gen_select(several, &device, &problem.base, &a), status);
        a.library_digest = b.library_digest;
        assert_memory_equal(&a, &b, offsetof(gen_plan, seal));
        char told[2][4096];
        explain(one, &device, &problem, told[0]);
        explain(several, &device, &problem, told[1]);
        assert_string_equal(told[1], told[0]);
        selected += status == GEN_OK;
    }
    assert_true(selected > 500);
}

static void several_are_as_one(void **state)
{
    (void)state;
    gen_library *one = OPEN(FILE_ALL);
    assert_int_equal(info_of(one).num_variants, NUM_VARIANTS);
    assert_int_equal(info_of(one).num_rows, 8);
    gen_library *const several[] = {
        OPEN(FILE_TEXT, FILE_MAJOR, FILE_EXACT), OPEN(FILE_EXACT, FILE_TEXT, FILE_MAJOR),
        OPEN(FILE_MAJOR, FILE_EXACT, FILE_TEXT), OPEN(FILE_ALL, FILE_TEXT),
        OPEN(FILE_TEXT, FILE_ALL, FILE_EXACT)};
    for (size_t i = 0; i < sizeof(several) / sizeof(several[0]); i++) {
        assert_same(several[i], one);
        gen_close(several[i]);
    }
    gen_close(one);
}

/* Each variant is launched from the file that it is in. */
static void images_come_from_their_files(void **state)
{
    (void)state;
    static const char *const devices[] = {"h200", "a100", "b200"};
    static const char *const symbols[] = {"line_bf16_d64__sm90a_a", "line_bf16_d64__sm80_a",
                                          "line_bf16_d64__compute80_a"};
    static float data[16];
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, data, data};
    fake_start();
    gen_library *library = OPEN(FILE_TEXT, FILE_EXACT, FILE_MAJOR);
    for (size_t i = 0; i < 3; i++) {
        const gen_device device = toy_device(devices[i]);
        const gen_toy_problem problem = toy_problem(GEN_LINE, 16);
        gen_plan plan = {.size = sizeof(plan)};
        assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
        assert_string_equal(toy_chosen(library, &plan), symbols[i]);
        assert_status(gen_preload(library, &plan), GEN_OK);
        if (i == 0)
            assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    }
    assert_string_equal(fake.cuda->launches[0].symbol, symbols[0]);
    assert_int_equal(fake.cuda->num_loads, 3);
    gen_close(library);
    assert_int_equal(fake.cuda->num_unloads, 3);
}

/* A product that adds nothing changes nothing: plans hold on both sides. */
static void the_same_counts_once(void **state)
{
    (void)state;
    gen_library *one = OPEN(FILE_ALL), *twice = OPEN(FILE_ALL, FILE_ALL),
                *more = OPEN(FILE_ALL, FILE_EXACT), *less = OPEN(FILE_EXACT, FILE_ALL);
    assert_int_equal(info_of(twice).num_variants, NUM_VARIANTS);
    assert_true(info_of(twice).digest == info_of(one).digest);
    assert_true(info_of(more).digest == info_of(one).digest);
    assert_true(info_of(less).digest != info_of(one).digest);
    gen_library *exact = OPEN(FILE_EXACT);
    assert_true(info_of(less).digest != info_of(exact).digest);
    gen_library *ab = OPEN(FILE_TEXT, FILE_EXACT), *ba = OPEN(FILE_EXACT, FILE_TEXT);
    assert_true(info_of(ab).digest != info_of(ba).digest);
    gen_library *const all[] = {one, twice, more, less, exact, ab, ba};
    for (size_t i = 0; i < 7; i++)
        gen_close(all[i]);
}

/* Of one name the first file's variant counts, and rows that were measured on the other do not. */
static void other_kernels_of_the_same_names(void **state)
{
    (void)state;
    const char *other = FOLDER "/other.fatbin";
    struct product *product = of_targets(EXACT, 4711);
    char text[4096] = "", row[256];
    toy_table_head(text, sizeof(text), 90, 132, 4800);
    snprintf(row, sizeof(row),
             "line\tline_bf16_d64\ttiles=16\tline_bf16_d64__sm90a_a\t9\t-\t-\t-\t%016x\t-\t-\n",
             4711u);
    strcat(text, row);
    product_table(product, "sm90_132sm", text);
    write_product(product, other);
    gen_library *alone = OPEN(other);
    assert_int_equal(info_of(alone).num_rows, 1);
    gen_close(alone);

    struct product *plain = of_targets(EXACT, 0);
    const char *first = write_product(plain, FOLDER "/plain.fatbin");
    gen_library *library = OPEN(first, other);
    assert_int_equal(info_of(library).num_rows, 0);
    assert_int_equal(info_of(library).num_rows_expired, 1);
    assert_true(variant_of(library, 0).digest != 4711);
    gen_close(library);
    library = OPEN(other, first);
    assert_int_equal(info_of(library).num_rows, 1);
    assert_true(variant_of(library, 0).digest == 4711);
    gen_close(library);

    /* The same source by another toolkit; another source of the same machine code. */
    const char *same = write_product(
        one_group(
            "line_bf16_d64", "bf16,64",
            (struct product_variant){
                .name = "line_bf16_d64__sm90a_a", .fallback = 1, .digest = 4711, .code_digest = 1}),
        FOLDER "/same.fatbin");
    library = OPEN(same, other);
    assert_int_equal(info_of(library).num_rows, 1);
    gen_close(library);
    same = write_product(one_group("line_bf16_d64", "bf16,64",
                                   (struct product_variant){.name = "line_bf16_d64__sm90a_a",
                                                            .fallback = 1,
                                                            .digest = 1,
                                                            .code_digest = ~(uint64_t)4711}),
                         FOLDER "/same.fatbin");
    library = OPEN(same, other);
    assert_int_equal(info_of(library).num_rows, 1);
    gen_close(library);
}

static void the_first_files_fallback_stays(void **state)
{
    (void)state;
    const char *last = write_product(
        one_group("line_bf16_d64", "bf16,64",
                  (struct product_variant){.name = "line_bf16_d64__sm90a_A", .fallback = 1}),
        FOLDER "/last.fatbin");
    gen_library *library = OPEN(FILE_EXACT, last);
    assert_string_equal(variant_of(library, 0).name, "line_bf16_d64__sm90a_A");
    assert_int_equal(variant_of(library, 0).is_fallback, 0);
    assert_int_equal(variant_of(library, 1).is_fallback, 1);
    gen_close(library);
    library = OPEN(last, FILE_EXACT);
    assert_int_equal(variant_of(library, 0).is_fallback, 1);
    assert_int_equal(variant_of(library, 1).is_fallback, 0);
    gen_close(library);
}

/* What no generator writes: groups that cut each other, or one name in two groups. */
static void groups_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        const char *group, *values, *name;
    } wrong[] = {{"line_fp16_d64", "fp16,64", "line_bf16_d64__sm90a_aa"},
                 {"line_fp16_d64", "fp16,64", "line_bf16_d64__sm90a_a"},
                 {"line_bf16_d64", "bf16,64", "line_fp16_d64__sm90a_a"}};
    for (size_t i = 0; i < 3; i++) {
        const char *path =
            write_product(one_group(wrong[i].group, wrong[i].values,
                                    (struct product_variant){.name = wrong[i].name, .fallback = 1}),
                          FOLDER "/crossed.fatbin");
        const char *const more[] = {path};
        const gen_open_options options = {
            .size = sizeof(options), .path = FILE_EXACT, .more_paths = more, .num_more_paths = 1};
        gen_library *library = NULL;
        assert_status(gen_open(&options, &library), GEN_STATUS_FORMAT);
        assert_message("crossed.fatbin: its variants are grouped otherwise");
        assert_null(library);
    }
}

static void wrong_files(void **state)
{
    (void)state;
    const char *const missing[] = {FILE_MAJOR, FOLDER "/nowhere.fatbin"};
    gen_open_options options = {
        .size = sizeof(options), .path = FILE_EXACT, .more_paths = missing, .num_more_paths = 2};
    gen_library *library = NULL;
    assert_status(gen_open(&options, &library), GEN_STATUS_IO);
    assert_message("nowhere.fatbin: cannot be opened");
    struct product *product = product_new();
    product_family(product, "toy", "dtype", FACTS);
    const char *const odd[] = {write_product(product, FOLDER "/odd.fatbin")};
    options.more_paths = odd;
    options.num_more_paths = 1;
    assert_status(gen_open(&options, &library), GEN_STATUS_FORMAT);
    assert_message("odd.fatbin: family toy has required axes");
    options.num_more_paths = 2;
    options.more_paths = (const char *const[]){FILE_MAJOR, NULL};
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("more_paths has no path 1");
    options.more_paths = NULL;
    assert_status(gen_open(&options, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("more_paths has no path 0");
    assert_null(library);
}

/* Callers of other versions: without the last fields, and with more, which must be zero. */
static void options_of_other_sizes(void **state)
{
    (void)state;
    struct {
        gen_open_options known;
        char more[16];
    } options = {.known = {.path = FILE_MAJOR,
                           .more_paths = (const char *const[]){FILE_EXACT},
                           .num_more_paths = 1}};
    gen_library *library = NULL;
    options.known.size = offsetof(gen_open_options, more_paths);
    assert_status(gen_open(&options.known, &library), GEN_OK);
    assert_int_equal(info_of(library).num_variants, 2);
    gen_close(library);
    options.known.size = sizeof(options);
    assert_status(gen_open(&options.known, &library), GEN_OK);
    assert_int_equal(info_of(library).num_variants, 7);
    gen_close(library);
    options.more[15] = 1;
    assert_status(gen_open(&options.known, &library), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("options->size is");
    options.known.size = offsetof(gen_open_options, more_paths) - 8;
    assert_status(gen_open(&options.known, &library), GEN_STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_are_as_one),
        cmocka_unit_test(images_come_from_their_files),
        cmocka_unit_test(the_same_counts_once),
        cmocka_unit_test(other_kernels_of_the_same_names),
        cmocka_unit_test(the_first_files_fallback_stays),
        cmocka_unit_test(groups_that_do_not_fit),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(options_of_other_sizes),
    };
    return cmocka_run_group_tests_name("products", tests, write_files, remove_files);
}
