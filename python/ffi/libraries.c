/* The open products, by handles, of which a wrong number is refused, and the devices. */
#include "ffi.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LIBRARIES 64
#define MAX_DEVICES 64
#define MAX_PATHS 16 /* of one library */

/* Libraries stay open to the end of the process: another thread may be launching. Handle h is
 * entry h - 1; an entry is written once. */
static _Atomic(gen_library *) libraries[MAX_LIBRARIES];
static atomic_int default_handle; /* 0: not opened yet */
static atomic_int num_libraries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static gen_device devices[MAX_DEVICES]; /* CUDA devices, as queried once */
static atomic_bool device_known[MAX_DEVICES];

/* Under the lock: the new handle, or 0 and the error. */
static int open_locked(struct ffi_call *call, const gen_open_options *options)
{
    gen_library *library = NULL;
    const int index = atomic_load(&num_libraries);
    if (index == MAX_LIBRARIES) {
        ffi_fail(call, "RuntimeError", "%d products are open; allowed: %d", index, MAX_LIBRARIES);
        return 0;
    }
    if (ffi_status(call, gen_open(options, &library)))
        return 0;
    atomic_store_explicit(&libraries[index], library, memory_order_release);
    atomic_store(&num_libraries, index + 1);
    return index + 1;
}

/* The default product is what is installed with libattngen. */
static int open_default(struct ffi_call *call)
{
    pthread_mutex_lock(&lock);
    int handle = atomic_load(&default_handle);
    if (!handle) {
        handle = open_locked(call, NULL);
        atomic_store(&default_handle, handle);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

const gen_library *ffi_library(struct ffi_call *call, int64_t handle, uint32_t *id)
{
    if (call->failed)
        return NULL;
    if (handle == 0 && (handle = atomic_load(&default_handle)) == 0)
        handle = open_default(call);
    if (call->failed)
        return NULL;
    if (handle < 1 || handle > atomic_load(&num_libraries)) {
        ffi_fail(call, "ValueError", "library is %" PRId64 "; allowed: 0, or what open() returned",
                 handle);
        return NULL;
    }
    *id = (uint32_t)handle;
    return atomic_load_explicit(&libraries[handle - 1], memory_order_acquire);
}

static int query_device(struct ffi_call *call, int32_t ordinal)
{
    gen_device device = {.size = sizeof device};
    pthread_mutex_lock(&lock);
    int failed = 0;
    if (!atomic_load(&device_known[ordinal])) {
        failed = ffi_status(call, gen_device_query(ordinal, &device));
        if (!failed) {
            devices[ordinal] = device;
            atomic_store_explicit(&device_known[ordinal], true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

int ffi_device(struct ffi_call *call, gen_device *device)
{
    *device = (gen_device){.size = sizeof *device};
    if (call->device_name[0])
        return ffi_status(call, gen_device_named(call->device_name, device));
    if (call->device_from && call->device.device_type == kDLCUDA) {
        const int32_t ordinal = call->device.device_id;
        if (ordinal < 0 || ordinal >= MAX_DEVICES)
            return ffi_fail(call, "ValueError", "%s is on cuda:%d; allowed: 0 to %d",
                            call->device_from, ordinal, MAX_DEVICES - 1);
        if (!atomic_load_explicit(&device_known[ordinal], memory_order_acquire) &&
            query_device(call, ordinal))
            return -1;
        *device = devices[ordinal];
        return 0;
    }
    return ffi_status(call, gen_device_named("cpu", device));
}

/* ---- functions ------------------------------------------------------------ */

int FFI_EXPORT __tvm_ffi_open(void *handle, const TVMFFIAny *args, int32_t num_args,
                              TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_library_info(void *handle, const TVMFFIAny *args, int32_t num_args,
                                      TVMFFIAny *result);

/* open(path...) -> handle; of several files one library is made, and the one path "" opens the
 * default product. */
int __tvm_ffi_open(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call = {.name = "open", .args = args, .result = result};
    char text[MAX_PATHS][4096];
    const char *paths[MAX_PATHS];
    if (num_args < 1 || num_args > MAX_PATHS)
        return ffi_fail(&call, "TypeError", "%d arguments are given; allowed: 1 to %d", num_args,
                        MAX_PATHS);
    for (int32_t i = 0; i < num_args; i++) {
        ffi_string(&call, "path", text[i], sizeof text[i]);
        paths[i] = text[i];
    }
    if (call.failed)
        return -1;
    int opened;
    if (num_args > 1 || text[0][0]) {
        const gen_open_options options = {.size = sizeof options,
                                          .path = paths[0],
                                          .more_paths = paths + 1,
                                          .num_more_paths = (size_t)num_args - 1};
        pthread_mutex_lock(&lock);
        opened = open_locked(&call, &options);
        pthread_mutex_unlock(&lock);
    } else {
        opened = open_default(&call);
    }
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = opened};
    return call.failed ? -1 : 0;
}

/* library_info(handle) -> JSON */
int __tvm_ffi_library_info(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call = {.name = "library_info", .args = args, .result = result};
    gen_library_info info = {.size = sizeof info};
    if (num_args != 1)
        return ffi_fail(&call, "TypeError", "%d arguments are given, 1 is wanted", num_args);
    const gen_library *library = ffi_library(&call, ffi_int(&call, "library"), &call.library_id);
    if (call.failed || ffi_status(&call, gen_library_info_get(library, &info)))
        return -1;
    char text[512];
    const int length =
        snprintf(text, sizeof text,
                 "{\"version\": \"%s\", \"toolkit\": \"%s\", \"num_variants\": %u, "
                 "\"num_families\": %u, \"num_tables\": %u, \"num_rows\": %u, "
                 "\"num_rows_bad\": %u, \"num_rows_expired\": %u, \"digest\": \"%016" PRIx64 "\"}",
                 gen_version(), info.toolkit, info.num_variants, info.num_families, info.num_tables,
                 info.num_rows, info.num_rows_bad, info.num_rows_expired, info.digest);
    return ffi_return_text(&call, text, (size_t)length);
}
