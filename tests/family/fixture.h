/* What tests ask of every family alike: elements of tensors, arguments that are refused, batches,
 * dependent launches. */
#ifndef TEST_FAMILY_FIXTURE_H
#define TEST_FAMILY_FIXTURE_H

#include "h200.h"
#include "reference/half.h"
#include "test.h"

#include <stdbool.h>
#include <string.h>

/* ---- elements of tensors ------------------------------------------------- */

static inline size_t element_size(enum gen_dtype dtype)
{
    return dtype == GEN_DTYPE_E4M3 ? 1 : dtype == GEN_DTYPE_BF16 || dtype == GEN_DTYPE_FP16 ? 2 : 4;
}

static inline double element_get(enum gen_dtype dtype, const void *data, int64_t i)
{
    return dtype == GEN_DTYPE_E4M3   ? gen__e4m3_to_double(((const uint8_t *)data)[i])
           : dtype == GEN_DTYPE_FP32 ? (double)((const float *)data)[i]
           : dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(((const uint16_t *)data)[i])
                                     : gen__bf16_to_double(((const uint16_t *)data)[i]);
}

static inline void element_put(enum gen_dtype dtype, void *data, int64_t i, double x)
{
    if (dtype == GEN_DTYPE_E4M3)
        ((uint8_t *)data)[i] = gen__e4m3_from_double(x);
    else if (dtype == GEN_DTYPE_FP32)
        ((float *)data)[i] = (float)x;
    else
        ((uint16_t *)data)[i] =
            dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

/* ---- arguments ------------------------------------------------------------ */

/* One wrong argument at a time; %p in a message stands for the pointer. */
struct wrong {
    size_t offset, size; /* in the arguments; 4 or 8 bytes */
    int64_t value; /* NULL and numbers; for `pointer` an offset from the memory of the arguments */
    bool pointer;
    const char *message; /* behind "<family>: " */
};

/* Puts it into the arguments and spells out what should be said. */
static inline void write_wrong(const struct wrong *w, const char *family,
                               const unsigned char *memory, void *args, char *message,
                               size_t capacity)
{
    const void *pointer = w->pointer ? memory + w->value : NULL;
    const int32_t narrow = (int32_t)w->value;
    const char *mark = w->pointer ? strstr(w->message, "%p") : NULL;
    char text[32] = "";
    if (mark)
        snprintf(text, sizeof text, "%p", pointer);
    snprintf(message, capacity, "%s: %.*s%s%s", family,
             mark ? (int)(mark - w->message) : (int)strlen(w->message), w->message, text,
             mark ? mark + 2 : "");
    if (w->pointer)
        memcpy((char *)args + w->offset, &pointer, sizeof pointer);
    else
        memcpy((char *)args + w->offset,
               w->size == 4 ? (const void *)&narrow : (const void *)&w->value, w->size);
}

/* params() takes `good`, refuses it with each of the wrong ones, and then writes nothing. `memory`
 * is the workspace as well. */
static inline void check_wrong(const struct gen__family *family, const gen_plan *plan,
                               const gen_args *good, unsigned char *memory,
                               const struct wrong *wrongs, size_t count)
{
    _Alignas(64) unsigned char args[512], params[GEN__MAX_PARAMS], before[sizeof params];
    assert_true(family->args_size <= sizeof args && family->params_size <= sizeof params);
    memset(before, 0xa5, sizeof before);
    for (size_t i = 0; i < count; i++) {
        char message[512];
        gen_args *a = (gen_args *)(void *)args;
        memcpy(args, good, family->args_size);
        memcpy(params, before, sizeof params);
        assert_int_equal(family->params(plan, 0, a, memory, NULL), GEN_OK);
        write_wrong(&wrongs[i], family->name, memory, args, message, sizeof message);
        assert_failed(family->params(plan, 0, a, memory, params), INVALID_ARGUMENT, message);
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
