/*
 * What gen_select() costs: a million problems of la_decode (all required keys,
 * random sizes) on GPUs of a measured class, of an unmeasured one, and of none,
 * each timed by itself.
 *
 *     bench_select [--check P50 WORST]   nanoseconds not to be exceeded by the
 *                                        mix of the first two: by its median,
 *                                        and by the least time of any problem
 *     bench_select --calls N DEVICE [COORDS]
 *                                        N selections and nothing else, for a
 *                                        counter of instructions (docs/perf/host.md);
 *                                        COORDS 2 to 4: of wide.h's family with so
 *                                        many tuning coordinates
 *
 * One line a mix: what, ns_p50, ns_p999, ns_mean, threads. The 99.9 % of single
 * calls is a property of the machine, too (a busy one interrupts more calls than
 * that), so a test holds the slowest problem's least time instead.
 */
#include "family/family.h"
#include "make_product.h"
#include "wide.h"

#include "families/la_decode/api.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define CALLS 1000000
#define ROWS 48
#define VARIANTS 240 /* of a group */

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    unsigned core; /* what was begun before is done, and nothing later has begun */
    const uint64_t now = __rdtscp(&core);
    _mm_lfence();
    return now;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double ns_per_tick(void)
{
    const double start = now_ns();
    const uint64_t first = ticks();
    while (now_ns() - start < 2e7)
        ;
    return (now_ns() - start) / (double)(ticks() - first);
}

/* ---- a product as large as a real one ----------------------------------- */

static void variant_name(char *name, size_t capacity, const char *required, int i)
{
    snprintf(name, capacity, "%s__sm90a_ld_tost_t32_w4_s1_b4_k1_def_one_%03d", required, i);
}

static void add_rows(struct wide_text *table, const char *required, int shift)
{
    for (int r = 0; r < ROWS; r++) {
        char name[128], line[512];
        variant_name(name, sizeof(name), required, (r * 7 + shift) % VARIANTS);
        snprintf(line, sizeof(line),
                 "la_decode\t%s\tstates=%.0f\t%s\t%.3f\t0.01\t-\t-\t%016llx\t13.0\t580\n", required,
                 8.0 * (1 << r / 3) * (1.0 + r % 3 / 3.0), name, 2.0 + r,
                 (unsigned long long)gen_pack_hash(name, strlen(name)));
        wide_add(table, line);
    }
}

static void *make_bytes(int with_tables, size_t *size)
{
    const struct gen__family *family = gen__family_by_name("la_decode");
    if (!family) {
        fprintf(stderr, "bench_select: this runtime has no la_decode\n");
        exit(2);
    }
    struct product *product = product_new();
    const uint32_t f =
        product_family(product, "la_decode", "dtype,head_dim,layout,state_pool", family->facts);
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    struct wide_text tables[2] = {{0}, {0}};
    for (int t = 0; t < 2; t++) {
        char head[512];
        snprintf(head, sizeof(head),
                 "# attngen tuning table\n# format: 1\n# class: sm90_%dsm\n"
                 "# compute_capability: 90\n# num_sms: %d\n# memory_gbps: 4800\n"
                 "# l2_bytes: 62914560\nfamily\trequired\tproblem\tvariant\tus\tspread\trunner_up\t"
                 "runner_up_us\tdigest\ttoolkit\tdriver\n",
                 t ? 80 : 132, t ? 80 : 132);
        wide_add(&tables[t], head);
    }
    for (int key = 0; key < 12; key++) {
        static const char *const dtypes[] = {"bf16", "fp16"}, *const layouts[] = {"vk", "kv"};
        const int dim = 64 << key / 2 % 3;
        char required[64], values[64], name[128];
        snprintf(required, sizeof(required), "la_decode_%s_d%d_%s", dtypes[key & 1], dim,
                 layouts[key / 6]);
        snprintf(values, sizeof(values), "%s,%d,%s,none", dtypes[key & 1], dim, layouts[key / 6]);
        const uint32_t group = product_group(product, required, values, f, target);
        for (int i = 0; i < VARIANTS; i++) {
            variant_name(name, sizeof(name), required, i);
            product_variant(product, group,
                            (struct product_variant){.name = name,
                                                     .shared_dynamic = (uint32_t)(i % 7) * 8192,
                                                     .registers = 64,
                                                     .facts = {1 << i % 4, i % 2, 8192},
                                                     .fallback = i == 0});
        }
        add_rows(&tables[0], required, key);
        add_rows(&tables[1], required, key + 3);
    }
    if (with_tables) {
        product_table(product, "sm90_132sm", tables[0].at);
        product_table(product, "sm90_80sm", tables[1].at);
    }
    void *bytes = product_bytes(product, size);
    product_free(product);
    free(tables[0].at);
    free(tables[1].at);
    return bytes;
}

