/* attn_paged's direct kernels on the host: how many blocks a unit has, and what that takes. */
#include "families/attn_paged/attn_paged.h"
#include "family/occupancy.h"
#include "fixture.h"

#include <string.h>

extern const struct gen__family gen__family_attn_paged;
static const struct gen__family *const family = &gen__family_attn_paged;

static gen_attn_paged_problem paged_problem(int32_t batch, int32_t heads, int32_t kv_heads,
                                            int32_t kv_len)
{
    return (gen_attn_paged_problem){.base = {sizeof(gen_attn_paged_problem), GEN_ATTN_PAGED, 0, 0},
                                    .batch = batch,
                                    .num_q_heads = heads,
                                    .num_kv_heads = kv_heads,
                                    .q_len = 1,
                                    .kv_len = kv_len,
                                    .max_kv_len = kv_len,
                                    .page_size = 16,
                                    .head_dim = 128,
                                    .dtype = GEN_DTYPE_BF16,
                                    .causal = 1};
}

/* Of eight warps, one block an SM. */
static struct gen__facts direct(uint32_t cluster)
{
    struct gen__facts v = {
        .index = 4, .threads = 256, .shared_dynamic = 206080, .registers = 145, .cluster = cluster};
    v.fact[ATTN_PAGED_ROWS] = 8;
    v.fact[ATTN_PAGED_KEYS] = 16;
    v.fact[ATTN_PAGED_STAGES] = 3;
    v.fact[ATTN_PAGED_TEAMS] = 8;
    v.fact[ATTN_PAGED_DEPENDENT] = 1;
    v.fact[ATTN_PAGED_DIRECT] = 1;
    v.occupancy = gen__occupancy(&v);
    return v;
}

static gen_plan planned(gen_attn_paged_problem p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    family->plan(&p.base, &h200, variant, &plan);
    return plan;
}

/* A unit's blocks: clusters while the SMs have room and each warp a tile of keys. */
static void units_of_a_fixed_number_of_blocks(void **state)
{
    (void)state;
    static const struct {
        int32_t batch, heads, kv_heads, kv_len;
        uint32_t cluster;
        int32_t pieces;
    } cases[] = {
        {1, 32, 8, 8192, 16, 16},   /* eight clusters, seven of which run at once */
        {1, 32, 8, 8192, 8, 8},     /* of 15 that run at once a unit has one */
        {1, 32, 8, 8192, 4, 12},    /* of 30 three */
        {1, 32, 8, 8192, 2, 16},    /* of 66 eight */
        {1, 8, 1, 131072, 16, 112}, /* seven a unit */
        {1, 8, 1, 131072, 8, 120},
        {1, 8, 1, 1 << 22, 2, 32}, /* no more than GEN_ATTN_PAGED_GROUP */
        {1, 32, 4, 1024, 4, 8},    /* 64 tiles of 16 keys for 8 blocks of 8 warps */
        {128, 8, 1, 1024, 1, 1},
        {512, 8, 1, 8192, 4, 4}, /* in several rounds */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gen__facts v = direct(cases[i].cluster);
        gen_attn_paged_problem p =
            paged_problem(cases[i].batch, cases[i].heads, cases[i].kv_heads, cases[i].kv_len);
        const gen_plan plan = planned(p, &v);
        const int32_t blocks = cases[i].batch * cases[i].kv_heads * cases[i].pieces;
        const bool several = cases[i].pieces > (int32_t)cases[i].cluster;
        assert_int_equal(plan.dims[ATTN_PAGED_VISIT], cases[i].pieces);
        assert_int_equal(plan.launch[0].grid[0], blocks);
        assert_int_equal(plan.launch[0].grid[1], 1);
        assert_int_equal(plan.launch[0].grid[0] % cases[i].cluster, 0);
        assert_int_equal(plan.dims[ATTN_PAGED_WHOLE],
                         several ? ATTN_PAGED_DIRECT_CLUSTERS : ATTN_PAGED_DIRECT_CLUSTER);
        if (!several)
            assert_int_equal(plan.workspace_bytes, 0);
        else /* a ticket, and 16 bytes for two outputs of a block's part */
            assert_true(plan.workspace_bytes >=
                        (uint64_t)blocks * (8 + 8 * 128 * 8 / cases[i].cluster));
        assert_null(family->fits(&p.base, &h200, &v));
        assert_true(family->predict(&p.base, &h200, &v) > 2);
        p.base.flags = GEN_BATCH_INVARIANT;
        assert_int_equal(planned(p, &v).dims[ATTN_PAGED_VISIT], cases[i].cluster);
        p.base.flags = 0;
        p.q_len =
            16; /* row tiles are the grid's rows; beyond eight of them keys are read too often */
        const uint32_t tiles = (uint32_t)(16 * (cases[i].heads / cases[i].kv_heads) / 8);
        assert_int_equal(planned(p, &v).launch[0].grid[1], tiles);
        assert_int_equal(family->fits(&p.base, &h200, &v) != NULL, tiles > 8);
    }
}

static void what_a_unit_of_blocks_wants(void **state)
{
    (void)state;
    struct gen__facts v = direct(16);
    gen_device small = h200;
    gen_attn_paged_problem p = paged_problem(1, 32, 8, 8192);
    small.num_sms = 114;
    assert_non_null(strstr(family->fits(&p.base, &small, &v), "16 SMs"));
    v.cluster = 8;
    assert_null(family->fits(&p.base, &small, &v));
    /* Other lengths than the mean: of one request, or within a window, they do not matter. */
    p.max_kv_len = 8192 + 1024 + 256;
    p.batch = 2;
    assert_null(family->fits(&p.base, &small, &v));
    p.max_kv_len++;
    assert_non_null(strstr(family->fits(&p.base, &small, &v), "along a line"));
    p.left_window = 128;
    assert_null(family->fits(&p.base, &small, &v));
    p.left_window = 0;
    p.batch = 1;
    assert_null(family->fits(&p.base, &small, &v));
    p = paged_problem(1, 8, 1, 131072);
    p.base.max_workspace_mib = 1; /* 16 clusters' results take 0.5 MB, the checks 1 MB */
    v.cluster = 2;
    assert_true(planned(p, &v).workspace_bytes <= 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_of_a_fixed_number_of_blocks),
        cmocka_unit_test(what_a_unit_of_blocks_wants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
