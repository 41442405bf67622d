/*
 * attn_fwd's problems for the tuner, the verifier and the tests: room for each
 * way to pass them, what stands where no kernel may read, costs and names.
 */
#include "attn_fwd.h"

static const struct gen__family *const family = &gen__family_attn_fwd;

/* ---- the tests' own problems -------------------------------------------- */

static int64_t last_of(const struct gen_attn_strides *s, int64_t batch, int64_t rows, int64_t heads,
                       int64_t width)
{
    return (batch - 1) * s->batch + (rows - 1) * s->row + (heads - 1) * s->head + width;
}

/* Each way to pass a problem is allowed, and its tensors have room for what it names. */
static void forms(void **state)
{
    (void)state;
    for (int varlen = 0; varlen < 2; varlen++)
        for (int form = -1; form < ATTN_FWD_NUM_FORMS; form++) {
            gen_attn_fwd_problem p = attn_problem();
            struct gen__tensor t[ATTN_FWD_NUM_TENSORS];
            const bool joint = form >= 0 && strcmp(family->forms[form], "joint") == 0;
            p.varlen = varlen;
            p.batch = 5;
            p.kv_len = joint ? p.q_len : p.kv_len;
            gen_attn_fwd_args a = attn_args(&p);
            assert_int_equal(family->tensors(&p.base, t), ATTN_FWD_NUM_TENSORS);
            const bool given = form < 0 || family->form(&p.base, (uint32_t)form, &a.base, t);
            if (form >= 0 && strcmp(family->forms[form], "cut") == 0)
                assert_int_equal(given, varlen);
            else if (form >= 0 && strcmp(family->forms[form], "descales") == 0)
                assert_false(given); /* of 16 bits */
            else
                assert_int_equal(given, !joint || !varlen);
            if (!given)
                continue;
            gen_plan plan = {0};
            family->plan(&p.base, NULL, NULL, &plan);
            assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
            const struct gen__attn_strides s = gen__attn_fwd_strides(plan.dims, &a);
            const int64_t batch = varlen ? 1 : p.batch, q = varlen ? a.total_q : p.q_len;
            const int64_t kv = varlen ? a.total_k : p.kv_len, heads = p.num_q_heads;
            const int64_t last[] = {last_of(&s.q, batch, q, heads, p.head_dim),
                                    last_of(&s.k, batch, kv, p.num_kv_heads, p.head_dim),
                                    last_of(&s.v, batch, kv, p.num_kv_heads, p.head_dim),
                                    last_of(&s.o, batch, q, heads, p.head_dim),
                                    last_of(&s.lse, batch, q, heads, 1)};
            for (int i = 0; i <= ATTN_FWD_LSE; i++) {
                const struct gen__tensor *room = t[i].view_of ? &t[t[i].view_of - 1] : &t[i];
                if (room->count || i != ATTN_FWD_LSE) /* absent without lse */
                    assert_true((int64_t)t[i].view_at + last[i] <= (int64_t)room->count);
            }
        }
}

/* What no kernel may read is poison, and nothing else: NaN and infinity in rows of a request
 * without queries and behind the last one. */
static void poison(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    struct gen__tensor t[ATTN_FWD_NUM_TENSORS];
    static uint16_t k[5 * 505 * 4 * 128];
    int32_t cu_q[6], cu_k[6];
    void *const data[ATTN_FWD_NUM_TENSORS] = {
        [ATTN_FWD_K] = k, [ATTN_FWD_CU_Q] = cu_q, [ATTN_FWD_CU_K] = cu_k};
    const struct gen__fill_options options = {.non_finite = true};
    p.batch = 5;
    p.varlen = 1;
    gen_attn_fwd_args a;
    family->default_args(&p.base, &a.base);
    family->tensors(&p.base, t);
    assert_true(t[ATTN_FWD_K].count <= sizeof k / sizeof *k);
    memset(k, 0, sizeof k);
    assert_int_equal(family->fill(&p.base, &a.base, t, &options, data), GEN_OK);
    assert_int_equal(cu_q[1], 300); /* the longest; the second has no keys, the fourth no queries */
    assert_int_equal(cu_k[1], 500);
    assert_int_equal(cu_k[2], cu_k[1]);
    assert_int_equal(cu_q[4], cu_q[3]);
    assert_true(cu_k[4] > cu_k[3] && cu_k[5] < a.total_k && cu_q[5] < a.total_q);
    for (int64_t i = 0; i < (int64_t)t[ATTN_FWD_K].count; i++) {
        const int64_t row = i / (4 * 128);
        const bool unused = (row >= cu_k[3] && row < cu_k[4]) || row >= cu_k[5];
        assert_int_equal(k[i], !unused ? 0 : i % 2 ? 0x7f80 : 0x7fff);
    }
}

