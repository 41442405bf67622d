/*
 * GEN_BATCH_INVARIANT: what is launched for a sequence may depend neither on how many others are in
 * the batch nor on the longest one. For every family of the build and every required key, random
 * problems with the flag must get the same variants, segments and chunks as the same problem of
 * another batch: on devices whose class has a table, whose nearest class has one, and that have
 * none. The tables hold random winners around the problems that are drawn, so that a coordinate
 * that moves with the batch finds another variant before long. An argument multiplies the number of
 * problems.
 */
#include "draw.h"
#include "test.h"

#include "family/family.h"
#include "make_product.h"

#include "families/kda/chunk.h"
#include "families/mla_decode/mla_decode.h"
#include "families/attn_paged/api.h"
#include "families/kda_chunk_intra/api.h"
#include "families/kda_prefill/api.h"

#include <math.h>
#include <stdarg.h>

static unsigned multiple = 1;
static unsigned num_different; /* pairs of problems whose plans are not alike */

union any_problem {
    gen_problem base;
    int32_t words[64];
};

/* Evenly in the logarithm. */
static int32_t draw_size(int32_t low, int32_t high)
{
    return (int32_t)(low * pow((double)(high + 1) / low, draw(1u << 20) / 1048576.0));
}

/* ---- problems ---------------------------------------------------------- */

static const struct gen__field *field_of(const struct gen__family *family, const char *name)
{
    for (uint32_t i = 0; i < family->num_fields; i++)
        if (!strcmp(family->fields[i].name, name))
            return &family->fields[i];
    return NULL;
}

/* Of a family that has the field; as the struct has it. */
static int32_t *at(const struct gen__family *family, union any_problem *p, const char *name)
{
    const struct gen__field *field = field_of(family, name);
    assert_non_null(field);
    return &p->words[field->offset / sizeof(int32_t)];
}

static bool has(const struct gen__family *family, const char *name)
{
    return field_of(family, name) != NULL;
}

/* KDA's chunked form: sequences of seq_len tokens each, or num_tokens of all. */
static bool is_chunked(const struct gen__family *family)
{
    return has(family, "seq_len") && has(family, "num_tokens");
}

/* A batch: the fields that say how large it is, and no others. Where a problem is not of packed
 * sequences, the length is each one's own, and stays. */
static void draw_batch(const struct gen__family *family, union any_problem *p)
{
    if (has(family, "batch"))
        *at(family, p, "batch") = draw_size(1, 300);
    if (is_chunked(family) && *at(family, p, "num_tokens")) {
        const int32_t batch = *at(family, p, "batch"), longest = draw_size(1, 100000);
        *at(family, p, "seq_len") = longest;
        *at(family, p, "num_tokens") =
            draw_size(longest, batch < 20 ? batch * longest : 20 * longest);
    }
    if (has(family, "varlen") && *at(family, p, "varlen")) {
        *at(family, p, "q_len") = draw_size(1, 40000);
        *at(family, p, "kv_len") = draw_size(1, 40000);
    }
    if (has(family, "max_kv_len")) {
        *at(family, p, "kv_len") = draw_size(1, 100000);
        *at(family, p, "max_kv_len") = draw_size(*at(family, p, "kv_len"), 200000);
    }
    if (has(family, "num_rows"))
        *at(family, p, "num_rows") = draw_size(1, 10000);
    if (has(family, "num_records")) {
        *at(family, p, "num_records") = draw_size(1, 1000);
        *at(family, p, "num_pieces") = draw_size(1, 300);
    }
}

