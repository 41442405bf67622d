/*
 * gen_select()'s short way as the families compile it, plans with parts included: it
 * must come to the same plan as the rules at length, to the last byte, and to no plan
 * where they come to none. An argument multiplies the number of problems.
 */
#include "draw.h"
#include "test.h"

#include "family/family.h"
#include "make_product.h"

#include "attn_fwd/args.h"
#include "la_decode/args.h"
#include "mla_decode/args.h"
#include "mla_merge/args.h"

#include <math.h>
#include <stdarg.h>

static unsigned multiple = 1;

/* Evenly in the logarithm. */
static int32_t draw_size(int32_t low, int32_t high)
{
    return (int32_t)(low * pow((double)(high + 1) / low, draw(1u << 20) / 1048576.0));
}

/* ---- a product --------------------------------------------------------- */

/* A key's variants: their shared memory and the facts, in the order of the family's. */
struct made {
    const char *family, *axes, *required, *values;
    uint32_t threads[6], shared[6];
    int32_t facts[6][GEN_PACK_MAX_FACTS];
    uint32_t cluster[6];
};

static const struct made la = {
    "la_decode",
    "dtype,head_dim,layout",
    "la_decode_bf16_d128_vk",
    "bf16,128,vk",
    {128, 128, 256, 64, 128, 128},
    {0, 0, 0, 0, 0, 0},
    /* blocks, persistent, ...: as the family reads them */
    {{1, 0, 1024, 4096},
     {2, 0, 1024, 4096},
     {4, 1, 2048, 8192},
     {8, 0, 512, 2048},
     {1, 1, 1024, 4096},
     {4, 0, 1024, 4096}},
    {0},
};
/* q_rows, kv_rows, stages, shard, tensor_map, dependent, wgmma: some that want pages as the copy
 * engine does, one for few rows, one for much shared memory, two of clusters, which want lengths
 * that do not differ. */
#define MLA(dtype, cache)                                                                \
    {                                                                                    \
        "mla_decode", "dtype,cache,rope", "mla_decode_" dtype "_" cache "_r64",          \
            dtype "," cache ",64", {256, 384, 384, 384, 256, 384},                       \
            {80000, 200000, 180000, 200000, 90000, 210000},                              \
            {{16, 64, 2, 1, 0, 0, 0}, {64, 64, 2, 1, 1, 0, 1}, {64, 64, 2, 1, 0, 1, 1},  \
             {64, 64, 2, 1, 1, 1, 1}, {32, 64, 3, 0, 0, 0, 0}, {64, 32, 2, 0, 1, 0, 1}}, \
        {                                                                                \
            0, 0, 2, 0, 0, 3                                                             \
        }                                                                                \
    }
static const struct made mla_bf16 = MLA("bf16", "same"), mla_e4m3 = MLA("bf16", "e4m3"),
                         mla_fp16 = MLA("fp16", "same");
/* rows, split, slice, dependent */
static const struct made merge = {
    "mla_merge",
    "dtype",
    "mla_merge_bf16",
    "bf16",
    {128, 128, 256, 128, 512, 128},
    {0, 0, 0, 20000, 4096, 0},
    {{4, 1, 512, 0},
     {2, 2, 512, 1},
     {1, 4, 128, 0},
     {1, 8, 512, 0},
     {1, 16, 128, 1},
     {3, 1, 96, 0}},
    {0},
};
/* q_rows, kv_rows, wgmma, persistent, dependent, dynamic, renamed: one that takes tiles as they are
 * needed, a twin, one under another symbol, a portable one. */
static const struct made attn = {
    "attn_fwd",
    "dtype,head_dim,mask",
    "attn_fwd_fp16_d128_causal",
    "fp16,128,causal",
    {384, 512, 512, 384, 512, 128},
    {200000, 220000, 220000, 200000, 220000, 90000},
    {{128, 128, 1, 1, 1, 0, 0},
     {192, 64, 1, 1, 1, 1, 0},
     {192, 64, 1, 0, 1, 0, 0},
     {128, 128, 1, 1, 1, 0, 0},
     {192, 64, 1, 1, 1, 1, 1},
     {64, 64, 0, 0, 1, 0, 0}},
    {0, 0, 0, 2, 0, 0},
};

