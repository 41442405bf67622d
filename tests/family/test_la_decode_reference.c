/*
 * The reference of la_decode against cases computed by hand, against closed
 * forms, and against a recurrence written in another way.
 */
#include "la_decode_call.h"

#include <math.h>

/* ---- by hand ----------------------------------------------------------- */

/* One entry: h = 0.5 * 4 + 1 * 3 = 5, o = 0.25 * 2 * 5 = 2.5. */
static void one_entry(void **state)
{
    (void)state;
    for (int32_t layout = 0; layout < 2; layout++) {
        gen_la_decode_problem problem = la_problem(1, 1, 1, 64);
        problem.state_layout = layout;
        struct call *c = new_call(problem, 0, 0);
        c->q[3] = encoded(c, 2);
        c->k[3] = encoded(c, 1);
        c->v[5] = encoded(c, 3);
        c->decay[0] = (float)log(2);
        c->args.scale = 0.25f;
        const size_t entry = layout == GEN_LA_STATE_VK ? 5 * 64 + 3 : 3 * 64 + 5;
        c->state[entry] = 4;
        run(c);
        for (size_t i = 0; i < c->state_count; i++)
            assert_true(i == entry ? fabs(c->state[i] - 5.0) < 1e-6 : c->state[i] == 0);
        for (size_t i = 0; i < 64; i++)
            assert_true(decoded(c, c->o[i]) == (i == 5 ? 2.5 : 0));
        free_call(c);
    }
}

/* What no other entry adds to decays alone, and q sees it. */
static void decay_alone(void **state)
{
    (void)state;
    struct call *c = new_call(la_problem(1, 1, 1, 64), 0, 0);
    c->q[7] = encoded(c, 1);
    c->decay[0] = 1;
    c->args.scale = -2;
    c->state[at_state(c, 0, 0, 7, 9)] = 8;
    run(c);
    assert_true(c->state[at_state(c, 0, 0, 7, 9)] == (float)(8 * 0.36787944117144233));
    assert_int_equal(c->o[9], encoded(c, -2 * 8 * 0.36787944117144233));
    free_call(c);
}

/* Without decay, from zero, the same token n times: h = n k v, o = n scale (q.k) v. */
static void same_token_without_decay(void **state)
{
    (void)state;
    struct call *c = new_call(la_problem(1, 1, 1, 64), 0, 0);
    for (size_t i = 0; i < 64; i++) {
        c->q[i] = encoded(c, 1);
        c->k[i] = encoded(c, (double)i);
        c->v[i] = encoded(c, -(double)i);
    }
    for (int n = 1; n <= 3; n++) {
        run(c);
        for (int32_t k = 0; k < 64; k++)
            for (int32_t v = 0; v < 64; v++)
                assert_true(c->state[at_state(c, 0, 0, k, v)] == (float)(-n * k * v));
        for (int32_t v = 0; v < 64; v++) /* 0 + 1 + .. + 63 = 2016, scale = 1/8 */
            assert_true(decoded(c, c->o[v]) == decoded(c, encoded(c, -n * 2016 / 8.0 * v)));
    }
    free_call(c);
}

/* After n tokens h = sum over i of lam^(n-1-i) k_i v_i. */
static void closed_form_of_a_sequence(void **state)
{
    (void)state;
    enum { STEPS = 6, D = 64 };
    struct call *c = new_call(la_problem(1, 1, 1, D), 0, 0);
    double k[STEPS][D], v[STEPS][D];
    uint64_t seed = 3;
    c->decay[0] = 0.75f;
    for (int n = 0; n < STEPS; n++) {
        for (int i = 0; i < D; i++) {
            k[n][i] = decoded(c, c->k[i] = encoded(c, random_unit(&seed)));
            v[n][i] = decoded(c, c->v[i] = encoded(c, random_unit(&seed)));
        }
        run(c);
    }
    for (int ik = 0; ik < D; ik++)
        for (int iv = 0; iv < D; iv++) {
            double h = 0;
            for (int n = 0; n < STEPS; n++)
                h += exp(-0.75 * (STEPS - 1 - n)) * k[n][ik] * v[n][iv];
            assert_true(fabs(c->state[at_state(c, 0, 0, ik, iv)] - h) < 1e-6);
        }
    free_call(c);
}

/* ---- against another way of writing it --------------------------------- */

