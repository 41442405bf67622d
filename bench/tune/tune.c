#include "tune/tune.h"
#include "tune/race.h"
#include "common/problems.h"
#include "verify/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A first look at all, then fewer with more samples each. */
static const struct halving_pass passes[] = {{2, 1.15, 24}, {4, 1.04, 8}, {11, 1, 0}};
static const struct halving_pass quick_passes[] = {{1, 1.10, 8}, {5, 1, 0}};
/* Of launches this long a first look says more, and each costs more. */
static const struct halving_pass long_passes[] = {{1, 1.05, 6}, {11, 1, 0}};

const struct halving_pass *tune_passes(bool quick, bool refresh, double us, int *count)
{
#define PASSES(list) (*count = (int)(sizeof(list) / sizeof *(list)), list)
    const struct halving_pass *chosen = quick          ? PASSES(quick_passes)
                                        : us > LONG_US ? PASSES(long_passes)
                                                       : PASSES(passes);
#undef PASSES
    if (!refresh)
        return chosen;
    chosen += *count - 1;
    *count = 1;
    return chosen;
}

double tune_estimate(struct session *session, const struct shape *shape,
                     const struct option_list *only, bool quick, long rest_ms, size_t *candidates)
{
    struct race c = {0};
    int count;
    double us = 0;
    race_find(&c, session, shape, only, NULL);
    size_t left = *candidates = race_strike(&c);
    const double launch_us = race_predicted(&c);
    const struct halving_pass *chosen = tune_passes(quick, false, launch_us, &count);
    for (int i = 0; i < count; i++) {
        us += (double)left * chosen[i].rounds *
              (race_sample_us(launch_us, i == 0, i + 1 == count) +
               1e3 * shape_rest_ms(shape, rest_ms));
        if (chosen[i].keep_most && left > chosen[i].keep_most)
            left = chosen[i].keep_most;
    }
    c.count = 0; /* nothing is on a GPU */
    race_close(&c);
    return us / 1e6;
}

static void refuse(struct tuner *tuner, uint32_t variant, const char *reason)
{
    tuner->refused[variant] = 1;
    table_fail(tuner->table, session_variant(tuner->session, variant).name, reason);
}

static void on_failure(struct race *race, uint32_t variant, const char *reason)
{
    refuse(race->context, variant, reason);
}

/* ---- verification ------------------------------------------------------ */

/* False when the GPU is lost. */
static bool verify_one(struct tuner *tuner, struct verify_case *check, uint32_t variant)
{
    struct session *s = tuner->session;
    const char *name = session_variant(s, variant).name;
    struct verify_result result;
    worker_try(tuner->worker, name);
    verify_variant(check, &s->gpu, s->library, name, 2, &result);
    if (!result.ok && gpu_is_lost(&s->gpu))
        return false;
    worker_try(tuner->worker, "");
    if (result.ok) {
        tuner->good[variant] = 1;
        table_pass(tuner->table, name);
    } else {
        refuse(tuner, variant, result.reason);
    }
    return true;
}

static bool fits(struct session *s, const struct shape *shape, const char *variant)
{
    gen_plan plan = {.size = sizeof plan};
    return gen_select_variant(s->library, &s->gpu.device, shape->problem, variant, &plan) ==
               GEN_OK &&
           plan.num_launches > 0;
}

const struct shape *tune_case(struct session *session, const struct shape_list *small,
                              const struct shape *shape, const char *variant)
{
    if (!shapes_of_key(small, shape))
        return fits(session, shape, variant) ? shape : NULL;
    for (size_t i = 0; i < small->count; i++)
        if (shapes_same_key(&small->item[i], shape) && fits(session, &small->item[i], variant))
            return &small->item[i];
    return NULL;
}

/* Verifies the candidate on a problem of its own choice, `its`. Of `check` what the one before used
 * is kept where it is the same. False when the GPU is lost. */
static bool verify_on(struct tuner *tuner, const struct shape *its, struct verify_case *check,
                      uint32_t variant)
{
    struct session *s = tuner->session;
    if (check->shape && check->shape != its) {
        verify_free(check, &s->gpu);
        check->shape = NULL;
    }
    if (!check->shape) {
        if (!verify_prepare(check, its, "@pad", s->library))
            die(2, "%s: no case for the family's own arguments", its->name);
        if (verify_upload(check, &s->gpu) != GEN_OK)
            die(2, "%s: %s", check->name, gen_last_error());
    }
    return verify_one(tuner, check, variant);
}

/* Verifies the candidates not yet verified; the refused ones leave the list.
 * False when the GPU is lost. */
static bool verify_candidates(struct tuner *tuner, struct race *c, const struct shape_list *small)
{
    struct verify_case check = {.shape = NULL};
    bool going = true;
    size_t kept = 0;
    for (size_t i = 0; i < c->count && going; i++) {
        const uint32_t variant = c->candidate[i].variant;
        const char *name = session_variant(tuner->session, variant).name;
        const char *known = worker_reason(tuner->worker, name);
        if (known)
            refuse(tuner, variant, known);
        if (!tuner->good[variant] && !tuner->refused[variant]) {
            const struct shape *its = tune_case(tuner->session, small, c->shape, name);
            if (its)
                going = verify_on(tuner, its, &check, variant);
            else
                refuse(tuner, variant, "no @tiny line of its verify list fits it");
        }
        if (going && tuner->good[variant] && !tuner->refused[variant])
            c->candidate[kept++] = c->candidate[i];
    }
    c->lost = !going;
    c->count = kept;
    if (check.shape)
        verify_free(&check, going ? &tuner->session->gpu : NULL);
    return going;
}

