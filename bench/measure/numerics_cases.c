/* How far results are off on the inputs that hurt. */
#include "verify/ahead.h"
#include "measure/bench.h"
#include "measure/numerics.h"
#include "measure/peer_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char method[] =
    "cases of shapes/<family>_numerics.txt; error: relative Frobenius error of the output (the "
    "greatest, of several) against the reference in double precision on the same inputs, which are "
    "already rounded to the case's dtype; -unrounded: against the reference on the same numbers "
    "rounded to fp16 alone; attn_fwd of 8 bits: the worst of all variants, else of the variant "
    "that "
    "is selected; peer_error: the same error of the peer on the same inputs and all rows, from "
    "inputs whose checksum is ours";

static const char columns[] = "family,case,error,peer,peer_error\n";

/* One family's run. */
struct run {
    struct bench_options *options;
    const struct gen__family *family;
    const struct peer_list *peers;
    struct hard_list list;
    struct verify_case reference; /* what the next case is compared with; .initial NULL: itself */
    struct text rows;
    bool *used;    /* of each peer's note */
    size_t wanted; /* cases that are asked for */
    size_t done;
    bool ok;
};

static bool is_wanted(void *context, const struct shape *shape)
{
    const struct run *r = context;
    const struct hard_case *hard = &r->list.hard[shape - r->list.problems.item];
    if (hard->is_reference)
        hard++; /* wanted if the case behind it is */
    return glob_match(r->options->cases, hard->name);
}

/* What the case is called in peers' files: its name and which inputs it has. */
static void peer_name(const struct hard_case *hard, const struct verify_case *c, char name[96])
{
    snprintf(name, 96, "%s@%016" PRIx64, hard->name, numerics_checksum(c));
}

static void use_note(struct run *r, const struct peer_time *peer)
{
    for (size_t i = 0; i < r->peers->num_notes; i++)
        if (strcmp(r->peers->note[i].peer, peer->peer) == 0 &&
            peer_is_for(r->peers->note[i].family, r->family->name))
            r->used[i] = true;
}

static void add_rows(struct run *r, const struct hard_case *hard, const struct verify_case *c,
                     double error)
{
    const size_t length = strlen(hard->name);
    char name[96];
    bool any = false;
    peer_name(hard, c, name);
    for (size_t i = 0; i < r->peers->count; i++) {
        const struct peer_time *p = &r->peers->item[i];
        if (!peer_is_for(p->family, r->family->name) || p->err < 0 ||
            strncmp(p->name, hard->name, length) != 0 || p->name[length] != '@')
            continue;
        if (strcmp(p->name, name) != 0) {
            warn("%s: left out, its inputs are %s, ours %s", p->peer, p->name, name);
            r->ok = false;
            continue;
        }
        text_add(&r->rows, "%s,%s,%.4e,%s,%.4e\n", r->family->name, hard->name, error, p->peer,
                 p->err);
        use_note(r, p);
        any = true;
    }
    if (!any)
        text_add(&r->rows, "%s,%s,%.4e,,\n", r->family->name, hard->name, error);
}

/* What one case has come to. */
struct found {
    double error;
    uint32_t variants;
    char variant[160]; /* whose error it is */
};

/* `variant` NULL: the selected one. */
static void measure(struct run *r, struct verify_case *c, const char *variant, const char *name,
                    struct found *found)
{
    struct session *s = &r->options->session;
    struct verify_result result;
    /* Where the launch fails this stands: NaN. */
    memset(c->actual, 0xff, c->buffers.total_bytes);
    verify_variant(c, &s->gpu, s->library, variant, 1, &result);
    const double error = numerics_error(c, r->reference.initial ? &r->reference : c);
    /* Tolerances are those of one launch. */
    if (!result.ok && (c->steps == 1 || isinf(error))) {
        warn("%s: %s: WRONG: %s", c->name, name, result.reason);
        r->ok = false;
        if (gpu_is_lost(&s->gpu))
            die(1, "the GPU is lost: no results of %s are written", r->family->name);
    }
    if (!found->variants++ || !(error <= found->error)) {
        found->error = error;
        snprintf(found->variant, sizeof found->variant, "%s", name);
    }
}

static void measure_every(struct run *r, struct verify_case *c, struct found *found)
{
    struct session *s = &r->options->session;
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        gen_plan plan = {.size = sizeof plan};
        const gen_variant_info v = session_variant(s, i);
        if (strcmp(v.family, r->family->name) == 0 &&
            gen_select_variant(s->library, &s->gpu.device, c->shape->problem, v.name, &plan) ==
                GEN_OK &&
            plan.num_launches)
            measure(r, c, v.name, v.name, found);
    }
}