/* With the old state only: o[v] = lam * sum_k scale q[k] h[k,v] + scale (q.k) v[v]. */
static void check_head(const struct call *c, const float *old_state, int32_t b, int32_t hv)
{
    const gen_la_decode_problem *p = &c->problem;
    const int32_t d = p->head_dim, slot = c->slots[b];
    const int32_t qh = hv / (p->num_v_heads / p->num_qk_heads);
    const float decay = c->args.num_decays == p->num_v_heads ? c->decay[hv] : c->decay[qh];
    const long double lam = expl(-(long double)decay);
    const long double unit = p->dtype == GEN_DTYPE_FP16 ? 0x1p-11L : 0x1p-8L;
    long double qk = 0;
    for (int32_t i = 0; i < d; i++)
        qk += (long double)decoded(c, c->q[at_q(c, b, qh, i)]) *
              (long double)decoded(c, c->k[at_k(c, b, qh, i)]);
    for (int32_t iv = 0; iv < d; iv++) {
        const long double v = (long double)decoded(c, c->v[at_v(c, b, hv, iv)]);
        long double qh_old = 0;
        for (int32_t ik = 0; ik < d; ik++) {
            const size_t at = at_state(c, slot, hv, ik, iv);
            const long double k = (long double)decoded(c, c->k[at_k(c, b, qh, ik)]);
            const long double h = lam * (long double)old_state[at] + k * v;
            qh_old +=
                (long double)decoded(c, c->q[at_q(c, b, qh, ik)]) * (long double)old_state[at];
            /* double's error is far below fp32's rounding, but may cross a tie */
            if (fabsl((long double)c->state[at] - h) > 0x1.00001p-24L * fabsl(h))
                fail_msg("state of row %d, head %d at k %d, v %d: %.9g, not %.9Lg", b, hv, ik, iv,
                         (double)c->state[at], h);
        }
        const long double o = (long double)c->args.scale * (lam * qh_old + qk * v);
        const long double found = (long double)decoded(c, c->o[at_o(c, b, hv, iv)]);
        if (fabsl(found - o) > unit * fabsl(o) + 0x1p-25L)
            fail_msg("o of row %d, head %d at %d: %.9Lg, not %.9Lg", b, hv, iv, found, o);
    }
}

static void check_against_identity(gen_la_decode_problem problem, bool v_decays, int64_t gap)
{
    struct call *c = new_call(problem, 2, gap);
    fill(c, (uint64_t)(problem.head_dim + problem.batch));
    c->args.num_decays = v_decays ? problem.num_v_heads : problem.num_qk_heads;
    for (int32_t b = 0; b < problem.batch; b++)
        c->slots[b] = (b * 3 + 1) % c->args.num_slots;
    float *old_state = allocate(c->state_count, sizeof(float));
    memcpy(old_state, c->state, c->state_count * sizeof(float));
    run(c);
    for (int32_t b = 0; b < problem.batch; b++)
        for (int32_t hv = 0; hv < problem.num_v_heads; hv++)
            check_head(c, old_state, b, hv);
    free(old_state);
    free_call(c);
}

/* 3 * b + 1 modulo 5 or 7 visits distinct slots. */
static void identity(void **state)
{
    (void)state;
    static const int32_t head_dims[] = {64, 128, 256};
    for (int i = 0; i < 3; i++)
        for (int32_t dtype = 0; dtype < 2; dtype++)
            for (int32_t layout = 0; layout < 2; layout++)
                for (int32_t group = 1; group <= 3; group++) {
                    gen_la_decode_problem p = la_problem(3, 2, 2 * group, head_dims[i]);
                    p.dtype = dtype;
                    p.state_layout = layout;
                    check_against_identity(p, false, 0);
                    check_against_identity(p, true, 8);
                }
}

/* ---- equal to the bit -------------------------------------------------- */

static void layouts_are_transposes(void **state)
{
    (void)state;
    gen_la_decode_problem problem = la_problem(3, 2, 4, 128);
    struct call *vk = new_call(problem, 0, 0);
    problem.state_layout = GEN_LA_STATE_KV;
    struct call *kv = new_call(problem, 0, 0);
    fill(vk, 5);
    fill(kv, 5);
    for (int32_t m = 0; m < 3 * 4; m++)
        for (int32_t k = 0; k < 128; k++)
            for (int32_t v = 0; v < 128; v++)
                kv->state[at_state(kv, m / 4, m % 4, k, v)] =
                    vk->state[at_state(vk, m / 4, m % 4, k, v)];
    run(vk);
    run(kv);
    assert_memory_equal(vk->o, kv->o, vk->o_count * 2);
    for (int32_t m = 0; m < 3 * 4; m++)
        for (int32_t k = 0; k < 128; k++)
            for (int32_t v = 0; v < 128; v++)
                assert_true(kv->state[at_state(kv, m / 4, m % 4, k, v)] ==
                            vk->state[at_state(vk, m / 4, m % 4, k, v)]);
    free_call(vk);
    free_call(kv);
}

