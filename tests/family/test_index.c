/*
 * Lists of 64-bit indices: results are those of the same lists in 32 bits, bad numbers count as the
 * nearest that 32 bits hold, and what a plan with such lists takes, launches and refuses.
 */
#include "test.h"
#include "common/buffers.h"
#include "common/problem_text.h"
#include "cuda/driver.h"
#include "fake_cuda.h"
#include "families/kda_bwd/api.h"
#include "families/kda_gate/api.h"
#include "family/index.h"
#include "make_product.h"
#include "product/plan.h"

#define assert_status(call, status)                                                  \
    do {                                                                             \
        const enum gen_status got = (call);                                          \
        if (got != (status))                                                         \
            fail_msg("%s is %s: %s", #call, gen_status_name(got), gen_last_error()); \
    } while (0)

#define assert_message(piece)                                             \
    do {                                                                  \
        if (!strstr(gen_last_error(), piece))                             \
            fail_msg("\"%s\" is not in \"%s\"", piece, gen_last_error()); \
    } while (0)

/* ---- a product and the fake driver --------------------------------------- */

static void *bytes_of_product;

/* One variant of each: kda_gate's, and index32's where `whole`. */
static gen_library *open_product(bool whole)
{
    gen_library *library;
    struct product *product = product_new();
    const uint32_t gate = product_family(product, "kda_gate", "dtype,head_dim", "dependent");
    const uint32_t index = whole ? product_family(product, "index32", "from", "dependent") : 0;
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    uint32_t group = product_group(product, "kda_gate_bf16_d64", "bf16,64", gate, target);
    product_variant(product, group,
                    (struct product_variant){
                        .name = "kda_gate_bf16_d64__sm90a_b4", .facts = {1}, .fallback = 1});
    if (whole) {
        group = product_group(product, "index32_int64", "int64", index, target);
        product_variant(product, group,
                        (struct product_variant){
                            .name = "index32_int64__sm90a_w4", .facts = {1}, .fallback = 1});
    }
    if (product_open(product, &bytes_of_product, &library))
        fail_msg("%s", gen_last_error());
    return library;
}

static void close_product(gen_library *library)
{
    gen_close(library);
    free(bytes_of_product);
}

static struct fake_cuda *fake_driver(void)
{
    struct fake_cuda *(*get)(void);
    const struct gen__driver *driver;
    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    assert_int_equal(gen__driver_open(&driver), GEN_OK);
    void *symbol = gen__driver_symbol("fake_cuda_get");
    memcpy(&get, &symbol, sizeof get);
    struct fake_cuda *fake = get();
    fake->copy_params = FAKE_PARAMS;
    fake->num_launches = 0;
    return fake;
}

/* ---- results --------------------------------------------------------------- */

struct run {
    struct buffers buffers;
    union {
        gen_problem base;
        char bytes[GEN__MAX_PROBLEM];
    } problem;
    uint8_t *block;
};

static void prepare(struct run *r, const struct gen__family *family, const char *text, int form,
                    int32_t index_dtype)
{
    const struct fill_options fill = {.seed = 5, .padding = strstr(text, "@pad") != NULL};
    char problem[512];
    snprintf(problem, sizeof problem, "%.*s", (int)strcspn(text, "@\n"), text);
    if (gen__problem_parse(family, problem, &r->problem.base))
        fail_msg("%s: %s", text, gen_last_error());
    memcpy(r->problem.bytes + family->index_dtype, &index_dtype, sizeof index_dtype);
    assert_true(buffers_init(&r->buffers, family, &r->problem.base, form, 1, true));
    assert_int_equal(posix_memalign((void **)&r->block, 256, r->buffers.total_bytes), 0);
    memset(r->block, 0, r->buffers.total_bytes);
    buffers_fill(&r->buffers, &fill, r->block);
}

static void run(struct run *r, const gen_library *library)
{
    const struct gen__family *family = r->buffers.family;
    gen_device cpu = {.size = sizeof cpu};
    gen_plan plan = {.size = sizeof plan};
    gen_args *args = calloc(1, family->args_size);
    void *workspace = NULL;
    assert_int_equal(gen_device_named("cpu", &cpu), GEN_OK);
    assert_status(gen_select(library, &cpu, &r->problem.base, &plan), GEN_OK);
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(posix_memalign(&workspace, 256, plan.workspace_bytes + 256), 0);
    buffers_args(&r->buffers, (uint64_t)(uintptr_t)r->block, 0, args);
    assert_status(gen_launch(library, &plan, args, workspace, NULL), GEN_OK);
    free(workspace);
    free(args);
}

/* Numbers that 32 bits do not hold, and some that they do and no list may have. */
static void spoil(struct run *wide, struct run *narrow, uint64_t seed)
{
    static const int64_t bad[] = {
        INT64_C(1) << 40,       -(INT64_C(1) << 40),    INT64_MAX, INT64_MIN,
        INT32_MAX + INT64_C(1), INT32_MIN - INT64_C(1), -1,        7,
        (INT64_C(1) << 32) + 5};
    const struct buffers *b = &wide->buffers;
    for (uint32_t t = 0; t < b->num_tensors; t++) {
        if (b->tensor[t].dtype != GEN_DTYPE_INT64)
            continue;
        int64_t *to = (int64_t *)(void *)(wide->block + buffers_at(b, 0, t));
        int32_t *also = (int32_t *)(void *)(narrow->block + buffers_at(&narrow->buffers, 0, t));
        for (uint64_t i = 0; i < b->tensor[t].count; i++)
            if ((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 62 == 0) {
                to[i] = bad[(seed >> 40) % (sizeof bad / sizeof *bad)];
                also[i] = to[i] < INT32_MIN   ? INT32_MIN
                          : to[i] > INT32_MAX ? INT32_MAX
                                              : (int32_t)to[i];
            }
    }
}

static unsigned compare(const struct run *a, const struct run *b, const char *text)
{
    unsigned compared = 0;
    for (uint32_t t = 0; t < a->buffers.num_tensors; t++) {
        const struct gen__tensor *tensor = &a->buffers.tensor[t];
        if (tensor->role == GEN__IN || tensor->view_of || !tensor->count)
            continue;
        if (memcmp(a->block + buffers_at(&a->buffers, 0, t),
                   b->block + buffers_at(&b->buffers, 0, t), a->buffers.bytes[t]) != 0)
            fail_msg("%s: %s differs: %s", a->buffers.family->name, tensor->name, text);
        compared++;
    }
    return compared;
}

static unsigned check_line(const gen_library *library, const struct gen__family *family,
                           const char *text)
{
    const char *named = strstr(text, "@form=");
    int form = -1;
    for (uint32_t i = 0; named && i < family->num_forms; i++) {
        const size_t length = strlen(family->forms[i]);
        if (!strncmp(named + 6, family->forms[i], length) && strchr(" \n", named[6 + length]))
            form = (int)i;
    }
    /* Of mla_decode's lists the host knows no bound, so that bad ones are the caller's affair. */
    const int rounds = strcmp(family->name, "mla_decode") ? 4 : 1;
    unsigned compared = 0;
    for (int i = 0; i < rounds; i++) {
        struct run wide, narrow;
        prepare(&wide, family, text, form, GEN_INDEX_INT64);
        prepare(&narrow, family, text, form, GEN_INDEX_INT32);
        if (i)
            spoil(&wide, &narrow, (uint64_t)i);
        run(&wide, library);
        run(&narrow, library);
        compared += compare(&wide, &narrow, text);
        buffers_free(&wide.buffers), buffers_free(&narrow.buffers);
        free(wide.block), free(narrow.block);
    }
    return compared;
}

static void results_are_those_of_32_bits(void **state)
{
    unsigned families = 0;
    gen_library *library = open_product(true);
    (void)state;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        const struct gen__family *family = gen__families[f];
        char path[512], line[512];
        unsigned compared = 0;
        if (!family->num_indices)
            continue;
        families++;
        snprintf(path, sizeof path, SOURCE_DIR "/bench/shapes/%s_verify.txt", family->name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file))
            if (strstr(line, "index=int64"))
                compared += check_line(library, family, line);
        fclose(file);
        if (!compared)
            fail_msg("%s: nothing was compared", family->name);
    }
    assert_true(families >= 18);
    close_product(library);
}

