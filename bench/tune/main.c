/*
 * attngen-tune: measures a tuning table for the GPU at hand.
 */
#include "common/problems.h"
#include "common/session.h"
#include "tune/log_file.h"
#include "tune/tune.h"
#include "tune/tuning_table.h"
#include "common/util.h"
#include "verify/verify.h"
#include "common/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "attngen tune [options]\n"
    "\n"
    "Measures every variant that this GPU can run on many problems and writes the table that\n"
    "the runtime selects by. Each variant is verified against the reference first; those\n"
    "that fail are comments in the table, with the reason. Buckets that the file already holds\n"
    "for the same machine code and driver are kept, so that an interrupted run goes on.\n";

static struct {
    struct session session;
    struct option_list only, logs;
    const char *output, *keys, *commit, *gpu;
    double seconds;
    long rest_ms;
    bool grid, shapes, quick, force, refresh, list, dry_run;
} options = {.commit = ""};

/* What is to be tuned, for each bucket its key's small problems, and the shape files' problems. */
static struct shape_list buckets, small, shapes;
/* With --refresh, a byte for each bucket of the lists: the table had a row of it when the run
 * began. A variant that is refused since takes its rows with it, and their buckets are still to be
 * measured. Behind the lists' `listed` buckets are those of the table's other rows. */
static uint8_t *had_row;
static size_t listed;

enum { TUNED, KEPT, EMPTY, MISSING, STARTED };

/* ---- the list ---------------------------------------------------------- */

/* A bucket twice in the list: the first stands. */
static void drop_duplicates(struct shape_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct shape *s = &list->item[i];
        char mine[128], other[128];
        bool seen = false;
        coords_format(s->family, &s->key, mine, sizeof mine);
        for (size_t k = 0; k < kept && !seen; k++) {
            const struct shape *o = &list->item[k];
            coords_format(o->family, &o->key, other, sizeof other);
            seen = o->family == s->family && strcmp(mine, other) == 0 &&
                   memcmp(o->key.codes, s->key.codes, sizeof s->key.codes) == 0;
        }
        if (seen || s->key.empty)
            free(s->problem);
        else
            list->item[kept++] = *s;
    }
    list->count = kept;
}

/* What services asked for, in their order: the parts of a plan stand before the plan. */
static void list_logged(const struct gen__family *const *families, uint32_t count)
{
    struct log_counts n = {0};
    for (int i = 0; i < options.logs.count; i++)
        if (!log_read(&buckets, families, count, options.logs.item[i], &n))
            die(1, "cannot read %s: %s", options.logs.item[i], strerror(errno));
    const size_t problems = buckets.count;
    drop_duplicates(&buckets);
    fprintf(
        stderr,
        "attngen-tune: %zu selections in the log: %zu buckets of %zu problems; left out: %zu of "
        "other families, %zu that no variant fits, %zu malformed\n",
        n.selections, buckets.count, problems, n.other, n.unsupported, n.bad);
    if (!n.selections)
        die(1, "the log has no line \"select family=...\"; allowed: what GEN_LOG=select or "
               "gen_set_log() wrote");
}

static void list_buckets(void)
{
    const struct gen__family *family[64];
    uint32_t n = families_named(&options.session.families, family, 64);
    if (options.logs.count)
        list_logged(family, n);
    for (uint32_t i = 0; i < n; i++) {
        const size_t first = shapes.count;
        shapes_load(&shapes, family[i], SHAPES_TIMED, NULL);
        if (!options.logs.count && (options.shapes || !options.grid))
            for (size_t k = first; k < shapes.count; k++)
                shapes_add(&buckets, family[i], shapes.item[k].problem);
        if (!options.logs.count && (options.grid || !options.shapes))
            shapes_grid(&buckets, &shapes, family[i]);
        verify_small(&small, family[i]);
    }
    drop_duplicates(&buckets);
    listed = buckets.count;
}

/* ---- the run ----------------------------------------------------------- */

