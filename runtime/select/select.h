/* The parts of selection that gen_explain() and the failure messages use too. */
#ifndef GEN_SELECT_H
#define GEN_SELECT_H

#include "product/library.h"
#include "select/memo.h"

struct gen__text;

/* Of enum gen_problem_flag. */
#define GEN__PROBLEM_FLAGS ((uint32_t)(GEN_DETERMINISTIC | GEN_BATCH_INVARIANT | GEN_SERIAL_LAUNCH))

/* Octaves that a row serves around its problem where the product lacks variants of other rows. */
#define GEN__REACH_WITH_HOLES 1.0f

/* A checked question. */
struct gen__ask {
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
    const struct gen__facts *facts; /* of the variant */
    enum gen_why why;
    float us; /* 0: nothing is known */
    /* Where a table decided: the rows of its class, the row (NULL: none did), and how far it is. */
    const struct gen__class_rows *rows;
    const struct gen_pack_row *row;
    float octaves;
};

/* Checks the arguments and finds the entry. Errors: INVALID_ARGUMENT. gen__ask_family() is the same
 * of a device that was checked and a problem whose family is known. */
enum gen_status gen__ask_family(const gen_library *library, const gen_device *device,
                                const gen_problem *problem, const struct gen__family *family,
                                struct gen__ask *ask);
enum gen_status gen__ask(const gen_library *library, const gen_device *device,
                         const gen_problem *problem, struct gen__ask *ask);

/* Can the variant run the problem? `*why` (may be NULL) gets the family's
 * reason. */
enum gen__reject gen__eligible(const struct gen__ask *ask, uint32_t variant, const char **why);

/* Do rows of the key, for code that runs on the device, name variants that the product lacks? */
bool gen__lacks_rows(const struct gen__ask *ask);
/* The first rule that finds an eligible variant decides; false if none does. */
bool gen__choose(const struct gen__ask *ask, struct gen__choice *choice);

/* The parts of a plan that the family made of these facts, not yet filled; 0
 * where it has none. */
uint32_t gen__parts(const struct gen__ask *ask, const struct gen__facts *facts,
                    const gen_plan *plan, struct gen__part parts[GEN_PLAN_MAX_LAUNCHES]);
/* What a part asks; `part` must outlive it. */
static inline enum gen_status gen__part_ask(const struct gen__ask *whole,
                                            const struct gen__part *part, struct gen__ask *ask)
{
    const gen_problem *problem = &part->problem.base;
    const struct gen__family *family = gen__family_find(whole->library, problem->family);
    return family ? gen__ask_family(whole->library, whole->device, problem, family, ask)
                  : gen__ask(whole->library, whole->device, problem, ask);
}

/* The family's estimate in microseconds; 0 where it has none. */
float gen__predict(const struct gen__ask *ask, uint32_t variant);

/* Spells a rejection out: "needs 65536 bytes of shared memory, ...". */
void gen__reject_text(const struct gen__ask *ask, uint32_t variant, enum gen__reject reject,
                      const char *why, char *text, size_t capacity);

/* Says of a problem that no variant fits: the nearest ones, what each fails, and
 * the command that adds what is missing. */
void gen__unsupported_text(const struct gen__ask *ask, struct gen__text *text);
/* The same as the calling thread's message. */
enum gen_status gen__unsupported(const struct gen__ask *ask);

/* Logs a selection that the rules have made. `choice` is NULL where they chose no variant;
 * `part_of` is the family whose plan it is a launch of, or NULL. */
void gen__log_select(const struct gen__ask *ask, enum gen_status status, enum gen_why why,
                     const struct gen__choice *choice, const char *part_of);

static inline bool gen__logs_select(const gen_library *library)
{
    return gen__logs(library, GEN_LOG_SELECT) || gen__logs(library, GEN_LOG_EXPLAIN);
}

#endif /* GEN_SELECT_H */
