/*
 * Loading kernels: once each, under the library's lock, for every device of the machine that can
 * run them.
 */
#include "cuda/load.h"
#include "cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>

/* Beyond this a kernel's shared memory, static and dynamic together, must be opted into. */
#define SHARED_WITHOUT_OPT_IN (UINT64_C(48) << 10)
/* More blocks in a cluster need a permission for the kernel. */
#define PORTABLE_CLUSTER 8

/* ---- loading ----------------------------------------------------------- */

/* On one device that can run the kernel: its shared memory, of which there is `limit` for a block,
 * and clusters of more blocks than every device has room for. A text target runs on devices with
 * less shared memory than this variant needs; selection does not pick it there. */
static enum gen_status allow_on(const struct gen__driver *driver, const char *name,
                                const struct gen_pack_variant *v, void *kernel, int device,
                                int limit)
{
    const uint64_t shared = (uint64_t)v->shared_dynamic + v->shared_static;
    enum gen_status status = GEN_OK;
    if (shared > SHARED_WITHOUT_OPT_IN && shared <= (uint32_t)limit)
        status = GEN__CALL(driver, name, cuKernelSetAttribute, GEN__KERNEL_MAX_DYNAMIC_SHARED,
                           (int)v->shared_dynamic, kernel, device);
    if (!status && v->cluster > PORTABLE_CLUSTER)
        status = GEN__CALL(driver, name, cuKernelSetAttribute, GEN__KERNEL_ANY_CLUSTER, 1, kernel,
                           device);
    return status;
}

/* Permits what the kernel needs beyond the usual, on every device that can run it. */
static enum gen_status allow(const gen_library *library, const struct gen__driver *driver,
                             uint32_t variant, void *kernel)
{
    const struct gen_pack_variant *v = &library->pack.variants[variant];
    const struct gen_pack_target *target = gen__variant_target(&library->pack, variant);
    const char *name = gen__variant_name(&library->pack, variant);
    int count = 0;
    if ((uint64_t)v->shared_dynamic + v->shared_static <= SHARED_WITHOUT_OPT_IN &&
        v->cluster <= PORTABLE_CLUSTER)
        return GEN_OK;
    enum gen_status status = GEN__CALL(driver, name, cuDeviceGetCount, &count);
    for (int i = 0; !status && i < count; i++) {
        int device, major, minor, limit;
        status = GEN__CALL(driver, name, cuDeviceGet, &device, i);
        if (!status)
            status =
                GEN__CALL(driver, name, cuDeviceGetAttribute, &major, GEN__DEVICE_MAJOR, device);
        if (!status)
            status =
                GEN__CALL(driver, name, cuDeviceGetAttribute, &minor, GEN__DEVICE_MINOR, device);
        if (!status)
            status = GEN__CALL(driver, name, cuDeviceGetAttribute, &limit,
                               GEN__DEVICE_SHARED_PER_BLOCK, device);
        if (!status && gen_pack_runs(target, (uint32_t)(10 * major + minor)))
            status = allow_on(driver, name, v, kernel, device, limit);
    }
    return status;
}

/* Under the lock: loads the image, or leaves everything as it was. */
static enum gen_status load_locked(const gen_library *library, uint32_t variant, void **kernel)
{
    struct gen__loader *loader = library->loader;
    const struct gen__pack *pack = &library->pack;
    const char *name = gen__variant_name(pack, variant);
    const struct gen__driver *driver;
    const void *image;
    void *owned = NULL, *image_library = NULL;
    enum gen_status status = gen__driver_open(&driver);
    if (!status)
        status = gen__pack_image(pack, variant, &image, &owned);
    if (!status) /* copies the image, as no option lets it keep the caller's */
        status = GEN__CALL(driver, name, cuLibraryLoadData, &image_library, image, NULL, NULL, 0,
                           NULL, NULL, 0);
    free(owned);
    if (status)
        return status;
    status = GEN__CALL(driver, name, cuLibraryGetKernel, kernel, image_library,
                       gen__pack_string(pack, pack->variants[variant].symbol));
    if (!status)
        status = allow(library, driver, variant, *kernel);
    if (status) {
        driver->cuLibraryUnload(image_library);
        return status;
    }
    /* Once: threads with a loaded kernel read it without the lock. */
    if (!loader->driver)
        loader->driver = driver;
    loader->variants[variant].library = image_library;
    atomic_store_explicit(&loader->variants[variant].kernel, *kernel, memory_order_release);
    return GEN_OK;
}

