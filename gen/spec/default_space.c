#include "spec/default_space.h"

#include "util/error.h"
#include "util/file.h"
#include "util/tsv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct name_list {
    const char **items;
    size_t count;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* False if the family has no such file. */
static bool read_list(struct session *session, const struct family *family, struct name_list *list)
{
    struct arena *arena = &session->arena;
    const char *path =
        arena_printf(arena, "%s/%s/" DEFAULT_SPACE_FILE, session->templates, family->name);
    size_t size, capacity = 0;
    *list = (struct name_list){0};
    if (!file_exists(path))
        return false;
    struct tsv lines = {.rest = file_read(arena, path, &size)};
    if (lines.rest == NULL)
        fail(session, "%s: cannot read it: %s", path, strerror(errno));
    for (char *line; (line = tsv_next(&lines)) != NULL;) {
        if (line[0] == '\0' || line[0] == '#')
            continue;
        const char *blank = strchr(line, ' ');
        if (strncmp(line, family->name, strlen(family->name)) != 0 || blank == NULL ||
            strchr(blank + 1, ' ') != NULL)
            fail(session,
                 "%s:%d: found '%s'; allowed: '%s_<required> <free axes>', as names "
                 "spell them",
                 path, lines.number, line, family->name);
        if (list->count == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 256;
            list->items =
                arena_grow(arena, list->items, list->count, capacity, sizeof *list->items);
        }
        list->items[list->count++] = line;
    }
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, by_text);
    return true;
}

/* As the list has it: "<group> <free axes>". */
static const char *listed_name(struct session *session, const struct variant *variant)
{
    const char *free = variant->name + strlen(variant->group) + 2 + strlen(variant->arch->tag);
    return arena_printf(&session->arena, "%s %s", variant->group, free[0] == '_' ? free + 1 : free);
}

void default_space_mark(struct session *session)
{
    for (size_t f = 0; f < session->num_families; f++) {
        struct name_list list;
        const bool listed = read_list(session, &session->families[f], &list);
        for (size_t i = 0; i < session->num_variants; i++) {
            struct variant *v = session->variants[i];
            if (v->family != &session->families[f] || v->fallback)
                continue;
            v->extra = v->trial;
            if (!listed)
                continue;
            const char *name = listed_name(session, v);
            v->extra = list.count == 0 ||
                       bsearch(&name, list.items, list.count, sizeof *list.items, by_text) == NULL;
        }
    }
}

void default_space_keep(struct session *session)
{
    size_t kept = 0;
    for (size_t i = 0; i < session->num_variants; i++)
        if (!session->variants[i]->extra)
            session->variants[kept++] = session->variants[i];
    session->num_extra += session->num_variants - kept;
    session->num_variants = kept;
}