/* Of 8 bits: NaN and, where the type has it, infinity; descales for every request and key head. */
static void poison_of_8_bits(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    struct gen__tensor t[ATTN_FWD_NUM_TENSORS];
    static uint8_t k[5 * 505 * 4 * 128];
    int32_t cu_q[6], cu_k[6];
    float descales[3][20];
    void *const data[ATTN_FWD_NUM_TENSORS] = {
        [ATTN_FWD_K] = k,
        [ATTN_FWD_CU_Q] = cu_q,
        [ATTN_FWD_CU_K] = cu_k,
        [ATTN_FWD_Q_DESCALE] = descales[0],
        [ATTN_FWD_K_DESCALE] = descales[1],
        [ATTN_FWD_V_DESCALE] = descales[2],
    };
    const struct gen__fill_options options = {.non_finite = true};
    p.batch = 5;
    p.varlen = 1;
    p.dtype = GEN_DTYPE_E5M2;
    gen_attn_fwd_args a;
    family->default_args(&p.base, &a.base);
    family->tensors(&p.base, t);
    assert_true(t[ATTN_FWD_K].count <= sizeof k && t[ATTN_FWD_O].dtype == GEN_DTYPE_BF16);
    assert_true(family->form(&p.base, ATTN_FWD_NUM_FORMS - 1, &a.base, t));
    assert_int_equal(t[ATTN_FWD_V_DESCALE].count, 20);
    memset(k, 0, sizeof k);
    assert_int_equal(family->fill(&p.base, &a.base, t, &options, data), GEN_OK);
    for (int64_t i = 0; i < (int64_t)t[ATTN_FWD_K].count; i++) {
        const int64_t row = i / (4 * 128);
        const bool unused = (row >= cu_k[3] && row < cu_k[4]) || row >= cu_k[5];
        assert_int_equal(k[i], !unused ? 0 : i % 2 ? 0x7c : 0x7f);
    }
    for (int i = 0; i < 20; i++) {
        assert_true(descales[0][i] >= 0.5f && descales[0][i] < 1.5f);
        assert_true(descales[0][i] != descales[1][i]);
        assert_true(i % 2 ? descales[2][i] < 0 : descales[2][i] > 0);
    }
    p.o_dtype = GEN_DTYPE_FP16;
    family->tensors(&p.base, t);
    assert_int_equal(t[ATTN_FWD_O].dtype, GEN_DTYPE_FP16);
}

/* ---- cost, names, counts ------------------------------------------------ */

static void costs(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    double bytes, flops;
    family->cost(&p.base, &bytes, &flops);
    assert_true(flops == 4.0 * 2 * 8 * 300 * 500 * 128);
    assert_true(bytes == 2.0 * (300 * 8 + 500 * 4) * 128 * 4 + 2.0 * 300 * 8 * 4);
    p.dtype = GEN_DTYPE_E4M3; /* o stays bf16 */
    family->cost(&p.base, &bytes, &flops);
    assert_true(bytes == 2.0 * (300 * 8 * 3 + 500 * 4 * 2) * 128 + 2.0 * 300 * 8 * 4);
    p.causal = 1;
    p.kv_len = 300; /* half of all */
    family->cost(&p.base, &bytes, &flops);
    assert_true(flops == 2.0 * 2 * 8 * 300 * 300 * 128);
    p.kv_len = 500; /* 200 and half of 300 */
    family->cost(&p.base, &bytes, &flops);
    assert_true(flops == 4.0 * 2 * 8 * 300 * 350 * 128);
    p.q_len = 3, p.kv_len = 2; /* rows see 0, 1, 2 */
    family->cost(&p.base, &bytes, &flops);
    assert_true(flops == 4.0 * 2 * 8 * 3 * 128);
    p.causal = 0, p.q_len = p.kv_len = 5;
    p.left_window = 2, p.right_window = 3; /* 3, 4, 4, 3, 2 */
    family->cost(&p.base, &bytes, &flops);
    assert_true(flops == 4.0 * 2 * 8 * 16 * 128);
}

static void names_and_counts(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    char name[128];
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "Z2-H8of4-D128-N300of500-full-bf16");
    const float counts[] = {128, 4096, 8192}, odd[] = {14, 100, 100};
    family->set_counts(&p.base, counts);
    p.causal = p.varlen = p.softcap = 1, p.left_window = 8, p.dtype = GEN_DTYPE_FP16;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "Z4-H32-D128-N4096of8192-causal-window7_-1-varlen-softcap-fp16");
    p.dtype = GEN_DTYPE_E4M3, p.left_window = 0, p.varlen = p.softcap = 0;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "Z4-H32-D128-N4096of8192-causal-e4m3");
    p.o_dtype = GEN_DTYPE_FP16;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "Z4-H32-D128-N4096of8192-causal-ofp16-e4m3");
    family->set_counts(&p.base, odd);
    assert_int_equal(p.batch * p.num_q_heads, 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(poison),
        cmocka_unit_test(poison_of_8_bits),
        cmocka_unit_test(costs),
        cmocka_unit_test(names_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