enum gen_status gen__load(const gen_library *library, uint32_t variant, void **kernel)
{
    struct gen__loader *loader = library->loader;
    enum gen_status status = GEN_OK;
    bool loaded = false;
    pthread_mutex_lock(&loader->lock);
    *kernel = atomic_load_explicit(&loader->variants[variant].kernel, memory_order_acquire);
    if (!*kernel) {
        status = load_locked(library, variant, kernel);
        loaded = !status;
    }
    pthread_mutex_unlock(&loader->lock);
    if (loaded && gen__logs(library, GEN_LOG_LOAD)) {
        char line[512];
        snprintf(line, sizeof(line), "load variant=%.400s bytes=%llu",
                 gen__variant_name(&library->pack, variant),
                 (unsigned long long)library->pack.variants[variant].image_size);
        gen__log(GEN_LOG_LOAD, line);
    }
    return status;
}

void gen__unload_all(gen_library *library)
{
    const struct gen__loader *loader = library->loader;
    for (uint32_t i = 0; loader->driver && i < library->pack.index->num_variants; i++)
        if (loader->variants[i].library)
            loader->driver->cuLibraryUnload(loader->variants[i].library);
}

/* Drivers load a kernel's code into a context at its first launch there. Does
 * it now for the current context, where there is one and the driver can. */
enum gen_status gen__load_in_context(const gen_library *library, uint32_t variant, void *kernel)
{
    const struct gen__driver *driver = library->loader->driver;
    const char *name = gen__variant_name(&library->pack, variant);
    void *context = NULL;
    if (!driver->cuFuncLoad || driver->cuCtxGetCurrent(&context) || !context)
        return GEN_OK;
    void *function = NULL;
    int result = driver->cuKernelGetFunction(&function, kernel);
    if (result == GEN__CUDA_NO_BINARY)
        return GEN_OK; /* the current device is another than the plan's */
    if (result)
        return gen__driver_fail(driver, result, "cuKernelGetFunction", name);
    return GEN__CALL(driver, name, cuFuncLoad, function);
}

/* A kernel that no preload has seen: loads it, unless the stream captures. */
enum gen_status gen__load_for_launch(const gen_library *library, uint32_t variant,
                                     gen_stream stream)
{
    const char *name = gen__variant_name(&library->pack, variant);
    const struct gen__driver *driver;
    enum gen_status status = gen__driver_open(&driver);
    if (status)
        return status;
    void *context = NULL;
    status = GEN__CALL(driver, name, cuCtxGetCurrent, &context);
    if (status)
        return status;
    if (!context)
        return gen__fail(GEN_STATUS_DRIVER,
                         "%s: no CUDA context is current on this thread; call cuCtxSetCurrent(), "
                         "or cudaSetDevice() and cudaFree(0), before gen_launch()",
                         name);
    int capturing = 0;
    const int result = driver->cuStreamIsCapturing(stream, &capturing);
    /* IMPLICIT: the legacy stream, while another stream captures. */
    if (result == GEN__CUDA_CAPTURE_IMPLICIT || (!result && capturing))
        return gen__fail(GEN_STATUS_NOT_LOADED,
                         "%s is not loaded and the stream is being captured; call gen_preload() "
                         "before the capture",
                         name);
    if (result)
        return gen__driver_fail(driver, result, "cuStreamIsCapturing", name);
    void *kernel;
    return gen__load(library, variant, &kernel);
}
