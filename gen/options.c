#include "options.h"

#include "util/error.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANY                                                                                       \
    (COMMAND_LIST | COMMAND_PLAN | COMMAND_EXPAND | COMMAND_BUILD | COMMAND_CHECK | COMMAND_WHY | \
     COMMAND_TRY)
#define COMPILING (COMMAND_PLAN | COMMAND_BUILD)

enum kind { TEXT, LIST, COMMAS, NUMBER, COUNT, REAL, BYTES, FLAG, FORMAT };

struct option {
    const char *name;
    char letter;
    const char *argument; /* NULL: a flag */
    enum kind kind;
    size_t offset;
    unsigned commands;
    const char *help;
};

#define AT(field) offsetof(struct options, field)

#define TARGETS "targets, comma-separated, or 'all'; default: "

/* An option that commands take differently has a row for each: what the help
 * of a command says is true of it. */
static const struct option table[] = {
    {"families", 'f', "LIST", COMMAS, AT(families), ANY & ~(unsigned)COMMAND_CHECK,
     "families, comma-separated; default: all"},
    {"families", 'f', "LIST", COMMAS, AT(families), COMMAND_CHECK,
     "families, comma-separated; default: the catalog's, all without --catalog"},
    {"targets", 't', "LIST", COMMAS, AT(targets), COMPILING | COMMAND_TRY,
     TARGETS "the GPU's own, sm_90a without one"},
    {"targets", 't', "LIST", COMMAS, AT(targets), COMMAND_LIST,
     TARGETS "the GPU's own, sm_90a without one; all for families, targets and axes"},
    {"targets", 't', "LIST", COMMAS, AT(targets), COMMAND_EXPAND, TARGETS "all"},
    {"targets", 't', "LIST", COMMAS, AT(targets), COMMAND_CHECK,
     TARGETS "the catalog's, else the product's, else all"},
    {"targets", 't', "LIST", COMMAS, AT(targets), COMMAND_WHY,
     TARGETS "all for a name; for AXIS=VALUE the GPU's own, sm_90a without one"},
    {"only", 0, "GLOB", LIST, AT(only), COMPILING,
     "variants whose name matches, and the fallback of their required keys (repeatable)"},
    {"only", 0, "GLOB", LIST, AT(only), COMMAND_CHECK,
     "as the product's build had it (repeatable)"},
    {"only", 0, "GLOB", LIST, AT(only), COMMAND_LIST | COMMAND_EXPAND,
     "variants whose name matches (repeatable)"},
    {"from-table", 0, "FILE", LIST, AT(from_tables), COMPILING,
     "variants that this tuning table picks, and the fallback of every required key (repeatable)"},
    {"from-table", 0, "FILE", LIST, AT(from_tables), COMMAND_CHECK,
     "as the product's build had it (repeatable)"},
    {"from-table", 0, "FILE", LIST, AT(from_tables), COMMAND_LIST | COMMAND_EXPAND,
     "variants that this tuning table picks (repeatable)"},
    {"winners", 0, "CLASS", COMMAS, AT(winners), COMPILING,
     "as few variants as keep the times of this class's tuning table, and every fallback; embeds "
     "it (repeatable)"},
    {"winners", 0, "CLASS", COMMAS, AT(winners), COMMAND_CHECK,
     "as the product's build had it (repeatable)"},
    {"max-regret", 0, "R", REAL, AT(max_regret), COMPILING | COMMAND_CHECK,
     "with --winners: how much slower than its row's a variant may be; default: 0.01"},
    {"full", 0, NULL, FLAG, AT(full), COMPILING | COMMAND_LIST | COMMAND_CHECK,
     "also the variants that no tuning table picks: what a new GPU is tuned with"},
    {"output", 'o', "PATH", TEXT, AT(output), COMMAND_BUILD,
     "the product; default: attngen.fatbin"},
    {"output", 'o', "PATH", TEXT, AT(output), COMMAND_TABLE,
     "merge: the table, which may be one of the two; default: standard output"},
    {"output", 'o', "PATH", TEXT, AT(output), COMMAND_EXPAND,
     "a folder, a file for each variant; default: one variant to standard output"},
    {"catalog", 0, "FILE", TEXT, AT(catalog), COMMAND_BUILD, "also write the catalog"},
    {"refresh", 0, NULL, FLAG, AT(refresh), COMMAND_BUILD,
     "with --catalog: keep the rows that stand, compile the others, make no product"},
    {"catalog", 0, "FILE", TEXT, AT(catalog), COMMAND_CHECK,
     "compare this catalog with the templates"},
    {"catalog", 0, "FILE", TEXT, AT(catalog), COMMAND_REKEY, "the catalog that has the digests"},
    {"catalog", 0, "FILE", TEXT, AT(catalog), COMMAND_TABLE,
     "check, merge: the catalog that knows the variants and both digests of each; default: the "
     "templates"},
    {"product", 0, "FILE", TEXT, AT(product), COMMAND_CHECK,
     "compare this product with the templates"},
    {"tables", 0, "PATH", LIST, AT(tables), COMPILING,
     "tuning tables to embed, a file or a folder of *.tsv (repeatable)"},
    {"tables", 0, "PATH", LIST, AT(tables), COMMAND_CHECK,
     "tables that --winners names by class, a file or a folder of *.tsv (repeatable)"},
    {"tables", 0, "PATH", LIST, AT(tables), COMMAND_REKEY,
     "tuning tables to rewrite, a file or a folder of *.tsv (repeatable)"},
    {"table", 0, "PATH", LIST, AT(tables), COMPILING, NULL},
    {"max-bytes", 0, "SIZE", BYTES, AT(max_bytes), COMPILING,
     "the greatest product allowed, e.g. 20M or 64KiB"},
    {"jobs", 'j', "N", NUMBER, AT(jobs), COMPILING | COMMAND_TRY,
     "compiler processes; default: one per CPU, fewer where memory is short"},
    {"timeout", 0, "SECONDS", NUMBER, AT(timeout), COMPILING | COMMAND_TRY,
     "time one variant may take to compile; default: 120"},
    {"allow-lost", 0, NULL, FLAG, AT(allow_lost), COMMAND_BUILD,
     "leave out variants that the compiler crashed or hung on, instead of failing"},
    {"allow-refused", 0, "N", COUNT, AT(allow_refused), COMMAND_BUILD,
     "variants of the program's catalog that this toolkit may refuse; default: 0"},
    {"expect", 0, "FILE", TEXT, AT(expect), COMMAND_BUILD | COMMAND_CHECK,
     "the catalog that says what the compiler refuses; default: the program's"},
    {"line-info", 0, NULL, FLAG, AT(line_info), COMPILING,
     "compile with source lines for profilers (another digest)"},
    {"line-info", 0, NULL, FLAG, AT(line_info), COMMAND_CHECK | COMMAND_WHY,
     "the digests of a build with --line-info"},
    {"cache", 0, "DIR", TEXT, AT(cache), COMPILING | COMMAND_WHY | COMMAND_TRY,
     "compiled variants; default: $ATTNGEN_CACHE, $XDG_CACHE_HOME/attngen, ~/.cache/attngen"},
    {"cache-limit", 0, "SIZE", BYTES, AT(cache_limit), COMMAND_BUILD,
     "drop what was used longest ago above it; default: $ATTNGEN_CACHE_LIMIT, " CACHE_LIMIT},
    {"against", 0, "REV", TEXT, AT(against), COMMAND_TRY,
     "the commit whose templates these are held against, or 'none'; default: HEAD"},
    {"no-run", 0, NULL, FLAG, AT(no_run), COMMAND_TRY, "compile and compare, run nothing"},
    {"no-line", 0, NULL, FLAG, AT(no_line), COMMAND_EXPAND, "leave #line directives out"},
    {"format", 0, "FORMAT", FORMAT, AT(format),
     (ANY | COMMAND_REKEY | COMMAND_TABLE) & ~(unsigned)COMMAND_EXPAND,
     "table, tsv or json; default: table"},
    {"templates", 0, "DIR", TEXT, AT(templates), ANY | COMMAND_TABLE,
     "the templates; default: those that belong to the program, then ./templates"},
    {"quiet", 'q', NULL, FLAG, AT(quiet), COMPILING | COMMAND_TRY | COMMAND_TABLE,
     "no progress, no summary on standard error"},
    {"help", 'h', NULL, FLAG, AT(help), ANY | COMMAND_REKEY | COMMAND_TABLE, "this text"},
};
enum { NUM_OPTIONS = sizeof table / sizeof table[0] };

