/*
 * What a launch writes must lie apart from all else: for every family, problem of its verify list
 * and form of its arguments, the extents that it describes are those of its tensors, and an output
 * that is laid over another tensor is refused. Addresses here are numbers alone; no code reads
 * there.
 */
#include "test.h"
#include "common/problem_text.h"

#include "families/common/extents.h"
#include "families/la_decode/api.h"
#include "make_product.h"

#include <stdlib.h>
#include <string.h>

#define FAR (UINT64_C(1) << 40)

struct call {
    const struct gen__family *family;
    union {
        gen_problem base;
        char bytes[GEN__MAX_PROBLEM];
    } problem;
    union {
        gen_args base;
        char bytes[GEN__MAX_ARGS];
    } args;
    struct gen__tensor tensors[GEN__MAX_TENSORS];
    uint32_t num_tensors, num_extents;
    struct gen__extent extents[GEN__MAX_EXTENTS];
    gen_plan plan;
};

static int64_t bytes_of(enum gen_dtype dtype)
{
    return dtype == GEN_DTYPE_INT64                              ? 8
           : dtype == GEN_DTYPE_FP32 || dtype == GEN_DTYPE_INT32 ? 4
           : dtype == GEN_DTYPE_E4M3 || dtype == GEN_DTYPE_E5M2  ? 1
                                                                 : 2;
}

static uint64_t get_pointer(const struct call *c, const struct gen__tensor *t)
{
    uint64_t at;
    memcpy(&at, c->args.bytes + t->pointer_offset, sizeof at);
    return at;
}

static void set_pointer(struct call *c, const struct gen__tensor *t, uint64_t at)
{
    memcpy(c->args.bytes + t->pointer_offset, &at, sizeof at);
}

/* The problem of a line in a form (-1: none); false where it has no such form. */
static bool prepare(struct call *c, const struct gen__family *family, const char *text, int form)
{
    memset(c, 0, sizeof *c);
    c->family = family;
    if (gen__problem_parse(family, text, &c->problem.base))
        fail_msg("%s: %s", text, gen_last_error());
    c->args.base = (gen_args){family->args_size, family->tag};
    family->default_args(&c->problem.base, &c->args.base);
    c->num_tensors = family->tensors(&c->problem.base, c->tensors);
    if (form >= 0 && !family->form(&c->problem.base, (uint32_t)form, &c->args.base, c->tensors))
        return false;
    for (uint32_t i = 0; i < c->num_tensors; i++) {
        const struct gen__tensor *t = &c->tensors[i];
        if (t->view_of)
            set_pointer(c, t, FAR * t->view_of + t->view_at * (uint64_t)bytes_of(t->dtype));
        else if (t->count)
            set_pointer(c, t, FAR * (i + 1));
    }
    gen_device cpu = {.size = sizeof cpu};
    struct gen__key key;
    assert_int_equal(gen_device_named("cpu", &cpu), GEN_OK);
    assert_int_equal(family->check(&c->problem.base, &key), GEN_OK);
    family->plan(&c->problem.base, &cpu, NULL, &c->plan);
    return !key.empty && c->plan.num_launches > 0;
}

static enum gen_status check(struct call *c)
{
    c->num_extents = c->family->extents(c->plan.dims, &c->args.base, c->extents);
    assert_true(c->num_extents <= GEN__MAX_EXTENTS);
    return gen__check_apart(c->family->name, c->extents, c->num_extents);
}

static const struct gen__extent *extent_of(const struct call *c, const struct gen__tensor *t)
{
    for (uint32_t i = 0; i < c->num_extents; i++)
        if (!strcmp(c->extents[i].name, t->name))
            return &c->extents[i];
    fail_msg("%s: %s is not told", c->family->name, t->name);
    return NULL;
}

/* Is it of a paged cache, of page lists and of lists of tokens? */
static bool has_lists(const struct call *c)
{
    return !strncmp(c->family->name, "mla_", 4) || !strcmp(c->family->name, "attn_paged");
}

