/* What the host pays: selection, launch, open, a cold start. */
#define _GNU_SOURCE
#include "measure/bench.h"
#include "measure/host.h"
#include "common/buffers.h"
#include "common/problems.h"
#include "common/product_image.h"
#include "common/timing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCHES 20000
#define LAUNCH_SECONDS 2 /* a family whose least problem keeps the GPU busy for long has fewer */
#define LAUNCHES_PER_SYNC 50
#define OPENS 200
#define COLD_STARTS 9

static const char method[] =
    "select: a million calls over 4096 random problems and all required keys on one core, the "
    "problem copied to the stack before each, as a caller has just filled it in, and each timed "
    "alone by the time-stamp counter less the counter's own cost; select_8_threads: the same calls "
    "split over eight threads that start together on one library; select_launch, "
    "cuLaunchKernel and cuLaunchKernelEx: one kernel, the same problem and buffers, one call of "
    "each in turn, each timed alone, the stream drained every 50 of each, cuLaunchKernelEx as a "
    "programmatic dependent launch where the plan's is one; select_launch_FAMILY and so on: the "
    "same for the smallest problem of each family and all kernels of its plan; open: gen_open in "
    "one process; first_launch and "
    "bare_first_launch: in fresh processes, from a context, a stream and buffers to the end of the "
    "first kernel";

/* ---- launches ---------------------------------------------------------- */

/* One kernel of a plan, loaded and launched without the runtime. */
struct bare {
    const gen_plan_launch *launch;
    void *params;
    bool opt_in; /* to more than 48 KiB of shared memory */
    struct product_image image;
    void *library, *function;
};

/* A small problem staged, its plan, and the bare launches of the same kernels. */
struct launcher {
    struct arena arena;
    struct stage stage;
    struct shape_list shapes;
    const struct shape *shape;
    gen_plan plan;
    struct bare bare[GEN_PLAN_MAX_LAUNCHES];
};

/* The first shape of the list that has the fewest bytes to move; `plain`: of those that plan as one
 * launch without workspace or cluster. */
static const struct shape *smallest(struct session *s, struct shape_list *shapes, bool plain,
                                    gen_plan *plan)
{
    const struct shape *best = NULL;
    double least = 0;
    for (size_t i = 0; i < shapes->count; i++) {
        const struct shape *x = &shapes->item[i];
        gen_plan p = {.size = sizeof p};
        double bytes, flops;
        x->family->cost(x->problem, &bytes, &flops);
        if (gen_select(s->library, &s->gpu.device, x->problem, &p) != GEN_OK || !p.num_launches ||
            (best && bytes >= least))
            continue;
        if (plain && (p.num_launches != 1 || p.workspace_bytes ||
                      session_variant(s, p.launch[0].variant).cluster > 1))
            continue;
        best = x;
        least = bytes;
        *plan = p;
    }
    return best;
}

static enum gen_status bare_load(struct launcher *l, const struct gpu *gpu)
{
    const struct gen__driver *d = gpu->driver;
    for (uint32_t i = 0; i < l->plan.num_launches; i++) {
        struct bare *b = &l->bare[i];
        void *kernel;
        int result = d->cuLibraryLoadData(&b->library, b->image.data, NULL, NULL, 0, NULL, NULL, 0);
        if (!result)
            result = d->cuLibraryGetKernel(&kernel, b->library, b->image.symbol);
        if (!result)
            result = d->cuKernelGetFunction(&b->function, kernel);
        if (!result && b->opt_in)
            result = d->cuKernelSetAttribute(GEN__KERNEL_MAX_DYNAMIC_SHARED, (int)b->launch->shared,
                                             kernel, gpu->handle);
        if (result)
            return gen__driver_fail(d, result, "cuLibraryLoadData", "the bare kernel");
    }
    return GEN_OK;
}