/* ---- several coordinates ------------------------------------------------ */

static double spread(unsigned i, unsigned steps, double octaves)
{
    return floor(exp2(octaves * i / (steps - 1)) + 0.5);
}

/* A key's rows as a tuner has them: 5 numbers of requests, 7 lengths, 3 numbers of rows, but for
 * the largest together. `shift` sets them apart from other keys'. */
static unsigned add_wide_rows(struct wide_text *table, unsigned num_coords, unsigned key,
                              unsigned shift)
{
    unsigned count = 0;
    for (unsigned i = 0; i < 5 * 7 * 3; i++) {
        const double counts[4] = {spread(i % 5, 5, 10) + shift % 8, spread(i / 5 % 7, 7, 10) * 256,
                                  spread(i / 35, 3, 4) * 16 + shift / 8, 64};
        if (i % 5 == 4 && i / 5 % 7 > 5 - (i / 35) / 2)
            continue;
        wide_row(table, num_coords, key, counts, i * 7 % 5, 2.0 + i);
        count++;
    }
    return count;
}

/* Eight keys of three coordinates (or of two, three and four), 99 rows each, for two classes: every
 * key's rows by themselves, or all alike. */
static void *make_wide_bytes(int alike, int all, size_t *size)
{
    struct product *product = wide_product();
    for (unsigned t = 0; t < 2; t++) {
        struct wide_text table = {0};
        wide_head(&table, t ? 80 : 132);
        for (unsigned key = 0; key < WIDE_KEYS; key++)
            for (unsigned num_coords = 2; num_coords <= 4; num_coords++)
                if (num_coords == 3 || all)
                    add_wide_rows(&table, num_coords, key, alike ? 0 : WIDE_KEYS * t + key);
        product_table(product, t ? "80" : "132", table.at);
        free(table.at);
    }
    void *bytes = product_bytes(product, size);
    product_free(product);
    return bytes;
}

/* ---- the measurement ---------------------------------------------------- */

static enum gen_status device_named(const char *name, gen_device *device)
{
    device->size = sizeof(*device);
    return gen_device_named(name, device);
}

struct run {
    const gen_library *library;
    gen_device devices[2];
    int calls;
    unsigned num_coords; /* below 2: la_decode */
    unsigned seed;
    double p50, p999, mean; /* ns */
    unsigned failures;
};

static double scale;        /* ns per tick */
static uint64_t empty_call; /* ticks between two readings */

static unsigned draw(struct run *run)
{
    return (run->seed = run->seed * 1664525u + 1013904223u) >> 8;
}

union problem {
    gen_problem base;
    gen_la_decode_problem la_decode;
    gen_wide_problem wide;
};

/* 1 to 2 << octaves, every octave as often. */
static int32_t draw_count(struct run *run, unsigned octaves)
{
    const unsigned a = draw(run), b = draw(run);
    return (int32_t)((1u << a % (octaves + 1)) + b % (1u << a % (octaves + 1)));
}

/* 1 to 2048 requests of 1 to 2048 rows, and up to 2^24 rows of each one's cache. */
static union problem next_wide(struct run *run)
{
    union problem problem = {.wide = wide_problem(run->num_coords, draw(run) % WIDE_KEYS)};
    problem.wide.counts[0] = draw_count(run, 10);
    problem.wide.counts[1] = draw_count(run, 23);
    problem.wide.counts[2] = draw_count(run, 10);
    problem.wide.counts[3] = 64;
    return problem;
}

static union problem next_problem(struct run *run)
{
    if (run->num_coords > 1)
        return next_wide(run);
    const unsigned a = draw(run), b = draw(run);
    const int heads = 1 << a % 7;
    return (union problem){.la_decode = {
                               .base = {sizeof(gen_la_decode_problem), GEN_LA_DECODE, 0, 0},
                               .batch = 1 + (int)(b % 512),
                               .num_qk_heads = heads,
                               .num_v_heads = heads << (a >> 4) % 3,
                               .head_dim = 64 << (a >> 8) % 3,
                               .dtype = (a >> 12) & 1,
                               .state_layout = (a >> 13) & 1,
                           }};
}

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void *measure(void *argument)
{
    struct run *run = argument;
    uint32_t *times = calloc((size_t)run->calls, sizeof(*times));
    if (!times)
        abort();
    double sum = 0.0;
    gen_plan plan = {.size = sizeof(plan)};
    for (int i = 0; i < run->calls; i++) {
        const union problem problem = next_problem(run);
        const gen_device *device = &run->devices[i & 1];
        const uint64_t start = ticks();
        run->failures += gen_select(run->library, device, &problem.base, &plan) != GEN_OK;
        const uint64_t took = ticks() - start;
        times[i] = took > empty_call ? (uint32_t)(took - empty_call) : 0;
        sum += times[i];
    }
    qsort(times, (size_t)run->calls, sizeof(*times), by_size);
    run->p50 = times[run->calls / 2] * scale;
    run->p999 = times[run->calls - run->calls / 1000 - 1] * scale;
    run->mean = sum / run->calls * scale;
    free(times);
    return NULL;
}