/* The name of the bucket's required key: that of any variant which fits. */
static bool required_of(struct session *s, const struct shape *shape, char *text, size_t capacity)
{
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        gen_variant_info v = session_variant(s, i);
        gen_plan plan = {.size = sizeof plan};
        if (strcmp(v.family, shape->family->name) == 0 &&
            gen_select_variant(s->library, &s->gpu.device, shape->problem, v.name, &plan) ==
                GEN_OK) {
            snprintf(text, capacity, "%s", v.required);
            return true;
        }
    }
    return false;
}

/* By its required key, whose name is printed. */
static bool is_asked_for(struct session *s, const struct shape *shape, char *required,
                         size_t capacity)
{
    return required_of(s, shape, required, capacity) && glob_match(options.keys, required);
}

/* NULL if there is none. */
static const struct table_row *row_of(struct table *table, const struct shape *shape,
                                      const char *required)
{
    char coords[128];
    coords_format(shape->family, &shape->key, coords, sizeof coords);
    return table_find(table, shape->family->name, required, coords);
}

/* Was the row measured on this machine code? A row that does not say: on this source, compiled by
 * this toolkit? */
static bool is_same_kernel(const struct table *table, const struct table_row *row,
                           const gen_variant_info *v)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, v->code_digest);
    if (strcmp(row->code, "-") != 0)
        return strcmp(row->code, text) == 0;
    snprintf(text, sizeof text, "%016" PRIx64, v->digest);
    return strcmp(row->digest, text) == 0 && strcmp(row->toolkit, table->identity.toolkit) == 0;
}

/* Is the bucket's row (NULL: none) for the same kernel and driver, and of a variant that selection
 * takes? */
static bool is_fresh(struct session *s, const struct table *table, const struct shape *shape,
                     const struct table_row *row)
{
    gen_variant_info v = {.size = sizeof v};
    if (!row || !session_find_variant(s, row->variant, &v) ||
        session_passes_over(s, shape->problem, &v))
        return false;
    /* A preview does not know the driver's version. */
    return is_same_kernel(table, row, &v) &&
           (!*table->identity.driver || strcmp(row->driver, table->identity.driver) == 0);
}

/* Is this one of the buckets that are not measured? Counts it then. */
static bool is_left(struct tuner *tuner, size_t bucket, const char *required)
{
    const struct shape *shape = &buckets.item[bucket];
    const struct table_row *row = row_of(tuner->table, shape, required);
    const bool kept = !options.force && is_fresh(tuner->session, tuner->table, shape, row);
    const bool missing = options.refresh && bucket < listed && !had_row[bucket];
    tuner->worker->counter[KEPT] += kept;
    tuner->worker->counter[MISSING] += missing;
    return kept || missing;
}

static void note_rows(struct session *s, struct table *table)
{
    char required[192];
    for (size_t i = 0; i < listed; i++)
        had_row[i] = is_asked_for(s, &buckets.item[i], required, sizeof required) &&
                     row_of(table, &buckets.item[i], required);
}

/* Buckets of rows that no list has: of an earlier shape file or grid, say. A run that goes on
 * behind a lost context makes the list anew; if rows went with a variant in between, as many others
 * may be passed over, which are left to the next run. */
static void list_rows(struct session *s, const struct table *table)
{
    char required[192];
    for (size_t k = 0; k < small.count; k++) {
        const struct shape *keyed = &small.item[k];
        if (shapes_of_key(&small, keyed) != keyed ||
            !is_asked_for(s, keyed, required, sizeof required))
            continue;
        for (size_t i = 0; i < table->num_rows; i++)
            if (strcmp(table->row[i].family, keyed->family->name) == 0 &&
                strcmp(table->row[i].required, required) == 0)
                (void)shapes_at(&buckets, &shapes, keyed, table->row[i].problem);
    }
}

static void progress(size_t at, uint64_t start, const struct shape *shape, const char *text)
{
    double seconds = (double)(clock_ns() - start) / 1e9;
    bool terminal = isatty(STDERR_FILENO);
    fprintf(stderr, "%s[%zu/%zu] %.0f s %s %s%s", terminal ? "\r\033[K" : "", at + 1, buckets.count,
            seconds, shape->name, text, terminal ? "" : "\n");
    fflush(stderr);
}

