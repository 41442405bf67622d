#!/usr/bin/env python3
"""Makes the published report and README.md's figures out of result files; no number in them comes from anywhere else.

    bench/report.py                 bench/BENCHMARK_H200.md, bench/plots/*.png and README.md's parts, from bench/results/
    bench/report.py --no-plots      the same without drawing
    bench/report.py --check         exit status 1 if one of them is not what the results and the catalog give
    bench/report.py --results DIR --output FILE.md      a report of other results; README.md stays

Every <class>/<family>.csv with a `case` column is a family's; <family>_columns.csv, <family>_ncu.csv, host.csv, numerics.csv
and regret.csv stand beside them. Plots need matplotlib (Debian: python3-matplotlib); --check does not.
"""
import argparse
import pathlib
import sys

sys.dont_write_bytecode = True  # A source tree stays clean.

from reporting import plots, readme, tables
from reporting.results import ROOT, classes

REPORT = ROOT / "bench/BENCHMARK_H200.md"
RESULTS = ROOT / "bench/results"


def report_text(results, plot_folder, title, with_variants):
    lines = [f"# {title}", "", "`bench/report.py` makes this file from `bench/results/`; changes belong there.", ""]
    lines += plots.lines_of("overview", results, plot_folder)
    for folder in classes(results):
        shown = {path.stem: plots.lines_of(f"{folder.name}/{path.stem}", results, plot_folder) for path in folder.glob("*.csv")}
        lines += tables.class_sections(folder, shown)
    if not any(line.startswith("## ") for line in lines):
        sys.exit(f"report.py: no results in {results}")
    if with_variants:
        lines += tables.variants_section(tables.catalog())
    return "\n".join(lines).rstrip() + "\n"


def readme_text(old):
    try:
        return readme.updated(old, {"support": readme.support(tables.catalog()), "figures": readme.figures(RESULTS)})
    except readme.Missing as error:
        sys.exit(f"report.py: {error}")


def check():
    """Every file that would change, and every plot that does not show the results."""
    stale = plots.stale(RESULTS, REPORT.parent / "plots")
    if report_text(RESULTS, REPORT.parent / "plots", "Benchmark: NVIDIA H200", True) != REPORT.read_text():
        stale.append(f"{REPORT.relative_to(ROOT)} is not what the results and the catalog give")
    text = (ROOT / "README.md").read_text()
    if readme_text(text) != text:
        stale.append("README.md's tables are not what the results and the catalog give")
    if stale:
        sys.exit("\n".join(stale) + "\nTo refresh them: bench/report.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--output", type=pathlib.Path, default=REPORT)
    parser.add_argument("--title", default="Benchmark: NVIDIA H200")
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return check()
    own = options.output.resolve() == REPORT
    plot_folder = options.output.resolve().parent / "plots"
    if not options.no_plots:
        plots.draw_all(options.results, plot_folder)
    text = report_text(options.results, plot_folder, options.title, own)
    temporary = options.output.with_name(options.output.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(options.output)
    print(f"wrote {options.output}")
    if own:
        path = ROOT / "README.md"
        path.write_text(readme_text(path.read_text()))
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
