#define _POSIX_C_SOURCE 200809L
#include "common/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory ------------------------------------------------------------ */

enum gen_status arena_reserve(struct arena *arena, const struct gpu *gpu, uint64_t size)
{
    if (size <= arena->size)
        return GEN_OK;
    arena_free(arena, gpu);
    enum gen_status status = gpu_alloc(gpu, size, &arena->memory);
    if (status == GEN_OK)
        arena->size = size;
    return status;
}

void arena_free(struct arena *arena, const struct gpu *gpu)
{
    gpu_free(gpu, arena->memory);
    *arena = (struct arena){0};
}

enum gen_status stage_open(struct stage *stage, const struct gpu *gpu, struct arena *arena,
                           const struct shape *shape, uint64_t workspace_size)
{
    const struct gen__family *family = shape->family;
    const struct fill_options fill = {
        .seed = 2, .cycle = true, .ordered = !strstr(shape->controls, "@scattered")};
    uint64_t inplace, touched;
    double bytes, flops;
    memset(stage, 0, sizeof *stage);
    stage->shape = shape;
    problem_footprint(family, shape->problem, &inplace, &touched);
    family->cost(shape->problem, &bytes, &flops);
    stage->floor_us = bytes / (1e3 * (gpu->device.memory_gbps ? gpu->device.memory_gbps : 1000.0));
    uint32_t sets = sets_beyond_cache(touched, gpu->device.l2_bytes, STAGE_MAX_SETS);
    buffers_init(&stage->buffers, family, shape->problem, BUFFERS_DEFAULT_FORM, sets, false);
    stage->workspace_size = workspace_size;
    uint64_t memory = stage->buffers.total_bytes + workspace_size + 256;
    enum gen_status status = arena_reserve(arena, gpu, memory);
    if (status != GEN_OK) {
        buffers_free(&stage->buffers);
        return status;
    }
    stage->base = arena->memory;
    stage->workspace = (stage->base + stage->buffers.total_bytes + 255) / 256 * 256;
    stage->args = xmalloc(sets * sizeof *stage->args);
    for (uint32_t set = 0; set < sets; set++) {
        stage->args[set] = xmalloc(family->args_size);
        buffers_args(&stage->buffers, stage->base, set, stage->args[set]);
    }
    status = buffers_fill_device(&stage->buffers, &fill, gpu, stage->base);
    if (status != GEN_OK)
        stage_close(stage);
    return status;
}

void stage_close(struct stage *stage)
{
    for (uint32_t set = 0; stage->args && set < stage->buffers.num_sets; set++)
        free(stage->args[set]);
    free(stage->args);
    buffers_free(&stage->buffers);
    memset(stage, 0, sizeof *stage);
}

/* ---- runners ----------------------------------------------------------- */

static enum gen_status launch_plan(struct runner *r, uint32_t set, gen_stream stream)
{
    return gen_launch(r->library, &r->plan, r->stage->args[set],
                      (void *)(uintptr_t)r->stage->workspace, stream);
}

enum gen_status runner_plan(struct runner *runner, const gen_library *library,
                            const struct stage *stage, const gen_plan *plan)
{
    memset(runner, 0, sizeof *runner);
    runner->launch = launch_plan;
    runner->library = library;
    runner->stage = stage;
    runner->plan = *plan;
    if (plan->workspace_bytes > stage->workspace_size)
        return gen__fail(
            GEN_STATUS_WORKSPACE, "the plan wants %llu bytes of workspace, %llu are there",
            (unsigned long long)plan->workspace_bytes, (unsigned long long)stage->workspace_size);
    return gen_preload(library, plan);
}

enum gen_status runner_capture(struct runner *runner, const struct gpu *gpu, uint32_t num_sets,
                               uint32_t launches)
{
    launches = (launches + num_sets - 1) / num_sets * num_sets;
    runner->num_samples = 0;
    if (runner->graph && runner->launches == launches)
        return GEN_OK;
    runner_free(runner, gpu);
    enum gen_status status = gpu_capture_begin(gpu);
    if (status != GEN_OK)
        return status;
    for (uint32_t i = 0; i < launches && status == GEN_OK; i++)
        status = runner->launch(runner, i % num_sets, gpu->stream);
    if (status != GEN_OK) { /* end the capture, keep the first message */
        char *message = xstrdup(gen_last_error());
        CUgraphExec partial = NULL;
        (void)gpu_capture_end(gpu, &partial);
        gpu_graph_free(gpu, partial);
        status = gen__fail(status, "%s", message);
        free(message);
        return status;
    }
    status = gpu_capture_end(gpu, &runner->graph);
    runner->launches = launches;
    if (status == GEN_OK)
        status = gpu_graph_launch(gpu, runner->graph);
    return status;
}

