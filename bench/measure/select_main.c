/*
 * attngen-select: what the runtime chooses for a problem on a GPU, and why;
 * with --run, what comes of it.
 */
#include "common/buffers.h"
#include "common/problems.h"
#include "common/session.h"
#include "common/timing.h"
#include "common/util.h"
#include "verify/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "attngen select [options] [FAMILY] [key=value ...]\n"
    "\n"
    "Prints which variant the runtime picks for a problem on a GPU, and why. Needs no GPU.\n"
    "Without a problem: the first line of the family's shape file. For example\n"
    "  attngen select --gpu h200 la_decode batch=64 num_qk_heads=64 head_dim=128 layout=vk\n";

static struct {
    struct session session;
    const char *gpu;
    bool run, brief;
} options;

/* ---- the problem ------------------------------------------------------- */

static const struct gen__family *pick_family(const char **words, int *num_words)
{
    if (*num_words && !strchr(words[0], '=')) {
        const struct gen__family *family = gen__family_by_name(words[0]);
        if (!family) {
            struct text known = {0};
            for (uint32_t i = 0; i < gen__num_families; i++)
                text_add(&known, " %s", gen__families[i]->name);
            die(1, "unknown family '%s'; known:%s", words[0], known.data ? known.data : "");
        }
        memmove(words, words + 1, (size_t)(*num_words - 1) * sizeof *words);
        (*num_words)--;
        return family;
    }
    if (gen__num_families == 0)
        die(2, "this program was built without families");
    return gen__families[0];
}

static void read_problem(struct shape_list *list, const char **words, int num_words)
{
    const struct gen__family *family = pick_family(words, &num_words);
    if (num_words == 0) {
        if (shapes_read_default(list, family, SHAPES_TIMED) == 0 && list->count)
            return;
        die(1, "no problem is named and %s has no readable shape file", family->name);
    }
    struct text text = {0};
    for (int i = 0; i < num_words; i++)
        text_add(&text, "%s ", words[i]);
    if (!shapes_parse(list, family, SHAPES_TIMED, text.data))
        die(1, "%s", gen_last_error());
    text_free(&text);
}

/* ---- what is chosen ---------------------------------------------------- */

static void print_choice(const struct session *s, const gen_device *device,
                         const struct shape *shape)
{
    char text[1024];
    gen_plan plan = {.size = sizeof plan};
    gen__problem_format(shape->family, shape->problem, text, sizeof text);
    printf("problem   %s %s  (%s%s%s)\n", shape->family->name, text, shape->name,
           *shape->note ? ", " : "", shape->note);
    printf("device    %s: sm_%" PRIu32 ", %" PRIu32 " SMs%s\n", device->name,
           device->compute_capability, device->num_sms,
           device->ordinal < 0 && device->backend == GEN_BACKEND_CUDA ? " (named, not queried)"
                                                                      : "");
    printf("product   %s: %" PRIu32 " variants, %" PRIu32 " table rows, CUDA %s\n", s->product,
           s->info.num_variants, s->info.num_rows, s->info.toolkit);
    if (gen_select(s->library, device, shape->problem, &plan) != GEN_OK)
        die(1, "%s", gen_last_error());
    if (plan.num_launches == 0)
        printf("chosen    nothing: the problem is empty\n");
    for (uint32_t i = 0; i < plan.num_launches && plan.backend == GEN_BACKEND_CUDA; i++) {
        const gen_plan_launch *l = &plan.launch[i];
        gen_variant_info v = session_variant(s, l->variant);
        printf("chosen    %s\n", v.name);
        printf("launch    grid %" PRIu32 " x %" PRIu32 " x %" PRIu32 ", %" PRIu32
               " threads, %" PRIu32 " bytes of dynamic shared memory, %" PRIu32 " registers\n",
               l->grid[0], l->grid[1], l->grid[2], l->threads, l->shared, v.registers);
    }
    printf("because   %s", gen_why_string((enum gen_why)plan.why));
    if (plan.predicted_us > 0)
        printf("; %.1f us predicted", (double)plan.predicted_us);
    printf("\n");
}

static void print_explanation(const struct session *s, const gen_device *device,
                              const struct shape *shape)
{
    size_t needed = 0;
    if (gen_explain(s->library, device, shape->problem, NULL, 0, &needed) != GEN_OK)
        die(1, "%s", gen_last_error());
    char *text = xmalloc(needed + 1);
    if (gen_explain(s->library, device, shape->problem, text, needed + 1, &needed) != GEN_OK)
        die(1, "%s", gen_last_error());
    printf("\n%s%s", text, needed && text[needed - 1] == '\n' ? "" : "\n");
    free(text);
}

/* ---- running it -------------------------------------------------------- */

/* Sum and root mean square of what the kernel wrote: small enough to compare by
 * eye from machine to machine. */
static void print_output(const struct buffers *b, const uint8_t *block)
{
    for (uint32_t t = 0; t < b->num_tensors; t++) {
        const struct gen__tensor *tensor = &b->tensor[t];
        if (tensor->role != GEN__OUT)
            continue;
        double sum = 0, squares = 0;
        for (uint64_t i = 0; i < tensor->count; i++) {
            double x = dtype_get(tensor->dtype, block + buffers_at(b, 0, t), i);
            sum += x;
            squares += x * x;
        }
        printf("output    %s: %" PRIu64 " elements, sum %.6g, root mean square %.6g\n",
               tensor->name, tensor->count, sum,
               tensor->count ? sqrt(squares / (double)tensor->count) : 0);
    }
}

