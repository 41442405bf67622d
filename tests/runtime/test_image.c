/* What a product's bytes are worth: a bit that flips anywhere is noticed by gen_open() or by the
 * load of its image, and a file may change, shrink or be none at all. */
#include "test.h"

#include "fake.h"
#include "product/library.h"
#include "toy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define BIG90 "line_bf16_d64__sm90a_big"

static const float in[4];
static float out[4];

struct bytes {
    unsigned char *at;
    size_t size;
    struct gen_pack_footer footer;
};

static struct bytes toy_bytes(void)
{
    char table[4096] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=4", "line_bf16_d64__sm90a_big",
                  "9");
    struct product *product = toy_product();
    product_table(product, "sm90_132sm", table);
    struct bytes b;
    b.at = product_bytes(product, &b.size);
    memcpy(&b.footer, b.at + b.size - sizeof(b.footer), sizeof(b.footer));
    product_free(product);
    return b;
}

static struct gen_pack_variant *variant_of(const struct bytes *b, const char *wanted, uint32_t *i)
{
    struct gen_pack_index index;
    memcpy(&index, b->at + b->footer.index_offset, sizeof(index));
    struct gen_pack_variant *v = (void *)(b->at + index.variants_offset);
    for (*i = 0; *i < index.num_variants; ++*i)
        if (!strcmp((char *)b->at + index.strings_offset + v[*i].name, wanted))
            return v + *i;
    fail_msg("no variant %s", wanted);
    return NULL;
}

static enum gen_status open_bytes(const struct bytes *b, gen_library **library)
{
    const gen_open_options options = {.size = sizeof(options), .data = b->at, .data_size = b->size};
    *library = NULL;
    return gen_open(&options, library);
}

static gen_plan plan_of(const gen_library *library, uint32_t index)
{
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 4);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select_variant(library, &device, &problem.base, BIG90, &plan), GEN_OK);
    assert_int_equal(plan.launch[0].variant, index);
    return plan;
}

/* Opens the bytes and loads every image; the first status that is bad. */
static enum gen_status open_and_load(const struct bytes *b)
{
    gen_library *library;
    gen_library_info info = {.size = sizeof(info)};
    enum gen_status status = open_bytes(b, &library);
    if (status)
        return status;
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    for (uint32_t i = 0; !status && i < info.num_variants; i++) {
        const void *image;
        void *owned;
        status = gen__pack_image(&library->pack, i, &image, &owned);
        free(owned);
    }
    gen_close(library);
    return status;
}

static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    assert_status(open_and_load(&b), GEN_OK);
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        b.at[bit / 8] ^= (unsigned char)(1u << bit % 8);
        const enum gen_status status = open_and_load(&b);
        if (status != GEN_STATUS_FORMAT)
            fail_msg("bit %zu of byte %zu of %zu is flipped, and the status is %s", bit % 8,
                     bit / 8, b.size, gen_status_name(status));
        b.at[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(b.at);
}

static void a_damaged_image_is_not_loaded(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    uint32_t index;
    fake_start();
    const struct gen_pack_variant *v = variant_of(&b, BIG90, &index);
    const size_t last = v->image_offset + gen_pack_room(v->image_size) - 1;
    b.at[last] ^= 4; /* of what fills the image up */
    gen_library *library;
    assert_status(open_bytes(&b, &library), GEN_OK); /* images are not looked at before they load */
    const gen_plan plan = plan_of(library, index);
    assert_status(gen_preload(library, &plan), GEN_STATUS_FORMAT);
    assert_message("the image of variant " BIG90 " is damaged (its hash differs)");
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_FORMAT);
    assert_int_equal(fake.cuda->num_loads, 0);
    b.at[last] ^= 4;
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    gen_close(library);
    free(b.at);
}

static void images_that_are_none_and_symbols(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    uint32_t index;
    const struct gen_pack_variant *v = variant_of(&b, BIG90, &index);
    unsigned char *image = b.at + v->image_offset;
    gen_library *library;
    fake_start();
    for (int at = 0; at < 16; at++) {
        if (at == 4 || at == 5)
            continue; /* the version is the driver's business */
        image[at] ^= 0xff;
        product_reseal(b.at, b.size, true);
        assert_status(open_bytes(&b, &library), GEN_OK);
        const gen_plan plan = plan_of(library, index);
        assert_status(gen_preload(library, &plan), GEN_STATUS_FORMAT);
        assert_message(BIG90 " is not a CUDA fatbin");
        gen_close(library);
        image[at] ^= 0xff;
    }
    image[16 + strlen("FAKE 90 ")] = 'L'; /* another symbol */
    product_reseal(b.at, b.size, true);
    assert_status(open_bytes(&b, &library), GEN_OK);
    const gen_plan plan = plan_of(library, index);
    assert_status(gen_preload(library, &plan), GEN_STATUS_DRIVER);
    assert_message("cuLibraryGetKernel returned FAKE_ERROR_500");
    assert_int_equal(fake.cuda->num_loads, fake.cuda->num_unloads);
    gen_close(library);
    free(b.at);
}

