#!/usr/bin/env python3
"""Writes the tables of README.md between their markers, from what is committed.

    scripts/readme_tables.py            rewrites README.md
    scripts/readme_tables.py --check    exit status 1 if it would change

`support` comes from generated/catalog.tsv, `figures` from
bench/results/<gpu class>/*.csv.
"""
import collections
import csv
import math
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def read(path, delimiter):
    """(comments, rows as dicts); a line that starts with # is a comment."""
    if not path.exists():
        sys.exit(f"{path.relative_to(ROOT)}: no such file; `cmake --build build -t regen` makes the catalog")
    comments, lines = [], []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            comments.append(line[1:].strip())
        elif line.strip():
            lines.append(line)
    return comments, list(csv.DictReader(lines, delimiter=delimiter))


def origin(comments):
    """Where and how a file was measured, from its "# key: value" lines."""
    said = {}
    for key, value in (c.split(": ", 1) for c in comments if ": " in c):
        if value not in said.setdefault(key, []):
            said[key].append(value)
    parts = []
    if "command" in said:
        parts.append("Made by " + " and ".join(f"`{command}`" for command in said["command"]))
    said = {key: "; ".join(values) for key, values in said.items()}
    if "gpu" in said:
        parts.append(f"on {said['gpu']}")
    parts += [f"{key} {said[key]}" for key in ("driver", "toolkit") if key in said]
    notes = "".join(f" {title}: {said[key]}." for key, title in (("rows", "Rows"), ("peer", "Peers")) if key in said)
    return ", ".join(parts) + "." + notes if parts else ""


# ---- families x targets


def support():
    _, rows = read(ROOT / "generated/catalog.tsv", "\t")
    counts = collections.defaultdict(collections.Counter)
    for row in rows:
        family, target = row["family"], row["target"]
        counts[family, row["required"]][target] += 1
    # sm_80 before sm_100a, PTX last.
    order = lambda t: (t.startswith("compute"), int(re.sub(r"\D", "", t)))
    targets = sorted({t for c in counts.values() for t in c}, key=order)
    body = []
    for family in sorted({f for f, _ in counts}):
        keys = [c for (f, _), c in counts.items() if f == family]
        cells = []
        for t in targets:
            served = [c[t] for c in keys if c[t]]
            some = f" ({len(served)} of {len(keys)})" if 0 < len(served) < len(keys) else ""
            cells.append(f"{sum(served)}{some}" if served else "-")
        body.append([f"`{family}`", str(len(keys))] + cells)
    total = sum(sum(c.values()) for c in counts.values())
    return (
        f"Variants of each family, by target; {total} in all. A class is what a variant must match (dtype, widths, layout, ...; "
        "`attngen list keys` names them); where a target serves only some of them, that stands in parentheses. "
        "`compute_80` is PTX, which the driver compiles for whatever comes later.\n\n"
        + table(["family", "classes"] + targets, body)
    )


# ---- measured figures


def number(row, key):
    try:
        return float(row[key])
    except (KeyError, TypeError, ValueError):
        return math.nan


def show(value, form):
    return "-" if math.isnan(value) else form.format(value)


def case_order(case):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", case)]


SHOWN = 14  # cases of a family and class


def family_table(path):
    comments, rows = read(path, ",")
    cases = collections.defaultdict(dict)
    for row in rows:
        cases[row["case"]][row["peer"]] = row
    peers = sorted({p for c in cases.values() for p in c if p not in ("", "-")})
    body = []
    # README shows what a shape file begins with, its model's own problems; the report has them all.
    for case in sorted(list(cases)[:SHOWN], key=case_order):
        by_peer = cases[case]
        device = [r for p, r in by_peer.items() if not p.endswith("-eager")] or list(by_peer.values())
        speedups = [show(number(by_peer.get(p, {}), "speedup"), "{:.2f}x") for p in peers]
        body.append(
            [
                case,
                show(1e3 * number(device[0], "ms"), "{:.1f}"),
                show(number(device[0], "gbps"), "{:.0f}"),
                *speedups,
                show(number(device[0], "err"), "{:.1e}"),
            ]
        )
    header = ["problem", "us", "GB/s"] + [f"vs {p}" for p in peers] + ["error"]
    return table(header, body), origin(comments)


