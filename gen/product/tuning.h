/*
 * A tuning table as the commands on tables see it: its head, and each row with the line it stands
 * on. The runtime's reader (format/rows.h) needs a product; this one needs none.
 */
#ifndef TUNING_H
#define TUNING_H

#include "spec/model.h"
#include "format/table.h"

struct tuning_row {
    const char *path; /* of its table */
    uint32_t line;
    const char *field[GEN__NUM_COLUMNS]; /* "-" where the table has no such column */
    double us, spread, runner_up_us;     /* 0: not known */
    uint64_t source, code;               /* digests; 0: not known */
    const char *bad;                     /* what is malformed; NULL: nothing */
};

struct tuning_line {
    const char *text;
    struct gen__span key, value; /* of "# key: value"; empty for another comment */
};

struct tuning_table {
    const char *path;
    struct tuning_line *head; /* comments in front of the column names, the first line aside */
    size_t num_head;
    struct tuning_line *failed; /* "# failed: <variant>: <reason>" */
    size_t num_failed;
    struct tuning_row *rows;
    size_t count;
};

/* Fails where the head is malformed; a malformed row is kept, with the reason. */
void tuning_read(struct session *session, const char *path, struct tuning_table *table);
/* Fails at the first malformed row. */
void tuning_good_rows(struct session *session, const struct tuning_table *table);
/* The value of a line of the head, or NULL. */
const char *tuning_head(struct session *session, const struct tuning_table *table, const char *key);
/* The same as a number of at least 1; fails where there is none. */
uint32_t tuning_number(struct session *session, const struct tuning_table *table, const char *key);
/* The order of rows in a file: by family, required key and problem. 0: the same bucket. */
int tuning_order(const struct tuning_row *a, const struct tuning_row *b);
/* Sorts the rows and appends the file's text. */
void tuning_write(struct tuning_table *table, struct text *out);

#endif /* TUNING_H */
