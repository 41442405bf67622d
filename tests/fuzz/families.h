/* For the targets that go through the real families: the recorded product of all of them, and a
 * problem of the input's. */
#ifndef FUZZ_FAMILIES_H
#define FUZZ_FAMILIES_H

#include "input.h"

#include "family/family.h"

union any_problem {
    gen_problem base;
    int32_t words[64];
};

/* Opens it; aborts where that fails. */
gen_library *families_open(void);
/* The family that the input names. */
const struct gen__family *families_draw(struct input *input);
/* A problem of the family with every field at its preset. */
void families_preset(const struct gen__family *family, union any_problem *problem);

#endif /* FUZZ_FAMILIES_H */
