/*
 * Running a grid: its blocks one after another, the threads of a block by turns.
 * A fiber runs until it must wait. When none can go on, what was issued and has
 * not happened yet happens; when there is no such thing either, the block is stuck.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often threads that poll may find nothing new before that counts as stuck. */
#define MAX_SPIN_ROUNDS 1000
/* In random mode, one of so many waits lets something issued happen, and changes a rank. */
#define RANDOM_SHARE 8
#define RANK_SHARE 256

_Thread_local struct block *emul__block;

/* ---- lists --------------------------------------------------------------- */

void *emul__list_add(struct list *list, size_t size)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->items = realloc(list->items, list->capacity * size);
        if (!list->items)
            abort();
    }
    list->size = size;
    void *item = (char *)list->items + list->count++ * size;
    memset(item, 0, size);
    return item;
}

void emul__list_cut(struct list *list, size_t first, size_t count)
{
    char *at = (char *)list->items + first * list->size;
    memmove(at, at + count * list->size, (list->count - first - count) * list->size);
    list->count -= count;
}

void emul__list_free(struct list *list)
{
    free(list->items);
    memset(list, 0, sizeof *list);
}

/* ---- taking turns -------------------------------------------------------- */

uint64_t emul__random(struct block *block)
{
    block->random ^= block->random << 13;
    block->random ^= block->random >> 7;
    block->random ^= block->random << 17;
    return block->random;
}

static void make_ready(struct block *b, struct fiber *fiber)
{
    fiber->state = READY;
    fiber->wait.kind = WAIT_NONE;
    b->ready[(b->ready_first + b->ready_count++) % EMUL_MAX_THREADS] = fiber->number;
}

/* The thread that is made ready n-th of all: with `ahead` the last one of these goes first. */
unsigned emul__nth(const struct block *b, unsigned n)
{
    return b->options.reverse != b->options.ahead ? b->num_threads - 1 - n : n;
}

void emul__wake(struct fiber *fiber)
{
    emul__block->spin_rounds = 0;
    make_ready(emul__block, fiber);
}

/* Warps have random ranks, and one of them changes now and then: a warp runs far ahead of
 * others, which orders that are random at every step would hardly ever have. */
static unsigned choose(struct block *b)
{
    unsigned best = 0;
    if (emul__random(b) % RANK_SHARE == 0)
        b->rank[emul__random(b) % b->num_warps] = (unsigned)(emul__random(b) >> 32);
    for (unsigned i = 1; i < b->ready_count; i++)
        if (b->rank[b->ready[(b->ready_first + i) % EMUL_MAX_THREADS] / WARP] >=
            b->rank[b->ready[(b->ready_first + best) % EMUL_MAX_THREADS] / WARP])
            best = i;
    return best;
}

static struct fiber *take_ready(struct block *b)
{
    unsigned *first = &b->ready[b->ready_first % EMUL_MAX_THREADS];
    unsigned *last = &b->ready[(b->ready_first + b->ready_count - 1) % EMUL_MAX_THREADS];
    if (b->options.random) {
        unsigned *other = &b->ready[(b->ready_first + choose(b)) % EMUL_MAX_THREADS];
        const unsigned number = *other;
        *other = *last;
        *last = number;
    }
    b->ready_count--;
    if (b->options.random || b->options.ahead)
        return &b->fiber[*last];
    b->ready_first++;
    return &b->fiber[*first];
}

/* Threads that poll run again, when nothing else can. */
static bool wake_spinning(struct block *b)
{
    bool any = false;
    if (b->spin_rounds++ == MAX_SPIN_ROUNDS)
        return false;
    for (unsigned n = 0; n < b->num_threads; n++) {
        struct fiber *f = &b->fiber[emul__nth(b, n)];
        if (f->state == SPINNING) {
            make_ready(b, f);
            any = true;
        }
    }
    return any;
}

static struct fiber *next_fiber(struct block *b)
{
    if (b->options.random && b->live && emul__random(b) % RANDOM_SHARE == 0)
        emul__pump(b);
    for (;;) {
        if (b->ready_count)
            return take_ready(b);
        if (!b->live)
            return NULL;
        if (emul__pump(b))
            b->spin_rounds = 0;
        else if (!wake_spinning(b))
            return NULL;
    }
}

