#!/usr/bin/env python3
"""Makes CUDA sources readable for a C++ compiler: every asm statement becomes a call that the emulation answers.

    rewrite.py TEMPLATES OUTPUT [SOURCE.cu...]

writes the headers of TEMPLATES to the same places under OUTPUT and each source to OUTPUT/<name>, and leaves files alone
that would not change. Lines keep their numbers. An asm statement

    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");

becomes EMUL_ASM("ld.global.f32 %0, [%1];", emul_out<'f'>(x), emul_in<'l'>(p)); what a macro holds of it is rewritten there.
"""
import os
import re
import sys

SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.S)
STATEMENT = re.compile(r'\b(?:__)?asm(?:__)?\s*(?:volatile\s*|__volatile__\s*)?\(')
OPERAND = re.compile(r'"([=+]?)&?([hrlfdn])"\s*\(')
BUILDER = {"": "emul_in", "=": "emul_out", "+": "emul_inout"}


def statement_parts(text, start):
    """The parts between top-level colons from `start`, just behind the parenthesis, and where the statement's
    parenthesis closes."""
    parts, depth, at, begin = [], 0, start, start
    while at < len(text):
        skipped = SKIPPED.match(text, at)
        if skipped:
            at = skipped.end()
            continue
        c = text[at]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                return parts + [text[begin:at]], at
            depth -= 1
        elif c == ":" and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    raise ValueError("an asm statement without end")


def call(parts):
    """The parts joined as arguments; clobbers go, their line ends stay."""
    result = parts[0]
    for operands in parts[1:3]:
        result += ("," if operands.strip() else "") + operands
    return result + "".join("\n" * part.count("\n") for part in parts[3:])


def rewrite(text):
    out, at = [], 0
    while at < len(text):
        skipped = SKIPPED.match(text, at)
        statement = None if skipped else STATEMENT.match(text, at)
        if skipped:
            out.append(skipped.group())
            at = skipped.end()
        elif statement and (at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_")):
            parts, end = statement_parts(text, statement.end())
            out.append("EMUL_ASM(" + call(parts))
            at = end
        else:
            out.append(text[at])
            at += 1
    return OPERAND.sub(lambda m: "%s<'%s'>(" % (BUILDER[m.group(1)], m.group(2)), "".join(out))


def write_changed(path, text):
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = "%s.%d" % (path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def convert(source, target):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    try:
        write_changed(target, rewrite(text))
    except ValueError as error:
        sys.exit("rewrite.py: %s: %s" % (source, error))


def main():
    templates, output = sys.argv[1:3]
    for folder, _, names in os.walk(templates, followlinks=True):
        for name in names:
            if name.endswith((".cuh", ".h")):
                source = os.path.join(folder, name)
                convert(source, os.path.join(output, os.path.relpath(source, templates)))
    for source in sys.argv[3:]:
        convert(source, os.path.join(output, os.path.basename(source)))


main()
