/*
 * timing.h - device time of launches: graph replay, rotated through memory
 * beyond the L2, candidates interleaved.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include "common/buffers.h"
#include "common/gpu.h"
#include "common/problems.h"

/* Device memory that grows to what the largest problem needs and is reused. */
struct arena {
    CUdeviceptr memory;
    uint64_t size;
};
enum gen_status arena_reserve(struct arena *arena, const struct gpu *gpu, uint64_t size);
void arena_free(struct arena *arena, const struct gpu *gpu);

/* A problem on the device in several sets. */
struct stage {
    const struct shape *shape;
    struct buffers buffers;
    CUdeviceptr base, workspace;
    uint64_t workspace_size;
    gen_args **args; /* of each set */
    double floor_us; /* bytes that must move at the device's peak bandwidth */
};

/* Lays the problem out in the arena with sets beyond 2.2 times the L2 and room
 * for a workspace, and fills it with random data. Slots are in ascending order,
 * or shuffled where the shape says @scattered. */
enum gen_status stage_open(struct stage *stage, const struct gpu *gpu, struct arena *arena,
                           const struct shape *shape, uint64_t workspace_size);
void stage_close(struct stage *stage);

/* Sets for one problem at most: a graph of so many small kernels takes as long
 * as the measurement wants. */
#define STAGE_MAX_SETS 1100

/* Something that launches: on set `set` of the stage, asynchronously. */
struct runner {
    enum gen_status (*launch)(struct runner *runner, uint32_t set, gen_stream stream);
    /* For plans: */
    const gen_library *library;
    const struct stage *stage;
    gen_plan plan;
    /* The graph and its samples, microseconds per launch. */
    CUgraphExec graph;
    uint32_t launches;
    double sample[64];
    uint32_t num_samples;
    void *context, *launcher; /* for other kinds of runners */
};

/* A runner of a plan on a stage; loads its kernels. */
enum gen_status runner_plan(struct runner *runner, const gen_library *library,
                            const struct stage *stage, const gen_plan *plan);

/* Captures at least `launches` launches, a whole number of rounds through the
 * stage's sets, replacing an earlier graph, and replays once to warm up. */
enum gen_status runner_capture(struct runner *runner, const struct gpu *gpu, uint32_t num_sets,
                               uint32_t launches);
/* One replay; appends a sample. With rest_ms > 0 the GPU idles so long before it and then replays
 * once untimed: what runs on for tens of milliseconds at full power is slowed down by the board's
 * power limit, and what was slowed down before a sample is not this runner's doing. */
enum gen_status runner_sample(struct runner *runner, const struct gpu *gpu, double rest_ms);
/* `rounds` samples of each, in turn. */
enum gen_status runners_interleave(struct runner *const *runners, size_t count,
                                   const struct gpu *gpu, int rounds, double rest_ms);
double runner_median(const struct runner *runner);
double runner_spread(const struct runner *runner);
void runner_free(struct runner *runner, const struct gpu *gpu);

/* Replays one round through the sets and says what a launch took, for launches_within(). */
enum gen_status runner_first_us(struct runner *runner, const struct gpu *gpu, uint32_t num_sets,
                                double *us);

/* A replay takes no longer, if one launch does not: the power limit sets in after some 40 ms. */
#define LONGEST_WINDOW_US 6000

/* `launches`, but no more than take about `most_us` in all, and at least one. */
uint32_t launches_within(double most_us, double us, uint32_t launches);

/* Launches that fill about `window_us` for a runner expected to take `us`. */
uint32_t launches_for(double window_us, double us, uint32_t least);

/* Microseconds per call as a caller sees them: select and launch back to back,
 * the stream synchronized at the end; the median of `tries` (at most 16). */
enum gen_status eager_us(const gen_library *library, const struct gpu *gpu,
                         const struct stage *stage, int calls, int tries, double *us);

/* Keeps the GPU busy for about `ms` so that its clocks rise. */
enum gen_status warm_up(const struct gpu *gpu, struct runner *runner, double ms);

#endif /* BENCH_TIMING_H */