/* ---- plans and launches ------------------------------------------------------ */

#define SEQUENCES 300

static gen_kda_gate_problem gate_problem(void)
{
    return (gen_kda_gate_problem){.base = {sizeof(gen_kda_gate_problem), GEN_KDA_GATE, 0, 0},
                                  .batch = SEQUENCES,
                                  .seq_len = 64,
                                  .num_tokens = 1000,
                                  .num_qk_heads = 1,
                                  .num_v_heads = 1,
                                  .head_dim = 64,
                                  .gate_dtype = GEN_DTYPE_FP32,
                                  .beta_dtype = GEN_DTYPE_FP32,
                                  .index_dtype = GEN_INDEX_INT64};
}

static _Alignas(256) char memory[1 << 20];

static gen_kda_gate_args gate_args(void)
{
    return (gen_kda_gate_args){.base = {sizeof(gen_kda_gate_args), GEN_KDA_GATE},
                               .g = memory,
                               .gk = (float *)(void *)(memory + (1 << 19)),
                               .cu_seqlens_64 = (const int64_t *)(const void *)(memory + 260000)};
}

static gen_plan gate_plan(const gen_library *library, const gen_kda_gate_problem *p,
                          const char *device_name)
{
    gen_device device = {.size = sizeof device};
    gen_plan plan = {.size = sizeof plan};
    assert_int_equal(gen_device_named(device_name, &device), GEN_OK);
    assert_status(gen_select(library, &device, &p->base, &plan), GEN_OK);
    return plan;
}