struct text {
    char at[1 << 18];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(text->at + text->length, sizeof(text->at) - text->length, format, list);
    va_end(list);
    assert_true(n >= 0 && text->length + (size_t)n < sizeof(text->at));
    text->length += (size_t)n;
}

static void name_of(char *name, size_t capacity, const struct made *made, const char *target,
                    unsigned i)
{
    snprintf(name, capacity, "%s__%s_%u", made->required, target, i);
}

/* Of the keys that have PTX, too, some rows name it: they are dropped. */
static void add_row(struct text *text, const struct made *made, const char *problem)
{
    char name[96];
    const bool ptx = (made == &la || made == &merge) && !draw(5);
    name_of(name, sizeof(name), made, ptx ? "ptx80" : "sm90a", draw(6));
    add(text, "%s\t%s\t%s\t%s\t%.3f\t%016llx\n", made->family, made->required, problem, name,
        2 + draw(100000) / 100.0, (unsigned long long)gen_pack_hash(name, strlen(name)));
}

/* A tuner's grid with holes, and rows beside it. */
static void add_mla_rows(struct text *text, const struct made *made, unsigned holes)
{
    char problem[96];
    for (int requests = 1; requests <= 1024; requests *= 4)
        for (int kv = 1024; kv <= 65536; kv *= 4)
            for (int rows = 8; rows <= 128; rows *= 4)
                for (int page = 1; page <= 64; page *= 64) {
                    const int scale = draw(10) ? 1 : 2;
                    snprintf(problem, sizeof(problem), "cache_rows=%d,requests=%d,rows=%d,page=%d",
                             requests * kv * scale, requests, rows * (draw(10) ? 1 : 2), page);
                    if (draw(100) >= holes)
                        add_row(text, made, problem);
                }
}

static void add_head(struct text *text, unsigned num_sms)
{
    text->length = 0;
    add(text,
        "# attngen tuning table\n# format: 1\n# class: sm90_%usm\n# compute_capability: 90\n"
        "# num_sms: %u\n# memory_gbps: 4800\n# l2_bytes: 62914560\n"
        "family\trequired\tproblem\tvariant\tus\tdigest\n",
        num_sms, num_sms);
}

static void add_table(struct product *product, const char *name, unsigned num_sms, unsigned holes)
{
    static struct text text;
    char problem[64];
    add_head(&text, num_sms);
    for (int states = 8; states <= 65536; states *= 2) {
        snprintf(problem, sizeof(problem), "states=%d", states);
        add_row(&text, &la, problem);
    }
    add_mla_rows(&text, &mla_bf16, holes);
    add_mla_rows(&text, &mla_e4m3, holes);
    add_mla_rows(&text, &mla_fp16, holes);
    for (int rows = 16; rows <= 16384; rows *= 2)
        for (int pieces = 2; pieces <= 128; pieces += (pieces + 1) / 2) {
            snprintf(problem, sizeof(problem), "rows=%d,pieces=%d", rows, pieces);
            add_row(&text, &merge, problem);
        }
    for (int heads = 32; heads <= 512; heads *= 4)
        for (int rows = 1024; rows <= 16384; rows *= 2) {
            snprintf(problem, sizeof(problem), "heads=%d,q_len=%d,kv_len=%d", heads, rows,
                     draw(4) ? rows : 2 * rows);
            if (draw(100) >= holes)
                add_row(&text, &attn, problem);
        }
    product_table(product, name, text.at);
}

static void add_key(struct product *product, uint32_t family, uint32_t target,
                    const char *target_name, const struct made *made)
{
    const uint32_t group = product_group(product, made->required, made->values, family, target);
    for (unsigned i = 0; i < 6; i++) {
        char name[96];
        name_of(name, sizeof(name), made, target_name, i);
        struct product_variant variant = {.name = name,
                                          .threads = made->threads[i],
                                          .shared_dynamic = made->shared[i],
                                          .registers = 96,
                                          .cluster = made->cluster[i],
                                          .fallback = i == 0};
        memcpy(variant.facts, made->facts[i], sizeof(variant.facts));
        product_variant(product, group, variant);
    }
}

