/*
 * Every number of a problem and of an argument struct at its limits and just beyond, for all
 * families: what a message allows is allowed, the next number is not, and the message names the
 * number that is wrong, whatever the others are.
 */
#include "families/attn_fwd/attn_fwd.h"
#include "families/kda/decode.h"
#include "families/la_decode/la_decode.h"
#include "families/mla_decode/mla_decode.h"
#include "test.h"
#include "common/problem_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

union any_problem {
    gen_problem base;
    int32_t words[64];
};

static void describe(const struct gen__family *family, const char *text, union any_problem *p)
{
    memset(p, 0, sizeof *p);
    if (gen__problem_parse(family, text, &p->base) != GEN_OK)
        fail_msg("%s: %s", text, gen_last_error());
}

/* ---- problems ------------------------------------------------------------ */

/* `least` is a problem with every number as small as it may be, and `most` with those as large that
 * may be so together; every other number of `values` is beyond. */
static const struct limits {
    const char *family, *least, *most, *field;
    int64_t low, high;
    const char *other; /* of `least`, where the greatest needs it */
} limits[] = {
#define LA                                                           \
    "la_decode", "batch=0 num_qk_heads=1 num_v_heads=1 head_dim=64", \
        "batch=2047 num_qk_heads=65536 num_v_heads=65536 head_dim=256"
    {LA, "batch", 0, INT32_MAX / 16, ""},
    {LA, "num_qk_heads", 1, 65536, "num_v_heads=65536"},
    {LA, "num_v_heads", 1, 65536, ""},
    {LA, "head_dim", 64, 64, ""},
    {LA, "head_dim", 256, 256, ""},
#define KDA_D                                                                      \
    "kda_decode", "batch=0 num_tokens=1 num_qk_heads=1 num_v_heads=1 head_dim=64", \
        "batch=1 num_tokens=16 num_qk_heads=65536 num_v_heads=65536 head_dim=128"
    {KDA_D, "batch", 0, INT32_MAX / 16, ""},
    {KDA_D, "num_tokens", 1, 16, ""},
    {KDA_D, "num_qk_heads", 1, 65536, "num_v_heads=65536"},
    {KDA_D, "num_v_heads", 1, 65536, ""},
    {KDA_D, "head_dim", 64, 64, ""},
    {KDA_D, "head_dim", 128, 128, ""},
#define MLA                                                                               \
    "mla_decode", "batch=0 num_heads=1 q_len=1 kv_len=0 max_kv_len=1 page_size=1 rope=0", \
        "batch=2048 num_heads=128 q_len=1024 kv_len=16777216 max_kv_len=16777216 "        \
        "page_size=65536 rope=64"
    {MLA, "batch", 0, 1 << 24, ""},
    {MLA, "num_heads", 1, 128, ""},
    {MLA, "q_len", 1, 1024, ""},
    {MLA, "kv_len", 0, 1, ""},
    {MLA, "max_kv_len", 1, 1 << 24, ""},
    {MLA, "page_size", 1, 65536, ""},
    {MLA, "rope", 0, 0, ""},
    {MLA, "rope", 64, 64, ""},
#define ATTN                                                                         \
    "attn_fwd",                                                                      \
        "batch=0 num_q_heads=1 num_kv_heads=1 q_len=0 kv_len=0 head_dim=64 "         \
        "window_left=-1 window_right=-1",                                            \
        "batch=1 num_q_heads=1024 num_kv_heads=1024 q_len=16777216 kv_len=16777216 " \
        "head_dim=256 window_left=16777216 window_right=16777216"
    {ATTN, "batch", 0, 1 << 24, ""},
    {ATTN, "num_q_heads", 1, 1024, ""},
    {ATTN, "num_kv_heads", 1, 1024, "num_q_heads=1024"},
    {ATTN, "q_len", 0, 1 << 24, ""},
    {ATTN, "kv_len", 0, 1 << 24, ""},
    {ATTN, "head_dim", 64, 64, ""},
    {ATTN, "head_dim", 256, 256, ""},
    {ATTN, "window_left", -1, 1 << 24, ""},
    {ATTN, "window_right", -1, 1 << 24, ""},
#define KDA_P                                                                        \
    "kda_prefill",                                                                   \
        "batch=0 seq_len=0 num_tokens=0 num_qk_heads=1 num_v_heads=1 "               \
        "head_dim=64",                                                               \
        "batch=1 seq_len=2097088 num_tokens=0 num_qk_heads=65536 num_v_heads=65536 " \
        "head_dim=128"
    {KDA_P, "batch", 0, 65535, ""},
    {KDA_P, "seq_len", 0, 1 << 30, ""},
    {KDA_P, "num_qk_heads", 1, 65536, "num_v_heads=65536"},
    {KDA_P, "num_v_heads", 1, 65536, ""},
    {KDA_P, "head_dim", 64, 64, ""},
    {KDA_P, "head_dim", 128, 128, ""},
    {"kda_prefill", "batch=0 head_dim=64", "batch=65535 seq_len=16384 num_qk_heads=1 num_v_heads=1",
     "head_dim", 64, 64, ""},
    {"kda_prefill", "batch=0 head_dim=64",
     "batch=1 seq_len=1073741824 num_qk_heads=1 num_v_heads=1", "head_dim", 64, 64, ""},
    {"kda_prefill", "batch=0 head_dim=64",
     "batch=1 seq_len=1073741824 num_tokens=1073741824 num_qk_heads=1 num_v_heads=1", "head_dim",
     64, 64, ""},
};