/* Does the family give the problem codes? Then *key has them. */
static bool draw_problem(const struct gen__family *family, union any_problem *p,
                         struct gen__key *key)
{
    memset(p, 0, sizeof(*p));
    assert_true(family->problem_size <= sizeof(*p));
    p->base = (gen_problem){family->problem_size, family->tag, 0, 0};
    for (uint32_t i = 0; i < family->num_fields; i++) {
        const struct gen__field *f = &family->fields[i];
        int32_t *value = &p->words[f->offset / sizeof(int32_t)];
        if (f->values)
            *value = (int32_t)draw(f->num_values);
        else
            *value = f->preset == GEN__PRESET_SAME ? value[-1] : gen__field_more(f) ? 0 : f->preset;
    }
    if (has(family, "num_qk_heads")) {
        *at(family, p, "num_qk_heads") = draw_size(1, 16);
        *at(family, p, "num_v_heads") = *at(family, p, "num_qk_heads") << draw(3);
    } else if (has(family, "num_v_heads")) {
        *at(family, p, "num_v_heads") = draw_size(1, 64);
    }
    if (has(family, "num_q_heads")) {
        *at(family, p, "num_kv_heads") = draw_size(1, 16);
        *at(family, p, "num_q_heads") = *at(family, p, "num_kv_heads") << draw(3);
        *at(family, p, "window_left") = draw(4) ? 0 : draw_size(1, 5000) + 1;
    }
    if (has(family, "num_heads"))
        *at(family, p, "num_heads") = draw_size(1, 128);
    if (has(family, "head_dim"))
        *at(family, p, "head_dim") = 64 << draw(3);
    if (family->tag == GEN_ATTN_PAGED && draw(4) == 0)
        *at(family, p, "head_dim") = 192;
    if (has(family, "page_size"))
        *at(family, p, "page_size") = 1 << draw(8);
    if (has(family, "rope"))
        *at(family, p, "rope") = draw(2) ? 64 : 0;
    if (has(family, "q_len"))
        *at(family, p, "q_len") = has(family, "varlen") ? draw_size(1, 40000) : draw_size(1, 8);
    if (has(family, "kv_len"))
        *at(family, p, "kv_len") = draw_size(1, 40000);
    if (is_chunked(family)) {
        *at(family, p, "seq_len") = draw_size(1, 100000);
        *at(family, p, "num_tokens") = draw(3) > 0;
    } else if (has(family, "num_tokens")) {
        *at(family, p, "num_tokens") = (int32_t)(1 + draw(8));
    }
    if (has(family, "state_dtype") && has(family, "pool"))
        *at(family, p, "pool") = (int32_t)draw(2);
    if (has(family,
            "ring_dtype")) { /* rings have a type, tokens one or more; gdn_decode has none */
        const bool ring = family->required[2].num_values > 6 && !draw(3);
        *at(family, p, "pool") = (int32_t)draw(2);
        *at(family, p, "num_tokens") = draw(2) ? 1 : 2 + (int32_t)draw(7);
        *at(family, p, "ring_len") = ring ? 2 + (int32_t)draw(31) : 0;
        if (!ring)
            *at(family, p, "ring_dtype") = 0;
    }
    if (has(family, "segment_chunks")) /* kda_scan has no default */
        *at(family, p, "segment_chunks") =
            family->tag == GEN_KDA_SCAN || !draw(3) ? draw_size(16, 4000) : -(int32_t)draw(2);
    draw_batch(family, p);
    p->base.flags = GEN_BATCH_INVARIANT;
    /* With a limit selection goes by every rule in turn; a narrow one may leave out the larger of
     * two batches, but not change what is done to the other. */
    p->base.max_workspace_mib = draw(4) ? 0 : draw(2) ? UINT32_MAX : 1u << draw(12);
    return family->check(&p->base, key) == GEN_OK && !key->empty;
}

/* ---- a product of every family and key ---------------------------------- */

enum { NUM_VARIANTS = 6, NUM_TARGETS = 3, MAX_KEYS = 64 };

static const struct {
    const char *name, *tag;
    uint32_t compute_capability;
    enum gen_pack_target_kind kind;
} targets[NUM_TARGETS] = {{"sm_80", "sm80", 80, GEN_PACK_MAJOR},
                          {"sm_90a", "sm90a", 90, GEN_PACK_EXACT},
                          {"compute_80", "ptx80", 80, GEN_PACK_PTX}};

