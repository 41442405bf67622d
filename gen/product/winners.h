/*
 * The smallest product that keeps what tuning tables measured: of each row its variant, or another
 * that the row has a time of and that was hardly slower, and every fallback.
 */
#ifndef WINNERS_H
#define WINNERS_H

#include "product/pack.h"

struct winners {
    size_t all;                  /* legal variants of the families and targets at hand */
    size_t kept, num_fallbacks;  /* of these; how many of the kept are fallbacks */
    size_t rows, elsewhere;      /* of the tables; naming no variant at hand */
    size_t moved;                /* rows that go to another variant */
    size_t single, stale;        /* rows of one choice; and of these whose source has changed */
    double geomean, worst;       /* of the time of the kept variant over that of the row's own */
    struct winners_table *table; /* one for each that is named */
    size_t num_tables;
};

/* Finds the tables of --winners, adds those to `tables` that --tables does not name, and drops the
 * variants that no row names and that are no fallbacks. */
void winners_open(struct session *session, struct pack_tables *tables, struct winners *winners);
/* When the variants are expanded: keeps as few as --max-regret allows, and gives the rows of
 * `tables` to those that are kept. */
void winners_choose(struct session *session, struct pack_tables *tables, struct winners *winners);
/* What was kept, on standard error. */
void winners_print(const struct session *session, const struct winners *winners);

#endif /* WINNERS_H */
