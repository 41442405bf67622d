/* Problems as text: what parses, what it says where it does not, and back. */
#include "test.h"
#include "common/problem_text.h"

#include "families/la_decode/api.h"

#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_la_decode;
static const struct gen__family *const family = &gen__family_la_decode;

static gen_la_decode_problem parsed(const char *text)
{
    gen_la_decode_problem p;
    memset(&p, 0xa5, sizeof p);
    if (gen__problem_parse(family, text, &p.base) != GEN_OK)
        fail_msg("\"%s\": %s", text, gen_last_error());
    return p;
}

static void all_fields(void **state)
{
    (void)state;
    const gen_la_decode_problem p =
        parsed("batch=7 num_qk_heads=8 num_v_heads=16 head_dim=256 dtype=fp16 layout=kv");
    assert_int_equal(p.base.size, sizeof p);
    assert_int_equal(p.base.family, GEN_LA_DECODE);
    assert_int_equal(p.base.flags, 0);
    assert_int_equal(p.base.max_workspace_mib, 0);
    assert_int_equal(p.batch, 7);
    assert_int_equal(p.num_qk_heads, 8);
    assert_int_equal(p.num_v_heads, 16);
    assert_int_equal(p.head_dim, 256);
    assert_int_equal(p.dtype, GEN_DTYPE_FP16);
    assert_int_equal(p.state_layout, GEN_LA_STATE_KV);
}

static void presets(void **state)
{
    (void)state;
    gen_la_decode_problem p = parsed("");
    assert_int_equal(p.batch, 1);
    assert_int_equal(p.num_qk_heads, 64);
    assert_int_equal(p.num_v_heads, 64);
    assert_int_equal(p.head_dim, 128);
    assert_int_equal(p.dtype, GEN_DTYPE_BF16);
    assert_int_equal(p.state_layout, GEN_LA_STATE_VK);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);

    p = parsed("num_qk_heads=16"); /* num_v_heads follows */
    assert_int_equal(p.num_v_heads, 16);
    p = parsed("num_v_heads=128");
    assert_int_equal(p.num_qk_heads, 64);
    assert_int_equal(p.num_v_heads, 128);
}

static void separators_and_numbers(void **state)
{
    (void)state;
    const gen_la_decode_problem p =
        parsed(" ,batch=0064,,num_qk_heads=-0\tnum_v_heads=2147483647\n head_dim=-2147483648, ");
    assert_int_equal(p.batch, 64);
    assert_int_equal(p.num_qk_heads, 0);
    assert_int_equal(p.num_v_heads, INT32_MAX);
    assert_int_equal(p.head_dim, INT32_MIN);
    assert_int_equal(parsed("batch=00000000000000000000000000005").batch, 5);
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"heads=8", "la_decode has no field \"heads\"; allowed: batch, num_qk_heads, num_v_heads, "
                    "head_dim, dtype, layout, state_dtype, pool"},
        {"batc=8", "la_decode has no field \"batc\"; allowed: batch, num_qk_heads, num_v_heads, "
                   "head_dim, dtype, layout, state_dtype, pool"},
        {"=8", "la_decode has no field \"\"; allowed: batch, num_qk_heads, num_v_heads, head_dim, "
               "dtype, layout, state_dtype, pool"},
        {"batch", "la_decode: \"batch\" is no field of a problem; allowed: name=value"},
        {"batch 64", "la_decode: \"batch\" is no field of a problem; allowed: name=value"},
        {"batch=", "la_decode: batch = \"\"; allowed: an integer"},
        {"batch=-", "la_decode: batch = \"-\"; allowed: an integer"},
        {"batch=x", "la_decode: batch = \"x\"; allowed: an integer"},
        {"batch=1x", "la_decode: batch = \"1x\"; allowed: an integer"},
        {"batch=1.5", "la_decode: batch = \"1.5\"; allowed: an integer"},
        {"batch=+1", "la_decode: batch = \"+1\"; allowed: an integer"},
        {"batch=0x10", "la_decode: batch = \"0x10\"; allowed: an integer"},
        {"batch=1=2", "la_decode: batch = \"1=2\"; allowed: an integer"},
        {"batch=2147483648", "la_decode: batch = 2147483648; allowed: -2147483648 to 2147483647"},
        {"batch=-2147483649", "la_decode: batch = -2147483649; allowed: -2147483648 to 2147483647"},
        {"batch=99999999999999999999999",
         "la_decode: batch = 99999999999999999999999; allowed: -2147483648 to 2147483647"},
        {"batch=1 batch=1", "la_decode: batch is given again as \"1\"; allowed: once"},
        {"dtype=fp32", "la_decode: dtype = \"fp32\"; allowed: bf16, fp16"},
        {"dtype=BF16", "la_decode: dtype = \"BF16\"; allowed: bf16, fp16"},
        {"dtype=bf1", "la_decode: dtype = \"bf1\"; allowed: bf16, fp16"},
        {"dtype=0", "la_decode: dtype = \"0\"; allowed: bf16, fp16"},
        {"layout=", "la_decode: layout = \"\"; allowed: vk, kv"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_la_decode_problem p, before;
        memset(&p, 0xa5, sizeof p);
        before = p;
        assert_failed(gen__problem_parse(family, cases[i].text, &p.base), INVALID_ARGUMENT,
                      cases[i].message);
        assert_memory_equal(&p, &before, sizeof p);
    }
}