static void set(const struct gen__family *family, union any_problem *p, const char *field,
                int64_t value)
{
    for (uint32_t i = 0; i < family->num_fields; i++)
        if (!strcmp(family->fields[i].name, field)) {
            gen__field_set(&family->fields[i], &p->base, (int32_t)value);
            return;
        }
    fail_msg("%s has no field %s", family->name, field);
}

static enum gen_status check(const struct gen__family *family, const char *text, const char *more,
                             const char *field, int64_t value)
{
    union any_problem p;
    struct gen__key key;
    char name[64];
    long long number;
    describe(family, text, &p);
    if (sscanf(more, "%63[a-z_]=%lld", name, &number) == 2)
        set(family, &p, name, number);
    if (field)
        set(family, &p, field, value);
    return family->check(&p.base, &key);
}

static void refused(const struct limits *l, const char *text, int64_t value)
{
    const struct gen__family *family = gen__family_by_name(l->family);
    char piece[100];
    if (strstr(l->field, "window_")) /* as the struct has it */
        snprintf(piece, sizeof piece, "%s_window = %" PRId64 ";", l->field + strlen("window_"),
                 value + 1);
    else
        snprintf(piece, sizeof piece, "%s%s = %" PRId64 ";", l->field,
                 strcmp(l->field, "rope") ? "" : "_dim", value);
    if (check(family, text, "", l->field, value) != GEN_STATUS_INVALID_ARGUMENT ||
        !strstr(gen_last_error(), piece))
        fail_msg("%s with %s %s: \"%s\"", l->family, piece, text, gen_last_error());
}

static void problems_at_their_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limits *l = &limits[i];
        const struct gen__family *family = gen__family_by_name(l->family);
        assert_int_equal(check(family, l->least, "", NULL, 0), GEN_OK);
        if (check(family, l->most, "", NULL, 0) != GEN_OK)
            fail_msg("%s: %s", l->most, gen_last_error());
        assert_int_equal(check(family, l->least, "", l->field, l->low), GEN_OK);
        if (check(family, l->least, l->other, l->field, l->high) != GEN_OK)
            fail_msg("%s = %" PRId64 ": %s", l->field, l->high, gen_last_error());
        /* Beyond, with all others at their least and at their most. */
        refused(l, l->least, l->low - 1);
        refused(l, l->least, INT32_MIN);
        refused(l, l->most, l->low - 1);
        if (l->high < INT32_MAX / 16 || l->high == 1 << 30)
            refused(l, l->least, l->high + 1);
        if (l->high < INT32_MAX / 16 && strcmp(l->field, "kv_len") != 0)
            refused(l, l->most, l->high + 1);
    }
}