static enum gen_status rest(struct runner *runner, const struct gpu *gpu, double ms)
{
    enum gen_status status = gpu_sync(gpu);
    if (status != GEN_OK)
        return status;
    const uint64_t ns = (uint64_t)(1e6 * ms);
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)},
        NULL);
    return gpu_graph_launch(gpu, runner->graph);
}

enum gen_status runner_sample(struct runner *runner, const struct gpu *gpu, double rest_ms)
{
    double us = 0;
    enum gen_status status = rest_ms > 0 ? rest(runner, gpu, rest_ms) : GEN_OK;
    if (status == GEN_OK)
        status = gpu_mark_start(gpu);
    if (status == GEN_OK)
        status = gpu_graph_launch(gpu, runner->graph);
    if (status == GEN_OK)
        status = gpu_mark_stop(gpu);
    if (status == GEN_OK)
        status = gpu_elapsed_us(gpu, &us);
    if (status == GEN_OK && runner->num_samples < sizeof runner->sample / sizeof *runner->sample)
        runner->sample[runner->num_samples++] = us / runner->launches;
    return status;
}

enum gen_status runners_interleave(struct runner *const *runners, size_t count,
                                   const struct gpu *gpu, int rounds, double rest_ms)
{
    enum gen_status status = GEN_OK;
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < count && status == GEN_OK; i++)
            status = runner_sample(runners[i], gpu, rest_ms);
    return status;
}

enum gen_status runner_first_us(struct runner *runner, const struct gpu *gpu, uint32_t num_sets,
                                double *us)
{
    enum gen_status status = runner_capture(runner, gpu, num_sets, 1);
    if (status == GEN_OK)
        status = runner_sample(runner, gpu, 0);
    *us = status == GEN_OK ? runner_median(runner) : 0;
    return status;
}

uint32_t launches_within(double most_us, double us, uint32_t launches)
{
    const double most = us > 0 ? most_us / us : launches;
    return most >= launches ? launches : most < 1 ? 1 : (uint32_t)most;
}

double runner_median(const struct runner *runner)
{
    double copy[64];
    memcpy(copy, runner->sample, sizeof copy);
    return stats_median(copy, runner->num_samples);
}

double runner_spread(const struct runner *runner)
{
    double copy[64];
    memcpy(copy, runner->sample, sizeof copy);
    return stats_spread(copy, runner->num_samples);
}

void runner_free(struct runner *runner, const struct gpu *gpu)
{
    gpu_graph_free(gpu, runner->graph);
    runner->graph = NULL;
}

uint32_t launches_for(double window_us, double us, uint32_t least)
{
    double n = ceil(window_us / (us > 0.1 ? us : 0.1));
    return n < least ? least : n > 4096 ? 4096 : (uint32_t)n;
}

enum gen_status warm_up(const struct gpu *gpu, struct runner *runner, double ms)
{
    enum gen_status status = GEN_OK;
    const uint64_t end = clock_ns() + (uint64_t)(1e6 * ms);
    while (status == GEN_OK && clock_ns() < end) {
        status = gpu_graph_launch(gpu, runner->graph);
        if (status == GEN_OK)
            status = gpu_sync(gpu);
    }
    return status;
}

/* ---- as a caller sees it ----------------------------------------------- */

#define EAGER_MAX_TRIES 16

enum gen_status eager_us(const gen_library *library, const struct gpu *gpu,
                         const struct stage *stage, int calls, int tries, double *us)
{
    gen_plan plan = {.size = sizeof plan};
    enum gen_status status = gpu_sync(gpu);
    double sample[EAGER_MAX_TRIES];
    tries = tries < EAGER_MAX_TRIES ? tries : EAGER_MAX_TRIES;
    for (int t = 0; t < tries && status == GEN_OK; t++) {
        uint64_t start = clock_ns();
        for (int i = 0; i < calls && status == GEN_OK; i++) {
            status = gen_select(library, &gpu->device, stage->shape->problem, &plan);
            if (status == GEN_OK)
                status =
                    gen_launch(library, &plan, stage->args[(uint32_t)i % stage->buffers.num_sets],
                               (void *)(uintptr_t)stage->workspace, gpu->stream);
        }
        if (status == GEN_OK)
            status = gpu_sync(gpu);
        sample[t] = (double)(clock_ns() - start) / 1e3 / calls;
    }
    if (status == GEN_OK)
        *us = stats_median(sample, (size_t)tries);
    return status;
}
