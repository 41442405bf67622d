/*
 * attngen: runs the program of a command. `attngen tune` is attngen-tune, a command that has no
 * program of its own is the generator's. This one needs libc alone, so that what only measures and
 * selects runs where the generator's libraries (Lua, NVRTC) are not installed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From this program's folder: as installed and as built. */
static const char *const program_folders[] = {"", "/../libexec/attngen"};
enum { NUM_FOLDERS = sizeof program_folders / sizeof program_folders[0] };
static const char generator[] = "generator";

/* The folder of this program, or "". */
static const char *own_folder(void)
{
    static char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = '\0';
    return slash != NULL ? path : "";
}

/* Does not return if there is such a program. */
static void run(const char *name, char **argv)
{
    char path[2 * PATH_MAX];
    for (int i = 0; i < NUM_FOLDERS && strchr(name, '/') == NULL; i++) {
        const int size =
            snprintf(path, sizeof path, "%s%s/attngen-%s", own_folder(), program_folders[i], name);
        if (size > 0 && (size_t)size < sizeof path && access(path, X_OK) == 0)
            execv(path, argv);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Of an installation that has no generator. */
static void list_programs(FILE *out)
{
    for (int i = 0; i < NUM_FOLDERS; i++) {
        char path[2 * PATH_MAX], *names[64];
        size_t count = 0;
        snprintf(path, sizeof path, "%s%s", own_folder(), program_folders[i]);
        DIR *folder = opendir(path);
        for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
            if (strncmp(entry->d_name, "attngen-", 8) == 0 && count < 64)
                count += (names[count] = strdup(entry->d_name + 8)) != NULL;
        if (folder != NULL)
            closedir(folder);
        if (count > 0)
            qsort(names, count, sizeof *names, by_name);
        for (size_t k = 0; k < count; k++) {
            fprintf(out, "  %-8s attngen %s --help says more\n", names[k], names[k]);
            free(names[k]);
        }
    }
}

static int without_generator(int argc, char **argv)
{
    const bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                                   strcmp(argv[1], "help") == 0);
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("attngen %s\n", ATTNGEN_VERSION);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (!help)
        fprintf(stderr,
                "attngen: %s%s: this installation has no generator (attngen-generator beside this "
                "program or in ../libexec/attngen); it has:\n",
                argc > 1 ? "unknown command " : "no command given", argc > 1 ? argv[1] : "");
    list_programs(help ? stdout : stderr);
    return help && fflush(stdout) == 0 ? 0 : 1;
}

/* Where one of them is closed, the next file opened would get its number and what is printed. */
static void open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    open_standard_files();
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        char *ask[] = {argv[2], (char[]){"--help"}, NULL};
        run(argv[2], ask);
    } else if (argc > 1 && strcmp(argv[1], generator) != 0) {
        run(argv[1], argv + 1);
    }
    if (argc > 0)
        run(generator, argv);
    return without_generator(argc, argv);
}
