#!/usr/bin/env python3
"""Formats the CUDA sources below templates/ by templates/.clang-format, templates themselves included.

    scripts/format_templates.py            rewrites them
    scripts/format_templates.py --check    names those that would change; exit status 1

clang-format sees a line of Lua ("$ ...") as a comment and "${...}" as an identifier of the same length; both come
back as they were. Layout is in no digest, so this never touches a measured row.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "//$$"
# Lua, and a pragma with an argument: clang-format would take its space, which the source digest keeps.
AS_THEY_ARE = re.compile(r"\s*\$ |#pragma unroll \(")


def expressions(text):
    """Spans of "${...}", with the braces in between matched."""
    at = 0
    while (start := text.find("${", at)) >= 0:
        depth, at = 1, start + 2
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield start, at


def hide(text):
    """The text as clang-format can read it, and what it stands for."""
    lines = [MARK + line if AS_THEY_ARE.match(line) else line for line in text.split("\n")]
    out, known = [], []
    for line in lines:
        if line.startswith(MARK):
            out.append(line)
            continue
        parts, last = [], 0
        for start, end in expressions(line):
            name = f"Z{len(known)}Z"
            known.append((name + "_" * (end - start - len(name)), line[start:end]))
            parts += [line[last:start], known[-1][0]]
            last = end
        out.append("".join(parts) + line[last:])
    return "\n".join(out), known


def show(text, known):
    """The formatted text with the template's own lines and expressions again."""
    text = re.sub(r"^[ \t]*" + re.escape(MARK) + r"(.*)$", r"\1", text, flags=re.M)
    for name, expression in known:
        if text.count(name) != 1:
            raise SystemExit(f"format_templates.py: {expression} is lost")
        text = text.replace(name, expression)
    return text


def formatted(path):
    """The file's text as it should be."""
    text, known = hide(path.read_text())
    run = subprocess.run(["clang-format", f"--assume-filename={path.with_suffix('.cuh')}"], input=text, text=True,
                         capture_output=True, check=True)
    return show(run.stdout, known)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        raise SystemExit(__doc__)
    files = [p for pattern in ("*.cuh", "*.cu.in") for p in sorted((ROOT / "templates").glob("*/**/" + pattern))]
    changed = 0
    for path in files:
        text = formatted(path)
        if text == path.read_text():
            continue
        changed += 1
        if check:
            print(f"{path.relative_to(ROOT)}: not formatted")
        else:
            path.write_text(text)
    if check and changed:
        print("scripts/format_templates.py formats them", file=sys.stderr)
    return check and changed > 0


if __name__ == "__main__":
    sys.exit(main())
