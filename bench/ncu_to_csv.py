#!/usr/bin/env python3
"""Turns what bench/profile.sh collected from ncu (--csv --page raw) into one row a case: the median over launches.

    ncu_to_csv.py RAW > la_decode_ncu.csv

RAW begins with the lines ("# gpu: ...") that are to stand at the head of the result.
"""
import csv
import statistics
import sys

NAMES = {
    "gpu__time_duration.sum": "time_us",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_pct",
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_write_bytes",
    "dram__bytes.sum.per_second": "dram_gbps",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_pct",
    "sm__maximum_warps_per_active_cycle_pct": "theoretical_occupancy_pct",
    "lts__t_sector_hit_rate.pct": "l2_hit_pct",
    "launch__registers_per_thread": "registers",
    "launch__waves_per_multiprocessor": "waves",
    "launch__shared_mem_per_block_dynamic": "shared_dynamic_bytes",
    "launch__shared_mem_per_block_static": "shared_static_bytes",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads",
    "sm__inst_executed.avg.per_cycle_active": "ipc",
}
STALL = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
SCALE = {"time_us": 1e-3, "dram_gbps": 1e-9}  # ns and bytes/s, the base units


def header(lines):
    """The comments before the first case."""
    for line in lines:
        if not line.startswith("# "):
            return
        yield line


def column(metric):
    if metric.startswith(STALL[0]) and metric.endswith(STALL[1]):
        return "stall_" + metric[len(STALL[0]) : -len(STALL[1])]
    return NAMES.get(metric)


def tables(lines):
    """(case, CSV lines) of each profiled case; ncu's own messages start with '=='."""
    case, body = None, []
    for line in lines:
        if line.startswith("@case "):
            if case:
                yield case, body
            case, body = line[6:].strip(), []
        elif line.startswith('"'):
            body.append(line)
    if case:
        yield case, body


def rows(lines):
    for case, body in tables(lines):
        launches = [r for r in csv.DictReader(body) if r.get("ID", "").isdigit()]  # the first row holds units
        if not launches:
            sys.exit(f"ncu_to_csv.py: ncu reports no launch of {case}")
        kernels = list(dict.fromkeys(r["Kernel Name"].split("(")[0] for r in launches))
        if len(kernels) > 1:
            sys.exit(f"ncu_to_csv.py: {case} launches {len(kernels)} kernels ({', '.join(kernels)}): a row is of one")
        row = {"case": case, "variant": kernels[0]}
        for metric in launches[0]:
            name = column(metric)
            values = [r[metric].replace(",", "") for r in launches if name and r[metric]]
            if values:
                row[name] = f"{statistics.median(float(v) for v in values) * SCALE.get(name, 1):.6g}"
        yield row


def main():
    with open(sys.argv[1]) as file:
        lines = file.readlines()
    found = list(rows(lines))
    if not found:
        sys.exit("ncu_to_csv.py: nothing was profiled")
    fields = list(dict.fromkeys(k for row in found for k in row))
    writer = csv.DictWriter(sys.stdout, fields, lineterminator="\n")
    sys.stdout.writelines(header(lines))
    writer.writeheader()
    writer.writerows(found)


if __name__ == "__main__":
    main()
