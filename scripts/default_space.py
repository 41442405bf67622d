#!/usr/bin/env python3
"""Which variants the default space holds: those that a row of a committed tuning table picks.

    scripts/default_space.py            writes templates/<family>/default_space.txt anew
    scripts/default_space.py --check    says what is not as the tables have it; exit status 1

A family has such a list if the file exists; another family's variants are all in the default
space. Names stand without the target: what is fast on one architecture is offered on all.
"""
import glob
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = """# What some table of generated/tuning picks, with a blank in the target's place: the default space of this
# family, with each required key's fallback. Made by scripts/default_space.py (`regen`): do not edit. The
# others are built with `attngen build --full`, to be tuned.
"""


def picked(family):
    """The names, without targets, that rows of the family's tables give as fastest."""
    names = set()
    for path in glob.glob(os.path.join(ROOT, "generated/tuning/*.tsv")):
        columns = None
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                fields = line.rstrip("\n").split("\t")
                if line.startswith("#"):
                    continue
                if columns is None:
                    columns = fields
                    continue
                row = dict(zip(columns, fields))
                if row["family"] == family:
                    group, rest = row["variant"].split("__", 1)
                    names.add(group + " " + rest.partition("_")[2])
    return names


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = 0
    for path in sorted(glob.glob(os.path.join(ROOT, "templates/*/default_space.txt"))):
        family = os.path.basename(os.path.dirname(path))
        names = picked(family)
        if not names:
            sys.exit(f"default_space.py: no table in generated/tuning has a row of {family}")
        text = HEAD + "".join(name + "\n" for name in sorted(names))
        with open(path, encoding="utf-8") as file:
            found = file.read()
        if found == text:
            continue
        stale += 1
        if check:
            had = {line for line in found.splitlines() if line and not line.startswith("#")}
            print(f"{os.path.relpath(path, ROOT)}: {len(names - had)} variants that a table picks are "
                  f"missing, {len(had - names)} are picked by none")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if check and stale:
        sys.exit(1)


main()
