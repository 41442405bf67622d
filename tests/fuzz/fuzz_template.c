/* The text of a template, of a header that it includes, or of a family file: `attngen expand`, in
 * this process, with the rest of the tree as it is. The first byte says which. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int attngen_main(int argc, char **argv); /* gen/main.c */

enum { NUM_FILES = 4 };
static const char *const files[NUM_FILES] = {"tiny/tiny.cu.in", "lib/scale.cuh", "tiny/args.h",
                                             "tiny/family.lua"};
static char folder[64];
static char *texts[NUM_FILES];
static size_t sizes[NUM_FILES];

static void write_file(size_t i, const void *text, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
    FILE *file = fopen(path, "wb");
    if (!file || (size && fwrite(text, 1, size, file) != size) || fclose(file))
        abort();
}

static void read_fixture(size_t i)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", FIXTURES, files[i]);
    FILE *file = fopen(path, "rb");
    texts[i] = malloc(1 << 16);
    if (!file || !texts[i])
        abort();
    sizes[i] = fread(texts[i], 1, 1 << 16, file);
    fclose(file);
    write_file(i, texts[i], sizes[i]);
}

static void remove_files(void)
{
    char path[128];
    for (size_t i = 0; i < NUM_FILES; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        unlink(path);
        free(texts[i]);
    }
    snprintf(path, sizeof(path), "%s/tiny", folder);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/lib", folder);
    rmdir(path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    char path[128];
    snprintf(folder, sizeof(folder), "/tmp/fuzz_template.%d", (int)getpid());
    if (mkdir(folder, 0700) && errno != EEXIST)
        abort();
    snprintf(path, sizeof(path), "%s/tiny", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/lib", folder);
    mkdir(path, 0700);
    for (size_t i = 0; i < NUM_FILES; i++)
        read_fixture(i);
    atexit(remove_files);
    /* What it prints is of no interest. */
    if (!freopen("/dev/null", "w", stdout))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    const size_t which = input_byte(&input) % NUM_FILES;
    static char *words[] = {
        (char *)"attngen",     (char *)"expand", (char *)"tiny_fp32__sm90a_v2_w1_ring",
        (char *)"--templates", folder,           NULL};
    write_file(which, input.at, input.left);
    const int status = attngen_main(5, words);
    if (status != 0 && status != 1)
        abort(); /* a fault of the program */
    write_file(which, texts[which], sizes[which]);
    return 0;
}
