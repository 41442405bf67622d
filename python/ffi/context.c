/*
 * The context of a CUDA device. A framework makes it current on the threads that
 * it knows and for the device that it calls current; tensors may be on another
 * one, and the null stream means that of the current context. libcuda is opened
 * by its name, as libattngen does, and nothing here needs it at link time.
 */
#include "ffi.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MAX_DEVICES 64

typedef int cuda_get_device(int *device);
typedef int cuda_retain(void **context, int device);
typedef int cuda_push(void *context);
typedef int cuda_pop(void **context);

struct driver {
    cuda_get_device *get_device;
    cuda_retain *retain;
    cuda_push *push;
    cuda_pop *pop;
};

static _Atomic(struct driver *) known;
static _Atomic(void *) primary[MAX_DEVICES]; /* retained once, for the process */

/* Functions come as void *, which C does not turn into them. */
static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    *(void **)function = symbol;
}

static const struct driver *open_driver(struct ffi_call *call)
{
    struct driver *driver = atomic_load_explicit(&known, memory_order_acquire);
    if (driver)
        return driver;
    const char *name = secure_getenv("GEN_LIBCUDA");
    void *library = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    driver = calloc(1, sizeof *driver);
    if (library && driver) {
        find(library, "cuCtxGetDevice", &driver->get_device);
        find(library, "cuDevicePrimaryCtxRetain", &driver->retain);
        find(library, "cuCtxPushCurrent_v2", &driver->push);
        find(library, "cuCtxPopCurrent_v2", &driver->pop);
    }
    if (!driver || !driver->get_device || !driver->retain || !driver->push || !driver->pop) {
        free(driver);
        ffi_fail(call, "RuntimeError", "%s",
                 library ? "the CUDA driver lacks cuDevicePrimaryCtxRetain()"
                         : "the CUDA driver library could not be opened");
        return NULL;
    }
    struct driver *none = NULL;
    if (!atomic_compare_exchange_strong(&known, &none, driver)) {
        free(driver);
        driver = none;
    }
    return driver;
}

int ffi_enter(struct ffi_call *call, int32_t ordinal, struct ffi_context *context)
{
    const struct driver *driver = open_driver(call);
    int current = -1;
    if (!driver)
        return -1;
    context->pushed = false;
    if (driver->get_device(&current) == 0 && current == ordinal)
        return 0;
    if (ordinal < 0 || ordinal >= MAX_DEVICES)
        return ffi_fail(call, "ValueError", "the tensors are on cuda:%d; allowed: 0 to %d", ordinal,
                        MAX_DEVICES - 1);
    void *wanted = atomic_load(&primary[ordinal]);
    int result = 0;
    if (!wanted && (result = driver->retain(&wanted, ordinal)) == 0)
        atomic_store(&primary[ordinal], wanted);
    if (result == 0)
        result = driver->push(wanted);
    if (result)
        return ffi_fail(call, "RuntimeError", "the context of cuda:%d: the driver's error %d",
                        ordinal, result);
    context->pushed = true;
    return 0;
}

void ffi_leave(struct ffi_context *context)
{
    void *popped;
    if (context->pushed)
        atomic_load(&known)->pop(&popped);
}