/* A fact's values; the first is of variants that every problem fits. */
static int32_t draw_fact(const char *name, size_t length, bool plain)
{
    static const struct {
        const char *name;
        int32_t values[4];
    } facts[] = {
        {"q_rows", {16, 32, 64, 128}},
        {"kv_rows", {64, 32, 64, 128}},
        {"stages", {2, 1, 3, 4}},
        {"shard", {0, 1, 0, 1}},
        {"tensor_map", {0, 1, 1, 0}},
        {"wgmma", {0, 0, 1, 2}},
        {"direct", {0, 0, 0, 1}},
        {"dependent", {1, 1, 0, 0}},
        {"persistent", {0, 1, 0, 1}},
        {"dynamic", {0, 1, 0, 0}},
        {"renamed", {0, 0, 0, 1}},
        {"blocks", {1, 2, 4, 8}},
        {"token_bytes", {0, 512, 0, 1024}},
        {"thread_bytes", {64, 128, 256, 32}},
        {"streaming", {0, 1, 0, 1}},
        {"early", {0, 0, 1, 1}},
        {"loop", {0, 1, 0, 0}},
        {"inflight_bytes", {1024, 2048, 512}},
        {"warp_bytes", {4096, 1024, 8192, 2048}},
        {"groups", {1, 2, 1, 2}},
        {"rows", {8, 1, 2, 4}},
        {"split", {1, 2, 4, 8}},
        {"slice", {512, 128, 512, 96}},
        {"one", {0, 1, 0, 1}},
        {"flight", {8, 2, 8, 4}},
        {"keys", {16, 32, 16, 32}},
        {"teams", {8, 4, 2, 8}},
        {"last", {0, 1, 0, 1}},
    };
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
        if (strlen(facts[i].name) == length && !strncmp(facts[i].name, name, length))
            return facts[i].values[plain ? 0 : draw(4)];
    fail_msg("fact \"%.*s\": say what its values are like", (int)length, name);
    return 0;
}

struct text {
    char *at;
    size_t length, capacity;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list list;
    if (text->capacity - text->length < 1024) {
        text->capacity = 2 * text->capacity + (1 << 16);
        text->at = realloc(text->at, text->capacity);
        assert_non_null(text->at);
    }
    va_start(list, format);
    const int n = vsnprintf(text->at + text->length, text->capacity - text->length, format, list);
    va_end(list);
    assert_true(n >= 0 && n < 1024);
    text->length += (size_t)n;
}

static void add_head(struct text *text, unsigned num_sms)
{
    add(text,
        "# attngen tuning table\n# format: 1\n# class: sm90_%usm\n# compute_capability: 90\n"
        "# num_sms: %u\n# memory_gbps: 4800\n# l2_bytes: 62914560\n"
        "family\trequired\tproblem\tvariant\tus\tdigest\n",
        num_sms, num_sms);
}

/* A key's name as that of groups, or its values alone. */
static void spell_key(const struct gen__family *family, const uint8_t *codes, bool name, char *text,
                      size_t capacity)
{
    size_t length = name ? (size_t)snprintf(text, capacity, "%s", family->name) : 0;
    for (uint32_t a = 0; a < family->num_required; a++)
        length +=
            (size_t)snprintf(text + length, capacity - length, "%s%s", name ? "_" : (a ? "," : ""),
                             family->required[a].values[codes[a]]);
    assert_true(length < capacity);
}

static void add_variants(struct product *product, const struct gen__family *family, uint32_t group,
                         const char *required, const char *tag)
{
    for (unsigned i = 0; i < NUM_VARIANTS; i++) {
        char name[192];
        snprintf(name, sizeof(name), "%s__%s_%u", required, tag, i);
        struct product_variant variant = {.name = name,
                                          .threads = i ? 64u << draw(3) : 128,
                                          .shared_dynamic = i ? draw(3) * 70000 : 1000,
                                          .registers = 96,
                                          .cluster = i && !draw(5) ? 2 : 1,
                                          .fallback = i == 0};
        const char *fact = family->facts;
        for (unsigned f = 0; *fact; f++) {
            const size_t length = strcspn(fact, ",");
            variant.facts[f] = draw_fact(fact, length, i == 0);
            fact += length + (fact[length] != '\0');
        }
        (void)product_variant(product, group, variant);
    }
}