/* Limits of several numbers together: the first is allowed, the second not, for this reason. */
static void products_at_their_limits(void **state)
{
    (void)state;
    static const struct {
        const char *family, *good, *bad, *message;
    } pairs[] = {
        {"la_decode", "batch=134217727 num_v_heads=1 num_qk_heads=1",
         "batch=134217728 num_v_heads=1 num_qk_heads=1", "allowed: <= 134217727"},
        {"la_decode", "num_v_heads=6 num_qk_heads=3", "num_v_heads=7 num_qk_heads=3",
         "a multiple of num_qk_heads = 3"},
        {"kda_decode", "batch=134217727 num_v_heads=1 num_qk_heads=1",
         "batch=134217728 num_v_heads=1 num_qk_heads=1", "allowed: <= 134217727"},
        {"mla_decode", "batch=2048 kv_len=1 max_kv_len=16777216",
         "batch=2049 kv_len=1 max_kv_len=16777216", "allowed: <= 34359738368"},
        {"mla_decode", "batch=16777215 q_len=128 kv_len=1 max_kv_len=1",
         "batch=16777216 q_len=128 kv_len=1 max_kv_len=1", "allowed: <= 2147483647"},
        {"mla_decode", "kv_len=7 max_kv_len=7", "kv_len=8 max_kv_len=7", "kv_len = 8; allowed"},
        {"attn_fwd", "batch=16777216 num_q_heads=16 num_kv_heads=1 q_len=64",
         "batch=16777216 num_q_heads=16 num_kv_heads=1 q_len=65", "allowed: <= 268435456"},
        {"attn_fwd", "num_q_heads=1024 num_kv_heads=1024", "num_q_heads=1024 num_kv_heads=1025",
         "num_kv_heads = 1025; allowed: 1 to 1024"},
        {"kda_prefill",
         "batch=2 seq_len=1073741824 num_tokens=1073741824 num_qk_heads=1 num_v_heads=1",
         "batch=2 seq_len=1073741824 num_tokens=1073741825 num_qk_heads=1 num_v_heads=1",
         "num_tokens = 1073741825"},
        {"attn_fwd", "causal=yes window_right=0", "causal=yes window_right=1", "right_window = 2"},
        {"attn_fwd", "num_q_heads=6 num_kv_heads=3", "num_q_heads=7 num_kv_heads=3",
         "a multiple of num_kv_heads"},
        {"kda_prefill", "batch=1024 seq_len=1048576 num_qk_heads=1 num_v_heads=1",
         "batch=1025 seq_len=1048576 num_qk_heads=1 num_v_heads=1", "<= 1073741824"},
        {"kda_prefill", "batch=2 seq_len=8 num_tokens=16", "batch=2 seq_len=8 num_tokens=17",
         "batch * seq_len = 16"},
        {"kda_prefill", "batch=1 seq_len=2097088 num_qk_heads=1 num_v_heads=65536",
         "batch=1 seq_len=2097152 num_qk_heads=1 num_v_heads=65536", "<= 2147483647"},
        {"kda_bwd", "batch=1 seq_len=2097088 num_qk_heads=1 num_v_heads=65536",
         "batch=1 seq_len=2097088 num_qk_heads=2 num_v_heads=65536", "<= 2147483647"},
        {"kda_bwd", "batch=1 seq_len=64 keep=1", "batch=1 seq_len=64 keep=2", "keep = 2"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct gen__family *family = gen__family_by_name(pairs[i].family);
        if (check(family, pairs[i].good, "", NULL, 0) != GEN_OK)
            fail_msg("%s: %s", pairs[i].good, gen_last_error());
        if (check(family, pairs[i].bad, "", NULL, 0) != GEN_STATUS_INVALID_ARGUMENT ||
            !strstr(gen_last_error(), pairs[i].message))
            fail_msg("%s: \"%s\"", pairs[i].bad, gen_last_error());
    }
}

/* ---- arguments ----------------------------------------------------------- */

#define MOST_ARGS 128
struct call {
    const struct gen__family *family;
    union any_problem problem;
    gen_plan plan;
    union {
        gen_args base;
        int64_t words[MOST_ARGS];
        char bytes[8 * MOST_ARGS];
    } args;
    bool pointer[MOST_ARGS];
    struct gen__tensor tensors[GEN__MAX_TENSORS];
    uint32_t num_tensors;
};

static struct call call_of(const struct gen__family *family, const char *text)
{
    struct call c = {.family = family};
    gen_device cpu = {.size = sizeof cpu};
    assert_int_equal(gen_device_named("cpu", &cpu), GEN_OK);
    describe(family, text, &c.problem);
    family->plan(&c.problem.base, &cpu, NULL, &c.plan);
    family->default_args(&c.problem.base, &c.args.base);
    c.num_tensors = family->tensors(&c.problem.base, c.tensors);
    for (uint32_t t = 0; t < c.num_tensors; t++) {
        c.pointer[c.tensors[t].pointer_offset / 8] = true;
        if (c.tensors[t].count || c.tensors[t].view_of)
            c.args.words[c.tensors[t].pointer_offset / 8] = 0x100000 * (t + 1);
    }
    return c;
}

static enum gen_status params(const struct call *c)
{
    return c->family->params(&c->plan, 0, &c->args.base, (void *)(uintptr_t)0x1000, NULL);
}

static bool taken(struct call *c, size_t word, int64_t value)
{
    const int64_t before = c->args.words[word];
    c->args.words[word] = value;
    const bool good = params(c) == GEN_OK;
    c->args.words[word] = before;
    return good;
}

/* The message of one number's refusal says what is allowed, and just that is. */
static bool stride_is_as_told(struct call *c, size_t word)
{
    long long unit = 1, low, high;
    char name[64];
    if (taken(c, word, INT64_MIN))
        return false;
    if (sscanf(gen_last_error(),
               "%*[^:]: %63s = %*d elements; allowed: 0 (packed), or a multiple of %lld from %lld "
               "(%*[^)]) to %lld",
               name, &unit, &low, &high) != 4 &&
        sscanf(gen_last_error(),
               "%*[^:]: %63s = %*d elements; allowed: 0 (packed), or a multiple of %lld from %lld "
               "to %lld",
               name, &unit, &low, &high) != 4 &&
        (unit = 1, sscanf(gen_last_error(),
                          "%*[^:]: %63s = %*d elements; allowed: 0 (packed), or %lld to %lld", name,
                          &low, &high) != 3))
        return false;
    const int64_t last = high / unit * unit;
    const bool good = taken(c, word, 0) && taken(c, word, low) && taken(c, word, last) &&
                      (low == unit || !taken(c, word, low - unit)) &&
                      !taken(c, word, last + unit) && !taken(c, word, INT64_MAX) &&
                      (unit == 1 || !taken(c, word, low + 1));
    if (!good)
        fail_msg("%s: %s is not from %lld to %lld by %lld", c->family->name, name, low, high, unit);
    return true;
}

static bool takes(struct call *c, size_t half, int64_t value)
{
    const int64_t before = c->args.words[half / 2];
    const int32_t narrow = (int32_t)value;
    memcpy(c->args.bytes + 4 * half, &narrow, sizeof narrow);
    const bool good = params(c) == GEN_OK;
    c->args.words[half / 2] = before;
    return good;
}

/* The same of a number of 32 bits: "1 to 9", ">= 1" or "0, 1, 2". */
static bool number_is_as_told(struct call *c, size_t half)
{
    long long low, high = INT32_MAX;
    char name[64];
    if (takes(c, half, INT32_MIN))
        return false;
    static const char told[] = " = -2147483648; allowed: ";
    const char *allowed = strstr(gen_last_error(), told);
    if (!allowed || sscanf(gen_last_error(), "%*[^:]: %63s", name) != 1)
        return false;
    char list[200], text[400];
    snprintf(list, sizeof list, "%s", allowed + strlen(told));
    allowed = list;
    if (sscanf(allowed, "%lld to %lld", &low, &high) != 2 &&
        sscanf(allowed, ">= %lld", &low) != 1) {
        if (strncmp(allowed, "0, ", 3) != 0 && !strstr(allowed, "(0)"))
            return false;
        for (low = 0; low < 4; low++) {
            /* It may be refused for what else it needs, but not by this list. */
            snprintf(text, sizeof text, "%s = %lld; allowed: %s", name, low, list);
            const bool refused_here = !takes(c, half, low) && strstr(gen_last_error(), text);
            snprintf(text, sizeof text, "(%lld)", low);
            if (refused_here == (strstr(list, text) || list[3 * low] == '0' + low))
                fail_msg("%s: %s = %lld: %s", c->family->name, name, low, allowed);
        }
        return true;
    }
    if (!takes(c, half, low) || takes(c, half, low - 1) || !takes(c, half, high) ||
        (high < INT32_MAX && takes(c, half, high + 1)))
        fail_msg("%s: %s is not from %lld to %lld", c->family->name, name, low, high);
    return true;
}

static const char *const calls[][2] = {
    {"la_decode", "batch=3 num_qk_heads=2 num_v_heads=4 head_dim=64"},
    {"kda_decode", "batch=3 num_tokens=2 num_qk_heads=2 num_v_heads=4 head_dim=64"},
    {"mla_decode", "batch=3 num_heads=5 q_len=2 kv_len=70 page_size=16"},
    {"mla_decode", "batch=3 num_heads=5 q_len=2 kv_len=70 page_size=16 cache=e4m3 rope=0"},
    {"mla_decode", "batch=1 num_heads=1 q_len=1 kv_len=1 max_kv_len=1 page_size=1"},
    {"attn_fwd", "batch=2 num_q_heads=4 num_kv_heads=2 q_len=70 kv_len=90 head_dim=64"},
    {"attn_fwd", "batch=2 num_q_heads=4 num_kv_heads=2 q_len=70 kv_len=90 head_dim=64 varlen=yes"},
    {"attn_fwd", "batch=1 num_q_heads=1 num_kv_heads=1 q_len=1 kv_len=1 head_dim=64"},
    {"kda_prefill", "batch=2 seq_len=100 num_qk_heads=2 num_v_heads=4 head_dim=64"},
    {"kda_intra", "batch=2 seq_len=100 num_qk_heads=2 num_v_heads=4 head_dim=64"},
    {"kda_chunk_intra", "batch=2 seq_len=100 num_qk_heads=2 num_v_heads=4 head_dim=64"},
    {"kda_bwd", "batch=2 seq_len=100 num_qk_heads=2 num_v_heads=4 head_dim=64"},
    {"kda_bwd", "batch=2 seq_len=100 num_qk_heads=2 num_v_heads=4 head_dim=64 keep=1"},
};

static void strides_at_their_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct call c = call_of(gen__family_by_name(calls[i][0]), calls[i][1]);
        unsigned strides = 0;
        if (params(&c) != GEN_OK)
            fail_msg("%s: %s", calls[i][1], gen_last_error());
        for (size_t word = 1; word < c.family->args_size / 8; word++)
            if (!c.pointer[word])
                strides += stride_is_as_told(&c, word);
        if (strides < 3)
            fail_msg("%s has %u strides", calls[i][0], strides);
    }
}

