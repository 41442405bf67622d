#include "toy.h"

#include "family/family.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS, WEIGHT, LAUNCHES, WORKSPACE };
enum { COUNT };

static const char *const dtypes[] = {"bf16", "fp16"};
static const char *const dims[] = {"64", "128"};
static const struct gen__axis axes[] = {{"dtype", dtypes, 2}, {"dim", dims, 2}};
static const char *const coords[] = {"tiles", "length"};
static const struct gen__field fields[] = {
    {"batch", offsetof(gen_toy_problem, batch), NULL, 0, 1},
    {"heads", offsetof(gen_toy_problem, heads), NULL, 0, 1},
    {"length", offsetof(gen_toy_problem, length), NULL, 0, 64},
    {"dtype", offsetof(gen_toy_problem, dtype), dtypes, 2, 0},
    {"dim", offsetof(gen_toy_problem, dim), NULL, 0, 64},
};

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_toy_problem *p = (const gen_toy_problem *)base;
    if (p->batch < 0 || p->heads < 1 || p->length < 1)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "toy: batch = %d; allowed: >= 0", p->batch);
    if (p->dtype < 0 || p->dtype > 1 || (p->dim != 0 && p->dim != 64 && p->dim != 128))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "toy: dim = %d; allowed: 64, 128", p->dim);
    memset(key, 0, sizeof(*key));
    key->codes[0] = (uint8_t)p->dtype;
    key->codes[1] = p->dim == 128;
    key->empty = p->batch == 0;
    key->counts[0] = key->empty ? 1.0f : (float)(p->batch * p->heads);
    key->counts[1] = (float)p->length;
    return GEN_OK;
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_toy_problem *p = (const gen_toy_problem *)base;
    (void)device;
    return variant->fact[BLOCKS] && p->length % variant->fact[BLOCKS]
               ? "length is not a multiple of blocks"
               : NULL;
}

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    (void)base, (void)device;
    return (float)variant->fact[WEIGHT] / 10.0f;
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_toy_problem *p = (const gen_toy_problem *)base;
    (void)device;
    plan->dims[COUNT] = p->batch * p->heads;
    plan->num_launches = p->batch ? 1 : 0;
    if (!variant || !p->batch)
        return;
    plan->workspace_bytes = (uint64_t)variant->fact[WORKSPACE] << 20;
    const int32_t launches = variant->fact[LAUNCHES];
    plan->num_launches =
        launches >= 1 && launches <= GEN_PLAN_MAX_LAUNCHES ? (uint32_t)launches : 1;
    for (uint32_t i = 0; i < plan->num_launches; i++)
        plan->launch[i] = (gen_plan_launch){variant->index,
                                            {(uint32_t)p->batch, 1, 1},
                                            variant->shared_dynamic,
                                            (uint16_t)variant->threads,
                                            0};
}

_Atomic unsigned toy_num_params;

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    toy_num_params++;
    const gen_toy_args *a = (const gen_toy_args *)base;
    if (!a->in || !a->out)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "toy: %s is NULL", a->in ? "out" : "in");
    if (out)
        *(struct toy_params *)out =
            (struct toy_params){a->in, a->out, workspace, launch, (uint32_t)plan->dims[COUNT]};
    return GEN_OK;
}

static enum gen_status reference(const gen_plan *plan, const gen_args *base)
{
    const gen_toy_args *a = (const gen_toy_args *)base;
    for (int64_t i = 0; i < plan->dims[COUNT]; i++)
        a->out[i] = 2.0f * a->in[i];
    return GEN_OK;
}

/* ---- pair: launches of its own, the others' ----------------------------- */

static void pair_plan(const gen_problem *base, const gen_device *device,
                      const struct gen__facts *variant, gen_plan *out)
{
    const gen_toy_problem *p = (const gen_toy_problem *)base;
    plan(base, device, variant, out);
    if (variant && out->num_launches)
        out->num_launches = p->length > 64 ? 3 : 2;
    memset(&out->launch[1], 0, 2 * sizeof(out->launch[1]));
}

static uint32_t pair_parts(const gen_problem *base, const gen_device *device,
                           const struct gen__facts *variant, const gen_plan *plan,
                           struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    gen_toy_problem p = *(const gen_toy_problem *)base;
    (void)device, (void)variant;
    /* The last first: the place is what counts. */
    const uint32_t count = plan->num_launches - 1;
    for (uint32_t i = 0; i < count; i++) {
        p.base.family = i + 1 == count ? GEN_LINE : GEN_TOY;
        p.batch = ((const gen_toy_problem *)base)->batch * 2;
        p.base.max_workspace_mib = 0;
        parts[i].launch = count - i;
        memcpy(&parts[i].problem, &p, sizeof(p));
    }
    return count;
}

