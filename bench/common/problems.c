#include "common/problems.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape *shapes_add(struct shape_list *list, const struct gen__family *family,
                         const gen_problem *problem)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 32;
        list->item = xrealloc(list->item, list->capacity * sizeof *list->item);
    }
    struct shape *s = &list->item[list->count++];
    memset(s, 0, sizeof *s);
    s->family = family;
    s->problem = xmalloc(family->problem_size);
    memcpy(s->problem, problem, family->problem_size);
    (void)family->check(s->problem, &s->key);
    family->case_name(s->problem, s->name, sizeof s->name);
    return s;
}

void shapes_free(struct shape_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->item[i].problem);
    free(list->item);
    *list = (struct shape_list){0};
}

static bool same_key(const struct gen__family *family, const struct gen__key *a,
                     const struct gen__key *b)
{
    return memcmp(a->codes, b->codes, family->num_required * sizeof a->codes[0]) == 0;
}

bool shapes_same_key(const struct shape *a, const struct shape *b)
{
    return a->family == b->family && same_key(a->family, &a->key, &b->key);
}

const struct shape *shapes_of_key(const struct shape_list *list, const struct shape *shape)
{
    for (size_t i = 0; i < list->count; i++)
        if (shapes_same_key(&list->item[i], shape))
            return &list->item[i];
    return NULL;
}

/* ---- fields ------------------------------------------------------------ */

static int32_t *field_at(gen_problem *problem, const struct gen__field *field)
{
    return (int32_t *)(void *)((char *)problem + field->offset);
}

static const struct gen__field *field_named(const struct gen__family *family, const char *name)
{
    for (uint32_t i = 0; i < family->num_fields; i++)
        if (strcmp(family->fields[i].name, name) == 0)
            return &family->fields[i];
    return NULL;
}

/* What is the same as the field before it unless it is named stays the same. */
static void assign(const struct gen__family *family, gen_problem *problem,
                   const struct gen__field *field, int32_t value)
{
    const struct gen__field *const end = family->fields + family->num_fields;
    const int32_t old = *field_at(problem, field);
    *field_at(problem, field) = value;
    while (++field < end && field->preset == GEN__PRESET_SAME && *field_at(problem, field) == old)
        *field_at(problem, field) = value;
}

bool problem_set(const struct gen__family *family, gen_problem *problem, const char *field,
                 const char *value)
{
    const struct gen__field *f = field_named(family, field);
    if (!f)
        return false;
    if (!f->values) {
        char *end;
        long n = strtol(value, &end, 10);
        if (end == value || *end || n < INT32_MIN || n > INT32_MAX)
            return false;
        assign(family, problem, f, (int32_t)n);
        return true;
    }
    for (uint32_t i = 0; i < f->num_values; i++) {
        if (strcmp(f->values[i], value) == 0) {
            assign(family, problem, f, (int32_t)i);
            return true;
        }
    }
    return false;
}

static bool same_coords(const struct gen__family *family, const struct gen__key *a,
                        const struct gen__key *b)
{
    for (uint32_t c = 0; c < family->num_coords; c++)
        if (fabsf(gen__key_log2(a, c) - gen__key_log2(b, c)) > 1e-4f)
            return false;
    return true;
}

static bool holds_bucket(const struct shape_list *list, const struct gen__family *family,
                         const struct gen__key *key)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->item[i].family == family && same_key(family, &list->item[i].key, key) &&
            same_coords(family, &list->item[i].key, key))
            return true;
    return false;
}

static void each_value(struct shape_list *list, const struct gen__family *family,
                       gen_problem *problem, uint32_t axis)
{
    if (axis == family->num_required) {
        struct gen__key key = {0};
        if (family->check(problem, &key) != GEN_OK)
            return;
        for (size_t i = 0; i < list->count; i++)
            if (list->item[i].family == family && same_key(family, &list->item[i].key, &key))
                return;
        shapes_add(list, family, problem);
        return;
    }
    const struct gen__axis *a = &family->required[axis];
    if (!field_named(family, a->name)) { /* follows from other fields */
        each_value(list, family, problem, axis + 1);
        return;
    }
    for (uint32_t i = 0; i < a->num_values; i++)
        if (problem_set(family, problem, a->name, a->values[i]))
            each_value(list, family, problem, axis + 1);
}

void shapes_each_key(struct shape_list *list, const struct gen__family *family,
                     const gen_problem *base)
{
    gen_problem *copy = xmalloc(family->problem_size);
    memcpy(copy, base, family->problem_size);
    each_value(list, family, copy, 0);
    free(copy);
}

