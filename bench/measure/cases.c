/* The shape files' problems: device time, bandwidth, error, speedups. */
#include "measure/bench.h"
#include "measure/keep.h"
#include "measure/peer_file.h"
#include "peers/inplace_copy.h"
#include "common/problems.h"
#include "common/timing.h"
#include "verify/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 11
#define WINDOW_US 4000
#define LEAST_LAUNCHES 20
#define COLUMNS "case,variant,ms,gbps,tflops,peer,peer_ms,speedup,err,peer_err\n"

static const char method[] =
    "ms and peer_ms: median over 11 graph replays (5 with --quick) of at least 20 launches, or as "
    "many as 6 ms hold, rotated through buffer sets of more than twice the L2, ours and "
    "inplace-copy in turn; with --rest MS problems of more than 150 operations a byte after so "
    "long a rest and an untimed replay each time, "
    "for the power limit sets in after tens of milliseconds; inplace-copy reads, "
    "scales and writes the bytes that the problem updates in place, the fastest of its forms at "
    "this size (inplace-copy-ordered: beside shuffled slots, it still walks in order); peers named "
    "-eager: back-to-back calls, wall time of a call, ours likewise "
    "(select and launch); ours is launched as gen_launch() does it, on sm_90 as a programmatic "
    "dependent launch, or one after the other where the case says -serial; speedup = peer_ms / ms; "
    "gbps, tflops: bytes that must move and "
    "operations that must be done, by ms; err: relative Frobenius error against double precision";

/* What one case came to. */
struct outcome {
    double us, eager_us, spread;
    double inplace_us; /* 0: nothing is updated in place */
    char inplace_form[48];
    double err; /* negative: not checked */
    const char *variant;
};

static double measure_error(struct bench_options *o, const struct shape *shape, bool *ok)
{
    struct session *s = &o->session;
    struct verify_case c;
    struct verify_result r;
    uint64_t inplace, touched;
    problem_footprint(shape->family, shape->problem, &inplace, &touched);
    if (touched >> 20 > (uint64_t)o->check_mib)
        return -1;
    if (!verify_prepare(&c, shape, "", s->library))
        return -1;
    if (verify_upload(&c, &s->gpu) != GEN_OK) {
        warn("%s: not checked: %s", shape->name, gen_last_error());
        verify_free(&c, &s->gpu);
        return -1;
    }
    verify_variant(&c, &s->gpu, s->library, NULL, 1, &r);
    if (!r.ok) {
        warn("%s: WRONG: %s", shape->name, r.reason);
        *ok = false;
    }
    verify_free(&c, &s->gpu);
    return r.error;
}

static enum gen_status measure_peers(struct bench_options *o, struct inplace_copy *peer,
                                     struct stage *stage, struct runner *ours, struct outcome *out)
{
    const struct gpu *gpu = &o->session.gpu;
    const int rounds = o->quick ? 5 : ROUNDS;
    uint64_t bytes, touched;
    struct inplace_runner copy;
    struct runner *list[2] = {ours, NULL};
    size_t count = 1;
    problem_footprint(stage->shape->family, stage->shape->problem, &bytes, &touched);
    uint32_t launches = launches_for(WINDOW_US, stage->floor_us + 2, LEAST_LAUNCHES);
    enum gen_status found = inplace_copy_best(peer, stage, bytes, launches, &copy);
    if (found == GEN_OK) {
        list[count++] = &copy.runner;
    } else if (found != GEN_STATUS_UNSUPPORTED) {
        inplace_runner_free(&copy, gpu);
        return found;
    }
    double us;
    enum gen_status status = runner_first_us(ours, gpu, stage->buffers.num_sets, &us);
    if (status == GEN_OK)
        status = runner_capture(ours, gpu, stage->buffers.num_sets,
                                launches_within(LONGEST_WINDOW_US, us, launches));
    if (status == GEN_OK)
        status = warm_up(gpu, ours, 10);
    if (status == GEN_OK)
        status =
            runners_interleave(list, count, gpu, rounds, shape_rest_ms(stage->shape, o->rest_ms));
    out->us = runner_median(ours);
    out->spread = runner_spread(ours);
    if (count > 1) {
        out->inplace_us = runner_median(&copy.runner);
        snprintf(out->inplace_form, sizeof out->inplace_form, "%s", copy.name);
    }
    inplace_runner_free(&copy, gpu);
    const double call_us = out->us > 5 ? out->us : 5;
    int calls = (int)launches_within(60000, call_us, launches_for(20000, call_us, 20));
    if (status == GEN_OK)
        status = eager_us(o->session.library, gpu, stage, calls, o->quick ? 3 : 7, &out->eager_us);
    return status;
}

