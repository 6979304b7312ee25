"""Plots of a run and of a comparison, as PNG, SVG or PDF depending on the file suffix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ability_search.errors import InvalidInput
from ability_search.evaluation.comparison import Comparison, Difference
from ability_search.evaluation.runs import ModeRun, Run, means

SUFFIXES = (".png", ".svg", ".pdf")

# Okabe and Ito, Color Universal Design, 2008: distinguishable with any colour vision.
_COLORS = {"semantic": "#0072B2", "keyword": "#E69F00", "hybrid": "#009E73"}
_MARKERS = {"semantic": "o", "keyword": "s", "hybrid": "D"}
_GAIN, _LOSS, _NEITHER = "#0072B2", "#D55E00", "#777777"

_WIDTH = 11.0
_TOP = 4.0
_LINE = 0.34
"""Inches: width of the plot, height of its upper half, height of a category's row."""
_MORE = 0.2
"""Additional height of a row for each further mode, as a share of the row."""
_DPI = 150
_BAR = 0.8
"""Share of a group's width that its bars fill."""
_TICKS = (1, 3, 10, 30, 100, 300, 1000)


def check_suffix(path: Path) -> None:
    """Raise :class:`InvalidInput` unless the suffix is that of a supported format."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInput("--plot", f"{path} must end in {', '.join(SUFFIXES)}")


def save(figure: Figure, path: Path) -> None:
    """Write a plot; create its directory if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)


def run_figure(run: Run) -> Figure:
    """Plot the metrics and the recall of each mode, and the first metric by category."""
    metric = next(iter(next(iter(run.modes.values())).metrics))
    groups = {mode: _by_category(found, metric) for mode, found in run.modes.items()}
    categories = len(next(iter(groups.values())))
    below = 1.2 + _LINE * categories * (1 + _MORE * (len(groups) - 1)) if categories else 0.0
    figure = Figure(figsize=(_WIDTH, _TOP + below), layout="constrained")
    if categories:
        grid = figure.add_gridspec(2, 2, height_ratios=(_TOP, below), width_ratios=(3, 2))
        _categories(figure.add_subplot(grid[1, :]), groups, metric)
    else:
        grid = figure.add_gridspec(1, 2, width_ratios=(3, 2))
    _metrics(figure.add_subplot(grid[0, 0]), run.modes)
    _recall(figure.add_subplot(grid[0, 1]), run.modes)
    figure.suptitle(
        f"{run.name}: {run.dataset.queries:,} queries over {run.dataset.documents:,} documents"
        f" ({run.collection['model']})",
        parse_math=False,
    )
    return figure


def comparison_figure(comparison: Comparison) -> Figure:
    """Plot the difference of each metric and each category, with its interval."""
    lines = max(len(comparison.metrics), len(comparison.categories))
    figure = Figure(figsize=(_WIDTH, 1.6 + _LINE * lines), layout="constrained")
    columns = 2 if comparison.categories else 1
    axes = figure.subplots(1, columns, squeeze=False)[0]
    _differences(axes[0], comparison.metrics, "all queries")
    if comparison.categories:
        ordered = dict(sorted(comparison.categories.items(), key=lambda item: -item[1].difference))
        _differences(axes[1], ordered, f"{comparison.metric} by category (queries)", counted=True)
    figure.suptitle(f"{comparison.b} minus {comparison.a}", parse_math=False)
    return figure


def _metrics(axes: Axes, modes: Mapping[str, ModeRun]) -> None:
    names = list(next(iter(modes.values())).metrics)
    width = _BAR / len(modes)
    for place, (mode, found) in enumerate(modes.items()):
        left = [at - _BAR / 2 + (place + 0.5) * width for at in range(len(names))]
        bars = axes.bar(
            left, [found.metrics[name] for name in names], width, label=mode, color=_COLORS[mode]
        )
        axes.bar_label(bars, fmt=_short, fontsize=6.5, padding=1)
    axes.set_xticks(range(len(names)), [name.replace("@", "\n@") for name in names])
    axes.set_ylim(0, 1.18)  # room for the legend
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_title("all queries", fontsize=10)
    axes.legend(frameon=False, fontsize=9, ncols=len(modes), loc="upper left")
    _plain(axes)


def _recall(axes: Axes, modes: Mapping[str, ModeRun]) -> None:
    for mode, found in modes.items():
        ranks = sorted(found.recall_curve)
        values = [found.recall_curve[rank] for rank in ranks]
        axes.plot(
            ranks, values, marker=_MARKERS[mode], markersize=4, label=mode, color=_COLORS[mode]
        )
    axes.set_xscale("log")
    last = max(ranks)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= last]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("rank")
    axes.set_title("recall", fontsize=10)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    _plain(axes, both=True)


def _by_category(found: ModeRun, metric: str) -> dict[str, float]:
    """Return the metric of each category, labelled with its number of queries."""
    return {
        f"{category} ({len(outcomes)})": means(outcomes)[metric]
        for category, outcomes in found.by_category().items()
    }


def _categories(axes: Axes, groups: Mapping[str, Mapping[str, float]], metric: str) -> None:
    """Draw the bars of each mode; categories sorted by the last mode, best on top."""
    *_, deciding = groups.values()
    names = sorted(deciding, key=lambda name: (deciding[name], name))
    width = _BAR / len(groups)
    for place, (mode, values) in enumerate(groups.items()):
        heights = [at + _BAR / 2 - (place + 0.5) * width for at in range(len(names))]
        bars = axes.barh(
            heights, [values[name] for name in names], width, label=mode, color=_COLORS[mode]
        )
        axes.bar_label(bars, fmt=_short, fontsize=6.5, padding=2)
    _name_lines(axes, names)
    axes.set_xlim(0, 1.05)
    axes.set_title(f"{metric} by category (queries)", fontsize=10)
    _plain(axes, across=True)


def _differences(
    axes: Axes, lines: Mapping[str, Difference], title: str, *, counted: bool = False
) -> None:
    """Draw a point and its interval per row, first on top; filled if significant."""
    axes.axvline(0, color="black", linewidth=0.8)
    names = [f"{name} ({each.queries})" if counted else name for name, each in lines.items()]
    for height, each in zip(range(len(lines) - 1, -1, -1), lines.values(), strict=True):
        color = _NEITHER
        if each.significant:
            color = _GAIN if each.difference > 0 else _LOSS
        axes.plot([each.low, each.high], [height, height], color=color, linewidth=2)
        face = color if each.significant else "white"
        axes.plot(each.difference, height, marker="o", color=color, markerfacecolor=face)
    _name_lines(axes, names[::-1])
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("difference with its 95 % interval; filled: p < .05", fontsize=9)
    _plain(axes, across=True)


def _name_lines(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(-0.6, len(names) - 0.4)


def _plain(axes: Axes, *, across: bool = False, both: bool = False) -> None:
    axes.grid(axis="both" if both else "x" if across else "y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def _short(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if value < 1 else f"{value:.0f}"