/* ---- grids ------------------------------------------------------------- */

/* The field whose doubling adds one octave to coordinate `coord` and leaves
 * everything else: NULL if this problem has none. */
static const struct gen__field *driver_of(const struct gen__family *family, const gen_problem *base,
                                          uint32_t coord)
{
    gen_problem *copy = xmalloc(family->problem_size);
    struct gen__key before = {0}, after = {0};
    const struct gen__field *found = NULL;
    memcpy(copy, base, family->problem_size);
    if (family->check(copy, &before) != GEN_OK)
        goto out;
    for (uint32_t i = 0; i < family->num_fields && !found; i++) {
        const struct gen__field *f = &family->fields[i];
        memcpy(copy, base, family->problem_size);
        if (f->values || *field_at(copy, f) <= 0 || *field_at(copy, f) > INT32_MAX / 2)
            continue;
        *field_at(copy, f) *= 2;
        if (family->check(copy, &after) != GEN_OK || !same_key(family, &before, &after))
            continue;
        bool good = fabsf(gen__key_log2(&after, coord) - gen__key_log2(&before, coord) - 1) < 0.01f;
        for (uint32_t c = 0; c < family->num_coords; c++)
            good = good && (c == coord ||
                            fabsf(gen__key_log2(&after, c) - gen__key_log2(&before, c)) < 0.01f);
        if (good)
            found = f;
    }
out:
    free(copy);
    return found;
}

/* Problems that move more bytes are for shape files, which know the GPU's memory; random ones are
 * many and have to be quick. */
#define LARGEST_BYTES 12e9
#define LARGEST_RANDOM_BYTES 2e9

static bool too_large(const struct gen__family *family, const gen_problem *problem, double most)
{
    double bytes, flops;
    family->cost(problem, &bytes, &flops);
    return bytes > most;
}

/* Moves every coordinate of `problem` towards `target`; returns the greatest
 * distance left, in octaves. */
static float approach(const struct gen__family *family, gen_problem *problem, const float *target)
{
    struct gen__key key = {0};
    float worst = 0;
    if (family->set_counts) {
        float counts[GEN__MAX_COORDS] = {0};
        for (uint32_t c = 0; c < family->num_coords; c++)
            counts[c] = exp2f(target[c]);
        family->set_counts(problem, counts);
    }
    for (uint32_t c = 0; c < family->num_coords && !family->set_counts; c++) {
        if (family->check(problem, &key) != GEN_OK)
            return INFINITY;
        const struct gen__field *f = driver_of(family, problem, c);
        if (!f)
            continue;
        double value = *field_at(problem, f) * exp2((double)(target[c] - gen__key_log2(&key, c)));
        *field_at(problem, f) = value < 1 ? 1 : value > 1e9 ? 1000000000 : (int32_t)lround(value);
    }
    if (family->check(problem, &key) != GEN_OK)
        return INFINITY;
    for (uint32_t c = 0; c < family->num_coords; c++)
        worst = fmaxf(worst, fabsf(gen__key_log2(&key, c) - target[c]));
    return worst;
}

/* Octaves a grid problem may lie off its grid point before another base is
 * tried: a twelfth is within the rounding of small whole numbers. */
#define GRID_TOLERANCE 0.09f

/* Adds the problem of `keyed`'s required key that is nearest to `target`, or the first that is as
 * near as `tolerance`. */
static void add_grid_point(struct shape_list *grid, const struct shape_list *bases,
                           const struct gen__family *family, const struct shape *keyed,
                           const float *target, float tolerance)
{
    gen_problem *best = xmalloc(family->problem_size);
    gen_problem *copy = xmalloc(family->problem_size);
    float best_off = INFINITY;
    for (size_t i = 0; i < bases->count && best_off > tolerance; i++) {
        const struct shape *b = &bases->item[i];
        memcpy(copy, b->problem, family->problem_size);
        for (uint32_t a = 0; a < family->num_required; a++)
            (void)problem_set(family, copy, family->required[a].name,
                              family->required[a].values[keyed->key.codes[a]]);
        struct gen__key key = {0};
        if (b->family != family || family->check(copy, &key) != GEN_OK ||
            !same_key(family, &key, &keyed->key))
            continue;
        float off = approach(family, copy, target);
        if (off < best_off) {
            best_off = off;
            memcpy(best, copy, family->problem_size);
        }
    }
    struct gen__key key = {0};
    if (best_off < 0.5f && family->check(best, &key) == GEN_OK &&
        !holds_bucket(grid, family, &key) && !too_large(family, best, LARGEST_BYTES)) {
        struct shape *s = shapes_add(grid, family, best);
        snprintf(s->where, sizeof s->where, "grid");
    }
    free(copy);
    free(best);
}