static void calibrate(void)
{
    static uint32_t gaps[10001];
    scale = ns_per_tick();
    for (int i = 0; i < 10001; i++) {
        const uint64_t start = ticks();
        gaps[i] = (uint32_t)(ticks() - start);
    }
    qsort(gaps, 10001, sizeof(gaps[0]), by_size);
    empty_call = gaps[5000];
}

static struct run run_mix(const gen_library *library, unsigned num_coords, const char *what,
                          const char *first, const char *second, int calls)
{
    struct run run = {.library = library, .calls = calls, .num_coords = num_coords, .seed = 1};
    if (device_named(first, &run.devices[0]) || device_named(second, &run.devices[1]))
        abort();
    measure(&run);
    printf("%-26s p50 %6.1f ns  p99.9 %7.1f ns  mean %6.1f ns  1 thread\n", what, run.p50, run.p999,
           run.mean);
    if (run.failures) {
        fprintf(stderr, "bench_select: %u selections failed: %s\n", run.failures, gen_last_error());
        exit(1);
    }
    return run;
}

static void run_threads(const gen_library *library, int num_threads)
{
    struct run runs[8];
    pthread_t threads[8];
    double mean = 0.0;
    for (int i = 0; i < num_threads; i++) {
        runs[i] = (struct run){.library = library, .calls = CALLS / 4, .seed = (unsigned)i};
        if (device_named("h200", &runs[i].devices[0]) || device_named("h20", &runs[i].devices[1]) ||
            pthread_create(&threads[i], NULL, measure, &runs[i]))
            abort();
    }
    for (int i = 0; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
        mean += runs[i].p50 / num_threads;
    }
    printf("%-26s p50 %6.1f ns  (mean of the threads)                %d threads\n",
           "table and nearest", mean, num_threads);
}

/* The slowest problem, each by its fastest call: what no interruption explains. */
static double worst_problem(const gen_library *library)
{
    enum { PROBLEMS = 4096, ROUNDS = 64 };
    static uint32_t least[PROBLEMS];
    struct run run = {.library = library};
    gen_plan plan = {.size = sizeof(plan)};
    if (device_named("h200", &run.devices[0]) || device_named("h20", &run.devices[1]))
        abort();
    memset(least, 0xff, sizeof(least));
    for (int round = 0; round < ROUNDS; round++) {
        run.seed = 1;
        for (int i = 0; i < PROBLEMS; i++) {
            const union problem problem = next_problem(&run);
            const uint64_t start = ticks();
            run.failures +=
                gen_select(library, &run.devices[i & 1], &problem.base, &plan) != GEN_OK;
            const uint64_t took = ticks() - start;
            const uint32_t net = took > empty_call ? (uint32_t)(took - empty_call) : 0;
            if (net < least[i])
                least[i] = net;
        }
    }
    if (run.failures)
        abort();
    qsort(least, PROBLEMS, sizeof(least[0]), by_size);
    const double worst = least[PROBLEMS - 1] * scale;
    printf("%-26s     %6.1f ns of %d, each the least of %d calls\n", "slowest problem", worst,
           PROBLEMS, ROUNDS);
    return worst;
}

/* Without a table every variant of the group is estimated. */
static void run_model(void)
{
    size_t size;
    void *bytes = make_bytes(0, &size);
    const gen_open_options options = {.size = sizeof(options), .data = bytes, .data_size = size};
    gen_library *library;
    if (gen_open(&options, &library))
        abort();
    char what[64];
    snprintf(what, sizeof(what), "model, %d variants", VARIANTS);
    run_mix(library, 1, what, "h200", "h20", CALLS / 50);
    gen_close(library);
    free(bytes);
}

