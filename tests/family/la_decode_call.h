/* A call of la_decode's reference with its buffers, and where things are in them. */
#ifndef TEST_FAMILY_LA_DECODE_CALL_H
#define TEST_FAMILY_LA_DECODE_CALL_H

#include "la_decode.h"

#include "reference/half.h"

#include <stdlib.h>
#include <string.h>

#define SENTINEL 0x7a5b

/* A call with its buffers. Row strides are in elements and include gaps. */
struct call {
    gen_la_decode_problem problem;
    gen_la_decode_args args;
    uint16_t *q, *k, *v, *o;
    float *decay, *state;
    int32_t *slots;
    size_t q_count, v_count, o_count, state_count;
};

static inline double decoded(const struct call *c, uint16_t code)
{
    return c->problem.dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(code)
                                              : gen__bf16_to_double(code);
}

static inline uint16_t encoded(const struct call *c, double x)
{
    return c->problem.dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

static inline void *allocate(size_t count, size_t size)
{
    const size_t bytes = (count * size + 63) / 64 * 64 + 64;
    void *memory = aligned_alloc(64, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

/* Packed rows, all zero but the output, which holds SENTINEL; slot b for row b
 * of a pool of batch + `extra_slots`. */
static inline struct call *new_call(gen_la_decode_problem problem, int32_t extra_slots, int64_t gap)
{
    struct call *c = allocate(1, sizeof *c);
    const int64_t d = problem.head_dim;
    const int64_t qk_width = problem.num_qk_heads * d, v_width = problem.num_v_heads * d;
    c->problem = problem;
    gen__family_la_decode.default_args(&problem.base, &c->args.base);
    c->args.num_slots = problem.batch + extra_slots;
    if (gap) {
        c->args.q_stride = qk_width + gap;
        c->args.k_stride = qk_width + 2 * gap;
        c->args.v_stride = v_width + 3 * gap;
        c->args.o_stride = v_width + gap;
    }
    c->q_count = (size_t)(problem.batch * (qk_width + 2 * gap));
    c->v_count = (size_t)(problem.batch * (v_width + 3 * gap));
    c->o_count = (size_t)(problem.batch * (v_width + gap));
    c->state_count = (size_t)(c->args.num_slots * v_width * d);
    c->args.q = c->q = allocate(c->q_count, 2);
    c->args.k = c->k = allocate(c->q_count, 2);
    c->args.v = c->v = allocate(c->v_count, 2);
    c->args.o = c->o = allocate(c->o_count, 2);
    c->args.decay = c->decay = allocate((size_t)problem.num_v_heads, sizeof(float));
    c->args.state = c->state = allocate(c->state_count, sizeof(float));
    c->args.slots = c->slots = allocate((size_t)problem.batch, sizeof(int32_t));
    for (size_t i = 0; i < c->o_count; i++)
        c->o[i] = SENTINEL;
    for (int32_t b = 0; b < problem.batch; b++)
        c->slots[b] = b;
    return c;
}

static inline void free_call(struct call *c)
{
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->o);
    free(c->decay);
    free(c->state);
    free(c->slots);
    free(c);
}

static inline void fill(struct call *c, uint64_t seed)
{
    for (size_t i = 0; i < c->q_count; i++)
        c->q[i] = encoded(c, random_unit(&seed));
    for (size_t i = 0; i < c->q_count; i++)
        c->k[i] = encoded(c, random_unit(&seed));
    for (size_t i = 0; i < c->v_count; i++)
        c->v[i] = encoded(c, random_unit(&seed));
    for (int32_t i = 0; i < c->problem.num_v_heads; i++)
        c->decay[i] = (float)(2 + 2 * random_unit(&seed));
    for (size_t i = 0; i < c->state_count; i++)
        c->state[i] = (float)random_unit(&seed);
}

static inline void run(struct call *c)
{
    const struct gen__family *family = &gen__family_la_decode;
    const gen_device device = {.size = sizeof device, .backend = GEN_BACKEND_CPU, .ordinal = -1};
    struct gen__key key;
    gen_plan plan = {.size = sizeof plan, .family = GEN_LA_DECODE};
    if (family->check(&c->problem.base, &key) != GEN_OK)
        fail_msg("%s", gen_last_error());
    family->plan(&c->problem.base, &device, NULL, &plan);
    if (family->params(&plan, 0, &c->args.base, NULL, NULL) != GEN_OK)
        fail_msg("%s", gen_last_error());
    assert_int_equal(family->reference(&plan, &c->args.base), GEN_OK);
}

/* Where things are, spelled out from args.h. */
static inline size_t at_state(const struct call *c, int32_t slot, int32_t hv, int32_t k, int32_t v)
{
    const size_t d = (size_t)c->problem.head_dim;
    const size_t matrix = (size_t)slot * (size_t)c->problem.num_v_heads + (size_t)hv;
    return c->problem.state_layout == GEN_LA_STATE_VK ? (matrix * d + (size_t)v) * d + (size_t)k
                                                      : (matrix * d + (size_t)k) * d + (size_t)v;
}

static inline size_t at_row(int64_t stride, int32_t heads, int32_t head_dim, int32_t b,
                            int32_t head, int32_t i)
{
    const int64_t row = stride ? stride : (int64_t)heads * head_dim;
    return (size_t)(b * row + (int64_t)head * head_dim + i);
}

static inline size_t at_q(const struct call *c, int32_t b, int32_t h, int32_t i)
{
    return at_row(c->args.q_stride, c->problem.num_qk_heads, c->problem.head_dim, b, h, i);
}

static inline size_t at_k(const struct call *c, int32_t b, int32_t h, int32_t i)
{
    return at_row(c->args.k_stride, c->problem.num_qk_heads, c->problem.head_dim, b, h, i);
}

static inline size_t at_v(const struct call *c, int32_t b, int32_t hv, int32_t i)
{
    return at_row(c->args.v_stride, c->problem.num_v_heads, c->problem.head_dim, b, hv, i);
}

static inline size_t at_o(const struct call *c, int32_t b, int32_t hv, int32_t i)
{
    return at_row(c->args.o_stride, c->problem.num_v_heads, c->problem.head_dim, b, hv, i);
}

#endif /* TEST_FAMILY_LA_DECODE_CALL_H */
