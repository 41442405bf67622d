/*
 * Several products as one: their indexes become one index in memory, in which names, groups and
 * rows are found as in that of a single product. So nothing but the reading of an image knows that
 * there were several, and selecting costs what it costs with one.
 */
#include "format/rows.h"
#include "product/pack.h"

#include <stdlib.h>

#define NONE UINT32_MAX

enum { OLD, NEW }; /* the product that others are added to, and the one that is added */

/* The index in the making. What is of product `p` at i is at *_of[p][i] in it. */
struct merge {
    const struct gen__pack *from[2];
    struct gen_pack_index *index;
    struct gen_pack_family *families;
    struct gen_pack_target *targets;
    struct gen_pack_group *groups;
    struct gen_pack_variant *variants;
    struct gen_pack_table *tables;
    struct gen_pack_row *rows;
    uint32_t *source_of;
    char *strings;
    uint32_t first_family[2], first_target[2], *group_of[2], *variant_of[2];
    uint32_t num_added; /* variants that are NEW's */
};

/* ---- memory ------------------------------------------------------------ */

/* The next `count` elements of a block; NULL stands for a block that is being measured. */
static void *take(unsigned char *block, size_t *used, uint64_t count, size_t size)
{
    unsigned char *at = block ? block + *used : NULL;
    *used += (size_t)(count * size + 7) / 8 * 8;
    return at;
}

/* Returns the bytes of the index. Sums fit: the indexes of both lie in memory. */
static size_t lay_out(struct merge *m, unsigned char *block)
{
    const struct gen_pack_index *a = m->from[OLD]->index, *b = m->from[NEW]->index;
    size_t used = 0;
#define TAKE(field, number) \
    m->field = take(block, &used, (uint64_t)a->number + b->number, sizeof(*m->field))
    m->index = take(block, &used, 1, sizeof(*m->index));
    TAKE(families, num_families);
    TAKE(targets, num_targets);
    TAKE(groups, num_groups);
    TAKE(variants, num_variants);
    TAKE(tables, num_tables);
    TAKE(rows, num_rows);
    TAKE(source_of, num_variants);
    TAKE(strings, strings_size);
#undef TAKE
    return used;
}

/* The same for what is needed until the index is made. */
static size_t lay_out_maps(struct merge *m, unsigned char *block)
{
    size_t used = 0;
    for (int p = OLD; p <= NEW; p++) {
        const struct gen_pack_index *index = m->from[p]->index;
        m->group_of[p] = take(block, &used, index->num_groups, sizeof(uint32_t));
        /* A row without a runner-up names the variant behind the last. */
        m->variant_of[p] = take(block, &used, index->num_variants + 1ull, sizeof(uint32_t));
    }
    return used;
}

/* ---- strings, families, targets ------------------------------------------ */

/* Where a string of product p is. */
static uint32_t moved(const struct merge *m, int p, uint32_t string)
{
    return p == OLD ? string : string + (uint32_t)m->from[OLD]->index->strings_size;
}

static struct gen_pack_view view_of(const struct merge *m)
{
    return (struct gen_pack_view){.families = m->families,
                                  .targets = m->targets,
                                  .groups = m->groups,
                                  .variants = m->variants,
                                  .strings = m->strings,
                                  .num_groups = m->index->num_groups,
                                  .num_variants = m->index->num_variants};
}

/* Families and targets stand one product's after the other's, some twice: a group says which it
 * means, and what a name means was checked against this runtime's families. */
static void add_families_and_targets(struct merge *m, int p)
{
    const struct gen__pack *from = m->from[p];
    m->first_family[p] = m->index->num_families;
    m->first_target[p] = m->index->num_targets;
    for (uint32_t i = 0; i < from->index->num_families; i++) {
        const struct gen_pack_family *f = &from->families[i];
        m->families[m->index->num_families++] =
            (struct gen_pack_family){moved(m, p, f->name), moved(m, p, f->required),
                                     moved(m, p, f->facts), moved(m, p, f->coords)};
    }
    for (uint32_t i = 0; i < from->index->num_targets; i++) {
        struct gen_pack_target *t = &m->targets[m->index->num_targets++];
        *t = from->targets[i];
        t->name = moved(m, p, t->name);
    }
}

/* ---- groups and variants ------------------------------------------------- */

