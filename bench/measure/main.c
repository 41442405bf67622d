/*
 * attngen-bench: what the selected kernels reach, what the host pays, what
 * selection loses. Writes the CSV files that BENCHMARK_*.md is made of.
 */
#include "measure/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "attngen bench [cases|columns|host|numerics|regret|header] [options]\n"
    "\n"
    "  cases    each problem of the shape files: the selected plan's device time by graph replay,\n"
    "           rotated through memory beyond the L2, against an in-place update of the same "
    "bytes\n"
    "           and the peers of --peer-file; results/<class>/<family>.csv\n"
    "  columns  of each case of one family the fastest variant of every --column, side by side;\n"
    "           results/<class>/<family>_columns.csv\n"
    "  host     what select, launch, open and a first launch cost the host; host.csv\n"
    "  numerics the hard cases of shapes/<family>_numerics.txt (sums over 131,072 keys, values of\n"
    "           one sign, ...) against double precision, beside the errors of --peer-file;\n"
    "           numerics.csv, which keeps the other families' rows\n"
    "  regret   random problems that were not tuned: the chosen variant against the best of all;\n"
    "           regret.csv, which keeps the other families' rows\n"
    "  header   prints the head of a result file of this GPU and product, for other programs\'\n"
    "           results; measures nothing\n"
    "\n"
    "  --profile CASE launches the case's plan a few times and measures nothing, for ncu.\n";

static struct bench_options options = {
    .results = "bench/results", .commit = "", .check_mib = 2048, .count = 300, .seed = 1};

bool bench_out_of_time(struct bench_options *o)
{
    if (o->seconds <= 0 || (double)(clock_ns() - o->start) < 1e9 * o->seconds)
        return false;
    o->left_out++;
    return true;
}

void bench_header(struct text *text, const struct bench_options *o, const char *method)
{
    const struct gpu *gpu = &o->session.gpu;
    char date[16];
    date_text(date);
    text_add(text, "# gpu: %s (%s)\n", gpu->device.name, gpu->class_name);
    text_add(text, "# driver: %s (CUDA %s)\n", gpu->driver_version, gpu->cuda_version);
    text_add(text, "# toolkit: %s\n", o->session.info.toolkit);
    text_add(text, "# commit: %s\n", *o->commit ? o->commit : "-");
    text_add(text, "# date: %s\n", date);
    text_add(text, "# command: %s\n", o->command);
    if (method)
        text_add(text, "# method: %s\n", method);
}

static int print_header(struct bench_options *o)
{
    struct text text = {0};
    session_open_library(&o->session);
    session_open_gpu(&o->session);
    bench_header(&text, o, NULL);
    fputs(text.data, stdout);
    text_free(&text);
    session_close(&o->session);
    return 0;
}

void bench_write(const struct bench_options *o, const char *name, const struct text *text)
{
    char *path = xasprintf("%s/%s/%s.csv", o->results, o->session.gpu.class_name, name);
    if (!file_write(path, text->data, text->length))
        die(2, "cannot write %s: %s", path, strerror(errno));
    printf("wrote %s\n", path);
    free(path);
}

void bench_other_families(struct text *text, const struct bench_options *o, const char *name,
                          const char *columns, const char *family)
{
    char *path = xasprintf("%s/%s/%s.csv", o->results, o->session.gpu.class_name, name);
    char *data = file_read(path, NULL);
    struct text block = {0};
    bool wanted = false, rows = false;
    text_add(text, "%s", columns);
    for (char *line = data, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        next = next ? next + 1 : line + strlen(line);
        if (*line == '#' && rows) { /* the next block's head */
            if (wanted)
                text_add(text, "%s", block.data);
            block.length = 0;
            wanted = rows = false;
        }
        if ((size_t)(next - line) == strlen(columns) && !strncmp(line, columns, strlen(columns)))
            continue;
        text_add(&block, "%.*s", (int)(next - line), line);
        if (*line != '#' && *line != '\n') {
            const size_t length = strcspn(line, ",");
            wanted = strlen(family) != length || strncmp(line, family, length) != 0;
            rows = true;
        }
    }
    if (wanted)
        text_add(text, "%s", block.data);
    text_free(&block);
    free(data);
    free(path);
}

