#include "peer_file.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

static int read_line(struct peer_list *list, char *line)
{
    char *field[5];
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
    t.ms = strtod(field[2], &end);
    if (end == field[2] || *end || !(t.ms > 0))
        return 1;
    if (n == 4 && *field[3] && strcmp(field[3], "-")) {
        t.err = strtod(field[3], &end);
        if (end == field[3] || *end || !(t.err >= 0))
            return 1;
    }
    snprintf(t.peer, sizeof t.peer, "%s", field[0]);
    snprintf(t.name, sizeof t.name, "%s", field[1]);
    list->item = xrealloc(list->item, (list->count + 1) * sizeof *list->item);
    list->item[list->count++] = t;
    return 0;
}

/* "# note: <peer>: <text>"; other comments are none. */
static void read_note(struct peer_list *list, const char *line)
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
    note.text = xasprintf("%s", peer + length + 1 + strspn(peer + length + 1, " "));
    text_trim(note.text);
    list->note = xrealloc(list->note, (list->num_notes + 1) * sizeof *list->note);
    list->note[list->num_notes++] = note;
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
    char *data = file_read(path, NULL);
    if (!data)
        return -1;
    for (char *line = data, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        read_note(list, line);
        line = text_trim(text_cut(line, '#'));
        if (*line && strncmp(line, "peer\t", 5) != 0)
            bad += read_line(list, line);
    }
    free(data);
    return bad;
}

int peer_is_eager(const struct peer_time *peer)
{
    size_t n = strlen(peer->peer);
    return n > 6 && strcmp(peer->peer + n - 6, "-eager") == 0;
}