struct command_text {
    enum command command;
    const char *name, *usage, *summary, *details;
};

static const struct command_text commands[] = {
    {COMMAND_LIST, "list", "list [families|targets|axes|keys|variants] [OPTION...]",
     "what there is: families, targets, axes, required keys, variants (default)", NULL},
    {COMMAND_PLAN, "plan", "plan [OPTION...]",
     "how many variants, CPU-seconds and bytes a build takes, before building",
     "Compiles a few sample variants of each family, template and target that the cache\n"
     "does not hold (they are kept in it) and scales what they took.\n"},
    {COMMAND_EXPAND, "expand", "expand NAME|GLOB... [OPTION...]", "the CUDA source of variants",
     NULL},
    {COMMAND_BUILD, "build", "build [OPTION...]", "compile variants and pack the product",
     "Compiled variants stay in the cache, so a build that was interrupted goes on where it\n"
     "stopped and one where nothing changed compiles nothing. A variant that spills, uses\n"
     "local memory, has serialized wgmma or is over its registers or shared memory is left\n"
     "out, with its reason. Where the program's catalog has it, of another toolkit, the build\n"
     "fails, unless --allow-refused accepts as many.\n"
     "The product is the same, byte for byte, wherever and however it is built. Its images are\n"
     "compressed for size: they need a driver of CUDA 12.4 or newer.\n"},
    {COMMAND_CHECK, "check", "check [OPTION...]",
     "expand everything and look for mistakes; compare a catalog or a product",
     "With --catalog or --product: stale rows (the source has changed), missing ones and\n"
     "orphans (no such variant any more). What --expect says is refused is not missing in a\n"
     "product; one of a part is compared with the part that --only, --from-table or --winners\n"
     "name. Nothing is compiled.\n"},
    {COMMAND_WHY, "why", "why NAME|GLOB|AXIS=VALUE... [OPTION...]",
     "what a variant is, or why a combination does not exist", NULL},
    {COMMAND_TRY, "try", "try GLOB... [KEY=VALUE...] [OPTION...]",
     "variants of the tree beside those of a commit: registers, spills, instructions, time",
     "Expands and compiles the matching variants of these templates and of the commit's, and\n"
     "prints what ptxas made of both; a spill or another gate is a verdict here, not an error.\n"
     "Then it runs them: on a GPU each is verified against the reference and both are timed in\n"
     "turns, on the problem KEY=VALUE... or on those of the family's shape file; without one,\n"
     "in a build tree, the emulation verifies this tree's.\n"},
    {COMMAND_REKEY, "rekey", "rekey --catalog FILE --tables PATH... [OPTION...]",
     "bring the digests in tuning tables up to date",
     "A row that knows its source alone gets the digest of the code that the catalog's toolkit\n"
     "makes of it; a row of the catalog's code gets the digest of today's source. Others stay as\n"
     "they are, and no measured value is touched.\n"},
    {COMMAND_TABLE, "table", "table merge A B | check FILE... | diff A B [OPTION...]",
     "tuning tables: one of two runs, what is wrong with one, what differs",
     "merge   One table of two of the same class, bandwidth and L2. Of two rows of a bucket the "
     "one\n"
     "        is kept that (1) has a digest of --catalog, (2) is of the newer driver, (3) of the\n"
     "        newer toolkit, (4) has the lesser spread, (5) is A's. A row whose variant failed in\n"
     "        the other table is left out. The head is A's. Without --catalog two kernels of one\n"
     "        name are an error.\n"
     "check   Each row: its variant exists, is not refused, runs on the class and has one of the\n"
     "        row's digests; the problem has each coordinate of the family once, from 1 to 1e12;\n"
     "        rows are sorted and no bucket stands twice. An error is exit status 1.\n"
     "diff    Rows that B adds, that are gone, and that another variant wins, with both times.\n"},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

enum command options_command(const char *name)
{
    for (int i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].command;
    return 0;
}

const char *options_commands(struct arena *arena)
{
    const char *names = "";
    for (int i = 0; i < NUM_COMMANDS; i++)
        names = arena_printf(arena, "%s%s%s", names, i > 0 ? ", " : "", commands[i].name);
    return names;
}

void options_overview(void)
{
    for (int i = 0; i < NUM_COMMANDS; i++)
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
}

void options_help(enum command command)
{
    const struct command_text *text = commands;
    while (text->command != command)
        text++;
    printf("usage: attngen %s\n\n%s\n\n", text->usage, text->summary);
    if (text->details != NULL)
        printf("%s\n", text->details);
    for (int i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &table[i];
        char left[64], letter[8] = "    ";
        if ((o->commands & command) == 0 || o->help == NULL)
            continue;
        if (o->letter != 0)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->argument != NULL ? " " : "",
                 o->argument != NULL ? o->argument : "");
        printf("  %-22s %s\n", left, o->help);
    }
    printf("\nExit status: 0 done, 1 bad input, 2 a fault of the program.\n");
}