/* Sizes that lists on the device say. */
static bool is_known(const struct call *c, const struct gen__tensor *t)
{
    static const char *const by_tokens[] = {"q_nope", "q_pe", "o", "lse", "q"};
    if (!has_lists(c))
        return true;
    bool indptr = !strcmp(c->family->name, "mla_merge"), pages = false;
    for (uint32_t i = 0; i < c->num_tensors; i++) {
        indptr |= !strcmp(c->tensors[i].name, "q_indptr") && c->tensors[i].count;
        pages |= !strcmp(c->tensors[i].name, "page_indptr") && c->tensors[i].count;
    }
    for (int i = 0; indptr && i < 5; i++)
        if (!strcmp(t->name, by_tokens[i]))
            return false;
    return !(pages && !strcmp(t->name, "page_indices")) && strcmp(t->name, "q_indptr") != 0;
}

/* Does another tensor lie in it? */
static bool holds_view(const struct call *c, uint32_t tensor)
{
    bool held = false;
    for (uint32_t i = 0; i < c->num_tensors; i++)
        held |= c->tensors[i].view_of == tensor + 1;
    return held;
}

/* Names, sizes and roles as tensors() has them. */
static void check_places(const struct call *c, const char *text, int form)
{
    for (uint32_t i = 0; i < c->num_tensors; i++) {
        const struct gen__tensor *t = &c->tensors[i];
        if (!get_pointer(c, t))
            continue;
        const struct gen__extent *e = extent_of(c, t);
        const int64_t size = (int64_t)(e->end - e->begin);
        const int64_t expected = (int64_t)t->count * bytes_of(t->dtype);
        /* These have more in some forms, and behind rows of the cache and of its table; pools,
         * behind their last slot. */
        const bool more = !strcmp(c->family->name, "attn_fwd") || has_lists(c) ||
                          (strstr(text, "state_pool=pool") &&
                           (strstr(t->name, "_state") || strstr(t->name, "ckpt_pool")));
        const int64_t least = !more ? expected : form < 0 ? expected - 128 : 1;
        if (e->end && !t->view_of && is_known(c, t) && (size > expected || size < least))
            fail_msg("%s, %s, form %d: %s is told with %lld bytes, it has %lld", c->family->name,
                     text, form, t->name, (long long)size, (long long)expected);
        if (!holds_view(c, i)) /* what is written over in place is described as read */
            assert_int_equal(e->written, t->role != GEN__IN);
    }
}

/* Which outputs api.h lets be an input. */
static bool may_be(const char *family, const char *output, const char *input)
{
    static const struct {
        const char *family, *output, *input;
    } pairs[] = {{"attn_merge", "o", "v"},
                 {"attn_merge", "o", "v_2"},
                 {"attn_merge", "o_lse", "lse"},
                 {"attn_merge", "o_lse", "lse_2"},
                 {"kda_chunk_h", "final_state", "initial_state"},
                 {"kda_inter", "final_state", "initial_state"},
                 {"kda_prefill", "final_state", "initial_state"},
                 {"gdn_prefill", "final_state", "initial_state"},
                 {"kda_bwd_grad", "d_v", "v"},
                 {"kda_bwd_wy", "d_v", "v"},
                 {"kda_bwd_intra", "d_q", "d_q_states"},
                 {"kda_bwd_intra", "d_k", "d_k_states"},
                 {"kda_bwd_intra", "d_beta", "d_beta_states"},
                 {"kda_bwd_intra", "d_g", "d_g_states"}};
    /* One pool may hold all states, in different slots. */
    if (!strcmp(input, "pools.ckpt_pool") || !strcmp(output, "pools.ckpt_pool"))
        return strstr(!strcmp(input, "pools.ckpt_pool") ? output : input, "_state") != NULL;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(pairs[i].family, family) && !strcmp(pairs[i].output, output) &&
            !strcmp(pairs[i].input, input))
            return true;
    return false;
}

