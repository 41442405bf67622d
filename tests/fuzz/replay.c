/* Runs a fuzz target over the files of folders, in the order of names: the corpus as a test of
 * every build, without libFuzzer. */
#include "input.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, n;
    static uint8_t block[1 << 16];
    while (file && (n = fread(block, 1, sizeof(block), file)) > 0) {
        uint8_t *larger = realloc(data, size + n);
        if (!larger)
            abort();
        data = larger;
        memcpy(data + size, block, n);
        size += n;
    }
    if (!file || ferror(file)) {
        fprintf(stderr, "replay: %s: cannot be read\n", path);
        exit(2);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        struct dirent **names;
        const int found = scandir(argv[i], &names, NULL, alphasort);
        for (int k = 0; k < found; k++) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s", argv[i], names[k]->d_name);
            if (names[k]->d_name[0] != '.') {
                replay_file(path);
                count++;
            }
            free(names[k]);
        }
        if (found >= 0)
            free(names);
    }
    printf("%u inputs\n", count);
    return count ? 0 : 1;
}