/* ---- parsing --------------------------------------------------------------------- */

static void add_string(struct session *session, struct strings *strings, const char *item)
{
    strings->items = arena_grow(&session->arena, strings->items, strings->count, strings->count + 1,
                                sizeof *strings->items);
    strings->items[strings->count++] = item;
}

bool options_add_commas(struct session *session, struct strings *strings, const char *text)
{
    size_t before = strings->count;
    while (*text != '\0') {
        size_t size = strcspn(text, ",");
        if (size > 0)
            add_string(session, strings, arena_copy(&session->arena, text, size));
        text += size + (text[size] == ',');
    }
    return strings->count > before;
}

static long parse_number(struct session *session, const char *name, const char *text, long least)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > 1000000)
        fail(session, "--%s: '%s' is no number; allowed: %ld to 1000000", name, text, least);
    return value;
}

static double parse_real(struct session *session, const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0) || value > 10)
        fail(session, "--%s: '%s' is no number; allowed: 0 to 10", name, text);
    return value;
}

uint64_t options_bytes(struct session *session, const char *what, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool ok = isdigit((unsigned char)text[0]) && errno == 0 && value > 0;
    const char *unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (ok && unit != NULL) {
        bool binary = strcasecmp(end + 1, "iB") == 0;
        bool decimal = end[1] == '\0' || strcasecmp(end + 1, "B") == 0;
        ok = binary || decimal;
        for (const char *u = units; ok && u <= unit; u++) {
            ok = value < ULLONG_MAX / 1024;
            value *= binary ? 1024 : 1000;
        }
    } else {
        ok = ok && *end == '\0';
    }
    if (!ok)
        fail(session,
             "%s: '%s' is no size; allowed: bytes, or a number with K, M, G, KiB, MiB, GiB", what,
             text);
    return value;
}