/* Rows at the coordinates of random problems of the key, with random winners; of some keys none. */
static void add_rows(struct text *text, const struct gen__family *family, const uint8_t *codes,
                     const char *required)
{
    unsigned count = draw(8) ? 40 : 0;
    for (unsigned tries = 0; count > 0 && tries < 20000; tries++) {
        union any_problem p;
        struct gen__key key;
        char name[192];
        if (!draw_problem(family, &p, &key) || memcmp(key.codes, codes, sizeof(key.codes)) != 0)
            continue;
        if (draw(2)) { /* as without the flag, too */
            p.base.flags = 0;
            assert_int_equal(family->check(&p.base, &key), GEN_OK);
        }
        add(text, "%s\t%s\t", family->name, required);
        for (uint32_t c = 0; c < family->num_coords; c++)
            add(text, "%s%s=%d", c ? "," : "", family->coords[c], (int)key.counts[c]);
        snprintf(name, sizeof(name), "%s__sm90a_%u", required, draw(NUM_VARIANTS));
        add(text, "\t%s\t%.3f\t%016llx\n", name, 2 + draw(100000) / 100.0,
            (unsigned long long)gen_pack_hash(name, strlen(name)));
        count--;
    }
}

static void axes_of(const struct gen__family *family, char *text, size_t capacity)
{
    size_t length = 0;
    *text = '\0';
    for (uint32_t a = 0; a < family->num_required; a++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%s", a ? "," : "",
                                   family->required[a].name);
}

/* The next key in the order of codes; false behind the last. */
static bool next_key(const struct gen__family *family, uint8_t *codes)
{
    for (uint32_t a = family->num_required; a-- > 0;) {
        if (++codes[a] < family->required[a].num_values)
            return true;
        codes[a] = 0;
    }
    return false;
}

static gen_library *open_product(bool tables, void **bytes)
{
    struct product *product = product_new();
    struct text text[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    uint32_t place[NUM_TARGETS];
    add_head(&text[0], 132);
    add_head(&text[1], 80);
    for (unsigned t = 0; t < NUM_TARGETS; t++)
        place[t] = product_target(product, targets[t].name, targets[t].compute_capability,
                                  targets[t].kind);
    for (uint32_t f = 0; f < gen__num_families; f++) {
        const struct gen__family *family = gen__families[f];
        uint8_t codes[GEN__MAX_REQUIRED] = {0};
        char axes[256], required[128], values[128];
        axes_of(family, axes, sizeof(axes));
        const uint32_t number = product_family(product, family->name, axes, family->facts);
        do {
            spell_key(family, codes, true, required, sizeof(required));
            spell_key(family, codes, false, values, sizeof(values));
            for (unsigned t = 0; t < NUM_TARGETS; t++)
                add_variants(product, family,
                             product_group(product, required, values, number, place[t]), required,
                             targets[t].tag);
            for (unsigned t = 0; t < 2; t++)
                add_rows(&text[t], family, codes, required);
        } while (next_key(family, codes));
    }
    if (tables) {
        product_table(product, "own", text[0].at);
        product_table(product, "other", text[1].at);
    }
    gen_library *library;
    assert_status(product_open(product, bytes, &library), GEN_OK);
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(library, &info), GEN_OK);
    assert_int_equal(info.num_rows_bad, 0);
    assert_true(!tables || info.num_rows > 4000);
    free(text[0].at);
    free(text[1].at);
    return library;
}

/* ---- the same, whatever the batch ---------------------------------------- */

/* Notes the pair; of a family the first one is printed. */
static void differ(const struct gen__family *family, const gen_device *device,
                   const union any_problem problems[2], const char *what, int64_t a, int64_t b)
{
    static const struct gen__family *last;
    char text[2][512];
    num_different++;
    if (last == family)
        return;
    last = family;
    for (unsigned i = 0; i < 2; i++)
        gen__problem_format(family, &problems[i].base, text[i], sizeof(text[i]));
    print_error("%s on %s: %s is %lld for %s and %lld for %s\n", family->name, device->name, what,
                (long long)a, text[0], (long long)b, text[1]);
}

static const char *why_text[GEN_WHY_COUNT] = {"TABLE",    "NEAREST",   "MODEL",
                                              "FALLBACK", "REFERENCE", "ASKED"};