/* Output `o` where tensor `t` is, beside it, and by a byte in it. */
static void lay_over(struct call *c, const struct gen__tensor *o, const struct gen__tensor *t)
{
    const uint64_t before = get_pointer(c, o);
    const struct gen__extent *out = extent_of(c, o), *other = extent_of(c, t);
    const uint64_t from_begin = before - out->begin, size = out->end - out->begin;
    const uint64_t begin = other->begin, end = other->end;
    if (!other->end) /* packed sequences without tokens */
        return;
    /* Beside a view is another one. */
    const bool shared = t->view_of != 0 || holds_view(c, (uint32_t)(t - c->tensors));
    char names[2][96];
    snprintf(names[0], sizeof names[0], "%s, from", o->name);
    snprintf(names[1], sizeof names[1], "overlaps %s,", o->name);
    const struct {
        uint64_t at;
        bool apart;
    } places[] = {{get_pointer(c, t), false},
                  {end - 1 + from_begin, false},
                  {begin + 1 - size + from_begin, false},
                  {end + from_begin, true},
                  {begin - size + from_begin, true}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (places[i].apart && shared)
            continue;
        set_pointer(c, o, places[i].at);
        const enum gen_status status = check(c);
        const bool one = i == 0 && bytes_of(o->dtype) == bytes_of(t->dtype) &&
                         may_be(c->family->name, o->name, t->name);
        if (status != (places[i].apart || one ? GEN_OK : GEN_STATUS_INVALID_ARGUMENT))
            fail_msg("%s: %s laid over %s, place %zu: %s", c->family->name, o->name, t->name, i,
                     status ? gen_last_error() : "not refused");
        if (status)
            assert_true(strstr(gen_last_error(), names[0]) || strstr(gen_last_error(), names[1]));
    }
    set_pointer(c, o, before);
    assert_int_equal(check(c), GEN_OK);
}

static unsigned check_problem(const struct gen__family *family, const char *text)
{
    static struct call c;
    unsigned laid = 0;
    for (int form = -1; form < (int)family->num_forms; form++) {
        if (!prepare(&c, family, text, form))
            continue;
        if (family->params(&c.plan, 0, &c.args.base, (void *)(uintptr_t)FAR, NULL))
            fail_msg("%s, %s, form %d: %s", family->name, text, form, gen_last_error());
        if (check(&c))
            fail_msg("%s, %s, form %d: %s", family->name, text, form, gen_last_error());
        check_places(&c, text, form);
        for (uint32_t o = 0; o < c.num_tensors; o++)
            for (uint32_t t = 0; t < c.num_tensors; t++)
                if (o != t && c.tensors[o].role != GEN__IN && !c.tensors[o].view_of &&
                    !holds_view(&c, o) && get_pointer(&c, &c.tensors[o]) &&
                    get_pointer(&c, &c.tensors[t])) {
                    lay_over(&c, &c.tensors[o], &c.tensors[t]);
                    laid++;
                }
    }
    return laid;
}

static void outputs_over_other_tensors(void **state)
{
    (void)state;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        const struct gen__family *family = gen__families[f];
        char path[512], line[512];
        unsigned laid = 0;
        assert_non_null(family->extents);
        snprintf(path, sizeof path, SOURCE_DIR "/bench/shapes/%s_verify.txt", family->name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file)) {
            line[strcspn(line, "#@\n")] = '\0';
            if (line[strspn(line, " ")])
                laid += check_problem(family, line);
        }
        fclose(file);
        if (laid < 50)
            fail_msg("%s: %u times an output was laid over a tensor", family->name, laid);
    }
}

/* Strides that no memory has: refused, and no number on the way overflows. */
static void strides_beyond_all_memory(void **state)
{
    static const int64_t strides[] = {INT64_MAX,        INT64_MIN,           INT64_MAX / 3,
                                      INT64_C(1) << 57, -(INT64_C(1) << 57), 16952270277124096};
    const void *far = (const void *)(uintptr_t)0x7000000000, *near = (const void *)(uintptr_t)64;
    (void)state;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        for (int64_t element = 1; element <= 4; element *= 2) {
            struct gen__extent list[2];
            gen__writes(&list[0], "o", near, 64);
            gen__reads_rows(&list[1], "q", far, 64, 611075, gen__stride_bytes(strides[i], element));
            gen__extent_repeat(&list[1], 7, strides[i]);
            assert_int_equal(gen__check_apart("toy", list, 2), GEN_STATUS_INVALID_ARGUMENT);
            assert_non_null(strstr(gen_last_error(), "overlaps q"));
            /* One row has no stride. */
            gen__reads_rows(&list[1], "q", far, 64, 1, gen__stride_bytes(strides[i], element));
            assert_int_equal(gen__check_apart("toy", list, 2), GEN_OK);
        }
}

/* ---- columns and heads of one buffer -------------------------------------- */