static void store(struct session *session, struct options *options, const struct option *o,
                  const char *value)
{
    char *place = (char *)options + o->offset;
    if ((o->kind == TEXT || o->kind == LIST) && value[0] == '\0')
        fail(session, "--%s: it is empty; allowed: %s", o->name, o->argument);
    switch (o->kind) {
    case TEXT:
        memcpy(place, &value, sizeof value);
        break;
    case LIST:
        add_string(session, (struct strings *)(void *)place, value);
        break;
    case COMMAS:
        if (!options_add_commas(session, (struct strings *)(void *)place, value))
            fail(session, "--%s: '%s' names nothing; allowed: names, comma-separated", o->name,
                 value);
        break;
    case NUMBER:
    case COUNT:
        *(long *)(void *)place = parse_number(session, o->name, value, o->kind == NUMBER);
        break;
    case REAL:
        *(double *)(void *)place = parse_real(session, o->name, value);
        break;
    case BYTES:
        *(uint64_t *)(void *)place =
            options_bytes(session, arena_printf(&session->arena, "--%s", o->name), value);
        break;
    case FLAG:
        *(bool *)(void *)place = true;
        break;
    case FORMAT:
        if (!output_format_parse(value, (enum output_format *)(void *)place))
            fail(session, "--format: '%s' is unknown; allowed: table, tsv, json", value);
        break;
    }
}

