/*
 * The rules of selection. Eligibility says what can run, preference orders it; the first rule that
 * finds something decides:
 *
 *   TABLE     the nearest row of the device's own class, within the family's max_distance
 *   NEAREST   that of the nearest class of the same compute capability, looked up where as much
 * work falls to an SM as here MODEL     the family's least estimate over the variants of the best
 * target FALLBACK  the group's fallback, where the family has no estimate
 *
 * PTX comes last: rows that name it beside machine code were dropped (format/rows.c), and of the
 * targets text is the last. Nothing here allocates, locks, calls the system or writes but to
 * *choice. MODEL takes some microseconds for 240 variants.
 */
#include "family/gpus.h"
#include "family/index.h"
#include "select/select.h"

#include <math.h>
#include <string.h>

/* Of enum gen_problem_flag. */
#define FLAGS ((uint32_t)(GEN_DETERMINISTIC | GEN_BATCH_INVARIANT | GEN_SERIAL_LAUNCH))

/* ---- the question ------------------------------------------------------ */

static enum gen_status unknown_family(const gen_problem *problem)
{
    char known[256];
    struct gen__text text = gen__text_over(known, sizeof(known));
    for (uint32_t i = 0; i < gen__num_families; i++)
        gen__text_add(&text, "%s%s (%#010x)", i ? ", " : "", gen__families[i]->name,
                      gen__families[i]->tag);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "problem->family is %#010x, this runtime knows %s", problem->family, known);
}

static enum gen_status wrong_problem(const struct gen__family *family, const gen_problem *problem)
{
    if (problem->size != family->problem_size)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "problem->size is %u, expected %u (sizeof(gen_%s_problem))", problem->size,
                         family->problem_size, family->name);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "problem->flags is %#x, allowed are the bits of enum gen_problem_flag (%#x)",
                     problem->flags, FLAGS);
}

enum gen_status gen__query(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, struct gen__query *query)
{
    if (!library || !problem)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL",
                         library ? "problem" : "library");
    enum gen_status status = gen__device_check(device);
    if (status)
        return status;
    const struct gen__family *family = gen__family_find(library, problem->family);
    if (!family)
        return unknown_family(problem);
    if (problem->size != family->problem_size &&
        gen__struct_fit(&query->resized, family->problem_size, family->problem_least, problem,
                        problem->size, sizeof(query->resized)))
        problem = &query->resized.base;
    if (problem->size != family->problem_size || problem->flags & ~FLAGS)
        return wrong_problem(family, problem);
    query->library = library;
    query->device = device;
    query->problem = problem;
    query->family = family;
    query->untimed = false;
    query->key = (struct gen__key){{0}, {0}, false};
    const int32_t index_dtype = gen__index_dtype(family, problem);
    if (index_dtype != GEN_INDEX_INT32 && index_dtype != GEN_INDEX_INT64)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: index_dtype = %d; allowed: GEN_INDEX_INT32 (0), GEN_INDEX_INT64 (1)",
                         family->name, (int)index_dtype);
    status = family->check(problem, &query->key);
    if (!status)
        query->entry = *gen__key_place(library, family, gen__key_codes(&query->key));
    return status;
}

/* ---- eligibility ------------------------------------------------------- */

static bool workspace_allowed(const struct gen__query *query, const struct gen__facts *facts)
{
    gen_plan plan;
    memset(&plan, 0, sizeof(plan));
    query->family->plan(query->problem, query->device, facts, &plan);
    if (gen__index_dtype(query->family, query->problem))
        plan.workspace_bytes = gen__index_workspace(query->family, plan.dims, plan.workspace_bytes);
    return plan.workspace_bytes <= (uint64_t)query->problem->max_workspace_mib << 20;
}

/* Everything but the target, which all of a group have in common. */
static enum gen__reject fits(const struct gen__query *query, const struct gen__facts *facts,
                             const char **why)
{
    if ((uint64_t)facts->shared_dynamic + facts->shared_static > query->device->shared_per_block)
        return GEN__REJECT_SHARED;
    *why = query->family->fits(query->problem, query->device, facts);
    if (*why)
        return GEN__REJECT_FAMILY;
    return query->problem->max_workspace_mib && !workspace_allowed(query, facts)
               ? GEN__REJECT_WORKSPACE
               : GEN__FITS;
}