static enum gen_status measure(struct bench_options *o, struct arena *arena,
                               struct inplace_copy *peer, const struct shape *shape,
                               struct outcome *out)
{
    struct session *s = &o->session;
    struct stage stage = {0};
    struct runner ours = {0};
    gen_plan plan = {.size = sizeof plan};
    enum gen_status status = gen_select(s->library, &s->gpu.device, shape->problem, &plan);
    if (status != GEN_OK)
        return status;
    out->variant = session_main(s, &plan).name;
    status = stage_open(&stage, &s->gpu, arena, shape, plan.workspace_bytes);
    if (status != GEN_OK)
        return status;
    status = runner_plan(&ours, s->library, &stage, &plan);
    if (status == GEN_OK)
        status = measure_peers(o, peer, &stage, &ours, out);
    runner_free(&ours, &s->gpu);
    stage_close(&stage);
    return status;
}

static void add_row(struct text *text, const struct shape *shape, const struct outcome *out,
                    double us, const char *peer, double peer_ms, double peer_err)
{
    double bytes, flops;
    char err[32] = "", other[32] = "";
    shape->family->cost(shape->problem, &bytes, &flops);
    if (out->err >= 0)
        snprintf(err, sizeof err, "%.3e", out->err);
    if (peer_err >= 0)
        snprintf(other, sizeof other, "%.3e", peer_err);
    if (peer_ms > 0)
        text_add(text, "%s,%s,%.6f,%.1f,%.3f,%s,%.6f,%.4f,%s,%s\n", shape->name, out->variant,
                 us / 1e3, bytes / us / 1e3, flops / us / 1e6, peer, peer_ms, peer_ms * 1e3 / us,
                 err, other);
    else
        text_add(text, "%s,%s,%.6f,%.1f,%.3f,-,,,%s,\n", shape->name, out->variant, us / 1e3,
                 bytes / us / 1e3, flops / us / 1e6, err);
}

static void add_rows(struct text *text, const struct shape *shape, const struct outcome *out,
                     const struct peer_list *peers)
{
    bool timed = false; /* a row that holds the device time */
    /* The in-place update walks memory in order; it bounds a scattered pool, but
     * does not do the same. */
    const char *inplace =
        strstr(shape->controls, "@scattered") ? "inplace-copy-ordered" : "inplace-copy";
    if (out->inplace_us > 0) {
        add_row(text, shape, out, out->us, inplace, out->inplace_us / 1e3, -1);
        timed = true;
    }
    for (size_t i = 0; i < peers->count; i++) {
        const struct peer_time *p = &peers->item[i];
        if (!(p->ms > 0) || strcmp(p->name, shape->name) != 0 ||
            !peer_is_for(p->family, shape->family->name))
            continue;
        add_row(text, shape, out, peer_is_eager(p) ? out->eager_us : out->us, p->peer, p->ms,
                p->err);
        timed = timed || !peer_is_eager(p);
    }
    if (!timed)
        add_row(text, shape, out, out->us, "-", 0, -1);
}

