/* States in pools and checkpoints: what is allowed, what the kernels get, and what the reference
 * does with them. */
#include "families/kda/pools.h"
#include "kda_prefill.h"
#include "test.h"

#include <string.h>

extern const struct gen__family gen__family_kda_prefill, gen__family_gdn_prefill;
static const struct gen__family *const family = &gen__family_kda_prefill;

enum { SLOTS = 6, HEADS = 2, WIDTH = 64, STATE = HEADS * WIDTH * WIDTH, TOKENS = 150 };

static gen_kda_prefill_problem pooled_problem(int32_t state_dtype)
{
    gen_kda_prefill_problem p = kda_prefill_problem(2, TOKENS, HEADS);
    p.head_dim = WIDTH;
    p.state_pool = 1;
    p.state_dtype = state_dtype;
    return p;
}

static gen_plan plan_of(const gen_kda_prefill_problem *p)
{
    const struct gen__facts variant = kda_prefill_variant(1);
    const gen_device device = {.size = sizeof device, .num_sms = 132};
    gen_plan plan = {.size = sizeof plan};
    family->plan(&p->base, &device, &variant, &plan);
    return plan;
}

static void the_problem_says_how_states_are_kept(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_prefill_problem p = pooled_problem(GEN_STATE_BF16);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[2].name, "state_pool");
    assert_string_equal(family->required[2].values[key.codes[2]], "pool");
    p.state_pool = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    assert_string_equal(gen_last_error(), "kda_prefill: state_dtype = 1; allowed: GEN_STATE_FP32 "
                                          "(0) with state_pool = 0");
    p.state_dtype = GEN_STATE_FP32;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_int_equal(key.codes[2], 0);
    p.state_pool = 2;
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    assert_string_equal(gen_last_error(),
                        "kda_prefill: state_pool = 2; allowed: 0 (none), 1 (pool)");
    p.state_pool = 1;
    p.state_dtype = 3;
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(gen_last_error(), "kda_prefill: state_dtype = 3; allowed: "));
}

/* A list of checkpoints and slots that are right. */
static struct gen_kda_pools right_pools(void)
{
    static int slots[2], begin[3], token[4], ckpt_slot[4];
    static unsigned char has[2];
    static _Alignas(16) char pool[16];
    return (struct gen_kda_pools){
        .slots_in = slots,
        .slots_out = slots,
        .has_initial = has,
        .num_slots = SLOTS,
        .ckpt_pool = pool,
        .ckpt_begin = begin,
        .ckpt_token = token,
        .ckpt_slot = ckpt_slot,
        .num_ckpt_slots = 4,
        .num_ckpts = 4,
    };
}

