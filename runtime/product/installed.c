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

/* Adds `name` in the folder of the first `length` characters, or where it is NULL these alone. */
static enum gen_status add_path(struct gen__paths *paths, const char *folder, size_t length,
                                const char *name)
{
    const size_t size = length + (name ? strlen(name) : 0) + 2;
    char **grown = malloc((paths->count + 1) * sizeof(*grown));
    char *path = malloc(size);
    if (!grown || !path) {
        free(grown);
        free(path);
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for the paths of products");
    }
    snprintf(path, size, "%.*s%s%s", (int)length, folder, name ? "/" : "", name ? name : "");
    if (paths->count)
        memcpy(grown, paths->at, paths->count * sizeof(*grown));
    free(paths->at);
    paths->at = grown;
    paths->at[paths->count++] = path;
    return GEN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum gen_status gen__folder_products(struct gen__paths *paths, const char *folder)
{
    const size_t first = paths->count;
    enum gen_status status = GEN_OK;
    DIR *entries = opendir(folder);
    if (!entries && (errno == ENOENT || errno == ENOTDIR))
        return GEN_OK;
    if (!entries)
        return gen__fail(GEN_STATUS_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (const struct dirent *entry; !status && (entry = readdir(entries)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        if (length > strlen(SUFFIX) && strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX) == 0)
            status = add_path(paths, folder, strlen(folder), entry->d_name);
    }
    closedir(entries);
    if (paths->count > first)
        qsort(paths->at + first, paths->count - first, sizeof(*paths->at), by_name);
    return status;
}

/* Adds a file that was named, or the products of a folder that was. */
static enum gen_status add_named(struct gen__paths *paths, const char *name, size_t length)
{
    struct stat about;
    enum gen_status status = add_path(paths, name, length, NULL);
    if (status || stat(paths->at[paths->count - 1], &about) != 0 || !S_ISDIR(about.st_mode))
        return status; /* opening says what is no file */
    char *folder = paths->at[--paths->count];
    const size_t before = paths->count;
    status = gen__folder_products(paths, folder);
    if (!status && paths->count == before)
        status = gen__fail(GEN_STATUS_IO, VARIABLE " names the folder %s, which has no *" SUFFIX,
                           folder);
    free(folder);
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
         * current folder, where another user may have put a product. */
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
    enum gen_status status = add_path(paths, own, length, PRODUCT);
    if (status || access(paths->at[0], F_OK) == 0)
        return status;
    gen__paths_free(paths);
    status = add_path(paths, own, length, FOLDER);
    if (status)
        return status;
    char *folder = paths->at[--paths->count];
    status = gen__folder_products(paths, folder);
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
