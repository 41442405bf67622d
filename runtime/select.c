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

/* gen__family_by_tag(), the call spared for the first of the families. */
static inline const struct gen__family *family_of(uint32_t tag)
{
    const struct gen__family *family = gen__families[0];
    return __builtin_expect(family->tag == tag, 1) ? family : gen__family_by_tag(tag);
}

static inline enum gen_status set_ask(const gen_library *library, const gen_device *device,
                                      const gen_problem *problem, struct gen__ask *ask)
{
    if (!library || !problem)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL",
                         library ? "problem" : "library");
    enum gen_status status = GEN_OK;
    if (__builtin_expect(!gen__device_is_gpu(device), 0)) {
        status = gen__device_check(device);
        if (status)
            return status;
    }
    const struct gen__family *family = family_of(problem->family);
    if (!family)
        return unknown_family(problem);
    if (problem->size != family->problem_size || problem->flags & ~ALL_FLAGS)
        return wrong_problem(family, problem);
    ask->library = library;
    ask->device = device;
    ask->problem = problem;
    ask->family = family;
    status = family->check(problem, &ask->key);
    if (status)
        return status;
    ask->entry = gen__entry_find(library, family, gen__key_codes(&ask->key));
    return GEN_OK;
}

enum gen_status gen__ask(const gen_library *library, const gen_device *device,
                         const gen_problem *problem, struct gen__ask *ask)
{
    return set_ask(library, device, problem, ask);
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
static inline enum gen__reject others_fit(const struct gen__ask *ask,
                                          const struct gen__facts *facts, const char **why)
{
    const char *reason = ask->family->fits(ask->problem, ask->device, facts);
    if (__builtin_expect(reason != NULL, 0)) {
        *why = reason;
        return GEN__REJECT_FAMILY;
    }
    if (__builtin_expect(ask->problem->max_workspace_mib != 0, 0) && !workspace_allowed(ask, facts))
        return GEN__REJECT_WORKSPACE;
    return GEN__FITS;
}

enum gen__reject gen__eligible(const struct gen__ask *ask, uint32_t variant, const char **why)
{
    const char *reason = NULL;
    if (!gen__target_runs(gen__variant_target(&ask->library->pack, variant),
                          ask->device->compute_capability))
        return GEN__REJECT_TARGET;
    struct gen__facts facts;
    gen__facts_get(ask->library, variant, &facts);
    if ((uint64_t)facts.shared_dynamic + facts.shared_static > ask->device->shared_per_block)
        return GEN__REJECT_SHARED;
    const enum gen__reject reject = others_fit(ask, &facts, &reason);
    if (why)
        *why = reason;
    return reject;
}

/* Everything but shared memory, and target, whose codes the row's `shared` holds. */
static inline bool row_fits(const struct gen__ask *ask, const struct gen__row *row)
{
    const char *why;
    return row->shared <= ask->device->shared_per_block &&
           others_fit(ask, &row->facts, &why) == GEN__FITS;
}

/* ---- tables ------------------------------------------------------------ */

/* 2^x to 1e-6 of its value, inline: |f| <= 1/2 by the series of e^(f ln 2). */
static inline float power_of_two(float x)
{
    x = x > -126.0f ? x : -126.0f;
    x = x < 127.0f ? x : 127.0f;
    const int32_t n = (int32_t)(x + 126.5f) - 126;
    const float f = x - (float)n;
    const float f2 = f * f;
    const float p = 1.0f + f * 0.69314718f + f2 * (0.24022651f + f * 0.05550411f) +
                    f2 * f2 * (0.00961813f + f * 0.00133336f + f2 * 0.000154035f);
    const uint32_t bits = (uint32_t)(n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return scale * p;
}

/* The next eligible rows by distance, where the nearest is not eligible or
 * there are several coordinates. */
__attribute__((noinline)) static const struct gen__row *search_rows(const struct gen__ask *ask,
                                                                    const struct gen__range *range,
                                                                    float shift, float *distance)
{
    struct gen__probe probe;
    gen__probe_set(&probe, ask->library, range, ask->family->num_coords, ask->key.coords, shift);
    uint32_t row = GEN__NO_ROW;
    *distance = 0.0f;
    do {
        row = gen__rows_next(&probe, row, distance);
        if (row == GEN__NO_ROW)
            return NULL;
    } while (!row_fits(ask, &probe.rows[row]));
    return &probe.rows[row];
}

__attribute__((noinline)) static float time_of_many(const struct gen__ask *ask,
                                                    const struct gen__range *range)
{
    struct gen__probe probe;
    gen__probe_set(&probe, ask->library, range, ask->family->num_coords, ask->key.coords, 0.0f);
    return gen__rows_time(&probe);
}

/* The nearest eligible row of a range, its time scaled by bandwidth. `shift`
 * is added to the first coordinate where the row is looked up, not where its
 * time is. */
static inline bool choose_row(const struct gen__ask *ask, const struct gen__range *range,
                              float shift, struct gen__choice *choice)
{
    const gen_library *library = ask->library;
    const struct gen__row *row = NULL;
    float log2_us;
    if (__builtin_expect(ask->family->num_coords == 1, 1)) {
        const float x = ask->key.coords[0];
        const struct gen__knot *knot = gen__knot_at(library, range, x + shift);
        row = &library
                   ->rows[range->first_row + gen__knot_nearest(knot, x + shift, &choice->distance)];
        if (__builtin_expect(!row_fits(ask, row), 0))
            row = NULL;
        if (shift != 0.0f)
            knot = gen__knot_at(library, range, x);
        log2_us = gen__knot_time(knot, x);
    } else {
        log2_us = time_of_many(ask, range);
    }
    if (__builtin_expect(!row, 0)) {
        row = search_rows(ask, range, shift, &choice->distance);
        if (!row)
            return false;
    }
    choice->range = range;
    choice->row = row;
    choice->variant = row->facts.index;
    float us = power_of_two(log2_us);
    const uint32_t gbps = ask->device->memory_gbps;
    if (gbps != range->memory_gbps && gbps)
        us *= (float)range->memory_gbps / (float)gbps;
    choice->us = us;
    return true;
}

static const struct gen__range *range_of(const struct gen__ask *ask, uint32_t index)
{
    return &ask->library->ranges[ask->entry->first_range + index];
}

static inline bool choose_exact(const struct gen__ask *ask, struct gen__choice *choice)
{
    for (uint32_t i = 0; i < ask->entry->num_ranges; i++) {
        const struct gen__range *range = range_of(ask, i);
        if (range->compute_capability == ask->device->compute_capability &&
            range->num_sms == ask->device->num_sms) {
            choice->why = GEN_WHY_TABLE;
            return choose_row(ask, range, 0.0f, choice);
        }
    }
    return false;
}

/* How many times more or less, at least 1; 1 where one is not known. */
static inline float ratio(uint32_t a, uint32_t b)
{
    if (!a || !b)
        return 1.0f;
    return a > b ? (float)a / (float)b : (float)b / (float)a;
}

/* The product of the ratios orders classes as the sum of their |log2| does. */
static inline float class_distance(const gen_device *device, const struct gen__table *table)
{
    return ratio(device->num_sms, table->num_sms) * ratio(device->memory_gbps, table->memory_gbps) *
           ratio(device->l2_bytes, table->l2_bytes);
}

/* Classes in the order of their distance until one has an eligible row; of
 * equal distances the one with fewer SMs comes first. */
__attribute__((noinline)) static bool choose_nearest(const struct gen__ask *ask,
                                                     struct gen__choice *choice)
{
    float last_distance = -1.0f;
    uint32_t last = UINT32_MAX;
    choice->why = GEN_WHY_NEAREST;
    for (;;) {
        const struct gen__range *best = NULL;
        uint32_t best_index = 0;
        float best_distance = INFINITY;
        for (uint32_t i = 0; i < ask->entry->num_ranges; i++) {
            const struct gen__range *range = range_of(ask, i);
            if (range->compute_capability != ask->device->compute_capability ||
                range->num_sms == ask->device->num_sms)
                continue;
            const float d = class_distance(ask->device, &ask->library->tables[range->table]);
            const bool behind = d > last_distance || (d == last_distance && i > last);
            if (behind && d < best_distance) {
                best = range;
                best_index = i;
                best_distance = d;
            }
        }
        if (!best)
            return false;
        const float shift =
            ask->library->tables[best->table].log2_sms - log2f((float)ask->device->num_sms);
        if (choose_row(ask, best, shift, choice))
            return true;
        last = best_index;
        last_distance = best_distance;
    }
}

/* ---- model and fallback ------------------------------------------------ */

float gen__predict(const struct gen__ask *ask, uint32_t variant)
{
    if (!ask->family->predict)
        return 0.0f;
    struct gen__facts facts;
    gen__facts_get(ask->library, variant, &facts);
    const float us = ask->family->predict(ask->problem, ask->device, &facts);
    return isfinite(us) && us > 0.0f ? us : 0.0f;
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
    choice->us = 0.0f;
    choice->why = GEN_WHY_MODEL;
    for (uint32_t v = group->first_variant; v < end; v++) {
        if (gen__eligible(ask, v, NULL))
            continue;
        if (first == end)
            first = v;
        const float us = gen__predict(ask, v);
        if (us > 0.0f && (choice->us == 0.0f || us < choice->us)) {
            choice->us = us;
            choice->variant = v;
        }
    }
    if (first == end)
        return false;
    if (choice->us == 0.0f) {
        const uint32_t fallback = group->fallback_variant;
        choice->why = GEN_WHY_FALLBACK;
        choice->variant = gen__eligible(ask, fallback, NULL) ? first : fallback;
    }
    return true;
}

__attribute__((noinline)) static bool choose_unmeasured(const struct gen__ask *ask,
                                                        struct gen__choice *choice)
{
    const uint32_t *order = ask->library->group_order + ask->entry->first_group;
    for (uint32_t i = 0; i < ask->entry->num_groups; i++)
        if (choose_in_group(ask, order[i], choice))
            return true;
    return false;
}

static inline bool choose(const struct gen__ask *ask, struct gen__choice *choice)
{
    if (__builtin_expect(!ask->entry, 0))
        return false;
    if (choose_exact(ask, choice) || choose_nearest(ask, choice))
        return true;
    choice->range = NULL;
    choice->row = NULL;
    choice->distance = 0.0f;
    return choose_unmeasured(ask, choice);
}

bool gen__choose(const struct gen__ask *ask, struct gen__choice *choice)
{
    return choose(ask, choice);
}

/* ---- the plan ---------------------------------------------------------- */

/* In vectors, written out: gcc turns a memset or loop of this size into
 * `rep stos`, which takes longer than all the rest of a plan. */
static inline void clear_plan(gen_plan *plan)
{
    typedef uint64_t words __attribute__((vector_size(16)));
    const words zero = {0, 0};
    _Static_assert(sizeof(*plan) % sizeof(zero) == 0, "whole vectors");
    unsigned char *at = (unsigned char *)plan;
#pragma GCC unroll 64
    for (size_t i = 0; i < sizeof(*plan); i += sizeof(zero))
        memcpy(at + i, &zero, sizeof(zero));
}

static inline void make_plan(const struct gen__ask *ask, const struct gen__facts *facts,
                             enum gen_why why, float us, gen_plan *plan)
{
    clear_plan(plan);
    plan->size = sizeof(*plan);
    plan->family = ask->family->tag;
    plan->backend = ask->device->backend;
    plan->why = (uint32_t)why;
    plan->predicted_us = us;
    plan->library_digest = ask->library->pack.digest;
    ask->family->plan(ask->problem, ask->device, facts, plan);
}

enum gen_status gen_select(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, gen_plan *plan)
{
    struct gen__ask ask;
    enum gen_status status = set_ask(library, device, problem, &ask);
    if (status)
        return status;
    if (!plan)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "plan is NULL");
    if (__builtin_expect(library->log & GEN__LOG_SELECT, 0))
        gen__log_select(&ask);
    if (__builtin_expect(device->backend == GEN_BACKEND_CPU, 0)) {
        make_plan(&ask, NULL, GEN_WHY_REFERENCE, 0.0f, plan);
        return GEN_OK;
    }
    if (__builtin_expect(ask.key.empty, 0)) {
        /* Needs no kernel, so whatever the product holds. */
        make_plan(&ask, NULL, GEN_WHY_FALLBACK, 0.0f, plan);
        plan->num_launches = 0;
        return GEN_OK;
    }
    struct gen__choice choice;
    if (!choose(&ask, &choice))
        return gen__unsupported(&ask);
    if (__builtin_expect(choice.row != NULL, 1)) {
        make_plan(&ask, &choice.row->facts, choice.why, choice.us, plan);
        return GEN_OK;
    }
    struct gen__facts facts;
    gen__facts_get(library, choice.variant, &facts);
    make_plan(&ask, &facts, choice.why, choice.us, plan);
    return GEN_OK;
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
    if (!ask.entry || gen__entry_of_group(library, pack->variants[index].group) !=
                          (uint32_t)(ask.entry - library->entries))
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
    struct gen__facts facts;
    gen__facts_get(library, index, &facts);
    make_plan(&ask, &facts, GEN_WHY_ASKED, gen__predict(&ask, index), plan);
    if (ask.key.empty)
        plan->num_launches = 0;
    return GEN_OK;
}
