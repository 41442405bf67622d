"""Draws points with matplotlib; the same points give the same picture."""
import io
import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image, PngImagePlugin

COLOURS = ("#1f4e9c", "#d1581b", "#3a8f3a", "#8a4fa8", "#8c6d31", "#c13b70", "#4a9fb5", "#666666")
MARKERS = "osD^vPX*hp<>"
# The data sheet's dense rates of an H200: TB/s, and TFLOP/s with the line's style.
MEMORY, PEAKS = 4.8, ((989, "16 bits, 989 TFLOP/s"), (1979, "8 bits, 1,979 TFLOP/s"))


def save(figure, path, notes):
    """A PNG of a few colours, which is a third of the size, with the notes as text chunks."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    image = Image.open(buffer).convert("RGB").quantize(48, dither=Image.Dither.NONE)
    info = PngImagePlugin.PngInfo()
    for key, value in notes.items():
        info.add_text(key, value)
    image.save(path, optimize=True, pnginfo=info)


def thousands(value, _):
    return f"{value / 1024:.0f}k" if value >= 1024 else f"{value:.0f}"


def plain(value, _):
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def octaves(axes, values, form):
    axes.set_xscale("log", base=2)
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    axes.set_xticks([2.0**e for e in range(low, high + 1, max(1, (high - low) // 7))])
    axes.xaxis.set_major_formatter(FuncFormatter(form))
    axes.xaxis.set_minor_formatter(NullFormatter())


def lines(panels, title):
    """Panels of rates over the sequence length. A line joins cases that were all run, one octave apart."""
    labels = list(dict.fromkeys(label for series in panels.values() for label in series))
    figure, grid = plt.subplots(2, math.ceil(len(panels) / 2), figsize=(9, 6), sharex=True, sharey=True, squeeze=False)
    for axes, (panel, series) in zip(grid.flat, panels.items()):
        for label, points in series.items():
            index = labels.index(label)
            style = dict(color=COLOURS[index], marker=MARKERS[index], markersize=5, linewidth=2 if "attngen" in label else 1.2)
            run = []
            for point in points + [None]:
                if run and (point is None or point[0] > 2 * run[-1][0]):
                    axes.plot(*zip(*run), **style)
                    run = []
                run += [point] if point else []
        axes.set_title(panel, fontsize=10)
        axes.grid(alpha=0.3)
        octaves(axes, [x for points in series.values() for x, _ in points], thousands)
        axes.set_ylim(bottom=0)
    for axes in grid[-1]:
        axes.set_xlabel("rows of queries and of keys")
    for axes in grid[:, 0]:
        axes.set_ylabel("TFLOP/s")
    handles = [plt.Line2D([], [], color=COLOURS[i], marker=MARKERS[i], markersize=5, label=label) for i, label in enumerate(labels)]
    figure.suptitle(title)
    figure.legend(handles=handles, loc="lower center", ncol=min(5, len(labels)), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return figure


def dots(panels, title):
    """Panels of points over the number of states, one y axis each; no line, since head counts differ between neighbours."""
    figure, grid = plt.subplots(1, len(panels), figsize=(9, 4.2), squeeze=False)
    for axes, (panel, series) in zip(grid.flat, panels.items()):
        for index, (label, points) in enumerate(sorted(series.items(), reverse=True)):
            axes.plot(*zip(*points), linestyle="", color=COLOURS[index], marker=MARKERS[index], markersize=5, label=label)
        octaves(axes, [x for points in series.values() for x, _ in points], thousands)
        reference = 100 if "%" in panel else 1
        axes.axhline(reference, color="0.4", linewidth=1)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel("states (requests x value heads)")
        axes.set_title(panel, fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9)
    figure.suptitle(title)
    figure.tight_layout()
    return figure


def ranks(rows, title):
    """A row a case, a mark a series: readable names, and no line between cases that have no order."""
    labels = sorted({series for _, values in rows for series in values}, key=lambda s: (len(s), s))
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.24 * len(rows)))
    for index, label in enumerate(labels):
        points = [(values[label], at) for at, (_, values) in enumerate(rows) if label in values]
        axes.plot(*zip(*points), linestyle="", color=COLOURS[index], marker=MARKERS[index], markersize=6, label=label)
    values = [v for _, found in rows for v in found.values()]
    wide = max(values) > 4 * min(values)
    if wide:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("speedup, device time of the peer over ours" + (" (logarithmic)" if wide else ""))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9, ncol=min(5, len(labels)), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes.set_title(title, pad=28)
    figure.tight_layout()
    return figure


def roofline(families, title):
    """All cases below the memory's and the tensor cores' roofs."""
    figure, axes = plt.subplots(figsize=(9, 5.2))
    intensities = [x for points in families.values() for x, _ in points]
    low, high = min(intensities) / 2, max(intensities) * 2
    for (peak, label), style in zip(PEAKS, ("-", "--")):
        knee = peak / MEMORY
        axes.plot([low, knee, high], [low * MEMORY, peak, peak], color="0.3", linestyle=style, linewidth=1.4, label=f"roof: 4.8 TB/s; {label}")
    for index, (family, points) in enumerate(families.items()):
        axes.plot(*zip(*points), linestyle="", color=COLOURS[index % len(COLOURS)], marker=MARKERS[index % len(MARKERS)], markersize=4.5, label=family)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte that must move", ylabel="TFLOP/s", title=title, xlim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(plain))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    figure.tight_layout()
    return figure
