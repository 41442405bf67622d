/* Opening libcuda once for the process and naming its errors. */
#include "cuda/driver.h"
#include "core/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The table is filled under the lock and published once; the pointer is set
 * after the table is complete. */
static struct gen__driver table;
static _Atomic(const struct gen__driver *) opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum gen_status find_symbols(struct gen__driver *driver, const char *path)
{
    void *symbol;
    /* dlsym() returns an object pointer; copying its bytes is the portable way
     * to a function pointer. */
#define FIND(function, name, required)                                                            \
    symbol = dlsym(driver->handle, name);                                                         \
    if (!symbol && required)                                                                      \
        return gen__fail(GEN_STATUS_NO_DRIVER,                                                    \
                         "%s has no function %s; a driver of CUDA 12.0 or newer is needed", path, \
                         name);                                                                   \
    memcpy(&driver->function, &symbol, sizeof(symbol));
#define REQUIRED(function, parameters) FIND(function, #function, 1)
#define OPTIONAL(function, parameters) FIND(function, #function, 0)
    GEN__DRIVER_MAP(REQUIRED)
    GEN__DRIVER_OPTIONAL_MAP(OPTIONAL)
#undef OPTIONAL
#undef REQUIRED
#undef FIND
    return GEN_OK;
}

static enum gen_status open_locked(void)
{
    const char *path = secure_getenv("GEN_LIBCUDA"); /* it names code to run */
    if (!path || !*path)
        path = "libcuda.so.1";
    struct gen__driver driver = {0};
    driver.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!driver.handle) {
        const char *reason = dlerror();
        return gen__fail(GEN_STATUS_NO_DRIVER, "cannot open the CUDA driver: %s",
                         reason ? reason : path);
    }
    enum gen_status status = find_symbols(&driver, path);
    if (!status) {
        int result = driver.cuInit(0);
        if (result) {
            gen__driver_fail(&driver, result, "cuInit", "initializing the CUDA driver");
            status = result == GEN__CUDA_NO_DEVICE ? GEN_STATUS_NO_DEVICE : GEN_STATUS_DRIVER;
        }
    }
    if (status) {
        dlclose(driver.handle);
        return status;
    }
    table = driver;
    atomic_store_explicit(&opened, &table, memory_order_release);
    return GEN_OK;
}

enum gen_status gen__driver_open(const struct gen__driver **driver)
{
    const struct gen__driver *found = atomic_load_explicit(&opened, memory_order_acquire);
    if (!found) {
        pthread_mutex_lock(&lock);
        enum gen_status status = GEN_OK;
        found = atomic_load_explicit(&opened, memory_order_relaxed);
        if (!found) {
            status = open_locked();
            found = atomic_load_explicit(&opened, memory_order_relaxed);
        }
        pthread_mutex_unlock(&lock);
        if (status)
            return status;
    }
    *driver = found;
    return GEN_OK;
}

void *gen__driver_symbol(const char *symbol)
{
    const struct gen__driver *driver = atomic_load_explicit(&opened, memory_order_acquire);
    return driver ? dlsym(driver->handle, symbol) : NULL;
}

enum gen_status gen__driver_fail(const struct gen__driver *driver, int result, const char *call,
                                 const char *what)
{
    const char *name = NULL;
    const char *text = NULL;
    if (driver->cuGetErrorName(result, &name) || !name)
        name = "an unknown error";
    if (driver->cuGetErrorString(result, &text) || !text)
        text = "no description";
    return gen__fail(GEN_STATUS_DRIVER, "%s: %s returned %s (%d): %s", what, call, name, result,
                     text);
}

void gen__driver_reset(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_load_explicit(&opened, memory_order_relaxed)) {
        atomic_store_explicit(&opened, NULL, memory_order_release);
        dlclose(table.handle);
        memset(&table, 0, sizeof(table));
    }
    pthread_mutex_unlock(&lock);
}
