/* The questions: random, but the same at every run, and each by itself. */
#ifndef ORACLE_QUESTIONS_H
#define ORACLE_QUESTIONS_H

#include "product.h"

struct question {
    gen_device device;
    uint8_t behind[GEN__MOST_OUTPUT]; /* not zero: a device that says more is of nobody's version */
    const struct gen__family *family;
    union {
        gen_problem base;
        int32_t fields[GEN__MAX_PART_PROBLEM / 4];
    } problem;
    bool named;       /* gen_select_variant() with a variant near the one that selection takes: */
    uint32_t variant; /* so many further */
};

/* Question `index`; the same for the same index, seeds. */
void question_make(const struct recorded *recorded, uint32_t index, struct question *question);
/* One line of text. */
void question_print(const struct question *question, char *text, size_t capacity);

#endif /* ORACLE_QUESTIONS_H */
