/*
 * gen_select(): which variant for this problem on this device.
 *
 * Two layers. Eligibility (gen__eligible) says what can run: the target's code
 * runs on the device's compute capability, shared memory suffices, the family
 * has no objection, the workspace is allowed. Preference only orders what is
 * eligible; the first rule that finds something decides:
 *
 *   TABLE     the device's own class (compute capability and number of SMs):
 *             the row nearest in the sum of |log2| distances of the coordinates
 *   NEAREST   the nearest measured class of the same compute capability, by
 *             the sum of |log2| ratios of SMs, bandwidth and L2. The first
 *             coordinate counts independent pieces of work, so the row is
 *             looked up where a piece falls to as many SMs as here
 *   MODEL     the least estimate of the family, over the variants of the best
 *             target that has an eligible one
 *   FALLBACK  the group's fallback, where the family has no estimate
 *
 * Rows whose variant is not eligible are passed over. Nothing here allocates,
 * locks, calls the system or writes but to *plan; the rules TABLE and NEAREST
 * cost tens of nanoseconds, MODEL the family's fits() and predict() once per
 * variant of the group (about 10 us for 240 variants of la_decode): a GPU that
 * nobody has tuned on wants its plans kept, or a table.
 */
#include "select.h"
#include "device.h"
#include "rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ALL_FLAGS ((uint32_t)(GEN_DETERMINISTIC | GEN_BATCH_INVARIANT | GEN_SERIAL_LAUNCH))

/* ---- the question ------------------------------------------------------ */

static enum gen_status unknown_family(const gen_problem *problem)
{
    char known[256] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < gen__num_families && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s (%#010x)",
                                   i ? ", " : "", gen__families[i]->name, gen__families[i]->tag);
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
                     problem->flags, ALL_FLAGS);
}

enum gen_status gen__ask(const gen_library *library, const gen_device *device,
                         const gen_problem *problem, struct gen__ask *ask)
{
    if (!library || !problem)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL",
                         library ? "problem" : "library");
    enum gen_status status = gen__device_check(device);
    if (status)
        return status;
    const struct gen__family *family = gen__family_by_tag(problem->family);
    if (!family)
        return unknown_family(problem);
    if (problem->size != family->problem_size || problem->flags & ~ALL_FLAGS)
        return wrong_problem(family, problem);
    ask->library = library;
    ask->device = device;
    ask->problem = problem;
    ask->family = family;
    memset(&ask->key, 0, sizeof(ask->key));
    status = family->check(problem, &ask->key);
    if (status)
        return status;
    ask->entry = gen__entry_find(library, family, gen__key_codes(&ask->key));
    return GEN_OK;
}

/* ---- eligibility ------------------------------------------------------- */

static bool workspace_allowed(const struct gen__ask *ask, const struct gen__facts *facts)
{
    gen_plan plan;
    memset(&plan, 0, sizeof(plan));
    ask->family->plan(ask->problem, ask->device, facts, &plan);
    return plan.workspace_bytes <= (uint64_t)ask->problem->max_workspace_mib << 20;
}

/* Everything but target and shared memory. */
static enum gen__reject others_fit(const struct gen__ask *ask, const struct gen__facts *facts,
                                   const char **why)
{
    const char *reason = ask->family->fits(ask->problem, ask->device, facts);
    if (reason) {
        *why = reason;
        return GEN__REJECT_FAMILY;
    }
    if (ask->problem->max_workspace_mib && !workspace_allowed(ask, facts))
        return GEN__REJECT_WORKSPACE;
    return GEN__FITS;
}

enum gen__reject gen__eligible(const struct gen__ask *ask, uint32_t variant, const char **why)
{
    const char *reason = NULL;
    if (!gen__target_runs(gen__variant_target(&ask->library->pack, variant),
                          ask->device->compute_capability))
        return GEN__REJECT_TARGET;
    const struct gen__facts *facts = gen__facts_of(ask->library, variant);
    if ((uint64_t)facts->shared_dynamic + facts->shared_static > ask->device->shared_per_block)
        return GEN__REJECT_SHARED;
    const enum gen__reject reject = others_fit(ask, facts, &reason);
    if (why)
        *why = reason;
    return reject;
}

