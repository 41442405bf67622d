/* Reading one tuning table: text in, rows out. */
#ifndef GEN_TABLE_H
#define GEN_TABLE_H

#include "product/library.h"

/* A good row on its way into the library. */
struct gen__pending {
    struct gen__row row;
    uint32_t entry;
    uint32_t compute_capability, num_sms; /* of the table's class */
    uint32_t table;                       /* index into library->tables: earlier tables win */
    uint32_t line;
};

struct gen__pending_list {
    struct gen__pending *rows;
    size_t count, capacity;
};

/* Parses `size` bytes of text into `list` and counts what it leaves out in
 * library->tables[table]. A malformed header refuses the table: FORMAT,
 * without a message, and `refused` and the reason are set. OUT_OF_MEMORY is the
 * only other error: a bad row is skipped and counted. */
enum gen_status gen__table_parse(const gen_library *library, uint32_t table, const char *text,
                                 size_t size, struct gen__pending_list *list);

#endif /* GEN_TABLE_H */
