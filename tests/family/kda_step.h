/* Problems, variants and calls for the tests of kda_step and gdn_step. */
#ifndef TEST_FAMILY_KDA_STEP_H
#define TEST_FAMILY_KDA_STEP_H

#include "families/kda/step.h"
#include "fixture.h"

#include <stdlib.h>

extern const struct gen__family gen__family_kda_step, gen__family_gdn_step;

static inline const struct gen__family *step_family(uint32_t tag)
{
    return tag == GEN_GDN_STEP ? &gen__family_gdn_step : &gen__family_kda_step;
}

static inline gen_kda_step_problem step_problem(int32_t batch, int32_t qk_heads, int32_t v_heads)
{
    return (gen_kda_step_problem){
        .base = {.size = sizeof(gen_kda_step_problem), .family = GEN_KDA_STEP},
        .batch = batch,
        .num_qk_heads = qk_heads,
        .num_v_heads = v_heads,
        .head_dim = 128,
        .dtype = GEN_DTYPE_BF16,
        .gate_dtype = GEN_DTYPE_BF16,
        .beta_dtype = GEN_DTYPE_BF16,
    };
}

static inline gen_plan step_plan(gen_kda_step_problem p, const gen_device *device,
                                 const struct gen__facts *facts)
{
    gen_plan plan = {.size = sizeof plan, .family = p.base.family};
    step_family(p.base.family)->plan(&p.base, device, facts, &plan);
    assert_int_equal(plan.workspace_bytes, 0);
    return plan;
}

/* 256 threads of 64 registers. */
static inline struct gen__facts step_variant(int32_t blocks)
{
    return (struct gen__facts){
        .index = 17,
        .threads = 256,
        .registers = 64,
        .cluster = (uint32_t)blocks,
        .fact = {[KDA_STEP_BLOCKS] = blocks, [KDA_STEP_THREAD_BYTES] = 256 / blocks}};
}

/* A call of the reference with its tensors, of one form of the arguments (-1: none). */
struct step_call {
    const struct gen__family *family;
    gen_kda_step_problem problem;
    gen_kda_step_args args;
    struct gen__tensor tensor[GEN__MAX_TENSORS];
    void *data[GEN__MAX_TENSORS]; /* NULL: not there */
    gen_plan plan;
};

static inline void step_fill(struct step_call *c, uint32_t t)
{
    const struct gen__tensor *tensor = &c->tensor[t];
    uint64_t seed = t + 1;
    for (uint64_t i = 0; i < tensor->count; i++) {
        const double unit = random_unit(&seed);
        if (tensor->fill == GEN__FILL_SLOTS) /* distinct, from the end */
            ((int32_t *)c->data[t])[i] = (int32_t)tensor->amount - 1 - (int32_t)i;
        else if (tensor->fill == GEN__FILL_POISON)
            ((uint16_t *)c->data[t])[i] = 0x5b5b;
        else
            element_put(tensor->dtype, c->data[t], (int64_t)i,
                        tensor->mean +
                            tensor->amount *
                                (tensor->fill == GEN__FILL_UNIFORM ? (unit + 1) / 2 : unit));
    }
}

/* False where the problem has no such form. */
static inline bool step_open(struct step_call *c, gen_kda_step_problem problem, int form)
{
    const gen_device cpu = {.size = sizeof cpu, .backend = GEN_BACKEND_CPU, .ordinal = -1};
    struct gen__key key;
    memset(c, 0, sizeof *c);
    c->family = step_family(problem.base.family);
    c->problem = problem;
    if (c->family->check(&problem.base, &key) != GEN_OK)
        fail_msg("%s", gen_last_error());
    assert_int_equal(c->family->tensors(&problem.base, c->tensor), KDA_STEP_NUM_TENSORS);
    c->family->default_args(&problem.base, &c->args.base);
    if (form >= 0 && !c->family->form(&problem.base, (uint32_t)form, &c->args.base, c->tensor))
        return false;
    for (uint32_t t = 0; t < KDA_STEP_NUM_TENSORS; t++) {
        const size_t bytes = c->tensor[t].count * element_size(c->tensor[t].dtype);
        if (!bytes)
            continue;
        c->data[t] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_non_null(c->data[t]);
        step_fill(c, t);
        memcpy((char *)&c->args + c->tensor[t].pointer_offset, &c->data[t], sizeof c->data[t]);
    }
    c->plan = step_plan(problem, &cpu, NULL);
    if (c->family->params(&c->plan, 0, &c->args.base, NULL, NULL) != GEN_OK)
        fail_msg("%s", gen_last_error());
    return true;
}

static inline void step_close(struct step_call *c)
{
    for (uint32_t t = 0; t < KDA_STEP_NUM_TENSORS; t++)
        free(c->data[t]);
}

static inline void step_run(struct step_call *c)
{
    assert_int_equal(c->family->reference(&c->plan, &c->args.base), GEN_OK);
}

#endif /* TEST_FAMILY_KDA_STEP_H */
