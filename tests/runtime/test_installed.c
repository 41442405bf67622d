/* The product that gen_open() takes where its caller names none. */
#include "test.h"

#include "toy.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER SCRATCH_DIR "/test_installed"
#define FILE_TOY FOLDER "/toy.fatbin"   /* 12 variants */
#define FILE_PAIR FOLDER "/pair.fatbin" /* 4 others */

static void write_product(bool pair, const char *path)
{
    struct product *product = pair ? product_new() : toy_product();
    if (pair)
        toy_add_pair(product);
    size_t size;
    void *bytes = product_bytes(product, &size);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
    product_free(product);
}

static int write_files(void **state)
{
    (void)state;
    assert_true(mkdir(FOLDER, 0777) == 0 || access(FOLDER, W_OK) == 0);
    write_product(false, FILE_TOY);
    write_product(true, FILE_PAIR);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    return system("rm -rf '" FOLDER "'");
}

static gen_library_info close_library(gen_library *library)
{
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    gen_close(library);
    return info;
}

/* Returns the digest, which says in what order files were opened. */
static uint64_t assert_installed(const char *named, uint32_t num_variants)
{
    gen_library *library = NULL;
    setenv("ATTNGEN_PRODUCT_PATH", named, 1);
    assert_status(gen_open(NULL, &library), GEN_OK);
    unsetenv("ATTNGEN_PRODUCT_PATH");
    const gen_library_info info = close_library(library);
    assert_int_equal(info.num_variants, num_variants);
    return info.digest;
}

static void named_by_the_environment(void **state)
{
    (void)state;
    assert_installed(FILE_TOY, 12);
    assert_installed(FILE_TOY ":" FILE_PAIR, 16);
    assert_installed("::" FILE_PAIR "::" FILE_TOY ":", 16);
    assert_int_equal(mkdir(FOLDER "/several", 0777), 0);
    write_product(true, FOLDER "/several/a.fatbin");
    write_product(false, FOLDER "/several/b.fatbin.bak");
    write_product(false, FOLDER "/several/.fatbin");
    assert_installed(FOLDER "/several", 4);
    assert_installed(FILE_TOY ":" FOLDER "/several", 16);
    write_product(false, FOLDER "/several/0.fatbin");
    const uint64_t digest = assert_installed(FOLDER "/several", 16);
    assert_true(digest == assert_installed(FILE_TOY ":" FILE_PAIR, 16));
    assert_true(digest != assert_installed(FILE_PAIR ":" FILE_TOY, 16));
}

/* Neither path nor data, beside other options. */
static void more_than_is_installed(void **state)
{
    (void)state;
    const char *const more[] = {FILE_PAIR};
    const gen_open_options options = {
        .size = sizeof(options), .more_paths = more, .num_more_paths = 1};
    gen_library *library = NULL;
    setenv("ATTNGEN_PRODUCT_PATH", FILE_TOY, 1);
    assert_status(gen_open(&options, &library), GEN_OK);
    assert_int_equal(close_library(library).num_variants, 16);
    unsetenv("ATTNGEN_PRODUCT_PATH");
}

static void named_wrongly(void **state)
{
    (void)state;
    gen_library *library = NULL;
    setenv("ATTNGEN_PRODUCT_PATH", FILE_TOY ":" FOLDER "/nowhere", 1);
    assert_status(gen_open(NULL, &library), GEN_STATUS_IO);
    assert_message("/nowhere: cannot be opened: No such file");
    assert_int_equal(mkdir(FOLDER "/empty", 0777), 0);
    setenv("ATTNGEN_PRODUCT_PATH", FILE_TOY ":" FOLDER "/empty", 1);
    assert_status(gen_open(NULL, &library), GEN_STATUS_IO);
    assert_message("ATTNGEN_PRODUCT_PATH names the folder " FOLDER "/empty, which has no *.fatbin");
    unsetenv("ATTNGEN_PRODUCT_PATH");
    assert_null(library);
}

/* A copy of this program says how many variants it finds, or why none. */
static int say_what_is_installed(void)
{
    gen_library *library;
    gen_library_info info = {.size = sizeof(info)};
    if (gen_open(NULL, &library)) {
        puts(gen_last_error());
        return 0;
    }
    if (gen_library_info_get(library, &info))
        return 1;
    printf("%u\n", info.num_variants);
    gen_close(library);
    return 0;
}

static const char *said_by(const char *command)
{
    static char text[4096];
    FILE *output = popen(command, "r");
    assert_non_null(output);
    text[fread(text, 1, sizeof(text) - 1, output)] = '\0';
    assert_int_equal(pclose(output), 0);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static void beside_the_library(void **state)
{
    (void)state;
    char command[1024];
    snprintf(command, sizeof(command),
             "mkdir '" FOLDER "/bin' && cp /proc/%d/exe '" FOLDER "/bin/copy'", (int)getpid());
    assert_int_equal(system(command), 0);
    const char *copy = "'" FOLDER "/bin/copy' say";
    const char *text = said_by(copy);
    if (!strstr(text, "neither " FOLDER "/bin/attngen.fatbin nor " FOLDER "/bin/attngen/*.fatbin"))
        fail_msg("the message is \"%s\"", text);
    assert_int_equal(mkdir(FOLDER "/bin/attngen", 0777), 0);
    assert_non_null(strstr(said_by(copy), "there is no installed product"));
    write_product(false, FOLDER "/bin/attngen/attngen-toy.fatbin");
    write_product(true, FOLDER "/bin/attngen/attngen-pair.fatbin");
    assert_string_equal(said_by(copy), "16");
    /* Found on $PATH, where another user may have put a product into the current folder. */
    write_product(true, FOLDER "/attngen.fatbin");
    assert_string_equal(said_by("cd '" FOLDER "' && PATH='" FOLDER "/bin' copy say"), "16");
    /* One file beside the library comes before the folder. */
    write_product(false, FOLDER "/bin/attngen.fatbin");
    assert_string_equal(said_by(copy), "12");
    assert_string_equal(said_by("ATTNGEN_PRODUCT_PATH= '" FOLDER "/bin/copy' say"), "12");
    assert_string_equal(said_by("ATTNGEN_PRODUCT_PATH='" FILE_PAIR "' '" FOLDER "/bin/copy' say"),
                        "4");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_by_the_environment),
        cmocka_unit_test(more_than_is_installed),
        cmocka_unit_test(named_wrongly),
        cmocka_unit_test(beside_the_library),
    };
    if (argc > 1 && strcmp(argv[1], "say") == 0)
        return say_what_is_installed();
    return cmocka_run_group_tests_name("installed", tests, write_files, remove_files);
}