/* ---- the row ----------------------------------------------------------- */

static void put_row(struct tuner *tuner, const struct race *c, int winner, int runner_up)
{
    char *others = race_others(c, winner, runner_up);
    gen_variant_info v = session_variant(tuner->session, c->candidate[winner].variant);
    char coords[128], digest[17], code[17];
    coords_format(c->shape->family, &c->shape->key, coords, sizeof coords);
    snprintf(digest, sizeof digest, "%016" PRIx64, v.digest);
    snprintf(code, sizeof code, "%016" PRIx64, v.code_digest);
    struct table_row row = {
        .family = c->shape->family->name,
        .required = v.required,
        .problem = coords,
        .variant = v.name,
        .us = c->measured[winner].us,
        .spread = c->measured[winner].spread,
        .runner_up = runner_up >= 0 ? c->measured[runner_up].name : "-",
        .runner_up_us = runner_up >= 0 ? c->measured[runner_up].us : 0,
        .toolkit = tuner->table->identity.toolkit,
        .driver = tuner->table->identity.driver,
        .others = others,
    };
    memcpy(row.digest, digest, sizeof row.digest);
    memcpy(row.code, code, sizeof row.code);
    table_put(tuner->table, &row);
    free(others);
}

/* ---- the race ------------------------------------------------------- */

/* Is the variant of that name (NULL: any) among the candidates, and not refused? */
static bool stands(const struct tuner *tuner, const struct race *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++) {
        const uint32_t variant = c->candidate[i].variant;
        if (!tuner->refused[variant] &&
            (!name || strcmp(session_variant(tuner->session, variant).name, name) == 0))
            return true;
    }
    return false;
}

/* Between the variants that `only` names. With `holder`, the variant of a row, its row is
 * refreshed: TUNE_NONE if the holder is not among them or is refused, whoever else is not. */
static enum tune_outcome tune_among(struct tuner *tuner, const struct shape *shape,
                                    const struct shape_list *small, const struct option_list *only,
                                    const char *holder)
{
    struct race c = {.worker = tuner->worker,
                     .rest_ms = shape_rest_ms(shape, tuner->rest_ms),
                     .on_failure = on_failure,
                     .context = tuner};
    enum tune_outcome outcome = TUNE_NONE;
    race_find(&c, tuner->session, shape, only, tuner->refused);
    if (race_strike(&c) > 0 && verify_candidates(tuner, &c, small) && stands(tuner, &c, holder)) {
        if (race_stage(&c, &tuner->arena) != GEN_OK) {
            outcome = TUNE_ERROR;
        } else {
            int runner_up = -1, count;
            const struct halving_pass *chosen =
                tune_passes(tuner->quick, holder != NULL, race_predicted(&c), &count);
            int winner = race_run(&c, chosen, count, tuner->tie_band, -1, &runner_up);
            if (winner >= 0 && !c.lost && stands(tuner, &c, holder)) {
                put_row(tuner, &c, winner, runner_up);
                outcome = TUNE_DONE;
            }
        }
    }
    if (c.lost)
        outcome = TUNE_LOST;
    race_close(&c);
    return outcome;
}

enum tune_outcome tune_bucket(struct tuner *tuner, const struct shape *shape,
                              const struct shape_list *small)
{
    return tune_among(tuner, shape, small, tuner->only, NULL);
}

/* The product's own name for a variant that may take part; NULL if there is none. The table's goes
 * with its row, and could be a glob. */
static const char *name_of(const struct tuner *tuner, const char *variant)
{
    gen_variant_info info = {.size = sizeof(info)};
    const bool known = session_find_variant(tuner->session, variant, &info);
    return known && glob_match_any(tuner->only, info.name) ? info.name : NULL;
}

void tune_pair(const struct tuner *tuner, const struct shape *shape, const struct table_row *row,
               struct option_list *pair)
{
    const char *const names[] = {row->variant, row->runner_up};
    gen_variant_info v = {.size = sizeof(v)};
    pair->count = 0;
    for (int i = 0; i < 2; i++) {
        const char *name = name_of(tuner, names[i]);
        if (!name && i == 0)
            return;
        if (name && session_find_variant(tuner->session, name, &v) &&
            !session_passes_over(tuner->session, shape->problem, &v))
            pair->item[pair->count++] = name;
    }
}

enum tune_outcome tune_refresh(struct tuner *tuner, const struct shape *shape,
                               const struct shape_list *small, const struct table_row *row)
{
    struct option_list pair = {.count = 0};
    enum tune_outcome outcome = TUNE_NONE;
    tune_pair(tuner, shape, row, &pair);
    if (pair.count)
        outcome = tune_among(tuner, shape, small, &pair, pair.item[0]);
    return outcome == TUNE_NONE ? tune_bucket(tuner, shape, small) : outcome;
}