/* One bucket; false to stop. */
static bool tune_one(struct tuner *tuner, const struct shape *shape, const char *required,
                     const char *path, char *line, size_t capacity, bool *lost)
{
    char coords[128];
    coords_format(shape->family, &shape->key, coords, sizeof coords);
    const struct table_row *row = options.refresh ? row_of(tuner->table, shape, required) : NULL;
    enum tune_outcome outcome =
        row ? tune_refresh(tuner, shape, &small, row) : tune_bucket(tuner, shape, &small);
    snprintf(line, capacity, "%s: nothing fits", coords);
    *lost = outcome == TUNE_LOST;
    if (outcome == TUNE_LOST)
        return false;
    if (outcome == TUNE_ERROR) {
        snprintf(line, capacity, "%s: skipped: %s", coords, gen_last_error());
        warn("%s: %s", shape->name, gen_last_error());
    }
    if (outcome == TUNE_NONE)
        tuner->worker->counter[EMPTY]++;
    if (outcome == TUNE_DONE) {
        tuner->worker->counter[TUNED]++;
        tuner->table->identity.seconds_per_bucket =
            (double)(clock_ns() - tuner->worker->counter[STARTED]) / 1e9 /
            (double)tuner->worker->counter[TUNED];
        row = row_of(tuner->table, shape, required);
        if (row)
            snprintf(line, capacity, "%s: %.2f us %s", coords, row->us, row->variant);
    }
    if (!table_write(tuner->table, path))
        die(2, "cannot write %s: %s", path, strerror(errno));
    return true;
}

static char *output_path(const struct session *s)
{
    return options.output ? xstrdup(options.output)
                          : xasprintf("generated/tuning/%s.tsv", s->gpu.class_name);
}

/* What the file holds, to go on with it; dies rather than write over what is not
 * this GPU's. */
static void read_table(struct table *table, const struct session *s, const char *path)
{
    char text[160];
    const int bad = table_read(table, path);
    if (bad < 0)
        die(1, "cannot read %s: %s", path, strerror(errno));
    const char *refusal =
        table->found ? table_refusal(table, s->gpu.class_name, text, sizeof text) : NULL;
    if (refusal)
        die(1, "%s %s; allowed: a table of this class, or another file (--output)", path, refusal);
    if (bad)
        warn("%s: %d malformed lines are dropped", path, bad);
}

static void report(const struct worker *worker, const struct table *table, bool out_of_time)
{
    printf("%" PRIu64 " buckets measured, %" PRIu64 " kept, ", worker->counter[TUNED],
           worker->counter[KEPT]);
    if (options.refresh)
        printf("%" PRIu64 " not in the table, ", worker->counter[MISSING]);
    printf("%" PRIu64 " that nothing fits, %zu variants refused, %.0f s%s\n",
           worker->counter[EMPTY], table->num_failures,
           (double)(clock_ns() - worker->counter[STARTED]) / 1e9,
           out_of_time ? "; out of time: run again to go on" : "");
    for (size_t i = 0; i < table->num_failures; i++)
        printf("refused   %s: %s\n", table->failure[i].variant, table->failure[i].reason);
}

