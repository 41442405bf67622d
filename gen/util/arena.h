/*
 * Memory that lives as long as the program's run: everything that must survive
 * a Lua error (which jumps past the frames that would have freed it) comes from
 * here and is freed in one go.
 */
#ifndef ARENA_H
#define ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* the newest first */
    size_t used;                /* of the newest block */
};

/* Zeroed, 16-byte aligned. Ends the program (status 2) when memory is out. */
void *arena_alloc(struct arena *arena, size_t size);
void *arena_copy(struct arena *arena, const void *data, size_t size);
char *arena_string(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `count` elements become `capacity` ones; the old block is left to the arena. */
void *arena_grow(struct arena *arena, const void *old, size_t count, size_t capacity, size_t size);
void arena_free(struct arena *arena);

/* A string under construction, always NUL-terminated once written to. */
struct text {
    char *data;
    size_t size, capacity;
};

void text_add(struct text *text, const char *data, size_t size);
void text_string(struct text *text, const char *string);
void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

#endif /* ARENA_H */
