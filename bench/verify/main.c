/*
 * attngen-verify: every variant that the GPU can run against the reference in
 * double precision.
 */
#define _GNU_SOURCE
#include "verify/ahead.h"
#include "common/problems.h"
#include "common/session.h"
#include "common/util.h"
#include "verify/verify.h"
#include "common/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char usage[] =
    "attngen verify [options]\n"
    "\n"
    "Runs every variant that the GPU can run on the families' verify lists\n"
    "(bench/shapes/<family>_verify.txt, each line for every required key) and compares with\n"
    "the reference: poisoned outputs, canaries around every tensor, inputs and untouched\n"
    "state bit-equal, NaN and infinity in place, repeated launches bit-equal. Failures are\n"
    "rows with a reason. Exit status 1 if there are any.\n";

static struct {
    struct session session;
    struct option_list only;
    const char *list, *keys, *part;
    long repeats, patience;
    bool all, sanitizer;
} options = {.repeats = 3, .patience = 60};

/* --part: the checks whose number leaves this remainder. */
static struct {
    uint32_t remainder, of;
} part = {0, 1};

/* Counters shared with the worker. */
enum { CHECKS, FAILURES, CASES };

static struct shape_list cases;

/* What the workers, one after the other, have seen: memory that they share. */
static struct seen {
    double worst;      /* error that passed */
    uint8_t reached[]; /* variants that some case ran */
} * seen;

static void read_cases(void)
{
    const struct gen__family *family[64];
    uint32_t n = families_named(&options.session.families, family, 64);
    for (uint32_t i = 0; i < n; i++)
        verify_list(&cases, family[i], options.list);
    if (!options.sanitizer)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < cases.count; i++) {
        if (strstr(cases.item[i].controls, "@tiny"))
            cases.item[kept++] = cases.item[i];
        else
            free(cases.item[i].problem);
    }
    cases.count = kept;
}

static bool is_candidate(const struct session *s, const struct shape *shape,
                         const gen_variant_info *variant)
{
    gen_plan plan = {.size = sizeof plan};
    return strcmp(variant->family, shape->family->name) == 0 &&
           glob_match(options.keys, variant->required) &&
           glob_match_any(&options.only, variant->name) &&
           gen_select_variant(s->library, &s->gpu.device, shape->problem, variant->name, &plan) ==
               GEN_OK &&
           plan.num_launches > 0;
}

static void print_row(const char *verdict, const char *variant, const char *name, double error,
                      const char *reason)
{
    printf("%s\t%s\t%s\t%.3g\t%s\n", verdict, variant, name, error, reason);
}

/* "I/N" of --part. */
static void read_part(void)
{
    char *slash = NULL, *end = NULL;
    if (!options.part)
        return;
    const unsigned long remainder = strtoul(options.part, &slash, 10);
    const unsigned long of = *slash == '/' ? strtoul(slash + 1, &end, 10) : 0;
    if (strspn(options.part, "0123456789/") != strlen(options.part) || slash == options.part ||
        !end || *end || of > UINT16_MAX || remainder >= of)
        die(1, "--part is '%s'; it takes I/N, two numbers with I below N", options.part);
    part.remainder = (uint32_t)remainder;
    part.of = (uint32_t)of;
}

/* By a case's number, mixed (those of one required key have a fixed distance), and a variant's: it
 * meets other cases in other parts. */
static bool in_part(size_t at, uint32_t variant)
{
    return (((uint32_t)at * 0x9E3779B1u >> 20) + variant) % part.of == part.remainder;
}

static bool any_candidate(void *context, const struct shape *shape)
{
    const struct session *s = context;
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        gen_variant_info v = session_variant(s, i);
        if (in_part((size_t)(shape - cases.item), i) && is_candidate(s, shape, &v))
            return true;
    }
    return false;
}

/* Every candidate of one case. Returns false when the GPU is lost. */
static bool verify_case_all(struct session *s, struct worker *worker, struct verify_case *c,
                            uint32_t first)
{
    for (uint32_t i = first; i < s->info.num_variants; i++) {
        gen_variant_info v = session_variant(s, i);
        struct verify_result result;
        worker->next = (worker->next / s->info.num_variants) * s->info.num_variants + i;
        if (!in_part((size_t)(c->shape - cases.item), i) || !is_candidate(s, c->shape, &v))
            continue;
        seen->reached[i] = 1;
        const char *known = worker_reason(worker, v.name);
        if (known) { /* once is enough: each such failure costs a process */
            worker->counter[CHECKS]++;
            worker->counter[FAILURES]++;
            print_row("FAILED", v.name, c->name, 0, known);
            continue;
        }
        worker_try(worker, v.name);
        verify_variant(c, &s->gpu, s->library, v.name, (int)options.repeats, &result);
        if (!result.ok && gpu_is_lost(&s->gpu))
            return false;
        worker_try(worker, "");
        worker->counter[CHECKS]++;
        worker->counter[FAILURES] += !result.ok;
        if (result.ok && result.error > seen->worst)
            seen->worst = result.error;
        if (options.all || !result.ok)
            print_row(result.ok ? "ok" : "FAILED", v.name, c->name, result.error, result.reason);
    }
    return true;
}

