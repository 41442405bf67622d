/*
 * The host side of kda_decode: what it allows and what it says where it does
 * not, the geometry and the parameters of a launch, the estimate of its time.
 */
#include "h200.h"
#include "kda_decode.h"

#include <math.h>

static const struct gen__family *const family = &gen__family_kda_decode;

/* 128 threads of 48 registers. */
static struct gen__facts variant_of(int32_t blocks, int32_t token_bytes)
{
    return (struct gen__facts){.index = 17,
                               .threads = 128,
                               .registers = 48,
                               .cluster = 1,
                               .shared_dynamic = (uint32_t)token_bytes,
                               .fact = {[KDA_DECODE_BLOCKS] = blocks,
                                        [KDA_DECODE_TOKEN_BYTES] = token_bytes,
                                        [KDA_DECODE_THREAD_BYTES] = 64}};
}

/* ---- the problem ------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_decode_problem p = kda_problem(64, 5, 16, 64, 128);
    p.layout = GEN_KDA_DECODE_KV;
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = GEN_DTYPE_FP32;
    p.beta_dtype = GEN_DTYPE_FP16;
    memset(&key, 0xff, sizeof key);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "128");
    assert_string_equal(family->required[1].values[key.codes[1]], "kv");
    assert_string_equal(family->required[2].values[key.codes[2]], "many");
    assert_true(key.counts[0] == 4096 && key.counts[1] == 5);
    assert_false(key.empty);

    p = kda_problem(1, 1, 1, 1, 64);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "64");
    assert_string_equal(family->required[1].values[key.codes[1]], "vk");
    assert_string_equal(family->required[2].values[key.codes[2]], "one");
    assert_true(key.counts[0] == 1 && key.counts[1] == 1);

    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_int_equal(kda_plan(p, &h200, NULL).num_launches, 0);
}

static void batch_invariance_forgets_the_batch(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(8, 1664);
    gen_kda_decode_problem p = kda_problem(64, 2, 8, 16, 128);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    const float count = key.counts[0], us = family->predict(&p.base, &h200, &facts);
    p.base.flags = GEN_BATCH_INVARIANT;
    for (p.batch = 1; p.batch < 3000; p.batch = p.batch * 2 + 1) {
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[0] == count && key.counts[1] == 2);
        assert_true(family->predict(&p.base, &h200, &facts) == us);
    }
}

static void check_errors(void **state)
{
    (void)state;
    static const char side[] = "; allowed: that of q, k, v, or GEN_DTYPE_FP32 (2)";
    static const struct {
        size_t offset;
        int32_t value;
        const char *message, *more;
    } cases[] = {
#define AT(field) offsetof(gen_kda_decode_problem, field)
        {AT(batch), -1, "kda_decode: batch = -1; allowed: >= 0", ""},
        {AT(num_tokens), 0, "kda_decode: num_tokens = 0; allowed: 1 to 8", ""},
        {AT(num_tokens), 9, "kda_decode: num_tokens = 9; allowed: 1 to 8", ""},
        {AT(num_tokens), -2147483647, "kda_decode: num_tokens = -2147483647; allowed: 1 to 8", ""},
        {AT(num_qk_heads), 0, "kda_decode: head count num_qk_heads = 0; allowed: 1 to 65536", ""},
        {AT(num_qk_heads), 65537,
         "kda_decode: head count num_qk_heads = 65537; allowed: 1 to 65536", ""},
        {AT(num_v_heads), -4, "kda_decode: head count num_v_heads = -4; allowed: 1 to 65536", ""},
        {AT(num_v_heads), 65544, "kda_decode: head count num_v_heads = 65544; allowed: 1 to 65536",
         ""},
        {AT(num_v_heads), 12,
         "kda_decode: head count num_v_heads = 12; allowed: a multiple of num_qk_heads = 8", ""},
        {AT(num_v_heads), 4,
         "kda_decode: head count num_v_heads = 4; allowed: a multiple of num_qk_heads = 8", ""},
        {AT(head_dim), 256, "kda_decode: head_dim = 256; allowed: 64, 128", ""},
        {AT(head_dim), 0, "kda_decode: head_dim = 0; allowed: 64, 128", ""},
        {AT(dtype), 2, "kda_decode: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)",
         ""},
        {AT(gate_dtype), 1, "kda_decode: gate_dtype = 1", side},
        {AT(gate_dtype), -1, "kda_decode: gate_dtype = -1", side},
        {AT(beta_dtype), 3, "kda_decode: beta_dtype = 3", side},
        {AT(layout), 2,
         "kda_decode: layout = 2; allowed: GEN_KDA_DECODE_VK (0), GEN_KDA_DECODE_KV (1)", ""},
        {AT(layout), -1,
         "kda_decode: layout = -1; allowed: GEN_KDA_DECODE_VK (0), GEN_KDA_DECODE_KV (1)", ""},
        {AT(batch), 8388608,
         "kda_decode: batch * num_v_heads = 8388608 * 16 = 134217728; allowed: <= 134217727", ""},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_kda_decode_problem p = kda_problem(4, 3, 8, 16, 128);
        struct gen__key key, before;
        char message[256];
        memset(&key, 0xa5, sizeof key);
        before = key;
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        snprintf(message, sizeof message, "%s%s", cases[i].message, cases[i].more);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, message);
        assert_memory_equal(&key, &before, sizeof key);
    }
}

/* ---- the launch -------------------------------------------------------- */