static void numbers_at_their_limits(void **state)
{
    (void)state;
    unsigned numbers = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct call c = call_of(gen__family_by_name(calls[i][0]), calls[i][1]);
        for (size_t half = 2; half < c.family->args_size / 4; half++)
            if (!c.pointer[half / 2])
                numbers += number_is_as_told(&c, half);
    }
    if (numbers < 12)
        fail_msg("%u numbers", numbers);
}

/* Whatever is aligned is taken from its alignment on, and a power of two that is. */
static void pointers_at_their_alignment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct call c = call_of(gen__family_by_name(calls[i][0]), calls[i][1]);
        for (uint32_t t = 0; t < c.num_tensors; t++) {
            const size_t word = c.tensors[t].pointer_offset / 8;
            if (!c.args.words[word])
                continue;
            const bool floats =
                c.tensors[t].dtype == GEN_DTYPE_INT32 || c.tensors[t].dtype == GEN_DTYPE_FP32;
            int64_t alignment = 1;
            while (alignment < 64 && !taken(&c, word, 0x100000 + alignment))
                alignment *= 2;
            if (alignment != 2 && alignment != 4 && alignment != 16)
                fail_msg("%s: %s is aligned to %" PRId64, calls[i][0], c.tensors[t].name,
                         alignment);
            if (!floats && strcmp(c.tensors[t].name, "beta") != 0)
                assert_int_equal(alignment, 16);
            for (int64_t offset = 1; offset < 64; offset++)
                if (taken(&c, word, 0x100000 + offset) != (offset % alignment == 0))
                    fail_msg("%s: %s at %" PRId64, calls[i][0], c.tensors[t].name, offset);
        }
    }
}

