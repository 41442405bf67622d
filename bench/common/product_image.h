/*
 * product_image.h - one variant's image out of the product file, for loading it
 * without the runtime.
 */
#ifndef BENCH_PRODUCT_IMAGE_H
#define BENCH_PRODUCT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

struct product_image {
    void *data; /* malloced copy */
    size_t size;
    char symbol[256];
};

/* By the variant's name. False (and nothing allocated) if the file is not a
 * product or has no such variant. */
bool product_image_read(const char *path, const char *variant, struct product_image *image);
void product_image_free(struct product_image *image);

#endif /* BENCH_PRODUCT_IMAGE_H */