/* `dependent`: with the attribute that the plan's launches have. */
static int bare_launch(const struct launcher *l, const struct gpu *gpu, bool dependent)
{
    int result = 0;
    for (uint32_t i = 0; !result && i < l->plan.num_launches; i++) {
        const struct bare *b = &l->bare[i];
        const gen_plan_launch *p = b->launch;
        void *params[] = {b->params};
        struct gen__launch_attribute attribute = {.id = GEN__LAUNCH_DEPENDENT, .value.allowed = 1};
        const struct gen__launch_config config = {.grid = {p->grid[0], p->grid[1], p->grid[2]},
                                                  .block = {p->threads, 1, 1},
                                                  .shared = p->shared,
                                                  .stream = gpu->stream,
                                                  .attributes = &attribute,
                                                  .num_attributes = 1};
        if (dependent && p->dependent) {
            result = gpu->driver->cuLaunchKernelEx(&config, b->function, params, NULL);
            continue;
        }
        result =
            gpu->driver->cuLaunchKernel(b->function, p->grid[0], p->grid[1], p->grid[2], p->threads,
                                        1, 1, p->shared, gpu->stream, params, NULL);
    }
    return result;
}

static void *workspace_of(const struct launcher *l)
{
    return l->plan.workspace_bytes ? (void *)(uintptr_t)l->stage.workspace : NULL;
}

static void bare_open(const struct session *s, struct launcher *l, uint32_t i)
{
    struct bare *b = &l->bare[i];
    const gen_variant_info variant = session_variant(s, l->plan.launch[i].variant);
    b->launch = &l->plan.launch[i];
    b->opt_in = b->launch->shared + variant.shared_static > 48 * 1024;
    if (!product_image_read(s->product, variant.name, &b->image))
        die(1, "%s: cannot find the image of %s", s->product, variant.name);
    b->params = aligned_alloc(GEN__PARAMS_ALIGNMENT, GEN__MAX_PARAMS);
    if (!b->params)
        die(2, "no memory for a kernel's parameters");
    if (l->shape->family->params(&l->plan, i, l->stage.args[0], workspace_of(l), b->params) !=
        GEN_OK)
        die(1, "%s", gen_last_error());
}

/* Everything up to, not including, loading the kernels. Needs s->library. `family` NULL: of all,
 * one plain launch. False: the family has no shape that this GPU runs. */
static bool launcher_open(struct bench_options *o, const struct gen__family *family,
                          struct launcher *l)
{
    struct session *s = &o->session;
    const struct gen__family *list[64];
    memset(l, 0, sizeof *l);
    uint32_t n = families_named(&s->families, list, 64);
    for (uint32_t i = 0; i < n; i++)
        if (!family || list[i] == family)
            shapes_load(&l->shapes, list[i], SHAPES_TIMED, NULL);
    l->shape = smallest(s, &l->shapes, !family, &l->plan);
    if (!l->shape && family) {
        shapes_free(&l->shapes);
        return false;
    }
    if (!l->shape)
        die(1, "no shape of the shape files runs as one plain launch");
    if (stage_open(&l->stage, &s->gpu, &l->arena, l->shape, l->plan.workspace_bytes) != GEN_OK)
        die(1, "%s", gen_last_error());
    for (uint32_t i = 0; i < l->plan.num_launches; i++)
        bare_open(s, l, i);
    return true;
}

static void launcher_close(struct launcher *l, const struct gpu *gpu)
{
    for (uint32_t i = 0; i < l->plan.num_launches; i++) {
        if (l->bare[i].library)
            (void)gpu->driver->cuLibraryUnload(l->bare[i].library);
        product_image_free(&l->bare[i].image);
        free(l->bare[i].params);
    }
    stage_close(&l->stage);
    arena_free(&l->arena, gpu);
    shapes_free(&l->shapes);
}

static uint64_t timed_ours(struct bench_options *o, struct launcher *l)
{
    gen_plan plan = {.size = sizeof plan};
    struct session *s = &o->session;
    uint64_t before = ticks();
    enum gen_status status = gen_select(s->library, &s->gpu.device, l->shape->problem, &plan);
    if (status == GEN_OK)
        status = gen_launch(s->library, &plan, l->stage.args[0], workspace_of(l), s->gpu.stream);
    uint64_t after = ticks();
    if (status != GEN_OK)
        die(1, "%s", gen_last_error());
    return after - before;
}

static uint64_t timed_bare(struct bench_options *o, struct launcher *l, bool dependent)
{
    uint64_t before = ticks();
    int result = bare_launch(l, &o->session.gpu, dependent);
    uint64_t after = ticks();
    if (result)
        die(1, "cuLaunchKernel returned %d", result);
    return after - before;
}

