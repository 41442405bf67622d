/* Any problem on any device, and any arguments for its plan: what is refused is refused with a
 * message, and what is launched reaches the fake driver. */
#include "families.h"

#include "core/status.h"
#include "fake.h"
#include "families/kda_prefill/api.h"

#include <stdlib.h>

#define MOST_SEQUENCES 65536

static gen_library *library;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    library = families_open();
    return fake_open(NULL);
}

/* A device says its size, which the input may change: there is as much memory as a size may say. */
union device_room {
    gen_device device;
    unsigned char bytes[GEN__MOST_OUTPUT];
};

static void draw_device(struct input *input, union device_room *room)
{
    static const char *const names[] = {"h200", "cpu",  "h20", "h100",      "a100",      "b200",
                                        "l4",   "l40s", "a10", "sm_90:104", "sm_120:170"};
    const uint32_t which = input_byte(input);
    memset(room, 0, sizeof(*room));
    room->device.size = sizeof(room->device);
    if (gen_device_named(names[which % (sizeof(names) / sizeof(names[0]))], &room->device))
        abort();
    if (which & 0x80)
        input_change(input, room, offsetof(gen_device, name));
}

/* Pointers to memory that only a GPU would touch, and numbers of the input's. */
static void draw_args(struct input *input, const struct gen__family *family,
                      const gen_problem *problem, gen_args *args)
{
    static _Alignas(64) int32_t lengths[MOST_SEQUENCES + 1];
    struct gen__tensor tensors[GEN__MAX_TENSORS];
    memset(args, 0, family->args_size);
    family->default_args(problem, args);
    const uint32_t count = family->tensors(problem, tensors);
    for (uint32_t t = 0; t < count; t++) {
        void *pointer = tensors[t].count ? (void *)(uintptr_t)(0x10000 + 0x1000 * t) : NULL;
        memcpy((char *)args + tensors[t].pointer_offset, &pointer, sizeof(pointer));
    }
    input_change(input, (char *)args + sizeof(*args), family->args_size - sizeof(*args));
    if (family->tag == GEN_KDA_PREFILL) {
        gen_kda_prefill_args *a = (gen_kda_prefill_args *)args;
        a->cu_seqlens_host = NULL; /* the one pointer that the host follows */
        if (input_byte(input) & 1) {
            memset(lengths, 0, sizeof(lengths));
            input_take(input, lengths, 64);
            a->cu_seqlens_host = lengths;
        }
    }
}

static void launch(struct input *input, const struct gen__family *family,
                   const gen_problem *problem, const gen_plan *plan)
{
    union {
        gen_args base;
        int64_t words[128];
    } args;
    if (family->args_size > sizeof(args) || plan->backend == GEN_BACKEND_CPU)
        return;
    draw_args(input, family, problem, &args.base);
    void *workspace = plan->workspace_bytes ? (void *)(uintptr_t)0x100000 : NULL;
    const enum gen_status status = gen_launch(library, plan, &args.base, workspace, NULL);
    if (status && !gen_last_error()[0])
        abort();
    /* A changed plan is refused by its seal. What a caller seals anew is not looked at: the plan's
     * numbers are the caller's then, and so is the memory that a launch reaches by them. */
    gen_plan changed = *plan;
    input_change(input, &changed, sizeof(changed));
    if (memcmp(&changed, plan, sizeof(changed)) != 0 &&
        !gen_launch(library, &changed, &args.base, workspace, NULL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    union any_problem problem;
    gen_plan plan = {.size = sizeof(plan)};
    const struct gen__family *family = families_draw(&input);
    union device_room room;
    draw_device(&input, &room);
    families_preset(family, &problem);
    problem.base.flags = input_byte(&input);
    problem.base.max_workspace_mib = input_byte(&input);
    input_change(&input, (char *)&problem + sizeof(problem.base),
                 family->problem_size - sizeof(problem.base));
    const enum gen_status status = gen_select(library, &room.device, &problem.base, &plan);
    if (status && !gen_last_error()[0])
        abort();
    if (size % 16 == 0) { /* it is slow */
        char text[512];
        size_t needed = 0;
        (void)gen_explain(library, &room.device, &problem.base, text, sizeof(text), &needed);
    }
    if (!status)
        launch(&input, family, &problem.base, &plan);
    return 0;
}