/* The numbers of a plan that are divided by or go into offsets, in case it is not as it was made.
 */
static void plans_at_their_limits(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        uint32_t dim;
        int32_t good, bad;
    } dims[] = {
        {"la_decode", LA_DECODE_BATCH, 0, -1},      {"la_decode", LA_DECODE_QK_HEADS, 1, 0},
        {"la_decode", LA_DECODE_V_HEADS, 2, 1},     {"mla_decode", MLA_DECODE_BATCH, 1, 0},
        {"mla_decode", MLA_DECODE_NUM_HEADS, 1, 0}, {"mla_decode", MLA_DECODE_Q_LEN, 1, 0},
        {"mla_decode", MLA_DECODE_PAGE_SIZE, 1, 0}, {"mla_decode", MLA_DECODE_MAX_KV_LEN, 1, 0},
        {"attn_fwd", ATTN_FWD_BATCH, 1, 0},         {"attn_fwd", ATTN_FWD_NUM_KV_HEADS, 1, 0},
        {"attn_fwd", ATTN_FWD_Q_LEN, 1, 0},         {"attn_fwd", ATTN_FWD_NUM_KV_HEADS, 1, 5},
        {"kda_decode", KDA_DECODE_BATCH, 0, -1},    {"kda_decode", KDA_DECODE_QK_HEADS, 1, 0},
        {"kda_decode", KDA_DECODE_V_HEADS, 2, 1},   {"kda_decode", KDA_DECODE_TOKENS, 1, 0},
        {"kda_decode", KDA_DECODE_TOKENS, 16, 17},
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            if (strcmp(calls[k][0], dims[i].family) != 0)
                continue;
            struct call c = call_of(gen__family_by_name(calls[k][0]), calls[k][1]);
            c.plan.dims[dims[i].dim] = dims[i].good;
            if (params(&c) == GEN_STATUS_MISMATCH)
                fail_msg("%s, dim %u: %s", calls[k][1], dims[i].dim, gen_last_error());
            c.plan.dims[dims[i].dim] = dims[i].bad;
            assert_int_equal(params(&c), GEN_STATUS_MISMATCH);
        }
}

