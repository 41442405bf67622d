/*
 * A tuning table as the product's maker has left it: its rows read, sorted and
 * found good, and the grids that they are searched by, so that gen_open() need
 * neither parse them nor build these. What hangs on libm or on addresses is left
 * to gen_open(), so that products stay the same wherever they are made.
 *
 * The runtime alone makes (prepare.h) and reads it. `maker` says by which one and for which
 * families: where that is not this one, the table's text is parsed. In the product:
 *
 *     struct gen__prepared_head
 *     struct gen__prepared_row[num_rows]     range by range, as ranges have them
 *     struct gen__prepared_range[num_ranges] by entry
 *     struct gen__prepared_grid[num_grids]
 *     the grids, each from a GEN__LINE on: the blocks of all rows, the cells, the
 *     blocks of their lists, the steps (grid.h)
 */
#ifndef GEN_PREPARED_H
#define GEN_PREPARED_H

#include "product/library.h"

#define GEN__PREPARED_VERSION 4u
#define GEN__NO_GRID UINT32_MAX

/* Of a table that was not refused. Strings end with a NUL. */
struct gen__prepared_head {
    uint64_t maker;
    uint32_t num_rows, num_ranges, num_grids;
    uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
    uint32_t num_bad, num_expired, num_ptx;
    uint32_t reason_line;
    uint32_t reserved; /* 0: every byte is set */
    char class_name[32], reason[128];
};

struct gen__prepared_row {
    float counts[GEN__MAX_COORDS];
    float us, runner_up_us;
    uint32_t variant, runner_up; /* of the product */
};

/* The rows of one required key. */
struct gen__prepared_range {
    uint32_t group; /* any of its groups */
    uint32_t num_rows;
    uint32_t grid;  /* GEN__NO_GRID: none was built */
    uint32_t plain; /* that of its plain rows (plain.c), likewise */
};

struct gen__prepared_grid {
    uint32_t num_coords, num_rows;
    uint32_t num_cells, num_blocks; /* of the cells' lists */
    int16_t low[GEN__MAX_COORDS], high[GEN__MAX_COORDS];
};

/* One that was checked. */
struct gen__prepared {
    const struct gen__prepared_head *head; /* NULL: there is none, or of another maker */
    const struct gen__prepared_row *rows;
    const struct gen__prepared_range *ranges;
    const struct gen__prepared_grid *grids;
    const unsigned char *data; /* of the grids */
    size_t data_size;
};

/* Checks built-in table `table`'s, and all that the library would follow in it.
 * Errors: FORMAT, where it is damaged. */
enum gen_status gen__prepared_open(const gen_library *library, uint32_t table,
                                   struct gen__prepared *prepared);

/* Where the grids are once their bytes, from a GEN__LINE on, are at `at`. */
void gen__prepared_places(const struct gen__prepared *prepared, const unsigned char *at,
                          struct gen__place *places);

/* A row of the library's. */
struct gen__row gen__prepared_row(const gen_library *library,
                                  const struct gen__prepared_row *prepared, uint32_t num_coords);

/* What this runtime is as a maker. */
uint64_t gen__prepared_maker(void);

#endif /* GEN_PREPARED_H */
