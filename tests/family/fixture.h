/* What tests ask of every family alike: arguments that are refused, batches, dependent launches. */
#ifndef TEST_FAMILY_FIXTURE_H
#define TEST_FAMILY_FIXTURE_H

#include "h200.h"
#include "test.h"

#include <stdbool.h>
#include <string.h>

/* One wrong argument at a time; %p in a message stands for the pointer. */
struct wrong {
    size_t offset, size;
    int64_t value; /* NULL and numbers; for `pointer` an offset from the memory of the arguments */
    bool pointer;
    const char *message;
};

static inline void write_wrong(const struct wrong *w, const unsigned char *memory, void *args,
                               char *message, size_t capacity)
{
    char *at = (char *)args + w->offset;
    const char *mark = strstr(w->message, "%p");
    if (w->pointer) {
        const void *pointer = memory + w->value;
        char text[32];
        memcpy(at, &pointer, sizeof pointer);
        snprintf(text, sizeof text, "%p", pointer);
        snprintf(message, capacity, "%.*s%s%s", (int)(mark - w->message), w->message, text,
                 mark + 2);
        return;
    }
    const int32_t narrow = (int32_t)w->value;
    if (w->size == 4)
        memcpy(at, &narrow, 4);
    else
        memcpy(at, &w->value, 8);
    snprintf(message, capacity, "%s", w->message);
}

/* params() takes `good`, refuses it with each of the wrong ones, and then writes nothing. */
static inline void check_wrong(const struct gen__family *family, const gen_plan *plan,
                               const gen_args *good, const unsigned char *memory,
                               const struct wrong *wrongs, size_t count)
{
    _Alignas(64) unsigned char args[512], params[1024], before[sizeof params];
    assert_true(family->args_size <= sizeof args && family->params_size <= sizeof params);
    memset(before, 0xa5, sizeof before);
    for (size_t i = 0; i < count; i++) {
        char message[512];
        gen_args *a = (gen_args *)(void *)args;
        memcpy(args, good, family->args_size);
        memcpy(params, before, sizeof params);
        assert_int_equal(family->params(plan, 0, a, NULL, NULL), GEN_OK);
        write_wrong(&wrongs[i], memory, args, message, sizeof message);
        assert_failed(family->params(plan, 0, a, NULL, params), INVALID_ARGUMENT, message);
        assert_memory_equal(params, before, sizeof params);
        assert_failed(family->params(plan, 0, a, NULL, NULL), INVALID_ARGUMENT, message);
    }
}

/* With GEN_BATCH_INVARIANT neither the first coordinate nor the estimate knows `batch`. */
static inline void check_invariant(const struct gen__family *family, gen_problem *p, int32_t *batch,
                                   const struct gen__facts *facts)
{
    struct gen__key key;
    assert_int_equal(family->check(p, &key), GEN_OK);
    const float count = key.counts[0], second = key.counts[1];
    const float us = family->predict(p, &h200, facts);
    p->flags = GEN_BATCH_INVARIANT;
    for (*batch = 1; *batch < 3000; *batch = *batch * 2 + 1) {
        assert_int_equal(family->check(p, &key), GEN_OK);
        assert_true(key.counts[0] == count && key.counts[1] == second);
        assert_true(family->predict(p, &h200, facts) == us);
    }
}

/* Only where the kernel waits for the one before it, as its fact says, and the caller allows it. */
static inline void check_dependent(const struct gen__family *family, gen_problem *p,
                                   struct gen__facts *facts, int fact)
{
    for (int i = 0; i < 3; i++) {
        gen_plan plan = {.size = sizeof plan};
        facts->fact[fact] = i > 0;
        p->flags = i == 2 ? GEN_SERIAL_LAUNCH : 0;
        family->plan(p, &h200, facts, &plan);
        assert_int_equal(plan.launch[0].dependent, i == 1);
    }
}

#endif /* TEST_FAMILY_FIXTURE_H */