/* Tensors without rows need not be there; one row is enough that they must. */
static void tensors_without_rows(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        if (strcmp(calls[k][0], "attn_fwd") != 0)
            continue;
        struct call c = call_of(gen__family_by_name("attn_fwd"), calls[k][1]);
        gen_attn_fwd_args *a = (gen_attn_fwd_args *)&c.args;
        const bool varlen = c.plan.dims[ATTN_FWD_VARLEN];
        for (int rows = 0; rows < (varlen ? 2 : 1); rows++) {
            const gen_attn_fwd_args before = *a;
            if (varlen)
                a->total_q = a->total_k = 1 - rows;
            assert_int_equal(params(&c), GEN_OK);
            a->k = NULL;
            assert_int_equal(params(&c), rows ? GEN_OK : GEN_STATUS_INVALID_ARGUMENT);
            a->k = before.k;
            a->q = NULL;
            assert_int_equal(params(&c), rows ? GEN_OK : GEN_STATUS_INVALID_ARGUMENT);
            a->q = before.q;
            a->total_q = -1;
            assert_int_equal(params(&c), varlen ? GEN_STATUS_INVALID_ARGUMENT : GEN_OK);
            a->total_q = 1;
            a->total_k = -1;
            assert_int_equal(params(&c), varlen ? GEN_STATUS_INVALID_ARGUMENT : GEN_OK);
            *a = before;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(problems_at_their_limits),    cmocka_unit_test(products_at_their_limits),
        cmocka_unit_test(strides_at_their_limits),     cmocka_unit_test(numbers_at_their_limits),
        cmocka_unit_test(pointers_at_their_alignment), cmocka_unit_test(plans_at_their_limits),
        cmocka_unit_test(tensors_without_rows),
    };
    return cmocka_run_group_tests_name("edges", tests, NULL, NULL);
}