static void run_on_cpu(const struct session *s, const struct shape *shape)
{
    gen_device cpu = {.size = sizeof cpu};
    gen_plan plan = {.size = sizeof plan};
    struct buffers b;
    const struct fill_options fill = {.seed = 1, .cycle = true};
    if (gen_device_named("cpu", &cpu) != GEN_OK ||
        gen_select(s->library, &cpu, shape->problem, &plan) != GEN_OK)
        die(1, "%s", gen_last_error());
    buffers_init(&b, shape->family, shape->problem, BUFFERS_DEFAULT_FORM, 1, false);
    const uint64_t workspace = (b.total_bytes + 255) / 256 * 256;
    const uint64_t size = workspace + (plan.workspace_bytes + 511) / 256 * 256;
    uint8_t *block = aligned_alloc(256, size);
    if (!block)
        die(2, "host memory is exhausted (%" PRIu64 " bytes requested)", size);
    buffers_fill(&b, &fill, block);
    gen_args *args = xmalloc(shape->family->args_size);
    buffers_args(&b, (uint64_t)(uintptr_t)block, 0, args);
    uint64_t start = clock_ns();
    if (gen_launch(s->library, &plan, args, block + workspace, NULL) != GEN_OK)
        die(1, "%s", gen_last_error());
    double ms = (double)(clock_ns() - start) / 1e6;
    printf("ran       the reference on the CPU, in double precision\n");
    print_output(&b, block);
    printf("time      %.3f ms (CPU reference, wall time: says nothing about a GPU)\n", ms);
    free(args);
    free(block);
    buffers_free(&b);
}

static void run_on_gpu(struct session *s, const struct shape *shape)
{
    struct arena arena = {0};
    struct stage stage;
    struct runner runner;
    struct runner *list[] = {&runner};
    struct verify_case check;
    struct verify_result result;
    double bytes, flops;
    gen_plan plan = {.size = sizeof plan};
    if (gen_select(s->library, &s->gpu.device, shape->problem, &plan) != GEN_OK)
        die(1, "%s", gen_last_error());
    printf("ran       %s on %s\n", session_main(s, &plan).name, s->gpu.device.name);
    (void)verify_prepare(&check, shape, "", s->library);
    if (verify_upload(&check, &s->gpu) != GEN_OK)
        die(1, "%s", gen_last_error());
    verify_variant(&check, &s->gpu, s->library, NULL, 1, &result);
    if (result.ok)
        print_output(&check.buffers, check.actual);
    printf("error     %.3g relative, against the reference: %s\n", result.error,
           result.ok ? "within the family's tolerance" : result.reason);
    verify_free(&check, &s->gpu);
    enum gen_status status = stage_open(&stage, &s->gpu, &arena, shape, plan.workspace_bytes);
    if (status == GEN_OK)
        status = runner_plan(&runner, s->library, &stage, &plan);
    if (status == GEN_OK)
        status = runner_capture(&runner, &s->gpu, stage.buffers.num_sets,
                                launches_for(4000, stage.floor_us, 20));
    if (status == GEN_OK)
        status = runners_interleave(list, 1, &s->gpu, 9, 0);
    if (status != GEN_OK)
        die(1, "%s", gen_last_error());
    shape->family->cost(shape->problem, &bytes, &flops);
    double us = runner_median(&runner);
    printf("time      %.2f us GPU device time (graph replay, memory rotated beyond the L2), "
           "%.0f GB/s, %.2f TFLOP/s\n",
           us, bytes / us / 1e3, flops / us / 1e6);
    runner_free(&runner, &s->gpu);
    stage_close(&stage);
    arena_free(&arena, &s->gpu);
    if (!result.ok)
        exit(1);
}

static void run(struct session *s, const struct shape *shape)
{
    printf("\n");
    if (shape->key.empty) {
        printf("ran       nothing: the problem is empty\n");
        return;
    }
    if (gpu_open(&s->gpu, (int)s->ordinal, s->sms) == GEN_OK) {
        run_on_gpu(s, shape);
        return;
    }
    printf("gpu       none (%s)\n", gen_last_error());
    run_on_cpu(s, shape);
}

int main(int argc, char **argv)
{
    struct session *s = &options.session;
    const struct option table[] = {
        SESSION_PRODUCT_OPTIONS(s),
        {"--gpu", OPTION_TEXT, &options.gpu, "NAME",
         "a GPU by name (h200, h20, a100, ..., sm_90:78, cpu); default: device 0, else h200"},
        {"--brief", OPTION_FLAG, &options.brief, NULL, "the choice alone, not every candidate"},
        {"--run", OPTION_FLAG, &options.run, NULL,
         "run it: on the GPU where there is one, else the reference on the CPU"},
        SESSION_GPU_OPTIONS(s),
    };
    util_set_program("select");
    const char **words = xmalloc((size_t)argc * sizeof *words);
    int num_words =
        options_parse(table, (int)(sizeof table / sizeof *table), usage, argc, argv, words);
    struct shape_list list = {0};
    read_problem(&list, words, num_words);
    session_open_library(s);

    gen_device device = {.size = sizeof device};
    bool known = options.gpu ? gpu_named(options.gpu, &device) == GEN_OK
                             : gen_device_query((int)s->ordinal, &device) == GEN_OK ||
                                   gen_device_named("h200", &device) == GEN_OK;
    if (!known)
        die(1, "%s", gen_last_error());
    print_choice(s, &device, &list.item[0]);
    if (!options.brief)
        print_explanation(s, &device, &list.item[0]);
    if (options.run)
        run(s, &list.item[0]);
    session_close(s);
    shapes_free(&list);
    free(words);
    return 0;
}
