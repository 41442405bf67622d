#include "tune/log_file.h"

#include <stdlib.h>
#include <string.h>

#define HEAD "select family="

/* Copies the word behind `key` ("status="); "" where there is none. */
static void word_of(const char *line, const char *key, char *word, size_t capacity)
{
    const char *at = strstr(line, key);
    const size_t length = at ? strcspn(at + strlen(key), " ") : 0;
    snprintf(word, capacity, "%.*s", (int)(length < capacity ? length : capacity - 1),
             at ? at + strlen(key) : "");
}

static const struct gen__family *named(const struct gen__family *const *families, uint32_t count,
                                       const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

static void read_line(struct shape_list *list, const struct gen__family *const *families,
                      uint32_t num_families, const char *line, const char *where,
                      struct log_counts *counts)
{
    char name[64], status[32];
    const char *problem = strstr(line, " problem=");
    counts->selections++;
    word_of(line, HEAD, name, sizeof name);
    word_of(line, " status=", status, sizeof status);
    const struct gen__family *family = named(families, num_families, name);
    if (!family && gen__family_by_name(name)) {
        counts->other++;
    } else if (!family || !problem) {
        if (family)
            warn("%s: no \"problem=\"; the line is cut short", where);
        else
            warn("%s: unknown family '%s'", where, name);
        counts->bad++;
    } else if (*status && strcmp(status, "OK") != 0) {
        counts->unsupported++;
    } else if (shapes_parse(list, family, SHAPES_TIMED, problem + strlen(" problem="))) {
        struct shape *s = &list->item[list->count - 1];
        snprintf(s->where, sizeof s->where, "%s", where);
    } else {
        warn("%s: %s", where, gen_last_error());
        counts->bad++;
    }
}

bool log_read(struct shape_list *list, const struct gen__family *const *families,
              uint32_t num_families, const char *path, struct log_counts *counts)
{
    char *data = file_read(path, NULL);
    size_t number = 0;
    if (!data)
        return false;
    for (char *line = data, *next; line; line = next) {
        char where[160];
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        const char *head = strstr(text_trim(line), HEAD);
        if (!head)
            continue;
        snprintf(where, sizeof where, "%.130s:%zu", path, number);
        read_line(list, families, num_families, head, where, counts);
    }
    free(data);
    return true;
}
