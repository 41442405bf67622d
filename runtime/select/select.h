/* The parts of selection that gen_explain() and the failure messages use too. */
#ifndef GEN_SELECT_H
#define GEN_SELECT_H

#include "core/text.h"
#include "product/library.h"

/* Octaves that a row serves around its problem where the product lacks variants of other rows. */
#define GEN__REACH_WITH_HOLES 1.0f

/* A checked question. */
struct gen__query {
    const gen_library *library;
    const gen_device *device;
    const gen_problem *problem;
    const struct gen__family *family;
    const struct gen__key_entry *entry; /* NULL: the product has none */
    struct gen__key key;
    bool untimed; /* the predicted time is not needed */
    /* The problem of a caller whose struct has another size. */
    union {
        gen_problem base;
        uint64_t words[GEN__MAX_PROBLEM / 8];
    } resized;
};

/* Why a variant cannot run a problem on a device. */
enum gen__reject {
    GEN__FITS = 0,
    GEN__REJECT_TARGET,
    GEN__REJECT_SHARED,
    GEN__REJECT_FAMILY, /* gen__family.fits() says why */
    GEN__REJECT_WORKSPACE,
    GEN__REJECT_PTX /* eligible, but machine code is, too: gen_explain() alone says so */
};

struct gen__choice {
    const struct gen__facts *facts; /* of the variant; NULL: none is needed */
    enum gen_why why;
    float us; /* 0: nothing is known */
    /* Where a table decided: the rows of its class, the row (NULL: none did), and how far it is. */
    const struct gen__class_rows *rows;
    const struct gen_pack_row *row;
    float octaves;
};

/* Checks the arguments and finds the entry. Errors: INVALID_ARGUMENT. */
enum gen_status gen__query(const gen_library *library, const gen_device *device,
                           const gen_problem *problem, struct gen__query *query);

/* Can the variant run the problem? *why gets the family's reason. */
enum gen__reject gen__eligible(const struct gen__query *query, uint32_t variant, const char **why);

/* Do rows of the key, for code that runs on the device, name variants that the product lacks? */
bool gen__lacks_rows(const struct gen__query *query);
/* The first rule that finds an eligible variant decides; false if none does. */
bool gen__choose(const struct gen__query *query, struct gen__choice *choice);

/* The parts of a plan that the family made of these facts, not yet filled; 0 where it has none. */
uint32_t gen__parts(const struct gen__query *query, const struct gen__facts *facts,
                    const gen_plan *plan, struct gen__part parts[GEN_PLAN_MAX_LAUNCHES]);

/* The family's estimate in microseconds; 0 where it has none. */
float gen__predict(const struct gen__query *query, uint32_t variant);

/* Appends a rejection: "needs 65536 bytes of shared memory, ...". */
void gen__reject_text(struct gen__text *text, const struct gen__query *query, uint32_t variant,
                      enum gen__reject reject, const char *why);

/* Says of a problem that no variant fits: the nearest ones, what each fails, and the command that
 * adds what is missing. */
void gen__unsupported_text(struct gen__text *text, const struct gen__query *query);

/* Logs a selection that the rules have made. `choice` is NULL where they found nothing; `part_of`
 * is the family whose plan it is a launch of, or NULL. */
void gen__log_select(const struct gen__query *query, enum gen_status status,
                     const struct gen__choice *choice, const char *part_of);

static inline bool gen__logs_select(const gen_library *library)
{
    return gen__logs(library, GEN_LOG_SELECT | GEN_LOG_EXPLAIN);
}

#endif /* GEN_SELECT_H */
