/*
 * Families and their variants, as templates/<family>/family.lua specifies them.
 */
#ifndef SPEC_H
#define SPEC_H

#include "spec/model.h"

/* Opens the sandbox. Call once, before anything else here. */
void spec_open(struct session *session);
/* Reads every family of the templates folder that `names` holds (none: all). */
void spec_load_families(struct session *session, const char *const *names, size_t count);
/* Fills session->variants for session->families x session->targets, checks the
 * names and sorts by them. */
void spec_enumerate(struct session *session);

struct why_reason {
    const char *reason;
    size_t count;
};

/* What becomes of the combinations that a question names. */
struct why_answer {
    size_t total, num_legal, num_reasons;
    const char **legal; /* names */
    struct why_reason *reasons;
};

struct condition {
    const char *axis, *value;
};

/* By name glob (then `num_conditions` is 0) or by axis=value. False, with
 * *message set, if the family has no such axis or value. */
bool spec_why(struct session *session, const struct family *family, const struct arch *arch,
              const char *glob, const struct condition *conditions, size_t num_conditions,
              struct why_answer *answer, const char **message);

/* Pushes the environment that the variant's template runs in. */
void spec_push_environment(struct session *session, const struct variant *variant);

#endif /* SPEC_H */