/* Merges of bf16 alone: what is cut in fp16 cannot be done. */
static gen_library *open_product(bool tables, unsigned holes, void **bytes)
{
    struct product *product = product_new();
    uint32_t family[4];
    const struct made *const first[4] = {&la, &mla_bf16, &merge, &attn};
    for (unsigned i = 0; i < 4; i++)
        family[i] = product_family(product, first[i]->family, first[i]->axes,
                                   gen__family_by_name(first[i]->family)->facts);
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    add_key(product, family[0], target, "sm90a", &la);
    add_key(product, family[1], target, "sm90a", &mla_e4m3);
    add_key(product, family[1], target, "sm90a", &mla_bf16);
    add_key(product, family[1], target, "sm90a", &mla_fp16);
    add_key(product, family[2], target, "sm90a", &merge);
    add_key(product, family[3], target, "sm90a", &attn);
    const uint32_t text = product_target(product, "compute_80", 80, GEN_PACK_PTX);
    add_key(product, family[0], text, "ptx80", &la);
    add_key(product, family[2], text, "ptx80", &merge);
    if (tables) {
        add_table(product, "own", 132, holes);
        add_table(product, "other", 80, holes);
    }
    gen_library *library;
    gen_library_info info;
    assert_status(product_open(product, bytes, &library), GEN_OK);
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    assert_int_equal(info.num_rows_bad, 0);
    assert_true(!tables || info.num_rows_ptx > 20);
    return library;
}

/* ---- problems ---------------------------------------------------------- */

union any_problem {
    gen_problem base;
    gen_la_decode_problem la;
    gen_mla_decode_problem mla;
    gen_mla_merge_problem merge;
    gen_attn_fwd_problem attn;
};

static uint32_t draw_flags(void)
{
    return draw(4) ? 0 : draw(2) ? GEN_BATCH_INVARIANT : GEN_SERIAL_LAUNCH;
}

static void draw_la(union any_problem *p)
{
    p->la = (gen_la_decode_problem){.base = {sizeof(p->la), GEN_LA_DECODE, draw_flags(), 0},
                                    .batch = draw_size(1, 4096),
                                    .num_qk_heads = 8,
                                    .num_v_heads = 8 << draw(3),
                                    .head_dim = 128};
}

static void draw_mla(union any_problem *p)
{
    static const int32_t pages[] = {1, 16, 32, 64, 128, 3, 24, 48, 100};
    const int32_t kv_len = draw(30) ? draw_size(1, 200000) : 0;
    p->mla = (gen_mla_decode_problem){.base = {sizeof(p->mla), GEN_MLA_DECODE, draw_flags(), 0},
                                      .batch = draw(40) ? draw_size(1, 2000) : 0,
                                      .num_heads = draw_size(1, 128),
                                      .q_len = draw(3) ? 1 : draw_size(1, draw(8) ? 8 : 1024),
                                      .kv_len = kv_len,
                                      .max_kv_len =
                                          kv_len + (draw(3) ? !kv_len : draw_size(1, kv_len + 1)),
                                      .page_size = pages[draw(9)],
                                      .rope_dim = 64,
                                      .dtype = draw(4) ? GEN_DTYPE_BF16 : GEN_DTYPE_FP16,
                                      .cache = (int32_t)draw(2),
                                      .causal = (int32_t)draw(2)};
    if (p->mla.dtype == GEN_DTYPE_FP16)
        p->mla.cache = GEN_MLA_CACHE_SAME;
}

static void draw_merge(union any_problem *p)
{
    p->merge = (gen_mla_merge_problem){.base = {sizeof(p->merge), GEN_MLA_MERGE, draw_flags(), 0},
                                       .num_records = draw(40) ? draw_size(1, 300) : 0,
                                       .num_heads = draw_size(1, 128),
                                       .q_len = draw(3) ? 1 : draw_size(1, 1024),
                                       .num_pieces = draw_size(1, 200)};
}