static const uint32_t pair_families[] = {GEN_LINE, GEN_TOY};

#define FAMILY(title, number, num)                                                               \
    {                                                                                            \
        .name = title, .tag = number, .problem_size = sizeof(gen_toy_problem),                   \
        .args_size = sizeof(gen_toy_args), .params_size = sizeof(struct toy_params),             \
        .problem_least = offsetof(gen_toy_problem, dim),                                         \
        .args_least = offsetof(gen_toy_args, out), .required = axes, .num_required = 2,          \
        .facts = "blocks,weight,launches,workspace", .coords = coords, .num_coords = num,        \
        .max_distance = GEN__ANY_DISTANCE, .fields = fields, .num_fields = 5, .check = check,    \
        .fits = fits, .predict = predict, .plan = plan, .params = params, .reference = reference \
    }

static const struct gen__family line = FAMILY("line", GEN_LINE, 1);
static const struct gen__family toy = FAMILY("toy", GEN_TOY, 2);
static const struct gen__family pair = {
    .name = "pair",
    .tag = GEN_PAIR,
    .problem_size = sizeof(gen_toy_problem),
    .args_size = sizeof(gen_toy_args),
    .params_size = sizeof(struct toy_params),
    .required = axes,
    .num_required = 2,
    .facts = "blocks,weight,launches,workspace",
    .coords = coords,
    .num_coords = 1,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = 5,
    .check = check,
    .fits = fits,
    .predict = predict,
    .plan = pair_plan,
    .parts = pair_parts,
    .part_families = pair_families,
    .num_part_families = 2,
    .params = params,
    .reference = reference,
};

/* Instead of the registry that the build makes: the linker takes that one from
 * the archive only where nothing else defines these. */
const struct gen__family *const gen__families[] = {&line, &pair, &toy};
const uint32_t gen__num_families = 3;

gen_toy_problem toy_problem(uint32_t family, int32_t batch)
{
    return (gen_toy_problem){.base = {sizeof(gen_toy_problem), family, 0, 0},
                             .batch = batch,
                             .heads = 1,
                             .length = 64,
                             .dtype = 0,
                             .dim = 64};
}

struct product *toy_product(void)
{
    struct product *p = product_new();
    const char *facts = "blocks,weight,launches,workspace";
    const uint32_t l = product_family(p, "line", "dtype,dim", facts);
    const uint32_t t = product_family(p, "toy", "dtype,dim", facts);
    const uint32_t text = product_target(p, "compute_80", 80, GEN_PACK_PTX);
    const uint32_t major = product_target(p, "sm_80", 80, GEN_PACK_MAJOR);
    const uint32_t exact = product_target(p, "sm_90a", 90, GEN_PACK_EXACT);
#define GROUP(required, values, family, target) product_group(p, required, values, family, target)
#define VARIANT(...) product_variant(p, g, (struct product_variant){__VA_ARGS__})
    uint32_t g = GROUP("line_bf16_d64", "bf16,64", l, text);
    VARIANT("line_bf16_d64__compute80_a", .fallback = 1, .facts = {1, 90});
    g = GROUP("line_bf16_d64", "bf16,64", l, major);
    VARIANT("line_bf16_d64__sm80_a", .fallback = 1, .facts = {1, 50});
    VARIANT("line_bf16_d64__sm80_b", .facts = {1, 40});
    g = GROUP("line_bf16_d64", "bf16,64", l, exact);
    VARIANT("line_bf16_d64__sm90a_a", .facts = {1, 30}, .image_for = 90);
    VARIANT("line_bf16_d64__sm90a_b", .facts = {128, 20}, .image_for = 90);
    VARIANT("line_bf16_d64__sm90a_c", .facts = {1, 25}, .image_for = 90, .fallback = 1);
    VARIANT("line_bf16_d64__sm90a_big", .facts = {1, 10}, .image_for = 90,
            .shared_dynamic = 100 * 1024, .shared_static = 1024);
    VARIANT("line_bf16_d64__sm90a_nothing", .facts = {1, 0}, .image_for = 90);
    g = GROUP("line_fp16_d64", "fp16,64", l, exact);
    VARIANT("line_fp16_d64__sm90a_a", .facts = {1, 0}, .image_for = 90, .fallback = 1);
    g = GROUP("toy_bf16_d64", "bf16,64", t, exact);
    VARIANT("toy_bf16_d64__sm90a_a", .facts = {1, 30}, .image_for = 90, .fallback = 1);
    VARIANT("toy_bf16_d64__sm90a_b", .facts = {1, 20}, .image_for = 90);
    VARIANT("toy_bf16_d64__sm90a_split", .facts = {1, 10, 2, 2}, .image_for = 90);
    return p;
}

