#include "wide.h"

#include "family/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MULTIPLE, ROWS };

static const char *const dtypes[] = {"bf16", "fp16"};
static const char *const caches[] = {"same", "e4m3"};
static const char *const ropes[] = {"64", "0"};
static const struct gen__axis axes[] = {
    {"dtype", dtypes, 2}, {"cache", caches, 2}, {"rope", ropes, 2}};
static const char *const coords[] = {"requests", "kv_len", "rows", "page"};
static const struct gen__field fields[] = {
    {"requests", offsetof(gen_wide_problem, counts[0]), NULL, 0, 1},
    {"kv_len", offsetof(gen_wide_problem, counts[1]), NULL, 0, 1},
    {"rows", offsetof(gen_wide_problem, counts[2]), NULL, 0, 1},
    {"page", offsetof(gen_wide_problem, counts[3]), NULL, 0, 1},
    {"dtype", offsetof(gen_wide_problem, dtype), dtypes, 2, 0},
    {"cache", offsetof(gen_wide_problem, cache), caches, 2, 0},
    {"rope", offsetof(gen_wide_problem, rope), ropes, 2, 0},
};

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_wide_problem *p = (const gen_wide_problem *)base;
    for (int c = 0; c < 4; c++)
        if (p->counts[c] < (c != 0))
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "wide: %s = %d; allowed: >= %d",
                             coords[c], p->counts[c], c != 0);
    if ((p->dtype | p->cache | p->rope) & ~1)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "wide: dtype, cache, rope; allowed: 0, 1");
    if ((int64_t)p->counts[0] * p->counts[2] > INT32_MAX)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "wide: more rows than a grid has");
    const union { /* in one piece, as it is read */
        uint8_t codes[GEN__MAX_REQUIRED];
        uint64_t word;
    } codes = {.codes = {(uint8_t)p->dtype, (uint8_t)p->cache, (uint8_t)p->rope}};
    memcpy(key->codes, &codes.word, sizeof(key->codes));
    key->empty = p->counts[0] == 0;
    for (int c = 0; c < 4; c++)
        key->counts[c] = (float)p->counts[c];
    return GEN_OK;
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_wide_problem *p = (const gen_wide_problem *)base;
    (void)device;
    return variant->fact[MULTIPLE] > 1 && p->counts[1] % variant->fact[MULTIPLE]
               ? "kv_len is not a multiple"
               : NULL;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    (void)base, (void)device;
    return 1.0f + (float)variant->fact[ROWS];
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_wide_problem *p = (const gen_wide_problem *)base;
    memcpy(plan->dims, p->counts, sizeof(p->counts));
    plan->num_launches = p->counts[0] > 0;
    if (!variant || !p->counts[0])
        return;
    const int32_t tiles = (p->counts[2] - 1) / variant->fact[ROWS] + 1;
    const int32_t parts = ((int32_t)device->num_sms - 1) / tiles + 1;
    const int32_t cut = p->counts[0] < parts ? parts : p->counts[0];
    plan->dims[4] = parts;
    plan->dims[5] = cut;
    plan->workspace_bytes = (uint64_t)(uint32_t)cut * 4096;
    plan->launch[0] = (gen_plan_launch){.variant = variant->index,
                                        .grid = {(uint32_t)tiles, (uint32_t)parts, 1},
                                        .shared = variant->shared_dynamic,
                                        .threads = (uint16_t)variant->threads};
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                              void *workspace, void *out)
{
    (void)plan, (void)launch, (void)args, (void)workspace, (void)out;
    return gen__fail(GEN_STATUS_UNSUPPORTED, "wide: nothing to launch");
}

static enum gen_status reference(const gen_plan *plan, const gen_args *args)
{
    (void)plan, (void)args;
    return gen__fail(GEN_STATUS_UNSUPPORTED, "wide: nothing to compute");
}

#define FAMILY(num)                               \
    static const struct gen__family wide##num = { \
        .name = "wide" #num,                      \
        .tag = GEN_WIDE(num),                     \
        .problem_size = sizeof(gen_wide_problem), \
        .args_size = sizeof(gen_args),            \
        .params_size = 8,                         \
        .required = axes,                         \
        .num_required = 3,                        \
        .facts = "multiple,rows",                 \
        .coords = coords,                         \
        .num_coords = num,                        \
        .max_distance = GEN__ANY_DISTANCE,        \
        .fields = fields,                         \
        .num_fields = 7,                          \
        .check = check,                           \
        .fits = fits,                             \
        .predict = predict,                       \
        .plan = plan,                             \
        .params = params,                         \
        .reference = reference,                   \
    }
