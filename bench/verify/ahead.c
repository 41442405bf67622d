#define _GNU_SOURCE
#include "verify/ahead.h"

#include "common/util.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_THREADS 16

struct ahead {
    const struct shape_list *cases;
    bool (*wanted)(void *context, const struct shape *shape);
    void *context;
    const gen_library *library;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    size_t claimed, taken;      /* cases that a thread has begun, and that were asked for */
    size_t window;              /* how far the one may be before the other: cases are memory */
    bool *done;                 /* of each case */
    struct verify_case **ready; /* NULL: not wanted, or none */
    bool stops;
    unsigned num_threads;
    pthread_t thread[MOST_THREADS];
};

static struct verify_case *prepared(const struct ahead *a, const struct shape *shape)
{
    if (!a->wanted(a->context, shape))
        return NULL;
    struct verify_case *c = xmalloc(sizeof *c);
    if (verify_prepare(c, shape, shape->controls, a->library))
        return c;
    free(c);
    return NULL;
}

static void *prepare_cases(void *context)
{
    struct ahead *a = context;
    (void)pthread_mutex_lock(&a->lock);
    while (!a->stops && a->claimed < a->cases->count) {
        if (a->claimed >= a->taken + a->window) {
            (void)pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        const size_t at = a->claimed++;
        (void)pthread_mutex_unlock(&a->lock);
        struct verify_case *c = prepared(a, &a->cases->item[at]);
        (void)pthread_mutex_lock(&a->lock);
        a->ready[at] = c;
        a->done[at] = true;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}

static unsigned threads_here(void)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN) - 1; /* one is for who takes them */
    return processors < 1 ? 1 : processors > MOST_THREADS ? MOST_THREADS : (unsigned)processors;
}

struct ahead *ahead_open(const struct shape_list *cases, size_t first,
                         bool (*wanted)(void *context, const struct shape *shape), void *context,
                         const gen_library *library)
{
    struct ahead *a = xmalloc(sizeof *a);
    *a = (struct ahead){.cases = cases,
                        .wanted = wanted,
                        .context = context,
                        .library = library,
                        .claimed = first,
                        .taken = first};
    a->done = xmalloc((cases->count + 1) * sizeof *a->done);
    a->ready = xmalloc((cases->count + 1) * sizeof(struct verify_case *));
    for (size_t i = 0; i < cases->count; i++) {
        a->done[i] = false;
        a->ready[i] = NULL;
    }
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->changed, NULL);
    const unsigned threads = threads_here();
    a->window = 2 * (size_t)threads;
    while (a->num_threads < threads &&
           pthread_create(&a->thread[a->num_threads], NULL, prepare_cases, a) == 0)
        a->num_threads++;
    if (!a->num_threads)
        die(2, "no thread could be started");
    return a;
}

bool ahead_take(struct ahead *a, struct verify_case *c, size_t *at)
{
    struct verify_case *found = NULL;
    (void)pthread_mutex_lock(&a->lock);
    while (!found && a->taken < a->cases->count) {
        if (!a->done[a->taken]) {
            (void)pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        *at = a->taken++;
        found = a->ready[*at];
        a->ready[*at] = NULL;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->lock);
    if (!found)
        return false;
    *c = *found;
    free(found);
    return true;
}

void ahead_close(struct ahead *a)
{
    (void)pthread_mutex_lock(&a->lock);
    a->stops = true;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
    for (unsigned i = 0; i < a->num_threads; i++)
        (void)pthread_join(a->thread[i], NULL);
    for (size_t i = 0; i < a->cases->count; i++)
        if (a->ready[i]) {
            verify_free(a->ready[i], NULL);
            free(a->ready[i]);
        }
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->lock);
    free(a->done);
    free(a->ready);
    free(a);
}
