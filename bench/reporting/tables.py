"""The report's Markdown: a section for each result file, and the variants by target."""
import collections
import re

from .results import ROOT, Results, device_row, geomean, number, quantile, text


def table(head, rows):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return out + ["| " + " | ".join(r) + " |" for r in rows] + [""]


def provenance(header):
    """Where, how and with which peers a file was measured."""
    keys = [k for k in ("gpu", "driver", "toolkit", "commit", "date") if header.get(k, ["-"]) != ["-"]]
    out = ["; ".join(f"{k} {'; '.join(header[k])}" for k in keys) + ".", ""] if keys else []
    if "command" in header:
        out += ["```sh", *header["command"], "```", ""]
    if "rows" in header:
        out += ["Rows: " + "; ".join(header["rows"]) + ".", ""]
    if "method" in header:
        out += ["; ".join(header["method"]) + ".", ""]
    out += [f"* Memory: {note}." for note in header.get("memory", [])] + [""] * ("memory" in header)
    return out + [f"* Peer {note}." for note in header.get("peer", [])] + [""] * ("peer" in header)


def family_section(results):
    cases, device = results.cases(), results.device_peers()
    out = provenance(results.header)
    head = ["case", "us", "GB/s", "TFLOP/s", "error"] + [f"{p}: us" for p in device] + [f"speedup over {p}" for p in device] + ["variant"]
    body = []
    for case, found in cases.items():
        row = device_row(found)
        if not row:
            continue
        cells = [case, text(1e3 * number(row, "ms"), 2), text(number(row, "gbps"), 0), text(number(row, "tflops"), 1), row["err"]]
        cells += [text(1e3 * number(found.get(p, {}), "peer_ms"), 2) for p in device]
        cells += [text(number(found.get(p, {}), "speedup"), 3) for p in device]
        body.append(cells + [f"`{row['variant']}`"])
    out += table(head, body)
    for peer in results.eager_peers():
        body = [
            [case, text(1e3 * number(r, "ms"), 2), text(1e3 * number(r, "peer_ms"), 2), text(number(r, "speedup"), 2)]
            for case, r in ((c, f[peer]) for c, f in cases.items() if peer in f)
        ]
        out += [f"Wall time of a call, beside {peer}:", ""] + table(["case", "us a call", f"{peer}: us a call", "speedup"], body)
    return out


def profile_section(results):
    rows = results.rows
    stalls = [k for k in rows[0] if k.startswith("stall_")]
    keys = [k for k in rows[0] if k not in ("case", "variant") and k not in stalls]
    cases = [r["case"] for r in rows]
    body = [["variant"] + [f"`{r['variant']}`" for r in rows]] + [[k] + [r[k] for r in rows] for k in keys]
    out = provenance(results.header) + table(["figure"] + cases, body)
    if stalls:
        stalls.sort(key=lambda k: -number(rows[0], k))
        out += ["Stall reasons, warps waiting per issue slot used:", ""]
        out += table(["reason"] + cases, [[k[6:]] + [r[k] for r in rows] for k in stalls])
    return out


def host_section(results):
    body = [[r["what"], r["ns_p50"], r["ns_p999"], r["note"]] for r in results.rows]
    return provenance(results.header) + table(["what", "median, ns", "99.9 %, ns", "note"], body)


def regret_section(results):
    body = []
    for family in sorted({r["family"] for r in results.rows}):
        ratios = [number(r, "ratio") for r in results.rows if r["family"] == family]
        figures = [geomean(ratios), quantile(ratios, 0.95), max(ratios)]
        body.append([family, str(len(ratios))] + [text(f, 4) for f in figures])
    return provenance(results.header) + table(["family", "problems", "geometric mean", "95th percentile", "worst"], body)


def numerics_section(results):
    body = [[r[k] for k in ("family", "case", "error", "peer", "peer_error")] for r in results.rows]
    return provenance(results.header) + table(["family", "case", "error", "peer", "peer's error"], body)


def columns_section(results):
    """Kinds of variants side by side: the rate of each, and the first over the second."""
    # Operations count where the tensor cores bound, by the benchmark's own limit.
    bound = all(1e3 * number(r, "tflops") > 150 * number(r, "gbps") for r in results.rows)
    rate, unit = ("tflops", "TFLOP/s") if bound else ("gbps", "GB/s")
    columns = list(dict.fromkeys(r["column"] for r in results.rows))
    cases = collections.defaultdict(dict)
    for r in results.rows:
        cases[r["case"]][r["column"]] = number(r, rate)
    body = []
    for case, found in cases.items():
        rates = [found.get(c, float("nan")) for c in columns]
        body.append([case] + [text(v, 1) for v in rates] + ([text(rates[0] / rates[1], 3)] if len(rates) > 1 else []))
    head = ["case"] + [f"{c}, {unit}" for c in columns] + ([f"{columns[0]} / {columns[1]}"] if len(columns) > 1 else [])
    return provenance(results.header) + table(head, body)


SPECIAL = {
    "host": ("Host cost", host_section),
    "regret": ("What selection loses", regret_section),
    "numerics": ("Errors on hard inputs", numerics_section),
}
SUFFIXES = {"_columns": ("kinds of variants", columns_section), "_ncu": ("profile", profile_section)}


def class_sections(folder, plots):
    """Sections of one GPU class; plots maps a file's stem to the lines that show its plots."""
    out = []
    for path in sorted(folder.glob("*.csv")):
        results = Results(path)
        if not results.rows:
            continue
        suffix = next((s for s in SUFFIXES if path.stem.endswith(s)), None)
        if path.stem in SPECIAL:
            title, make = SPECIAL[path.stem]
        elif suffix:
            title, make = f"{path.stem[:-len(suffix)]}: {SUFFIXES[suffix][0]}", SUFFIXES[suffix][1]
        elif "case" in results.rows[0]:
            title, make = path.stem, family_section
        else:
            continue
        out += [f"## {title} ({folder.name})", ""] + plots.get(path.stem, []) + make(results)
    return out


def variants_section(catalog):
    """How many variants each family has for each target."""
    counts = collections.defaultdict(collections.Counter)
    for row in catalog.rows:
        counts[row["family"], row["required"]][row["target"]] += 1
    # sm_80 stands before sm_100a, PTX last.
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
    return [
        "## Variants by target",
        "",
        f"The catalog has {total} variants. A required key is what a variant must match (dtype, widths, layout, ...); "
        "`attngen list keys` names them. Where a target serves only some of a family's keys, their number stands in parentheses.",
        "",
    ] + table(["family", "required keys"] + targets, body)


def catalog():
    return Results(ROOT / "generated/catalog.tsv", "\t")
