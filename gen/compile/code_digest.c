#include "compile/code_digest.h"

#include "util/hash.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

/* ---- machine code ------------------------------------------------------------------ */

/* Sections of a cubin are found as in any ELF file; of its own are the names of sections and the
 * attributes in .nv.info: a format, an attribute, 16 bits that are a value or a size. */
enum { FORMAT_SIZED = 4, CONSTANT_BANK = 0x0a, EXTERNS = 0x0f, TOOLKIT = 0x37 };

/* A constant of at most so many bytes is a part of the instructions that use it. */
enum { FOLDED = 8 };

struct cubin {
    const unsigned char *data;
    size_t size;
    const char *symbol;
    Elf64_Ehdr head;
    Elf64_Shdr names, symbols; /* sections */
    struct hash hash;
};

static bool inside(const struct cubin *c, uint64_t offset, uint64_t size)
{
    return offset <= c->size && size <= c->size - offset;
}

static bool read_section(const struct cubin *c, unsigned index, Elf64_Shdr *section)
{
    uint64_t at = c->head.e_shoff + (uint64_t)index * sizeof *section;
    if (index >= c->head.e_shnum || c->head.e_shoff > c->size || !inside(c, at, sizeof *section))
        return false;
    memcpy(section, c->data + at, sizeof *section);
    return section->sh_type == SHT_NOBITS || inside(c, section->sh_offset, section->sh_size);
}