enum gen__reject gen__eligible(const struct gen__query *query, uint32_t variant, const char **why)
{
    *why = NULL;
    return gen_pack_runs(gen__variant_target(&query->library->pack, variant),
                         query->device->compute_capability)
               ? fits(query, &query->library->variants[variant], why)
               : GEN__REJECT_TARGET;
}

/* ---- tables ------------------------------------------------------------ */

/* a / b or b / a, whichever is at least 1. What is not known of the device counts as equal. */
static double class_ratio(uint32_t device, uint32_t measured)
{
    if (!device)
        return 1.0;
    return device > measured ? (double)device / measured : (double)measured / device;
}

/* The product of the ratios of SMs, bandwidth and L2 orders classes as the sum of their |log2|
 * does. */
static double class_distance(const gen_device *device, const struct gen__class_rows *rows)
{
    return class_ratio(device->num_sms, rows->num_sms) *
           class_ratio(device->memory_gbps, rows->memory_gbps) *
           class_ratio(device->l2_bytes, rows->l2_bytes);
}

/* A class's time on the device: by bandwidth. */
static float by_bandwidth(float us, const gen_device *device, const struct gen__class_rows *rows)
{
    if (!device->memory_gbps || device->memory_gbps == rows->memory_gbps)
        return us;
    return us * ((float)rows->memory_gbps / (float)device->memory_gbps);
}

static bool row_fits(const struct gen__query *query, const struct gen__class_rows *rows,
                     uint32_t row)
{
    const char *why;
    return !fits(query, &query->library->variants[rows->rows[row].variant], &why);
}

/* Moves on from a row that does not fit to the nearest one that does, often the second, or to none.
 * Each variant is asked once. */
static void pass_over(const struct gen__query *query, const struct gen__class_rows *rows,
                      const struct gen__position *at, struct gen__nearest *nearest)
{
    uint32_t refused[GEN__MAX_SLOTS];
    const uint32_t first = nearest->row;
    nearest->row = nearest->second;
    nearest->distance = nearest->second_distance;
    if (nearest->row == GEN__NO_ROW || row_fits(query, rows, nearest->row))
        return;
    memset(refused, 0, rows->num_slots * sizeof(refused[0]));
    refused[rows->slots[first]] = UINT32_MAX;
    do {
        refused[rows->slots[nearest->row]] = UINT32_MAX;
        *nearest = gen__nearest_rows(rows, at, refused);
    } while (nearest->row != GEN__NO_ROW && !row_fits(query, rows, nearest->row));
}

bool gen__lacks_rows(const struct gen__query *query)
{
    const gen_library *library = query->library;
    const struct gen__pack *pack = &library->pack;
    for (uint32_t g = query->entry->first_group; g != GEN__NO_GROUP; g = library->next_group[g])
        if (pack->groups[g].lacks_rows && gen_pack_runs(&pack->targets[pack->groups[g].target],
                                                        query->device->compute_capability))
            return true;
    return false;
}

/* May a row decide at this distance? Where the product lacks the variants of other rows, the
 * nearest of those that are left may be far from what was measured. */
static bool reaches(const struct gen__query *query, float octaves)
{
    return octaves <= query->family->max_distance &&
           (octaves <= GEN__REACH_WITH_HOLES || !gen__lacks_rows(query));
}

/* The nearest eligible row of a class, if it is within the family's max_distance. The first
 * coordinate is multiplied by `scale` where the row is looked up, not where its time is. */
static bool choose_row(const struct gen__query *query, const struct gen__class_rows *rows,
                       float scale, struct gen__choice *choice)
{
    struct gen__position at = gen__position_of(query->key.counts, 1.0f);
    struct gen__nearest nearest = gen__nearest_rows(rows, &at, NULL);
    const float us = query->untimed ? 0.0f : gen__rows_time(rows, &at, &nearest);
    if (scale != 1.0f) {
        at = gen__position_of(query->key.counts, scale);
        nearest = gen__nearest_rows(rows, &at, NULL);
    }
    if (nearest.row != GEN__NO_ROW && !row_fits(query, rows, nearest.row))
        pass_over(query, rows, &at, &nearest);
    if (nearest.row == GEN__NO_ROW)
        return false;
    choice->octaves = (float)nearest.distance / GEN__OCTAVE;
    choice->rows = rows;
    choice->row = &rows->rows[nearest.row];
    choice->facts = &query->library->variants[choice->row->variant];
    choice->us = by_bandwidth(us, query->device, rows);
    return reaches(query, choice->octaves);
}

