"""Reads result files: "# key: value" lines and delimited rows."""
import csv
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Results:
    """One file: `header` maps each key to its distinct values in order, `rows` are dicts."""

    def __init__(self, path, delimiter=","):
        lines = pathlib.Path(path).read_text().splitlines()
        self.header = {}
        for line in lines:
            if line.startswith("#") and ": " in line:
                key, value = line[1:].strip().split(": ", 1)
                values = self.header.setdefault(key, [])
                if value not in values:
                    values.append(value)
        self.rows = list(csv.DictReader((l for l in lines if l.strip() and not l.startswith("#")), delimiter=delimiter))

    def cases(self):
        """{case: {peer: row}} in the file's order."""
        found = {}
        for row in self.rows:
            found.setdefault(row["case"], {})[row["peer"]] = row
        return found

    def device_peers(self):
        """Peers whose times are device times, in alphabetical order."""
        return sorted({r["peer"] for r in self.rows if r["peer"] != "-" and not is_eager(r["peer"])})

    def eager_peers(self):
        """Peers whose times are the wall times of a call."""
        return sorted({r["peer"] for r in self.rows if is_eager(r["peer"])})


def is_eager(peer):
    return peer.endswith("-eager")


def device_row(peers):
    """A row of a case whose ms is a device time, or None."""
    return next((r for p, r in peers.items() if not is_eager(p)), None)


def number(row, key):
    """A field as a float; NaN where the row has none."""
    try:
        return float(row[key])
    except (KeyError, TypeError, ValueError):
        return math.nan


def text(value, digits):
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def geomean(values):
    values = [v for v in values if v > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def quantile(values, p):
    values = sorted(values)
    at = p * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def classes(folder):
    """The folders of GPU classes, those of more SMs first."""
    found = [f for f in pathlib.Path(folder).glob("*") if f.is_dir()]
    return sorted(found, key=lambda f: (-int("".join(c for c in f.name.rsplit("_", 1)[-1] if c.isdigit()) or 0), f.name))
