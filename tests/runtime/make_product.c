/* Writing a product file: the test's own reading of gen/pack_format.h. */
#include "make_product.h"

#include "prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FAMILIES 64
#define MAX_TARGETS 8
#define MAX_GROUPS 1024
#define MAX_TABLES 8

struct item {
    char name[128];
    char symbol[128];
    int image_for;
    uint32_t fallback;
    struct gen_pack_variant v;
};

struct table {
    char name[64];
    char *text;
};

struct buffer {
    unsigned char *at;
    size_t size, capacity;
};

struct product {
    struct gen_pack_family families[MAX_FAMILIES];
    struct gen_pack_target targets[MAX_TARGETS];
    struct gen_pack_group groups[MAX_GROUPS];
    struct item *items;
    struct table tables[MAX_TABLES];
    uint32_t num_families, num_targets, num_groups, num_items, max_items, num_tables;
    struct buffer strings;
};

static void need(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "make_product: %s\n", what);
        abort();
    }
}

static size_t append(struct buffer *b, const void *data, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = 2 * (b->size + size) + 256;
        b->at = realloc(b->at, b->capacity);
        need(b->at != NULL, "memory");
    }
    const size_t at = b->size;
    if (size == 0)
        return at;
    if (data)
        memcpy(b->at + at, data, size);
    else
        memset(b->at + at, 0, size);
    b->size += size;
    return at;
}

static void align(struct buffer *b, size_t to)
{
    append(b, NULL, (to - b->size % to) % to);
}

static uint32_t string(struct buffer *strings, const char *text)
{
    return *text ? (uint32_t)append(strings, text, strlen(text) + 1) : 0;
}

struct product *product_new(void)
{
    struct product *p = calloc(1, sizeof(*p));
    need(p != NULL, "memory");
    append(&p->strings, "", 1);
    return p;
}

void product_free(struct product *p)
{
    for (uint32_t i = 0; i < p->num_tables; i++)
        free(p->tables[i].text);
    free(p->items);
    free(p->strings.at);
    free(p);
}

uint32_t product_family(struct product *p, const char *name, const char *required,
                        const char *facts)
{
    need(p->num_families < MAX_FAMILIES, "too many families");
    p->families[p->num_families] = (struct gen_pack_family){
        string(&p->strings, name), string(&p->strings, required), string(&p->strings, facts), 0};
    return p->num_families++;
}

uint32_t product_target(struct product *p, const char *name, uint32_t compute_capability,
                        enum gen_pack_target_kind kind)
{
    need(p->num_targets < MAX_TARGETS, "too many targets");
    p->targets[p->num_targets] =
        (struct gen_pack_target){string(&p->strings, name), compute_capability, kind, 0};
    return p->num_targets++;
}

uint32_t product_group(struct product *p, const char *name, const char *values, uint32_t family,
                       uint32_t target)
{
    need(p->num_groups < MAX_GROUPS, "too many groups");
    p->groups[p->num_groups] = (struct gen_pack_group){.name = string(&p->strings, name),
                                                       .values = string(&p->strings, values),
                                                       .family = family,
                                                       .target = target};
    return p->num_groups++;
}

uint64_t product_variant(struct product *p, uint32_t group, struct product_variant variant)
{
    need(group < p->num_groups, "no such group");
    if (p->num_items == p->max_items) {
        p->max_items = p->max_items ? 2 * p->max_items : 16;
        p->items = realloc(p->items, p->max_items * sizeof(*p->items));
        need(p->items != NULL, "memory");
    }
    struct item *item = &p->items[p->num_items++];
    snprintf(item->name, sizeof(item->name), "%s", variant.name);
    snprintf(item->symbol, sizeof(item->symbol), "%s",
             variant.symbol ? variant.symbol : variant.name);
    item->image_for = variant.image_for;
    item->fallback = variant.fallback != 0;
    item->v = (struct gen_pack_variant){
        .group = group,
        .threads = variant.threads ? variant.threads : 128,
        .shared_dynamic = variant.shared_dynamic,
        .shared_static = variant.shared_static,
        .registers = variant.registers ? variant.registers : 32,
        .cluster = variant.cluster ? variant.cluster : 1,
        .digest = variant.digest ? variant.digest
                                 : gen_pack_hash(variant.name, strlen(variant.name)),
    };
    memcpy(item->v.facts, variant.facts, sizeof(variant.facts));
    return item->v.digest;
}