/* Half of them a little beside what rows are of, the others anywhere. */
static void draw_attn(union any_problem *p)
{
    const bool near = draw(2);
    const int32_t q_len = near ? 1024 << draw(5) : draw_size(1, 40000);
    const int32_t kv_len = draw(4) ? q_len : near ? 2 * q_len : draw_size(1, 40000);
    p->attn = (gen_attn_fwd_problem){.base = {sizeof(p->attn), GEN_ATTN_FWD, draw_flags(), 0},
                                     .batch = draw(40) ? draw_size(1, 16) : 0,
                                     .num_q_heads = near ? 32 : draw_size(1, 256),
                                     .num_kv_heads = 1,
                                     .q_len = near ? q_len + (int32_t)draw(300) : q_len,
                                     .kv_len = near ? kv_len + (int32_t)draw(300) : kv_len,
                                     .head_dim = 128,
                                     .dtype = GEN_DTYPE_FP16,
                                     .causal = 1,
                                     .window_left = GEN_ATTN_NO_WINDOW,
                                     .window_right = GEN_ATTN_NO_WINDOW};
}

/* ---- both ways --------------------------------------------------------- */

struct counts {
    unsigned of_why[GEN_WHY_COUNT], parts, failures;
    unsigned attn[GEN_WHY_COUNT]; /* of attn_fwd, where there are tables */
};

/* Which rule it was; none: GEN_WHY_REFERENCE. */
static enum gen_why same_both_ways(const gen_library *library, const gen_device *device,
                                   union any_problem *problem, struct counts *counts)
{
    gen_plan plan, at_length, before;
    memset(&before, 0x5a, sizeof(before));
    plan = at_length = before;
    const enum gen_status status = gen_select(library, device, &problem->base, &plan);
    problem->base.max_workspace_mib = UINT32_MAX; /* by every rule in turn */
    assert_status(gen_select(library, device, &problem->base, &at_length), status);
    if (memcmp(&plan, &at_length, sizeof(plan)) != 0) {
        char text[512];
        gen__problem_format(gen__family_by_tag(problem->base.family), &problem->base, text,
                            sizeof(text));
        fail_msg("%s on %s: variants %u, %u, %.9g us (%s); at length %u, %u, %.9g us (%s)", text,
                 device->name, plan.launch[0].variant, plan.launch[1].variant,
                 (double)plan.predicted_us, gen_why_string(plan.why), at_length.launch[0].variant,
                 at_length.launch[1].variant, (double)at_length.predicted_us,
                 gen_why_string(at_length.why));
    }
    if (status) {
        assert_memory_equal(&plan, &before, sizeof(plan)); /* untouched */
        counts->failures++;
        return GEN_WHY_REFERENCE;
    }
    /* All variants of la_decode and some of mla_merge fit every problem. */
    for (uint32_t l = 0; l < plan.num_launches; l++) {
        gen_variant_info info;
        assert_status(gen_variant_get(library, plan.launch[l].variant, &info), GEN_OK);
        if (device->compute_capability == 90 && strncmp(info.target, "sm_", 3) != 0)
            fail_msg("%s on %s", info.name, device->name);
    }
    counts->of_why[plan.why]++;
    counts->parts += plan.num_launches == 2;
    return (enum gen_why)plan.why;
}

static void the_short_way_is_the_long_way(void **state)
{
    static void (*const draw_problem[4])(union any_problem *) = {draw_la, draw_mla, draw_merge,
                                                                 draw_attn};
    static const char *const names[] = {"h200", "h20", "h100", "sm_90:80", "sm_90:104", "a100"};
    gen_device devices[6];
    struct counts counts = {0};
    (void)state;
    for (unsigned d = 0; d < 6; d++)
        assert_status(gen_device_named(names[d], &devices[d]), GEN_OK);
    devices[3].shared_per_block = 185 * 1024;
    for (unsigned round = 0; round < 10; round++) {
        void *bytes;
        gen_library *library = open_product(round < 8, round % 4 * 20, &bytes);
        for (unsigned i = 0; i < 8000 * multiple; i++) {
            union any_problem problem;
            draw_problem[i % 4](&problem);
            const gen_device *const device = &devices[draw(2) ? 0 : draw(6)];
            const enum gen_why why = same_both_ways(library, device, &problem, &counts);
            counts.attn[why] += round < 8 && i % 4 == 3 && device == devices;
        }
        gen_close(library);
        free(bytes);
    }
    assert_true(counts.of_why[GEN_WHY_TABLE] > 10000 && counts.of_why[GEN_WHY_NEAREST] > 1000);
    assert_true(counts.of_why[GEN_WHY_MODEL] > 5000);
    assert_true(counts.parts > 5000 && counts.failures > 500);
    /* Its rows reach to near problems; of the others' some other class's do. */
    assert_true(counts.attn[GEN_WHY_TABLE] > 1000 && counts.attn[GEN_WHY_MODEL] > 1000);
    assert_true(counts.attn[GEN_WHY_NEAREST] > 100);
}

