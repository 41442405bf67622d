/*
 * Taking turns. A fiber runs until it must wait. When none of the cluster's can
 * go on, what was issued and has not happened yet happens; when there is no such
 * thing either, the blocks are stuck.
 */
#include "internal.h"

/* How often threads that poll may find nothing new before that counts as stuck. */
#define MAX_SPIN_ROUNDS 1000
/* In random mode, one of so many waits lets something issued happen, and changes a rank. */
#define RANDOM_SHARE 8
#define RANK_SHARE 256

uint64_t emul__random(struct cluster *c)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

/* ---- who is ready --------------------------------------------------------- */

/* The n-th of the ring's entries. */
static unsigned *ready(struct cluster *c, unsigned n)
{
    return &c->ready[(c->ready_first + n) & c->ready_mask];
}

static struct fiber *fiber_of(const struct cluster *c, unsigned entry)
{
    return &c->block[entry / EMUL_MAX_THREADS]->fiber[entry % EMUL_MAX_THREADS];
}

static void make_ready(struct cluster *c, struct fiber *fiber)
{
    fiber->state = READY;
    fiber->wait.kind = WAIT_NONE;
    *ready(c, c->ready_count++) = fiber->block->cluster_rank * EMUL_MAX_THREADS + fiber->number;
}

void emul__turns_reset(struct cluster *c)
{
    unsigned room = 1;
    while (room < c->size)
        room *= 2;
    c->ready_mask = room * EMUL_MAX_THREADS - 1;
    c->ready_first = c->ready_count = c->spin_rounds = 0;
    for (unsigned n = 0; n < c->size; n++)
        for (unsigned w = 0; w < c->block[n]->num_warps; w++)
            c->rank[n * MAX_WARPS + w] = (unsigned)(emul__random(c) >> 32);
}

static bool backwards(const struct cluster *c)
{
    return c->options.reverse != c->options.ahead;
}

/* The thread that is made ready n-th of all: with `ahead` the last one of these goes first. */
unsigned emul__nth(const struct block *b, unsigned n)
{
    return backwards(b->cluster) ? b->num_threads - 1 - n : n;
}

struct block *emul__nth_block(const struct cluster *c, unsigned n)
{
    return c->block[backwards(c) ? c->size - 1 - n : n];
}

void emul__wake(struct fiber *fiber)
{
    struct cluster *c = fiber->block->cluster;
    c->spin_rounds = 0;
    make_ready(c, fiber);
}

/* ---- who is next ------------------------------------------------------------ */

/* Warps have random ranks, and one of them changes now and then: a warp runs far ahead of
 * others, which orders that are random at every step would hardly ever have. */
static unsigned choose(struct cluster *c)
{
    unsigned best = 0;
    if (emul__random(c) % RANK_SHARE == 0) {
        const unsigned warps = c->block[0]->num_warps;
        const unsigned which = (unsigned)(emul__random(c) % (warps * c->size));
        c->rank[which / warps * MAX_WARPS + which % warps] = (unsigned)(emul__random(c) >> 32);
    }
    for (unsigned i = 1; i < c->ready_count; i++)
        if (c->rank[*ready(c, i) / WARP] >= c->rank[*ready(c, best) / WARP])
            best = i;
    return best;
}

static struct fiber *take_ready(struct cluster *c)
{
    unsigned *first = ready(c, 0), *last = ready(c, c->ready_count - 1);
    if (c->options.random) {
        unsigned *other = ready(c, choose(c));
        const unsigned entry = *other;
        *other = *last;
        *last = entry;
    }
    c->ready_count--;
    if (c->options.random || c->options.ahead)
        return fiber_of(c, *last);
    c->ready_first++;
    return fiber_of(c, *first);
}

/* Threads that poll run again, when nothing else can. */
static bool wake_spinning(struct cluster *c)
{
    bool any = false;
    if (c->spin_rounds++ == MAX_SPIN_ROUNDS)
        return false;
    for (unsigned i = 0; i < c->size; i++) {
        struct block *b = emul__nth_block(c, i);
        for (unsigned n = 0; n < b->num_threads; n++) {
            struct fiber *f = &b->fiber[emul__nth(b, n)];
            if (f->state == SPINNING) {
                make_ready(c, f);
                any = true;
            }
        }
    }
    return any;
}

struct fiber *emul__next(struct cluster *c)
{
    if (c->options.random && c->live && emul__random(c) % RANDOM_SHARE == 0)
        emul__pump(c);
    for (;;) {
        if (c->ready_count)
            return take_ready(c);
        if (!c->live)
            return NULL;
        if (emul__pump(c))
            c->spin_rounds = 0;
        else if (!wake_spinning(c))
            return NULL;
    }
}

/* ---- going and coming --------------------------------------------------------- */

/* For another fiber, or for who runs the cluster where none can go on. */
void emul__leave(struct block *b)
{
    struct cluster *c = b->cluster;
    struct fiber *self = b->self, *next = emul__next(c);
    if (next == self)
        return;
    if (next) {
        emul__block = next->block;
        next->block->self = next;
    }
    emul__switch(&self->sp, next ? next->sp : c->main_sp);
}

static void pause_as(enum state state, struct wait wait)
{
    struct block *b = emul__block;
    b->self->state = state;
    b->self->wait = wait;
    emul__leave(b);
}

void emul__sleep(enum wait_kind kind, const char *who, unsigned id, unsigned parity)
{
    pause_as(WAITING, (struct wait){kind, who, id, parity});
}

void emul__poll(const char *who, unsigned id, unsigned parity)
{
    pause_as(SPINNING, (struct wait){WAIT_MBARRIER, who, id, parity});
}

void emul_yield(void)
{
    pause_as(SPINNING, (struct wait){.kind = WAIT_NONE, .who = "poll"});
}
