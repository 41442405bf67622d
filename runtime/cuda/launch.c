/*
 * gen_launch() and gen_preload().
 *
 * The fast path reads one atomic pointer a launch and calls the driver once.
 * Everything else (opening the driver, loading an image, saying what went
 * wrong) is out of its way in functions that are not inlined.
 */
#include "cuda/driver.h"
#include "cuda/ranges.h"
#include "product/library.h"
#include "product/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond this a kernel's shared memory, static and dynamic together, must be opted into. */
#define SHARED_WITHOUT_OPT_IN (UINT64_C(48) << 10)
#define WORKSPACE_ALIGNMENT 256u

#define COLD __attribute__((noinline, cold))

/* ---- checks ------------------------------------------------------------ */

COLD static enum gen_status bad_plan(const gen_library *library, const gen_plan *plan)
{
    if (!library || !plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL", library ? "plan" : "library");
    if (plan->size != sizeof(*plan))
        return gen__fail(GEN_STATUS_MISMATCH,
                         "plan->size is %u, expected %zu; was it filled by gen_select()?",
                         plan->size, sizeof(*plan));
    if (plan->library_digest != library->pack.digest)
        return gen__fail(GEN_STATUS_MISMATCH,
                         "the plan was made with product %016llx, the library is of product "
                         "%016llx; select again",
                         (unsigned long long)plan->library_digest,
                         (unsigned long long)library->pack.digest);
    const struct gen__family *family = gen__family_find(library, plan->family);
    return gen__fail(GEN_STATUS_MISMATCH,
                     "the plan of %s is not as gen_select() made it; copy plans "
                     "whole, and select again for another problem or device",
                     family ? family->name : "no family of this runtime");
}

/* A plan that a newer caller has room for more in than this library wrote, as this library's. What
 * is behind is read only where the seal says that there is something. */
static inline bool is_longer(const gen_plan *plan, gen_plan *own)
{
    if (__builtin_expect(!plan || plan->size <= sizeof(*plan), 1) || !gen__plan_sealed(plan) ||
        !gen__struct_fit(own, sizeof(*own), 0, plan, plan->size, GEN__MOST_OUTPUT))
        return false;
    gen__plan_seal(own);
    return true;
}

/* Families whose variants a plan may launch: its own, and those of its parts. */
static inline bool may_launch(const struct gen__family *family, const struct gen__family *other)
{
    if (__builtin_expect(other == family, 1))
        return true;
    for (uint32_t i = 0; other && i < family->num_part_families; i++)
        if (family->part_families[i] == other->tag)
            return true;
    return false;
}

/* The plan's family; NULL, and the message, where it is not a plan that this library made. */
static inline const struct gen__family *check_plan(const gen_library *library, const gen_plan *plan,
                                                   enum gen_status *status)
{
    const struct gen__family *family = NULL;
    if (library && plan && plan->size == sizeof(*plan) &&
        plan->library_digest == library->pack.digest && gen__plan_sealed(plan) &&
        plan->num_launches <= GEN_PLAN_MAX_LAUNCHES)
        family = gen__family_find(library, plan->family);
    for (uint32_t i = 0; family && i < plan->num_launches; i++) {
        const struct gen__pack *pack = &library->pack;
        const uint32_t variant = plan->launch[i].variant;
        if (plan->backend != GEN_BACKEND_CPU &&
            (variant >= pack->index->num_variants ||
             !may_launch(family,
                         library->families[pack->groups[pack->variants[variant].group].family])))
            family = NULL;
    }
    if (!family)
        *status = bad_plan(library, plan);
    return family;
}

/* ---- loading ----------------------------------------------------------- */

/* Raises the kernel's shared memory limit on every device that can run it. */
static enum gen_status allow_shared(const gen_library *library, const struct gen__driver *driver,
                                    uint32_t variant, void *kernel)
{
    const struct gen_pack_variant *v = &library->pack.variants[variant];
    const struct gen_pack_target *target = gen__variant_target(&library->pack, variant);
    const char *name = gen__variant_name(&library->pack, variant);
    const uint64_t shared = (uint64_t)v->shared_dynamic + v->shared_static;
    int count = 0;
    if (shared <= SHARED_WITHOUT_OPT_IN)
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
        /* A text target runs on devices with less shared memory than this variant needs; selection
         * does not pick it there. */
        if (!status && gen_pack_runs(target, (uint32_t)(10 * major + minor)) &&
            shared <= (uint32_t)limit)
            status = GEN__CALL(driver, name, cuKernelSetAttribute, GEN__KERNEL_MAX_DYNAMIC_SHARED,
                               (int)v->shared_dynamic, kernel, device);
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
    if (!status) /* copies the image, as it is not told that it may keep it */
        status = GEN__CALL(driver, name, cuLibraryLoadData, &image_library, image, NULL, NULL, 0,
                           NULL, NULL, 0);
    free(owned);
    if (status)
        return status;
    status = GEN__CALL(driver, name, cuLibraryGetKernel, kernel, image_library,
                       gen__pack_string(pack, pack->variants[variant].symbol));
    if (!status)
        status = allow_shared(library, driver, variant, *kernel);
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

static enum gen_status load(const gen_library *library, uint32_t variant, void **kernel)
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
static enum gen_status load_in_context(const gen_library *library, uint32_t variant, void *kernel)
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

enum gen_status gen_preload(const gen_library *library, const gen_plan *plan)
{
    enum gen_status status = GEN_OK;
    gen_plan own;
    if (is_longer(plan, &own))
        plan = &own;
    const struct gen__family *family = check_plan(library, plan, &status);
    if (!family || plan->backend == GEN_BACKEND_CPU)
        return status;
    for (uint32_t i = 0; !status && i < plan->num_launches; i++) {
        void *kernel;
        status = load(library, plan->launch[i].variant, &kernel);
        if (!status)
            status = load_in_context(library, plan->launch[i].variant, kernel);
    }
    return status;
}

/* ---- launching --------------------------------------------------------- */

/* A kernel that no preload has seen: loads it, unless the stream captures. */
COLD static enum gen_status load_for_launch(const gen_library *library, uint32_t variant,
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
    return load(library, variant, &kernel);
}

COLD static enum gen_status launch_failed(const gen_library *library, const gen_plan_launch *l,
                                          int result)
{
    const struct gen__driver *driver = library->loader->driver;
    const char *name = gen__variant_name(&library->pack, l->variant);
    void *context = NULL;
    char what[384];
    int device, major, minor;
    if (driver->cuCtxGetCurrent(&context) || !context) {
        snprintf(what, sizeof(what), "%.200s: no CUDA context is current on this thread", name);
    } else if (result == GEN__CUDA_NO_BINARY && !driver->cuCtxGetDevice(&device) &&
               !driver->cuDeviceGetAttribute(&major, GEN__DEVICE_MAJOR, device) &&
               !driver->cuDeviceGetAttribute(&minor, GEN__DEVICE_MINOR, device)) {
        const struct gen_pack_target *target = gen__variant_target(&library->pack, l->variant);
        snprintf(what, sizeof(what),
                 "%.200s: made for %s, the current context's device is sm_%d%d; select for the "
                 "device that launches",
                 name, gen__pack_string(&library->pack, target->name), major, minor);
    } else {
        snprintf(what, sizeof(what), "%.200s: grid %u x %u x %u, %u threads, %u bytes shared", name,
                 l->grid[0], l->grid[1], l->grid[2], l->threads, l->shared);
    }
    return gen__driver_fail(driver, result, l->dependent ? "cuLaunchKernelEx" : "cuLaunchKernel",
                            what);
}

COLD static enum gen_status bad_workspace(const gen_plan *plan, const void *workspace)
{
    if (!workspace)
        return gen__fail(GEN_STATUS_WORKSPACE,
                         "workspace is NULL, the plan needs %llu bytes of device memory",
                         (unsigned long long)plan->workspace_bytes);
    return gen__fail(GEN_STATUS_WORKSPACE, "workspace is %p, allowed are multiples of %u",
                     workspace, WORKSPACE_ALIGNMENT);
}

/* Does what is written lie apart from all else? Arguments were checked. */
static inline enum gen_status check_apart(const struct gen__family *family, const gen_plan *plan,
                                          const gen_args *args, const void *workspace)
{
    struct gen__extent extents[GEN__MAX_EXTENTS + 1];
    if (!family->extents)
        return GEN_OK;
    uint32_t count = family->extents(plan->dims, args, extents);
    if (plan->workspace_bytes)
        extents[count++] = (struct gen__extent){.begin = (uintptr_t)workspace,
                                                .end = (uintptr_t)workspace + plan->workspace_bytes,
                                                .name = "workspace",
                                                .written = true,
                                                .at = workspace,
                                                .width = (int64_t)plan->workspace_bytes};
    return gen__check_apart(family->name, extents, count);
}

/* The operator on the CPU, through the same checks. */
COLD static enum gen_status run_reference(const struct gen__family *family, const gen_plan *plan,
                                          const gen_args *args, void *workspace)
{
    enum gen_status status = family->params(plan, 0, args, workspace, NULL);
    if (!status)
        status = check_apart(family, plan, args, workspace);
    return status ? status : family->reference(plan, args);
}

/* The launch may begin while the kernel before it drains; family code asks for
 * this only of kernels that wait for it on the device. */
static int launch_dependent(const struct gen__driver *driver, void *kernel,
                            const gen_plan_launch *l, gen_stream stream, void **list)
{
    struct gen__launch_attribute attribute = {.id = GEN__LAUNCH_DEPENDENT, .value.allowed = 1};
    const struct gen__launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                              .block = {l->threads, 1, 1},
                                              .shared = l->shared,
                                              .stream = stream,
                                              .attributes = &attribute,
                                              .num_attributes = 1};
    return driver->cuLaunchKernelEx(&config, kernel, list, NULL);
}

/* A launch of a plan, ready to be made. */
struct ready {
    _Alignas(GEN__PARAMS_ALIGNMENT) unsigned char params[GEN__MAX_PARAMS];
    void *kernel;
};

static inline enum gen_status make_ready(const gen_library *library,
                                         const struct gen__family *family, const gen_plan *plan,
                                         uint32_t index, const gen_args *args, void *workspace,
                                         gen_stream stream, struct ready *ready)
{
    const uint32_t variant = plan->launch[index].variant;
    enum gen_status status = family->params(plan, index, args, workspace, ready->params);
    if (__builtin_expect(status != GEN_OK, 0))
        return status;
    _Atomic(void *) *kernel = &library->loader->variants[variant].kernel;
    ready->kernel = atomic_load_explicit(kernel, memory_order_acquire);
    if (__builtin_expect(!ready->kernel, 0)) {
        status = load_for_launch(library, variant, stream);
        ready->kernel = atomic_load_explicit(kernel, memory_order_acquire);
    }
    return status;
}

static inline enum gen_status launch_one(const gen_library *library,
                                         const struct gen__family *family, const gen_plan_launch *l,
                                         struct ready *ready, gen_stream stream)
{
    const struct gen__driver *driver = library->loader->driver;
    void *list[1] = {ready->params};
    (void)family;
    gen__range_begin(family->name, gen__variant_name(&library->pack, l->variant));
    /* A CUkernel stands for the function of whichever context is current. */
    const int result =
        l->dependent ? launch_dependent(driver, ready->kernel, l, stream, list)
                     : driver->cuLaunchKernel(ready->kernel, l->grid[0], l->grid[1], l->grid[2],
                                              l->threads, 1, 1, l->shared, stream, list, NULL);
    gen__range_end();
    return __builtin_expect(result, 0) ? launch_failed(library, l, result) : GEN_OK;
}

/* Arguments as this library's struct. */
union any_args {
    gen_args base;
    uint64_t words[GEN__MAX_ARGS / 8];
};

/* For arguments that are not: of another family, or a caller's who was built with another
 * version. */
COLD static enum gen_status resize_args(const struct gen__family *family, const gen_args **args,
                                        union any_args *full)
{
    const gen_args *from = *args;
    if (!from)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "args is NULL");
    if (from->family != family->tag || !gen__struct_fit(full, family->args_size, family->args_least,
                                                        from, from->size, sizeof(*full)))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "args has family %#010x and size %u, the plan is of %s: family %#010x, "
                         "size %u (sizeof(gen_%s_args))",
                         from->family, from->size, family->name, family->tag, family->args_size,
                         family->name);
    *args = &full->base;
    return GEN_OK;
}