static _Noreturn void unknown_option(struct session *session, const struct options *options,
                                     const char *given)
{
    struct text allowed = {0};
    for (int i = 0; i < NUM_OPTIONS; i++)
        if ((table[i].commands & options->command) != 0 && table[i].help != NULL)
            text_printf(&allowed, "%s--%s", allowed.size > 0 ? ", " : "", table[i].name);
    const char *names = arena_string(&session->arena, allowed.data);
    text_free(&allowed);
    fail(session, "%s: unknown option %s; allowed: %s", options->command_name, given, names);
}

static const struct option *find_option(const struct options *options, const char *name,
                                        size_t size, char letter)
{
    for (int i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &table[i];
        if ((o->commands & options->command) == 0)
            continue;
        if (name == NULL ? o->letter == letter
                         : strlen(o->name) == size && memcmp(o->name, name, size) == 0)
            return o;
    }
    return NULL;
}

/* One option at argv[i]; returns the index of its last word. */
static int parse_option(struct session *session, struct options *options, int argc, char **argv,
                        int i)
{
    const char *word = argv[i], *value = NULL;
    const struct option *o;
    if (word[1] == '-') {
        size_t size = strcspn(word + 2, "=");
        o = find_option(options, word + 2, size, 0);
        if (word[2 + size] == '=')
            value = word + 3 + size;
    } else {
        o = find_option(options, NULL, 0, word[1]);
        if (word[2] != '\0')
            value = word + 2;
    }
    if (o == NULL)
        unknown_option(session, options, word);
    if (o->argument == NULL && value != NULL)
        fail(session, "%s: --%s takes no value, found '%s'", options->command_name, o->name, value);
    if (o->argument != NULL && value == NULL) {
        if (i + 1 == argc)
            fail(session, "%s: --%s wants a value: %s", options->command_name, o->name,
                 o->argument);
        value = argv[++i];
    }
    store(session, options, o, value != NULL ? value : "");
    return i;
}

void options_parse(struct session *session, struct options *options, int argc, char **argv)
{
    options->command_name = argv[0];
    options->command = options_command(argv[0]);
    options->timeout = 120;
    options->max_regret = -1; /* not given */
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0)
            only_words = true;
        else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0')
            i = parse_option(session, options, argc, argv, i);
        else
            add_string(session, &options->words, argv[i]);
    }
    if (options->max_regret >= 0 && options->winners.count == 0)
        fail(session, "--max-regret: of which tables? Give --winners CLASS");
    if (options->winners.count > 0 && options->from_tables.count > 0)
        fail(session, "--winners and --from-table exclude each other, found both; allowed: one");
    if (options->max_regret < 0)
        options->max_regret = 0.01;
}