static int body(struct worker *worker, void *context)
{
    struct session *s = context;
    struct table table = {0};
    session_open_gpu(s);
    char *path = output_path(s);
    read_table(&table, s, path);
    table_identify(&table, &s->gpu, s->library, options.commit);
    table.identity.rest_ms = options.rest_ms;
    struct tuner tuner = {.session = s,
                          .worker = worker,
                          .table = &table,
                          .only = &options.only,
                          .quick = options.quick,
                          .rest_ms = options.rest_ms,
                          .tie_band = 0.005};
    tuner.good = xmalloc(2 * (size_t)s->info.num_variants);
    memset(tuner.good, 0, 2 * (size_t)s->info.num_variants);
    tuner.refused = tuner.good + s->info.num_variants;
    if (options.refresh && !options.shapes && !options.grid)
        list_rows(s, &table);
    if (!worker->next)
        printf("%s (%s), driver %s: %zu buckets, %" PRIu32 " variants, into %s\n",
               s->gpu.device.name, s->gpu.class_name, table.identity.driver, buckets.count,
               s->info.num_variants, path);
    if (!worker->counter[STARTED]) {
        if (options.refresh)
            note_rows(s, &table);
        worker->counter[STARTED] = clock_ns();
    }
    const uint64_t start = worker->counter[STARTED];
    bool lost = false, out_of_time = false;
    for (size_t i = worker->next; i < buckets.count && !lost && !out_of_time; i++) {
        const struct shape *shape = &buckets.item[i];
        char required[192], line[512];
        worker->next = i;
        if (!is_asked_for(s, shape, required, sizeof required))
            continue;
        if (is_left(&tuner, i, required))
            continue;
        if (tune_one(&tuner, shape, required, path, line, sizeof line, &lost))
            progress(i, start, shape, line);
        out_of_time = options.seconds > 0 && (double)(clock_ns() - start) / 1e9 > options.seconds;
    }
    if (lost)
        return WORKER_LOST;
    if (isatty(STDERR_FILENO))
        fputc('\n', stderr);
    report(worker, &table, out_of_time);
    arena_free(&tuner.arena, &s->gpu);
    free(tuner.good);
    table_free(&table);
    free(path);
    return 0;
}

/* ---- what a run would do ------------------------------------------------ */

/* The GPU that is named, or the machine's, or an H200. */
static void preview_device(struct session *s)
{
    gen_device *device = &s->gpu.device;
    device->size = sizeof *device;
    if (options.gpu ? gpu_named(options.gpu, device) != GEN_OK
                    : gen_device_query((int)s->ordinal, device) != GEN_OK &&
                          gen_device_named("h200", device) != GEN_OK)
        die(1, "%s", gen_last_error());
    if (device->backend != GEN_BACKEND_CUDA)
        die(1, "--gpu %s is no GPU; allowed: a name such as h200, or sm_90:78", options.gpu);
    if (s->sms)
        device->num_sms = (uint32_t)s->sms;
    snprintf(s->gpu.class_name, sizeof s->gpu.class_name, "sm%u_%usm", device->compute_capability,
             device->num_sms);
    snprintf(s->gpu.driver_version, sizeof s->gpu.driver_version, "-");
}

/* "fresh": the run would keep the row; "absent": --refresh leaves what the table has not. */
static const char *state_of(struct session *s, struct table *table, const struct shape *shape,
                            const char *required)
{
    const struct table_row *row = row_of(table, shape, required);
    if (!options.force && is_fresh(s, table, shape, row))
        return "fresh";
    return row ? "stale" : options.refresh ? "absent" : "new";
}

static void preview_bucket(const struct shape *shape, const char *required, const char *state)
{
    char coords[128], problem[1024];
    coords_format(shape->family, &shape->key, coords, sizeof coords);
    gen__problem_format(shape->family, shape->problem, problem, sizeof problem);
    printf("%s\t%s\t%s\t%s\t%s\n", state, shape->family->name, required, coords, problem);
}

/* --list and --dry-run: measures nothing and writes nothing. */
static int preview(struct session *s)
{
    struct table table = {0};
    size_t todo = 0, kept = 0, empty = 0;
    double seconds = 0;
    preview_device(s);
    char *path = output_path(s);
    read_table(&table, s, path);
    const double measured = table.identity.seconds_per_bucket;
    table_identify(&table, &s->gpu, s->library, options.commit);
    if (options.refresh && !options.shapes && !options.grid)
        list_rows(s, &table);
    for (size_t i = 0; i < buckets.count; i++) {
        const struct shape *shape = &buckets.item[i];
        char required[192];
        size_t candidates;
        if (!required_of(s, shape, required, sizeof required)) {
            empty++;
            continue;
        }
        if (!glob_match(options.keys, required))
            continue;
        const char *state = state_of(s, &table, shape, required);
        if (options.list)
            preview_bucket(shape, required, state);
        if (strcmp(state, "fresh") == 0 || strcmp(state, "absent") == 0) {
            kept++;
            continue;
        }
        todo++;
        if (options.dry_run && !(measured > 0))
            seconds +=
                tune_estimate(s, shape, &options.only, options.quick, options.rest_ms, &candidates);
    }
    if (options.dry_run && measured > 0)
        printf("%zu buckets to measure, %zu kept, %zu that nothing fits, into %s: %.1f GPU-minutes "
               "at %.2f s a bucket, as the run took that wrote the table\n",
               todo, kept, empty, path, (double)todo * measured / 60, measured);
    else if (options.dry_run)
        printf(
            "%zu buckets to measure, %zu kept, %zu that nothing fits, into %s: at least %.1f "
            "GPU-minutes by the families' estimates, for samples alone; no run has recorded what "
            "a bucket takes\n",
            todo, kept, empty, path, seconds / 60);
    table_free(&table);
    free(path);
    return 0;
}