/* Everything but target, which the row's `shared` tells, too. */
static bool row_fits(const struct gen__ask *ask, const struct gen__row *row)
{
    const char *why;
    return row->shared <= ask->device->shared_per_block &&
           others_fit(ask, row->facts, &why) == GEN__FITS;
}

/* ---- tables ------------------------------------------------------------ */

/* The next eligible rows by distance, where the nearest is not eligible or
 * there are several coordinates. */
static const struct gen__row *search_rows(const struct gen__ask *ask,
                                          const struct gen__range *range, float scale)
{
    struct gen__probe probe;
    gen__probe_set(&probe, ask->library, range, ask->family->num_coords, ask->key.counts, scale);
    uint32_t row = GEN__NO_ROW;
    float distance = 0.0f;
    do {
        row = gen__rows_next(&probe, row, &distance);
        if (row == GEN__NO_ROW)
            return NULL;
    } while (!row_fits(ask, &probe.rows[row]));
    return &probe.rows[row];
}

static float time_of_many(const struct gen__ask *ask, const struct gen__range *range)
{
    struct gen__probe probe;
    gen__probe_set(&probe, ask->library, range, ask->family->num_coords, ask->key.counts, 1.0f);
    return exp2f(gen__rows_time(&probe));
}

/* A class's time on the device: by bandwidth. */
static inline float by_bandwidth(float us, const gen_device *device, const struct gen__range *range)
{
    const uint32_t gbps = device->memory_gbps;
    if (gbps == range->memory_gbps)
        return us;
    return gbps ? us * ((float)range->memory_gbps / (float)gbps) : us;
}

/* The nearest eligible row of a range. The first coordinate is multiplied by
 * `scale` where the row is looked up, not where its time is. */
static bool choose_row(const struct gen__ask *ask, const struct gen__range *range, float scale,
                       struct gen__choice *choice)
{
    const gen_library *library = ask->library;
    const struct gen__row *row = NULL;
    float us;
    if (ask->family->num_coords == 1) {
        const float x = ask->key.counts[0];
        const struct gen__spot *spot = gen__spot_at(range, x * scale);
        row = library->rows + range->first_row + spot->row;
        us = gen__spot_time(gen__spot_at(range, x), x);
    } else {
        us = time_of_many(ask, range);
    }
    if (!row || !row_fits(ask, row))
        row = search_rows(ask, range, scale);
    if (!row)
        return false;
    choice->facts = row->facts;
    choice->range = range;
    choice->row = row;
    choice->scale = scale;
    choice->us = by_bandwidth(us, ask->device, range);
    return true;
}

/* Are the two words at `at` these? In one comparison. */
static inline bool same_words(const void *at, const uint32_t words[2])
{
    uint64_t a, b;
    memcpy(&a, at, sizeof(a));
    memcpy(&b, words, sizeof(b));
    return a == b;
}

/* A class is two words, in a device as in a range. */
_Static_assert(offsetof(gen_device, num_sms) ==
                   offsetof(gen_device, compute_capability) + sizeof(uint32_t),
               "one behind the other");
_Static_assert(offsetof(struct gen__range, compute_capability) == 0 &&
                   offsetof(struct gen__range, num_sms) == sizeof(uint32_t),
               "one behind the other, in front");

/* The rows of the device's own class. */
static inline const struct gen__range *own_class(const struct gen__entry *entry,
                                                 const gen_device *device)
{
    const struct gen__range *range = entry->ranges;
    uint32_t class[2];
    memcpy(class, (const char *)device + offsetof(gen_device, compute_capability), sizeof(class));
    for (uint32_t left = entry->num_ranges; left > 0; left--, range++)
        if (same_words(range, class))
            return range;
    return NULL;
}

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* A device as classes are compared with it. */
struct features {
    double sms, gbps, l2_bytes; /* 0: not known */
};

static inline struct features features_of(const gen_device *device)
{
    return (struct features){device->num_sms, device->memory_gbps, device->l2_bytes};
}

/* The product of the ratios, each the way that is at least 1, orders classes as
 * the sum of their |log2| does. In double the products are exact, and equal
 * distances equal. */