static double open_ms(const void *bytes, size_t size, gen_library **library)
{
    const gen_open_options options = {.size = sizeof(options), .data = bytes, .data_size = size};
    const double start = now_ns();
    if (gen_open(&options, library)) {
        fprintf(stderr, "bench_select: %s\n", gen_last_error());
        exit(2);
    }
    return (now_ns() - start) * 1e-6;
}

/* What three coordinates cost gen_open(): the least of several times. */
static double least_open_ms(const void *bytes, size_t size)
{
    double least = 1e9;
    for (int i = 0; i < 100; i++) {
        gen_library *library;
        const double ms = open_ms(bytes, size, &library);
        gen_close(library);
        least = ms < least ? ms : least;
    }
    return least;
}

static void run_wide(void)
{
    for (int alike = 0; alike < 2; alike++) {
        size_t size;
        void *bytes = make_wide_bytes(alike, 0, &size);
        gen_library *library;
        gen_library_info info = {.size = sizeof(info)};
        open_ms(bytes, size, &library);
        gen_library_info_get(library, &info);
        printf("3 coordinates: gen_open    %.3f ms: %u rows, each key's %s\n",
               least_open_ms(bytes, size), info.num_rows, alike ? "alike" : "its own");
        run_mix(library, 3, "3 coordinates: table", "h200", "sm_90:80", CALLS);
        run_mix(library, 3, "3 coordinates: nearest", "h20", "h100-pcie", CALLS);
        gen_close(library);
        free(bytes);
    }
    size_t size;
    void *bytes = make_wide_bytes(0, 1, &size);
    gen_library *library;
    open_ms(bytes, size, &library);
    run_mix(library, 2, "2 coordinates: table", "h200", "sm_90:80", CALLS);
    run_mix(library, 4, "4 coordinates: table", "h200", "sm_90:80", CALLS);
    gen_close(library);
    free(bytes);
}

/* Selections alone, to be counted. */
static int run_calls(const gen_library *library, unsigned num_coords, const char *device, int calls)
{
    struct run run = {.library = library, .num_coords = num_coords, .seed = 1};
    gen_plan plan = {.size = sizeof(plan)};
    if (device_named(device, &run.devices[0]))
        abort();
    for (int i = 0; i < calls; i++) {
        const union problem problem = next_problem(&run);
        run.failures += gen_select(library, &run.devices[0], &problem.base, &plan) != GEN_OK;
    }
    return run.failures != 0;
}

static int count_calls(int argc, char **argv)
{
    const unsigned num_coords = argc > 4 ? (unsigned)atoi(argv[4]) : 1;
    size_t size;
    void *bytes = num_coords > 1 ? make_wide_bytes(0, 1, &size) : make_bytes(1, &size);
    gen_library *library;
    open_ms(bytes, size, &library);
    const int status = run_calls(library, num_coords, argv[3], atoi(argv[2]));
    gen_close(library);
    free(bytes);
    return status;
}

int main(int argc, char **argv)
{
    const int check = argc == 4 && !strcmp(argv[1], "--check");
    if ((argc == 4 || argc == 5) && !strcmp(argv[1], "--calls") && atoi(argv[2]) > 0)
        return count_calls(argc, argv);
    if (argc != 1 && !check) {
        fprintf(stderr, "usage: bench_select [--check P50 WORST | --calls N DEVICE [COORDS]]\n");
        return 2;
    }
    size_t size;
    void *bytes = make_bytes(1, &size);
    gen_library *library;
    const double open = open_ms(bytes, size, &library);
    gen_library_info info = {.size = sizeof(info)};
    gen_library_info_get(library, &info);
    printf("gen_open                   %.3f ms: %u variants, %u rows, %zu bytes\n", open,
           info.num_variants, info.num_rows, size);
    calibrate();
    int passed = !check;
    for (int attempt = 0; attempt < (check ? 10 : 1) && (attempt == 0 || !passed); attempt++) {
        const struct run run = run_mix(library, 1, "table and nearest", "h200", "h20", CALLS);
        const double worst = worst_problem(library);
        if (check)
            passed = run.p50 <= atof(argv[2]) && worst <= atof(argv[3]);
    }
    if (!check) {
        run_mix(library, 1, "table", "h200", "sm_90:80", CALLS);
        run_mix(library, 1, "nearest", "h20", "h100-pcie", CALLS);
        run_threads(library, 8);
        run_model();
        run_wide();
    }
    gen_close(library);
    free(bytes);
    if (!passed)
        fprintf(stderr, "bench_select: p50 above %s ns or a problem above %s ns ten times\n",
                argv[2], argv[3]);
    return passed ? 0 : 1;
}