/* Range of each coordinate over the list, in half-octaves. */
static void half_octaves(const struct shape_list *list, const struct gen__family *family,
                         int low[GEN__MAX_COORDS], int high[GEN__MAX_COORDS])
{
    for (uint32_t c = 0; c < family->num_coords; c++) {
        low[c] = INT32_MAX;
        high[c] = INT32_MIN;
        for (size_t i = 0; i < list->count; i++) {
            if (list->item[i].family != family || list->item[i].key.empty)
                continue;
            float at = 2 * gen__key_log2(&list->item[i].key, c);
            low[c] = (int)floorf(at) < low[c] ? (int)floorf(at) : low[c];
            high[c] = (int)ceilf(at) > high[c] ? (int)ceilf(at) : high[c];
        }
    }
}

/* The required keys of a family's grid: all, or those of the shape file. */
static void add_keys(struct shape_list *keys, const struct gen__family *family,
                     const gen_problem *problem)
{
    struct gen__key key = {0};
    if (!family->grid_steps) {
        shapes_each_key(keys, family, problem);
        return;
    }
    if (family->check(problem, &key) != GEN_OK)
        return;
    for (size_t i = 0; i < keys->count; i++)
        if (same_key(family, &keys->item[i].key, &key))
            return;
    shapes_add(keys, family, problem);
}

void shapes_grid(struct shape_list *grid, const struct shape_list *shapes,
                 const struct gen__family *family)
{
    int low[GEN__MAX_COORDS], high[GEN__MAX_COORDS], at[GEN__MAX_COORDS];
    struct shape_list keys = {0};
    for (size_t i = 0; i < shapes->count; i++)
        if (shapes->item[i].family == family)
            add_keys(&keys, family, shapes->item[i].problem);
    half_octaves(shapes, family, low, high);
    for (size_t k = 0; k < keys.count; k++) {
        memcpy(at, low, sizeof at);
        for (bool more = true; more;) {
            float target[GEN__MAX_COORDS];
            for (uint32_t c = 0; c < family->num_coords; c++)
                target[c] = 0.5f * (float)at[c];
            add_grid_point(grid, shapes, family, &keys.item[k], target, GRID_TOLERANCE);
            more = false;
            for (uint32_t c = 0; c < family->num_coords && !more; c++) {
                at[c] += family->grid_steps ? family->grid_steps[c] : 1;
                more = at[c] <= high[c];
                if (!more)
                    at[c] = low[c];
            }
        }
    }
    shapes_free(&keys);
}

/* The base 2 logarithms of the coordinates in "states=4096,seq_len=512"; false if they are not the
 * family's. */
static bool parse_coords(const struct gen__family *family, const char *text, float *target)
{
    for (uint32_t c = 0; c < family->num_coords; c++) {
        const size_t length = strlen(family->coords[c]);
        if (strncmp(text, family->coords[c], length) != 0 || text[length] != '=')
            return false;
        char *end;
        const double value = strtod(text + length + 1, &end);
        if (end == text + length + 1 || *end != (c + 1 < family->num_coords ? ',' : '\0') ||
            !(value >= 1 && value <= 1e9)) /* families make them int32_t */
            return false;
        target[c] = (float)log2(value);
        text = end + 1;
    }
    return true;
}

bool shapes_at(struct shape_list *list, const struct shape_list *shapes, const struct shape *keyed,
               const char *coords)
{
    float target[GEN__MAX_COORDS];
    char found[128] = "";
    const size_t before = list->count;
    if (parse_coords(keyed->family, coords, target))
        add_grid_point(list, shapes, keyed->family, keyed, target, 0);
    if (list->count == before)
        return false;
    coords_format(keyed->family, &list->item[before].key, found, sizeof found);
    if (strcmp(found, coords) == 0)
        return true;
    free(list->item[before].problem);
    list->count = before;
    return false;
}

/* ---- random problems --------------------------------------------------- */

/* A numeric field that is not a required axis: log-uniform between its least positive and greatest
 * value of the shapes, or (every third time) one of those; what none of them sets stays as they
 * have it. */
