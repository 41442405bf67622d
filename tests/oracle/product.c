/* Turns the recorded text into a product file in memory. */
#include "product.h"
#include "make_product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 10

static void fail(const char *path, const char *what)
{
    fprintf(stderr, "oracle: %s: %s\n", path, what);
    exit(2);
}

char *gunzip(const char *path, size_t *size)
{
    char command[1024];
    size_t capacity = 1u << 22;
    char *text = malloc(capacity);
    snprintf(command, sizeof(command), "gzip -dc '%s'", path);
    FILE *pipe = popen(command, "r");
    if (!pipe || !text)
        fail(path, "cannot be read");
    *size = 0;
    for (size_t n; (n = fread(text + *size, 1, capacity - 1 - *size, pipe)) > 0;) {
        *size += n;
        if (*size + 1 == capacity) {
            capacity *= 2;
            text = realloc(text, capacity);
            if (!text)
                fail(path, "no memory");
        }
    }
    if (pclose(pipe) != 0)
        fail(path, "gzip cannot read it");
    text[*size] = '\0';
    return text;
}

/* Cuts the next line off and splits it at tabs; the number of fields. */
static int next_line(char **at, char *fields[MAX_FIELDS])
{
    char *line = *at, *end = strchr(line, '\n');
    if (!end)
        return 0;
    *end = '\0';
    *at = end + 1;
    int count = 0;
    while (count < MAX_FIELDS && line) {
        fields[count++] = line;
        line = strchr(line, '\t');
        if (line)
            *line++ = '\0';
    }
    for (int i = count; i < MAX_FIELDS; i++)
        fields[i] = line ? line : end;
    return count;
}

struct reader {
    const char *path;
    struct product *product;
    struct recorded *recorded;
    char families[64][64], targets[16][32];
    uint32_t num_families, num_targets, group;
    const char *required; /* of the group */
};

static uint32_t position(struct reader *r, const char *names, size_t stride, uint32_t count,
                         const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names + i * stride, name) == 0)
            return i;
    fail(r->path, "a group names a family or target that is not there");
    return 0;
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

static void add_variant(struct reader *r, char *const *f)
{
    char name[128];
    snprintf(name, sizeof(name), "%s%s", r->required, f[1]);
    struct product_variant v = {.name = name,
                                .threads = number(f[2]),
                                .shared_dynamic = number(f[3]),
                                .shared_static = number(f[4]),
                                .registers = number(f[5]),
                                .cluster = number(f[6]),
                                .fallback = (int)number(f[7]),
                                .digest = f[9][0] == '-' ? 0 : strtoull(f[9], NULL, 16)};
    const char *at = f[8];
    for (int i = 0; *at && i < GEN_PACK_MAX_FACTS; i++) {
        char *end;
        v.facts[i] = (int32_t)strtol(at, &end, 10);
        at = *end ? end + 1 : end;
    }
    product_variant(r->product, r->group, v);
}

static void add_table(struct reader *r, char *const *f, char **at)
{
    char *end = *at;
    for (uint32_t left = number(f[2]); left > 0 && end; left--)
        end = strchr(end + (end != *at), '\n');
    if (!end)
        fail(r->path, "a table is cut off");
    *end = '\0';
    product_table(r->product, f[1], *at);
    *at = end + 1;
}

static void add_seed(struct reader *r, char *const *f)
{
    struct recorded *recorded = r->recorded;
    const struct gen__family *family = gen__family_by_name(f[1]);
    if (!family)
        return; /* a build without that family has no questions about it */
    if (recorded->num_seeds % 256 == 0)
        recorded->seeds =
            realloc(recorded->seeds, (recorded->num_seeds + 256) * sizeof(*recorded->seeds));
    recorded->seeds[recorded->num_seeds++] = (struct seed){family, strdup(f[2])};
}

static void add_line(struct reader *r, char *const *f, char **at)
{
    const char *what = f[0];
    if (strcmp(what, "family") == 0) {
        snprintf(r->families[r->num_families++ % 64], sizeof(r->families[0]), "%s", f[1]);
        product_family(r->product, f[1], f[2], f[3]);
    } else if (strcmp(what, "target") == 0) {
        snprintf(r->targets[r->num_targets++ % 16], sizeof(r->targets[0]), "%s", f[1]);
        product_target(r->product, f[1], number(f[2]), (enum gen_pack_target_kind)number(f[3]));
    } else if (strcmp(what, "group") == 0) {
        const uint32_t family =
            position(r, r->families[0], sizeof(r->families[0]), r->num_families, f[3]);
        const uint32_t target =
            position(r, r->targets[0], sizeof(r->targets[0]), r->num_targets, f[4]);
        r->required = f[1];
        r->group = product_group(r->product, f[1], f[2], family, target);
    } else if (strcmp(what, "variant") == 0) {
        add_variant(r, f);
    } else if (strcmp(what, "table") == 0) {
        add_table(r, f, at);
    } else if (strcmp(what, "problem") == 0) {
        add_seed(r, f);
    } else {
        fail(r->path, "a line of an unknown kind");
    }
}

static void list_families(struct recorded *recorded)
{
    recorded->families = calloc(gen__num_families, sizeof(*recorded->families));
    for (uint32_t i = 0; i < gen__num_families; i++) {
        size_t k = 0;
        while (k < recorded->num_seeds && recorded->seeds[k].family != gen__families[i])
            k++;
        if (k < recorded->num_seeds)
            recorded->families[recorded->num_families++] = gen__families[i];
    }
}

void recorded_read(const char *path, struct recorded *recorded)
{
    size_t size;
    char *text = gunzip(path, &size), *at = text, *fields[MAX_FIELDS];
    memset(recorded, 0, sizeof(*recorded));
    struct reader r = {.path = path, .product = product_new(), .recorded = recorded};
    while (next_line(&at, fields))
        add_line(&r, fields, &at);
    recorded->bytes = product_bytes(r.product, &recorded->size);
    product_free(r.product);
    free(text);
    if (!recorded->num_seeds)
        fail(path, "no problems");
    list_families(recorded);
}

void recorded_free(struct recorded *recorded)
{
    for (size_t i = 0; i < recorded->num_seeds; i++)
        free(recorded->seeds[i].text);
    free(recorded->seeds);
    free(recorded->families);
    free(recorded->bytes);
}