static void a_block_for_each_slice(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 16; blocks *= 2) {
        const struct gen__facts facts = variant_of(blocks, 1664);
        const gen_plan plan = kda_plan(kda_problem(3, 4, 5, 10, 128), &h200, &facts);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].variant, 17);
        assert_int_equal(plan.launch[0].grid[0], 3 * 10 * blocks);
        assert_int_equal(plan.launch[0].threads, 128);
        assert_int_equal(plan.launch[0].shared, 4 * 1664);
    }
    const gen_kda_decode_problem largest = kda_problem(8388607, 1, 8, 16, 128);
    struct gen__facts facts = variant_of(16, 1664);
    struct gen__key key;
    assert_int_equal(family->check(&largest.base, &key), GEN_OK);
    assert_null(family->fits(&largest.base, &h200, &facts));
    facts = variant_of(17, 1664);
    assert_string_equal(family->fits(&largest.base, &h200, &facts),
                        "batch * num_v_heads * blocks is more than a grid holds (2147483647)");
}

static void dependent_launches(void **state)
{
    (void)state;
    struct gen__facts facts = variant_of(8, 1664);
    gen_kda_decode_problem p = kda_problem(4, 1, 64, 64, 128);
    assert_int_equal(kda_plan(p, &h200, &facts).launch[0].dependent, 0);
    facts.fact[KDA_DECODE_DEPENDENT] = 1;
    assert_int_equal(kda_plan(p, &h200, &facts).launch[0].dependent, 1);
    p.base.flags = GEN_SERIAL_LAUNCH;
    assert_int_equal(kda_plan(p, &h200, &facts).launch[0].dependent, 0);
}

/* ---- arguments --------------------------------------------------------- */

/* Never read: params() looks at addresses alone. */
static _Alignas(16) unsigned char memory[64];

static gen_kda_decode_args good_args(const gen_kda_decode_problem *p)
{
    gen_kda_decode_args a;
    memset(&a, 0xa5, sizeof a);
    family->default_args(&p->base, &a.base);
    a.q = memory;
    a.k = memory + 16;
    a.v = memory + 32;
    a.gate = memory + 48;
    a.beta = memory + 2;
    a.o = memory;
    a.a_log = (const float *)(const void *)(memory + 4);
    a.dt_bias = (const float *)(const void *)(memory + 16);
    a.state = (float *)(void *)(memory + 32);
    a.slots = (const int32_t *)(const void *)(memory + 8);
    a.accepted = (const int32_t *)(const void *)(memory + 12);
    return a;
}

