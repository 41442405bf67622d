/* Checking a product file before anything in it is believed. */
#include "product/pack.h"
#include "format/rows.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header of a CUDA fatbin: a magic number, a version, the header's own
 * size, and the number of bytes behind the header. */
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_HEADER 16u

/* Do `count` elements of `size` bytes at `offset`, aligned to 8, lie in
 * [begin, end)? */
static bool inside(uint64_t offset, uint64_t count, uint64_t size, uint64_t begin, uint64_t end)
{
    return offset % 8 == 0 && offset >= begin && offset <= end && count <= (end - offset) / size;
}

__attribute__((format(printf, 2, 3))) static enum gen_status bad(const char *label,
                                                                 const char *format, ...)
{
    char what[512];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof(what), format, list);
    va_end(list);
    return gen__fail(GEN_STATUS_FORMAT, "%s: %s; rebuild it with `attngen build`", label, what);
}

/* The footer, if the index that it names fills the file up to it. */
static enum gen_status read_footer(const struct gen__source *source, const char *label,
                                   struct gen_pack_footer *footer)
{
    if (source->size < sizeof(*footer) + sizeof(struct gen_pack_index))
        return bad(label, "%llu bytes are too few for a product file",
                   (unsigned long long)source->size);
    const uint64_t end = source->size - sizeof(*footer);
    const void *bytes;
    void *owned;
    const enum gen_status status =
        gen__source_read(source, end, sizeof(*footer), label, &bytes, &owned);
    if (!status)
        memcpy(footer, bytes, sizeof(*footer));
    free(owned);
    if (status)
        return status;
    if (memcmp(footer->magic, GEN_PACK_MAGIC, sizeof(footer->magic)) != 0)
        return bad(label, "not an attngen product, or its end is missing (no footer found)");
    if (footer->version != GEN_PACK_VERSION)
        return bad(label, "product format %u, this runtime reads format %u", footer->version,
                   GEN_PACK_VERSION);
    if (footer->index_size < sizeof(struct gen_pack_index) || footer->index_size > end ||
        footer->index_offset % 8 != 0 || footer->index_offset != end - footer->index_size)
        return bad(label, "the index does not lie between the images and the footer");
    return GEN_OK;
}

static enum gen_status open_index(const char *label, struct gen__pack *pack, uint64_t *images_end)
{
    struct gen_pack_footer footer;
    const void *bytes = NULL;
    enum gen_status status = read_footer(&pack->source, label, &footer);
    if (!status)
        status = gen__source_read(&pack->source, footer.index_offset, footer.index_size, label,
                                  &bytes, &pack->owned);
    if (status)
        return status;
    if (gen_pack_seal(&footer, bytes) != footer.hash)
        return bad(label, "the index or the footer is damaged (their hash differs)");
    *images_end = footer.index_offset;
    pack->digest = footer.product_digest;
    pack->index = bytes;