/* The rule that decided; GEN_WHY_COUNT where one of the problems is not served. */
static enum gen_why same_plans(const gen_library *library, const gen_device *device,
                               const struct gen__family *family,
                               const union any_problem problems[2])
{
    gen_plan plans[2] = {{.size = sizeof(gen_plan)}, {.size = sizeof(gen_plan)}};
    for (unsigned i = 0; i < 2; i++)
        if (gen_select(library, device, &problems[i].base, &plans[i]) != GEN_OK)
            return GEN_WHY_COUNT;
#define SAME(what, x)                                                       \
    do {                                                                    \
        if (plans[0].x != plans[1].x)                                       \
            differ(family, device, problems, what, plans[0].x, plans[1].x); \
    } while (0)
    SAME("the rule", why);
    if (family->tag != GEN_MLA_DECODE) {
        SAME("the number of launches", num_launches);
    } else if (plans[0].num_launches == plans[1].num_launches) {
        /* What is one chunk is whole: one launch, of the same work. */
        SAME("the chunk", dims[MLA_DECODE_CHUNK]);
    }
    for (uint32_t l = 0; l < plans[0].num_launches && l < plans[1].num_launches; l++) {
        SAME("a launch's variant", launch[l].variant);
        SAME("a launch's threads", launch[l].threads);
        SAME("a launch's shared memory", launch[l].shared);
    }
    if (family->tag == GEN_KDA_PREFILL || family->tag == GEN_KDA_SCAN)
        SAME("the segment", dims[KDA_SEGMENT_CHUNKS]);
#undef SAME
    return (enum gen_why)plans[0].why;
}

static void nothing_depends_on_the_batch(void **state)
{
    static const char *const names[] = {"h200", "h200", "h20", "h100", "sm_90:104", "a100", "b200"};
    enum { NUM_DEVICES = sizeof(names) / sizeof(*names) };
    gen_device devices[NUM_DEVICES];
    unsigned of_why[GEN_WHY_COUNT + 1] = {0};
    (void)state;
    for (unsigned d = 0; d < NUM_DEVICES; d++) {
        devices[d].size = sizeof(devices[d]);
        assert_status(gen_device_named(names[d], &devices[d]), GEN_OK);
    }
    for (unsigned round = 0; round < 4; round++) {
        void *bytes;
        gen_library *library = open_product(round < 3, &bytes);
        for (uint32_t f = 0; f < gen__num_families; f++) {
            const struct gen__family *family = gen__families[f];
            uint8_t codes[GEN__MAX_REQUIRED] = {0};
            unsigned num_keys = 0, seen[MAX_KEYS] = {0}, packed[MAX_KEYS] = {0};
            do
                num_keys++;
            while (next_key(family, codes));
            assert_true(num_keys <= MAX_KEYS);
            for (unsigned i = 0; i < 600 * multiple * num_keys; i++) {
                union any_problem problems[2];
                struct gen__key key, other;
                if (!draw_problem(family, &problems[0], &key))
                    continue;
                problems[1] = problems[0];
                draw_batch(family, &problems[1]);
                if (family->check(&problems[1].base, &other))
                    continue;
                assert_memory_equal(key.codes, other.codes, sizeof(key.codes));
                unsigned place = 0;
                for (uint32_t a = 0; a < family->num_required; a++)
                    place = place * family->required[a].num_values + key.codes[a];
                seen[place]++;
                packed[place] += is_chunked(family) && *at(family, &problems[0], "num_tokens") > 0;
                of_why[same_plans(library, &devices[draw(NUM_DEVICES)], family, problems)]++;
            }
            for (unsigned k = 0; k < num_keys; k++) {
                if (seen[k] < 20)
                    fail_msg("%s: key %u of %u has %u problems", family->name, k, num_keys,
                             seen[k]);
                assert_true(!is_chunked(family) || packed[k] >= 10);
            }
        }
        gen_close(library);
        free(bytes);
    }
    if (num_different)
        fail_msg("%u pairs of problems differ", num_different);
    for (unsigned why = GEN_WHY_TABLE; why <= GEN_WHY_MODEL; why++)
        if (of_why[why] < 2000)
            fail_msg("%u selections by %s", of_why[why], why_text[why]);
    assert_true(of_why[GEN_WHY_COUNT] < of_why[GEN_WHY_TABLE]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_depends_on_the_batch)};
    if (argc > 1)
        multiple = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests_name("invariant", tests, NULL, NULL);
}