static void parameters(void **state)
{
    (void)state;
    gen_kda_decode_problem p = kda_problem(5, 3, 7, 21, 128);
    p.gate_dtype = GEN_DTYPE_FP32;
    const struct gen__facts facts = variant_of(8, 1664);
    const gen_plan plan = kda_plan(p, &h200, &facts);
    gen_kda_decode_args a = good_args(&p);
    struct gen_kda_decode_params k;
    memset(&k, 0xa5, sizeof k);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.gate, a.gate);
    assert_ptr_equal(k.accepted, a.accepted);
    assert_null(k.cu_seqlens);
    assert_int_equal(k.q_stride, 7 * 128);
    assert_int_equal(k.gate_stride, 21 * 128);
    assert_int_equal(k.beta_stride, 21);
    assert_int_equal(k.o_stride, 21 * 128);
    assert_int_equal(k.num_tokens, 3);
    assert_int_equal(k.slots_stride, 3);
    assert_int_equal(k.num_slots, 5 * 3 + 3);
    assert_int_equal(k.write, GEN_KDA_DECODE_WRITE_EACH);
    assert_int_equal(k.gate_form, GEN_KDA_GATE_SOFTPLUS);
    assert_int_equal(k.beta_form, GEN_KDA_BETA_SIGMOID);
    assert_int_equal(k.qk_l2norm, 1);
    assert_int_equal(k.dtype, GEN_DTYPE_BF16);
    assert_int_equal(k.gate_dtype, GEN_DTYPE_FP32);
    assert_int_equal(k.beta_dtype, GEN_DTYPE_BF16);
    assert_true(fabs(k.scale - 1 / sqrt(128)) < 1e-7);
    for (unsigned x = 0; x < 5 * 21; x++) {
#define QUOTIENT(mul, shift) (mul ? (unsigned)((uint64_t)x * mul >> 32) >> shift : x)
        assert_int_equal(QUOTIENT(k.heads_mul, k.heads_shift), x / 21);
        assert_int_equal(QUOTIENT(k.group_mul, k.group_shift), x / 3);
#undef QUOTIENT
    }
    a.q_stride = 40 * 128;
    a.beta_stride = 22;
    a.slots_stride = 9;
    a.cu_seqlens = (const int32_t *)(const void *)memory;
    a.total_tokens = 11;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.q_stride, 40 * 128);
    assert_int_equal(k.beta_stride, 22);
    assert_int_equal(k.slots_stride, 9);
    assert_int_equal(k.total_tokens, 11);

    for (int i = 0; i < 4; i++) { /* a plan that was kept badly */
        static const int dims[] = {KDA_DECODE_BATCH, KDA_DECODE_TOKENS, KDA_DECODE_QK_HEADS,
                                   KDA_DECODE_V_HEADS};
        gen_plan damaged = plan;
        damaged.dims[dims[i]] = i ? 0 : -1;
        assert_int_equal(family->params(&damaged, 0, &a.base, NULL, &k), GEN_STATUS_MISMATCH);
        assert_non_null(strstr(gen_last_error(), "not what gen_select() writes"));
    }
}

/* One wrong argument at a time; %p in a message stands for the pointer. */
struct wrong {
    size_t offset, size;
    int64_t value; /* NULL and numbers; for `pointer` an offset from memory */
    bool pointer;
    const char *message;
};

#define AT(field) offsetof(gen_kda_decode_args, field), sizeof((gen_kda_decode_args *)0)->field
#define NO_POINTER(name)                                    \
    {                                                       \
        AT(name), 0, false, "kda_decode: " #name " is NULL" \
    }
#define MISALIGNED(name, by, what, unit)                                               \
    {                                                                                  \
        AT(name), by, true,                                                            \
            "kda_decode: " #name " = %p; allowed: " what "multiple of " #unit " bytes" \
    }