/* What readers must know of the peers that some case is compared with. */
static void add_notes(struct text *text, const char *family, const struct shape_list *shapes,
                      const struct peer_list *peers)
{
    for (size_t n = 0; n < peers->num_notes; n++) {
        const struct peer_note *note = &peers->note[n];
        bool used = false;
        for (size_t i = 0; i < peers->count && !used; i++)
            for (size_t k = 0; k < shapes->count && !used; k++)
                used = !strcmp(peers->item[i].peer, note->peer) &&
                       !strcmp(peers->item[i].family, note->family) &&
                       !strcmp(peers->item[i].name, shapes->item[k].name);
        if (used && peer_is_for(note->family, family))
            text_add(text, "# peer: %s: %s\n", note->peer, note->text);
    }
}

/* All cases of a family, as rows; false if one is wrong or cannot be measured. */
static bool bench_family(struct bench_options *o, const struct gen__family *family,
                         struct inplace_copy *peer, const struct peer_list *peers,
                         struct text *notes, struct text *rows)
{
    struct shape_list shapes = {0};
    struct arena arena = {0};
    bool ok = true;
    size_t cases = 0;
    shapes_load(&shapes, family, SHAPES_TIMED, o->list);
    add_notes(notes, family->name, &shapes, peers);
    for (size_t i = 0; i < shapes.count; i++) {
        const struct shape *shape = &shapes.item[i];
        struct outcome out = {0};
        double bytes, flops;
        if (!glob_match(o->cases, shape->name) || shape->key.empty || bench_out_of_time(o))
            continue;
        if (measure(o, &arena, peer, shape, &out) != GEN_OK) {
            warn("%s: %s", shape->name, gen_last_error());
            ok = false;
            if (gpu_is_lost(&o->session.gpu))
                die(1, "the GPU is lost");
            continue;
        }
        out.err = measure_error(o, shape, &ok);
        family->cost(shape->problem, &bytes, &flops);
        printf("%-24s %9.2f us +-%4.1f%% %7.1f GB/s", shape->name, out.us, 100 * out.spread,
               bytes / out.us / 1e3);
        if (out.inplace_us > 0)
            printf("  %.3f of in-place (%.2f us, %s)", out.inplace_us / out.us, out.inplace_us,
                   out.inplace_form);
        printf("  eager %.2f us", out.eager_us);
        if (out.err >= 0)
            printf("  err %.1e", out.err);
        printf("  %s\n", out.variant);
        fflush(stdout);
        add_rows(rows, shape, &out, peers);
        cases++;
    }
    if (!cases && !o->left_out)
        warn("no case of %s is named '%s'", family->name, o->cases ? o->cases : "*");
    arena_free(&arena, &o->session.gpu);
    shapes_free(&shapes);
    return ok && cases;
}

static const char *results_of(const struct gen__family *family)
{
    return family->results ? family->results : family->name;
}

/* Names the families that the file would need. */
__attribute__((noreturn)) static void refuse_part(const char *file)
{
    struct text names = {0};
    for (uint32_t i = 0; i < gen__num_families; i++)
        if (strcmp(results_of(gen__families[i]), file) == 0)
            text_add(&names, " --families %s", gen__families[i]->name);
    die(1, "%s.csv holds several families, not all of which are selected; allowed:%s, or --keep",
        file, names.data);
}

/* Dies where a file would lose the rows of a family that was not asked for. */
static void check_whole_files(const struct gen__family *const *family, uint32_t n)
{
    for (uint32_t k = 0; k < gen__num_families; k++) {
        const struct gen__family *other = gen__families[k];
        bool asked = false, shares = false;
        for (uint32_t i = 0; i < n; i++) {
            asked = asked || family[i] == other;
            shares = shares || strcmp(results_of(family[i]), results_of(other)) == 0;
        }
        if (shares && !asked)
            refuse_part(results_of(other));
    }
}

