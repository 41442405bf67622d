/*
 * The tensor maps of mla_decode's caches.
 */
#include "mla.h"

#include "fake_cuda.h"

static _Alignas(64) unsigned char mla_memory[256]; /* never read: addresses alone count */
static const struct gen__family *const family = &gen__family_mla_decode;

/* Three requests of two tokens and 7 heads, cut; pages of 16 rows. */
static gen_mla_decode_problem usual_problem(void)
{
    gen_mla_decode_problem p = mla_problem(3, 7, 100000);
    p.q_len = 2;
    p.page_size = 16;
    p.causal = 1;
    return p;
}

static gen_mla_decode_args good_args(const gen_mla_decode_problem *p)
{
    gen_mla_decode_args a;
    memset(&a, 0xa5, sizeof a);
    family->default_args(&p->base, &a.base);
    a.q_nope = mla_memory;
    a.q_pe = mla_memory + 16;
    a.ckv = mla_memory + 32;
    a.kpe = mla_memory + 48;
    a.o = mla_memory + 64;
    a.lse = (float *)(void *)(mla_memory + 4);
    a.kv_len = (const int32_t *)(const void *)(mla_memory + 8);
    a.page_indices = (const int32_t *)(const void *)(mla_memory + 12);
    return a;
}

/* A map of a cache's pages in boxes of `columns` columns and `rows` rows. */
static void check_map(const struct fake_tensor_map *map, const gen_mla_decode_problem *p,
                      int32_t num_pages, uint32_t columns, uint32_t rows, int32_t type)
{
    const uint64_t element = p->cache == GEN_MLA_CACHE_SAME ? 2 : 1;
    assert_int_equal(map->rank, 4);
    assert_int_equal(map->extent[0], columns);
    assert_int_equal(map->extent[1], p->page_size);
    assert_int_equal(map->extent[3], num_pages);
    assert_int_equal(map->strides[0], 576 * element);
    assert_int_equal(map->strides[1], columns * element);
    assert_int_equal(map->strides[2], 576 * element * (uint64_t)p->page_size);
    assert_int_equal(map->box[0], columns);
    assert_int_equal(map->box[1], rows);
    assert_int_equal(map->box[3], 1);
    for (int d = 0; d < 4; d++)
        assert_int_equal(map->steps[d], 1);
    assert_int_equal(map->type, type);
    assert_int_equal(map->swizzle, columns * element == 64 ? 2 : 3);
    assert_int_equal(map->interleave, 0);
    assert_int_equal(map->promotion, 0);
    assert_int_equal(map->fill, 0);
}

static void tensor_maps(void **state)
{
    (void)state;
    static const struct {
        int32_t page_size, dtype, cache, type;
        uint32_t rows, columns; /* of a box of ckv */
    } cases[] = {
        {64, GEN_DTYPE_BF16, GEN_MLA_CACHE_SAME, 9, 64, 64},
        {128, GEN_DTYPE_FP16, GEN_MLA_CACHE_SAME, 6, 64, 64},
        {16, GEN_DTYPE_BF16, GEN_MLA_CACHE_SAME, 9, 16, 64},
        {32, GEN_DTYPE_BF16, GEN_MLA_CACHE_E4M3, 0, 32, 128},
        {64, GEN_DTYPE_BF16, GEN_MLA_CACHE_E4M3_Q, 0, 64, 128},
    };
    const struct gen__facts variant = mla_wgmma();
    gen__driver_reset();
    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_decode_problem p = usual_problem();
        struct gen_mla_decode_params k;
        struct fake_tensor_map ckv, kpe;
        p.page_size = cases[i].page_size;
        p.dtype = cases[i].dtype;
        p.cache = cases[i].cache;
        const gen_plan plan = mla_planned(p, &variant);
        gen_mla_decode_args a = good_args(&p);
        assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, &k), GEN_OK);
        assert_int_equal(k.map_rows, cases[i].rows);
        memcpy(&ckv, k.ckv_map, sizeof ckv);
        memcpy(&kpe, k.kpe_map, sizeof kpe);
        assert_int_equal(ckv.memory, (uintptr_t)a.ckv);
        assert_int_equal(kpe.memory, (uintptr_t)a.kpe);
        assert_int_equal(ckv.extent[2], MLA_LATENT / cases[i].columns);
        assert_int_equal(kpe.extent[2], 1);
        assert_int_equal(ckv.box[2], cases[i].rows == 64 ? MLA_MAP_CELLS : 1);
        assert_int_equal(kpe.box[2], 1);
        check_map(&ckv, &p, a.num_pages, cases[i].columns, cases[i].rows, cases[i].type);
        check_map(&kpe, &p, a.num_pages, MLA_ROPE, cases[i].rows, cases[i].type);
        p.rope_dim = 0;
        const gen_plan without = mla_planned(p, &variant);
        a = good_args(&p);
        assert_int_equal(family->params(&without, 0, &a.base, mla_memory, &k), GEN_OK);
        assert_true(k.ckv_map[0] != 0 && k.kpe_map[0] == 0);
    }
    gen__driver_reset();
}

/* An address that is no multiple of 64 will do, and what the driver has against a
 * map is said; checks alone need no driver. */
static void tensor_maps_that_cannot_be(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    const gen_mla_decode_problem p = usual_problem();
    const gen_plan plan = mla_planned(p, &variant);
    gen_mla_decode_args a = good_args(&p);
    _Alignas(GEN__PARAMS_ALIGNMENT) unsigned char out[sizeof(struct gen_mla_decode_params)];
    const struct gen__driver *driver;

    gen__driver_reset();
    setenv("GEN_LIBCUDA", "/nonexistent/libcuda.so", 1);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, NULL), GEN_OK);
    assert_int_equal(family->params(&plan, 1, &a.base, mla_memory, out), GEN_OK);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, out), GEN_STATUS_NO_DRIVER);

    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, out), GEN_OK);
    assert_int_equal(gen__driver_open(&driver), GEN_OK);
    struct gen__driver *table = (struct gen__driver *)(uintptr_t)driver;
    struct fake_cuda *(*get)(void);
    void *symbol = gen__driver_symbol("fake_cuda_get");
    assert_non_null(symbol);
    memcpy(&get, &symbol, sizeof get);
    struct fake_cuda *fake = get();
    a.num_pages--;     /* no map that the thread keeps */
    fake->fail_at = 2; /* that of the rotary keys */
    fake->fail_result = 1;
    snprintf(fake->fail_function, sizeof fake->fail_function, "cuTensorMapEncodeTiled");
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, out), GEN_STATUS_DRIVER);
    assert_non_null(strstr(gen_last_error(), "mla_decode: kpe = "));
    assert_non_null(strstr(gen_last_error(),
                           "row stride 576, page stride 9216 elements, 18752 pages "
                           "of 16 rows: cuTensorMapEncodeTiled returned"));
    table->cuTensorMapEncodeTiled = NULL;
    assert_failed(family->params(&plan, 0, &a.base, mla_memory, out), NO_DRIVER,
                  "mla_decode: the CUDA driver has no function cuTensorMapEncodeTiled, which this "
                  "variant needs; a driver of CUDA 12.0 or newer has it");
    gen__driver_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_maps),
        cmocka_unit_test(tensor_maps_that_cannot_be),
    };
    return cmocka_run_group_tests_name("mla_decode tensor maps", tests, NULL, NULL);
}