/* Leaves the fiber that runs for another, or for run_block() where none can go on. */
static void leave(struct block *b)
{
    struct fiber *self = b->self, *next = next_fiber(b);
    if (next == self)
        return;
    b->self = next;
    emul__switch(&self->sp, next ? next->sp : b->main_sp);
}

static void pause_as(enum state state, struct wait wait)
{
    struct block *b = emul__block;
    b->self->state = state;
    b->self->wait = wait;
    leave(b);
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

const struct emul_thread *emul_self(void)
{
    return &emul__block->self->where;
}

void emul_fault(const char *format, ...)
{
    struct block *b = emul__block;
    char text[512];
    void *unused;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    emul__fail(b, "block (%u, %u, %u), thread %u: %s", b->index.x, b->index.y, b->index.z,
               b->self->number, text);
    emul__switch(&unused, b->main_sp);
    abort();
}

void emul__fail(struct block *b, const char *format, ...)
{
    va_list args;
    if (b->failed)
        return; /* the first reason stands */
    va_start(args, format);
    vsnprintf(b->message, b->capacity, format, args);
    va_end(args);
    b->failed = true;
}

static void thread_main(void)
{
    struct block *b = emul__block;
    struct fiber *self = b->self;
    b->launch->kernel->run(b->launch->params);
    self->state = DONE;
    b->live--;
    emul__thread_ends(b, self);
    leave(b);
    abort();
}

/* ---- a block that is stuck ------------------------------------------------ */

static bool same_wait(const struct fiber *a, const struct fiber *b)
{
    if (a->state == DONE || b->state == DONE)
        return a->state == b->state;
    return a->state == b->state && a->wait.kind == b->wait.kind && a->wait.id == b->wait.id &&
           a->wait.parity == b->wait.parity && strcmp(a->wait.who, b->wait.who) == 0;
}

static void describe(const struct block *b, const struct fiber *f, char *text, size_t capacity)
{
    const struct wait *w = &f->wait;
    if (w->kind == WAIT_NONE) {
        snprintf(text, capacity, "%s", w->who);
    } else if (w->kind == WAIT_MEETING) {
        snprintf(text, capacity, "%s with lanes %#010x", w->who, w->id);
    } else if (w->kind == WAIT_BARRIER) {
        const struct barrier *barrier = &b->barrier[w->id];
        snprintf(text, capacity, "%s of barrier %u: %u of %u threads came", w->who, w->id,
                 barrier->arrived, w->id ? barrier->expected : b->live);
    } else {
        const struct mbarrier *m = emul__mbarrier(b, w->id);
        snprintf(text, capacity,
                 "%s of %#x for parity %u: in phase %u, %u of %u arrivals and %ld bytes to come",
                 w->who, m->address, w->parity, m->phase, m->pending, m->expected, m->tx);
    }
}

static void report_stuck(struct block *b)
{
    size_t used =
        (size_t)snprintf(b->message, b->capacity, "block (%u, %u, %u) is stuck:", b->index.x,
                         b->index.y, b->index.z);
    b->failed = true;
    for (unsigned first = 0, next; first < b->num_threads; first = next) {
        char text[256];
        const struct fiber *f = &b->fiber[first];
        for (next = first + 1; next < b->num_threads && same_wait(f, &b->fiber[next]); next++)
            ;
        if (f->state == DONE)
            snprintf(text, sizeof text, "ended");
        else
            describe(b, f, text, sizeof text);
        if (used < b->capacity)
            used += (size_t)snprintf(b->message + used, b->capacity - used, " threads %u-%u: %s;",
                                     first, next - 1, text);
    }
}

/* ---- blocks --------------------------------------------------------------- */

static void start_threads(struct block *b)
{
    const struct emul_dim t = b->launch->threads;
    for (unsigned n = 0; n < b->num_threads; n++) {
        const unsigned i = emul__nth(b, n);
        struct fiber *f = &b->fiber[i];
        f->number = i;
        f->where.thread = (struct emul_dim){i % t.x, i / t.x % t.y, i / t.x / t.y};
        f->where.block = b->index;
        f->where.threads = t;
        f->where.blocks = b->launch->blocks;
        f->copy_groups = f->copy_sequence = f->store_groups = 0;
        f->copies.count = f->stores.count = 0;
        f->sp = emul__fiber_new(emul__stack(i), thread_main);
        emul__wake(f);
    }
}

static void run_block(struct block *b)
{
    b->live = b->num_threads;
    b->ready_first = b->ready_count = b->spin_rounds = 0;
    for (unsigned w = 0; w < b->num_warps; w++)
        b->rank[w] = (unsigned)(emul__random(b) >> 32);
    memset(b->meeting, 0, sizeof b->meeting);
    memset(b->barrier, 0, sizeof b->barrier);
    for (unsigned w = 0; w < b->num_warps; w++) {
        const unsigned lanes = b->num_threads - w * WARP;
        b->live_lanes[w] = lanes >= WARP ? FULL_MASK : (1u << lanes) - 1;
    }
    emul__async_reset(b);
    emul__wgmma_open(b);
    emul__shared_poison(b);
    start_threads(b);
    b->self = next_fiber(b);
    emul__switch(&b->main_sp, b->self->sp);
    b->self = NULL;
    if (b->failed)
        return;
    if (b->live)
        report_stuck(b);
    else
        emul__block_ends(b);
}

static bool read_mode(struct options *options, char *message, size_t capacity)
{
    const char *text = getenv("EMUL_MODE");
    memset(options, 0, sizeof *options);
    options->seed = 1;
    for (const char *p = text ? text : ""; *p;) {
        const size_t length = strcspn(p, ",");
        if (length == 4 && memcmp(p, "late", 4) == 0) {
            options->late = true;
        } else if (length == 7 && memcmp(p, "reverse", 7) == 0) {
            options->reverse = true;
        } else if (length == 5 && memcmp(p, "ahead", 5) == 0) {
            options->ahead = true;
        } else if (length >= 6 && memcmp(p, "random", 6) == 0 && (length == 6 || p[6] == '=')) {
            options->random = options->late = true;
            if (length > 6)
                options->seed = strtoull(p + 7, NULL, 10);
        } else if (length && !(length == 5 && memcmp(p, "eager", 5) == 0)) {
            snprintf(message, capacity,
                     "EMUL_MODE has the word '%.*s'; allowed: eager, late, random, random=SEED, "
                     "ahead, reverse",
                     (int)length, p);
            return false;
        }
        p += length + (p[length] == ',');
    }
    return true;
}

static bool check_launch(const struct emul_launch *l, char *message, size_t capacity)
{
    const unsigned long long threads =
        (unsigned long long)l->threads.x * l->threads.y * l->threads.z;
    if (l->kernel->abi != EMUL_ABI)
        snprintf(message, capacity,
                 "the kernel was compiled for interface %u of the engine, it is %d", l->kernel->abi,
                 EMUL_ABI);
    else if (!threads || threads > EMUL_MAX_THREADS)
        snprintf(message, capacity, "%llu threads a block; allowed: 1 to %d", threads,
                 EMUL_MAX_THREADS);
    else if (!l->blocks.x || !l->blocks.y || !l->blocks.z || l->blocks.y > 65535 ||
             l->blocks.z > 65535)
        snprintf(message, capacity, "a grid of %u x %u x %u", l->blocks.x, l->blocks.y,
                 l->blocks.z);
    else
        return true;
    return false;
}

int emul_run(const struct emul_launch *launch, char *message, unsigned long capacity)
{
    struct options options;
    if (!check_launch(launch, message, capacity) || !read_mode(&options, message, capacity))
        return -1;
    struct block *b = calloc(1, sizeof *b);
    struct block *outer = emul__block;
    if (!b)
        abort();
    b->launch = launch;
    b->options = options;
    b->random = options.seed * 0x9e3779b97f4a7c15u + 1;
    b->message = message;
    b->capacity = capacity;
    b->num_threads = launch->threads.x * launch->threads.y * launch->threads.z;
    b->num_warps = (b->num_threads + WARP - 1) / WARP;
    emul__block = b;
    if (!emul__shared_open(b))
        b->failed = true;
    const struct emul_dim n = launch->blocks;
    const uint64_t blocks = (uint64_t)n.x * n.y * n.z;
    for (uint64_t i = 0; i < blocks && !b->failed; i++) {
        const uint64_t at = options.reverse ? blocks - 1 - i : i;
        b->index = (struct emul_dim){(unsigned)(at % n.x), (unsigned)(at / n.x % n.y),
                                     (unsigned)(at / n.x / n.y)};
        run_block(b);
    }
    const int result = b->failed ? -1 : 0;
    emul__async_free(b);
    emul__wgmma_free(b);
    free(b->view);
    free(b);
    emul__block = outer;
    return result;
}