/* The header of a fatbin and its bytes fill the image to the last one, and no further. */
static void the_size_in_the_image(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    uint32_t index;
    const struct gen_pack_variant *v = variant_of(&b, BIG90, &index);
    unsigned char *image = b.at + v->image_offset;
    const uint64_t most = v->image_size - 16;
    static const uint16_t headers[] = {15, 16, 17, UINT16_MAX};
    for (size_t h = 0; h < 4; h++)
        for (uint64_t bytes = most - 2; bytes <= most + 1; bytes++) {
            memcpy(image + 6, &headers[h], 2);
            memcpy(image + 8, &bytes, 8);
            product_reseal(b.at, b.size, true);
            const bool good = headers[h] >= 16 && headers[h] + bytes <= v->image_size;
            assert_status(open_and_load(&b), good ? GEN_OK : GEN_STATUS_FORMAT);
        }
    const uint16_t all = (uint16_t)v->image_size;
    const uint64_t none = 0;
    memcpy(image + 6, &all, 2);
    memcpy(image + 8, &none, 8);
    product_reseal(b.at, b.size, true);
    assert_status(open_and_load(&b), GEN_OK);
    free(b.at);
}

static void images_fill_the_file(void **state)
{
    (void)state;
    static const struct {
        int64_t offset, size;
        bool opens;
    } changes[] = {{0, 0, true},   {16, 0, false}, {-16, 0, false},       {0, -16, false},
                   {0, 16, false}, {1, 0, false},  {0, INT64_MAX, false}, {0, -100000, false}};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct bytes b = toy_bytes();
        uint32_t index;
        struct gen_pack_variant *v = variant_of(&b, BIG90, &index);
        v->image_offset += (uint64_t)changes[i].offset;
        v->image_size += (uint64_t)changes[i].size;
        product_reseal(b.at, b.size, false);
        gen_library *library;
        const enum gen_status status = open_bytes(&b, &library);
        if (status != (changes[i].opens ? GEN_OK : GEN_STATUS_FORMAT))
            fail_msg("change %zu: %s", i, gen_status_name(status));
        gen_close(library);
        free(b.at);
    }
    /* The last image may not end before the index, nor the first begin behind the file's start. */
    struct bytes b = toy_bytes();
    struct gen_pack_index index;
    memcpy(&index, b.at + b.footer.index_offset, sizeof(index));
    struct gen_pack_variant *v = (void *)(b.at + index.variants_offset);
    v[index.num_variants - 1].image_size -= 16;
    product_reseal(b.at, b.size, false);
    gen_library *library;
    assert_status(open_bytes(&b, &library), GEN_STATUS_FORMAT);
    assert_message("there are bytes that no image has");
    free(b.at);
}

/* ---- files --------------------------------------------------------------- */

static const char *write_file(const struct bytes *b)
{
    static const char path[] = SCRATCH_DIR "/test_image.fatbin";
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->at, 1, b->size, file), b->size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void a_file_that_changes_while_it_is_open(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    const gen_toy_args args = {{sizeof(args), GEN_LINE}, in, out};
    uint32_t index;
    const struct gen_pack_variant *v = variant_of(&b, BIG90, &index);
    fake_start();
    const gen_open_options options = {.size = sizeof(options), .path = write_file(&b)};
    gen_library *library = NULL;
    assert_status(gen_open(&options, &library), GEN_OK);
    const gen_plan plan = plan_of(library, index);
    /* Shorter, by all but a part of the image: selection has what it needs. */
    assert_int_equal(truncate(options.path, (off_t)v->image_offset + 8), 0);
    (void)plan_of(library, index);
    errno = EINTR; /* of a call before */
    assert_status(gen_preload(library, &plan), GEN_STATUS_IO);
    assert_message(BIG90 ": cannot be read: the product has become shorter");
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_STATUS_IO);
    /* Another product in its place: the bytes are not those of this index. */
    const unsigned char before = b.at[v->image_offset + 20];
    b.at[v->image_offset + 20] ^= 1;
    write_file(&b);
    assert_status(gen_preload(library, &plan), GEN_STATUS_FORMAT);
    b.at[v->image_offset + 20] = before;
    write_file(&b);
    unlink(options.path); /* what is open stays */
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(gen_launch(library, &plan, &args.base, NULL, NULL), GEN_OK);
    gen_close(library);
    assert_int_equal(fake.cuda->num_loads, fake.cuda->num_unloads);
    free(b.at);
}

