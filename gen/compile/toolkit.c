#include "compile/toolkit.h"

#include "util/file.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The build may name the toolkit's folder of programs. */
#ifndef ATTNGEN_TOOLKIT_BIN
#define ATTNGEN_TOOLKIT_BIN "/usr/local/cuda/bin"
#endif

static const char *nvrtc_path(struct arena *arena)
{
    Dl_info info;
    void *address;
    nvrtcResult (*function)(int *, int *) = nvrtcVersion;
    memcpy(&address, &function, sizeof address);
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return "";
    char *real = realpath(info.dli_fname, NULL);
    const char *path = arena_string(arena, real != NULL ? real : info.dli_fname);
    free(real);
    return path;
}

static const char *try_program(struct arena *arena, struct toolkit *toolkit, const char *folder)
{
    const char *path = arena_printf(arena, "%s/fatbinary", folder);
    toolkit->looked_for = arena_printf(arena, "%s%s%s", toolkit->looked_for,
                                       toolkit->looked_for[0] != '\0' ? ", " : "", folder);
    if (access(path, X_OK) != 0)
        return NULL;
    /* Workers run it from a folder of their own. */
    char *real = realpath(path, NULL);
    path = real != NULL ? arena_string(arena, real) : path;
    free(real);
    return path;
}

static const char *find_on_path(struct arena *arena, struct toolkit *toolkit)
{
    const char *path = getenv("PATH");
    const char *found = NULL;
    while (path != NULL && *path != '\0' && found == NULL) {
        size_t size = strcspn(path, ":");
        if (size > 0)
            found = try_program(arena, toolkit, arena_copy(arena, path, size));
        path += size + (path[size] == ':');
    }
    return found;
}

/* $CUDA_HOME, the toolkit that NVRTC was loaded from, the build's, PATH. */
static const char *find_fatbinary(struct arena *arena, struct toolkit *toolkit, const char *nvrtc)
{
    const char *home = getenv("CUDA_HOME"), *found = NULL;
    if (home != NULL && home[0] != '\0')
        found = try_program(arena, toolkit, arena_printf(arena, "%s/bin", home));
    for (const char *p = strstr(nvrtc, "/lib"); found == NULL && p != NULL;
         p = strstr(p + 1, "/lib"))
        found =
            try_program(arena, toolkit, arena_printf(arena, "%.*s/bin", (int)(p - nvrtc), nvrtc));
    for (const char *p = strstr(nvrtc, "/targets/"); found == NULL && p != NULL; p = NULL)
        found =
            try_program(arena, toolkit, arena_printf(arena, "%.*s/bin", (int)(p - nvrtc), nvrtc));
    if (found == NULL)
        found = try_program(arena, toolkit, ATTNGEN_TOOLKIT_BIN);
    return found != NULL ? found : find_on_path(arena, toolkit);
}

static long long file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long long)st.st_size : 0;
}

void toolkit_find(struct arena *arena, struct toolkit *toolkit)
{
    int major = 0, minor = 0;
    nvrtcVersion(&major, &minor);
    const char *nvrtc = nvrtc_path(arena);
    toolkit->version = 100 * major + minor;
    toolkit->name = arena_printf(arena, "%d.%d", major, minor);
    toolkit->looked_for = "";
    toolkit->fatbinary = find_fatbinary(arena, toolkit, nvrtc);
    /* nvrtcVersion() does not tell 13.0.48 from 13.0.88; the sizes do. */
    toolkit->identity =
        arena_printf(arena, "nvrtc %d.%d %lld fatbinary %lld", major, minor, file_size(nvrtc),
                     toolkit->fatbinary != NULL ? file_size(toolkit->fatbinary) : 0);
}