    const struct gen_pack_index *index = pack->index;
    const uint64_t first = footer.index_offset + sizeof(*index);
    const uint64_t last = footer.index_offset + footer.index_size;
#define LIST(field, count)                                                        \
    if (!inside(index->field##_offset, count, sizeof(*pack->field), first, last)) \
        return bad(label, "the list of " #field " lies outside the index");       \
    pack->field =                                                                 \
        (const void *)((const char *)bytes + (index->field##_offset - footer.index_offset));
    LIST(families, index->num_families)
    LIST(targets, index->num_targets)
    LIST(groups, index->num_groups)
    LIST(variants, index->num_variants)
    LIST(tables, index->num_tables)
    LIST(rows, index->num_rows)
    LIST(strings, index->strings_size)
#undef LIST
    return GEN_OK;
}

/* Structs begin with their strings, but for the reason of a table. */
static enum gen_status check_strings(const char *label, const struct gen__pack *pack)
{
    const struct gen_pack_index *index = pack->index;
    const struct {
        const char *what;
        const void *list;
        size_t size;
        uint32_t count, num_strings;
    } lists[] = {
        {"the toolkit", &index->toolkit, sizeof(index->toolkit), 1, 1},
        {"a family", pack->families, sizeof(*pack->families), index->num_families, 4},
        {"a target", pack->targets, sizeof(*pack->targets), index->num_targets, 1},
        {"a group", pack->groups, sizeof(*pack->groups), index->num_groups, 2},
        {"a variant", pack->variants, sizeof(*pack->variants), index->num_variants, 2},
        {"a tuning table", pack->tables, sizeof(*pack->tables), index->num_tables, 2},
    };
    if (index->strings_size == 0 || pack->strings[0] != '\0' ||
        pack->strings[index->strings_size - 1] != '\0')
        return bad(label, "the strings are not NUL-terminated");
    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
        for (size_t i = 0; i < lists[k].count; i++) {
            uint32_t strings[4];
            memcpy(strings, (const char *)lists[k].list + i * lists[k].size, sizeof(strings));
            for (uint32_t j = 0; j < lists[k].num_strings; j++)
                if (strings[j] >= index->strings_size)
                    return bad(label, "a string of %s lies outside the string area", lists[k].what);
        }
    return GEN_OK;
}

static enum gen_status check_groups(const char *label, const struct gen__pack *pack)
{
    const struct gen_pack_index *index = pack->index;
    for (uint32_t i = 0; i < index->num_targets; i++) {
        const struct gen_pack_target *t = &pack->targets[i];
        if (t->kind > GEN_PACK_PTX || t->compute_capability > 9999)
            return bad(label, "a target is malformed");
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < index->num_groups; i++) {
        const struct gen_pack_group *g = &pack->groups[i];
        if (g->family >= index->num_families || g->target >= index->num_targets)
            return bad(label, "a group names a family or target that does not exist");
        if (g->num_variants == 0 || g->first_variant != next ||
            g->num_variants > index->num_variants - next)
            return bad(label, "the groups do not partition the variants");
        if (g->fallback_variant < next || g->fallback_variant - next >= g->num_variants)
            return bad(label, "a group's fallback is not one of its variants");
        next += g->num_variants;
    }
    return next == index->num_variants ? GEN_OK
                                       : bad(label, "the groups do not partition the variants");
}

static enum gen_status check_variants(const char *label, const struct gen__pack *pack,
                                      uint64_t images_end)
{
    const char *before = "";
    uint64_t at = 0;
    for (uint32_t i = 0; i < pack->index->num_variants; i++) {
        const struct gen_pack_variant *v = &pack->variants[i];
        const char *name = pack->strings + v->name;
        if (strcmp(before, name) >= 0)
            return bad(label, "variant %.160s is out of order", name);
        before = name;
        if (v->group >= pack->index->num_groups ||
            i - pack->groups[v->group].first_variant >= pack->groups[v->group].num_variants)
            return bad(label, "variant %.160s is not in its group", name);
        if (v->threads < 1 || v->threads > 1024 || v->cluster < 1 || v->cluster > 16)
            return bad(label,
                       "variant %.160s has %u threads in clusters of %u blocks, allowed are 1 to "
                       "1024 and 1 to 16",
                       name, v->threads, v->cluster);
        if (v->registers > 255 || v->shared_dynamic > 1u << 20 || v->shared_static > 1u << 20)
            return bad(label,
                       "variant %.160s has %u registers and %u + %u bytes of shared memory, more "
                       "than any GPU has",
                       name, v->registers, v->shared_dynamic, v->shared_static);
        if (v->image_size < FATBIN_HEADER || !gen_pack_image_follows(v, images_end, &at))
            return bad(label, "the image of variant %.160s does not follow the one before it",
                       name);
    }
    return at == images_end ? GEN_OK : bad(label, "there are bytes that no image has");
}

static bool is_time(float us)
{
    return isnormal(us) && us > 0.0f;
}

/* Are the rows of a table good numbers in their order, and of code that runs on its class? */
static bool check_rows(const struct gen__pack *pack, const struct gen_pack_table *t)
{
    const uint32_t num_variants = pack->index->num_variants;
    const struct gen_pack_group *last = NULL;
    for (uint32_t i = t->first_row; i < t->first_row + t->num_rows; i++) {
        const struct gen_pack_row *row = &pack->rows[i];
        if (row->variant >= num_variants || row->runner_up > num_variants || !is_time(row->us) ||
            !(row->runner_up_us == 0.0f || is_time(row->runner_up_us)))
            return false;
        for (int c = 0; c < GEN_PACK_MAX_COORDS; c++)
            if (!is_time(row->counts[c]))
                return false;
        const struct gen_pack_group *group = &pack->groups[pack->variants[row->variant].group];
        int order = last && group != last
                        ? gen_table_order_keys(last->family, pack->strings + last->values,
                                               group->family, pack->strings + group->values)
                        : 0;
        if (!order && last)
            order = gen_table_order_counts(row[-1].counts, row->counts);
        if (order > 0 || !gen_pack_runs(&pack->targets[group->target], t->compute_capability))
            return false;
        last = group;
    }
    return true;
}

static enum gen_status check_tables(const char *label, const struct gen__pack *pack)
{
    const struct gen_pack_index *index = pack->index;
    for (uint32_t i = 0; i < index->num_tables; i++) {
        const struct gen_pack_table *t = &pack->tables[i];
        if (t->reason >= index->strings_size)
            return bad(label, "a string of a tuning table lies outside the string area");
        if (t->first_row > index->num_rows || t->num_rows > index->num_rows - t->first_row)
            return bad(label, "the rows of a tuning table lie outside the index");
        if (!t->refused &&
            (!t->compute_capability || !t->num_sms || !t->memory_gbps || !t->l2_bytes))
            return bad(label, "a tuning table is of no class");
        if (!check_rows(pack, t))
            return bad(label, "the rows of a tuning table are malformed");
    }
    return GEN_OK;
}

enum gen_status gen__pack_open(const char *label, struct gen__pack *pack)
{
    if ((uintptr_t)pack->source.data % 8 != 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: the data at %p is not 8-byte aligned",
                         label, (const void *)pack->source.data);
    uint64_t images_end = 0;
    enum gen_status status = open_index(label, pack, &images_end);
    if (!status)
        status = check_strings(label, pack);
    if (!status)
        status = check_groups(label, pack);
    if (!status)
        status = check_variants(label, pack, images_end);
    return status ? status : check_tables(label, pack);
}

void gen__pack_close(struct gen__pack *pack)
{
    free(pack->owned);
    for (uint32_t i = 0; i < pack->num_more; i++)
        gen__source_close(&pack->more[i]);
    free(pack->more);
    gen__source_close(&pack->source);
}

/* Is it a CUDA fatbin of the size that the index gives? */
static bool is_fatbin(const unsigned char *image, uint64_t size)
{
    uint32_t magic;
    uint16_t header;
    uint64_t bytes;
    memcpy(&magic, image, sizeof(magic));
    memcpy(&header, image + 6, sizeof(header));
    memcpy(&bytes, image + 8, sizeof(bytes));
    return magic == FATBIN_MAGIC && header >= FATBIN_HEADER && header <= size &&
           bytes <= size - header;
}

enum gen_status gen__pack_image(const struct gen__pack *pack, uint32_t variant, const void **image,
                                void **owned)
{
    const struct gen_pack_variant *v = &pack->variants[variant];
    const char *name = gen__variant_name(pack, variant);
    const uint64_t room = gen_pack_room(v->image_size);
    const uint32_t from = pack->source_of ? pack->source_of[variant] : 0;
    const struct gen__source *source = from ? &pack->more[from - 1] : &pack->source;
    const enum gen_status status =
        gen__source_read(source, v->image_offset, room, name, image, owned);
    if (status)
        return status;
    if (gen_pack_hash(*image, room) != v->image_hash)
        return gen__fail(GEN_STATUS_FORMAT,
                         "the image of variant %s is damaged (its hash differs): `attngen check "
                         "--product` finds all such images, `attngen build` makes the product anew",
                         name);
    if (!is_fatbin(*image, v->image_size))
        return gen__fail(GEN_STATUS_FORMAT,
                         "the image of variant %s is not a CUDA fatbin: the product is damaged",
                         name);
    return GEN_OK;
}
