/* What the threads of a warp and of a block do together. */
#include "internal.h"

#include <string.h>

unsigned emul__warp(void)
{
    return emul__block->self->number / WARP;
}

unsigned emul__lane(void)
{
    return emul__block->self->number % WARP;
}

/* ---- lanes of a warp ------------------------------------------------------ */

static struct meeting *find_meeting(struct block *b, unsigned warp, unsigned mask)
{
    struct meeting *free_one = NULL;
    for (unsigned i = 0; i < WARP; i++) {
        struct meeting *m = &b->meeting[warp][i];
        if (m->mask == mask)
            return m;
        if (!m->mask && !free_one)
            free_one = m;
    }
    return free_one; /* there is one: each lane waits in one meeting at most */
}

/* All are there: the operation runs, and everybody goes on. */
static void hold(struct block *b, unsigned warp, struct meeting *m)
{
    const struct meeting now = *m;
    memset(m, 0, sizeof *m);
    now.kind->run(warp, now.arrived, now.payload);
    for (unsigned lane = 0; lane < WARP; lane++) {
        struct fiber *f = &b->fiber[warp * WARP + lane];
        if (now.arrived >> lane & 1 && f != b->self)
            emul__wake(f);
    }
}

void emul__meet(unsigned mask, const struct meeting_kind *kind, void *payload)
{
    struct block *b = emul__block;
    const unsigned warp = emul__warp(), lane = emul__lane();
    if (!(mask >> lane & 1))
        emul_fault("%s: the mask %#010x does not have the calling lane %u", kind->name, mask, lane);
    struct meeting *m = find_meeting(b, warp, mask);
    if (!m->mask) {
        m->mask = mask;
        m->kind = kind;
    } else if (m->kind != kind) {
        emul_fault("%s, while lanes %#010x of the warp are at %s", kind->name, m->arrived,
                   m->kind->name);
    }
    m->arrived |= 1u << lane;
    m->payload[lane] = payload;
    if (m->arrived == (mask & b->live_lanes[warp]))
        hold(b, warp, m);
    else
        emul__sleep(WAIT_MEETING, kind->name, mask, 0);
}

static void run_nothing(unsigned warp, unsigned lanes, void *const *payload)
{
    (void)warp, (void)lanes, (void)payload;
}

void emul_sync_warp(unsigned mask)
{
    static const struct meeting_kind kind = {"__syncwarp", run_nothing};
    emul__meet(mask, &kind, NULL);
}

struct shuffle {
    unsigned long long value, result;
    enum emul_direction kind;
    int parameter, width;
};

static void run_shuffle(unsigned warp, unsigned lanes, void *const *payload)
{
    (void)warp;
    for (int lane = 0; lane < WARP; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        struct shuffle *s = payload[lane];
        const int base = lane & ~(s->width - 1), end = base + s->width;
        int from = s->kind == EMUL_UP     ? lane - s->parameter
                   : s->kind == EMUL_DOWN ? lane + s->parameter
                   : s->kind == EMUL_XOR  ? lane ^ s->parameter
                                          : base + (s->parameter & (s->width - 1));
        if (from >= end || (from < base && s->kind != EMUL_XOR) || from < 0)
            from = lane;
        /* A lane that is not here has nothing to give. */
        s->result = lanes >> from & 1 ? ((const struct shuffle *)payload[from])->value : ~0ull;
    }
}

unsigned long long emul_shuffle(unsigned mask, unsigned long long value, enum emul_direction kind,
                                int parameter, int width)
{
    static const struct meeting_kind what = {"__shfl_sync", run_shuffle};
    struct shuffle s = {value, 0, kind, parameter, width};
    if (width < 1 || width > WARP || (width & (width - 1)))
        emul_fault("__shfl_sync: width %d; allowed are powers of two up to 32", width);
    emul__meet(mask, &what, &s);
    return s.result;
}

struct vote {
    unsigned long long value;
    unsigned result;
    enum emul_combination kind;
};

static void run_ballot(unsigned warp, unsigned lanes, void *const *payload)
{
    unsigned result = 0;
    (void)warp;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1 && ((const struct vote *)payload[lane])->value)
            result |= 1u << lane;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1)
            ((struct vote *)payload[lane])->result = result;
}

unsigned emul_ballot(unsigned mask, int predicate)
{
    static const struct meeting_kind what = {"a vote of the warp", run_ballot};
    struct vote v = {.value = predicate != 0};
    emul__meet(mask, &what, &v);
    return v.result;
}

static void run_match(unsigned warp, unsigned lanes, void *const *payload)
{
    (void)warp;
    for (unsigned lane = 0; lane < WARP; lane++)
        for (unsigned other = 0; other < WARP && lanes >> lane & 1; other++)
            if (lanes >> other & 1 && ((const struct vote *)payload[lane])->value ==
                                          ((const struct vote *)payload[other])->value)
                ((struct vote *)payload[lane])->result |= 1u << other;
}