static void mark(unsigned char *bytes, const struct gen__extent *e, const unsigned char *origin,
                 unsigned char bit)
{
    int64_t n[GEN__EXTENT_RANK] = {1, 1, 1}, s[GEN__EXTENT_RANK] = {0};
    for (int i = 0; i < e->rank; i++) {
        n[i] = e->count[i];
        s[i] = e->stride[i];
    }
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t b = 0; b < e->width; b++)
                    bytes[(const unsigned char *)e->at - origin + i * s[0] + j * s[1] + k * s[2] +
                          b] |= bit;
}

static void random_extent(struct gen__extent *e, const unsigned char *origin, uint64_t *seed,
                          bool written)
{
    const int64_t unit = 1 + (int64_t)(random_bits(seed) % 4);
    gen__extent(e, written, written ? "out" : "in", origin + 1024 + random_bits(seed) % 256,
                1 + (int64_t)(random_bits(seed) % 12));
    for (uint64_t rank = random_bits(seed) % 4; rank; rank--)
        gen__extent_repeat(e, 1 + (int64_t)(random_bits(seed) % 4),
                           unit * ((int64_t)(random_bits(seed) % 64) - 16));
}

/* Whatever shares a byte is refused; of what shares none a good part is let pass. */
static void as_bytes_say(void **state)
{
    (void)state;
    static unsigned char bytes[4096], origin[4096];
    uint64_t seed = 5;
    unsigned apart = 0, allowed = 0, within = 0, refused = 0;
    for (int i = 0; i < 200000; i++) {
        struct gen__extent e[2];
        random_extent(&e[0], origin, &seed, true);
        random_extent(&e[1], origin, &seed, i % 3 == 0);
        memset(bytes, 0, sizeof bytes);
        mark(bytes, &e[0], origin, 1);
        mark(bytes, &e[1], origin, 2);
        const bool shared = memchr(bytes, 3, sizeof bytes) != NULL;
        const bool ok = gen__check_apart("a family", e, 2) == GEN_OK;
        if (shared && ok)
            fail_msg("number %d: bytes are shared, and nobody says so", i);
        const bool ranges = e[0].begin < e[1].end && e[1].begin < e[0].end;
        apart += !shared;
        allowed += ok;
        within += !shared && ranges;
        refused += !ok;
    }
    assert_true(apart > 60000 && within > 10000 && refused > 40000);
    assert_true(allowed > apart - within + within / 8);
}

