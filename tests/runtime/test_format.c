/* The numbers of a product's index, each on both sides of its limit, with hashes that fit: only the
 * check of that number stands between it and what follows it. */
#include "test.h"

#include "product/library.h"
#include "toy.h"

#include <math.h>
#include <stdbool.h>

struct parts {
    unsigned char *bytes;
    size_t size;
    struct gen_pack_footer *footer;
    struct gen_pack_index *index;
    struct gen_pack_family *families;
    struct gen_pack_target *targets;
    struct gen_pack_group *groups;
    struct gen_pack_variant *variants;
    struct gen_pack_table *tables;
    struct gen_pack_row *rows;
    char *strings;
    uint32_t strings_size;
    uint64_t end; /* of the index */
};

/* A product of three families, with a table of four rows of two keys. */
static struct parts parts_new(void)
{
    static unsigned char *bytes;
    static size_t size;
    if (!bytes) {
        char table[4096] = "";
        toy_table_head(table, sizeof(table), 90, 132, 4800);
        toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=16", "line_bf16_d64__sm90a_a",
                      "9");
        toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=64", "line_bf16_d64__sm90a_b",
                      "5");
        toy_table_row(table, sizeof(table), "toy_bf16_d64", "tiles=4 length=64",
                      "toy_bf16_d64__sm90a_a", "5");
        toy_table_row(table, sizeof(table), "toy_bf16_d64", "tiles=4 length=32",
                      "toy_bf16_d64__sm90a_b", "5");
        struct product *product = toy_product();
        toy_add_pair(product);
        product_table(product, "sm90_132sm", table);
        bytes = product_bytes(product, &size);
        product_free(product);
    }
    struct parts p = {.bytes = malloc(size), .size = size};
    assert_non_null(p.bytes);
    memcpy(p.bytes, bytes, size);
    p.footer = (void *)(p.bytes + size - sizeof(*p.footer));
    p.end = size - sizeof(*p.footer);
    p.index = (void *)(p.bytes + p.footer->index_offset);
#define PART(name) p.name = (void *)(p.bytes + p.index->name##_offset)
    PART(families);
    PART(targets);
    PART(groups);
    PART(variants);
    PART(tables);
    PART(rows);
    PART(strings);
#undef PART
    p.strings_size = (uint32_t)p.index->strings_size;
    return p;
}

static enum gen_status open_it(const struct parts *p)
{
    const gen_open_options options = {
        .size = sizeof(options), .data = p->bytes, .data_size = p->size};
    gen_library *library = NULL;
    const enum gen_status status = gen_open(&options, &library);
    gen_close(library);
    return status;
}

/* What is said of it; NULL: nothing, it opens. */
static void expect(struct parts *p, bool sealed, const char *said, int line)
{
    if (sealed)
        product_reseal(p->bytes, p->size, false);
    const enum gen_status status = open_it(p);
    if (status != (said ? GEN_STATUS_FORMAT : GEN_OK))
        fail_msg("line %d: %s: %s", line, gen_status_name(status), status ? gen_last_error() : "");
    if (said && !strstr(gen_last_error(), said))
        fail_msg("line %d: \"%s\" is not in \"%s\"", line, said, gen_last_error());
    free(p->bytes);
}

/* A change of a good product, and what is said of it. */
#define SEALED(change, sealed, message)        \
    do {                                       \
        struct parts p = parts_new();          \
        change;                                \
        expect(&p, sealed, message, __LINE__); \
    } while (0)
#define TRY(change, message) SEALED(change, true, message)
#define OPENS NULL

static void the_footer(void **state)
{
    (void)state;
    static const char place[] = "the index does not lie between the images and the footer";
    SEALED(p.footer->index_offset++, false, place);
    SEALED((p.footer->index_size += 4, p.footer->index_offset -= 4), false, place);
    SEALED((p.footer->index_size = sizeof(*p.index) - 8,
            p.footer->index_offset = p.end - p.footer->index_size),
           false, place);
    SEALED((p.footer->index_size = sizeof(*p.index),
            p.footer->index_offset = p.end - p.footer->index_size),
           false, "the index or the footer is damaged");
    SEALED((p.footer->index_size = p.end + 8, p.footer->index_offset = UINT64_MAX - 7), false,
           place);
    SEALED((p.footer->index_size = p.end, p.footer->index_offset = 0), false,
           "the index or the footer is damaged");
    SEALED(p.footer->hash++, false, "the index or the footer is damaged");
    SEALED(p.footer->version = 3, true, "product format 3");
    /* As short as can be, and shorter. */
    static _Alignas(
        8) unsigned char zeros[sizeof(struct gen_pack_footer) + sizeof(struct gen_pack_index)];
    struct parts p = {.bytes = zeros, .size = sizeof(zeros)};
    assert_status(open_it(&p), GEN_STATUS_FORMAT);
    assert_message("not an attngen product");
    p.size--;
    assert_status(open_it(&p), GEN_STATUS_FORMAT);
    assert_message("bytes are too few");
}

