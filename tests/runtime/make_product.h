/*
 * Makes small products in memory, so that the runtime's tests need neither the
 * generator nor a compiler. Images are what fake_cuda.h describes.
 *
 * Families first, then targets, then groups, then variants; names are copied.
 * Any number that is out of range is a bug of the test and aborts.
 */
#ifndef MAKE_PRODUCT_H
#define MAKE_PRODUCT_H

#include "format/product.h"

#include "gen.h"

#include <stdbool.h>
#include <stddef.h>

struct product;

struct product *product_new(void);
void product_free(struct product *product);

uint32_t product_family(struct product *product, const char *name, const char *required,
                        const char *facts);
uint32_t product_target(struct product *product, const char *name, uint32_t compute_capability,
                        enum gen_pack_target_kind kind);
uint32_t product_group(struct product *product, const char *name, const char *values,
                       uint32_t family, uint32_t target);

/* Says that tables have rows of a group whose variants the product has not. */
void product_lacks_rows(struct product *product, uint32_t group);

struct product_variant {
    const char *name;
    uint32_t threads; /* 0: 128 */
    uint32_t shared_dynamic, shared_static, registers;
    uint32_t cluster; /* 0: 1 */
    int32_t facts[GEN_PACK_MAX_FACTS];
    int fallback;
    int image_for;        /* compute capability the fake image runs on; 0: any */
    const char *symbol;   /* NULL: the name */
    uint64_t digest;      /* 0: a hash of the name */
    uint64_t code_digest; /* 0: the other one, inverted */
};

/* Returns the digest the product gives the variant. */
uint64_t product_variant(struct product *product, uint32_t group, struct product_variant variant);

void product_table(struct product *product, const char *name, const char *text);

/* The file's bytes, to be freed. */
void *product_bytes(const struct product *product, size_t *size);
/* Writes the product, frees it and opens the file, whose bytes are to be freed behind the library.
 */
enum gen_status product_open(struct product *product, void **bytes, gen_library **library);

/* Makes the hashes of changed bytes those that they should be; of the images if asked to. */
void product_reseal(void *bytes, size_t size, bool images);

#endif /* MAKE_PRODUCT_H */
