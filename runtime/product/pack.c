/* Checking a product file before anything in it is believed. */
#include "product/pack.h"
#include "format/rows.h"

#include <math.h>
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

static enum gen_status bad(const char *label, const char *what)
{
    return gen__fail(GEN_STATUS_FORMAT, "%s: %s; rebuild it with `attngen build`", label, what);
}

static enum gen_status open_index(const char *label, struct gen__pack *pack)
{
    struct gen_pack_footer footer;
    if (pack->size < sizeof(footer) + sizeof(struct gen_pack_index))
        return gen__fail(GEN_STATUS_FORMAT, "%s: %llu bytes are too few for a product file", label,
                         (unsigned long long)pack->size);
    const uint64_t end = pack->size - sizeof(footer);
    memcpy(&footer, pack->data + end, sizeof(footer));
    if (memcmp(footer.magic, GEN_PACK_MAGIC, sizeof(footer.magic)) != 0)
        return bad(label, "not an attngen product, or its end is missing (no footer found)");
    if (footer.version != GEN_PACK_VERSION)
        return gen__fail(GEN_STATUS_FORMAT,
                         "%s: product format %u, this runtime reads format %u; `attngen build` of "
                         "this version makes it",
                         label, footer.version, GEN_PACK_VERSION);
    if (footer.index_size < sizeof(struct gen_pack_index) ||
        !inside(footer.index_offset, footer.index_size, 1, 0, end))
        return bad(label, "the index lies outside the file");
    if (gen_pack_hash(pack->data + footer.index_offset, footer.index_size) != footer.index_hash)
        return bad(label, "the index is damaged (its hash differs)");
    pack->digest = footer.product_digest;
    pack->index = (const struct gen_pack_index *)(const void *)(pack->data + footer.index_offset);

