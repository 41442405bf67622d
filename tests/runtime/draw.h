/* Random numbers, the same at every run of a test. */
#ifndef TEST_RUNTIME_DRAW_H
#define TEST_RUNTIME_DRAW_H

#include <stdint.h>

/* 0 to below - 1. */
static inline unsigned draw(unsigned below)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 20) % below);
}

#endif /* TEST_RUNTIME_DRAW_H */