static bool same_group(const struct merge *m, const struct gen_pack_group *a,
                       const struct gen_pack_group *b)
{
    const struct gen_pack_target *t = &m->targets[a->target], *u = &m->targets[b->target];
    const struct gen_pack_view view = view_of(m);
    return t->kind == u->kind && t->compute_capability == u->compute_capability &&
           strcmp(m->strings + t->name, m->strings + u->name) == 0 &&
           strcmp(m->strings + a->name, m->strings + b->name) == 0 &&
           gen_table_same_key(&view, a, b);
}

/* Makes the group of product p the last of the index, in which the next variants are. False: other
 * groups came between its variants. */
static bool enter_group(struct merge *m, int p, uint32_t group)
{
    uint32_t *place = &m->group_of[p][group];
    uint32_t *count = &m->index->num_groups;
    if (*place != NONE)
        return *place + 1 == *count;
    struct gen_pack_group g = m->from[p]->groups[group];
    g.name = moved(m, p, g.name);
    g.values = moved(m, p, g.values);
    g.family += m->first_family[p];
    g.target += m->first_target[p];
    g.first_variant = m->index->num_variants;
    g.num_variants = 0;
    if (*count == 0 || !same_group(m, &m->groups[*count - 1], &g))
        m->groups[(*count)++] = g;
    *place = *count - 1;
    return true;
}

static void add_variant(struct merge *m, int p, uint32_t variant)
{
    const struct gen__pack *from = m->from[p];
    const uint32_t at = m->index->num_variants++;
    struct gen_pack_variant v = from->variants[variant];
    v.name = moved(m, p, v.name);
    v.symbol = moved(m, p, v.symbol);
    v.group = m->index->num_groups - 1;
    m->groups[v.group].num_variants++;
    m->variants[at] = v;
    m->source_of[at] = p == NEW          ? m->from[OLD]->num_more + 1
                       : from->source_of ? from->source_of[variant]
                                         : 0;
    m->num_added += p == NEW;
}

/* The union in the order of names. False: groups of one product lie within those of the other. */
static bool add_variants(struct merge *m)
{
    const struct gen__pack *a = m->from[OLD], *b = m->from[NEW];
    const uint32_t num_a = a->index->num_variants, num_b = b->index->num_variants;
    for (int p = OLD; p <= NEW; p++)
        memset(m->group_of[p], 0xff, m->from[p]->index->num_groups * sizeof(uint32_t));
    for (uint32_t i = 0, j = 0; i < num_a || j < num_b;) {
        const int order = i == num_a   ? 1
                          : j == num_b ? -1
                                       : strcmp(gen__variant_name(a, i), gen__variant_name(b, j));
        if (order <= 0 && !enter_group(m, OLD, a->variants[i].group))
            return false;
        if (order >= 0 && !enter_group(m, NEW, b->variants[j].group))
            return false;
        if (order == 0 &&
            m->group_of[OLD][a->variants[i].group] != m->group_of[NEW][b->variants[j].group])
            return false;
        const uint32_t at = m->index->num_variants;
        if (order <= 0)
            add_variant(m, OLD, i);
        else
            add_variant(m, NEW, j);
        if (order <= 0)
            m->variant_of[OLD][i++] = at;
        if (order >= 0)
            m->variant_of[NEW][j++] = at;
    }
    m->variant_of[OLD][num_a] = m->variant_of[NEW][num_b] = m->index->num_variants;
    /* The older product's come last and stay. */
    for (int p = NEW; p >= OLD; p--)
        for (uint32_t g = 0; g < m->from[p]->index->num_groups; g++)
            m->groups[m->group_of[p][g]].fallback_variant =
                m->variant_of[p][m->from[p]->groups[g].fallback_variant];
    return true;
}

/* ---- tables -------------------------------------------------------------- */

/* Was a row of product p measured on what its variant's name stands for here? As for the rows of a
 * table's text, one digest that agrees is enough. */
static bool holds(const struct merge *m, int p, const struct gen_pack_row *row)
{
    const struct gen_pack_variant *was = &m->from[p]->variants[row->variant];
    const struct gen_pack_variant *is = &m->variants[m->variant_of[p][row->variant]];
    return was->source_digest == is->source_digest ||
           (was->code_digest && was->code_digest == is->code_digest);
}

