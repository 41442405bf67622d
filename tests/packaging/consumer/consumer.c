/* Selects a kernel for a GPU that need not be here and runs the same problem on
 * the CPU, with inputs whose result can be computed by hand. */
#include <attngen/gen.h>
#include <attngen/la_decode.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define D 64

static void check(enum gen_status status, const char *what)
{
    if (status == GEN_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, gen_status_name(status), gen_last_error());
    exit(1);
}

/* Exact for the small integers used here. */
static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

int main(int argc, char **argv)
{
    static _Alignas(16) uint16_t q[D], k[D], v[D], o[D];
    static _Alignas(16) float state[D * D];
    gen_open_options options = {.size = sizeof options, .path = argc > 1 ? argv[1] : NULL};
    gen_library *library = NULL;
    check(gen_open(&options, &library), "gen_open");

    gen_la_decode_problem problem = {.base = {.size = sizeof problem, .family = GEN_LA_DECODE},
                                     .batch = 1,
                                     .num_qk_heads = 1,
                                     .num_v_heads = 1,
                                     .head_dim = D,
                                     .dtype = GEN_DTYPE_BF16,
                                     .state_layout = GEN_LA_STATE_VK};
    gen_device device = {.size = sizeof device};
    gen_plan plan = {.size = sizeof plan};
    gen_variant_info variant = {.size = sizeof variant};
    check(gen_device_named("h200", &device), "gen_device_named(h200)");
    check(gen_select(library, &device, &problem.base, &plan), "gen_select on an H200");
    check(gen_variant_get(library, plan.launch[0].variant, &variant), "gen_variant_get");
    printf("h200: %s (%s)\n", variant.name, gen_why_string((enum gen_why)plan.why));
    if (strncmp(variant.name, "la_decode_bf16_d64_vk__sm90a_", 29) != 0)
        return fprintf(stderr, "that variant does not fit the problem\n"), 1;

    /* h[0,v] = exp(-ln 2) * 4 + 1 * (v + 1) = v + 3, o[v] = 1 * 2 * h[0,v]. */
    float decay = logf(2.0f);
    q[0] = bf16(2.0f);
    k[0] = bf16(1.0f);
    for (int i = 0; i < D; i++) {
        v[i] = bf16((float)i + 1.0f);
        state[i * D] = 4.0f;
    }
    gen_la_decode_args args = {.base = {.size = sizeof args, .family = GEN_LA_DECODE},
                               .q = q,
                               .k = k,
                               .v = v,
                               .o = o,
                               .decay = &decay,
                               .state = state,
                               .num_slots = 1,
                               .num_decays = 1,
                               .scale = 1.0f};
    check(gen_device_named("cpu", &device), "gen_device_named(cpu)");
    check(gen_select(library, &device, &problem.base, &plan), "gen_select on the CPU");
    check(gen_launch(library, &plan, &args.base, NULL, NULL), "gen_launch");
    for (int i = 0; i < D; i++) {
        if (o[i] != bf16(2.0f * ((float)i + 3.0f)) ||
            fabsf(state[i * D] - ((float)i + 3.0f)) > 1e-4f) {
            fprintf(stderr, "o[%d] is 0x%04x, state %g; expected %d and %d\n", i, o[i],
                    (double)state[i * D], 2 * (i + 3), i + 3);
            return 1;
        }
    }
    printf("cpu: %d outputs as computed by hand (%s)\n", D, gen_why_string((enum gen_why)plan.why));
    gen_close(library);
    printf("attngen %s\n", gen_version());
    return 0;
}
