"""The report's plots: which there are, what each shows, and whether a committed one still shows the results.

A plot is made of points alone. Their digest is written into the PNG, so that --check needs no matplotlib.
"""
import functools
import hashlib
import json
import re
import struct
import sys

from .results import Results, device_row, is_eager, number
from .shown import PEERS

MOST_BYTES = 60 * 1024
KEYWORD = b"attngen-points"


def results_of(folder, name):
    path = folder / f"{name}.csv"
    return Results(path).cases() if path.exists() else {}


# ---- points, as plain lists and dicts


def attention_points(folder, name):
    """{panel: {series: [[rows, TFLOP/s], ...]}} for the cases of four batches and 32 heads; a series' peers give their fastest."""
    flash = ("FlashAttention-3", ("fa3-live", "fa3-recorded"))
    series = {"fp16": (("attngen", ()), ("cuDNN", ("cudnn",)), flash), "e4m3": (("attngen", ()), flash)}
    panels = {}
    for case, found in results_of(folder, name).items():
        match = re.fullmatch(r"Z4-H32-D(\d+)-N(\d+)-(full|causal)-(fp16|e4m3)", case)
        if not match:
            continue
        width, length, mask, dtype = match.groups()
        panel = panels.setdefault(f"head_dim {width}, {mask}", {})
        for label, peers in series[dtype]:
            beside = [found[p] for p in peers if p in found]
            rates = [number(r, "tflops") / number(r, "speedup") for r in beside] if peers else [number(device_row(found), "tflops")]
            if rates:
                panel.setdefault(f"{label}, {dtype}", []).append([int(length), round(max(rates), 1)])
    return {panel: {label: sorted(points) for label, points in lines.items()} for panel, lines in panels.items()}


def decode_points(folder, name):
    """{panel: {series: [[states, value], ...]}} for one token, 128 x 128 states and slots in order."""
    share, speedup = "share of the in-place copy's bandwidth, %", "speedup over FLA, both by graph replay"
    panels = {share: {}, speedup: {}}
    for case, found in results_of(folder, name).items():
        match = re.fullmatch(r"[BN](\d+)-H(\d+)(?:-HV(\d+))?(?:-K128-V128)?-(vk|kv)", case)
        if not match:
            continue
        batch, heads, value_heads, layout = match.groups()
        states = int(batch) * int(value_heads or heads)
        for panel, peer, scale in ((share, "inplace-copy", 100), (speedup, "fla-graph", 1)):
            if peer in found:
                panels[panel].setdefault(f"layout {layout}", []).append([states, round(scale * number(found[peer], "speedup"), 3)])
    return {panel: {label: sorted(points) for label, points in lines.items()} for panel, lines in panels.items() if lines}


def speedup_points(folder, name, group=None):
    """[[case, {series: speedup}], ...]; a series is a peer, or what `group` takes out of the case's name."""
    rows = {}
    for case, found in results_of(folder, name).items():
        for peer, row in found.items():
            if peer == "-" or is_eager(peer):
                continue
            match = group.fullmatch(case) if group else None
            if group and not match:
                continue
            label, series = (match["row"], match["series"]) if match else (case, PEERS.get(peer, peer))
            rows.setdefault(label, {})[series] = round(number(row, "speedup"), 3)
    return [[label, values] for label, values in rows.items()]


def mla_points(folder, name):
    """As speedup_points(), the number of heads as the series; a live FlashMLA goes before a recorded one."""
    rows = {}
    for case, found in results_of(folder, name).items():
        match = re.fullmatch(r"(B\d+-N\d+)-(H\d+)-P64-T1-bf16", case)
        beside = next((found[p] for p in ("flashmla-live", "flashmla-recorded") if p in found), None)
        if match and beside:
            rows.setdefault(match[1], {})[match[2]] = round(number(beside, "speedup"), 3)
    order = lambda row: [int(part) for part in re.findall(r"\d+", row[0])]
    return sorted(([label, values] for label, values in rows.items()), key=order)


def stage_points(folder, name):
    return speedup_points(folder, name, re.compile(r"(?P<series>[a-z_]+)-(?P<row>(?:B\d|varlen).*)"))


def roofline_points(folder, name):
    """{family: [[operations per byte, TFLOP/s], ...]} of every family of a class."""
    families = {}
    for path in sorted(folder.glob("*.csv")):
        results = Results(path)
        if not results.rows or "case" not in results.rows[0] or "peer" not in results.rows[0] or "gbps" not in results.rows[0]:
            continue
        for found in results.cases().values():
            row = device_row(found)
            tflops, gbps = (number(row, key) if row else float("nan") for key in ("tflops", "gbps"))
            if tflops > 0 and gbps > 0:
                families.setdefault(path.stem, []).append([round(1e3 * tflops / gbps, 3), tflops])
    return families


