/*
 * peer_file.h - times and errors of other implementations, measured by the programs
 * of bench/peers/ in the same session, or recorded earlier: lines of "peer case ms
 * err", tabs between; "-" stands for a figure that was not taken. A line "# note:
 * <peer>: <text>" says of a peer what readers of its figures must know; it goes into
 * the head of the results. What follows a line "# family: <family>" is for that
 * family's cases alone: families may have cases of one name. Of lines for one peer and
 * case, and of notes for one peer and family, the last counts.
 */
#ifndef BENCH_PEER_FILE_H
#define BENCH_PEER_FILE_H

#include <stdbool.h>
#include <stddef.h>

struct peer_time {
    char peer[48], name[96]; /* of the case */
    char family[48];         /* whose case; "": any family's */
    double ms;               /* 0: not given */
    double err;              /* relative Frobenius; negative: not given */
};

struct peer_note {
    char peer[48], family[48];
    char *text;
};

struct peer_list {
    struct peer_time *item;
    size_t count;
    struct peer_note *note;
    size_t num_notes;
};

/* Appends a file's lines. Returns the number of malformed ones, -1 if it cannot
 * be read. '#' starts a comment; a line that begins with "peer" names the
 * columns. */
int peers_read(struct peer_list *list, const char *path);
void peers_free(struct peer_list *list);

/* Is what was read under "# family: <of>", or under none, for this family? */
bool peer_is_for(const char *of, const char *family);

/* Is the peer timed from call to call as a caller sees it ("...-eager")? */
int peer_is_eager(const struct peer_time *peer);

#endif /* BENCH_PEER_FILE_H */