static void check_options(void)
{
    if (options.force && options.refresh)
        die(1, "--refresh and --force exclude each other, found both; allowed: --refresh (stale "
               "rows, of two variants each) or --force (all rows, of all variants)");
    if (options.logs.count && (options.grid || options.shapes))
        die(1,
            "--from-log and --%s exclude each other, found both; allowed: the log's problems, or "
            "the shape file's and the grid's",
            options.grid ? "grid" : "shapes");
    if (options.gpu && !options.list && !options.dry_run)
        die(1, "--gpu %s names a GPU that need not be there; allowed: with --list or --dry-run",
            options.gpu);
}

int main(int argc, char **argv)
{
    struct session *s = &options.session;
    const struct option table[] = {
        SESSION_PRODUCT_OPTIONS(s),
        SESSION_FAMILY_OPTIONS(s),
        {"--output", OPTION_TEXT, &options.output, "FILE",
         "the table (default generated/tuning/<class>.tsv)"},
        {"--keys", OPTION_TEXT, &options.keys, "GLOB", "only required keys of such names"},
        {"--only", OPTION_LIST, &options.only, "GLOB",
         "only variants of such names; may be repeated"},
        {"--grid", OPTION_FLAG, &options.grid, NULL,
         "the grid alone: half-octaves over what the shape file spans"},
        {"--shapes", OPTION_FLAG, &options.shapes, NULL,
         "the shape file's problems alone (default: these, then the grid)"},
        {"--from-log", OPTION_LIST, &options.logs, "FILE",
         "the problems that GEN_LOG=select wrote there, in place of these; may be repeated"},
        {"--list", OPTION_FLAG, &options.list, NULL,
         "print the buckets (state, family, key, coordinates, problem); measure nothing"},
        {"--dry-run", OPTION_FLAG, &options.dry_run, NULL,
         "print how many buckets there are and the GPU-minutes they take; measure nothing"},
        {"--gpu", OPTION_TEXT, &options.gpu, "NAME",
         "with --list or --dry-run: a GPU by name; default: device 0, else h200"},
        {"--seconds", OPTION_REAL, &options.seconds, "N", "stop after about N seconds"},
        {"--quick", OPTION_FLAG, &options.quick, NULL, "fewer samples"},
        {"--rest", OPTION_INT, &options.rest_ms, "MS",
         "cool-down before each sample of problems that the tensor cores bound"},
        {"--force", OPTION_FLAG, &options.force, NULL, "measure again what the table holds"},
        {"--refresh", OPTION_FLAG, &options.refresh, NULL,
         "stale rows are measured anew between their variant and its runner-up; others are left"},
        {"--commit", OPTION_TEXT, &options.commit, "ID", "the source's version, for the header"},
        SESSION_GPU_OPTIONS(s),
    };
    util_set_program("tune");
    const char **words = xmalloc((size_t)argc * sizeof *words);
    if (options_parse(table, (int)(sizeof table / sizeof *table), usage, argc, argv, words))
        die(1, "unexpected word '%s'; --help lists the options", words[0]);
    check_options();
    session_open_library(s);
    list_buckets();
    had_row = worker_share(buckets.count + 1);
    int status = options.list || options.dry_run ? preview(s) : worker_run(body, s, 60, false);
    gen_close(s->library);
    shapes_free(&buckets);
    shapes_free(&small);
    shapes_free(&shapes);
    free(words);
    return status;
}
