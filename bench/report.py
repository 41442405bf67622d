#!/usr/bin/env python3
"""Makes the published benchmark report out of result files; no number in it comes from anywhere else.

    python3 bench/report.py                 bench/BENCHMARK_H200.md and bench/plots/*.svg from bench/results/
    python3 bench/report.py --results DIR --output FILE.md

Families are those found: every <class>/<family>.csv with a `case` column; <family>_ncu.csv, host.csv, numerics.csv and
regret.csv beside them. Needs matplotlib (Debian: python3-matplotlib) for the plots; --no-plots leaves them out.
"""
import argparse
import csv
import glob
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def read(path):
    """Header lines ("# key: value") and rows of a result file. Where blocks of a file differ, all they say, "; " between."""
    with open(path) as lines:
        lines = list(lines)
    header = {}
    for line in lines:
        if line.startswith("#") and ": " in line:
            key, value = line[1:].strip().split(": ", 1)
            said = header.setdefault(key, [])
            if value not in said:
                said.append(value)
    header = {key: ("\n" if key == "command" else "; ").join(said) for key, said in header.items()}
    return header, list(csv.DictReader(l for l in lines if not l.startswith("#")))


def number(row, key):
    try:
        return float(row[key])
    except (KeyError, TypeError, ValueError):
        return math.nan


