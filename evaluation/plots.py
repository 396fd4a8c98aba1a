"""Plots of results as SVG and PNG: quality by set, quality against latency, query by query.

matplotlib is an extra of the package (`plots`) and imported only here, when something is drawn.
The same results give the same bytes with the same version of it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from clumsies.errors import InvalidRequest
from evaluation.quality import COLOURS, bars, names_of, sorted_differences
from evaluation.report import HEADINGS
from evaluation.results import SetResult
from evaluation.traces import VARIANTS, Variant

MARKERS: Mapping[Variant, str] = {
    "b1_bm25": "s",
    "b2_dense_vector": "^",
    "b3_hybrid_rrf": "D",
    "b4_reranked": "o",
}
_STYLE = {
    "svg.hashsalt": "evaluation",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_GAINED, _LOST = "#0072b2", "#cc5500"
_PNG_DPI = 150
_PANELS_IN_A_ROW = 3


def write_plots(results: Sequence[SetResult], folder: Path) -> list[Path]:
    """Draw what the results hold and return the files, an SVG and a PNG a plot.

    `quality` always, `latency` where times were measured, `differences` where every query's
    metrics were kept. Raises InvalidRequest without results or without matplotlib.
    """
    if not results:
        raise InvalidRequest("invalid_request", "there is no result to draw. Give files of `run`.")
    with _style():
        figures = {"quality": _quality(results)}
        if any(result.latency for result in results):
            figures["latency"] = _latency(results)
        if any(sorted_differences(result) for result in results):
            figures["differences"] = _differences(results)
        folder.mkdir(parents=True, exist_ok=True)
        return [file for name, figure in figures.items() for file in _save(figure, folder / name)]


def _style() -> AbstractContextManager[object]:
    context: AbstractContextManager[object] = _matplotlib("").rc_context(_STYLE)
    return context


def _matplotlib(module: str) -> Any:
    """A module of matplotlib. Its types are not checked: it need not be installed."""
    try:
        return importlib.import_module(f"matplotlib{module}")
    except ImportError as error:
        raise InvalidRequest(
            "invalid_request",
            "plots need matplotlib, which is not installed. Run `python -m pip install"
            " 'clumsies[plots]'`; the command `html` draws without it.",
        ) from error


def _figure(width: float, height: float) -> Any:
    return _matplotlib(".figure").Figure(figsize=(width, height))


def _save(figure: Any, stem: Path) -> list[Path]:
    vector, pixels = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(vector, metadata={"Date": None})
    figure.savefig(pixels, dpi=_PNG_DPI)
    return [vector, pixels]


def _quality(results: Sequence[SetResult]) -> Any:
    """A row a set, a point a variant with its interval."""
    figure = _figure(8.0, 1.5 + 0.62 * len(results))
    axes = figure.add_subplot()
    for row, result in enumerate(results):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color="#f5f5f5", linewidth=0)
        found = bars(result, "ndcg_at_10")
        for place, bar in enumerate(found):
            height = row + (place - (len(found) - 1) / 2) * 0.19
            axes.errorbar(
                bar.mean,
                height,
                xerr=[[max(bar.mean - bar.low, 0.0)], [max(bar.high - bar.mean, 0.0)]],
                fmt=MARKERS[bar.variant],
                color=COLOURS[bar.variant],
                markersize=5.5,
                elinewidth=1.6,
                label=bar.heading if row == 0 else None,
            )
    labels = [
        f"{name}\n{result.queries:,} queries"
        for name, result in zip(names_of(results), results, strict=True)
    ]
    axes.set_yticks(range(len(results)), labels)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    # A little beyond 1, so that no marker on it is cut in half.
    axes.set_xlim(right=min(1.01, axes.get_xlim()[1]))
    axes.grid(axis="x")
    axes.set_xlabel("nDCG@10, mean over the queries with its 95 % interval")
    figure.legend(loc="outside upper center", ncols=len(VARIANTS))
    return figure


def _latency(results: Sequence[SetResult]) -> Any:
    """Warm p50 against nDCG@10: each set pale, the mean of the sets bold."""
    timed = [result for result in results if result.latency]
    figure = _figure(7.0, 4.6)
    axes = figure.add_subplot()
    for variant in VARIANTS:
        times = [result.latency[variant]["p50_ms"] for result in timed]
        scores = [result.variants[variant].ndcg_at_10 for result in timed]
        shape = {"marker": MARKERS[variant], "color": COLOURS[variant], "linewidths": 0}
        if len(timed) > 1:
            axes.scatter(times, scores, s=26, alpha=0.35, **shape)
        centre = (_geometric_mean(times), sum(scores) / len(scores))
        axes.scatter(*centre, s=95, label=HEADINGS[variant], zorder=4, **shape)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    axes.grid(axis="both", which="major")
    axes.set_xlabel("milliseconds of a warm activation, p50 (log scale)")
    axes.set_ylabel("nDCG@10")
    what = timed[0].set_name if len(timed) == 1 else f"mean of {len(timed)} sets; pale: each set"
    axes.set_title(what)
    figure.legend(loc="outside upper center", ncols=len(VARIANTS))
    return figure


def _plain_ticks(axis: Any) -> None:
    """1, 2, 5, 10 … without powers: people read milliseconds."""
    ticker = _matplotlib(".ticker")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _differences(results: Sequence[SetResult]) -> Any:
    """A panel a set: each query's gain by reranking, sorted."""
    named = [
        (name, values)
        for name, result in zip(names_of(results), results, strict=True)
        if (values := sorted_differences(result))
    ]
    across = min(len(named), _PANELS_IN_A_ROW)
    down = math.ceil(len(named) / across)
    figure = _figure(max(3.2 * across, 5.5), 0.9 + 2.3 * down)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    widest = max(abs(value) for _, values in named for value in values) or 1.0
    for axes, (name, values) in zip(panels.flat, named, strict=False):
        _panel(axes, name, values)
        axes.set_ylim(-1.1 * widest, 1.1 * widest)
    for axes in list(panels.flat)[len(named) :]:
        axes.remove()
    figure.supxlabel("queries, sorted", fontsize=10)
    figure.supylabel("nDCG@10, reranked minus RRF", fontsize=10)
    return figure


def _panel(axes: Any, name: str, values: Sequence[float]) -> None:
    lost, gained = [min(value, 0.0) for value in values], [max(value, 0.0) for value in values]
    for colour, heights in ((_LOST, lost), (_GAINED, gained)):
        axes.fill_between(range(len(values) + 1), [*heights, 0.0], step="post", color=colour, lw=0)
    axes.axhline(0.0, color="#666666", linewidth=0.8)
    axes.grid(axis="y")
    axes.set_xlim(0, len(values))
    axes.set_xticks([len(values)])
    axes.set_title(name)
    better, worse = sum(value > 0 for value in values), sum(value < 0 for value in values)
    axes.text(0.97, 0.06, f"{better:,} better", transform=axes.transAxes, ha="right", color=_GAINED)
    axes.text(0.03, 0.88, f"{worse:,} worse", transform=axes.transAxes, color=_LOST)


def _geometric_mean(values: Sequence[float]) -> float:
    """The centre on a log scale; of times above zero."""
    return math.exp(math.fsum(math.log(max(value, 1e-3)) for value in values) / len(values))