/* A table is read whole: one longer than any is refused before. */
static void a_table_of_any_length(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    const char *table = SCRATCH_DIR "/test_image.tsv";
    const gen_open_options options = {.size = sizeof(options),
                                      .data = b.at,
                                      .data_size = b.size,
                                      .table_paths = &table,
                                      .num_table_paths = 1};
    gen_library *library = NULL;
    fclose(fopen(table, "wb"));
    assert_int_equal(truncate(table, (off_t)(64 << 20) + 1), 0);
    assert_status(gen_open(&options, &library), GEN_STATUS_FORMAT);
    assert_message("longer than 67108864 bytes, no tuning table");
    assert_int_equal(truncate(table, (off_t)64 << 20), 0);
    assert_status(gen_open(&options, &library), GEN_STATUS_FORMAT);
    assert_message("the first line is not");
    unlink(table);
    free(b.at);
}

static void no_regular_files(void **state)
{
    (void)state;
    const char *fifo = SCRATCH_DIR "/test_image.fifo";
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {fifo, SCRATCH_DIR, "/dev/null", "/dev/zero"};
    struct bytes b = toy_bytes();
    alarm(20); /* who waits for the FIFO's writer is ended */
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        gen_open_options options = {.size = sizeof(options), .path = paths[i]};
        gen_library *library = NULL;
        assert_status(gen_open(&options, &library), GEN_STATUS_IO);
        assert_message("not a regular file");
        options = (gen_open_options){.size = sizeof(options),
                                     .path = write_file(&b),
                                     .table_paths = &paths[i],
                                     .num_table_paths = 1};
        assert_status(gen_open(&options, &library), GEN_STATUS_IO);
        assert_message("not a regular file");
        assert_null(library);
        unlink(options.path);
    }
    alarm(0);
    unlink(fifo);
    free(b.at);
}

/* A process may have closed its standard files: then a product's file has number 0. */
static void a_file_with_number_0(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    const gen_open_options options = {.size = sizeof(options), .path = write_file(&b)};
    gen_library *library = NULL;
    const int standard = dup(STDIN_FILENO);
    uint32_t index;
    variant_of(&b, BIG90, &index);
    fake_start();
    close(STDIN_FILENO);
    const enum gen_status status = gen_open(&options, &library);
    const bool took_it = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    enum gen_status preloaded = GEN_OK;
    if (!status) {
        const gen_plan plan = plan_of(library, index);
        preloaded = gen_preload(library, &plan);
        gen_close(library);
    }
    const bool gave_it_back = fcntl(STDIN_FILENO, F_GETFD) < 0;
    dup2(standard, STDIN_FILENO);
    close(standard);
    assert_status(status, GEN_OK);
    assert_status(preloaded, GEN_OK);
    assert_true(took_it && gave_it_back);
    unlink(options.path);
    free(b.at);
}

static int count_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void no_file_stays_open(void **state)
{
    (void)state;
    struct bytes b = toy_bytes();
    const int before = count_files();
    const gen_open_options options = {.size = sizeof(options), .path = write_file(&b)};
    gen_library *library = NULL;
    assert_status(gen_open(&options, &library), GEN_OK);
    assert_int_equal(count_files(), before + 1);
    gen_close(library);
    assert_int_equal(truncate(options.path, (off_t)b.size - 1), 0);
    assert_status(gen_open(&options, &library), GEN_STATUS_FORMAT);
    assert_int_equal(count_files(), before);
    unlink(options.path);
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(a_damaged_image_is_not_loaded),
        cmocka_unit_test(images_that_are_none_and_symbols),
        cmocka_unit_test(the_size_in_the_image),
        cmocka_unit_test(images_fill_the_file),
        cmocka_unit_test(a_file_that_changes_while_it_is_open),
        cmocka_unit_test(a_table_of_any_length),
        cmocka_unit_test(no_regular_files),
        cmocka_unit_test(a_file_with_number_0),
        cmocka_unit_test(no_file_stays_open),
    };
    return cmocka_run_group_tests_name("image", tests, fake_open, NULL);
}
