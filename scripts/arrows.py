#!/usr/bin/env python3
"""Checks who includes whom: the arrows between the tree's folders.

    scripts/arrows.py [TREE]

Fails, with a line for each, on an include that climbs ("../"), on an include
between folders that docs/design.md ("Rooms") has no arrow for, on one that names
no file, and on a circle of includes that leaves its folder.
"""
import pathlib
import re
import sys

# What files of a folder may include, beside their own folder. The longest prefix of a file's path
# decides.
FAMILY = ["runtime/gen.h", "runtime/core/", "runtime/family/", "templates/"]
PRODUCT = FAMILY + ["runtime/format/", "runtime/product/"]
ARROWS = {
    "gen/": ["gen/", "runtime/format/"],
    "runtime/gen.h": [],
    "runtime/format/": [],
    "runtime/core/": ["runtime/gen.h"],
    "runtime/family/": FAMILY + ["runtime/reference/inputs.h"],
    "runtime/product/": PRODUCT,
    "runtime/select/": PRODUCT,
    "runtime/cuda/": PRODUCT,
    "runtime/reference/": ["runtime/gen.h"],
    "runtime/families/": FAMILY + ["runtime/reference/", "runtime/cuda/driver.h"],
    "templates/": ["templates/"],
    "bench/": ["bench/", "runtime/", "templates/"],
    "bench/common/": ["runtime/", "templates/"],
    "bench/verify/": ["bench/common/", "runtime/", "templates/"],
    "bench/tune/": ["bench/common/", "bench/verify/", "runtime/", "templates/"],
    "python/": [],
    "tests/emul/": ["tests/emul/"],
    "tests/emul/kernels/": ["tests/emul/kernels/", "templates/lib/"],
    "tests/gen/": ["tests/gen/", "gen/", "runtime/format/"],
    "tests/": ["tests/", "runtime/", "templates/", "bench/"],
}
# Where an include is looked for, after the including file's own folder.
SEARCH = {
    "gen": ["gen", "runtime"],
    "runtime": ["runtime", "templates"],
    "templates": ["templates"],
    "bench": ["bench", "runtime", "templates"],
    "python": [],
    "tests/emul": ["tests/emul", "templates"],
    "tests/gen": ["gen", "runtime"],
    "tests/fuzz": ["tests/runtime", "tests/oracle", "bench", "runtime", "templates"],
    "tests": ["tests/runtime", "tests/emul", "bench", "runtime", "templates"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
GENERATED = {"emul/prelude.cuh", "emul/kernel.cuh"}


def longest(path, table):
    """The value of the longest prefix of `path` among the keys."""
    keys = [key for key in table if path == key or path.startswith(key if key.endswith("/") else key + "/")]
    return table[max(keys, key=len)] if keys else None


def sources(tree):
    for folder in ("gen", "runtime", "templates", "bench", "python", "tests"):
        for path in sorted((tree / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".cu", ".cuh") and "fixtures" not in path.parts and "consumer" not in path.parts:
                yield path.relative_to(tree).as_posix()


def allowed(tree, source, target):
    folder = source.rsplit("/", 1)[0] + "/"
    if target.startswith(folder) or any(target.startswith(arrow) for arrow in longest(source, ARROWS) or []):
        return True
    # A family includes public headers and what families share, which is in folders without a family.c, and no
    # other family.
    public = target.endswith("/api.h")
    shared = target.startswith("runtime/families/") and (public or not (tree / target).with_name("family.c").exists())
    return shared and source.startswith("runtime/families/")


def circles(includes):
    """Circles of includes whose files are of several folders, each once."""
    found, done = [], set()

    def visit(path, trail):
        if path in trail:
            circle = trail[trail.index(path):]
            if len({file.rsplit("/", 1)[0] for file in circle}) > 1:
                found.append(" -> ".join(circle + [path]))
        elif path not in done:
            for target in includes.get(path, []):
                visit(target, trail + [path])
            done.add(path)

    for path in includes:
        visit(path, [])
    return found


def check(tree):
    faults, includes = [], {}
    for source in sources(tree):
        includes[source] = []
        for name in INCLUDE.findall((tree / source).read_text()):
            if ".." in name.split("/"):
                faults.append(f'{source}: "{name}" climbs')
                continue
            here = source.rsplit("/", 1)[0]
            places = [f"{folder}/{name}" for folder in [here] + (longest(source, SEARCH) or [])]
            target = next((place for place in places if (tree / place).is_file()), None)
            if target:
                includes[source].append(target)
                if not allowed(tree, source, target):
                    faults.append(f"{source}: may not include {target}")
            elif name not in GENERATED:
                faults.append(f'{source}: "{name}" is no file of {", ".join(places)}')
    faults += [f"circle: {circle}" for circle in circles(includes)]
    return faults, sum(map(len, includes.values()))


def main():
    tree = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    faults, count = check(tree)
    print("\n".join(faults) or f"{count} includes, every one along an arrow")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