def geomean(values):
    values = [v for v in values if v > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def quantile(values, p):
    values = sorted(values)
    at = p * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def text(value, digits):
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def table(head, rows):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return out + ["| " + " | ".join(r) + " |" for r in rows] + [""]


def provenance(header):
    parts = [f"{k} {header[k]}" for k in ("gpu", "driver", "toolkit", "commit", "date") if header.get(k, "-") != "-"]
    out = ["; ".join(parts) + ".", ""] if parts else []
    if "command" in header:
        out += ["```sh", header["command"], "```", ""]
    return out


# ---- one family ---------------------------------------------------------------------------------------------------------


def by_case(rows):
    """{case: {peer: row}} in file order."""
    cases = {}
    for row in rows:
        cases.setdefault(row["case"], {})[row["peer"]] = row
    return cases


def device_row(peers):
    """A row whose ms is device time: any but those of eager peers."""
    return next((r for p, r in peers.items() if not p.endswith("-eager")), None)


def family_tables(header, rows):
    cases = by_case(rows)
    peers = sorted({r["peer"] for r in rows if r["peer"] != "-"}, key=lambda p: (p.endswith("-eager"), p))
    device = [p for p in peers if not p.endswith("-eager")]
    eager = [p for p in peers if p.endswith("-eager")]
    out = provenance(header)
    if "method" in header:
        out += [header["method"] + ".", ""]
    head = ["case", "us", "GB/s", "error"] + [f"{p}: us" for p in device] + [f"speedup over {p}" for p in device] + ["variant"]
    body = []
    for case, found in cases.items():
        row = device_row(found)
        if not row:
            continue
        cells = [case, text(1e3 * number(row, "ms"), 2), text(number(row, "gbps"), 0), row["err"]]
        cells += [text(1e3 * number(found.get(p, {}), "peer_ms"), 2) for p in device]
        cells += [text(number(found.get(p, {}), "speedup"), 3) for p in device]
        body.append(cells + [f"`{row['variant']}`"])
    out += table(head, body)
    for peer in eager:
        body = [
            [case, text(1e3 * number(r, "ms"), 2), text(1e3 * number(r, "peer_ms"), 2), text(number(r, "speedup"), 2)]
            for case, r in ((c, f[peer]) for c, f in cases.items() if peer in f)
        ]
        out += [f"As a caller sees it, against {peer}:", ""] + table(["case", "us a call", f"{peer}: us a call", "speedup"], body)
    return out


def device_peers(rows):
    return sorted({r["peer"] for r in rows if r["peer"] != "-" and not r["peer"].endswith("-eager")})


def roofline(path, rows, header):
    """Bandwidth reached over bytes moved, beside what an in-place update of the same bytes reaches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    rows = [r for r in rows if not r["peer"].endswith("-eager")]
    point = lambda r: (number(r, "tflops") * 1e3 / number(r, "gbps"), number(r, "tflops"))
    ours = [point(r) for r in (device_row(p) for p in by_case(rows).values())]
    bars = [(f, t / number(r, "speedup")) for r in rows if r["peer"] == "inplace-copy" for f, t in [point(r)]]
    best = max((number(r, "gbps") / number(r, "speedup") for r in rows if r["peer"] == "inplace-copy"), default=math.nan)
    if not math.isnan(best):
        span = [min(f for f, _ in ours) / 2, max(f for f, _ in ours) * 2]
        axes.plot(span, [best * f / 1e3 for f in span], color="0.4", label=f"in the time of an in-place update of the state, at best: {best:.0f} GB/s")
    axes.scatter(*zip(*ours), s=18, label="selected kernels", zorder=3)
    if bars:
        axes.scatter(*zip(*bars), s=18, marker="x", color="0.4", label="in-place update of the same bytes", zorder=2)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte moved", ylabel="TFLOP/s", title=header.get("gpu", ""))
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    save(figure, path)


def speedups(path, rows, header):
    import matplotlib.pyplot as plt

    peers = device_peers(rows)
    cases = list(by_case(rows))
    figure, axes = plt.subplots(figsize=(max(8, 0.32 * len(cases)), 4.8))
    for peer in peers:
        points = [(cases.index(r["case"]), number(r, "speedup")) for r in rows if r["peer"] == peer]
        axes.plot(*zip(*points), marker="o", markersize=4, linewidth=1, label=f"over {peer}")
    axes.axhline(1, color="0.4", linewidth=0.8)
    axes.set_xticks(range(len(cases)), cases, rotation=90, fontsize=7)
    axes.set(ylabel="speedup (device time)", title=header.get("gpu", ""))
    axes.grid(alpha=0.3, axis="y")
    axes.legend()
    save(figure, path)


def save(figure, path):
    import matplotlib.pyplot as plt

    os.makedirs(os.path.dirname(path), exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


# ---- the rest -----------------------------------------------------------------------------------------------------------


def profile_table(header, rows):
    stalls = [k for k in rows[0] if k.startswith("stall_")]
    keys = [k for k in rows[0] if k not in ("case", "variant") and k not in stalls]
    out = provenance(header) + table(["figure"] + [r["case"] for r in rows], [["variant"] + [f"`{r['variant']}`" for r in rows]] + [[k] + [r[k] for r in rows] for k in keys])
    if stalls:
        stalls.sort(key=lambda k: -number(rows[0], k))
        out += ["Stall reasons, warps waiting per issue slot used:", ""]
        out += table(["reason"] + [r["case"] for r in rows], [[k[6:]] + [r[k] for r in rows] for k in stalls])
    return out


def host_table(header, rows):
    out = provenance(header)
    if "method" in header:
        out += [header["method"] + ".", ""]
    return out + table(["what", "median, ns", "99.9 %, ns", "note"], [[r["what"], r["ns_p50"], r["ns_p999"], r["note"]] for r in rows])


def regret_table(header, rows):
    out = provenance(header)
    if "method" in header:
        out += [header["method"] + ".", ""]
    body = []
    for family in sorted({r["family"] for r in rows}):
        ratios = [number(r, "ratio") for r in rows if r["family"] == family]
        body.append([family, str(len(ratios)), text(geomean(ratios), 4), text(quantile(ratios, 0.95), 4), text(max(ratios), 4)])
    return out + table(["family", "problems", "geometric mean", "95th percentile", "worst"], body)


def numerics_table(header, rows):
    """Errors of the hard cases, one row a case and peer."""
    out = provenance(header)
    if "method" in header:
        out += [header["method"] + ".", ""]
    return out + table(["family", "case", "error", "peer", "peer's error"], [[r[k] for k in ("family", "case", "error", "peer", "peer_error")] for r in rows])


def columns_table(header, rows):
    """Kinds of variants side by side: the rate of each, and the first over the second."""
    # Operations where the tensor cores bound, as the benchmark tells such problems.
    rate, unit = ("tflops", "TFLOP/s") if all(1e3 * number(r, "tflops") > 150 * number(r, "gbps") for r in rows) else ("gbps", "GB/s")
    out = provenance(header)
    if "method" in header:
        out += [header["method"] + ".", ""]
    columns = list(dict.fromkeys(r["column"] for r in rows))
    cases = {}
    for r in rows:
        cases.setdefault(r["case"], {})[r["column"]] = r
    body = []
    for case, found in cases.items():
        cells = [text(number(found.get(c, {}), rate), 1) for c in columns]
        two = [number(found.get(c, {}), rate) for c in columns[:2]]
        body.append([case] + cells + ([text(two[0] / two[1], 3)] if len(two) == 2 else []))
    head = ["case"] + [f"{c}, {unit}" for c in columns] + ([f"{columns[0]} / {columns[1]}"] if len(columns) > 1 else [])
    return out + table(head, body)


def class_sections(folder, plots, plot_link, with_plots):
    name = os.path.basename(folder)
    out = []
    for path in sorted(glob.glob(os.path.join(folder, "*.csv"))):
        stem = os.path.basename(path)[:-4]
        header, rows = read(path)
        if not rows:
            continue
        if stem == "host":
            out += [f"## Host cost ({name})", ""] + host_table(header, rows)
        elif stem == "regret":
            out += [f"## What selection loses ({name})", ""] + regret_table(header, rows)
        elif stem == "numerics":
            out += [f"## Errors on inputs that hurt ({name})", ""] + numerics_table(header, rows)
        elif stem.endswith("_columns"):
            out += [f"## {stem[:-8]}: kinds of variants ({name})", ""] + columns_table(header, rows)
        elif stem.endswith("_ncu"):
            out += [f"## {stem[:-4]}: profile ({name})", ""] + profile_table(header, rows)
        elif "case" in rows[0]:
            out += [f"## {stem} ({name})", ""] + family_tables(header, rows)
            kinds = [("roofline", roofline)] + [("speedup", speedups)] * bool(device_peers(rows))
            for kind, draw in kinds if with_plots else ():
                file = f"{stem}_{name}_{kind}.svg"
                draw(os.path.join(plots, file), rows, header)
                out += [f"![{kind}]({plot_link}/{file})", ""]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", default=os.path.join(HERE, "results"))
    parser.add_argument("--output", default=os.path.join(HERE, "BENCHMARK_H200.md"))
    parser.add_argument("--title", default="Benchmark: NVIDIA H200")
    parser.add_argument("--no-plots", action="store_true")
    options = parser.parse_args()
    folders = sorted(f for f in glob.glob(os.path.join(options.results, "*")) if os.path.isdir(f))
    folders.sort(key=lambda f: -int("".join(c for c in f.rsplit("_", 1)[-1] if c.isdigit()) or 0))
    if not options.no_plots:
        import matplotlib

        matplotlib.use("Agg")
        matplotlib.rcParams["svg.hashsalt"] = "attngen"  # the same input gives the same file
    plots = os.path.join(os.path.dirname(os.path.abspath(options.output)), "plots")
    out = [f"# {options.title}", "", "Made by `python3 bench/report.py` from the files in `bench/results/`: do not edit.", ""]
    for folder in folders:
        out += class_sections(folder, plots, "plots", not options.no_plots)
    if len(out) == 4:
        sys.exit(f"report.py: no results in {options.results}")
    with open(options.output + ".tmp", "w") as file:
        file.write("\n".join(out).rstrip() + "\n")
    os.replace(options.output + ".tmp", options.output)
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
