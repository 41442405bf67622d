#include "compile/compile.h"

#include "compile/sass.h"
#include "compile/code_digest.h"
#include "util/file.h"
#include "expand/source.h"

#include <errno.h>
#include <nvrtc.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MAX_OPTIONS = 16, MAX_HEADERS = 256 };

static double cpu_seconds(void)
{
    struct timespec own;
    struct rusage children;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return (double)own.tv_sec + 1e-9 * (double)own.tv_nsec +
           (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           1e-6 * (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec);
}

const char *compile_options(struct arena *arena, const struct arch *arch, bool line_info)
{
    return arena_printf(
        arena, "--gpu-architecture=%s -std=c++17 --no-source-include --ptxas-options=-v%s%s",
        arch->option, line_info ? " --generate-line-info" : "",
        arch->kind == GEN_PACK_PTX ? " --attngen-ptx" : "");
}

/* Splits the options in place; the marker of a PTX image is not the compiler's. */
static int split_options(char *text, const char *list[MAX_OPTIONS])
{
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < MAX_OPTIONS;
         word = strtok_r(NULL, " ", &rest))
        if (strcmp(word, "--attngen-ptx") != 0)
            list[count++] = word;
    return count;
}

static nvrtcResult run_compiler(nvrtcProgram program, const char *options)
{
    char words[512];
    const char *list[MAX_OPTIONS];
    snprintf(words, sizeof words, "%s", options);
    return nvrtcCompileProgram(program, split_options(words, list), list);
}

static void fail_result(struct compile_result *result, const char *what, const char *why)
{
    result->status = COMPILE_FAILED;
    result->log.size = 0;
    text_printf(&result->log, "%s: %s", what, why);
}

static void read_log(nvrtcProgram program, struct text *log)
{
    size_t size = 0;
    log->size = 0;
    if (nvrtcGetProgramLogSize(program, &size) != NVRTC_SUCCESS || size <= 1) {
        text_string(log, "");
        return;
    }
    char *text = calloc(size, 1);
    if (text != NULL && nvrtcGetProgramLog(program, text) == NVRTC_SUCCESS)
        text_string(log, text);
    free(text);
}

/* The machine code, or the PTX text, into `file`; its digest into *digest. */
static bool write_code(nvrtcProgram program, bool ptx, const char *symbol, const char *file,
                       uint64_t *digest)
{
    size_t size = 0;
    nvrtcResult got = ptx ? nvrtcGetPTXSize(program, &size) : nvrtcGetCUBINSize(program, &size);
    if (got != NVRTC_SUCCESS || size == 0)
        return false;
    char *code = calloc(size, 1);
    if (code == NULL)
        return false;
    got = ptx ? nvrtcGetPTX(program, code) : nvrtcGetCUBIN(program, code);
    size -= ptx; /* the NUL */
    bool ok = got == NVRTC_SUCCESS && file_write_unsynced(file, code, size);
    if (ok)
        *digest = code_digest(code, size, ptx, symbol);
    free(code);
    return ok;
}

/* fatbinary writes neither names nor times into its file: the bytes depend on the
 * code alone. */
static bool wrap(const struct arch *arch, const struct toolkit *toolkit, const char *code,
                 const char *fatbin)
{
    char create[64], image[128];
    const char *sm = strchr(arch->name, '_') + 1;
    snprintf(create, sizeof create, "--create=%s", fatbin);
    snprintf(image, sizeof image, "--image3=kind=%s,sm=%s,file=%s",
             arch->kind == GEN_PACK_PTX ? "ptx" : "elf", sm, code);
    char *argv[] = {(char[]){"fatbinary"},
                    (char[]){"--64"},
                    create,
                    (char[]){"--compress-mode=size"},
                    image,
                    NULL};
    pid_t pid;
    int status;
    if (posix_spawn(&pid, toolkit->fatbinary, NULL, NULL, argv, environ) != 0)
        return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool read_image(const char *file, struct text *image)
{
    struct arena arena = {0};
    size_t size;
    const char *data = file_read(&arena, file, &size);
    image->size = 0;
    if (data != NULL)
        text_add(image, data, size);
    arena_free(&arena);
    return data != NULL && size > 0;
}

static void make_image(nvrtcProgram program, const struct variant *variant,
                       const struct toolkit *toolkit, struct compile_result *result)
{
    bool ptx = variant->arch->kind == GEN_PACK_PTX;
    const char *code = ptx ? "code.ptx" : "code.cubin", *fatbin = "image.fatbin";
    if (!write_code(program, ptx, variant->symbol, code, &result->code_digest))
        fail_result(result, "the compiler's output cannot be kept", strerror(errno));
    else if (!wrap(variant->arch, toolkit, code, fatbin))
        fail_result(result, toolkit->fatbinary, "it failed");
    else if (!read_image(fatbin, &result->image))
        fail_result(result, "fatbinary's output cannot be read", strerror(errno));
    unlink(code);
    unlink(fatbin);
}

/* A line of the log, as ptxas writes them: the log is what the cache keeps. */
static void add_instructions(nvrtcProgram program, struct text *log)
{
    size_t size = 0;
    if (nvrtcGetCUBINSize(program, &size) != NVRTC_SUCCESS || size == 0)
        return;
    char *code = calloc(size, 1);
    if (code != NULL && nvrtcGetCUBIN(program, code) == NVRTC_SUCCESS)
        text_printf(log, "ptxas info    : %d SASS instructions, as attngen counts them\n",
                    sass_count(code, size));
    free(code);
}

void compile_variant(const struct variant *variant, const struct toolkit *toolkit,
                     const char *options, struct compile_result *result)
{
    double start = cpu_seconds();
    const char *texts[MAX_HEADERS], *names[MAX_HEADERS];
    char name[512];
    nvrtcProgram program;
    result->status = COMPILE_OK;
    result->log.size = result->image.size = 0;
    if (variant->num_headers > MAX_HEADERS) {
        fail_result(result, variant->name, "more than 256 headers");
        return;
    }
    for (size_t i = 0; i < variant->num_headers; i++) {
        texts[i] = variant->headers[i]->text;
        names[i] = variant->headers[i]->name;
    }
    snprintf(name, sizeof name, VIRTUAL_TEMPLATES "%s", variant->template->path);
    nvrtcResult got = nvrtcCreateProgram(&program, variant->source, name, (int)variant->num_headers,
                                         texts, names);
    if (got != NVRTC_SUCCESS) {
        fail_result(result, "nvrtcCreateProgram", nvrtcGetErrorString(got));
        return;
    }
    got = run_compiler(program, options);
    read_log(program, &result->log);
    if (got == NVRTC_ERROR_COMPILATION)
        result->status = COMPILE_REJECTED;
    else if (got != NVRTC_SUCCESS)
        fail_result(result, "nvrtcCompileProgram", nvrtcGetErrorString(got));
    else
        make_image(program, variant, toolkit, result);
    if (result->status == COMPILE_OK)
        add_instructions(program, &result->log);
    nvrtcDestroyProgram(&program);
    result->seconds = cpu_seconds() - start;
}

double compile_warm_up(const char *options)
{
    double start = cpu_seconds();
    nvrtcProgram program;
    if (nvrtcCreateProgram(&program, "__global__ void warm_up(float *x) { *x += 1.f; }\n",
                           "warm_up.cu", 0, NULL, NULL) == NVRTC_SUCCESS) {
        run_compiler(program, options);
        nvrtcDestroyProgram(&program);
    }
    return cpu_seconds() - start;
}
