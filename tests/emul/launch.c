/*
 * Running a grid: its clusters one after another, each of one block unless the
 * kernel says otherwise, and what a block is at its begin and at its end.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- threads ---------------------------------------------------------------- */

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
    emul__switch(&unused, b->cluster->main_sp);
    abort();
}

void emul__fail(struct block *b, const char *format, ...)
{
    struct cluster *c = b->cluster;
    va_list args;
    if (c->failed)
        return; /* the first reason stands */
    va_start(args, format);
    vsnprintf(c->message, c->capacity, format, args);
    va_end(args);
    c->failed = true;
}

static void thread_main(void)
{
    struct block *b = emul__block;
    struct cluster *c = b->cluster;
    struct fiber *self = b->self;
    b->kernel->run(c->launch->params);
    self->state = DONE;
    b->live--;
    emul__thread_ends(b, self);
    emul__cluster_thread_ends(c, self);
    if (!b->live)
        emul__block_ends(b);
    if (c->failed)
        emul__switch(&self->sp, c->main_sp);
    emul__leave(b);
    abort();
}

/* ---- blocks that are stuck ------------------------------------------------ */

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
    } else if (w->kind == WAIT_CLUSTER) {
        snprintf(text, capacity, "%s: %u of %u threads came", w->who, b->cluster->arrived,
                 b->cluster->live);
    } else {
        const struct mbarrier *m = emul__mbarrier(b, w->id);
        snprintf(text, capacity,
                 "%s of %#x for parity %u: in phase %u, %u of %u arrivals and %ld bytes to come",
                 w->who, m->address, w->parity, m->phase, m->pending, m->expected, m->tx);
    }
}

__attribute__((format(printf, 2, 3))) static void append(struct cluster *c, const char *format, ...)
{
    const size_t used = strnlen(c->message, c->capacity);
    va_list args;
    va_start(args, format);
    vsnprintf(c->message + used, c->capacity - used, format, args);
    va_end(args);
}

static void report_threads(const struct block *b)
{
    for (unsigned first = 0, next; first < b->num_threads; first = next) {
        char text[256];
        const struct fiber *f = &b->fiber[first];
        for (next = first + 1; next < b->num_threads && same_wait(f, &b->fiber[next]); next++)
            ;
        if (f->state == DONE)
            snprintf(text, sizeof text, "ended");
        else
            describe(b, f, text, sizeof text);
        append(b->cluster, " threads %u-%u: %s;", first, next - 1, text);
    }
}

static void report_stuck(struct cluster *c)
{
    c->failed = true;
    c->message[0] = '\0';
    for (unsigned i = 0; i < c->size; i++) {
        const struct block *b = c->block[i];
        if (!b->live)
            continue;
        append(c, "%sblock (%u, %u, %u) is stuck:", c->message[0] ? " " : "", b->index.x,
               b->index.y, b->index.z);
        report_threads(b);
    }
}

/* ---- blocks and clusters ----------------------------------------------------- */

static void start_threads(struct block *b)
{
    const struct emul_launch *l = b->cluster->launch;
    const struct emul_dim t = l->threads;
    for (unsigned n = 0; n < b->num_threads; n++) {
        const unsigned i = emul__nth(b, n);
        struct fiber *f = &b->fiber[i];
        f->block = b;
        f->number = i;
        f->where.thread = (struct emul_dim){i % t.x, i / t.x % t.y, i / t.x / t.y};
        f->where.block = b->index;
        f->where.threads = t;
        f->where.blocks = l->blocks;
        f->copy_groups = f->copy_sequence = f->store_groups = 0;
        f->copies.count = f->stores.count = 0;
        f->cluster_arrived = false;
        f->sp = emul__fiber_new(emul__stack(b->cluster_rank, i), thread_main);
        emul__wake(f);
    }
}

static void reset_block(struct block *b)
{
    b->live = b->num_threads;
    b->self = NULL;
    memset(b->meeting, 0, sizeof b->meeting);
    memset(b->barrier, 0, sizeof b->barrier);
    for (unsigned w = 0; w < b->num_warps; w++) {
        const unsigned lanes = b->num_threads - w * WARP;
        b->live_lanes[w] = lanes >= WARP ? FULL_MASK : (1u << lanes) - 1;
    }
    emul__async_reset(b);
    emul__wgmma_open(b);
    emul__shared_poison(b);
}

/* `first` is the index of its block of rank 0. */
static void run_cluster(struct cluster *c, struct emul_dim first)
{
    c->live = c->arrived = c->phase = 0;
    c->tasks.count = 0;
    emul__turns_reset(c);
    for (unsigned i = 0; i < c->size; i++) {
        struct block *b = c->block[i];
        b->index = (struct emul_dim){first.x + i % c->dim.x, first.y + i / c->dim.x % c->dim.y,
                                     first.z + i / c->dim.x / c->dim.y};
        reset_block(b);
        c->live += b->live;
    }
    for (unsigned i = 0; i < c->size; i++)
        start_threads(emul__nth_block(c, i));
    struct fiber *f = emul__next(c);
    emul__block = f->block;
    f->block->self = f;
    emul__enter(&c->main_sp, f->sp);
    if (!c->failed && c->live)
        report_stuck(c);
}