#define STRIDE(name, bad, width)                                              \
    {                                                                         \
        AT(name), bad, false,                                                 \
            "kda_decode: " #name " = " #bad                                   \
            " elements; allowed: 0 (packed), or a multiple of 8 from " #width \
            " (one token) to 144115188075855872"                              \
    }

static const struct wrong wrongs[] = {
    NO_POINTER(q),
    NO_POINTER(k),
    NO_POINTER(v),
    NO_POINTER(gate),
    NO_POINTER(beta),
    NO_POINTER(o),
    NO_POINTER(state),
    {AT(a_log), 0, false, "kda_decode: a_log is NULL with gate_form = GEN_KDA_GATE_SOFTPLUS (1)"},
    MISALIGNED(q, 8, "a ", 16),
    MISALIGNED(k, 4, "a ", 16),
    MISALIGNED(v, 2, "a ", 16),
    MISALIGNED(gate, 8, "a ", 16),
    MISALIGNED(beta, 1, "a ", 2),
    MISALIGNED(o, 1, "a ", 16),
    MISALIGNED(a_log, 2, "NULL, or a ", 4),
    MISALIGNED(dt_bias, 8, "NULL, or a ", 16),
    MISALIGNED(state, 24, "a ", 16),
    MISALIGNED(slots, 1, "NULL, or a ", 4),
    MISALIGNED(accepted, 2, "NULL, or a ", 4),
    MISALIGNED(cu_seqlens, 3, "NULL, or a ", 4),
    STRIDE(q_stride, -896, 896),
    STRIDE(q_stride, 888, 896),
    STRIDE(k_stride, 900, 896),
    STRIDE(v_stride, 2680, 2688),
    STRIDE(gate_stride, 8, 2688),
    STRIDE(o_stride, 2692, 2688),
    STRIDE(o_stride, 144115188075855880, 2688),
    {AT(beta_stride), 20, false,
     "kda_decode: beta_stride = 20 elements; allowed: 0 (packed), or 21 (one token) to "
     "144115188075855872"},
    {AT(beta_stride), -1, false,
     "kda_decode: beta_stride = -1 elements; allowed: 0 (packed), or 21 (one token) to "
     "144115188075855872"},
    {AT(total_tokens), 14, false,
     "kda_decode: total_tokens = 14 without cu_seqlens; allowed: 0, or batch * num_tokens = 15"},
    {AT(num_slots), 0, false, "kda_decode: num_slots = 0; allowed: 1 to 2147483647"},
    {AT(num_slots), -5, false, "kda_decode: num_slots = -5; allowed: 1 to 2147483647"},
    {AT(slots_stride), 2, false,
     "kda_decode: slots_stride = 2; allowed: 0 (packed), or 3 to 65536"},
    {AT(slots_stride), 65537, false,
     "kda_decode: slots_stride = 65537; allowed: 0 (packed), or 3 to 65536"},
    {AT(write), 3, false,
     "kda_decode: write = 3; allowed: GEN_KDA_DECODE_WRITE_LAST (0), GEN_KDA_DECODE_WRITE_EACH "
     "(1), GEN_KDA_DECODE_WRITE_NONE (2)"},
    {AT(write), -1, false,
     "kda_decode: write = -1; allowed: GEN_KDA_DECODE_WRITE_LAST (0), GEN_KDA_DECODE_WRITE_EACH "
     "(1), GEN_KDA_DECODE_WRITE_NONE (2)"},
    {AT(gate_form), 3, false,
     "kda_decode: gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
     "GEN_KDA_GATE_LOWER_BOUND (2)"},
    {AT(beta_form), -1, false,
     "kda_decode: beta_form = -1; allowed: GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
     "GEN_KDA_BETA_TWO_SIGMOID (2)"},
    {AT(qk_l2norm), 2, false, "kda_decode: qk_l2norm = 2; allowed: 0, 1"},
    {AT(zero_padding), -1, false, "kda_decode: zero_padding = -1; allowed: 0, 1"},
    {AT(scale), 0x7f800000, false, "kda_decode: scale = inf; allowed: a finite number"},
    {AT(scale), 0x7fc00000, false, "kda_decode: scale = nan; allowed: a finite number"},
};