static void wrong_pools_are_named(void **state)
{
    (void)state;
    gen_kda_prefill_problem p = pooled_problem(GEN_STATE_BF16);
    gen_plan plan = plan_of(&p);
    const int32_t *const dims = plan.dims;
    static _Alignas(16) char there[16];
    struct gen_kda_pools x = right_pools();
    assert_int_equal(gen__kda_check_pools("f", dims, &x, there, there), GEN_OK);
#define WRONG(change, initial, final, message)                                    \
    do {                                                                          \
        x = right_pools();                                                        \
        change;                                                                   \
        assert_int_equal(gen__kda_check_pools("f", dims, &x, initial, final),     \
                         GEN_STATUS_INVALID_ARGUMENT);                            \
        if (!strstr(gen_last_error(), message))                                   \
            fail_msg("found \"%s\", expected \"%s\"", gen_last_error(), message); \
    } while (0)
    WRONG((void)0, NULL, there, "f: pools.slots_in without initial_state; allowed: 0");
    WRONG(x.slots_in = NULL, NULL, there, "pools.has_initial without initial_state");
    WRONG((void)0, there, NULL, "pools.slots_out without final_state");
    WRONG(x.num_slots = -1, there, there, "pools.num_slots = -1; allowed: 0 (batch), or more");
    WRONG(x.null_slot = -1, there, there, "pools.null_slot = -1; allowed: 0 (none), or 1 + a slot");
    WRONG((x.slots_out = NULL, x.num_slots = 1), there, there,
          "pools.num_slots = 1 without slots_out; allowed: >= batch = 2");
    WRONG(x.stride_in = STATE - 8, there, there,
          "pools.stride_in = 8184 elements; allowed: 0 (packed), or a multiple of 8 from 8192");
    WRONG(x.stride_out = STATE + 4, there, there, "pools.stride_out = 8196 elements");
    WRONG(x.ckpt_state_stride = STATE + 4, there, there, "pools.ckpt_state_stride = 8196 elements");
    WRONG(x.num_ckpt_slots = 0, there, there, "pools.num_ckpt_slots = 0; allowed: 1 to");
    WRONG(x.ckpt_pool = there + 8, there, there, "pools.ckpt_pool = ");
    WRONG(x.ckpt_pool = NULL, there, there,
          "pools.ckpt_begin to ckpt_stride without ckpt_pool; allowed: 0");
    WRONG(x.ckpt_slot = NULL, there, there, "pools.ckpt_slot is NULL");
    WRONG(x.ckpt_token = NULL, there, there, "pools.ckpt_token is NULL");
    WRONG(x.num_ckpts = -1, there, there, "pools.num_ckpts = -1");
    WRONG(x.ckpt_every = 1, there, there, "pools.ckpt_every = 1; allowed: 0 with ckpt_begin");
    WRONG((x.ckpt_begin = NULL, x.ckpt_token = NULL, x.num_ckpts = 0), there, there,
          "pools.ckpt_every = 0; allowed: 1 or more without ckpt_begin");
    WRONG((x.ckpt_begin = NULL, x.ckpt_token = NULL, x.num_ckpts = 0, x.ckpt_every = 2), there,
          there, "pools.ckpt_stride = 0; allowed: 1 or more without ckpt_begin");
    WRONG((x.ckpt_begin = NULL, x.ckpt_every = 2, x.ckpt_stride = 1), there, there,
          "pools.num_ckpts = 4");
#undef WRONG
    p.state_pool = 0;
    p.state_dtype = GEN_STATE_FP32;
    plan = plan_of(&p);
    x = (struct gen_kda_pools){.null_slot = 1};
    assert_int_equal(gen__kda_check_pools("f", dims, &x, there, there),
                     GEN_STATUS_INVALID_ARGUMENT);
    assert_string_equal(gen_last_error(),
                        "f: pools is not 0 with state_pool = 0; allowed: all of it 0");
    x.null_slot = 0;
    assert_int_equal(gen__kda_check_pools("f", dims, &x, there, there), GEN_OK);
}

static void kernels_get_strides_and_the_null_slot_spelled_out(void **state)
{
    (void)state;
    const gen_kda_prefill_problem p = pooled_problem(GEN_STATE_FP16);
    const gen_plan plan = plan_of(&p);
    const struct gen_kda_pools x = {.null_slot = 3, .stride_out = STATE + 8};
    struct gen_kda_pool_params k;
    gen__kda_pool_params(plan.dims, &x, &k);
    assert_true(k.at.stride_in == STATE && k.at.stride_out == STATE + 8);
    assert_true(k.at.num_slots == 2 && k.at.null_slot == 2 && k.narrow && k.fp16);
    const struct gen_kda_pools none = {0};
    gen__kda_pool_params(plan.dims, &none, &k);
    assert_int_equal(k.at.null_slot, -1);
}