static void measure_case(struct run *r, const struct hard_case *hard, struct verify_case *c)
{
    struct session *s = &r->options->session;
    struct found found = {.error = 0};
    gen_plan plan = {.size = sizeof plan};
    if (r->reference.initial && !numerics_same_inputs(c, &r->reference))
        die(2, "%s: the inputs of fp16 are not those of 8 bits", hard->name);
    if (hard->every)
        measure_every(r, c, &found);
    else if (gen_select(s->library, &s->gpu.device, c->shape->problem, &plan) == GEN_OK &&
             plan.num_launches)
        measure(r, c, NULL, session_main(s, &plan).name, &found);
    if (!found.variants) {
        warn("%s: no variant of the product runs it", hard->name);
        return;
    }
    printf("%-12s %-32s %.3e", r->family->name, hard->name, found.error);
    if (found.variants > 1)
        printf("  worst of %" PRIu32 ":", found.variants);
    printf("  %s\n", found.variant);
    fflush(stdout);
    add_rows(r, hard, c, found.error);
    r->done++;
}

static void measure_all(struct run *r)
{
    struct session *s = &r->options->session;
    struct ahead *ahead = ahead_open(&r->list.problems, 0, is_wanted, r, s->library);
    struct verify_case c;
    for (size_t at; ahead_take(ahead, &c, &at);) {
        if (r->list.hard[at].is_reference) {
            r->reference = c;
            continue;
        }
        if (verify_upload(&c, &s->gpu) == GEN_OK) {
            measure_case(r, &r->list.hard[at], &c);
        } else {
            warn("%s: %s", r->list.hard[at].name, gen_last_error());
        }
        verify_free(&c, &s->gpu);
        if (r->reference.initial)
            verify_free(&r->reference, NULL);
    }
    ahead_close(ahead);
}

static void write_block(struct run *r)
{
    struct text text = {0};
    bench_other_families(&text, r->options, "numerics", columns, r->family->name);
    bench_header(&text, r->options, method);
    for (size_t i = 0; i < r->peers->num_notes; i++)
        if (r->used[i])
            text_add(&text, "# peer: %s: %s\n", r->peers->note[i].peer, r->peers->note[i].text);
    text_add(&text, "%s", r->rows.data);
    bench_write(r->options, "numerics", &text);
    text_free(&text);
}

/* False where something is wrong, or is missing: then the file stays as it was. */
static bool bench_family(struct bench_options *o, const struct gen__family *family,
                         const struct peer_list *peers)
{
    struct run r = {.options = o, .family = family, .peers = peers, .ok = true};
    const int bad = hard_list_read(&r.list, family, o->list);
    if (bad)
        die(1, "%s's list of hard cases %s", family->name,
            bad < 0 ? "is not readable" : "is malformed");
    size_t cases = 0;
    for (size_t i = 0; i < r.list.problems.count; i++) {
        cases += !r.list.hard[i].is_reference;
        r.wanted += !r.list.hard[i].is_reference && is_wanted(&r, &r.list.problems.item[i]);
    }
    r.used = xmalloc((peers->num_notes + 1) * sizeof *r.used);
    memset(r.used, 0, (peers->num_notes + 1) * sizeof *r.used);
    measure_all(&r);
    if (r.done < r.wanted) {
        warn("%s: %zu of %zu cases are measured: not written", family->name, r.done, r.wanted);
        r.ok = false;
    } else if (r.wanted < cases) {
        printf("%s: %zu of %zu cases were selected: not written\n", family->name, r.wanted, cases);
    } else if (cases) {
        write_block(&r);
    }
    free(r.used);
    text_free(&r.rows);
    hard_list_free(&r.list);
    return r.ok;
}

int bench_numerics(struct bench_options *o)
{
    const struct gen__family *family[64];
    struct peer_list peers = {0};
    bool ok = true;
    uint32_t n = families_named(&o->session.families, family, 64);
    for (int i = 0; i < o->peers.count; i++) {
        int bad = peers_read(&peers, o->peers.item[i]);
        if (bad)
            die(1, "%s: %s", o->peers.item[i], bad < 0 ? "cannot be read" : "malformed lines");
    }
    session_open_library(&o->session);
    session_open_gpu(&o->session);
    for (uint32_t i = 0; i < n; i++)
        ok = bench_family(o, family[i], &peers) && ok;
    session_close(&o->session);
    peers_free(&peers);
    return ok ? 0 : 1;
}
