#!/usr/bin/env python3
"""Writes the files that a document shows, so that tests can build them.

    scripts/doc_blocks.py DOCUMENT FOLDER

A fenced block that follows the line `<!-- file: PATH -->` (blank lines
between them are allowed) is written to FOLDER/PATH. Prints each path.
"""
import pathlib
import re
import sys


def blocks(text):
    """Yields (path, content) for each marked block; raises ValueError."""
    path, fence, lines = None, None, []
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:
            if line.strip() == fence:
                if path:
                    yield path, "\n".join(lines) + "\n"
                path, fence = None, None
            else:
                lines.append(line)
        elif mark := re.fullmatch(r"<!-- file: (\S+) -->", line.strip()):
            path = mark.group(1)
        elif opening := re.match(r"\s*(```+)", line):
            fence, lines = opening.group(1), []
        elif path and line.strip():
            raise ValueError(f"line {number}: a fenced block must follow the mark of {path}")
    if path or fence:
        raise ValueError(f"the block of {path} has no end")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    document, folder = map(pathlib.Path, sys.argv[1:])
    try:
        found = list(blocks(document.read_text()))
    except ValueError as error:
        sys.exit(f"{document}: {error}")
    if not found:
        sys.exit(f"{document}: no block is marked <!-- file: ... -->")
    for path, content in found:
        target = folder / path
        if not target.resolve().is_relative_to(folder.resolve()):
            sys.exit(f"{document}: {path} is outside the folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        print(path)


if __name__ == "__main__":
    main()
