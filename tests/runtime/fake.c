#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake fake;

static void *symbol(const char *name)
{
    void *found = dlsym(fake.handle, name);
    if (!found) {
        fprintf(stderr, "fake_open: %s\n", dlerror());
        abort();
    }
    return found;
}

int fake_open(void **state)
{
    (void)state;
    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    fake.handle = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!fake.handle) {
        fprintf(stderr, "fake_open: %s\n", dlerror());
        abort();
    }
    struct fake_cuda *(*get)(void);
    void *found = symbol("fake_cuda_get");
    memcpy(&get, &found, sizeof(found));
    found = symbol("fake_cuda_reset");
    memcpy(&fake.reset, &found, sizeof(found));
    found = symbol("fake_cuda_calls");
    memcpy(&fake.calls, &found, sizeof(found));
    fake.cuda = get();
    return 0;
}

void fake_start(void)
{
    gen__driver_reset();
    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    fake.reset();
}

void fake_fail(const char *function, int nth, int result)
{
    snprintf(fake.cuda->fail_function, sizeof(fake.cuda->fail_function), "%s", function);
    fake.cuda->fail_at = nth;
    fake.cuda->fail_result = result;
}
