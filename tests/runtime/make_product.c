/* Writing a product file: the test's own reading of format/product.h. */
#include "make_product.h"

#include "family/family.h"
#include "format/rows.h"

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
    /* The coordinates are those of this runtime's family. */
    const struct gen__family *family = gen__family_by_name(name);
    char coords[256] = "";
    for (uint32_t c = 0; family && c < family->num_coords; c++) {
        strcat(coords, c ? "," : "");
        strcat(coords, family->coords[c]);
    }
    p->families[p->num_families] =
        (struct gen_pack_family){string(&p->strings, name), string(&p->strings, required),
                                 string(&p->strings, facts), string(&p->strings, coords)};
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

void product_lacks_rows(struct product *p, uint32_t group)
{
    need(group < p->num_groups, "no such group");
    p->groups[group].lacks_rows = 1;
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
        .source_digest =
            variant.digest ? variant.digest : gen_pack_hash(variant.name, strlen(variant.name)),
    };
    item->v.code_digest = variant.code_digest ? variant.code_digest : ~item->v.source_digest;
    memcpy(item->v.facts, variant.facts, sizeof(variant.facts));
    return item->v.source_digest;
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
        const uint32_t magic = 0xba55ed50u;
        const uint16_t header[2] = {1, 16};
        const uint64_t bytes = (uint64_t)length;
        item->v.image_offset = append(file, &magic, sizeof(magic));
        append(file, header, sizeof(header));
        append(file, &bytes, sizeof(bytes));
        append(file, text, (size_t)length);
        item->v.image_size = file->size - item->v.image_offset;
        align(file, GEN_PACK_IMAGE_ALIGNMENT);
        item->v.image_hash =
            gen_pack_hash(file->at + item->v.image_offset, file->size - item->v.image_offset);
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

/* Reads the tables as the generator does. */
static void read_tables(const struct product *p, const struct gen_pack_group *groups,
                        const struct gen_pack_variant *variants, struct buffer *strings,
                        struct gen_pack_table *tables, struct buffer *rows)
{
    for (uint32_t i = 0; i < p->num_tables; i++) {
        const struct gen_pack_view view = {.families = p->families,
                                           .targets = p->targets,
                                           .groups = groups,
                                           .variants = variants,
                                           .strings = (const char *)strings->at,
                                           .num_groups = p->num_groups,
                                           .num_variants = p->num_items};
        struct gen_table t;
        need(gen_table_read(&view, p->tables[i].text, strlen(p->tables[i].text), &t) !=
                 GEN_TABLE_NO_MEMORY,
             "memory");
        tables[i] = t.about;
        tables[i].name = string(strings, p->tables[i].name);
        tables[i].class_name = string(strings, t.class_name);
        tables[i].reason = string(strings, t.reason);
        tables[i].first_row = (uint32_t)(rows->size / sizeof(struct gen_pack_row));
        append(rows, t.rows, t.about.num_rows * sizeof(*t.rows));
        free(t.rows);
    }
}

/* The variants as a product has them, and the digest of all. */
static struct gen_pack_variant *list_variants(const struct product *p, struct buffer *strings,
                                              uint64_t *digest)
{
    struct gen_pack_variant *variants = calloc(p->num_items + 1, sizeof(*variants));
    need(variants != NULL, "memory");
    *digest = 0;
    for (uint32_t i = 0; i < p->num_items; i++) {
        variants[i] = p->items[i].v;
        variants[i].name = string(strings, p->items[i].name);
        variants[i].symbol = string(strings, p->items[i].symbol);
        *digest = (*digest ^ variants[i].source_digest) * 0x100000001b3ull;
    }
    return variants;
}

void *product_bytes(const struct product *source, size_t *size)
{
    /* A copy, so that one product can be written again after an addition. */
    struct product copy = *source;
    struct product *p = &copy;
    struct buffer file = {0}, strings = {0}, rows = {0};
    struct gen_pack_group groups[MAX_GROUPS];
    struct gen_pack_table tables[MAX_TABLES];
    uint64_t digest;
    p->items = malloc((p->num_items + 1) * sizeof(*p->items));
    need(p->items != NULL, "memory");
    if (p->num_items)
        memcpy(p->items, source->items, p->num_items * sizeof(*p->items));
    append(&strings, source->strings.at, source->strings.size);
    qsort(p->items, p->num_items, sizeof(*p->items), by_name);
    order_groups(p, groups);
    write_images(p, &file);

    struct gen_pack_index index = {.num_families = p->num_families,
                                   .num_targets = p->num_targets,
                                   .num_groups = p->num_groups,
                                   .num_variants = p->num_items,
                                   .num_tables = p->num_tables,
                                   .toolkit = string(&strings, "13.0")};
    struct gen_pack_variant *variants = list_variants(p, &strings, &digest);
    read_tables(p, groups, variants, &strings, tables, &rows);
    index.num_rows = (uint32_t)(rows.size / sizeof(struct gen_pack_row));
    const size_t at = append(&file, NULL, sizeof(index));
    index.families_offset = append(&file, p->families, p->num_families * sizeof(*p->families));
    index.targets_offset = append(&file, p->targets, p->num_targets * sizeof(*p->targets));
    index.groups_offset = append(&file, groups, p->num_groups * sizeof(*groups));
    index.variants_offset = append(&file, variants, p->num_items * sizeof(*variants));
    index.tables_offset = append(&file, tables, p->num_tables * sizeof(*tables));
    index.rows_offset = append(&file, rows.at, rows.size);
    index.strings_offset = append(&file, strings.at, strings.size);
    index.strings_size = strings.size;
    align(&file, 8);
    memcpy(file.at + at, &index, sizeof(index));

    struct gen_pack_footer footer = {.version = GEN_PACK_VERSION,
                                     .index_offset = at,
                                     .index_size = file.size - at,
                                     .product_digest = digest};
    memcpy(footer.magic, GEN_PACK_MAGIC, sizeof(footer.magic));
    footer.hash = gen_pack_seal(&footer, file.at + at);
    append(&file, &footer, sizeof(footer));
    free(strings.at);
    free(rows.at);
    free(variants);
    free(p->items);
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

void product_reseal(void *bytes, size_t size, bool images)
{
    unsigned char *at = bytes;
    struct gen_pack_footer footer;
    struct gen_pack_index index;
    memcpy(&footer, at + size - sizeof(footer), sizeof(footer));
    memcpy(&index, at + footer.index_offset, sizeof(index));
    for (uint32_t i = 0; images && i < index.num_variants; i++) {
        struct gen_pack_variant v;
        unsigned char *place = at + index.variants_offset + i * sizeof(v);
        memcpy(&v, place, sizeof(v));
        v.image_hash = gen_pack_hash(at + v.image_offset, gen_pack_room(v.image_size));
        memcpy(place, &v, sizeof(v));
    }
    footer.hash = gen_pack_seal(&footer, at + footer.index_offset);
    memcpy(at + size - sizeof(footer), &footer, sizeof(footer));
}