static void write_wrong(const struct wrong *w, gen_kda_decode_args *a, char *message,
                        size_t capacity)
{
    char *at = (char *)a + w->offset;
    const char *mark = strstr(w->message, "%p");
    if (w->pointer) {
        const void *pointer = memory + w->value;
        char text[32];
        memcpy(at, &pointer, sizeof pointer);
        snprintf(text, sizeof text, "%p", pointer);
        snprintf(message, capacity, "%.*s%s%s", (int)(mark - w->message), w->message, text,
                 mark + 2);
        return;
    }
    const int32_t narrow = (int32_t)w->value;
    if (w->size == 4)
        memcpy(at, &narrow, 4);
    else
        memcpy(at, &w->value, 8);
    snprintf(message, capacity, "%s", w->message);
}

static void params_errors(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(8, 1664);
    const gen_kda_decode_problem p = kda_problem(5, 3, 7, 21, 128);
    const gen_plan plan = kda_plan(p, &h200, &facts);
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        gen_kda_decode_args a = good_args(&p);
        struct gen_kda_decode_params k, before;
        char message[512];
        memset(&k, 0xa5, sizeof k);
        before = k;
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
        write_wrong(&wrongs[i], &a, message, sizeof message);
        assert_failed(family->params(&plan, 0, &a.base, NULL, &k), INVALID_ARGUMENT, message);
        assert_memory_equal(&k, &before, sizeof k);
        assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, message);
    }
}

/* Arguments that are wrong beside others. */
static void params_that_do_not_fit_each_other(void **state)
{
    (void)state;
    const gen_kda_decode_problem p = kda_problem(5, 3, 7, 21, 128);
    const gen_plan plan = kda_plan(p, &h200, NULL);
    gen_kda_decode_args a = good_args(&p);
    char message[256];
#define REFUSED(text) \
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text)
#define ALLOWED() assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK)
    a.slots = NULL;
    snprintf(message, sizeof message, "kda_decode: accepted = %p without slots; allowed: NULL",
             (const void *)a.accepted);
    REFUSED(message);
    a.accepted = NULL;
    REFUSED("kda_decode: write = GEN_KDA_DECODE_WRITE_EACH (1) of num_tokens = 3 without slots; "
            "allowed: a table of slots, or another write");
    a.write = GEN_KDA_DECODE_WRITE_LAST;
    ALLOWED();
    a.slots_stride = 3;
    REFUSED("kda_decode: slots_stride = 3 without slots; allowed: 0, 1");
    a.slots_stride = 1;
    a.num_slots = 4;
    REFUSED("kda_decode: num_slots = 4 without slots; allowed: >= batch = 5");
    a.num_slots = 5;
    ALLOWED();

    a = good_args(&p);
    a.write = GEN_KDA_DECODE_WRITE_LAST; /* needs no column for each token */
    a.slots_stride = 2;
    ALLOWED();
    a = good_args(&p);
    a.gate_form = GEN_KDA_GATE_GIVEN;
    snprintf(message, sizeof message,
             "kda_decode: a_log = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: NULL",
             (const void *)a.a_log);
    REFUSED(message);
    a.a_log = NULL;
    snprintf(message, sizeof message,
             "kda_decode: dt_bias = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: NULL",
             (const void *)a.dt_bias);
    REFUSED(message);
    a.dt_bias = NULL;
    ALLOWED();
    a.gate_form = GEN_KDA_GATE_LOWER_BOUND;
    REFUSED("kda_decode: lower_bound = 0; allowed: -5 to below 0");
    a.lower_bound = -5.5f;
    REFUSED("kda_decode: lower_bound = -5.5; allowed: -5 to below 0");
    a.lower_bound = NAN;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    a.lower_bound = -5;
    ALLOWED();
    a.cu_seqlens = (const int32_t *)(const void *)memory;
    a.total_tokens = -1;
    REFUSED("kda_decode: total_tokens = -1; allowed: >= 0");
    a.total_tokens = 0;
    ALLOWED();