    const struct gen_pack_index *index = pack->index;
    const uint64_t first = footer.index_offset + sizeof(*index);
    const uint64_t last = footer.index_offset + footer.index_size;
#define ARRAY(field, count)                                                       \
    if (!inside(index->field##_offset, count, sizeof(*pack->field), first, last)) \
        return bad(label, "the list of " #field " lies outside the index");       \
    pack->field = (const void *)(pack->data + index->field##_offset);
    ARRAY(families, index->num_families)
    ARRAY(targets, index->num_targets)
    ARRAY(groups, index->num_groups)
    ARRAY(variants, index->num_variants)
    ARRAY(tables, index->num_tables)
    ARRAY(rows, index->num_rows)
    ARRAY(strings, index->strings_size)
#undef ARRAY
    if (index->strings_size == 0 || pack->strings[0] != '\0' ||
        pack->strings[index->strings_size - 1] != '\0')
        return bad(label, "the strings are not NUL-terminated");
    if (index->toolkit >= index->strings_size)
        return bad(label, "a string lies outside the string area");
    return GEN_OK;
}

static enum gen_status check_lists(const char *label, const struct gen__pack *pack)
{
    const struct gen_pack_index *index = pack->index;
    const uint64_t strings = index->strings_size;
    for (uint32_t i = 0; i < index->num_families; i++) {
        const struct gen_pack_family *f = &pack->families[i];
        if (f->name >= strings || f->required >= strings || f->facts >= strings ||
            f->coords >= strings)
            return bad(label, "a family's string lies outside the string area");
    }
    for (uint32_t i = 0; i < index->num_targets; i++) {
        const struct gen_pack_target *t = &pack->targets[i];
        if (t->name >= strings || t->kind > GEN_PACK_PTX || t->compute_capability > 9999)
            return bad(label, "a target is malformed");
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < index->num_groups; i++) {
        const struct gen_pack_group *g = &pack->groups[i];
        if (g->name >= strings || g->values >= strings)
            return bad(label, "a group's string lies outside the string area");
        if (g->family >= index->num_families || g->target >= index->num_targets)
            return bad(label, "a group names a family or target that does not exist");
        if (g->num_variants == 0 || g->first_variant != next ||
            g->num_variants > index->num_variants - next)
            return bad(label, "the groups do not partition the variants");
        if (g->fallback_variant < next || g->fallback_variant - next >= g->num_variants)
            return bad(label, "a group's fallback is not one of its variants");
        next += g->num_variants;
    }
    if (next != index->num_variants)
        return bad(label, "the groups do not partition the variants");
    return GEN_OK;
}

static enum gen_status check_variants(const char *label, const struct gen__pack *pack,
                                      uint64_t images_end)
{
    const struct gen_pack_index *index = pack->index;
    const uint64_t strings = index->strings_size;
    const char *before = "";
    for (uint32_t i = 0; i < index->num_variants; i++) {
        const struct gen_pack_variant *v = &pack->variants[i];
        if (v->name >= strings || v->symbol >= strings)
            return bad(label, "a variant's string lies outside the string area");
        const char *name = pack->strings + v->name;
        if (strcmp(before, name) >= 0)
            return gen__fail(GEN_STATUS_FORMAT, "%s: variant %.160s is out of order", label, name);
        before = name;
        if (v->group >= index->num_groups ||
            i - pack->groups[v->group].first_variant >= pack->groups[v->group].num_variants)
            return gen__fail(GEN_STATUS_FORMAT, "%s: variant %.160s is not in its group", label,
                             name);
        if (v->threads < 1 || v->threads > 1024 || v->cluster < 1 || v->cluster > 16)
            return gen__fail(GEN_STATUS_FORMAT,
                             "%s: variant %.160s has %u threads in clusters of %u blocks, allowed "
                             "are 1 to 1024 and 1 to 16",
                             label, name, v->threads, v->cluster);
        if (v->registers > 255 || v->shared_dynamic > 1u << 20 || v->shared_static > 1u << 20)
            return gen__fail(GEN_STATUS_FORMAT,
                             "%s: variant %.160s has %u registers and %u + %u bytes of shared "
                             "memory, more than any GPU has",
                             label, name, v->registers, v->shared_dynamic, v->shared_static);
        if (v->image_offset % 16 != 0 || v->image_offset > images_end ||
            v->image_size < FATBIN_HEADER || v->image_size > images_end - v->image_offset)
            return gen__fail(GEN_STATUS_FORMAT,
                             "%s: the image of variant %.160s lies outside the "
                             "file",
                             label, name);
    }
    return GEN_OK;
}

static bool is_time(float us)
{
    return isnormal(us) && us > 0.0f;
}

/* Are the rows of a table good numbers in their order? */
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
        if (order > 0)
            return false;
        last = group;
    }
    return true;
}

static enum gen_status check_tables(const char *label, const struct gen__pack *pack)
{
    const struct gen_pack_index *index = pack->index;
    const uint64_t strings = index->strings_size;
    for (uint32_t i = 0; i < index->num_tables; i++) {
        const struct gen_pack_table *t = &pack->tables[i];
        if (t->name >= strings || t->class_name >= strings || t->reason >= strings)
            return bad(label, "the string of a tuning table lies outside the string area");
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

enum gen_status gen__pack_open(const void *data, uint64_t size, const char *label,
                               struct gen__pack *pack)
{
    if ((uintptr_t)data % 8 != 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: the data at %p is not 8-byte aligned",
                         label, data);
    memset(pack, 0, sizeof(*pack));
    pack->data = data;
    pack->size = size;
    enum gen_status status = open_index(label, pack);
    if (status)
        return status;
    const uint64_t images_end = (uint64_t)((const unsigned char *)pack->index - pack->data);
    status = check_lists(label, pack);
    if (!status)
        status = check_variants(label, pack, images_end);
    return status ? status : check_tables(label, pack);
}

bool gen__pack_image_ok(const struct gen__pack *pack, uint32_t variant)
{
    const struct gen_pack_variant *v = &pack->variants[variant];
    const unsigned char *image = pack->data + v->image_offset;
    uint32_t magic;
    uint16_t header;
    uint64_t bytes;
    memcpy(&magic, image, sizeof(magic));
    memcpy(&header, image + 6, sizeof(header));
    memcpy(&bytes, image + 8, sizeof(bytes));
    return magic == FATBIN_MAGIC && header >= FATBIN_HEADER && header <= v->image_size &&
           bytes <= v->image_size - header;
}
