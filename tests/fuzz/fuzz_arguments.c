/* The CPU backend: small problems of every family on tensors that are just as large as they must
 * be, with lengths, slots, pages and offsets of the input's. Whatever these hold (but for those
 * that are trusted), nothing outside the tensors is read or written. */
#include "families.h"

#include <stdbool.h>
#include <stdlib.h>

#define MOST_BYTES (1u << 19)
#define MOST_FLOPS 1e6

static gen_library *library;
static gen_device cpu = {.size = sizeof(cpu)};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    library = families_open();
    return gen_device_named("cpu", &cpu) ? 1 : 0;
}

static bool is(const struct gen__field *field, const char *name)
{
    return !strcmp(field->name, name);
}

/* Sizes about those of tiles, chunks and pages. */
static void draw_problem(struct input *input, const struct gen__family *family,
                         union any_problem *problem)
{
    static const int32_t sizes[] = {1,  0,  2,  3,  4,  5,   7,   8,   16, 17, 31,
                                    32, 33, 63, 64, 65, 100, 127, 128, -1, 256};
    families_preset(family, problem);
    for (uint32_t i = 0; i < family->num_fields; i++) {
        const struct gen__field *f = &family->fields[i];
        const uint32_t byte = input_byte(input);
        int32_t *value = &problem->words[f->offset / sizeof(int32_t)];
        if (f->values)
            *value = (int32_t)(byte % f->num_values);
        else if (is(f, "head_dim") || is(f, "k_dim") || is(f, "v_dim"))
            *value = 64 << byte % 3;
        else if (is(f, "rope_dim"))
            *value = 64 * (byte % 2 == 0);
        else if (strstr(f->name, "heads"))
            *value = 1 << byte % 3;
        else if (!strstr(f->name, "window"))
            *value = sizes[byte % (sizeof(sizes) / sizeof(sizes[0]))];
    }
}

static size_t size_of(enum gen_dtype dtype)
{
    switch (dtype) {
    case GEN_DTYPE_INT64:
        return 8;
    case GEN_DTYPE_FP32:
    case GEN_DTYPE_INT32:
        return 4;
    case GEN_DTYPE_E4M3:
    case GEN_DTYPE_E5M2:
        return 1;
    default:
        return 2;
    }
}

/* Offsets into tensors whose size no argument says, and what goes with them, must be right
 * (SECURITY.md): there is no such form here. */
static bool has_trusted(const struct gen__tensor *tensors, uint32_t count)
{
    static const char *const trusted[] = {"page_indptr", "q_indptr", "records"};
    for (uint32_t t = 0; t < count; t++)
        for (size_t i = 0; tensors[t].count && i < sizeof trusted / sizeof *trusted; i++)
            if (!strcmp(tensors[t].name, trusted[i]))
                return true;
    return false;
}

/* A block that ends with the tensor's last byte. */
static void *new_tensor(struct input *input, const struct gen__tensor *tensor)
{
    const size_t size = (size_t)tensor->count * size_of(tensor->dtype);
    void *data = NULL;
    if (posix_memalign(&data, 64, size))
        abort();
    memset(data, 0, size);
    if (tensor->dtype == GEN_DTYPE_INT32 || tensor->dtype == GEN_DTYPE_INT64)
        input_take(input, data, size < 256 ? size : 256);
    return data;
}

static void run(struct input *input, const struct gen__family *family, const gen_problem *problem,
                const gen_plan *plan)
{
    union {
        gen_args base;
        int64_t words[128];
    } args;
    struct gen__tensor tensors[GEN__MAX_TENSORS];
    void *data[GEN__MAX_TENSORS] = {NULL};
    memset(&args, 0, sizeof(args));
    family->default_args(problem, &args.base);
    const uint32_t count = family->tensors(problem, tensors);
    const uint32_t form = input_byte(input);
    if (family->num_forms && form &&
        !family->form(problem, form % family->num_forms, &args.base, tensors))
        return;
    uint64_t bytes = plan->workspace_bytes;
    for (uint32_t t = 0; t < count; t++)
        bytes += tensors[t].count > MOST_BYTES ? MOST_BYTES : tensors[t].count * 8;
    if (bytes > MOST_BYTES || has_trusted(tensors, count))
        return;
    for (uint32_t t = 0; t < count; t++) {
        void *pointer = NULL;
        if (tensors[t].view_of)
            pointer = (char *)data[tensors[t].view_of - 1] +
                      tensors[t].view_at * size_of(tensors[t].dtype);
        else if (tensors[t].count)
            pointer = data[t] = new_tensor(input, &tensors[t]);
        memcpy((char *)&args + tensors[t].pointer_offset, &pointer, sizeof(pointer));
    }
    void *workspace = NULL;
    if (plan->workspace_bytes && posix_memalign(&workspace, 256, plan->workspace_bytes))
        abort();
    if (gen_launch(library, plan, &args.base, workspace, NULL) && !gen_last_error()[0])
        abort();
    for (uint32_t t = 0; t < count; t++)
        free(data[t]);
    free(workspace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    union any_problem problem;
    gen_plan plan = {.size = sizeof(plan)};
    double bytes, flops;
    const struct gen__family *family = families_draw(&input);
    draw_problem(&input, family, &problem);
    if (gen_select(library, &cpu, &problem.base, &plan) || !plan.num_launches)
        return 0;
    family->cost(&problem.base, &bytes, &flops);
    if (flops <= MOST_FLOPS && bytes <= 4.0 * MOST_BYTES)
        run(&input, family, &problem.base, &plan);
    return 0;
}
