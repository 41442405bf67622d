#!/usr/bin/env python3
"""Checks what the documents promise their readers; exit status 1 with a line for each fault.

    scripts/check_documents.py [FOLDER]     default: the tree that this file is in

README.md has at most 150 lines. docs/perf and docs/log have no line above 120 columns. A log is named DATE-WHAT.md, and a
page of docs/perf links to it. A link of a document to a file of the tree names one that exists, with its heading where it
names one.
"""
import pathlib
import re
import sys

MOST_LINES, MOST_COLUMNS = 150, 120


def heading_anchor(line):
    text = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
    return text.replace(" ", "-")


def links(text):
    """(line number, target) of each link outside of fenced blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced:
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                yield number, target


def faults(root):
    readme = (root / "README.md").read_text().splitlines()
    if len(readme) > MOST_LINES:
        yield f"README.md has {len(readme)} lines; allowed are {MOST_LINES}"
    for path in sorted([*root.glob("docs/perf/*.md"), *root.glob("docs/log/*.md")]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > MOST_COLUMNS:
                yield f"{path.relative_to(root)}:{number} has {len(line)} columns; allowed are {MOST_COLUMNS}"
    pages = "".join(path.read_text() for path in root.glob("docs/perf/*.md"))
    for path in sorted(root.glob("docs/log/*")):
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}-[a-z0-9-]+\.md", path.name):
            yield f"{path.relative_to(root)}: a log's name is DATE-WHAT.md"
        elif f"](../log/{path.name})" not in pages:
            yield f"{path.relative_to(root)}: no page of docs/perf links to it"
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("bench/*.md")]):
        for number, target in links(path.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = (path.parent / file).resolve() if file else path
            if not there.exists():
                yield f"{path.relative_to(root)}:{number} links to {target}, which does not exist"
            elif anchor and anchor not in map(heading_anchor, re.findall(r"^#+ .*", there.read_text(), re.M)):
                yield f"{path.relative_to(root)}:{number} links to {target}, which has no such heading"


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else pathlib.Path(__file__).resolve().parent.parent
    found = list(faults(root.resolve()))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