static void add_table(struct merge *m, int p, struct gen_pack_table t)
{
    const struct gen_pack_row *rows = m->from[p]->rows + t.first_row;
    const struct gen_pack_view view = view_of(m);
    const uint32_t count = t.num_rows;
    uint32_t last = NONE;
    bool passed_over = false;
    t.name = moved(m, p, t.name);
    t.class_name = moved(m, p, t.class_name);
    t.reason = moved(m, p, t.reason);
    t.first_row = m->index->num_rows;
    t.num_rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct gen_pack_row row = rows[i];
        row.variant = m->variant_of[p][row.variant];
        row.runner_up = m->variant_of[p][row.runner_up];
        const uint32_t group = m->variants[row.variant].group;
        if (group != last)
            passed_over = gen_table_passes_over(&view, &m->groups[group], t.compute_capability);
        last = group;
        if (!holds(m, p, &rows[i]))
            t.num_expired++;
        else if (passed_over)
            t.num_ptx++;
        else
            m->rows[t.first_row + t.num_rows++] = row;
    }
    m->index->num_rows += t.num_rows;
    m->tables[m->index->num_tables++] = t;
}

/* ---- the union ----------------------------------------------------------- */

static bool fill(struct merge *m)
{
    for (int p = OLD; p <= NEW; p++)
        memcpy(m->strings + moved(m, p, 0), m->from[p]->strings, m->from[p]->index->strings_size);
    m->index->strings_size = m->from[OLD]->index->strings_size + m->from[NEW]->index->strings_size;
    m->index->toolkit = m->from[OLD]->index->toolkit;
    for (int p = OLD; p <= NEW; p++)
        add_families_and_targets(m, p);
    if (!add_variants(m))
        return false;
    for (int p = OLD; p <= NEW; p++)
        for (uint32_t i = 0; i < m->from[p]->index->num_tables; i++)
            add_table(m, p, m->from[p]->tables[i]);
    return true;
}

/* What was put together takes the place of both. */
static void replace(struct gen__pack *pack, struct gen__pack *more, const struct merge *m,
                    struct gen__source *sources, void *owned)
{
    for (uint32_t i = 0; i < pack->num_more; i++)
        sources[i] = pack->more[i];
    sources[pack->num_more] = more->source;
    free(pack->more);
    free(pack->owned);
    free(more->owned);
    /* Of the variants alone, as a product's is, and another one in another order. */
    uint64_t digest = pack->digest;
    if (m->num_added)
        digest = gen_pack_mix(gen_pack_mix(digest, more->digest), more->digest);
    *pack = (struct gen__pack){.source = pack->source,
                               .more = sources,
                               .num_more = pack->num_more + 1,
                               .source_of = m->source_of,
                               .digest = digest,
                               .owned = owned,
                               .index = m->index,
                               .families = m->families,
                               .targets = m->targets,
                               .groups = m->groups,
                               .variants = m->variants,
                               .tables = m->tables,
                               .rows = m->rows,
                               .strings = m->strings};
    *more = (struct gen__pack){.source.file = -1};
}

enum gen_status gen__pack_add(struct gen__pack *pack, const char *label, struct gen__pack *more)
{
    struct merge m = {.from = {pack, more}};
    if (pack->index->strings_size + more->index->strings_size > UINT32_MAX)
        return gen__fail(GEN_STATUS_FORMAT,
                         "%s: with the products before it, its names have 4 GiB or more", label);
    void *owned = calloc(1, lay_out(&m, NULL));
    void *maps = malloc(lay_out_maps(&m, NULL));
    struct gen__source *sources = malloc((pack->num_more + 1u) * sizeof(*sources));
    enum gen_status status;
    if (!owned || !maps || !sources) {
        status =
            gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to add it to the products", label);
    } else {
        lay_out(&m, owned);
        lay_out_maps(&m, maps);
        status = fill(&m) ? GEN_OK
                          : gen__fail(GEN_STATUS_FORMAT,
                                      "%s: its variants are grouped otherwise than those of the "
                                      "same names in the products before it; rebuild it with "
                                      "`attngen build`",
                                      label);
        if (!status) {
            replace(pack, more, &m, sources, owned);
            owned = NULL;
            sources = NULL;
        }
    }
    free(maps);
    free(owned);
    free(sources);
    return status;
}