static int32_t random_value(struct rng *rng, const struct shape_list *shapes,
                            const struct gen__family *family, const struct gen__field *f)
{
    int32_t low = INT32_MAX, high = 1;
    for (size_t i = 0; i < shapes->count; i++) {
        int32_t v = gen__field_get(f, shapes->item[i].problem);
        if (shapes->item[i].family != family || v < 1)
            continue;
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    const bool unset = low > high; /* draws go on as if it were set */
    if (unset)
        low = high;
    if (rng_below(rng, 3) == 0)
        return gen__field_get(f, shapes->item[rng_below(rng, (uint32_t)shapes->count)].problem);
    double value = low * pow((double)(high + 1) / low, rng_uniform(rng));
    return unset ? gen__field_get(f, shapes->item[0].problem) : (int32_t)value;
}

void shapes_random(struct shape_list *out, const struct shape_list *shapes,
                   const struct shape_list *avoid, const struct gen__family *family, size_t count,
                   uint64_t seed)
{
    struct rng rng;
    struct shape_list own = {0};
    int low[GEN__MAX_COORDS], high[GEN__MAX_COORDS];
    rng_seed(&rng, seed);
    for (size_t i = 0; i < shapes->count; i++)
        if (shapes->item[i].family == family)
            shapes_add(&own, family, shapes->item[i].problem);
    half_octaves(&own, family, low, high);
    gen_problem *problem = xmalloc(family->problem_size);
    /* Most draws fail check() (a group that does not divide, say): draw again. */
    for (size_t tries = 0, made = 0; own.count && made < count && tries < 2000 * count; tries++) {
        struct gen__key key = {0};
        memcpy(problem, own.item[rng_below(&rng, (uint32_t)own.count)].problem,
               family->problem_size);
        for (uint32_t i = 0; i < family->num_fields; i++) {
            const struct gen__field *f = &family->fields[i];
            bool axis = false;
            for (uint32_t a = 0; a < family->num_required; a++)
                axis = axis || strcmp(family->required[a].name, f->name) == 0;
            if (!f->values && !axis)
                gen__field_set(f, problem, random_value(&rng, &own, family, f));
        }
        for (uint32_t a = 0; a < family->num_required && !family->grid_steps; a++) {
            const struct gen__axis *axis = &family->required[a];
            (void)problem_set(family, problem, axis->name,
                              axis->values[rng_below(&rng, axis->num_values)]);
        }
        if (family->check(problem, &key) != GEN_OK || key.empty)
            continue;
        bool inside = true;
        for (uint32_t c = 0; c < family->num_coords; c++)
            inside = inside && 2 * gen__key_log2(&key, c) >= (float)low[c] - 0.01f &&
                     2 * gen__key_log2(&key, c) <= (float)high[c] + 0.01f;
        if (!inside || holds_bucket(avoid, family, &key) ||
            too_large(family, problem, LARGEST_RANDOM_BYTES))
            continue;
        struct shape *s = shapes_add(out, family, problem);
        snprintf(s->where, sizeof s->where, "random");
        made++;
    }
    free(problem);
    shapes_free(&own);
}

/* ---- names ------------------------------------------------------------- */

void coords_format(const struct gen__family *family, const struct gen__key *key, char *text,
                   size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t c = 0; c < family->num_coords; c++) {
        int n = snprintf(text + used, capacity - used, "%s%s=%.0f", c ? "," : "", family->coords[c],
                         (double)key->counts[c]);
        if (n < 0 || used + (size_t)n >= capacity)
            return;
        used += (size_t)n;
    }
}

/* Operations a byte above which the tensor cores bound a problem: of an H200 some 165 in 16 bits.
 */
#define REST_INTENSITY 150

double shape_rest_ms(const struct shape *shape, long ms)
{
    double bytes, flops;
    shape->family->cost(shape->problem, &bytes, &flops);
    return flops > REST_INTENSITY * bytes ? (double)ms : 0;
}

uint32_t families_named(const struct option_list *list, const struct gen__family **out,
                        uint32_t capacity)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < gen__num_families && count < capacity; i++)
        if (glob_match_any(list, gen__families[i]->name))
            out[count++] = gen__families[i];
    for (int k = 0; k < list->count; k++) {
        bool used = false;
        for (uint32_t i = 0; i < gen__num_families; i++)
            used = used || glob_match(list->item[k], gen__families[i]->name);
        if (!used) {
            struct text known = {0};
            for (uint32_t i = 0; i < gen__num_families; i++)
                text_add(&known, " %s", gen__families[i]->name);
            die(1, "no family is named '%s'; this program knows:%s", list->item[k], known.data);
        }
    }
    return count;
}
