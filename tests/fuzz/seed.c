/* Writes a small good product to standard output: the corpus' first file, made anew when the format
 * changes. */
#include "toy.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char table[2048] = "";
    size_t size;
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=16", "line_bf16_d64__sm90a_a", "9");
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=64", "line_bf16_d64__sm90a_b", "5");
    struct product *product = toy_product();
    toy_add_pair(product);
    product_table(product, "sm90_132sm", table);
    void *bytes = product_bytes(product, &size);
    product_free(product);
    const bool good = fwrite(bytes, 1, size, stdout) == size && fflush(stdout) == 0;
    free(bytes);
    return good ? 0 : 1;
}