static void checkpoints_are_found_in_either_form(void **state)
{
    (void)state;
    const int begin[] = {0, 3, 3}, token[] = {0, 65, 128}, slot[] = {2, 1, 9};
    char pool;
    struct gen_kda_pools x = {.ckpt_pool = &pool,
                              .ckpt_begin = begin,
                              .ckpt_token = token,
                              .ckpt_slot = slot,
                              .num_ckpts = 3,
                              .num_ckpt_slots = 3};
    assert_int_equal(gen__kda_checkpoint_slot(&x, 0, 0), 2);
    assert_int_equal(gen__kda_checkpoint_slot(&x, 0, 65), -1);  /* no multiple of 64 */
    assert_int_equal(gen__kda_checkpoint_slot(&x, 0, 128), -1); /* no such slot */
    assert_int_equal(gen__kda_checkpoint_slot(&x, 1, 0), -1);
    const int table[] = {0, 1, 2, 0};
    x = (struct gen_kda_pools){.ckpt_pool = &pool,
                               .ckpt_slot = table,
                               .ckpt_every = 2,
                               .ckpt_stride = 2,
                               .num_ckpt_slots = 3,
                               .null_slot = 1};
    assert_int_equal(gen__kda_checkpoint_slot(&x, 0, 0), -1);
    assert_int_equal(gen__kda_checkpoint_slot(&x, 0, 128), -1); /* the null one */
    assert_int_equal(gen__kda_checkpoint_slot(&x, 0, 256), 1);
    assert_int_equal(gen__kda_checkpoint_slot(&x, 1, 128), 2);
    assert_int_equal(gen__kda_checkpoint_slot(&x, 1, 192), -1);
    assert_int_equal(gen__kda_checkpoint_slot(&x, 1, 384), -1); /* beyond the columns */
}

/* The reference's state behind 64 tokens is what a call of 64 tokens ends with. */
static void a_checkpoint_is_the_final_state_of_the_cut_call(void **state)
{
    (void)state;
    uint64_t random = 3;
    const int64_t elements = (int64_t)TOKENS * HEADS * WIDTH;
    gen_kda_prefill_problem p = pooled_problem(GEN_STATE_FP32);
    p.batch = 1;
    gen_plan plan = plan_of(&p);
    uint16_t *const qkv = random_bf16(3 * elements, 1, &random);
    uint16_t *const o = calloc((size_t)elements, sizeof *o);
    float *const g = random_fp32(elements, -1, 1, &random);
    float *const beta = random_fp32(TOKENS * HEADS, 0.5, 0.5, &random);
    float *const pool = random_fp32((int64_t)SLOTS * STATE, 0, 1, &random);
    float *const cut = calloc(STATE, sizeof *cut);
    const int in = 3, out = 1, begin[] = {0, 1}, token = 64, slot = 5;
    gen_kda_prefill_args a;
    family->default_args(&p.base, &a.base);
    a.q = qkv, a.k = qkv + elements, a.v = qkv + 2 * elements, a.g = g, a.beta = beta, a.o = o;
    a.gate_form = GEN_KDA_GATE_GIVEN;
    a.initial_state = pool, a.final_state = pool;
    a.pools = (struct gen_kda_pools){.slots_in = &in,
                                     .slots_out = &out,
                                     .num_slots = SLOTS,
                                     .ckpt_pool = pool,
                                     .ckpt_begin = begin,
                                     .ckpt_token = &token,
                                     .ckpt_slot = &slot,
                                     .num_ckpts = 1,
                                     .num_ckpt_slots = SLOTS};
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    p.seq_len = 64;
    plan = plan_of(&p);
    a.pools = (struct gen_kda_pools){.slots_in = &in, .num_slots = SLOTS};
    a.final_state = cut;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_memory_equal(cut, pool + 5 * STATE, STATE * sizeof *cut);
    free(qkv), free(o), free(g), free(beta), free(pool), free(cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_problem_says_how_states_are_kept),
        cmocka_unit_test(wrong_pools_are_named),
        cmocka_unit_test(kernels_get_strides_and_the_null_slot_spelled_out),
        cmocka_unit_test(checkpoints_are_found_in_either_form),
        cmocka_unit_test(a_checkpoint_is_the_final_state_of_the_cut_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
