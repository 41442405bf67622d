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
