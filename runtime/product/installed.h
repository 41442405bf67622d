/* The product that is opened where the caller names none. */
#ifndef GEN_INSTALLED_H
#define GEN_INSTALLED_H

#include "core/status.h"

struct gen__paths {
    char **at;
    size_t count;
};

/* The files that $ATTNGEN_PRODUCT_PATH names, separated by colons, where a folder stands for the
 * files *.fatbin in it; else attngen.fatbin in the folder of this library, or of the program that
 * it is linked into; else the files *.fatbin of the folder attngen there. At least one, to be freed
 * with gen__paths_free() also after a failure. Errors: IO (there is none; the message names the
 * places), OUT_OF_MEMORY. */
enum gen_status gen__installed_products(struct gen__paths *paths);
/* Adds the files *.fatbin of a folder in the order of their names; none where there is no such
 * folder. Errors: IO (it cannot be read), OUT_OF_MEMORY. */
enum gen_status gen__folder_products(struct gen__paths *paths, const char *folder);
void gen__paths_free(struct gen__paths *paths);

#endif /* GEN_INSTALLED_H */