static inline double class_distance(struct features device, const struct gen__range *range)
{
    return larger(device.sms, range->sms) * larger(device.gbps, range->gbps) *
           larger(device.l2_bytes, range->l2_bytes) /
           (smaller(device.sms, range->sms) * smaller(device.gbps, range->gbps) *
            smaller(device.l2_bytes, range->l2_bytes));
}

/* What makes as much work fall to an SM of the device as to one of the class. */
static inline float per_sm_scale(struct features device, const struct gen__range *range)
{
    return (float)(range->sms * (1.0 / device.sms));
}

/* The nearest class; of equal distances the one with fewer SMs comes first. */
static inline const struct gen__range *
nearest_class(const struct gen__entry *entry, const gen_device *device, struct features features)
{
    const struct gen__range *best = NULL;
    const struct gen__range *range = entry->ranges;
    double best_distance = INFINITY;
    for (uint32_t left = entry->num_ranges; left > 0; left--, range++) {
        if (range->compute_capability != device->compute_capability)
            continue;
        const double d = class_distance(features, range);
        best = d < best_distance ? range : best;
        best_distance = smaller(d, best_distance);
    }
    return best;
}

/* The same behind `last` (NULL: from the first), which is at *distance; the
 * device's own class aside. What is not known of the device counts as equal. */
static const struct gen__range *next_class(const struct gen__ask *ask,
                                           const struct gen__range *last, double *distance)
{
    const gen_device *device = ask->device;
    const double last_distance = *distance;
    const struct gen__range *best = NULL;
    for (uint32_t i = 0; i < ask->entry->num_ranges; i++) {
        const struct gen__range *range = &ask->entry->ranges[i];
        if (range->compute_capability != device->compute_capability ||
            range->num_sms == device->num_sms)
            continue;
        struct features features = features_of(device);
        features.gbps = device->memory_gbps ? features.gbps : range->gbps;
        features.l2_bytes = device->l2_bytes ? features.l2_bytes : range->l2_bytes;
        const double d = class_distance(features, range);
        if (last && (d < last_distance || (d == last_distance && range <= last)))
            continue;
        if (!best || d < *distance) {
            best = range;
            *distance = d;
        }
    }
    return best;
}

/* Classes in the order of their distance until one has an eligible row. */
static bool choose_nearest(const struct gen__ask *ask, struct gen__choice *choice)
{
    const struct gen__range *range = NULL;
    double distance = 0.0;
    choice->why = GEN_WHY_NEAREST;
    while ((range = next_class(ask, range, &distance)) != NULL)
        if (choose_row(ask, range, per_sm_scale(features_of(ask->device), range), choice))
            return true;
    return false;
}

/* ---- model and fallback ------------------------------------------------ */

float gen__predict(const struct gen__ask *ask, uint32_t variant)
{
    if (!ask->family->predict)
        return 0.0f;
    const float us =
        ask->family->predict(ask->problem, ask->device, gen__facts_of(ask->library, variant));
    return isfinite(us) && us > 0.0f ? us : 0.0f;
}

/* gen__eligible() but for the target, which all of a group have in common. */
static inline bool runs_here(const struct gen__ask *ask, const struct gen__facts *facts)
{
    const char *why;
    if (facts->shared_dynamic + facts->shared_static > ask->device->shared_per_block)
        return false;
    return others_fit(ask, facts, &why) == GEN__FITS;
}

/* The best of one group; false where nothing in it is eligible. */
static bool choose_in_group(const struct gen__ask *ask, uint32_t group_index,
                            struct gen__choice *choice)
{
    const struct gen__pack *pack = &ask->library->pack;
    const struct gen_pack_group *group = &pack->groups[group_index];
    if (!gen__target_runs(&pack->targets[group->target], ask->device->compute_capability))
        return false;
    const uint32_t end = group->first_variant + group->num_variants;
    uint32_t first = end; /* eligible */
    uint32_t best = end;
    choice->us = 0.0f;
    choice->why = GEN_WHY_MODEL;
    for (uint32_t v = group->first_variant; v < end; v++) {
        if (!runs_here(ask, gen__facts_of(ask->library, v)))
            continue;
        if (first == end)
            first = v;
        const float us = gen__predict(ask, v);
        if (us > 0.0f && (choice->us == 0.0f || us < choice->us)) {
            choice->us = us;
            best = v;
        }
    }
    if (first == end)
        return false;
    if (choice->us == 0.0f) {
        const uint32_t fallback = group->fallback_variant;
        choice->why = GEN_WHY_FALLBACK;
        best = gen__eligible(ask, fallback, NULL) ? first : fallback;
    }
    choice->facts = gen__facts_of(ask->library, best);
    choice->range = NULL;
    choice->row = NULL;
    return true;
}

