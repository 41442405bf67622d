/* A tuning table of any text: by the reader that the generator and the runtime share, and by
 * gen_open() as a caller's file; selection goes by what rows it has. */
#include "input.h"

#include "format/rows.h"
#include "product/library.h"
#include "toy.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct gen_pack_view view;
static gen_library *toys;
static char path[64];
static void *product;
static size_t product_size;

static gen_library *open_with(const char *table)
{
    const gen_open_options options = {.size = sizeof(options),
                                      .data = product,
                                      .data_size = product_size,
                                      .table_paths = &table,
                                      .num_table_paths = table != NULL};
    gen_library *library = NULL;
    return gen_open(&options, &library) ? NULL : library;
}

static void remove_file(void)
{
    unlink(path);
    gen_close(toys);
    free(product);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct product *p = toy_product();
    toy_add_pair(p);
    product = product_bytes(p, &product_size);
    product_free(p);
    toys = open_with(NULL);
    if (!toys)
        abort();
    view = gen__pack_view(&toys->pack);
    snprintf(path, sizeof(path), "/tmp/fuzz_table.%d.tsv", (int)getpid());
    atexit(remove_file);
    return 0;
}

static void select_all(const gen_library *library)
{
    static const char *const names[] = {"h200", "a100", "h20"};
    for (size_t d = 0; d < sizeof(names) / sizeof(names[0]); d++)
        for (int32_t batch = 1; batch < 100000; batch *= 30) {
            const gen_toy_problem line = toy_problem(GEN_LINE, batch);
            const gen_toy_problem toy = toy_problem(GEN_TOY, batch);
            gen_device device = {.size = sizeof(device)};
            gen_plan plan = {.size = sizeof(plan)};
            char text[200];
            if (gen_device_named(names[d], &device))
                abort();
            (void)gen_select(library, &device, &line.base, &plan);
            (void)gen_select(library, &device, &toy.base, &plan);
            (void)gen_explain(library, &device, &line.base, text, sizeof(text), NULL);
        }
}

static void check_rows(const struct gen_table *table)
{
    for (uint32_t i = 0; i < table->about.num_rows; i++)
        if (table->rows[i].variant >= view.num_variants ||
            table->rows[i].runner_up > view.num_variants || !(table->rows[i].us > 0.0f))
            abort();
    if (strnlen(table->reason, sizeof(table->reason)) == sizeof(table->reason) ||
        strnlen(table->class_name, sizeof(table->class_name)) == sizeof(table->class_name))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size ? size : 1);
    struct gen_table table;
    if (!text)
        abort();
    if (size)
        memcpy(text, data, size);
    const bool good = gen_table_read(&view, text, size, &table) == GEN_TABLE_READ;
    if (good)
        check_rows(&table);
    free(table.rows);
    free(text);
    if (!good && size % 8) /* files are slow */
        return 0;
    FILE *file = fopen(path, "wb");
    if (!file || (size && fwrite(data, 1, size, file) != size) || fclose(file))
        abort();
    gen_library *library = open_with(path);
    if (library)
        select_all(library);
    gen_close(library);
    return 0;
}
