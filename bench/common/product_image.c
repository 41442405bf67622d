#include "common/product_image.h"
#include "format/product.h"
#include "common/util.h"

#include <stdlib.h>
#include <string.h>

static bool inside(uint64_t offset, uint64_t size, uint64_t total)
{
    return offset <= total && size <= total - offset;
}

/* The string at `at` if it ends within the string area. */
static const char *string_of(const char *strings, uint64_t size, uint32_t at)
{
    return at < size && memchr(strings + at, 0, size - at) ? strings + at : "";
}

static bool find(const char *file, uint64_t total, const char *variant, struct product_image *image)
{
    struct gen_pack_footer footer;
    struct gen_pack_index index;
    if (total < sizeof footer)
        return false;
    memcpy(&footer, file + total - sizeof footer, sizeof footer);
    if (memcmp(footer.magic, GEN_PACK_MAGIC, sizeof footer.magic) != 0 ||
        footer.version != GEN_PACK_VERSION || footer.index_size < sizeof index ||
        !inside(footer.index_offset, footer.index_size, total - sizeof footer) ||
        gen_pack_seal(&footer, file + footer.index_offset) != footer.hash)
        return false;
    memcpy(&index, file + footer.index_offset, sizeof index);
    if (!inside(index.variants_offset,
                (uint64_t)index.num_variants * sizeof(struct gen_pack_variant), total) ||
        !inside(index.strings_offset, index.strings_size, total))
        return false;
    const char *strings = file + index.strings_offset;
    for (uint32_t i = 0; i < index.num_variants; i++) {
        struct gen_pack_variant v;
        memcpy(&v, file + index.variants_offset + i * sizeof v, sizeof v);
        if (strcmp(string_of(strings, index.strings_size, v.name), variant) != 0 ||
            v.image_size > total || !inside(v.image_offset, gen_pack_room(v.image_size), total) ||
            gen_pack_hash(file + v.image_offset, gen_pack_room(v.image_size)) != v.image_hash)
            continue;
        image->size = v.image_size;
        image->data = xmalloc(v.image_size);
        memcpy(image->data, file + v.image_offset, v.image_size);
        snprintf(image->symbol, sizeof image->symbol, "%s",
                 string_of(strings, index.strings_size, v.symbol));
        return true;
    }
    return false;
}

bool product_image_read(const char *path, const char *variant, struct product_image *image)
{
    size_t size = 0;
    memset(image, 0, sizeof *image);
    char *file = file_read(path, &size);
    bool ok = file && find(file, size, variant, image);
    free(file);
    return ok;
}

void product_image_free(struct product_image *image)
{
    free(image->data);
    memset(image, 0, sizeof *image);
}