static void the_launch_comes_first(void **state)
{
    static _Alignas(256) char workspace[4096];
    gen_library *library = open_product(true);
    struct fake_cuda *fake = fake_driver();
    gen_kda_gate_problem p = gate_problem();
    const gen_kda_gate_args a = gate_args();
    const gen_plan plan = gate_plan(library, &p, "h200");
    (void)state;
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.workspace_bytes, 1280); /* 301 numbers, to multiples of 256 */
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(fake->num_loads, 2);
    assert_status(gen_launch(library, &plan, &a.base, workspace, NULL), GEN_OK);
    assert_int_equal(fake->num_launches, 2);
    const struct fake_launch *first = &fake->launches[0], *second = &fake->launches[1];
    struct gen_index32_params k;
    memcpy(&k, first->params, sizeof k);
    assert_string_equal(first->symbol, "index32_int64__sm90a_w4");
    assert_string_equal(second->symbol, "kda_gate_bf16_d64__sm90a_b4");
    assert_int_equal(first->grid[0], 3);
    assert_int_equal(first->threads, 128);
    assert_true(first->dependent && second->dependent);
    assert_ptr_equal(k.from[0], a.cu_seqlens_64);
    assert_null(k.from[1]);
    assert_ptr_equal(k.to[0], workspace);
    assert_int_equal(k.count, SEQUENCES + 1);
    const void *cu_seqlens = workspace;
    bool found = false;
    for (size_t i = 0; i + 8 <= FAKE_PARAMS; i += 8)
        found |= !memcmp(second->params + i, &cu_seqlens, 8);
    assert_true(found);
    /* Serial launches, and none for lists of 32 bits. */
    p.base.flags = GEN_SERIAL_LAUNCH;
    const gen_plan serial = gate_plan(library, &p, "h200");
    assert_status(gen_launch(library, &serial, &a.base, workspace, NULL), GEN_OK);
    assert_true(!fake->launches[2].dependent && !fake->launches[3].dependent);
    p.base.flags = 0;
    p.index_dtype = GEN_INDEX_INT32;
    const gen_plan narrow = gate_plan(library, &p, "h200");
    assert_int_equal(narrow.workspace_bytes, 0);
    p.index_dtype = GEN_INDEX_INT64;
    p.batch = 0, p.num_tokens = 0;
    const gen_plan empty = gate_plan(library, &p, "h200");
    assert_int_equal(empty.num_launches + empty.workspace_bytes, 0);
    close_product(library);
}