static int body(struct worker *worker, void *context)
{
    struct session *s = context;
    session_open_gpu(s);
    uint64_t variants = s->info.num_variants;
    if (!worker->next) {
        printf("# %s on %s (%s), driver %s\n", s->product, s->gpu.device.name, s->gpu.class_name,
               s->gpu.driver_version);
        printf("# verdict\tvariant\tcase\terror\treason\n");
    }
    const uint64_t begin = variants ? worker->next / variants : cases.count;
    const uint32_t begin_with = variants ? (uint32_t)(worker->next % variants) : 0;
    struct ahead *ahead = ahead_open(&cases, (size_t)begin, any_candidate, s, s->library);
    struct verify_case c;
    for (size_t at; ahead_take(ahead, &c, &at);) {
        const uint32_t first = at == begin ? begin_with : 0;
        worker->next = at * variants + first;
        worker_try(worker, ""); /* alive */
        if (verify_upload(&c, &s->gpu) != GEN_OK)
            die(2, "%s: %s", c.name, gen_last_error());
        worker->counter[CASES] += first == 0;
        bool going = verify_case_all(s, worker, &c, first);
        fflush(stdout);
        if (!going)
            return WORKER_LOST;
        verify_free(&c, &s->gpu);
    }
    ahead_close(ahead);
    uint32_t never = 0;
    for (uint64_t i = 0; i < variants; i++)
        never += !seen->reached[i];
    printf("# %" PRIu64 " checks of %" PRIu64 " variants over %" PRIu64 " cases: %" PRIu64
           " failed; worst error that passed %.3g\n",
           worker->counter[CHECKS], variants - never, worker->counter[CASES],
           worker->counter[FAILURES], seen->worst);
    if (never)
        printf("# %" PRIu32 " variants were not run: another architecture's, or not selected\n",
               never);
    if (!worker->counter[CHECKS] && part.of == 1) {
        warn("no variant of %s fits this GPU and these options", s->product);
        return 1;
    }
    return worker->counter[FAILURES] ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct session *s = &options.session;
    const struct option table[] = {
        SESSION_PRODUCT_OPTIONS(s),
        SESSION_FAMILY_OPTIONS(s),
        {"--only", OPTION_LIST, &options.only, "GLOB",
         "only variants of such names; may be repeated"},
        {"--keys", OPTION_TEXT, &options.keys, "GLOB", "only required keys of such names"},
        {"--list", OPTION_TEXT, &options.list, "FILE", "another verify list"},
        {"--repeats", OPTION_INT, &options.repeats, "N", "launches of each check (default 3)"},
        {"--all", OPTION_FLAG, &options.all, NULL, "print the rows that pass, too"},
        {"--part", OPTION_TEXT, &options.part, "I/N",
         "one of N parts of the checks, I from 0: each check is in one"},
        {"--sanitizer", OPTION_FLAG, &options.sanitizer, NULL,
         "few small cases in one process, for compute-sanitizer"},
        {"--patience", OPTION_INT, &options.patience, "S",
         "seconds after which a kernel counts as hung (default 60)"},
        SESSION_GPU_OPTIONS(s),
    };
    util_set_program("verify");
    const char **words = xmalloc((size_t)argc * sizeof *words);
    if (options_parse(table, (int)(sizeof table / sizeof *table), usage, argc, argv, words))
        die(1, "unexpected word '%s'; --help lists the options", words[0]);
    if (options.repeats < 1 || options.patience < 1)
        die(1, "--repeats and --patience take numbers from 1");
    read_part();
    session_open_library(s);
    read_cases();
    if (options.sanitizer)
        options.repeats = 1;
    const size_t seen_size = sizeof *seen + s->info.num_variants;
    seen = mmap(NULL, seen_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        die(2, "mmap: %s", strerror(errno));
    int status = worker_run(body, s, (unsigned)options.patience, options.sanitizer);
    (void)munmap(seen, seen_size);
    shapes_free(&cases);
    free(words);
    return status;
}
