/* Gated DeltaNet: its references are KDA's with a head's gate in every channel, and messages name
 * it. */
#include "families/gdn_decode/api.h"
#include "families/gdn_prefill/api.h"
#include "kda_prefill.h"
#include "test.h"

#include <string.h>

extern const struct gen__family gen__family_kda_prefill, gen__family_gdn_prefill,
    gen__family_gdn_decode;

enum { TOKENS = 70, HEADS = 3, WIDTH = 64, ELEMENTS = TOKENS * HEADS * WIDTH };

/* `gates`: of each token and head, one or WIDTH. */
static void run(const struct gen__family *family, uint32_t tag, const float *gates, uint16_t *o,
                float *final)
{
    uint64_t random = 5;
    gen_kda_prefill_problem p = kda_prefill_problem(1, TOKENS, 1);
    p.base.family = tag;
    p.num_v_heads = HEADS;
    p.head_dim = WIDTH;
    gen_plan plan = {.size = sizeof plan};
    memcpy(plan.dims, &p.batch, KDA_NUM_DIMS * sizeof(int32_t));
    gen_kda_prefill_args a;
    family->default_args(&p.base, &a.base);
    assert_int_equal(a.base.family, tag);
    uint16_t *const qk = random_bf16(2 * TOKENS * WIDTH, 2, &random);
    uint16_t *const v = random_bf16(ELEMENTS, 2, &random);
    float *const beta = random_fp32(TOKENS * HEADS, 0.5, 0.5, &random);
    a.q = qk;
    a.k = qk + TOKENS * WIDTH;
    a.v = v;
    a.g = gates;
    a.beta = beta;
    a.o = o;
    a.final_state = final;
    a.gate_form = GEN_KDA_GATE_GIVEN;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    free(qk), free(v), free(beta);
}

static void prefill_is_kda_with_equal_gates(void **state)
{
    (void)state;
    static uint16_t o[2][ELEMENTS];
    static float final[2][HEADS * WIDTH * WIDTH], wide[ELEMENTS];
    uint64_t random = 9;
    float *const gates = random_fp32(TOKENS * HEADS, -1, 1, &random);
    for (int64_t i = 0; i < ELEMENTS; i++)
        wide[i] = gates[i / WIDTH];
    run(&gen__family_gdn_prefill, GEN_GDN_PREFILL, gates, o[0], final[0]);
    run(&gen__family_kda_prefill, GEN_KDA_PREFILL, wide, o[1], final[1]);
    assert_memory_equal(o[0], o[1], sizeof o[0]);
    assert_memory_equal(final[0], final[1], sizeof final[0]);
    gates[TOKENS] += 0.5f; /* a gate matters */
    run(&gen__family_gdn_prefill, GEN_GDN_PREFILL, gates, o[1], final[1]);
    assert_true(memcmp(o[0], o[1], sizeof o[0]) != 0);
    free(gates);
}

static void messages_name_the_family(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_prefill_problem p = kda_prefill_problem(1, 64, 2);
    p.base.family = GEN_GDN_PREFILL;
    p.num_v_heads = 3;
    assert_int_equal(gen__family_gdn_prefill.check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(gen_last_error(), "gdn_prefill: head count num_v_heads = 3"));
    gen_gdn_decode_problem d = {.base = {sizeof d, GEN_GDN_DECODE, 0, 0}, .batch = -1};
    assert_int_equal(gen__family_gdn_decode.check(&d.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(gen_last_error(), "gdn_decode: batch = -1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_is_kda_with_equal_gates),
        cmocka_unit_test(messages_name_the_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
