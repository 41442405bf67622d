#include "common/util.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const struct option *options, int num_options, const char *usage)
{
    printf("%s\nOptions:\n", usage);
    for (int i = 0; i < num_options; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", options[i].name,
                 options[i].metavar ? options[i].metavar : "");
        printf("  %-24s %s\n", left, options[i].help);
    }
    printf("  %-24s %s\n", "--help", "this text");
}

static bool read_whole(const char *text, long *value)
{
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    return end != text && !*end && !errno && *value >= 0 && *value <= INT_MAX;
}

static bool read_real(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value) && *value >= 0;
}

static void set_value(const struct option *o, const char *text)
{
    struct option_list *list = o->value;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)o->value = true;
        return;
    case OPTION_TEXT:
        *(const char **)o->value = text;
        return;
    case OPTION_INT:
        if (!read_whole(text, o->value))
            die(1, "%s takes a whole number from 0 to %d, found '%s'", o->name, INT_MAX, text);
        return;
    case OPTION_REAL:
        if (!read_real(text, o->value))
            die(1, "%s takes a number from 0, found '%s'", o->name, text);
        return;
    case OPTION_LIST:
        if (list->count == OPTION_LIST_MAX)
            die(1, "%s is given more than %d times", o->name, OPTION_LIST_MAX);
        list->item[list->count++] = text;
        return;
    }
}

int options_parse(const struct option *options, int num_options, const char *usage, int argc,
                  char **argv, const char **rest)
{
    int num_rest = 0;
    bool only_words = false;
    bool *given = xmalloc((size_t)num_options * sizeof *given);
    memset(given, 0, (size_t)num_options * sizeof *given);
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (only_words || strncmp(word, "--", 2) != 0) {
            rest[num_rest++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_words = true;
            continue;
        }
        if (strcmp(word, "--help") == 0) {
            print_help(options, num_options, usage);
            exit(0);
        }
        char *equals = strchr(word, '=');
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        const struct option *o = NULL;
        for (int k = 0; k < num_options; k++)
            if (strlen(options[k].name) == length && memcmp(options[k].name, word, length) == 0)
                o = &options[k];
        if (!o)
            die(1, "unknown option %.*s; --help lists the known ones", (int)length, word);
        /* Of two values the first would be lost in silence. */
        if (given[o - options] && o->kind != OPTION_FLAG && o->kind != OPTION_LIST)
            die(1, "%s is given twice; allowed: once", o->name);
        given[o - options] = true;
        if (o->kind == OPTION_FLAG) {
            if (equals)
                die(1, "%s takes no value", o->name);
            set_value(o, NULL);
        } else if (equals) {
            set_value(o, equals + 1);
        } else if (i + 1 < argc) {
            set_value(o, argv[++i]);
        } else {
            die(1, "%s takes a value: %s", o->name, o->metavar ? o->metavar : "VALUE");
        }
    }
    free(given);
    return num_rest;
}
