/* A call of kda_decode's reference with its tensors, of one form of the arguments. */
#ifndef TEST_FAMILY_KDA_DECODE_CALL_H
#define TEST_FAMILY_KDA_DECODE_CALL_H

#include "fixture.h"
#include "kda_decode.h"
#include "reference/state.h"

#include <stdlib.h>

static const struct gen__family *const family = &gen__family_kda_decode;

/* A call with its tensors, of one form of the arguments (-1: none). */
struct call {
    gen_kda_decode_problem problem;
    gen_kda_decode_args args;
    struct gen__tensor tensor[GEN__MAX_TENSORS];
    void *data[GEN__MAX_TENSORS]; /* NULL: not there */
    gen_plan plan;
};

static inline void fill(struct call *c, uint32_t t, uint64_t seed)
{
    const struct gen__tensor *tensor = &c->tensor[t];
    for (uint64_t i = 0; i < tensor->count; i++) {
        const double unit = random_unit(&seed);
        if (tensor->fill == GEN__FILL_SLOTS) /* distinct, from the end */
            ((int32_t *)c->data[t])[i] = (int32_t)tensor->amount - 1 - (int32_t)i;
        else if (tensor->fill == GEN__FILL_UNIFORM)
            element_put(tensor->dtype, c->data[t], (int64_t)i, tensor->amount * (unit + 1) / 2);
        else if (tensor->fill == GEN__FILL_NORMAL)
            element_put(tensor->dtype, c->data[t], (int64_t)i, tensor->amount * unit);
        else
            memset((char *)c->data[t] + i * element_size(tensor->dtype), 0x5b,
                   element_size(tensor->dtype));
    }
}

/* False where the problem has no such form. */
static inline bool open_call(struct call *c, gen_kda_decode_problem problem, int form, bool padding)
{
    const gen_device cpu = {.size = sizeof cpu, .backend = GEN_BACKEND_CPU, .ordinal = -1};
    struct gen__key key;
    memset(c, 0, sizeof *c);
    c->problem = problem;
    if (family->check(&problem.base, &key) != GEN_OK)
        fail_msg("%s", gen_last_error());
    assert_int_equal(family->tensors(&problem.base, c->tensor), KDA_DECODE_NUM_TENSORS);
    family->default_args(&problem.base, &c->args.base);
    if (form >= 0 && !family->form(&problem.base, (uint32_t)form, &c->args.base, c->tensor))
        return false;
    for (uint32_t t = 0; t < KDA_DECODE_NUM_TENSORS; t++) {
        const size_t bytes = c->tensor[t].count * element_size(c->tensor[t].dtype);
        if (!bytes)
            continue;
        c->data[t] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_non_null(c->data[t]);
        fill(c, t, t + 1);
        memcpy((char *)&c->args + c->tensor[t].pointer_offset, &c->data[t], sizeof c->data[t]);
    }
    const struct gen__fill_options options = {.seed = 5, .padding = padding};
    assert_int_equal(family->fill(&problem.base, &c->args.base, c->tensor, &options, c->data),
                     GEN_OK);
    c->plan = kda_plan(problem, &cpu, NULL);
    if (family->params(&c->plan, 0, &c->args.base, NULL, NULL) != GEN_OK)
        fail_msg("%s", gen_last_error());
    return true;
}

static inline void close_call(struct call *c)
{
    for (uint32_t t = 0; t < KDA_DECODE_NUM_TENSORS; t++)
        free(c->data[t]);
}

static inline void run(struct call *c)
{
    assert_int_equal(family->reference(&c->plan, &c->args.base), GEN_OK);
}

/* Element [k, v] of a head's state. */
static inline int64_t state_at(const struct call *c, int64_t slot, int64_t head, int64_t k,
                               int64_t v)
{
    const int64_t d = c->problem.head_dim;
    const bool vk = c->problem.state_layout == GEN_KDA_STATE_VK;
    const int64_t packed = c->problem.num_v_heads * d * d;
    return slot * (c->args.state_stride ? c->args.state_stride : packed) + head * d * d +
           (vk ? v * d + k : k * d + v);
}

static inline double state_get(const struct call *c, int64_t i)
{
    return gen__state_get(c->problem.state_dtype, c->args.state, i);
}

/* One head of 64, every tensor zero but what the test sets. */
static inline void open_zero(struct call *c, int32_t tokens, int32_t layout)
{
    gen_kda_decode_problem p = kda_problem(1, tokens, 1, 1, 64);
    p.state_layout = layout;
    p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
    assert_true(open_call(c, p, -1, false));
    for (uint32_t t = 0; t < KDA_DECODE_NUM_TENSORS; t++)
        if (t < KDA_DECODE_SLOTS && c->data[t])
            memset(c->data[t], 0, c->tensor[t].count * element_size(c->tensor[t].dtype));
    c->args.scale = 0.5f;
    c->args.qk_l2norm = 0;
    c->args.gate_form = GEN_KDA_GATE_GIVEN;
    c->args.beta_form = GEN_KDA_BETA_GIVEN;
    c->args.A_log = c->args.dt_bias = NULL;
}

#endif /* TEST_FAMILY_KDA_DECODE_CALL_H */
