/*
 * gen_launch() and gen_preload().
 *
 * The fast path reads one atomic pointer a launch and calls the driver once.
 * Everything else (opening the driver, loading an image, saying what went
 * wrong) is out of its way in functions that are not inlined.
 */
#include "cuda/driver.h"
#include "cuda/load.h"
#include "cuda/ranges.h"
#include "family/index.h"
#include "product/library.h"
#include "product/plan.h"

#include <stdio.h>
#include <string.h>

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

/* Is the launch that the plan begins with, if any, of index32? */
static inline bool may_begin(const gen_library *library, const struct gen__family *family,
                             const gen_plan *plan)
{
    const struct gen__pack *pack = &library->pack;
    if (__builtin_expect(!gen__index_planned(plan), 1))
        return true;
    const uint32_t variant = (uint32_t)plan->dims[GEN__DIM_INDEX] - 1;
    if (!family->num_indices || plan->dims[0] < 0 ||
        plan->workspace_bytes < gen__index_bytes(family, plan->dims))
        return false;
    if (plan->backend == GEN_BACKEND_CPU)
        return true;
    if (variant >= pack->index->num_variants)
        return false;
    const struct gen__family *first =
        library->families[pack->groups[pack->variants[variant].group].family];
    return first && first->tag == GEN__INDEX32;
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
    if (family && !may_begin(library, family, plan))
        family = NULL;
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

static enum gen_status preload(const gen_library *library, uint32_t variant)
{
    void *kernel;
    const enum gen_status status = gen__load(library, variant, &kernel);
    return status ? status : gen__load_in_context(library, variant, kernel);
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
    if (gen__index_planned(plan))
        status = preload(library, (uint32_t)plan->dims[GEN__DIM_INDEX] - 1);
    for (uint32_t i = 0; !status && i < plan->num_launches; i++)
        status = preload(library, plan->launch[i].variant);
    return status;
}

/* ---- launching --------------------------------------------------------- */

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

/* Arguments as this library's struct. */
union any_args {
    gen_args base;
    uint64_t words[GEN__MAX_ARGS / 8];
};

/* The launch that lists of 64-bit indices take, and what the other launches are given. */
struct first {
    struct gen_index32_params params;
    union any_args args;
};

/* Does what is written lie apart from all else? Arguments were checked. `first` is NULL where the
 * plan begins with the family's own launch. */
static inline enum gen_status check_apart(const struct gen__family *family, const gen_plan *plan,
                                          const gen_args *args, const void *workspace,
                                          const struct first *first)
{
    struct gen__extent extents[GEN__MAX_EXTENTS + GEN_INDEX32_LISTS + 1];
    union any_args told; /* with the lists outside of the workspace */
    uint32_t count = 0;
    if (!family->extents)
        return GEN_OK;
    if (__builtin_expect(first != NULL, 0)) {
        memcpy(&told, args, family->args_size);
        args = &told.base;
        count = gen__index_extents(family, plan, &first->params, &told.base, extents);
    }
    count += family->extents(plan->dims, args, extents + count);
    if (plan->workspace_bytes)
        gen__extent(&extents[count++], true, "workspace", workspace,
                    (int64_t)plan->workspace_bytes);
    return gen__check_apart(family->name, extents, count);
}

/* The operator on the CPU, through the same checks. */
COLD static enum gen_status run_reference(const struct gen__family *family, const gen_plan *plan,
                                          const gen_args *args, void *workspace,
                                          const struct first *first)
{
    enum gen_status status = family->params(plan, 0, args, workspace, NULL);
    if (!status)
        status = check_apart(family, plan, args, workspace, first);
    if (!status && first)
        gen__index_run(&first->params);
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

static inline enum gen_status find_kernel(const gen_library *library, uint32_t variant,
                                          gen_stream stream, struct ready *ready)
{
    enum gen_status status = GEN_OK;
    _Atomic(void *) *kernel = &library->loader->variants[variant].kernel;
    ready->kernel = atomic_load_explicit(kernel, memory_order_acquire);
    if (__builtin_expect(!ready->kernel, 0)) {
        status = gen__load_for_launch(library, variant, stream);
        ready->kernel = atomic_load_explicit(kernel, memory_order_acquire);
    }
    return status;
}

static inline enum gen_status make_ready(const gen_library *library,
                                         const struct gen__family *family, const gen_plan *plan,
                                         uint32_t index, const gen_args *args, void *workspace,
                                         gen_stream stream, struct ready *ready)
{
    const enum gen_status status = family->params(plan, index, args, workspace, ready->params);
    if (__builtin_expect(status != GEN_OK, 0))
        return status;
    return find_kernel(library, plan->launch[index].variant, stream, ready);
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

/* The launch in front of the plan's. */
COLD static enum gen_status launch_first(const gen_library *library,
                                         const struct gen__family *family, const gen_plan *plan,
                                         struct ready *ready, gen_stream stream)
{
    const uint32_t variant = (uint32_t)plan->dims[GEN__DIM_INDEX] - 1;
    const uint32_t threads = library->pack.variants[variant].threads;
    const gen_plan_launch l = {
        .variant = variant,
        .grid = {(uint32_t)((gen__index_count(plan->dims) - 1) / threads + 1), 1, 1},
        .threads = (uint16_t)threads,
        .dependent = (uint16_t)plan->dims[GEN__DIM_INDEX_DEPENDENT]};
    return launch_one(library, family, &l, ready, stream);
}

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

/* `first` is NULL where the plan begins with the family's own launch. */
static inline enum gen_status launch_all(const gen_library *library,
                                         const struct gen__family *family, const gen_plan *plan,
                                         const gen_args *args, void *workspace, gen_stream stream,
                                         const struct first *first)
{
    if (plan->backend == GEN_BACKEND_CPU)
        return run_reference(family, plan, args, workspace, first);
    /* All that can fail before a launch does so before the first one, lest half of an operator
     * runs. */
    struct ready ready[GEN_PLAN_MAX_LAUNCHES], front;
    enum gen_status status = GEN_OK;
    uint32_t made = 0;
    for (; !status && made < plan->num_launches; made++) {
        ready[made].kernel = NULL;
        status = make_ready(library, family, plan, made, args, workspace, stream, &ready[made]);
    }
    if (first && !status) {
        memcpy(front.params, &first->params, sizeof(first->params));
        status = find_kernel(library, (uint32_t)plan->dims[GEN__DIM_INDEX] - 1, stream, &front);
    }
    if (!status)
        status = check_apart(family, plan, args, workspace, first);
    if (first && !status)
        status = launch_first(library, family, plan, &front, stream);
    for (uint32_t i = 0; !status && i < made; i++)
        status = launch_one(library, family, &plan->launch[i], &ready[i], stream);
    return status;
}

/* A plan that begins with index32. */
COLD static enum gen_status launch_indexed(const gen_library *library,
                                           const struct gen__family *family, const gen_plan *plan,
                                           const gen_args *args, void *workspace, gen_stream stream)
{
    struct first first;
    const enum gen_status status =
        gen__index_args(family, plan, args, workspace, &first.args.base, &first.params);
    return status ? status
                  : launch_all(library, family, plan, &first.args.base, workspace, stream, &first);
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
    if (__builtin_expect(gen__index_planned(plan), 0))
        return launch_indexed(library, family, plan, args, workspace, stream);
    if (family->num_indices)
        status = gen__index_refuse(family, args);
    return status ? status : launch_all(library, family, plan, args, workspace, stream, NULL);
}