static void launch_row(struct text *text, const char *what, const char *suffix, double *sample,
                       size_t count, const struct launcher *l, const char *how)
{
    char name[80], note[200];
    snprintf(name, sizeof name, "%s%s", what, suffix);
    snprintf(note, sizeof note, "%zu calls; %s; launches: %" PRIu32 "; %s", count, l->shape->name,
             l->plan.num_launches, how);
    host_row(text, name, sample, count, note);
}

/* The rows of one launcher; `suffix` is "" or "_FAMILY". */
static void time_launches(struct bench_options *o, const struct tick_clock *clock,
                          struct launcher *l, const char *suffix, struct text *text)
{
    enum { OURS, BARE, DEPENDENT, WAYS };
    struct session *s = &o->session;
    const size_t most = o->quick ? LAUNCHES / 20 : LAUNCHES;
    const uint64_t start = clock_ns();
    size_t count = 0;
    double *sample[WAYS];
    for (int way = 0; way < WAYS; way++)
        sample[way] = xmalloc(most * sizeof *sample[way]);
    if (gen_preload(s->library, &l->plan) != GEN_OK || bare_load(l, &s->gpu) != GEN_OK)
        die(1, "%s", gen_last_error());
    while (count < most) {
        for (size_t turn = 0; turn < WAYS; turn++) { /* each goes first every third time */
            const size_t way = (count + turn) % WAYS;
            const uint64_t t = way == OURS ? timed_ours(o, l) : timed_bare(o, l, way == DEPENDENT);
            sample[way][count] = tick_ns(clock, 0, t);
        }
        if (++count % LAUNCHES_PER_SYNC)
            continue;
        if (gpu_sync(&s->gpu) != GEN_OK)
            die(1, "%s", gen_last_error());
        if (clock_ns() - start > LAUNCH_SECONDS * UINT64_C(1000000000))
            break;
    }
    (void)gpu_sync(&s->gpu);
    launch_row(text, "select_launch", suffix, sample[OURS], count, l, "gen_select and gen_launch");
    launch_row(text, "cuLaunchKernel", suffix, sample[BARE], count, l,
               "the same kernels and parameters");
    launch_row(text, "cuLaunchKernelEx", suffix, sample[DEPENDENT], count, l,
               "the same as dependent launches where the plan's are");
    for (int way = 0; way < WAYS; way++)
        free(sample[way]);
}

static void bench_launch(struct bench_options *o, const struct tick_clock *clock, struct text *text)
{
    const struct gen__family *family[64];
    struct launcher l;
    (void)launcher_open(o, NULL, &l);
    time_launches(o, clock, &l, "", text);
    launcher_close(&l, &o->session.gpu);
    const uint32_t n = families_named(&o->session.families, family, 64);
    for (uint32_t i = 0; i < n; i++) {
        char suffix[64];
        if (!launcher_open(o, family[i], &l))
            continue;
        snprintf(suffix, sizeof suffix, "_%s", family[i]->name);
        time_launches(o, clock, &l, suffix, text);
        launcher_close(&l, &o->session.gpu);
    }
}

static void bench_open(struct bench_options *o, struct text *text)
{
    double sample[OPENS];
    const struct session *s = &o->session;
    gen_open_options options = {.size = sizeof options,
                                .path = s->product,
                                .table_paths = s->tables.item,
                                .num_table_paths = (size_t)s->tables.count};
    for (int i = 0; i < OPENS; i++) {
        gen_library *library = NULL;
        uint64_t before = clock_ns();
        enum gen_status status = gen_open(&options, &library);
        sample[i] = (double)(clock_ns() - before);
        if (status != GEN_OK)
            die(1, "%s", gen_last_error());
        gen_close(library);
    }
    char note[96];
    snprintf(note, sizeof note, "%d times; %" PRIu32 " variants", OPENS, s->info.num_variants);
    host_row(text, "open", sample, OPENS, note);
}

/* ---- cold start -------------------------------------------------------- */

/* In a fresh process: nanoseconds from a ready context to the end of the first
 * kernel, through the runtime or bare. */