/* attn_fwd: a row decides up to half a doubling away, all coordinates together; on a GPU of another
 * size that is where as many heads fall to an SM. */
static void rows_reach_to_near_problems(void **state)
{
    static const struct {
        const char *device;
        int32_t batch, q_len, kv_len;
        enum gen_why why;
    } cases[] = {
        {"h200", 4, 4096, 4096, GEN_WHY_TABLE},  {"h200", 4, 4870, 4870, GEN_WHY_TABLE},
        {"h200", 4, 4872, 4872, GEN_WHY_MODEL},  {"h200", 4, 3445, 3445, GEN_WHY_TABLE},
        {"h200", 4, 3443, 3443, GEN_WHY_MODEL},  {"h200", 4, 4096, 5792, GEN_WHY_TABLE},
        {"h200", 4, 4096, 5794, GEN_WHY_MODEL},  {"h200", 5, 4096, 4096, GEN_WHY_TABLE},
        {"h200", 5, 4096, 4720, GEN_WHY_MODEL},  {"h200", 1, 4096, 4096, GEN_WHY_MODEL},
        {"h20", 2, 4096, 4096, GEN_WHY_NEAREST}, {"h20", 1, 4096, 4096, GEN_WHY_MODEL},
    };
    static struct text text;
    struct product *product = product_new();
    void *bytes;
    (void)state;
    const uint32_t family =
        product_family(product, attn.family, attn.axes, gen__family_by_name(attn.family)->facts);
    add_key(product, family, product_target(product, "sm_90a", 90, GEN_PACK_EXACT), "sm90a", &attn);
    add_head(&text, 132);
    add_row(&text, &attn, "heads=128,q_len=4096,kv_len=4096");
    product_table(product, "one row", text.at);
    gen_library *library;
    assert_status(product_open(product, &bytes, &library), GEN_OK);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        gen_device device;
        union any_problem problem;
        struct counts counts = {0};
        assert_status(gen_device_named(cases[i].device, &device), GEN_OK);
        draw_attn(&problem);
        problem.base.flags = 0;
        problem.attn.batch = cases[i].batch;
        problem.attn.num_q_heads = 32;
        problem.attn.q_len = cases[i].q_len;
        problem.attn.kv_len = cases[i].kv_len;
        const enum gen_why why = same_both_ways(library, &device, &problem, &counts);
        if (why != cases[i].why)
            fail_msg("case %u: %s, expected %s", i, gen_why_string(why),
                     gen_why_string(cases[i].why));
        char told[4096];
        size_t length;
        problem.base.max_workspace_mib = 0;
        assert_status(gen_explain(library, &device, &problem.base, told, sizeof(told), &length),
                      GEN_OK);
        assert_int_equal(strstr(told, ": no row is within 0.5 doublings\n") != NULL,
                         why == GEN_WHY_MODEL);
    }
    gen_close(library);
    free(bytes);
}

/* Without rows nothing but the check knows that there is no such device, and code as text runs on
 * all that are newer. */
static void devices_that_do_not_exist(void **state)
{
    const uint32_t wrong[] = {0, 9, 10000, UINT32_MAX};
    gen_device device;
    gen_plan plan = {.size = sizeof(plan)};
    void *bytes;
    gen_library *library = open_product(false, 0, &bytes);
    (void)state;
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        union any_problem problem;
        draw_la(&problem);
        problem.base.flags = 0;
        problem.base.max_workspace_mib = 0;
        assert_status(gen_device_named("h200", &device), GEN_OK);
        assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
        device.compute_capability = wrong[i];
        assert_status(gen_select(library, &device, &problem.base, &plan),
                      GEN_STATUS_INVALID_ARGUMENT);
        assert_message("device->compute_capability is");
    }
    gen_close(library);
    free(bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_short_way_is_the_long_way),
                                       cmocka_unit_test(rows_reach_to_near_problems),
                                       cmocka_unit_test(devices_that_do_not_exist)};
    if (argc > 1)
        multiple = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests_name("short", tests, NULL, NULL);
}
