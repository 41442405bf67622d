/* What the engine's tests share. */
#ifndef TEST_EMUL_H
#define TEST_EMUL_H

#include "engine.h"
#include "kernels/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NUM_MODES 7
extern const char *const modes[NUM_MODES];

/* The last launch's. */
extern char message[1024];

/* Launches a kernel of one structure of parameters in a mode of EMUL_MODE; -1 with `message`. */
int run_grid(const char *name, const char *mode, struct emul_dim blocks, unsigned threads,
             unsigned shared, void *params);
int run(const char *name, const char *mode, unsigned blocks, unsigned threads, unsigned shared,
        void *params);

/* test_fp8.c */
void test_fp8_conversions(void **state);
void test_fp8_products(void **state);
void test_fp8_accumulator(void **state);
void test_fp8_not_finite(void **state);

/* test_cluster.c */
void test_cluster_data(void **state);
void test_cluster_multicast(void **state);
void test_cluster_shapes(void **state);
void test_cluster_hazards(void **state);

#endif