# (section of the report, file, class, results, points, drawing in draw.py, its title, what the text says of it)
PLOTS = (
    ("overview", "roofline_sm90_132sm.png", "sm90_132sm", "*", roofline_points, "roofline",
     "Every case on an H200, TFLOP/s over operations per byte",
     "Roofline of an H200 with every case of every operator; the roofs are the data sheet's 4.8 TB/s and 989 and 1,979 TFLOP/s"),
    ("sm90_132sm/attn_fwd", "attn_fwd_sm90_132sm.png", "sm90_132sm", "attn_fwd", attention_points, "lines",
     "Attention forward on an H200, 4 x 32 heads, TFLOP/s", "Attention forward in TFLOP/s over the sequence length; of FlashAttention-3 the faster of a live and a recorded run"),
    ("sm90_132sm/kda_decode", "kda_decode_sm90_132sm.png", "sm90_132sm", "kda_decode", decode_points, "dots",
     "Kimi Delta Attention, decode, one token, on an H200", "KDA decode beside the in-place copy and FLA, over the number of states"),
    ("sm90_132sm/kda_prefill", "kda_prefill_sm90_132sm.png", "sm90_132sm", "kda_prefill", speedup_points, "ranks",
     "Kimi Delta Attention, prefill, on an H200: speedup (device time)", "KDA prefill: speedup over each peer and case"),
    ("sm90_132sm/kda_stages", "kda_stages_sm90_132sm.png", "sm90_132sm", "kda_stages", stage_points, "ranks",
     "KDA's stages on an H200: speedup over FLA by graph replay", "KDA's stages: speedup over FLA for each case"),
    ("sm90_132sm/la_decode", "la_decode_sm90_132sm.png", "sm90_132sm", "la_decode", decode_points, "dots",
     "Lightning Attention, decode, on an H200", "Lightning Attention decode beside the in-place copy and FLA, over the number of states"),
    ("sm90_132sm/mla_decode", "mla_decode_sm90_132sm.png", "sm90_132sm", "mla_decode", mla_points, "ranks",
     "MLA decode, bf16, pages of 64, on an H200: speedup over FlashMLA", "MLA decode: speedup over FlashMLA, by heads"),
)


@functools.cache
def present(results):
    """(plot, its points) of those that the results have."""
    found = ((plot, plot[4](results / plot[2], plot[3])) for plot in PLOTS)
    return [(plot, points) for plot, points in found if points]


def digest(points):
    return hashlib.sha256(json.dumps(points, sort_keys=True).encode()).hexdigest()[:16]


def recorded(path):
    """The digest that a PNG carries in its text chunks, or None."""
    data, at = path.read_bytes(), 8
    while at + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"tEXt" and body.startswith(KEYWORD + b"\0"):
            return body[len(KEYWORD) + 1 :].decode("latin-1")
        at += 12 + length
    return None


def lines_of(section, results, folder):
    """What the report shows in a section: the plots that exist."""
    out = []
    for plot, _ in present(results):
        if plot[0] == section and (folder / plot[1]).exists():
            out += [f"![{plot[7]}](plots/{plot[1]})", ""]
    return out


def stale(results, folder):
    """A sentence for each plot that is missing, too large, left over, or shows other points than the results have."""
    out, known = [], set()
    for plot, points in present(results):
        path = folder / plot[1]
        known.add(plot[1])
        if not path.exists():
            out.append(f"bench/plots/{plot[1]} is missing")
        elif recorded(path) != digest(points):
            out.append(f"bench/plots/{plot[1]} does not show the results")
        elif path.stat().st_size > MOST_BYTES:
            out.append(f"bench/plots/{plot[1]} has {path.stat().st_size} bytes; allowed are {MOST_BYTES}")
    return out + [f"bench/plots/{p.name} is shown nowhere" for p in sorted(folder.glob("*")) if p.name not in known]


def draw_all(results, folder):
    try:
        from . import draw
    except ImportError as error:
        sys.exit(f"report.py: plots need matplotlib (Debian: python3-matplotlib): {error}; --no-plots leaves them as they are")
    for plot, points in present(results):
        folder.mkdir(parents=True, exist_ok=True)
        figure = getattr(draw, plot[5])(points, plot[6])
        draw.save(figure, folder / plot[1], {KEYWORD.decode(): digest(points)})