#undef REFUSED
#undef ALLOWED
}

/* A pool that no address space holds; beta of fp32 is aligned as one. */
static void far_limits(void **state)
{
    (void)state;
    gen_kda_decode_problem p = kda_problem(5, 1, 65536, 65536, 128);
    p.beta_dtype = GEN_DTYPE_FP32;
    const gen_plan plan = kda_plan(p, &h200, NULL);
    gen_kda_decode_args a = good_args(&p);
    char message[128];
    snprintf(message, sizeof message, "kda_decode: beta = %p; allowed: a multiple of 4 bytes",
             a.beta);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, message);
    a.beta = memory + 4;
    a.accepted = NULL;
    a.num_slots = INT32_MAX;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "kda_decode: num_slots = 2147483647; allowed: 1 to 1073741824");
    a.num_slots = 1073741824;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

/* ---- time, cost, names ------------------------------------------------- */

static void more_work_takes_longer(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(8, 1664);
    float last = 0;
    for (int32_t batch = 1; batch <= 512; batch++) {
        const gen_kda_decode_problem p = kda_problem(batch, 1, 64, 64, 128);
        const float us = family->predict(&p.base, &h200, &facts);
        assert_true(us > 0.97f * last); /* the cache policy that suits changes on the way */
        assert_true(us > (float)batch * 64 * 131072.0f / 4.8e6f);
        last = us;
    }
    last = 0;
    for (int32_t tokens = 1; tokens <= 8; tokens++) {
        const gen_kda_decode_problem p = kda_problem(64, tokens, 64, 64, 128);
        const float us = family->predict(&p.base, &h200, &facts);
        assert_true(us > last);
        last = us;
    }
}

static void cost_and_names(void **state)
{
    (void)state;
    double bytes, flops;
    char name[64];
    gen_kda_decode_problem p = kda_problem(16, 1, 32, 128, 128);
    family->cost(&p.base, &bytes, &flops);
    /* States there and back; gate, v, o, beta of 128 heads, q and k of 32; a_log, dt_bias. */
    assert_true(bytes == 16 * 128 * 131072.0 + 16 * 128 * (3 * 256.0 + 2) + 16 * 32 * 512.0 +
                             128 * 129 * 4.0);
    assert_true(flops == 16 * 128 * 7 * 16384.0);
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N16-H32-HV128-vk");
    p = kda_problem(64, 4, 8, 8, 64);
    p.layout = GEN_KDA_DECODE_KV;
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N64-H8-HV8-kv-T4-D64-fp16-g32-b32");
    family->cost(&p.base, &bytes, &flops);
    assert_true(bytes == 64 * 8 * 5 * 16384.0 + 64 * 8 * 4 * (8 * 64.0 + 4) + 64 * 4 * 8 * 256.0 +
                             8 * 65 * 4.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),   cmocka_unit_test(batch_invariance_forgets_the_batch),
        cmocka_unit_test(check_errors),       cmocka_unit_test(a_block_for_each_slice),
        cmocka_unit_test(dependent_launches), cmocka_unit_test(parameters),
        cmocka_unit_test(params_errors),      cmocka_unit_test(params_that_do_not_fit_each_other),
        cmocka_unit_test(far_limits),         cmocka_unit_test(more_work_takes_longer),
        cmocka_unit_test(cost_and_names),
    };
    return cmocka_run_group_tests_name("kda_decode host", tests, NULL, NULL);
}