FAMILY(2);
FAMILY(3);
FAMILY(4);

extern const struct gen__family gen__family_la_decode;

/* Instead of the registry that the build makes: the linker takes that one from
 * the archive only where nothing else defines these. */
const struct gen__family *const gen__families[] = {&gen__family_la_decode, &wide2, &wide3, &wide4};
const uint32_t gen__num_families = 4;

/* ---- products ---------------------------------------------------------- */

void wide_add(struct wide_text *text, const char *line)
{
    const size_t more = strlen(line);
    if (text->length + more + 1 > text->capacity) {
        text->capacity = 2 * (text->length + more + 1);
        text->at = realloc(text->at, text->capacity);
        if (!text->at)
            abort();
    }
    memcpy(text->at + text->length, line, more + 1);
    text->length += more;
}

static void name_of(char *name, size_t capacity, unsigned num_coords, unsigned key,
                    const char *target, unsigned variant)
{
    snprintf(name, capacity, "wide%u_%s_%s_r%s%s", num_coords, dtypes[key & 1],
             caches[key >> 1 & 1], ropes[key >> 2], target);
    if (*target)
        snprintf(name + strlen(name), capacity - strlen(name), "%u", variant);
}

void wide_head(struct wide_text *text, unsigned num_sms)
{
    char head[512];
    snprintf(head, sizeof(head),
             "# attngen tuning table\n# format: 1\n# class: sm90_%usm\n# compute_capability: 90\n"
             "# num_sms: %u\n# memory_gbps: 4800\n# l2_bytes: 62914560\n"
             "family\trequired\tproblem\tvariant\tus\tdigest\n",
             num_sms, num_sms);
    wide_add(text, head);
}

void wide_row(struct wide_text *text, unsigned num_coords, unsigned key, const double counts[4],
              unsigned variant, double us)
{
    char required[64], name[96], line[512], problem[256] = "";
    name_of(required, sizeof(required), num_coords, key, "", 0);
    name_of(name, sizeof(name), num_coords, key, "__sm90a_", variant);
    for (unsigned c = 0; c < num_coords; c++)
        snprintf(problem + strlen(problem), sizeof(problem) - strlen(problem), "%s%s=%.9g",
                 c ? "," : "", coords[c], counts[c]);
    snprintf(line, sizeof(line), "wide%u\t%s\t%s\t%s\t%.9g\t%016llx\n", num_coords, required,
             problem, name, us, (unsigned long long)gen_pack_hash(name, strlen(name)));
    wide_add(text, line);
}

struct product *wide_product(void)
{
    struct product *product = product_new();
    uint32_t family[5];
    for (unsigned n = 2; n <= 4; n++) {
        char name[16];
        snprintf(name, sizeof(name), "wide%u", n);
        family[n] = product_family(product, name, "dtype,cache,rope", "multiple,rows");
    }
    const uint32_t target = product_target(product, "sm_90a", 90, GEN_PACK_EXACT);
    for (unsigned n = 2; n <= 4; n++) {
        for (unsigned key = 0; key < WIDE_KEYS; key++) {
            char required[64], values[64], name[96];
            name_of(required, sizeof(required), n, key, "", 0);
            snprintf(values, sizeof(values), "%s,%s,%s", dtypes[key & 1], caches[key >> 1 & 1],
                     ropes[key >> 2]);
            const uint32_t group = product_group(product, required, values, family[n], target);
            for (unsigned i = 0; i < WIDE_VARIANTS; i++) {
                name_of(name, sizeof(name), n, key, "__sm90a_", i);
                product_variant(
                    product, group,
                    (struct product_variant){.name = name,
                                             .shared_dynamic = i == 7 ? 200 * 1024 : 8192,
                                             .registers = 64,
                                             .facts = {i == 5 || i == 6 ? 3 : 1, 16 << i % 3},
                                             .fallback = i == 0});
            }
        }
    }
    return product;
}

gen_wide_problem wide_problem(unsigned num_coords, unsigned key)
{
    return (gen_wide_problem){.base = {sizeof(gen_wide_problem), GEN_WIDE(num_coords), 0, 0},
                              .counts = {1, 1, 1, 1},
                              .dtype = (int32_t)(key & 1),
                              .cache = (int32_t)(key >> 1 & 1),
                              .rope = (int32_t)(key >> 2)};
}
