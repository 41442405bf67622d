/* The log: levels, and where lines go. */
#include "core/log.h"
#include "core/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic(uint32_t) gen__log_state;

static struct {
    pthread_mutex_t lock; /* held while a line is written */
    gen_log_callback callback;
    void *user;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The calling thread is in the callback. */
static _Thread_local bool inside;

static uint32_t level_of(const char *word, size_t length)
{
    static const char *const words[] = {"select", "load", "explain"}; /* by their bits */
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == length && !memcmp(words[i], word, length))
            return 1u << i;
    return 0;
}

uint32_t gen__log_levels_of_environment(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *word = getenv("GEN_LOG"), *unknown = NULL;
    uint32_t levels = 0;
    while (word && *word) {
        const size_t length = strcspn(word, ", ");
        const uint32_t level = level_of(word, length);
        if (length && !level && !unknown)
            unknown = word;
        levels |= level;
        word += length + (word[length] != '\0');
    }
    if (unknown && !atomic_flag_test_and_set(&warned))
        fprintf(stderr,
                "attngen: GEN_LOG holds \"%.*s\"; allowed: select, load and explain, "
                "comma-separated\n",
                (int)strcspn(unknown, ", "), unknown);
    return levels;
}

enum gen_status gen_set_log(uint32_t levels, gen_log_callback callback, void *user)
{
    if (levels & ~GEN__LOG_LEVELS)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "levels is %#x, allowed are the bits of enum gen_log_level (%#x)", levels,
                         GEN__LOG_LEVELS);
    if (inside)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "gen_set_log() is called by the log's callback; allowed: outside of it");
    pthread_mutex_lock(&sink.lock);
    sink.callback = callback;
    sink.user = user;
    const uint32_t calls = (gen__log_now() & ~GEN__LOG_LEVELS) + GEN__LOG_LEVELS + 1;
    atomic_store_explicit(&gen__log_state, calls | levels, memory_order_relaxed);
    pthread_mutex_unlock(&sink.lock);
    return GEN_OK;
}

void gen__log(enum gen_log_level level, const char *text)
{
    if (inside)
        return;
    pthread_mutex_lock(&sink.lock);
    inside = true;
    if (sink.callback)
        sink.callback(level, text, sink.user);
    else
        fprintf(stderr, "attngen: %s\n", text);
    inside = false;
    pthread_mutex_unlock(&sink.lock);
}