#define REFUSED(message)                                                                \
    do {                                                                                \
        assert_status(gen_launch(library, plans[i], &a.base, memory + (1 << 18), NULL), \
                      GEN_STATUS_INVALID_ARGUMENT);                                     \
        assert_message(message);                                                        \
    } while (0)

static void arguments_that_are_refused(void **state)
{
    gen_library *library = open_product(true);
    struct fake_cuda *fake = fake_driver();
    gen_kda_gate_problem p = gate_problem();
    const gen_plan gpu = gate_plan(library, &p, "h200"), cpu = gate_plan(library, &p, "cpu");
    const gen_plan *const plans[] = {&gpu, &cpu};
    (void)state;
    for (int i = 0; i < 2; i++) {
        gen_kda_gate_args a = gate_args();
        a.cu_seqlens = (const int32_t *)(const void *)memory;
        REFUSED("allowed: one of them, the other NULL");
        a = gate_args();
        a.cu_seqlens_64 = (const int64_t *)(const void *)(memory + 260004);
        REFUSED("allowed: multiples of 8 bytes");
        a = gate_args();
        a.cu_seqlens_64 = NULL;
        REFUSED("kda_gate: cu_seqlens is NULL");
        a = gate_args();
        a.cu_seqlens_64 = (const int64_t *)(const void *)(memory + (1 << 19) + 8);
        REFUSED("overlaps cu_seqlens");
        a = gate_args();
        a.cu_seqlens_64 = (const int64_t *)(const void *)(memory + (1 << 18) + 1272);
        REFUSED("overlaps cu_seqlens");
        a = gate_args();
        assert_int_equal(gen_launch(library, plans[i], &a.base, NULL, NULL), GEN_STATUS_WORKSPACE);
    }
    assert_int_equal(fake->num_launches, 0);
    /* The 64-bit argument of a problem with 32 bits. */
    p.index_dtype = GEN_INDEX_INT32;
    const gen_plan narrow = gate_plan(library, &p, "h200");
    gen_kda_gate_args a = gate_args();
    a.cu_seqlens = (const int32_t *)(const void *)memory;
    assert_int_equal(gen_launch(library, &narrow, &a.base, NULL, NULL),
                     GEN_STATUS_INVALID_ARGUMENT);
    assert_message("the problem's index_dtype is GEN_INDEX_INT32 (0)");
    close_product(library);
}

static void problems_that_are_refused(void **state)
{
    gen_library *library = open_product(true);
    gen_device h200 = {.size = sizeof h200};
    gen_plan plan = {.size = sizeof plan};
    gen_kda_gate_problem p = gate_problem();
    (void)state;
    assert_int_equal(gen_device_named("h200", &h200), GEN_OK);
    for (int32_t i = -1; i <= 2; i += 3) {
        p.index_dtype = i;
        assert_int_equal(gen_select(library, &h200, &p.base, &plan), GEN_STATUS_INVALID_ARGUMENT);
        assert_message("GEN_INDEX_INT32 (0), GEN_INDEX_INT64 (1)");
    }
    close_product(library);
    /* A product without index32: said, and the plan is left alone. */
    library = open_product(false);
    p.index_dtype = GEN_INDEX_INT64;
    memset(&plan, 0x5a, sizeof plan);
    plan.size = sizeof plan;
    const gen_plan before = plan;
    assert_int_equal(gen_select(library, &h200, &p.base, &plan), GEN_STATUS_UNSUPPORTED);
    assert_message("kda_gate, the launch for lists of 64-bit indices: ");
    assert_message("index32");
    assert_memory_equal(&plan, &before, sizeof plan);
    p.index_dtype = GEN_INDEX_INT32;
    assert_status(gen_select(library, &h200, &p.base, &plan), GEN_OK);
    close_product(library);
}