/* The command line as the README would give it: "attngen bench ...". */
static char *command_line(int argc, char **argv)
{
    struct text text = {0};
    text_add(&text, "attngen bench");
    for (int i = 1; i < argc; i++)
        text_add(&text, " %s", argv[i]);
    return text.data;
}

static int run_job(const char *job)
{
    if (strcmp(job, "cases") == 0)
        return bench_cases(&options);
    if (strcmp(job, "columns") == 0)
        return bench_columns(&options);
    if (strcmp(job, "host") == 0)
        return bench_host(&options);
    if (strcmp(job, "numerics") == 0)
        return bench_numerics(&options);
    if (strcmp(job, "regret") == 0)
        return bench_regret(&options);
    if (strcmp(job, "header") == 0)
        return print_header(&options);
    die(1, "unknown job '%s'; allowed: cases, columns, host, numerics, regret, header", job);
}

int main(int argc, char **argv)
{
    struct session *s = &options.session;
    const char *profile = NULL;
    const struct option table[] = {
        SESSION_PRODUCT_OPTIONS(s),
        SESSION_FAMILY_OPTIONS(s),
        {"--results", OPTION_TEXT, &options.results, "DIR",
         "where <class>/<name>.csv goes (default bench/results)"},
        {"--cases", OPTION_TEXT, &options.cases, "GLOB", "only cases of such names"},
        {"--list", OPTION_TEXT, &options.list, "FILE", "another shape file"},
        {"--peer-file", OPTION_LIST, &options.peers, "FILE",
         "peers' figures (peer, case, ms, err; tabs between); may be repeated"},
        {"--column", OPTION_LIST, &options.columns, "NAME=GLOB",
         "columns: a kind of variants; may be repeated"},
        {"--picked", OPTION_FLAG, &options.picked, NULL,
         "columns: one more, of what selection picks"},
        {"--keep", OPTION_FLAG, &options.keep, NULL,
         "cases: rows of cases that this run does not measure stay in the file, and its head says "
         "whose they are"},
        {"--check-mib", OPTION_INT, &options.check_mib, "N",
         "cases: problems up to N MiB are compared with the reference (default 2048)"},
        {"--rest", OPTION_INT, &options.rest_ms, "MS",
         "cool-down before each sample; cases, regret: of problems that the tensor cores bound, "
         "columns: of all"},
        {"--count", OPTION_INT, &options.count, "N", "regret: problems (default 300)"},
        {"--seed", OPTION_INT, &options.seed, "N", "regret, host: of the random problems"},
        {"--seconds", OPTION_REAL, &options.seconds, "N",
         "cases, regret: begin no problem after N seconds; what is measured is written"},
        {"--pretend", OPTION_TEXT, &options.pretend, "GPU",
         "host: needs no GPU; selection for this one (h200, ...) and open alone, printed"},
        {"--quick", OPTION_FLAG, &options.quick, NULL, "fewer samples"},
        {"--commit", OPTION_TEXT, &options.commit, "ID", "the source's version, for the header"},
        {"--profile", OPTION_TEXT, &profile, "CASE", "launch this case for a profiler"},
        SESSION_GPU_OPTIONS(s),
    };
    util_set_program("bench");
    options.command = command_line(argc, argv);
    options.start = clock_ns();
    const char **words = xmalloc((size_t)argc * sizeof *words);
    int n = options_parse(table, (int)(sizeof table / sizeof *table), usage, argc, argv, words);
    const char *job = n ? words[0] : "cases";
    if (n > 1)
        die(1, "one job at a time, found '%s' and '%s'", words[0], words[1]);
    if (options.count < 1)
        die(1, "--count takes a number from 1");
    if (options.keep && strcmp(job, "cases") != 0)
        die(1, "--keep is for the job cases, found '%s'", job);
    if (profile)
        return bench_profile(&options, profile);
    return run_job(job);
}