static bool choose_unmeasured(const struct gen__ask *ask, struct gen__choice *choice)
{
    const uint32_t *order = ask->library->group_order + ask->entry->first_group;
    for (uint32_t i = 0; i < ask->entry->num_groups; i++)
        if (choose_in_group(ask, order[i], choice))
            return true;
    return false;
}

bool gen__choose(const struct gen__ask *ask, struct gen__choice *choice)
{
    if (!ask->entry)
        return false;
    const struct gen__range *range = own_class(ask->entry, ask->device);
    choice->why = GEN_WHY_TABLE;
    return (range && choose_row(ask, range, 1.0f, choice)) || choose_nearest(ask, choice) ||
           choose_unmeasured(ask, choice);
}

float gen__choice_distance(const struct gen__ask *ask, const struct gen__choice *choice)
{
    float sum = 0.0f;
    for (uint32_t c = 0; c < ask->family->num_coords; c++)
        sum += fabsf(log2f(ask->key.counts[c] * (c ? 1.0f : choice->scale)) - choice->row->logs[c]);
    return sum;
}

/* ---- the plan ---------------------------------------------------------- */

/* All that a family fills. In vectors, written out: gcc turns a memset or loop
 * of this size into `rep stos`, which takes longer than all the rest of a plan. */
static inline void clear_rest(gen_plan *plan)
{
    typedef uint64_t words __attribute__((vector_size(16)));
    const words zero = {0, 0};
    const size_t first = offsetof(gen_plan, launch);
    _Static_assert((sizeof(*plan) - offsetof(gen_plan, launch)) % sizeof(zero) == 8,
                   "whole vectors and a half");
    unsigned char *at = (unsigned char *)plan;
    memcpy(at + first, &zero, 8);
#pragma GCC unroll 64
    for (size_t i = first + 8; i < sizeof(*plan); i += sizeof(zero))
        memcpy(at + i, &zero, sizeof(zero));
}

static inline void make_plan(const gen_library *library, const gen_device *device,
                             const gen_problem *problem, const struct gen__family *family,
                             const struct gen__facts *facts, enum gen_why why, float us,
                             gen_plan *plan)
{
    plan->size = sizeof(*plan);
    plan->family = family->tag;
    plan->backend = device->backend;
    plan->why = (uint32_t)why;
    plan->num_launches = 0;
    plan->predicted_us = us;
    plan->workspace_bytes = 0;
    plan->library_digest = library->pack.digest;
    clear_rest(plan);
    family->plan(problem, device, facts, plan);
}

static void make_plan_for(const struct gen__ask *ask, const struct gen__facts *facts,
                          enum gen_why why, float us, gen_plan *plan)
{
    make_plan(ask->library, ask->device, ask->problem, ask->family, facts, why, us, plan);
}

/* ---- gen_select() ------------------------------------------------------ */

/* By every rule. */
__attribute__((noinline)) static enum gen_status select_at_length(const gen_library *library,
                                                                  const gen_device *device,
                                                                  const gen_problem *problem,
                                                                  gen_plan *plan)
{
    struct gen__ask ask;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "plan is NULL");
    if (library->log & GEN__LOG_SELECT)
        gen__log_select(&ask);
    if (device->backend == GEN_BACKEND_CPU) {
        make_plan_for(&ask, NULL, GEN_WHY_REFERENCE, 0.0f, plan);
        return GEN_OK;
    }
    if (ask.key.empty) {
        /* Needs no kernel, so whatever the product holds. */
        make_plan_for(&ask, NULL, GEN_WHY_FALLBACK, 0.0f, plan);
        plan->num_launches = 0;
        return GEN_OK;
    }
    struct gen__choice choice;
    if (!gen__choose(&ask, &choice))
        return gen__unsupported(&ask);
    make_plan_for(&ask, choice.facts, choice.why, choice.us, plan);
    return GEN_OK;
}

