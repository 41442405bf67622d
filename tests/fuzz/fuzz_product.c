/* A product file of any bytes: it is opened as it is, and once more with the hashes that it should
 * have, so that the checks behind them are reached. What opens is asked about everything, selected
 * from, loaded and launched on the fake driver. */
#include "input.h"

#include "fake.h"
#include "product/library.h"
#include "toy.h"

#include <stdbool.h>
#include <stdlib.h>

static const float in[64];
static float out[64];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return fake_open(NULL);
}

static void launch(const gen_library *library, const gen_device *device, uint32_t family)
{
    static _Alignas(256) char workspace[256]; /* it is not read */
    const gen_toy_problem problem = toy_problem(family, 16);
    const gen_toy_args args = {{sizeof(args), family}, in, out};
    gen_plan plan = {.size = sizeof(plan)};
    char text[300];
    (void)gen_explain(library, device, &problem.base, text, sizeof(text), NULL);
    if (gen_select(library, device, &problem.base, &plan))
        return;
    (void)gen_preload(library, &plan);
    (void)gen_launch(library, &plan, &args.base, workspace, NULL);
}

static void use(const gen_library *library)
{
    static const char *const names[] = {"h200", "a100", "b200", "h20", "cpu"};
    gen_library_info info = {.size = sizeof(info)};
    if (gen_library_info_get(library, &info))
        abort();
    size_t length = strlen(info.toolkit);
    for (uint32_t i = 0; i < info.num_variants; i++) {
        gen_variant_info v = {.size = sizeof(v)};
        const void *image;
        void *owned;
        if (gen_variant_get(library, i, &v))
            abort();
        length += strlen(v.name) + strlen(v.family) + strlen(v.required) + strlen(v.target);
        (void)gen__pack_image(&library->pack, i, &image, &owned);
        free(owned);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        gen_device device = {.size = sizeof(device)};
        if (gen_device_named(names[i], &device))
            abort();
        launch(library, &device, GEN_LINE);
        launch(library, &device, GEN_TOY);
        launch(library, &device, GEN_PAIR);
    }
    if (length == SIZE_MAX)
        abort();
}

static void open_and_use(const void *data, size_t size)
{
    const gen_open_options options = {.size = sizeof(options), .data = data, .data_size = size};
    gen_library *library = NULL;
    fake_start();
    if (gen_open(&options, &library)) {
        if (library || !gen_last_error()[0])
            abort();
        return;
    }
    use(library);
    gen_close(library);
}

/* Hashes as they should be, as far as there is anything that they could be of. */
static void reseal(unsigned char *data, size_t size)
{
    struct gen_pack_footer footer;
    struct gen_pack_index index;
    if (size < sizeof(footer) + sizeof(index))
        return;
    const uint64_t end = size - sizeof(footer);
    memcpy(&footer, data + end, sizeof(footer));
    if (footer.index_size < sizeof(index) || footer.index_size > end)
        return;
    footer.index_offset = end - footer.index_size;
    memcpy(&index, data + footer.index_offset, sizeof(index));
    for (uint32_t i = 0; i < index.num_variants; i++) {
        struct gen_pack_variant v;
        const uint64_t at = index.variants_offset + i * sizeof(v);
        if (end < sizeof(v) || index.variants_offset > end || at > end - sizeof(v))
            break;
        memcpy(&v, data + at, sizeof(v));
        if (v.image_size > end || v.image_offset > end ||
            gen_pack_room(v.image_size) > end - v.image_offset)
            break;
        v.image_hash = gen_pack_hash(data + v.image_offset, gen_pack_room(v.image_size));
        memcpy(data + at, &v, sizeof(v));
    }
    memcpy(footer.magic, GEN_PACK_MAGIC, sizeof(footer.magic));
    footer.version = GEN_PACK_VERSION;
    footer.hash = gen_pack_seal(&footer, data + footer.index_offset);
    memcpy(data + end, &footer, sizeof(footer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *copy = NULL; /* as large as the bytes, so that a read beyond them is seen */
    if (posix_memalign(&copy, 16, size ? size : 1))
        abort();
    if (size)
        memcpy(copy, data, size);
    open_and_use(copy, size);
    reseal(copy, size);
    open_and_use(copy, size);
    free(copy);
    return 0;
}