/* A group of value heads sees what repeated q, k and decay show. */
static void groups_are_repeated_heads(void **state)
{
    (void)state;
    enum { B = 2, H = 3, HV = 12, D = 64 };
    struct call *grouped = new_call(la_problem(B, H, HV, D), 0, 0);
    struct call *flat = new_call(la_problem(B, HV, HV, D), 0, 0);
    fill(grouped, 6);
    memcpy(flat->v, grouped->v, flat->v_count * 2);
    memcpy(flat->state, grouped->state, flat->state_count * sizeof(float));
    for (int32_t hv = 0; hv < HV; hv++) {
        flat->decay[hv] = grouped->decay[hv / (HV / H)];
        for (int32_t b = 0; b < B; b++)
            for (int32_t i = 0; i < D; i++) {
                flat->q[at_q(flat, b, hv, i)] = grouped->q[at_q(grouped, b, hv / (HV / H), i)];
                flat->k[at_k(flat, b, hv, i)] = grouped->k[at_k(grouped, b, hv / (HV / H), i)];
            }
    }
    run(grouped);
    run(flat);
    assert_memory_equal(grouped->o, flat->o, flat->o_count * 2);
    assert_memory_equal(grouped->state, flat->state, flat->state_count * sizeof(float));

    /* and a decay for each value head is its own */
    struct call *own = new_call(la_problem(B, H, HV, D), 0, 0);
    fill(own, 6);
    memcpy(own->decay, flat->decay, HV * sizeof(float));
    own->args.num_decays = HV;
    run(own);
    assert_memory_equal(own->o, flat->o, flat->o_count * 2);
    own->decay[5] += 1;
    run(own);
    assert_true(memcmp(own->o, flat->o, flat->o_count * 2) != 0);
    free_call(grouped);
    free_call(flat);
    free_call(own);
}

static void strides_are_views(void **state)
{
    (void)state;
    enum { B = 4, H = 2, HV = 4, D = 64, GAP = 24 };
    struct call *packed = new_call(la_problem(B, H, HV, D), 0, 0);
    struct call *view = new_call(la_problem(B, H, HV, D), 0, GAP);
    fill(view, 7);
    memcpy(packed->decay, view->decay, HV * sizeof(float));
    memcpy(packed->state, view->state, packed->state_count * sizeof(float));
    for (int32_t b = 0; b < B; b++)
        for (int32_t i = 0; i < HV * D; i++) {
            packed->v[at_v(packed, b, 0, i)] = view->v[at_v(view, b, 0, i)];
            if (i < H * D) {
                packed->q[at_q(packed, b, 0, i)] = view->q[at_q(view, b, 0, i)];
                packed->k[at_k(packed, b, 0, i)] = view->k[at_k(view, b, 0, i)];
            }
        }
    run(packed);
    run(view);
    assert_memory_equal(packed->state, view->state, packed->state_count * sizeof(float));
    for (int32_t b = 0; b < B; b++) {
        assert_memory_equal(&packed->o[at_o(packed, b, 0, 0)], &view->o[at_o(view, b, 0, 0)],
                            HV * D * 2);
        for (int32_t i = HV * D; i < HV * D + GAP; i++)
            assert_int_equal(view->o[at_o(view, b, 0, i)], SENTINEL);
    }
    free_call(packed);
    free_call(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_entry),
        cmocka_unit_test(decay_alone),
        cmocka_unit_test(same_token_without_decay),
        cmocka_unit_test(closed_form_of_a_sequence),
        cmocka_unit_test(identity),
        cmocka_unit_test(layouts_are_transposes),
        cmocka_unit_test(groups_are_repeated_heads),
        cmocka_unit_test(strides_are_views),
    };
    return cmocka_run_group_tests_name("la_decode reference", tests, NULL, NULL);
}
