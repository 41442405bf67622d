#include "util/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t size;
    /* The data follow, 16-byte aligned. */
};

enum { HEADER = 16, BLOCK = 256 * 1024 };

_Static_assert(sizeof(struct arena_block) <= HEADER, "the data stay aligned");

static _Noreturn void out_of_memory(void)
{
    fputs("attngen: out of memory\n", stderr);
    exit(2);
}

static struct arena_block *new_block(size_t size)
{
    if (size > SIZE_MAX - HEADER)
        out_of_memory();
    struct arena_block *block = calloc(1, HEADER + size);
    if (block == NULL)
        out_of_memory();
    block->size = size;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        out_of_memory();
    size = (size + 15) & ~(size_t)15;
    if (arena->blocks == NULL || arena->blocks->size - arena->used < size) {
        struct arena_block *block = new_block(size > BLOCK ? size : BLOCK);
        /* A large piece gets a block of its own behind the newest one, whose
         * free space stays in use. */
        if (size > BLOCK && arena->blocks != NULL) {
            block->next = arena->blocks->next;
            arena->blocks->next = block;
            return (char *)block + HEADER;
        }
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used = 0;
    }
    void *data = (char *)arena->blocks + HEADER + arena->used;
    arena->used += size;
    return data;
}

void *arena_copy(struct arena *arena, const void *data, size_t size)
{
    char *copy = arena_alloc(arena, size + 1);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

char *arena_string(struct arena *arena, const char *text)
{
    return arena_copy(arena, text, strlen(text));
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0)
        out_of_memory();
    char *text = arena_alloc(arena, (size_t)size + 1);
    vsnprintf(text, (size_t)size + 1, format, again);
    va_end(again);
    return text;
}

void *arena_grow(struct arena *arena, const void *old, size_t count, size_t capacity, size_t size)
{
    char *data = arena_alloc(arena, capacity * size);
    if (count > 0)
        memcpy(data, old, count * size);
    return data;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->used = 0;
}

static void reserve(struct text *text, size_t more)
{
    if (more >= SIZE_MAX / 4 - text->size)
        out_of_memory();
    size_t need = text->size + more + 1;
    if (need <= text->capacity)
        return;
    size_t capacity = text->capacity > 0 ? text->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (data == NULL)
        out_of_memory();
    text->data = data;
    text->capacity = capacity;
}

void text_add(struct text *text, const char *data, size_t size)
{
    reserve(text, size);
    if (size > 0)
        memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = '\0';
}

void text_string(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

void text_printf(struct text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0)
        out_of_memory();
    reserve(text, (size_t)size);
    vsnprintf(text->data + text->size, (size_t)size + 1, format, again);
    va_end(again);
    text->size += (size_t)size;
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}