static double cold_start(struct bench_options *o, bool bare)
{
    struct session *s = &o->session;
    struct launcher l;
    gen_plan plan = {.size = sizeof plan};
    gen_library *library = NULL;
    session_open_library(s);
    session_open_gpu(s);
    gen_open_options options = {.size = sizeof options,
                                .path = s->product,
                                .table_paths = s->tables.item,
                                .num_table_paths = (size_t)s->tables.count};
    (void)launcher_open(o, NULL, &l);
    gen_close(s->library);
    s->library = NULL;
    uint64_t before = clock_ns();
    enum gen_status status = GEN_OK;
    if (bare) {
        status = bare_load(&l, &s->gpu);
        if (status == GEN_OK && bare_launch(&l, &s->gpu, false))
            status = gen__fail(GEN_STATUS_DRIVER, "cuLaunchKernel failed");
    } else {
        status = gen_open(&options, &library);
        if (status == GEN_OK)
            status = gen_select(library, &s->gpu.device, l.shape->problem, &plan);
        if (status == GEN_OK)
            status = gen_launch(library, &plan, l.stage.args[0], NULL, s->gpu.stream);
    }
    if (status == GEN_OK)
        status = gpu_sync(&s->gpu);
    uint64_t after = clock_ns();
    if (status != GEN_OK)
        die(1, "cold start: %s", gen_last_error());
    return (double)(after - before);
}

static void bench_cold(struct bench_options *o, bool bare, double *sample, int count)
{
    for (int i = 0; i < count; i++) {
        int pipe_end[2], status = 0;
        fflush(NULL);
        if (pipe(pipe_end) != 0)
            die(2, "pipe: %s", strerror(errno));
        pid_t child = fork();
        if (child < 0)
            die(2, "fork: %s", strerror(errno));
        if (child == 0) {
            double ns = cold_start(o, bare);
            ssize_t n = write(pipe_end[1], &ns, sizeof ns);
            _exit(n == (ssize_t)sizeof ns ? 0 : 2);
        }
        close(pipe_end[1]);
        ssize_t n = read(pipe_end[0], &sample[i], sizeof sample[i]);
        close(pipe_end[0]);
        (void)waitpid(child, &status, 0);
        if (n != (ssize_t)sizeof sample[i] || !WIFEXITED(status) || WEXITSTATUS(status))
            die(1, "a cold start failed");
    }
}

/* Without a GPU: what needs none, for a device by name. */
static int host_pretended(struct bench_options *o)
{
    struct text rows = {0};
    session_open_library(&o->session);
    o->session.gpu.device.size = sizeof o->session.gpu.device;
    if (gpu_named(o->pretend, &o->session.gpu.device) != GEN_OK)
        die(1, "--pretend: %s", gen_last_error());
    const struct tick_clock clock = tick_clock();
    host_select(o, &clock, &rows);
    bench_open(o, &rows);
    text_free(&rows);
    gen_close(o->session.library);
    return 0;
}

int bench_host(struct bench_options *o)
{
    struct text rows = {0}, text = {0};
    double first[COLD_STARTS], bare[COLD_STARTS];
    const int cold = o->quick ? 3 : COLD_STARTS;
    char note[96];
    if (o->pretend)
        return host_pretended(o);
    /* Before this process touches the driver. */
    bench_cold(o, false, first, cold);
    bench_cold(o, true, bare, cold);
    session_open_library(&o->session);
    session_open_gpu(&o->session);
    const struct tick_clock clock = tick_clock();
    host_select(o, &clock, &rows);
    bench_launch(o, &clock, &rows);
    bench_open(o, &rows);
    snprintf(note, sizeof note, "%d fresh processes; gen_open to the end of the first kernel",
             cold);
    host_row(&rows, "first_launch", first, (size_t)cold, note);
    snprintf(note, sizeof note, "%d fresh processes; cuLibraryLoadData of the one kernel", cold);
    host_row(&rows, "bare_first_launch", bare, (size_t)cold, note);
    bench_header(&text, o, method);
    text_add(&text, "what,ns_p50,ns_p999,note\n%s", rows.data);
    bench_write(o, "host", &text);
    text_free(&rows);
    text_free(&text);
    session_close(&o->session);
    return 0;
}
