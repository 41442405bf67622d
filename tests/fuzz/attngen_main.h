/* Included before gen/main.c: its main() is a function of the fuzz target. */
#ifndef FUZZ_ATTNGEN_MAIN_H
#define FUZZ_ATTNGEN_MAIN_H

int attngen_main(int argc, char **argv);
#define main attngen_main

#endif /* FUZZ_ATTNGEN_MAIN_H */