/* Can the spot's variant run the problem? False also where that has to be asked
 * at length. */
static inline bool spot_fits(const struct gen__spot *spot, const struct gen__family *family,
                             const gen_problem *problem, const gen_device *device)
{
    return spot->shared <= device->shared_per_block && problem->max_workspace_mib == 0 &&
           (spot->fits_all || !family->fits(problem, device, spot->facts));
}

/*
 * The rules TABLE and NEAREST for one coordinate where the nearest row is
 * eligible: nearly every selection. Its steps are those of select_at_length(),
 * to which everything else is left.
 */
enum gen_status gen_select(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, gen_plan *plan)
{
    static const uint32_t device_head[2] = {sizeof(gen_device), GEN_BACKEND_CUDA};
#define NEED(condition)                    \
    if (__builtin_expect(!(condition), 0)) \
        goto at_length;
    NEED(library && !(library->log & GEN__LOG_SELECT))
    /* The rest of gen__device_check() holds for the device of a class. */
    NEED(device && same_words(device, device_head) && device->shared_per_block != 0)
    NEED(problem)
    const struct gen__family *family = gen__families[0];
    if (__builtin_expect(family->tag != problem->family, 0))
        family = gen__family_by_tag(problem->family);
    NEED(family && problem->size == family->problem_size && !(problem->flags & ~ALL_FLAGS))
    struct gen__key key;
    NEED(family->check(problem, &key) == GEN_OK)
    const struct gen__entry *entry = gen__entry_find(library, family, gen__key_codes(&key));
    NEED(entry && !key.empty && plan)

    enum gen_why why = GEN_WHY_TABLE;
    const float x = key.counts[0];
    float at = x;
    const struct gen__range *range = own_class(entry, device);
    if (!range) {
        const struct features features = features_of(device);
        NEED(device->num_sms && device->memory_gbps && device->l2_bytes)
        range = nearest_class(entry, device, features);
        NEED(range)
        at *= per_sm_scale(features, range);
        why = GEN_WHY_NEAREST;
    }
    const struct gen__spot *spot = gen__spot_at(range, at);
    NEED(spot_fits(spot, family, problem, device))
#undef NEED
    const struct gen__facts *facts = spot->facts;
    if (why != GEN_WHY_TABLE)
        spot = gen__spot_at(range, x);
    const float us = by_bandwidth(gen__spot_time(spot, x), device, range);
    make_plan(library, device, problem, family, facts, why, us, plan);
    return GEN_OK;

at_length:
    return select_at_length(library, device, problem, plan);
}

enum gen_status gen_select_variant(const gen_library *library, const gen_device *device,
                                   const gen_problem *problem, const char *variant, gen_plan *plan)
{
    struct gen__ask ask;
    enum gen_status status = gen__ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!variant || !plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL", variant ? "plan" : "variant");
    const struct gen__pack *pack = &library->pack;
    const uint32_t index = gen__pack_find(pack, variant, strlen(variant));
    if (index == pack->index->num_variants)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "variant \"%.200s\" is not among the %u of the product", variant,
                         pack->index->num_variants);
    if (device->backend == GEN_BACKEND_CPU)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s runs on a GPU, the device is the CPU reference", variant);
    if (!ask.entry || gen__entry_of_group(library, pack->variants[index].group) != ask.entry)
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "variant %.200s is for required key %s, the problem has another", variant,
                         gen__pack_string(pack, pack->groups[pack->variants[index].group].name));
    const char *why = NULL;
    const enum gen__reject reject = gen__eligible(&ask, index, &why);
    if (reject) {
        char text[256];
        gen__reject_text(&ask, index, reject, why, text, sizeof(text));
        return gen__fail(GEN_STATUS_UNSUPPORTED, "variant %.200s %s", variant, text);
    }
    make_plan_for(&ask, gen__facts_of(library, index), GEN_WHY_ASKED, gen__predict(&ask, index),
                  plan);
    if (ask.key.empty)
        plan->num_launches = 0;
    return GEN_OK;
}
