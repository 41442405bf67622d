#define _GNU_SOURCE
#include "sim_emul.h"

#ifdef SIM_HAS_EMUL
#include "engine.h"

#include <dlfcn.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SIM_HAS_EMUL
#define ALIGNMENT 64u
#define MAX_PARAMS 16

bool sim_emul_find(const char *symbol, const struct emul_kernel **kernel, char *message,
                   size_t capacity)
{
    const char *folder = getenv("SIM_KERNELS");
    char path[4096];
    *kernel = NULL;
    if (!folder || !*folder)
        return true;
    snprintf(path, sizeof path, "%s/%s.so", folder, symbol);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library)
        *kernel = dlsym(library, "emul_kernel");
    if (*kernel)
        return true;
    snprintf(message, capacity, "SIM_KERNELS has no such kernel: %s", dlerror());
    return false;
}

static unsigned rounded(unsigned bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void sim_emul_params(const struct emul_kernel *kernel, void **params, unsigned char *store)
{
    unsigned at = 0;
    for (unsigned i = 0; i < kernel->num_params; i++) {
        if (i == MAX_PARAMS || at + rounded(kernel->param_bytes[i]) > SIM_PARAM_BYTES) {
            fprintf(stderr, "sim_cuda: a kernel with too many parameters\n");
            abort();
        }
        memcpy(store + at, params[i], kernel->param_bytes[i]);
        at += rounded(kernel->param_bytes[i]);
    }
}

bool sim_emul_run(const struct emul_kernel *kernel, const unsigned *grid, const unsigned *threads,
                  unsigned shared, const unsigned char *store, char *message, size_t capacity)
{
    _Alignas(ALIGNMENT) unsigned char aligned[SIM_PARAM_BYTES];
    void *params[MAX_PARAMS];
    unsigned at = 0;
    memcpy(aligned, store, sizeof aligned);
    for (unsigned i = 0; i < kernel->num_params; i++) {
        params[i] = aligned + at;
        at += rounded(kernel->param_bytes[i]);
    }
    const struct emul_launch launch = {.kernel = kernel,
                                       .blocks = {grid[0], grid[1], grid[2]},
                                       .threads = {threads[0], threads[1], threads[2]},
                                       .shared = shared,
                                       .params = params};
    return emul_run(&launch, message, capacity) == 0;
}

bool sim_emul_map(void *map, int dtype, unsigned rank, void *address,
                  const unsigned long long *dims, const unsigned long long *strides,
                  const unsigned *box, const unsigned *element_strides, int interleave, int swizzle,
                  int fill)
{
    return emul_tensor_map(map, dtype, rank, address, dims, strides, box, element_strides,
                           interleave, swizzle, fill) == 0;
}

#else /* an architecture of the host that the engine is not written for */

bool sim_emul_find(const char *symbol, const struct emul_kernel **kernel, char *message,
                   size_t capacity)
{
    (void)symbol;
    *kernel = NULL;
    snprintf(message, capacity, "kernels cannot be emulated on this machine");
    return !getenv("SIM_KERNELS");
}

void sim_emul_params(const struct emul_kernel *kernel, void **params, unsigned char *store)
{
    (void)kernel, (void)params, (void)store;
}

bool sim_emul_run(const struct emul_kernel *kernel, const unsigned *grid, const unsigned *threads,
                  unsigned shared, const unsigned char *store, char *message, size_t capacity)
{
    (void)kernel, (void)grid, (void)threads, (void)shared, (void)store, (void)message;
    (void)capacity;
    return false;
}

bool sim_emul_map(void *map, int dtype, unsigned rank, void *address,
                  const unsigned long long *dims, const unsigned long long *strides,
                  const unsigned *box, const unsigned *element_strides, int interleave, int swizzle,
                  int fill)
{
    (void)dtype, (void)rank, (void)address, (void)dims, (void)strides, (void)box;
    (void)element_strides, (void)interleave, (void)swizzle, (void)fill;
    memset(map, 0, 128);
    return true;
}
#endif