/* The result file of the first family, with the cases of all that share it. */
static bool bench_file(struct bench_options *o, const struct gen__family *const *family, uint32_t n,
                       struct inplace_copy *peer, const struct peer_list *peers)
{
    const char *name = results_of(family[0]);
    struct text text = {0}, rows = {0}, kept = {0};
    bool ok = true;
    bench_header(&text, o, method);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(results_of(family[i]), name) == 0)
            ok = bench_family(o, family[i], peer, peers, &text, &rows) && ok;
    if (o->left_out) {
        warn("%s: out of time, %zu cases are not measured", name, o->left_out);
        text_add(&text, "# incomplete: out of time, %zu cases are not measured\n", o->left_out);
        o->left_out = 0;
        ok = false;
    }
    if (o->keep)
        bench_keep(o, name, COLUMNS, &rows, &text, &kept);
    text_add(&text, COLUMNS "%s", kept.length ? kept.data : "");
    if (rows.length) {
        text_add(&text, "%s", rows.data);
        bench_write(o, name, &text);
    }
    text_free(&text);
    text_free(&kept);
    text_free(&rows);
    return ok;
}

static bool is_first_of_file(const struct gen__family *const *family, uint32_t i)
{
    for (uint32_t before = 0; before < i; before++)
        if (strcmp(results_of(family[before]), results_of(family[i])) == 0)
            return false;
    return true;
}

int bench_cases(struct bench_options *o)
{
    const struct gen__family *family[64];
    struct peer_list peers = {0};
    struct inplace_copy peer;
    bool ok = true;
    uint32_t n = families_named(&o->session.families, family, 64);
    for (int i = 0; i < o->peers.count; i++) {
        int bad = peers_read(&peers, o->peers.item[i]);
        if (bad)
            die(1, "%s: %s", o->peers.item[i], bad < 0 ? "cannot be read" : "malformed lines");
    }
    if (!o->keep)
        check_whole_files(family, n);
    session_open_library(&o->session);
    session_open_gpu(&o->session);
    if (inplace_copy_open(&peer, &o->session.gpu) != GEN_OK)
        die(1, "%s", gen_last_error());
    for (uint32_t i = 0; i < n; i++)
        if (is_first_of_file(family, i))
            ok = bench_file(o, family + i, n - i, &peer, &peers) && ok;
    inplace_copy_close(&peer);
    session_close(&o->session);
    peers_free(&peers);
    return ok ? 0 : 1;
}

/* ---- for a profiler ---------------------------------------------------- */

#define PROFILE_WARM_UP 4
#define PROFILE_LAUNCHES 4

static const struct shape *find_case(struct bench_options *o, struct shape_list *all,
                                     const char *name)
{
    const struct gen__family *family[64];
    uint32_t n = families_named(&o->session.families, family, 64);
    for (uint32_t i = 0; i < n; i++)
        shapes_load(all, family[i], SHAPES_TIMED, o->list);
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->item[i].name, name) == 0)
            return &all->item[i];
    die(1, "no shape file has a case named '%s'", name);
}

int bench_profile(struct bench_options *o, const char *name)
{
    struct session *s = &o->session;
    struct shape_list all = {0};
    struct arena arena = {0};
    struct stage stage;
    struct runner runner;
    gen_plan plan = {.size = sizeof plan};
    const struct shape *shape = find_case(o, &all, name);
    session_open_library(s);
    session_open_gpu(s);
    enum gen_status status = gen_select(s->library, &s->gpu.device, shape->problem, &plan);
    if (status == GEN_OK)
        status = stage_open(&stage, &s->gpu, &arena, shape, plan.workspace_bytes);
    if (status == GEN_OK)
        status = runner_plan(&runner, s->library, &stage, &plan);
    for (uint32_t i = 0; i < PROFILE_WARM_UP + PROFILE_LAUNCHES && status == GEN_OK; i++)
        status = runner.launch(&runner, i % stage.buffers.num_sets, s->gpu.stream);
    if (status == GEN_OK)
        status = gpu_sync(&s->gpu);
    if (status != GEN_OK)
        die(1, "%s: %s", name, gen_last_error());
    printf("%s\t%s\n", name, session_main(s, &plan).name);
    stage_close(&stage);
    arena_free(&arena, &s->gpu);
    session_close(s);
    shapes_free(&all);
    return 0;
}
