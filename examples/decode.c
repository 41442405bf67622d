/*
 * One step of Lightning Attention decode from C: open, select, load, launch.
 *
 *     decode [PRODUCT]
 *
 * On a GPU where there is one, else on the CPU. The states begin as zero, so what must come out is
 * known: o = scale * (q . k) * v.
 */
#include "example.h"

#include <attngen/la_decode.h>

#include <math.h>

enum { BATCH = 4, HEADS = 8, DIM = 128, ROW = HEADS * DIM, SIZE = BATCH * ROW };

static void fill(uint16_t *values, int count, unsigned seed)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = example_to_bf16((float)(seed >> 8) / (float)(1 << 24) - 0.5f);
    }
}

/* The largest difference from what must come out. */
static double worst_error(const uint16_t *q, const uint16_t *k, const uint16_t *v,
                          const uint16_t *o, double scale)
{
    double worst = 0;
    for (int head = 0; head < BATCH * HEADS; head++) {
        double product = 0;
        for (int i = 0; i < DIM; i++)
            product += (double)example_from_bf16(q[head * DIM + i]) *
                       (double)example_from_bf16(k[head * DIM + i]);
        for (int i = 0; i < DIM; i++)
            worst =
                fmax(worst, fabs((double)example_from_bf16(o[head * DIM + i]) -
                                 scale * product * (double)example_from_bf16(v[head * DIM + i])));
    }
    return worst;
}

static void print_choice(const gen_library *library, const gen_device *device, const gen_plan *plan)
{
    printf("%s: %s", device->name, gen_why_string((enum gen_why)plan->why));
    if (plan->num_launches > 0 && example_has_gpu(device)) {
        gen_variant_info info = {.size = sizeof info};
        example_need(gen_variant_get(library, plan->launch[0].variant, &info) == GEN_OK, "variant");
        printf(", %s, %.1f us predicted", info.name, (double)plan->predicted_us);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    gen_open_options options = {.size = sizeof options,
                                .path = argc > 1 ? argv[1] : "attngen.fatbin"};
    gen_library *library = NULL;
    example_need(gen_open(&options, &library) == GEN_OK, "gen_open");
    const gen_device device = example_device();

    /* Which kernel: a pure function of problem and device, so keep the plan. */
    const gen_la_decode_problem problem = {
        .base = {.size = sizeof problem, .family = GEN_LA_DECODE},
        .batch = BATCH,
        .num_qk_heads = HEADS,
        .num_v_heads = HEADS,
        .head_dim = DIM,
        .dtype = GEN_DTYPE_BF16,
        .state_layout = GEN_LA_STATE_VK};
    gen_plan plan = {.size = sizeof plan};
    example_need(gen_select(library, &device, &problem.base, &plan) == GEN_OK, "gen_select");
    print_choice(library, &device, &plan);
    example_need(gen_preload(library, &plan) == GEN_OK, "gen_preload");

    static uint16_t q[SIZE], k[SIZE], v[SIZE], o[SIZE];
    const float decay[HEADS] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f};
    void *memory[6];
    for (int i = 0; i < 4; i++)
        memory[i] = example_memory(&device, sizeof q);
    memory[4] = example_memory(&device, sizeof decay);
    memory[5] = example_memory(&device, sizeof(float) * BATCH * HEADS * DIM * DIM);
    void *workspace = example_memory(&device, plan.workspace_bytes);
    fill(q, SIZE, 1);
    fill(k, SIZE, 2);
    fill(v, SIZE, 3);
    example_copy(memory[0], q, sizeof q);
    example_copy(memory[1], k, sizeof k);
    example_copy(memory[2], v, sizeof v);
    example_copy(memory[4], decay, sizeof decay);

    const gen_la_decode_args args = {.base = {.size = sizeof args, .family = GEN_LA_DECODE},
                                     .q = memory[0],
                                     .k = memory[1],
                                     .v = memory[2],
                                     .o = memory[3],
                                     .decay = memory[4],
                                     .state = memory[5],
                                     .num_slots = BATCH,
                                     .num_decays = HEADS,
                                     .scale = 0.0884f};
    example_need(gen_launch(library, &plan, &args.base, workspace, NULL) == GEN_OK, "gen_launch");
    example_copy(o, memory[3], sizeof o); /* waits for the stream, which is the default one */

    const double error = worst_error(q, k, v, o, 0.0884);
    printf("largest error %.2g\n", error);
    for (int i = 0; i < 6; i++)
        example_free(&device, memory[i]);
    example_free(&device, workspace);
    gen_close(library);
    return error < 5e-3 ? 0 : 1; /* o is below 1 and has 8 bits */
}
