/* Finding the installed product. */
#include "product/installed.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "ATTNGEN_PRODUCT_PATH"
#define SUFFIX ".fatbin"
#define PRODUCT "attngen" SUFFIX
#define FOLDER "attngen" /* beside the library: a file a package of kernels */

void gen__paths_free(struct gen__paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->at[i]);
    free(paths->at);
    *paths = (struct gen__paths){NULL, 0};
}

/* Takes `path`; NULL: there was no memory for it. */
static enum gen_status add_path(struct gen__paths *paths, char *path)
{
    char **grown = path ? realloc(paths->at, (paths->count + 1) * sizeof(*grown)) : NULL;
    if (!grown) {
        free(path);
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for the paths of products");
    }
    paths->at = grown;
    paths->at[paths->count++] = path;
    return GEN_OK;
}

/* `name` in the folder of the first `length` characters; NULL: no memory. */
static char *path_in(const char *folder, size_t length, const char *name)
{
    char *path;
    return asprintf(&path, "%.*s/%s", (int)length, folder, name) < 0 ? NULL : path;
}

static int is_product(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(entry->d_name + length - suffix, SUFFIX) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

enum gen_status gen__folder_products(struct gen__paths *paths, const char *folder)
{
    struct dirent **entries;
    enum gen_status status = GEN_OK;
    const int count = scandir(folder, &entries, is_product, by_name);
    if (count < 0 && (errno == ENOENT || errno == ENOTDIR))
        return GEN_OK;
    if (count < 0)
        return gen__fail(GEN_STATUS_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (!status)
            status = add_path(paths, path_in(folder, strlen(folder), entries[i]->d_name));
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Adds a file that was named, or the products of a folder that was. */
static enum gen_status add_named(struct gen__paths *paths, const char *name, size_t length)
{
    struct stat about;
    char *path = strndup(name, length);
    if (!path || stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return add_path(paths, path); /* opening says what is no file */
    const size_t before = paths->count;
    enum gen_status status = gen__folder_products(paths, path);
    if (!status && paths->count == before)
        status =
            gen__fail(GEN_STATUS_IO, VARIABLE " names the folder %s, which has no *" SUFFIX, path);
    free(path);
    return status;
}

/* The folder of this library, or of the program that it is part of. */
static const char *own_folder(char buffer[PATH_MAX], size_t *length)
{
    static const char here;
    Dl_info self;
    const char *path = dladdr(&here, &self) && self.dli_fname ? self.dli_fname : "";
    if (!strchr(path, '/')) {
        /* A program that was found on $PATH; by its bare name it would be looked for in the
         * current folder, where anybody may have put a product. */
        const ssize_t size = readlink("/proc/self/exe", buffer, PATH_MAX - 1);
        buffer[size > 0 ? size : 0] = '\0';
        path = buffer;
    }
    const char *slash = strrchr(path, '/');
    *length = slash ? (size_t)(slash - path) : 0;
    return slash ? path : NULL;
}

static enum gen_status add_beside(struct gen__paths *paths)
{
    char buffer[PATH_MAX];
    size_t length;
    const char *own = own_folder(buffer, &length);
    if (!own)
        return gen__fail(GEN_STATUS_IO, "there is no installed product: " VARIABLE
                                        " is not set, and the folder of this library is not known");
    char *file = path_in(own, length, PRODUCT);
    if (!file || access(file, F_OK) == 0)
        return add_path(paths, file);
    free(file);
    char *folder = path_in(own, length, FOLDER);
    if (!folder)
        return add_path(paths, NULL);
    enum gen_status status = gen__folder_products(paths, folder);
    if (!status && paths->count == 0)
        status = gen__fail(GEN_STATUS_IO,
                           "there is no installed product: " VARIABLE
                           " is not set, and there is neither %.*s/" PRODUCT " nor %s/*" SUFFIX,
                           (int)length, own, folder);
    free(folder);
    return status;
}

enum gen_status gen__installed_products(struct gen__paths *paths)
{
    /* A product is code for the GPU, so a program of more rights takes no path from its caller. */
    const char *at = secure_getenv(VARIABLE);
    enum gen_status status = GEN_OK;
    *paths = (struct gen__paths){NULL, 0};
    while (at && *at && !status) {
        const size_t length = strcspn(at, ":");
        if (length)
            status = add_named(paths, at, length);
        at += length + (at[length] == ':');
    }
    return status || paths->count ? status : add_beside(paths);
}