/* The nearest class of the device's compute capability behind `last` (NULL: of all), which is at
 * *distance; the device's own class aside. Of equally near ones the one with fewer SMs counts. */
static const struct gen__class_rows *
next_class(const struct gen__query *query, const struct gen__class_rows *last, double *distance)
{
    const double last_distance = *distance;
    const struct gen__class_rows *best = NULL;
    bool behind = false; /* in the list, of `last` */
    for (const struct gen__class_rows *rows = query->entry->classes; rows; rows = rows->next) {
        behind |= rows == last;
        if (rows == last || rows->compute_capability != query->device->compute_capability ||
            rows->num_sms == query->device->num_sms)
            continue;
        const double d = class_distance(query->device, rows);
        if (last && (d < last_distance || (d == last_distance && !behind)))
            continue;
        if (!best || d < *distance) {
            best = rows;
            *distance = d;
        }
    }
    return best;
}

/* The device's own class, then the others in the order of their distance until one has an eligible
 * row that is near enough. */
static bool choose_measured(const struct gen__query *query, struct gen__choice *choice)
{
    const gen_device *device = query->device;
    const struct gen__class_rows *rows = query->entry->classes;
    double distance = 0.0;
    while (rows && (rows->compute_capability != device->compute_capability ||
                    rows->num_sms != device->num_sms))
        rows = rows->next;
    choice->why = GEN_WHY_TABLE;
    if (rows && choose_row(query, rows, 1.0f, choice))
        return true;
    choice->why = GEN_WHY_NEAREST;
    for (rows = NULL; (rows = next_class(query, rows, &distance)) != NULL;)
        /* As much work is to fall to an SM of the device as to one of the class. */
        if (choose_row(query, rows, (float)((double)rows->num_sms * (1.0 / device->num_sms)),
                       choice))
            return true;
    return false;
}

/* ---- model and fallback ------------------------------------------------ */

float gen__predict(const struct gen__query *query, uint32_t variant)
{
    if (!query->family->predict)
        return 0.0f;
    const float us =
        query->family->predict(query->problem, query->device, &query->library->variants[variant]);
    return isfinite(us) && us > 0.0f ? us : 0.0f;
}

/* The best of one group; false where nothing in it is eligible. */
static bool choose_in_group(const struct gen__query *query, const struct gen_pack_group *group,
                            struct gen__choice *choice)
{
    const struct gen__facts *all = query->library->variants, *first = NULL;
    const char *why;
    *choice = (struct gen__choice){.why = GEN_WHY_MODEL};
    if (!gen_pack_runs(&query->library->pack.targets[group->target],
                       query->device->compute_capability))
        return false;
    for (uint32_t v = group->first_variant; v < group->first_variant + group->num_variants; v++) {
        if (fits(query, &all[v], &why))
            continue;
        first = first ? first : &all[v];
        const float us = gen__predict(query, v);
        if (us > 0.0f && (!choice->facts || us < choice->us)) {
            choice->us = us;
            choice->facts = &all[v];
        }
    }
    if (first && !choice->facts) {
        const struct gen__facts *fallback = &all[group->fallback_variant];
        choice->why = GEN_WHY_FALLBACK;
        choice->facts = fits(query, fallback, &why) ? first : fallback;
    }
    return choice->facts;
}

bool gen__choose(const struct gen__query *query, struct gen__choice *choice)
{
    if (!query->entry)
        return false;
    if (choose_measured(query, choice))
        return true;
    for (uint32_t g = query->entry->first_group; g != GEN__NO_GROUP;
         g = query->library->next_group[g])
        if (choose_in_group(query, &query->library->pack.groups[g], choice))
            return true;
    return false;
}