void product_table(struct product *p, const char *name, const char *text)
{
    need(p->num_tables < MAX_TABLES, "too many tables");
    struct table *t = &p->tables[p->num_tables++];
    snprintf(t->name, sizeof(t->name), "%s", name);
    t->text = strdup(text);
    need(t->text != NULL, "memory");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

static void write_images(struct product *p, struct buffer *file)
{
    for (uint32_t i = 0; i < p->num_items; i++) {
        struct item *item = &p->items[i];
        char text[192];
        const int length =
            snprintf(text, sizeof(text), "FAKE %d %s", item->image_for, item->symbol) + 1;
        align(file, 16);
        const uint32_t magic = 0xba55ed50u;
        const uint16_t header[2] = {1, 16};
        const uint64_t bytes = (uint64_t)length;
        item->v.image_offset = append(file, &magic, sizeof(magic));
        append(file, header, sizeof(header));
        append(file, &bytes, sizeof(bytes));
        append(file, text, (size_t)length);
        item->v.image_size = file->size - item->v.image_offset;
    }
}

/* Groups in the order of their first variant; variants learn their new group. */
static void order_groups(const struct product *p, struct gen_pack_group *groups)
{
    uint32_t done = 0;
    uint32_t map[MAX_GROUPS];
    for (uint32_t i = 0; i < p->num_items; i++) {
        struct item *item = &p->items[i];
        const uint32_t old = item->v.group;
        if (done == 0 || old != map[done - 1]) {
            need(done < MAX_GROUPS, "variants of a group are not neighbours");
            map[done] = old;
            groups[done] = p->groups[old];
            groups[done].first_variant = i;
            groups[done].fallback_variant = i;
            done++;
        }
        groups[done - 1].num_variants++;
        if (item->fallback)
            groups[done - 1].fallback_variant = i;
    }
    need(done == p->num_groups, "every group needs variants, and names that keep them together");
    for (uint32_t g = 0; g < done; g++)
        for (uint32_t i = 0; i < groups[g].num_variants; i++)
            p->items[groups[g].first_variant + i].v.group = g;
}

void *product_bytes(const struct product *source, size_t *size)
{
    /* A copy, so that one product can be written again after an addition. */
    struct product copy = *source;
    struct product *p = &copy;
    struct buffer file = {0}, strings = {0};
    struct gen_pack_group groups[MAX_GROUPS];
    struct gen_pack_table tables[MAX_TABLES];
    p->items = malloc((p->num_items + 1) * sizeof(*p->items));
    need(p->items != NULL, "memory");
    if (p->num_items)
        memcpy(p->items, source->items, p->num_items * sizeof(*p->items));
    append(&strings, source->strings.at, source->strings.size);
    qsort(p->items, p->num_items, sizeof(*p->items), by_name);
    order_groups(p, groups);
    write_images(p, &file);
    for (uint32_t i = 0; i < p->num_tables; i++) {
        const size_t length = strlen(p->tables[i].text);
        tables[i] = (struct gen_pack_table){.name = string(&strings, p->tables[i].name),
                                            .offset = append(&file, p->tables[i].text, length),
                                            .size = length};
    }
    align(&file, 8);

    struct gen_pack_index index = {.num_families = p->num_families,
                                   .num_targets = p->num_targets,
                                   .num_groups = p->num_groups,
                                   .num_variants = p->num_items,
                                   .num_tables = p->num_tables,
                                   .toolkit = string(&strings, "13.0")};
    const size_t at = append(&file, NULL, sizeof(index));
    index.families_offset = append(&file, p->families, p->num_families * sizeof(*p->families));
    index.targets_offset = append(&file, p->targets, p->num_targets * sizeof(*p->targets));
    index.groups_offset = append(&file, groups, p->num_groups * sizeof(*groups));
    index.variants_offset = file.size;
    uint64_t digest = 0;
    for (uint32_t i = 0; i < p->num_items; i++) {
        struct gen_pack_variant v = p->items[i].v;
        v.name = string(&strings, p->items[i].name);
        v.symbol = string(&strings, p->items[i].symbol);
        digest = (digest ^ v.digest) * 0x100000001b3ull;
        append(&file, &v, sizeof(v));
    }
    index.tables_offset = append(&file, tables, p->num_tables * sizeof(*tables));
    index.strings_offset = append(&file, strings.at, strings.size);
    index.strings_size = strings.size;
    align(&file, 8);
    memcpy(file.at + at, &index, sizeof(index));

    struct gen_pack_footer footer = {.version = GEN_PACK_VERSION,
                                     .index_offset = at,
                                     .index_size = file.size - at,
                                     .index_hash = gen_pack_hash(file.at + at, file.size - at),
                                     .product_digest = digest};
    memcpy(footer.magic, GEN_PACK_MAGIC, sizeof(footer.magic));
    append(&file, &footer, sizeof(footer));
    free(strings.at);
    free(p->items);
    *size = file.size;
    return file.at;
}

void *product_prepare(const void *bytes, size_t *size)
{
    struct gen_pack_footer footer;
    struct gen_pack_index index;
    struct buffer file = {0};
    const unsigned char *from = bytes;
    memcpy(&footer, from + *size - sizeof(footer), sizeof(footer));
    memcpy(&index, from + footer.index_offset, sizeof(index));
    append(&file, from, footer.index_offset);
    struct gen_pack_table tables[MAX_TABLES];
    memcpy(tables, from + index.tables_offset, index.num_tables * sizeof(*tables));
    for (uint32_t i = 0; i < index.num_tables; i++) {
        void *prepared;
        size_t length;
        need(gen__prepare(bytes, *size, i, &prepared, &length) == GEN_OK, "gen__prepare");
        align(&file, GEN_PACK_PREPARED_ALIGN);
        tables[i].prepared_offset = append(&file, prepared, length);
        tables[i].prepared_size = length;
        tables[i].prepared_hash = gen_pack_hash(prepared, length);
        free(prepared);
    }
    align(&file, 8);
    const size_t at = append(&file, from + footer.index_offset, footer.index_size);
    const uint64_t moved = at - footer.index_offset;
    index.families_offset += moved;
    index.targets_offset += moved;
    index.groups_offset += moved;
    index.variants_offset += moved;
    index.tables_offset += moved;
    index.strings_offset += moved;
    memcpy(file.at + at, &index, sizeof(index));
    memcpy(file.at + index.tables_offset, tables, index.num_tables * sizeof(*tables));
    footer.index_offset = at;
    footer.index_hash = gen_pack_hash(file.at + at, footer.index_size);
    append(&file, &footer, sizeof(footer));
    *size = file.size;
    return file.at;
}

enum gen_status product_open(struct product *product, void **bytes, gen_library **library)
{
    size_t size;
    *bytes = product_bytes(product, &size);
    product_free(product);
    const gen_open_options options = {.size = sizeof(options), .data = *bytes, .data_size = size};
    *library = NULL;
    return gen_open(&options, library);
}