unsigned emul_match(unsigned mask, unsigned long long value)
{
    static const struct meeting_kind what = {"__match_any_sync", run_match};
    struct vote v = {.value = value};
    emul__meet(mask, &what, &v);
    return v.result;
}

static unsigned combine(enum emul_combination kind, unsigned a, unsigned b)
{
    switch (kind) {
    case EMUL_ADD:
        return a + b;
    case EMUL_MIN:
        return (int)a < (int)b ? a : b;
    case EMUL_MAX:
        return (int)a > (int)b ? a : b;
    case EMUL_UMIN:
        return a < b ? a : b;
    case EMUL_UMAX:
        return a > b ? a : b;
    case EMUL_BITAND:
        return a & b;
    case EMUL_BITOR:
        return a | b;
    default:
        return a ^ b;
    }
}

static void run_reduce(unsigned warp, unsigned lanes, void *const *payload)
{
    bool any = false;
    unsigned result = 0;
    (void)warp;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        const struct vote *v = payload[lane];
        result = any ? combine(v->kind, result, (unsigned)v->value) : (unsigned)v->value;
        any = true;
    }
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1)
            ((struct vote *)payload[lane])->result = result;
}

unsigned emul_reduce(unsigned mask, unsigned value, enum emul_combination kind)
{
    static const struct meeting_kind what = {"__reduce_sync", run_reduce};
    struct vote v = {.value = value, .kind = kind};
    emul__meet(mask, &what, &v);
    return v.result;
}

/* ---- barriers of the block ------------------------------------------------- */

static void release(struct block *b, unsigned id)
{
    const struct barrier done = b->barrier[id];
    memset(&b->barrier[id], 0, sizeof b->barrier[id]);
    for (unsigned n = 0; n < b->num_threads; n++) {
        struct fiber *f = &b->fiber[emul__nth(b, n)];
        const bool waits = f->state == WAITING && f->wait.kind == WAIT_BARRIER && f->wait.id == id;
        if (!waits && f != b->self)
            continue;
        f->result = f->wait.parity == EMUL_COUNT ? (int)done.count
                    : f->wait.parity == EMUL_AND ? done.ands != 0
                                                 : done.ors != 0;
        if (waits)
            emul__wake(f);
    }
}

static void arrive(struct barrier *barrier, int predicate)
{
    barrier->ands = (barrier->arrived ? barrier->ands : 1) && predicate;
    barrier->ors |= predicate != 0;
    barrier->count += predicate != 0;
    barrier->arrived++;
}

int emul_sync_block(int predicate, enum emul_vote vote)
{
    struct block *b = emul__block;
    struct fiber *self = b->self;
    arrive(&b->barrier[0], predicate);
    self->wait.parity = vote;
    if (b->barrier[0].arrived == b->live)
        release(b, 0);
    else
        emul__sleep(WAIT_BARRIER, "__syncthreads", 0, vote);
    return self->result;
}

void emul_barrier(int id, int threads, int wait)
{
    struct block *b = emul__block;
    const char *who = wait ? "bar.sync" : "bar.arrive";
    if (id < 0 || id >= NUM_BARRIERS)
        emul_fault("%s: barrier %d; allowed are 0 to 15", who, id);
    if (threads < WARP || threads % WARP || threads > EMUL_MAX_THREADS)
        emul_fault("%s: %d threads; allowed are multiples of 32", who, threads);
    struct barrier *barrier = &b->barrier[id];
    if (barrier->arrived && barrier->expected != (unsigned)threads)
        emul_fault("%s: barrier %d for %d threads, others came for %u", who, id, threads,
                   barrier->expected);
    barrier->expected = (unsigned)threads;
    arrive(barrier, 0);
    if (barrier->arrived == barrier->expected)
        release(b, (unsigned)id);
    else if (wait)
        emul__sleep(WAIT_BARRIER, who, (unsigned)id, EMUL_COUNT);
}

/* No barrier waits for a thread that ended, except at a barrier that names a number. */
void emul__thread_ends(struct block *b, struct fiber *fiber)
{
    const unsigned warp = fiber->number / WARP;
    b->live_lanes[warp] &= ~(1u << fiber->number % WARP);
    if (b->live && b->barrier[0].arrived == b->live)
        release(b, 0);
    for (unsigned i = 0; i < WARP; i++) {
        struct meeting *m = &b->meeting[warp][i];
        if (m->mask && m->arrived && m->arrived == (m->mask & b->live_lanes[warp]))
            hold(b, warp, m);
    }
}