/* A plan whose last dims were changed is no plan of this library's, sealed or not. */
static void plans_that_are_refused(void **state)
{
    gen_library *library = open_product(true);
    const gen_kda_gate_problem p = gate_problem();
    const gen_kda_gate_args a = gate_args();
    const gen_plan good = gate_plan(library, &p, "h200");
    const int32_t own = (int32_t)good.launch[0].variant + 1;
    const int32_t wrong[] = {own, 3, INT32_MAX, -1};
    (void)state;
    fake_driver();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gen_plan plan = good;
        plan.dims[GEN__DIM_INDEX] = wrong[i];
        gen__plan_seal(&plan);
        assert_int_equal(gen_launch(library, &plan, &a.base, memory + (1 << 18), NULL),
                         GEN_STATUS_MISMATCH);
    }
    gen_plan plan = good;
    plan.workspace_bytes = 512; /* no room for the list */
    gen__plan_seal(&plan);
    assert_int_equal(gen_launch(library, &plan, &a.base, memory + (1 << 18), NULL),
                     GEN_STATUS_MISMATCH);
    close_product(library);
}

/* Structs of callers of before end in front of the new fields. */
static void structs_of_before(void **state)
{
    static _Alignas(256) char list[4 * (SEQUENCES + 1)];
    gen_library *library = open_product(true);
    struct fake_cuda *fake = fake_driver();
    gen_kda_gate_problem p = gate_problem();
    gen_kda_gate_args a = gate_args();
    gen_device h200 = {.size = sizeof h200};
    gen_plan plan = {.size = sizeof plan};
    (void)state;
    p.base.size = offsetof(gen_kda_gate_problem, index_dtype); /* which is 1 behind it */
    a.base.size = offsetof(gen_kda_gate_args, cu_seqlens_64);
    a.cu_seqlens = (const int32_t *)(const void *)list;
    assert_int_equal(gen_device_named("h200", &h200), GEN_OK);
    assert_status(gen_select(library, &h200, &p.base, &plan), GEN_OK);
    assert_int_equal(plan.workspace_bytes, 0);
    assert_status(gen_launch(library, &plan, &a.base, NULL, NULL), GEN_OK);
    assert_int_equal(fake->num_launches, 1);
    for (uint32_t f = 0; f < gen__num_families; f++)
        if (gen__families[f]->num_indices) {
            assert_int_equal(gen__families[f]->problem_least, gen__families[f]->index_dtype);
            assert_int_equal(gen__families[f]->args_least, gen__families[f]->indices[0].wide);
        }
    close_product(library);
}

static void explaining(void **state)
{
    gen_library *library = open_product(true);
    const gen_kda_gate_problem p = gate_problem();
    gen_device h200 = {.size = sizeof h200};
    char text[8192];
    (void)state;
    assert_int_equal(gen_device_named("h200", &h200), GEN_OK);
    assert_status(gen_explain(library, &h200, &p.base, text, sizeof text, NULL), GEN_OK);
    assert_non_null(strstr(text, "safe_gate=any index=int64"));
    assert_non_null(strstr(text, "before launch 0  index32 count=301 num_lists=1"));
    assert_non_null(strstr(text, "index32_int64__sm90a_w4"));
    close_product(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_32_bits),
        cmocka_unit_test(the_launch_comes_first),
        cmocka_unit_test(arguments_that_are_refused),
        cmocka_unit_test(problems_that_are_refused),
        cmocka_unit_test(plans_that_are_refused),
        cmocka_unit_test(structs_of_before),
        cmocka_unit_test(explaining),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