enum gen_status gen_launch(const gen_library *library, const gen_plan *plan, const gen_args *args,
                           void *workspace, gen_stream stream)
{
    enum gen_status status = GEN_OK;
    gen_plan own;
    if (is_longer(plan, &own))
        plan = &own;
    const struct gen__family *family = check_plan(library, plan, &status);
    if (!family)
        return status;
    union any_args full;
    if (!args || args->family != plan->family || args->size != family->args_size)
        status = resize_args(family, &args, &full);
    if (status)
        return status;
    if (plan->num_launches == 0)
        return GEN_OK;
    if (plan->workspace_bytes && (!workspace || (uintptr_t)workspace % WORKSPACE_ALIGNMENT))
        return bad_workspace(plan, workspace);
    if (plan->backend == GEN_BACKEND_CPU)
        return run_reference(family, plan, args, workspace);
    /* All that can fail before a launch does so before the first one, lest half of an operator
     * runs. */
    struct ready ready[GEN_PLAN_MAX_LAUNCHES];
    uint32_t made = 0;
    for (; !status && made < plan->num_launches; made++) {
        ready[made].kernel = NULL;
        status = make_ready(library, family, plan, made, args, workspace, stream, &ready[made]);
    }
    if (!status)
        status = check_apart(family, plan, args, workspace);
    for (uint32_t i = 0; !status && i < made; i++)
        status = launch_one(library, family, &plan->launch[i], &ready[i], stream);
    return status;
}