static struct block *open_block(struct cluster *c, unsigned rank)
{
    const struct emul_launch *l = c->launch;
    struct block *b = calloc(1, sizeof *b);
    if (!b)
        abort();
    b->cluster = c;
    b->cluster_rank = rank;
    b->num_threads = l->threads.x * l->threads.y * l->threads.z;
    b->num_warps = (b->num_threads + WARP - 1) / WARP;
    b->kernel = emul__copy(l->kernel, rank, c->message, c->capacity);
    if (!b->kernel)
        c->failed = true;
    else if (!emul__shared_open(b))
        c->failed = true;
    return b;
}

static void open_cluster(struct cluster *c)
{
    c->dim = c->launch->kernel->cluster;
    const unsigned size = c->dim.x * c->dim.y * c->dim.z;
    for (unsigned i = 0; i < size && !c->failed; i++) {
        struct block *b = c->block[c->size++] = open_block(c, i);
        for (int s = 0; s < 3 && !c->failed; s++)
            if (b->segment[s].address != c->block[0]->segment[s].address)
                emul__fail(b, "shared memory lies elsewhere in the cluster's block %u than in 0",
                           i);
    }
}

static void close_cluster(struct cluster *c)
{
    for (unsigned i = 0; i < c->size; i++) {
        emul__async_free(c->block[i]);
        emul__wgmma_free(c->block[i]);
        free(c->block[i]->view);
        free(c->block[i]);
    }
    emul__list_free(&c->tasks);
    free(c);
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
        } else if (length == 9 && memcmp(p, "overtaken", 9) == 0) {
            options->overtaken = options->late = true;
        } else if (length >= 6 && memcmp(p, "random", 6) == 0 && (length == 6 || p[6] == '=')) {
            options->random = options->late = true;
            if (length > 6)
                options->seed = strtoull(p + 7, NULL, 10);
        } else if (length && !(length == 5 && memcmp(p, "eager", 5) == 0)) {
            snprintf(message, capacity,
                     "EMUL_MODE has the word '%.*s'; allowed: eager, late, overtaken, random, "
                     "random=SEED, ahead, reverse",
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
    const struct emul_dim c =
        l->kernel->abi == EMUL_ABI ? l->kernel->cluster : (struct emul_dim){1, 1, 1};
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
    else if (!c.x || !c.y || !c.z || c.x > EMUL_MAX_CLUSTER || c.y > EMUL_MAX_CLUSTER ||
             c.z > EMUL_MAX_CLUSTER || c.x * c.y * c.z > EMUL_MAX_CLUSTER)
        snprintf(message, capacity, "clusters of %u x %u x %u blocks; allowed: up to %d", c.x, c.y,
                 c.z, EMUL_MAX_CLUSTER);
    else if (l->blocks.x % c.x || l->blocks.y % c.y || l->blocks.z % c.z)
        snprintf(message, capacity,
                 "a grid of %u x %u x %u is no multiple of clusters of %u x %u x %u", l->blocks.x,
                 l->blocks.y, l->blocks.z, c.x, c.y, c.z);
    else
        return true;
    return false;
}

int emul_run(const struct emul_launch *launch, char *message, unsigned long capacity)
{
    struct options options;
    if (!check_launch(launch, message, capacity) || !read_mode(&options, message, capacity))
        return -1;
    struct cluster *c = calloc(1, sizeof *c);
    struct block *outer = emul__block;
    if (!c)
        abort();
    c->launch = launch;
    c->options = options;
    c->random = options.seed * 0x9e3779b97f4a7c15u + 1;
    c->message = message;
    c->capacity = capacity;
    open_cluster(c);
    const struct emul_dim d = c->dim;
    const struct emul_dim n = {launch->blocks.x / d.x, launch->blocks.y / d.y,
                               launch->blocks.z / d.z};
    const uint64_t clusters = (uint64_t)n.x * n.y * n.z;
    for (uint64_t i = 0; i < clusters && !c->failed; i++) {
        const uint64_t at = options.reverse ? clusters - 1 - i : i;
        run_cluster(c,
                    (struct emul_dim){(unsigned)(at % n.x) * d.x, (unsigned)(at / n.x % n.y) * d.y,
                                      (unsigned)(at / n.x / n.y) * d.z});
    }
    const int result = c->failed ? -1 : 0;
    close_cluster(c);
    emul__block = outer;
    return result;
}