def host_table(path):
    comments, rows = read(path, ",")
    body = [
        [r["what"], show(number(r, "ns_p50"), "{:.0f}"), show(number(r, "ns_p999"), "{:.0f}"), r.get("note") or ""]
        for r in rows
    ]
    return table(["host", "ns, median", "ns, 99.9%", "note"], body), origin(comments)


def regret_table(path):
    comments, rows = read(path, ",")
    by_family = collections.defaultdict(list)
    for row in rows:
        if number(row, "ratio") > 0:
            by_family[row["family"]].append(number(row, "ratio"))
    body = []
    for family, ratios in sorted(by_family.items()):
        ratios.sort()
        body.append(
            [
                f"`{family}`",
                str(len(ratios)),
                f"{statistics.geometric_mean(ratios):.3f}",
                f"{ratios[min(len(ratios) - 1, math.ceil(0.95 * len(ratios)) - 1)]:.3f}",
            ]
        )
    header = ["selection", "problems not tuned on", "chosen / best, geometric mean", "95th percentile"]
    return table(header, body), origin(comments)


def columns_table(path):
    comments, rows = read(path, ",")
    columns = list(dict.fromkeys(row["column"] for row in rows))
    # Operations where the tensor cores bound, as the benchmark tells such problems.
    bound = all(1e3 * number(row, "tflops") > 150 * number(row, "gbps") for row in rows)
    rate, unit = ("tflops", "TFLOP/s") if bound else ("gbps", "GB/s")
    cases = collections.defaultdict(dict)
    for row in rows:
        cases[row["case"]][row["column"]] = number(row, rate)
    body = [[case] + [f"{found[c]:.0f}" if found.get(c, 0) > 0 else "-" for c in columns] for case, found in cases.items()]
    return table(["case"] + [f"{c}, {unit}" for c in columns], body), origin(comments)


def figures():
    parts = []
    for folder in sorted((ROOT / "bench/results").glob("*/")):
        for path in sorted(folder.glob("*.csv")):
            if path.stem.endswith("_ncu") or path.stem == "numerics":
                continue  # profiles and hard cases: the report has them
            maker = {"host": host_table, "regret": regret_table}.get(path.stem, family_table)
            if path.stem.endswith("_columns"):
                maker = columns_table
            text, made = maker(path)
            parts.append(f"**{folder.name}, {path.stem}**" + (f": {made}" if made else "") + f"\n\n{text}")
    if not parts:
        return "Nothing measured is committed yet: `attngen bench` on a GPU writes the figures that stand here."
    reports = [f"[{p.relative_to(ROOT)}]({p.relative_to(ROOT)})" for p in sorted((ROOT / "bench").glob("BENCHMARK_*.md"))]
    if reports:
        parts.append("All cases, with plots, profiles and how to repeat each: " + ", ".join(reports) + ".")
    return (
        "Device times (median, inputs rotated beyond L2); a speedup is a peer's time over ours, in the same run unless what is said "
        "of the peers says when else, on such a GPU; the "
        "class names architecture and SMs: `sm90_132sm` is an H200, `sm90_80sm` 80 SMs of it (a green context), close to an "
        "H20. A problem is named by batch, heads (HV: value heads where they differ), K, V and state "
        "layout.\n\n" + "\n\n".join(parts)
    )


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    readme = ROOT / "README.md"
    old = new = readme.read_text()
    for name, make in (("support", support), ("figures", figures)):
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        if new.count(begin) != 1 or new.count(end) != 1:
            sys.exit(f"README.md: the markers of '{name}' must stand there once each")
        head, rest = new.split(begin)
        new = head + begin + make() + "\n" + end + rest.split(end)[1]
    if new == old:
        return
    if sys.argv[1:]:
        sys.exit("README.md's tables are not what the tree holds. To refresh them: scripts/readme_tables.py")
    readme.write_text(new)


if __name__ == "__main__":
    main()
