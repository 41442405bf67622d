/*
 * verify.h - is a variant's result that of the reference? Outputs are poisoned
 * and every tensor is fenced by canaries; what must not change must be bit-equal
 * afterwards, NaNs and infinities must stand where the reference has them, and
 * repeated launches must agree to the bit. 16-bit outputs lie within one rounding
 * of the exact value where the family offers exact().
 */
#ifndef BENCH_VERIFY_H
#define BENCH_VERIFY_H

#include "common/buffers.h"
#include "common/gpu.h"
#include "common/problems.h"

/* A problem with its inputs and its expected result, on the host and (inputs)
 * on the device. */
struct verify_case {
    const struct shape *shape;
    struct buffers buffers;
    uint8_t *initial, *expected, *actual, *again; /* blocks on the host */
    double *exact[GEN__MAX_TENSORS]; /* 16-bit outputs before their rounding, or NULL */
    CUdeviceptr device, pristine;    /* blocks on the device */
    bool poisoned;                   /* what is NaN in the reference may be anything */
    int steps;                       /* launches, each on what the last one left */
    char name[192];
};

struct verify_result {
    bool ok;
    char reason[256]; /* why not */
    double error;     /* greatest relative Frobenius error of a tensor */
    char tensor[32];  /* whose */
    uint64_t worst;   /* index of its element that is furthest off */
};

/* Controls: words of a verify file's line.
 *   @pad           every third slot is a padding slot, or what the family makes of it
 *   @nan           a NaN and an infinity in the state, likewise
 *   @poison        keys and values (or the state) of one head of one request are NaN:
 *                  its outputs may be anything, all others are as without
 *   @tiny          of the small list for sanitizers
 *   @invariant     GEN_BATCH_INVARIANT
 *   @form=NAME     another form of the arguments, as the family names it
 *   @data=KIND     inputs that hurt, as gen__data_names has them
 *   @steps=N       so many launches, each on the state that the last one left
 * Returns false if the case does not exist for this problem (such a form, such
 * data); dies at unknown words. */
bool verify_prepare(struct verify_case *c, const struct shape *shape, const char *controls,
                    const gen_library *library);
/* Puts the inputs on the device. */
enum gen_status verify_upload(struct verify_case *c, const struct gpu *gpu);
void verify_free(struct verify_case *c, const struct gpu *gpu);

/* Runs a variant (NULL: the selected one) `repeats` times, each time from the
 * same memory, and compares. Everything that goes wrong is in *result. */
void verify_variant(struct verify_case *c, const struct gpu *gpu, const gen_library *library,
                    const char *variant, int repeats, struct verify_result *result);

/* What element i of output t is compared with: c->exact where there is one, or c->expected. */
double verify_expected(const struct verify_case *c, uint32_t t, uint64_t i);

/* Compares c->actual with c->expected. */
void verify_compare(const struct verify_case *c, struct verify_result *result);

/* A family's verify list: each line for every required key. Dies if it is
 * missing or malformed. */
void verify_list(struct shape_list *list, const struct gen__family *family, const char *path);

/* Adds small problems of each required key, as the reference takes hours for those that are timed:
 * the verify list's `@tiny` lines, those with padding (several heads, not one of a kind) before the
 * others. */
void verify_small(struct shape_list *small, const struct gen__family *family);

#endif /* BENCH_VERIFY_H */
