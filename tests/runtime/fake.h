/* A test's hold on the fake libcuda. */
#ifndef FAKE_H
#define FAKE_H

#include "cuda/driver.h"
#include "fake_cuda.h"

extern struct fake {
    void *handle;
    struct fake_cuda *cuda;
    void (*reset)(void);
    unsigned long (*calls)(const char *function);
} fake;

/* Points the runtime at it; aborts if it is not there. A group's setup. */
int fake_open(void **state);

/* Everything as new, and the runtime's driver forgotten. */
void fake_start(void);

/* The nth call of `function` from now on fails with `result`. */
void fake_fail(const char *function, int nth, int result);

#endif /* FAKE_H */
