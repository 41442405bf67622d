/* What the maker of a product asks of the runtime. */
#ifndef GEN_PREPARE_H
#define GEN_PREPARE_H

#include "gen.h"

/*
 * `data` (8-byte aligned) holds the `size` bytes of a product without prepared tables: that of
 * built-in table `table` (prepared.h), to be freed. NULL where the table is refused or this runtime
 * cannot open the product: the text will do. Errors: OUT_OF_MEMORY.
 */
enum gen_status gen__prepare(const void *data, size_t size, uint32_t table, void **prepared,
                             size_t *prepared_size);

#endif /* GEN_PREPARE_H */
