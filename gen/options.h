/*
 * The command line: one table of options, which parses, documents and says
 * which command takes what.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "spec/model.h"
#include "util/output_table.h"

/* Of the cache, where no option says: some twenty generations of all there is. */
#define CACHE_LIMIT "1G"

enum command {
    COMMAND_LIST = 1 << 0,
    COMMAND_PLAN = 1 << 1,
    COMMAND_EXPAND = 1 << 2,
    COMMAND_BUILD = 1 << 3,
    COMMAND_CHECK = 1 << 4,
    COMMAND_WHY = 1 << 5,
    COMMAND_TRY = 1 << 6,
    COMMAND_REKEY = 1 << 7,
    COMMAND_TABLE = 1 << 8
};

struct strings {
    const char **items;
    size_t count;
};

struct options {
    enum command command;
    const char *command_name;
    struct strings words; /* what is no option */

    const char *templates, *output, *catalog, *cache, *product, *against, *expect;
    struct strings families, targets, only, tables, from_tables, winners;
    double max_regret;
    long jobs, timeout, allow_refused;
    uint64_t max_bytes;   /* 0: no limit */
    uint64_t cache_limit; /* 0: not given */
    enum output_format format;
    bool no_line, line_info, allow_lost, full, refresh, no_run, quiet, help;
};

/* argv[0] is the command's name. Mistakes are failures. */
void options_parse(struct session *session, struct options *options, int argc, char **argv);
/* Adds the pieces between commas; false if there is none. */
bool options_add_commas(struct session *session, struct strings *strings, const char *text);
/* "20M", "64KiB"; a failure names `what` asks for it. */
uint64_t options_bytes(struct session *session, const char *what, const char *text);
/* The help text of a command. */
void options_help(enum command command);
/* The commands with a line each. */
void options_overview(void);
/* "list, plan, ..." */
const char *options_commands(struct arena *arena);
/* 0 if there is no such command. */
enum command options_command(const char *name);

#endif /* OPTIONS_H */
