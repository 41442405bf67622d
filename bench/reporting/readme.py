"""README.md's generated parts: twelve figures with a plot, and the support table in short."""
import collections
import re

from . import shown
from .plots import PLOTS
from .results import Results, device_row, is_eager, number
from .tables import table


class Missing(Exception):
    """A case that README.md shows is not in the results."""


def rate(value, unit):
    """(figure, unit) as README.md prints them."""
    return f"{value:,.0f}", {"tflops": "TFLOP/s", "gbps": "GB/s", "us": "us"}[unit]


def figure_row(folder, operator, problem, file, case, unit):
    path = folder / f"{file}.csv"
    found = Results(path).cases().get(case) if path.exists() else None
    row = device_row(found) if found else None
    if not row:
        raise Missing(f"{file}.csv has no device time of {case}, which bench/reporting/shown.py names for README.md")
    beside = []
    for peer, r in sorted(found.items(), key=lambda item: shown.PEERS.get(item[0], item[0])):
        speedup = number(r, "speedup")
        if is_eager(peer) or peer in (shown.COPY, *shown.HIDDEN) or not speedup > 0:
            continue
        name = shown.PEERS.get(peer, peer)
        theirs = number(r, "peer_ms") * 1e3 if unit == "us" else number(r, unit) / speedup if unit != "share" else None
        beside.append(f"{name} {speedup:.2f}x" + (f" ({rate(theirs, unit)[0]})" if theirs else ""))
    if unit == "share":
        if shown.COPY not in found:
            raise Missing(f"{file}.csv has no {shown.COPY} beside {case}")
        ours = f"{100 * number(found[shown.COPY], 'speedup'):.1f} % of the in-place copy"
    else:
        ours = " ".join(rate(number(row, "ms") * 1e3 if unit == "us" else number(row, unit), unit))
    return [operator, problem, ours, ", ".join(beside) or "-"]


def figures(folder):
    rows = [figure_row(folder, *row) for row in shown.ROWS]
    head = ["operator", "problem", "attngen", "speedup over (their figure)"]
    title = next(plot[7] for plot in PLOTS if plot[1] == shown.PLOT)
    plot = [f"![{title}](bench/plots/{shown.PLOT})"]
    return "\n".join(table(head, rows) + plot)


def support(catalog):
    counts = collections.defaultdict(collections.Counter)
    keys, served = collections.defaultdict(set), collections.defaultdict(set)
    for row in catalog.rows:
        counts[row["family"]][row["target"]] += 1
        keys[row["family"]].add(row["required"])
        served[row["family"], row["target"]].add(row["required"])
    targets = sorted({t for c in counts.values() for t in c}, key=lambda t: (t.startswith("compute"), int(re.sub(r"\D", "", t))))
    rows = {}
    for family in sorted(counts):
        partly = [t for t in targets if 0 < len(served[family, t]) < len(keys[family])]
        absent = [t for t in targets if not counts[family][t]]
        notes = [f"{n} of {len(keys[family])} keys on {', '.join(t for t in partly if len(served[family, t]) == n)}"
                 for n in sorted({len(served[family, t]) for t in partly})]
        notes += [f"none on {', '.join(absent)}"] if absent else []
        row = (f"`{family}`", len(keys[family]), sum(counts[family].values()), "; ".join(notes) or "all keys")
        # Stages and launches of others share a row for each answer: there are many, and README.md is short.
        rows.setdefault(family if family in shown.USERS else ("part", row[3]), []).append(row)
    body = [[", ".join(r[0] for r in group), str(sum(r[1] for r in group)), f"{sum(r[2] for r in group):,}", group[0][3]]
            for group in rows.values()]
    head = ["family", "required keys", "variants", f"on {', '.join(targets)}"]
    return "\n".join(table(head, body)).rstrip()


def updated(old, parts):
    """README.md's text with each part between its markers."""
    new = old
    for name, content in parts.items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        if new.count(begin) != 1 or new.count(end) != 1:
            raise Missing(f"README.md must have the markers of '{name}' once each")
        head, rest = new.split(begin)
        new = head + begin + content + "\n" + end + rest.split(end)[1]
    return new
