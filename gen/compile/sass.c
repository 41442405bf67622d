#include "compile/sass.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* From Volta on an instruction has 16 bytes, with the opcode in the lowest 12 bits. Behind the
 * last one a kernel has a jump to itself, which counts, and NOPs up to 128 bytes, which do not. */
enum { INSTRUCTION = 16, OPCODE = 0xfff, NOP = 0x918 };

static bool inside(uint64_t offset, uint64_t count, size_t size)
{
    return offset <= size && count <= size - offset;
}

static int count_section(const unsigned char *code, uint64_t size)
{
    uint64_t count = size / INSTRUCTION;
    for (; count > 0; count--) {
        uint64_t word;
        memcpy(&word, code + (count - 1) * INSTRUCTION, sizeof word);
        if ((word & OPCODE) != NOP)
            break;
    }
    return (int)count;
}

int sass_count(const void *cubin, size_t size)
{
    static const char text[] = ".text.";
    const unsigned char *bytes = cubin;
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    int count = 0;
    if (size < sizeof head)
        return 0;
    memcpy(&head, bytes, sizeof head);
    const uint64_t table = head.e_shoff, entry = sizeof section;
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_shentsize != entry ||
        head.e_shstrndx >= head.e_shnum || !inside(table, head.e_shnum * entry, size))
        return 0;
    memcpy(&names, bytes + table + head.e_shstrndx * entry, sizeof names);
    if (!inside(names.sh_offset, names.sh_size, size))
        return 0;
    for (uint64_t i = 0; i < head.e_shnum; i++) {
        memcpy(&section, bytes + table + i * entry, sizeof section);
        if (section.sh_type != SHT_PROGBITS || !inside(section.sh_offset, section.sh_size, size) ||
            !inside(section.sh_name, sizeof text - 1, (size_t)names.sh_size) ||
            memcmp(bytes + names.sh_offset + section.sh_name, text, sizeof text - 1) != 0)
            continue;
        count += count_section(bytes + section.sh_offset, section.sh_size);
    }
    return count;
}
