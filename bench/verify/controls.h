/*
 * controls.h - the words that start with '@' of a line of a verify list.
 */
#ifndef BENCH_CONTROLS_H
#define BENCH_CONTROLS_H

#include "common/buffers.h"

/* What the words say, beside a fill's options. */
struct controls {
    int form;
    enum gen__data data;
    int steps;
};

/* Sets the fill's options as well; dies at an unknown word. */
struct controls controls_read(const struct gen__family *family, const char *controls,
                              struct fill_options *fill);

#endif /* BENCH_CONTROLS_H */