static void where_the_lists_lie(void **state)
{
    (void)state;
#define LIST(name, count)                                                                     \
    TRY(p.index->name##_offset += 4, "the list of " #name " lies outside the index");         \
    TRY(p.index->name##_offset = p.footer->index_offset + sizeof(*p.index) - 8,               \
        "the list of " #name " lies outside the index");                                      \
    TRY(p.index->name##_offset = p.end + 8, "the list of " #name " lies outside the index");  \
    TRY(p.index->name##_offset = 1ull << 63, "the list of " #name " lies outside the index"); \
    TRY(p.index->count = UINT32_MAX, "the list of " #name " lies outside the index");         \
    TRY(p.index->name##_offset = (p.end - sizeof(*p.name) * p.index->count + 8) / 8 * 8,      \
        "the list of " #name " lies outside the index")
    LIST(families, num_families);
    LIST(targets, num_targets);
    LIST(groups, num_groups);
    LIST(variants, num_variants);
    LIST(tables, num_tables);
    LIST(rows, num_rows);
    LIST(strings, strings_size);
#undef LIST
    /* A list may end with the index, and an empty one lie there. */
    TRY(p.index->strings_size = p.end - p.index->strings_offset, OPENS);
    TRY((p.index->num_rows = p.tables[0].num_rows = 0, p.index->rows_offset = p.end), OPENS);
    TRY((p.index->num_rows = p.index->num_tables = 0, p.index->tables_offset = p.end), OPENS);
}

static void strings(void **state)
{
    (void)state;
    static const char unterminated[] = "the strings are not NUL-terminated";
    TRY(p.index->strings_size = 0, unterminated);
    TRY(p.index->strings_size = 1, "a string of the toolkit lies outside");
    TRY(p.strings[0] = 'x', unterminated);
    TRY(p.strings[p.strings_size - 1] = 'x', unterminated);
    /* The last string's NUL is a string of its own, the byte behind it none. */
#define STRING(field, message)            \
    TRY(field = p.strings_size, message); \
    TRY(field = UINT32_MAX, message)
    STRING(p.index->toolkit, "a string of the toolkit lies outside");
    TRY(p.index->toolkit = p.strings_size - 1, OPENS);
    for (int i = 0; i < 3; i++) {
        STRING(p.families[i].name, "a string of a family lies outside");
        STRING(p.families[i].required, "a string of a family lies outside");
        STRING(p.families[i].facts, "a string of a family lies outside");
        STRING(p.families[i].coords, "a string of a family lies outside");
    }
    TRY(p.families[0].name = p.strings_size - 1, OPENS);
    TRY(p.families[0].coords = p.strings_size - 1, "has required axes");
    STRING(p.targets[1].name, "a string of a target lies outside");
    TRY(p.targets[1].name = p.strings_size - 1, OPENS);
    STRING(p.groups[1].name, "a string of a group lies outside");
    STRING(p.groups[1].values, "a string of a group lies outside");
    TRY(p.groups[1].name = p.strings_size - 1, OPENS);
    TRY(p.groups[1].values = p.strings_size - 1, OPENS);
    STRING(p.variants[0].name, "a string of a variant lies outside");
    STRING(p.variants[0].symbol, "a string of a variant lies outside");
    TRY(p.variants[0].symbol = p.strings_size - 1, OPENS);
    STRING(p.tables[0].name, "a string of a tuning table lies outside");
    STRING(p.tables[0].class_name, "a string of a tuning table lies outside");
    STRING(p.tables[0].reason, "a string of a tuning table lies outside");
    TRY(p.tables[0].name = p.strings_size - 1, OPENS);
    TRY(p.tables[0].reason = p.strings_size - 1, OPENS);
#undef STRING
}

static void add_much(const struct parts *p)
{
    const uint32_t last = p->index->num_groups - 1, much = 1u << 31;
    p->groups[1].num_variants += much;
    for (uint32_t g = 2; g <= last; g++) {
        p->groups[g].first_variant += much;
        p->groups[g].fallback_variant += much;
    }
    p->groups[last].num_variants += much;
}

static void targets_and_groups(void **state)
{
    (void)state;
    static const char none[] = "a group names a family or target that does not exist";
    static const char no_partition[] = "the groups do not partition the variants";
    static const char no_fallback[] = "a group's fallback is not one of its variants";
    TRY(p.targets[0].kind = 3, "a target is malformed");
    TRY(p.targets[0].kind = GEN_PACK_PTX, OPENS);
    TRY(p.targets[0].compute_capability = 10000, "a target is malformed");
    TRY(p.targets[0].compute_capability = 9999, OPENS);
    TRY(p.groups[0].family = p.index->num_families, none);
    TRY(p.groups[0].family = p.index->num_families - 1, OPENS);
    TRY(p.groups[0].target = p.index->num_targets, none);
    TRY(p.groups[0].target = p.index->num_targets - 1, OPENS);
    TRY(p.groups[1].num_variants = 0, no_partition);
    TRY((p.groups[1].num_variants++, p.groups[2].num_variants--), no_partition);
    TRY(p.groups[1].first_variant--, no_partition);
    TRY((p.groups[1].first_variant++, p.groups[1].fallback_variant++), no_partition);
    TRY(p.groups[p.index->num_groups - 1].num_variants++, no_partition);
    TRY(p.groups[p.index->num_groups - 1].num_variants = UINT32_MAX, no_partition);
    TRY(p.index->num_groups--, no_partition); /* of whose variants no group knows */
    /* Numbers of variants whose sum is right in 32 bits alone. */
    TRY(add_much(&p), no_partition);
    /* A group of one, in front of which a group of several is. */
    TRY(p.groups[1].fallback_variant = p.groups[1].first_variant - 1, no_fallback);
    TRY(p.groups[1].fallback_variant = p.groups[1].first_variant, OPENS);
    TRY(p.groups[1].fallback_variant = p.groups[1].first_variant + p.groups[1].num_variants,
        no_fallback);
    TRY(p.groups[1].fallback_variant = p.groups[1].first_variant + p.groups[1].num_variants - 1,
        OPENS);
    TRY(p.groups[1].fallback_variant = UINT32_MAX, no_fallback);
}

static void variants(void **state)
{
    (void)state;
    TRY(p.variants[1].name = p.variants[0].name, "is out of order");
    TRY(p.variants[0].name = 0, "variant  is out of order");
    TRY((p.variants[3].name ^= p.variants[2].name, p.variants[2].name ^= p.variants[3].name,
         p.variants[3].name ^= p.variants[2].name),
        "is out of order");
    TRY(p.variants[0].group = p.index->num_groups, "is not in its group");
    TRY(p.variants[0].group = UINT32_MAX, "is not in its group");
    /* What lies behind the groups, the variants, looks like a group that it is in. */
    TRY((p.variants[0].group = p.index->num_groups, p.variants[0].shared_dynamic = 0,
         p.variants[0].shared_static = 5),
        "is not in its group");
    TRY(p.variants[p.groups[1].first_variant].group = 0, "is not in its group");
    TRY(p.variants[p.groups[1].first_variant - 1].group = 1, "is not in its group");
    static const char threads[] = "allowed are 1 to 1024 and 1 to 16";
    TRY(p.variants[0].threads = 0, threads);
    TRY(p.variants[0].threads = 1, OPENS);
    TRY(p.variants[0].threads = 1024, OPENS);
    TRY(p.variants[0].threads = 1025, threads);
    TRY(p.variants[0].cluster = 0, threads);
    TRY(p.variants[0].cluster = 1, OPENS);
    TRY(p.variants[0].cluster = 16, OPENS);
    TRY(p.variants[0].cluster = 17, threads);
    static const char resources[] = "more than any GPU has";
    TRY(p.variants[0].registers = 255, OPENS);
    TRY(p.variants[0].registers = 256, resources);
    TRY(p.variants[0].shared_dynamic = 1 << 20, OPENS);
    TRY(p.variants[0].shared_dynamic = (1 << 20) + 1, resources);
    TRY(p.variants[0].shared_static = 1 << 20, OPENS);
    TRY(p.variants[0].shared_static = (1 << 20) + 1, resources);
    static const char image[] = "does not follow the one before it";
    TRY(p.variants[0].image_size = gen_pack_room(p.variants[0].image_size), OPENS);
    TRY(p.variants[0].image_size = 15, image);
    TRY(p.variants[0].image_offset = 16, image);
    TRY(p.variants[1].image_size = UINT64_MAX, image);
}

/* The smallest image is a fatbin's header. */
static void the_smallest_image(void **state)
{
    (void)state;
    struct parts p = parts_new();
    struct gen_pack_variant *v = &p.variants[p.index->num_variants - 1];
    const uint64_t room = gen_pack_room(v->image_size), gone = room - 16;
    unsigned char *image = p.bytes + v->image_offset;
    memset(image + 8, 0, 8); /* nothing behind the header */
    v->image_size = 16;
    /* The lists move with the index. */
    uint64_t *const offsets[] = {&p.index->families_offset, &p.index->targets_offset,
                                 &p.index->groups_offset,   &p.index->variants_offset,
                                 &p.index->tables_offset,   &p.index->rows_offset,
                                 &p.index->strings_offset};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        *offsets[i] -= gone;
    p.footer->index_offset -= gone;
    memmove(image + 16, image + room, (size_t)(p.bytes + p.size - (image + room)));
    p.size -= gone;
    product_reseal(p.bytes, p.size, true);
    assert_status(open_it(&p), GEN_OK);
    struct gen_pack_footer footer;
    memcpy(&footer, p.bytes + p.size - sizeof(footer), sizeof(footer));
    const struct gen_pack_index *index = (void *)(p.bytes + footer.index_offset);
    v = (struct gen_pack_variant *)(void *)(p.bytes + index->variants_offset);
    v[index->num_variants - 1].image_size = 15; /* takes as much room */
    expect(&p, true, "does not follow the one before it", __LINE__);
}

static void tables(void **state)
{
    (void)state;
    static const char outside[] = "the rows of a tuning table lie outside the index";
    static const char malformed[] = "the rows of a tuning table are malformed";
    static const char no_class[] = "a tuning table is of no class";
    TRY(assert_int_equal(p.index->num_rows, 4), OPENS);
    TRY(p.tables[0].first_row = 5, outside);
    TRY((p.tables[0].first_row = 4, p.tables[0].num_rows = 0), OPENS);
    TRY((p.tables[0].first_row = 1, p.tables[0].num_rows = 3), OPENS);
    TRY(p.tables[0].first_row = 1, outside);
    TRY(p.tables[0].num_rows = UINT32_MAX, outside);
    TRY(p.tables[0].compute_capability = 0, no_class);
    TRY(p.tables[0].num_sms = 0, no_class);
    TRY(p.tables[0].memory_gbps = 0, no_class);
    TRY(p.tables[0].l2_bytes = 0, no_class);
    TRY(p.tables[0].compute_capability = 100, malformed); /* its rows name code for sm_90 */
    TRY((p.tables[0].refused = 1, p.tables[0].num_rows = p.tables[0].num_sms = 0), OPENS);
    TRY(p.rows[0].variant = p.index->num_variants, malformed);
    TRY(p.rows[0].variant = UINT32_MAX, malformed);
    /* What lies behind the variants, the table, looks like one of group 1. */
    TRY((p.rows[0].variant = p.index->num_variants, p.tables[0].num_rows = 1,
         p.tables[0].compute_capability = 1),
        malformed);
    TRY(p.rows[0].runner_up = p.index->num_variants, OPENS);
    TRY(p.rows[0].runner_up = p.index->num_variants + 1, malformed);
    static const float bad[] = {0.0f, -1.0f, 1e-45f, INFINITY, NAN};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        TRY(p.rows[1].us = bad[i], malformed);
        if (i > 0)
            TRY(p.rows[1].runner_up_us = bad[i], malformed);
        for (int c = 0; c < GEN_PACK_MAX_COORDS; c++)
            TRY(p.rows[1].counts[c] = bad[i], malformed);
    }
    TRY(p.rows[1].runner_up_us = 0.0f, OPENS);
    TRY(p.rows[1].runner_up_us = 2.0f, OPENS);
    /* By key, then the first coordinate upwards and the second downwards; equals are allowed. */
    TRY(p.rows[1].counts[0] = p.rows[0].counts[0], OPENS);
    TRY(p.rows[1].counts[0] = p.rows[0].counts[0] - 1, malformed);
    TRY(p.rows[3].counts[1] = p.rows[2].counts[1], OPENS);
    TRY(p.rows[3].counts[1] = p.rows[2].counts[1] + 1, malformed);
    TRY(p.rows[1] = p.rows[2], OPENS);
    TRY(p.rows[2] = p.rows[1], OPENS);
    TRY((p.rows[1] = p.rows[2], p.rows[2] = p.rows[0]), malformed);
    /* Coordinates begin anew with a key. */
    TRY(p.rows[2].counts[0] = p.rows[3].counts[0] = 1.0f, OPENS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_footer), cmocka_unit_test(where_the_lists_lie),
        cmocka_unit_test(strings),    cmocka_unit_test(targets_and_groups),
        cmocka_unit_test(variants),   cmocka_unit_test(the_smallest_image),
        cmocka_unit_test(tables),
    };
    return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