/* Layouts that models have: what is written is a part of the buffer that is read. */
static void parts_of_one_buffer(void **state)
{
    (void)state;
    static unsigned char buffer[1];
    const struct {
        int64_t a[8], b[8]; /* at, width, then count and stride */
        bool apart;
    } cases[] = {
        /* [tokens][q | k | v | o], 512 bytes each */
        {{0, 512, 100, 2048}, {1536, 512, 100, 2048}, true},
        {{0, 512, 100, 2048}, {1535, 514, 100, 2048}, false},
        {{0, 512, 100, 2048}, {1537, 512, 100, 2048}, false},
        /* [tokens][heads][q | o], of 256 and 128 bytes */
        {{0, 256, 16, 384, 100, 6144}, {256, 128, 16, 384, 100, 6144}, true},
        {{0, 256, 16, 384, 100, 6144}, {255, 128, 16, 384, 100, 6144}, false},
        /* [tokens][heads of 384, of which 256 are read | o, packed] */
        {{0, 256, 16, 384, 100, 10240}, {6144, 4096, 100, 10240}, true},
        {{0, 256, 16, 384, 100, 10240}, {6016, 4096, 100, 10240}, true},
        {{0, 256, 16, 384, 100, 10240}, {6015, 4096, 100, 10240}, false},
        /* Every other row; a row of one that the other never has. */
        {{0, 1024, 50, 2048}, {1024, 1024, 50, 2048}, true},
        {{0, 1024, 50, 2048}, {1024, 1024, 25, 4096}, true},
        {{0, 1024, 50, 2048}, {3072, 1024}, true},
        {{0, 1024, 50, 2048}, {3073, 1024}, false},
        {{0, 1024, 50, 2048}, {2048, 1024}, false},
        /* From the last to the first. */
        {{49 * 2048, 1024, 50, -2048}, {1024, 1024, 50, 2048}, true},
        {{49 * 2048, 1024, 50, -2048}, {1023, 1024, 50, 2048}, false},
        /* Rows that do not repeat alike. */
        {{0, 512, 100, 2048}, {512, 512, 100, 3072}, true},
        {{0, 512, 100, 2048}, {512, 513, 100, 3072}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gen__extent e[2];
        const int64_t *const both[] = {cases[i].a, cases[i].b};
        for (int k = 0; k < 2; k++) {
            gen__extent(&e[k], k == 1, k ? "o" : "q", buffer + both[k][0], both[k][1]);
            for (int d = 2; d < 8 && both[k][d]; d += 2)
                gen__extent_repeat(&e[k], both[k][d], both[k][d + 1]);
        }
        if ((gen__check_apart("f", e, 2) == GEN_OK) != cases[i].apart)
            fail_msg("case %zu: %s", i, cases[i].apart ? gen_last_error() : "not refused");
        e[0].written = true; /* and of two outputs */
        assert_int_equal(gen__check_apart("f", e, 2) == GEN_OK, cases[i].apart);
        e[0].written = e[1].written = false;
        assert_int_equal(gen__check_apart("f", e, 2), GEN_OK);
    }
}

/* ---- launches -------------------------------------------------------------- */

/* gen_launch() asks on the CPU and on a GPU alike, before anything is launched. */
static void launches_are_refused(void **state)
{
    (void)state;
    static _Alignas(256) char memory[1 << 16], pool[64 * 64 * 4];
    struct product *product = product_new();
    const uint32_t family = product_family(product, "la_decode", "dtype,head_dim,layout,state_pool",
                                           "blocks,persistent,inflight_bytes,warp_bytes,streaming,"
                                           "dependent");
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    const uint32_t group =
        product_group(product, "la_decode_bf16_d64_vk", "bf16,64,vk,none", family, target);
    product_variant(product, group,
                    (struct product_variant){.name = "la_decode_bf16_d64_vk__sm90a_a",
                                             .facts = {1, 0, 16384, 512, 0, 0},
                                             .fallback = 1});
    void *bytes;
    gen_library *library;
    if (product_open(product, &bytes, &library))
        fail_msg("%s", gen_last_error());
    setenv("GEN_LIBCUDA", FAKE_CUDA, 1);
    static const char *const names[] = {"cpu", "h200"};
    for (int i = 0; i < 2; i++) {
        gen_device device = {.size = sizeof device};
        const gen_la_decode_problem p = {.base = {sizeof p, GEN_LA_DECODE, 0, 0},
                                         .batch = 1,
                                         .num_qk_heads = 1,
                                         .num_v_heads = 1,
                                         .head_dim = 64};
        gen_la_decode_args a = {.base = {sizeof a, GEN_LA_DECODE},
                                .q = memory,
                                .k = memory + 256,
                                .v = memory + 512,
                                .o = memory + 1024,
                                .decay = (float *)(void *)(memory + 768),
                                .state = (float *)(void *)pool,
                                .num_slots = 1,
                                .num_decays = 1,
                                .scale = 1};
        gen_plan plan = {.size = sizeof plan};
        assert_int_equal(gen_device_named(names[i], &device), GEN_OK);
        if (gen_select(library, &device, &p.base, &plan) ||
            gen_launch(library, &plan, &a.base, NULL, NULL))
            fail_msg("%s: %s", names[i], gen_last_error());
        a.o = memory + 512;
        assert_int_equal(gen_launch(library, &plan, &a.base, NULL, NULL),
                         GEN_STATUS_INVALID_ARGUMENT);
        char text[256];
        snprintf(text, sizeof text,
                 "la_decode: o, from %p to %p, overlaps v, from %p to %p; allowed: memory of its "
                 "own for what is written",
                 a.o, (void *)(memory + 640), a.v, (void *)(memory + 640));
        assert_string_equal(gen_last_error(), text);
    }
    gen_close(library);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_over_other_tensors),
        cmocka_unit_test(strides_beyond_all_memory),
        cmocka_unit_test(as_bytes_say),
        cmocka_unit_test(parts_of_one_buffer),
        cmocka_unit_test(launches_are_refused),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
