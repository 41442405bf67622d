#include "measure/peer_file.h"
#include "common/util.h"

#include <stdlib.h>
#include <string.h>

/* What was said before of the same peer and case counts no more: a run beside ours comes behind
 * one that was recorded. */
static void add_time(struct peer_list *list, const struct peer_time *t)
{
    for (size_t i = 0; i < list->count; i++) {
        struct peer_time *old = &list->item[i];
        if (!strcmp(old->peer, t->peer) && !strcmp(old->name, t->name) &&
            !strcmp(old->family, t->family)) {
            *old = *t;
            return;
        }
    }
    list->item = xrealloc(list->item, (list->count + 1) * sizeof *list->item);
    list->item[list->count++] = *t;
}

static void add_note(struct peer_list *list, struct peer_note *note)
{
    for (size_t i = 0; i < list->num_notes; i++) {
        struct peer_note *old = &list->note[i];
        if (!strcmp(old->peer, note->peer) && !strcmp(old->family, note->family)) {
            free(old->text);
            *old = *note;
            return;
        }
    }
    list->note = xrealloc(list->note, (list->num_notes + 1) * sizeof *list->note);
    list->note[list->num_notes++] = *note;
}

static int read_line(struct peer_list *list, char *line, const char *family)
{
    char *field[5] = {line, line, line, line, line};
    int n = 0;
    for (char *p = line; p && n < 5; n++) {
        field[n] = p;
        p = strchr(p, '\t');
        if (p)
            *p++ = '\0';
    }
    if (n != 3 && n != 4)
        return 1;
    struct peer_time t = {.err = -1};
    char *end;
    if (strcmp(field[2], "-") != 0) {
        t.ms = strtod(field[2], &end);
        if (end == field[2] || *end || !(t.ms > 0))
            return 1;
    }
    if (n == 4 && *field[3] && strcmp(field[3], "-") != 0) {
        t.err = strtod(field[3], &end);
        if (end == field[3] || *end || !(t.err >= 0))
            return 1;
    }
    snprintf(t.peer, sizeof t.peer, "%s", field[0]);
    snprintf(t.name, sizeof t.name, "%s", field[1]);
    snprintf(t.family, sizeof t.family, "%s", family);
    add_time(list, &t);
    return 0;
}

/* "# family: <family>" */
static void read_family(const char *line, char family[48])
{
    static const char head[] = "# family: ";
    if (strncmp(line, head, sizeof head - 1) == 0)
        snprintf(family, 48, "%.*s", (int)strcspn(line + sizeof head - 1, " \r"),
                 line + sizeof head - 1);
}

/* "# note: <peer>: <text>"; other comments are none. */
static void read_note(struct peer_list *list, const char *line, const char *family)
{
    static const char head[] = "# note: ";
    const char *peer = line + sizeof head - 1;
    struct peer_note note;
    if (strncmp(line, head, sizeof head - 1) != 0)
        return;
    const size_t length = strcspn(peer, ":");
    if (peer[length] != ':' || length >= sizeof note.peer)
        return;
    memcpy(note.peer, peer, length);
    note.peer[length] = '\0';
    snprintf(note.family, sizeof note.family, "%s", family);
    note.text = xasprintf("%s", peer + length + 1 + strspn(peer + length + 1, " "));
    text_trim(note.text);
    add_note(list, &note);
}

void peers_free(struct peer_list *list)
{
    for (size_t i = 0; i < list->num_notes; i++)
        free(list->note[i].text);
    free(list->note);
    free(list->item);
    memset(list, 0, sizeof *list);
}

int peers_read(struct peer_list *list, const char *path)
{
    int bad = 0;
    char family[48] = "";
    char *data = file_read(path, NULL);
    if (!data)
        return -1;
    for (char *line = data, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        read_family(line, family);
        read_note(list, line, family);
        line = text_trim(text_cut(line, '#'));
        if (*line && strncmp(line, "peer\t", 5) != 0)
            bad += read_line(list, line, family);
    }
    free(data);
    return bad;
}

bool peer_is_for(const char *of, const char *family)
{
    return !*of || strcmp(of, family) == 0;
}

int peer_is_eager(const struct peer_time *peer)
{
    size_t n = strlen(peer->peer);
    return n > 6 && strcmp(peer->peer + n - 6, "-eager") == 0;
}