void toy_add_pair(struct product *p)
{
    const uint32_t family =
        product_family(p, "pair", "dtype,dim", "blocks,weight,launches,workspace");
    const uint32_t text = product_target(p, "compute_80", 80, GEN_PACK_PTX);
    const uint32_t exact = product_target(p, "sm_90a", 90, GEN_PACK_EXACT);
    uint32_t g = GROUP("pair_bf16_d64", "bf16,64", family, text);
    VARIANT("pair_bf16_d64__compute80_a", .fallback = 1, .facts = {1, 30});
    g = GROUP("pair_bf16_d64", "bf16,64", family, exact);
    VARIANT("pair_bf16_d64__sm90a_a", .fallback = 1, .facts = {1, 30}, .image_for = 90);
    VARIANT("pair_bf16_d64__sm90a_b", .facts = {1, 20, 1, 1}, .image_for = 90);
    g = GROUP("pair_fp16_d64", "fp16,64", family, exact);
    VARIANT("pair_fp16_d64__sm90a_a", .fallback = 1, .facts = {1, 30}, .image_for = 90);
}

void toy_digest(const char *variant, char text[17])
{
    snprintf(text, 17, "%016llx", (unsigned long long)gen_pack_hash(variant, strlen(variant)));
}

static void add(char *text, size_t capacity, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list list;
    va_start(list, format);
    const int more = vsnprintf(text + length, capacity - length, format, list);
    va_end(list);
    if (more < 0 || (size_t)more >= capacity - length)
        abort();
}

void toy_table_head(char *text, size_t capacity, unsigned compute_capability, unsigned num_sms,
                    unsigned gbps)
{
    add(text, capacity,
        "# attngen tuning table\n# format: 1\n# class: sm%u_%usm\n# compute_capability: %u\n"
        "# num_sms: %u\n# memory_gbps: %u\n# l2_bytes: 62914560\n# gpu: a comment\n"
        "family\trequired\tproblem\tvariant\tus\tspread\trunner_up\trunner_up_us\tdigest\ttoolkit"
        "\tdriver\n",
        compute_capability, num_sms, compute_capability, num_sms, gbps);
}

void toy_table_row(char *text, size_t capacity, const char *required, const char *problem,
                   const char *variant, const char *us)
{
    char digest[17];
    toy_digest(variant, digest);
    add(text, capacity, "%.*s\t%s\t%s\t%s\t%s\t0.002\t-\t-\t%s\t13.0\t580.1\n",
        (int)strcspn(required, "_"), required, required, problem, variant, us, digest);
}

/* The bytes of the open products, to be freed with them. */
static struct {
    gen_library *library;
    void *bytes;
} open_products[16];

enum gen_status toy_open_tables(struct product *product, const char *const *paths, size_t num_paths,
                                gen_library **library)
{
    size_t size;
    void *bytes = product_bytes(product, &size);
    product_free(product);
    gen_open_options options = {.size = sizeof(options),
                                .data = bytes,
                                .data_size = size,
                                .table_paths = paths,
                                .num_table_paths = num_paths};
    const enum gen_status status = gen_open(&options, library);
    if (status) {
        free(bytes);
        return status;
    }
    for (size_t i = 0;; i++) {
        if (i == sizeof(open_products) / sizeof(open_products[0]))
            abort();
        if (!open_products[i].library) {
            open_products[i].library = *library;
            open_products[i].bytes = bytes;
            return GEN_OK;
        }
    }
}

gen_library *toy_open(struct product *product)
{
    gen_library *library = NULL;
    if (toy_open_tables(product, NULL, 0, &library)) {
        fprintf(stderr, "toy_open: %s\n", gen_last_error());
        abort();
    }
    return library;
}

void toy_close(gen_library *library)
{
    gen_close(library);
    for (size_t i = 0; library && i < sizeof(open_products) / sizeof(open_products[0]); i++) {
        if (open_products[i].library == library) {
            free(open_products[i].bytes);
            open_products[i].library = NULL;
        }
    }
}

gen_device toy_device(const char *name)
{
    gen_device device = {.size = sizeof(device)};
    if (gen_device_named(name, &device)) {
        fprintf(stderr, "toy_device: %s\n", gen_last_error());
        abort();
    }
    return device;
}

const char *toy_chosen(const gen_library *library, const gen_plan *plan)
{
    gen_variant_info info = {.size = sizeof(info)};
    if (plan->num_launches == 0 || gen_variant_get(library, plan->launch[0].variant, &info))
        return "-";
    return info.name;
}
