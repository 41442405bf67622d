/* Text put together piece by piece in memory of fixed size. */
#ifndef GEN_TEXT_H
#define GEN_TEXT_H

#include <stddef.h>

/* `length` counts on where the capacity ends, so that a caller learns how much
 * room the whole would have taken; what is there always ends in a NUL. */
struct gen__text {
    char *at; /* may be NULL where the capacity is 0 */
    size_t capacity, length;
};

/* An empty text in `capacity` bytes. */
static inline struct gen__text gen__text_over(char *at, size_t capacity)
{
    if (capacity)
        at[0] = '\0';
    return (struct gen__text){at, capacity, 0};
}

/* Appends as printf() does, and cuts what does not fit. */
__attribute__((format(printf, 2, 3))) void gen__text_add(struct gen__text *text, const char *format,
                                                         ...);

#endif /* GEN_TEXT_H */