static const char *name_of(const struct cubin *c, const Elf64_Shdr *section)
{
    const char *names = (const char *)c->data + c->names.sh_offset;
    if (section->sh_name >= c->names.sh_size || names[c->names.sh_size - 1] != '\0')
        return "";
    return names + section->sh_name;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool open_cubin(struct cubin *c)
{
    if (c->size < sizeof c->head)
        return false;
    memcpy(&c->head, c->data, sizeof c->head);
    if (memcmp(c->head.e_ident, ELFMAG, SELFMAG) != 0 || c->head.e_ident[EI_CLASS] != ELFCLASS64 ||
        c->head.e_machine != EM_CUDA || c->head.e_shentsize != sizeof(Elf64_Shdr) ||
        !read_section(c, c->head.e_shstrndx, &c->names) || c->names.sh_type != SHT_STRTAB ||
        c->names.sh_size == 0)
        return false;
    for (unsigned i = 0; i < c->head.e_shnum; i++) {
        Elf64_Shdr section;
        if (!read_section(c, i, &section))
            return false;
        if (section.sh_type == SHT_SYMTAB)
            c->symbols = section;
    }
    return true;
}

static bool read_symbol(const struct cubin *c, uint64_t index, Elf64_Sym *symbol)
{
    if (index >= c->symbols.sh_size / sizeof *symbol)
        return false;
    memcpy(symbol, c->data + c->symbols.sh_offset + index * sizeof *symbol, sizeof *symbol);
    return true;
}

static void add_number(struct cubin *c, uint64_t number)
{
    hash_field(&c->hash, &number, sizeof number);
}

/* Indices of symbols move with line information; where a symbol lies does not. */
static void add_symbol(struct cubin *c, uint64_t index)
{
    Elf64_Sym symbol = {0};
    add_number(c, read_symbol(c, index, &symbol) ? symbol.st_value : index);
    add_number(c, symbol.st_size);
}

/* The kernel's name is a part of its sections' names. */
static void add_name(struct cubin *c, const char *name)
{
    size_t length = strlen(name), own = strlen(c->symbol);
    if (own > 0 && length >= own && strcmp(name + length - own, c->symbol) == 0)
        length -= own;
    hash_field(&c->hash, name, length);
}

static void add_attributes(struct cubin *c, const Elf64_Shdr *section, bool of_module)
{
    const unsigned char *p = c->data + section->sh_offset, *end = p + section->sh_size;
    while (end - p >= 4) {
        unsigned format = p[0], attribute = p[1];
        size_t value = (size_t)(p[2] | p[3] << 8), size = format == FORMAT_SIZED ? value : 0;
        uint32_t symbol = 0;
        p += 4;
        if (size > (size_t)(end - p))
            size = (size_t)(end - p);
        if (attribute != TOOLKIT) {
            bool names_one = size >= 4 && (of_module || attribute == CONSTANT_BANK);
            add_number(c, (uint64_t)format << 32 | attribute << 16 | value);
            if (names_one) {
                memcpy(&symbol, p, 4);
                add_symbol(c, symbol);
            }
            if (attribute != EXTERNS)
                hash_field(&c->hash, p + (names_one ? 4 : 0), size - (names_one ? 4 : 0));
        }
        p += size;
    }
}

static void add_relocations(struct cubin *c, const Elf64_Shdr *section)
{
    for (uint64_t i = 0; i < section->sh_size / sizeof(Elf64_Rela); i++) {
        Elf64_Rela row;
        memcpy(&row, c->data + section->sh_offset + i * sizeof row, sizeof row);
        add_number(c, row.r_offset);
        add_number(c, ELF64_R_TYPE(row.r_info));
        add_number(c, (uint64_t)row.r_addend);
        add_symbol(c, ELF64_R_SYM(row.r_info));
    }
}

static bool is_variables(const char *name)
{
    return starts_with(name, ".nv.global") || strcmp(name, ".nv.constant4") == 0;
}

static void add_section(struct cubin *c, const Elf64_Shdr *section)
{
    const char *name = name_of(c, section);
    bool of_module = strcmp(name, ".nv.info") == 0;
    if (of_module || starts_with(name, ".nv.info.")) {
        add_name(c, name);
        add_attributes(c, section, of_module);
        return;
    }
    if (section->sh_type == SHT_RELA && starts_with(name, ".rela.text.")) {
        add_name(c, name);
        add_relocations(c, section);
        return;
    }
    /* .nv.merc and .nv.capmerc repeat, for another architecture, what .text says. */
    if (!(section->sh_flags & SHF_ALLOC) || starts_with(name, ".nv.merc") || is_variables(name))
        return;
    add_name(c, name);
    add_number(c, section->sh_size);
    if (section->sh_type != SHT_NOBITS)
        hash_add(&c->hash, c->data + section->sh_offset, section->sh_size);
}

/* The compiler keeps every constant of a namespace as a variable, whether read or not. Arrays may
 * be read at run time, so these count. */
static void add_arrays(struct cubin *c)
{
    Elf64_Sym symbol;
    Elf64_Shdr section;
    for (uint64_t i = 0; read_symbol(c, i, &symbol); i++) {
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size <= FOLDED ||
            !read_section(c, symbol.st_shndx, &section) ||
            !starts_with(name_of(c, &section), ".nv.global"))
            continue;
        add_number(c, symbol.st_size);
        if (section.sh_type != SHT_NOBITS && symbol.st_value <= section.sh_size &&
            symbol.st_size <= section.sh_size - symbol.st_value)
            hash_add(&c->hash, c->data + section.sh_offset + symbol.st_value, symbol.st_size);
    }
}

/* ---- PTX --------------------------------------------------------------------------- */

struct word {
    const char *at;
    size_t length;
};