/* A number that has no name is written as one, and what has too many fields for the parser is not
 * parsed. */
static void beyond_the_names(void **state)
{
    (void)state;
    gen_la_decode_problem p = parsed("dtype=fp16");
    char text[200];
    p.dtype = 2;
    gen__problem_format(family, &p.base, text, sizeof text);
    assert_non_null(strstr(text, " dtype=2 "));
    struct gen__family many = *family;
    many.num_fields = 33;
    assert_failed(gen__problem_parse(&many, "", &p.base), INVALID_ARGUMENT,
                  "la_decode has 33 fields; allowed: 32");
}

/* Words longer than any buffer inside. */
static void long_words(void **state)
{
    (void)state;
    enum { LENGTH = 100000 };
    char *text = malloc(LENGTH + 1);
    gen_la_decode_problem p;
    assert_non_null(text);
    memset(text, '9', LENGTH);
    text[LENGTH] = '\0';
    assert_int_equal(gen__problem_parse(family, text, &p.base), GEN_STATUS_INVALID_ARGUMENT);
    memcpy(text, "batch=", 6);
    assert_int_equal(gen__problem_parse(family, text, &p.base), GEN_STATUS_INVALID_ARGUMENT);
    memcpy(text, "dtype=", 6);
    assert_int_equal(gen__problem_parse(family, text, &p.base), GEN_STATUS_INVALID_ARGUMENT);
    text[LENGTH - 1] = '=';
    text[5] = 'x';
    assert_int_equal(gen__problem_parse(family, text, &p.base), GEN_STATUS_INVALID_ARGUMENT);
    free(text);
}

static void round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "batch=1 num_qk_heads=64 num_v_heads=64 head_dim=128 dtype=bf16 layout=vk state_dtype=fp32 "
        "pool=0",
        "batch=256 num_qk_heads=8 num_v_heads=64 head_dim=64 dtype=fp16 layout=kv state_dtype=bf16 "
        "pool=1",
        "batch=-2147483648 num_qk_heads=2147483647 num_v_heads=0 head_dim=-1 dtype=fp16 layout=vk "
        "state_dtype=bf16 pool=1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[256];
        const gen_la_decode_problem p = parsed(texts[i]);
        gen__problem_format(family, &p.base, text, sizeof text);
        assert_string_equal(text, texts[i]);
    }
}

/* A value without a name, and buffers of every size. */
static void format_of_bad_values_and_small_buffers(void **state)
{
    (void)state;
    gen_la_decode_problem p = parsed("batch=3");
    p.dtype = 7;
    p.state_layout = -1;
    static const char whole[] = "batch=3 num_qk_heads=64 num_v_heads=64 head_dim=128 dtype=7 "
                                "layout=-1 state_dtype=fp32 pool=0";
    char text[128];
    gen__problem_format(family, &p.base, text, sizeof text);
    assert_string_equal(text, whole);
    for (size_t capacity = 0; capacity <= sizeof whole; capacity++) {
        memset(text, '#', sizeof text);
        gen__problem_format(family, &p.base, text, capacity);
        assert_int_equal(text[capacity], '#');
        if (capacity) {
            assert_int_equal(strlen(text),
                             capacity - 1 < sizeof whole - 1 ? capacity - 1 : sizeof whole - 1);
            assert_memory_equal(text, whole, strlen(text));
        }
    }
}

static void lookup(void **state)
{
    (void)state;
    assert_ptr_equal(gen__family_by_name("la_decode"), family);
    assert_ptr_equal(gen__family_by_tag(GEN_LA_DECODE), family);
    assert_null(gen__family_by_name("la_decod"));
    assert_null(gen__family_by_name(""));
    assert_null(gen__family_by_tag(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields),
        cmocka_unit_test(presets),
        cmocka_unit_test(separators_and_numbers),
        cmocka_unit_test(errors),
        cmocka_unit_test(beyond_the_names),
        cmocka_unit_test(long_words),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(format_of_bad_values_and_small_buffers),
        cmocka_unit_test(lookup),
    };
    return cmocka_run_group_tests_name("problem", tests, NULL, NULL);
}
