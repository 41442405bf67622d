/* The digest of compiled code: what changes it and what does not. */
#include "compile/code_digest.h"
#include "support.h"

#include <elf.h>
#include <nvrtc.h>

struct code {
    char *data;
    size_t size;
    uint64_t digest;
};

static struct code compile(const char *source, const char *symbol, bool ptx, const char *more)
{
    const char *options[] = {"--gpu-architecture=sm_90a", "-std=c++17", more};
    struct code code = {0};
    nvrtcProgram program;
    assert_int_equal(nvrtcCreateProgram(&program, source, "a.cu", 0, NULL, NULL), NVRTC_SUCCESS);
    assert_int_equal(nvrtcCompileProgram(program, more != NULL ? 3 : 2, options), NVRTC_SUCCESS);
    assert_int_equal(ptx ? nvrtcGetPTXSize(program, &code.size)
                         : nvrtcGetCUBINSize(program, &code.size),
                     NVRTC_SUCCESS);
    code.data = malloc(code.size);
    assert_non_null(code.data);
    assert_int_equal(ptx ? nvrtcGetPTX(program, code.data) : nvrtcGetCUBIN(program, code.data),
                     NVRTC_SUCCESS);
    code.size -= ptx;
    nvrtcDestroyProgram(&program);
    code.digest = code_digest(code.data, code.size, ptx, symbol);
    return code;
}

static uint64_t digest_of(const char *source, const char *symbol, bool ptx, const char *more)
{
    struct code code = compile(source, symbol, ptx, more);
    free(code.data);
    return code.digest;
}

#define KERNEL(before, name, shared, expression)                          \
    before "\nextern \"C\" __global__ void " name "(float *x, int n) {\n" \
           "    __shared__ float " shared "[64];\n"                       \
           "    " shared "[threadIdx.x] = x[threadIdx.x];\n"              \
           "    __syncthreads();\n"                                       \
           "    for (int i = 0; i < n; i++)\n"                            \
           "        x[i] = " shared "[i % 64] " expression ";\n}\n"

static void what_runs_decides(void **state)
{
    (void)state;
    static const struct {
        const char *source, *symbol, *option;
        bool changes;
    } cases[] = {
        {KERNEL("", "k", "rows", "* 2.0f"), "k", NULL, false},
        {KERNEL("// why\n\n", "k", "rows", "* /* twice */ 2.0f"), "k", NULL, false},
        {KERNEL("", "another", "rows", "* 2.0f"), "another", NULL, false},
        {KERNEL("", "k", "values", "* 2.0f"), "k", NULL, false},
        {KERNEL("constexpr int unread = 7;", "k", "rows", "* 2.0f"), "k", NULL, false},
        {KERNEL("namespace { constexpr int two = 2; }", "k", "rows", "* two"), "k", NULL, false},
        {KERNEL("", "k", "rows", "* 2.0f"), "k", "--generate-line-info", false},
        {KERNEL("", "k", "rows", "* 3.0f"), "k", NULL, true},
        {KERNEL("", "k", "rows", "+ 2.0f"), "k", NULL, true},
        {KERNEL("", "__launch_bounds__(64) k", "rows", "* 2.0f"), "k", NULL, true},
        {KERNEL("constexpr float two[4] = {1, 2, 3, 4};", "k", "rows", "* two[i % 4]"), "k", NULL,
         true},
        {KERNEL("constexpr float two[4] = {1, 2, 3, 5};", "k", "rows", "* two[i % 4]"), "k", NULL,
         true},
    };
    enum { COUNT = sizeof cases / sizeof cases[0] };
    for (int ptx = 0; ptx < 2; ptx++) {
        uint64_t digests[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            digests[i] = digest_of(cases[i].source, cases[i].symbol, ptx, cases[i].option);
            if ((digests[i] != digests[0]) != cases[i].changes)
                fail_msg("%s of case %zu: %016llx, of the first %016llx", ptx ? "PTX" : "code", i,
                         (unsigned long long)digests[i], (unsigned long long)digests[0]);
            for (size_t j = 0; cases[i].changes && j < i; j++)
                assert_true(digests[i] != digests[j]);
        }
    }
}

/* Each bit of the instructions counts, and so does the count of registers. */
static void a_changed_instruction_changes_it(void **state)
{
    (void)state;
    struct code code = compile(KERNEL("", "k", "rows", "* 2.0f"), "k", false, NULL);
    Elf64_Ehdr head;
    memcpy(&head, code.data, sizeof head);
    size_t checked = 0;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, code.data + head.e_shoff + i * sizeof section, sizeof section);
        if (!(section.sh_flags & SHF_EXECINSTR))
            continue;
        for (uint64_t at = 0; at < section.sh_size; at += 16, checked++) {
            code.data[section.sh_offset + at] ^= 1;
            assert_true(code_digest(code.data, code.size, false, "k") != code.digest);
            code.data[section.sh_offset + at] ^= 1;
        }
    }
    assert_true(checked >= 8);
    assert_true(code_digest(code.data, code.size, false, "k") == code.digest);
    free(code.data);
}

/* Whatever the compiler's output holds, reading it stays inside. */
static void damage_is_survived(void **state)
{
    (void)state;
    for (int ptx = 0; ptx < 2; ptx++) {
        struct code code = compile(KERNEL("", "k", "rows", "* 2.0f"), "k", ptx, NULL);
        for (size_t size = 0; size < code.size; size += 1 + size / 16) {
            char *cut = malloc(size + 1); /* no more, for the sanitizer to see */
            assert_non_null(cut);
            memcpy(cut, code.data, size);
            (void)code_digest(cut, size, ptx, "k");
            free(cut);
        }
        for (size_t i = 0; i < code.size; i++) {
            char before = code.data[i];
            code.data[i] = (char)(i % 2 ? 0xff : before ^ 0x40);
            (void)code_digest(code.data, code.size, ptx, "k");
            code.data[i] = before;
        }
        assert_true(code_digest(code.data, code.size, ptx, "k") == code.digest);
        free(code.data);
    }
    assert_true(code_digest("abc", 3, false, "k") != code_digest("abd", 3, false, "k"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_runs_decides),
        cmocka_unit_test(a_changed_instruction_changes_it),
        cmocka_unit_test(damage_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