struct ptx {
    const char *at, *end;
    const char *symbol;
    struct word *words; /* names that a number stands for */
    size_t num_words;
    struct hash hash;
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static bool has(struct word line, const char *text)
{
    size_t length = strlen(text);
    for (size_t i = 0; i + length <= line.length; i++)
        if (memcmp(line.at + i, text, length) == 0)
            return true;
    return false;
}

static bool begins(struct word line, const char *text)
{
    return line.length >= strlen(text) && memcmp(line.at, text, strlen(text)) == 0;
}

/* The next line without its comment and the blanks around it; false behind the last one. */
static bool next_line(const char **at, const char *end, struct word *line)
{
    if (*at >= end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    const char *last = stop != NULL ? stop : end, *first = *at;
    *at = stop != NULL ? stop + 1 : end;
    for (const char *p = first; p + 1 < last; p++)
        if (p[0] == '/' && p[1] == '/')
            last = p;
    while (first < last && isspace((unsigned char)*first))
        first++;
    while (last > first && isspace((unsigned char)last[-1]))
        last--;
    *line = (struct word){first, (size_t)(last - first)};
    return true;
}

/* The next word of the line, or one other character that is no blank. */
static bool next_word(struct word *line, struct word *word)
{
    while (line->length > 0 && isspace((unsigned char)*line->at))
        line->at++, line->length--;
    size_t length = 0;
    while (length < line->length && is_word(line->at[length]))
        length++;
    if (length == 0 && line->length > 0)
        length = 1;
    *word = (struct word){line->at, length};
    line->at += length;
    line->length -= length;
    return length > 0;
}

static bool same_word(struct word a, struct word b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* Does a variable's line name one that no other line names? */
static bool is_unread(const struct ptx *ptx, struct word line)
{
    struct word rest = line, word, name = {"", 0};
    size_t count = 0;
    if (!begins(line, ".global ") && !begins(line, ".visible .global "))
        return false;
    while (next_word(&rest, &word) && *word.at != '=' && *word.at != '[' && *word.at != ';')
        name = word;
    const char *at = ptx->at;
    /* What follows is enough: a variable stands before what reads it. */
    while (count == 0 && next_line(&at, ptx->end, &rest))
        while (next_word(&rest, &word))
            count += same_word(word, name);
    return count == 0;
}

/* The compiler makes names of the kernel's and of the file's: only which is which counts. */
static void add_word(struct ptx *ptx, struct word word)
{
    if (has(word, "_Z") || has(word, ptx->symbol)) {
        size_t i = 0;
        while (i < ptx->num_words && !same_word(ptx->words[i], word))
            i++;
        struct word *words = i < ptx->num_words
                                 ? ptx->words
                                 : realloc(ptx->words, (ptx->num_words + 1) * sizeof *words);
        if (words != NULL) {
            ptx->words = words;
            if (i == ptx->num_words)
                ptx->words[ptx->num_words++] = word;
            hash_field(&ptx->hash, &i, sizeof i);
            return;
        }
    }
    hash_field(&ptx->hash, word.at, word.length);
}

static void add_ptx(struct ptx *ptx)
{
    struct word line, word;
    bool skips = false; /* a section of line information */
    while (next_line(&ptx->at, ptx->end, &line)) {
        if (begins(line, ".section") && has(line, ".debug"))
            skips = true;
        bool counts =
            !skips && !begins(line, ".loc") && !begins(line, ".file") && !is_unread(ptx, line);
        if (skips && begins(line, "}"))
            skips = false;
        while (counts && next_word(&line, &word))
            add_word(ptx, word);
    }
    free(ptx->words);
}

/* ---- both -------------------------------------------------------------------------- */

static uint64_t finish(struct hash *hash)
{
    unsigned char digest[HASH_BYTES];
    hash_end(hash, digest);
    return hash_short(digest);
}

uint64_t code_digest(const void *code, size_t size, bool ptx, const char *symbol)
{
    struct cubin cubin = {.data = code, .size = size, .symbol = symbol};
    hash_begin(&cubin.hash);
    if (ptx) {
        struct ptx text = {.at = code, .end = (const char *)code + size, .symbol = symbol};
        hash_begin(&text.hash);
        add_ptx(&text);
        return finish(&text.hash);
    }
    if (!open_cubin(&cubin)) {
        hash_add(&cubin.hash, code, size);
        return finish(&cubin.hash);
    }
    for (unsigned i = 0; i < cubin.head.e_shnum; i++) {
        Elf64_Shdr section;
        if (read_section(&cubin, i, &section))
            add_section(&cubin, &section);
    }
    add_arrays(&cubin);
    return finish(&cubin.hash);
}
