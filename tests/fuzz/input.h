/* What the fuzz targets share: a target is one function of bytes, and the bytes are taken from the
 * front. Bytes that are not there count as zeros. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* libFuzzer's names. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *at;
    size_t left;
};

static inline void input_take(struct input *input, void *to, size_t size)
{
    const size_t there = size < input->left ? size : input->left;
    memset(to, 0, size);
    if (there)
        memcpy(to, input->at, there);
    input->at += there;
    input->left -= there;
}

static inline uint32_t input_byte(struct input *input)
{
    uint8_t byte;
    input_take(input, &byte, 1);
    return byte;
}

/* Changes `size` bytes, a multiple of four, as the input says: a byte for each word (0: it stays),
 * and the word itself. So zeros leave what is there, and few bytes change one number. */
static inline void input_change(struct input *input, void *what, size_t size)
{
    for (size_t i = 0; i + 4 <= size && input->left; i += 4) {
        uint32_t word;
        if (!input_byte(input))
            continue;
        input_take(input, &word, sizeof(word));
        memcpy((char *)what + i, &word, sizeof(word));
    }
}

#endif /* FUZZ_INPUT_H */
