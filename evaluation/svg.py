"""Plain SVG figures for a page: bars with whiskers, and sorted differences.

Drawn without a library, for pages that must stand alone. Colours come from the page's style sheet
by class (`b1_bm25` …, `gain`, `loss`, `axis`, `grid`), so one figure serves light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from evaluation.quality import Bar

_WIDTH = 720
_LABELS = 84
_VALUES = 150
_BAR = 16
_GAP = 7
_AXIS = 22
_DIFFERENCES_HEIGHT = 150


def bar_chart(bars: Sequence[Bar], texts: Sequence[str], label: str) -> str:
    """A bar a variant on a scale from 0 to 1, its interval as a whisker, `texts` behind them."""
    plot = _WIDTH - _LABELS - _VALUES
    height = len(bars) * (_BAR + _GAP) + _AXIS
    bottom = height - _AXIS
    parts = [_scale(plot, bottom)]
    for row, (bar, text) in enumerate(zip(bars, texts, strict=True)):
        top = row * (_BAR + _GAP) + _GAP / 2
        middle = top + _BAR / 2
        parts += [
            _text(_LABELS - 8, middle, bar.heading, "end"),
            f'<rect class="{bar.variant}" x="{_LABELS}" y="{top:g}" rx="2"'
            f' width="{bar.mean * plot:.1f}" height="{_BAR}"/>',
            _whisker(bar, plot, middle),
            _text(_LABELS + plot + 10, middle, text, "start"),
        ]
    return _svg(height, label, parts)


def difference_chart(values: Sequence[float], label: str) -> str:
    """One bar a value, in the given order, around a middle line."""
    if not values:
        return ""
    plot = _WIDTH - _LABELS - 8
    widest = max(1e-9, *map(abs, values))
    half = _DIFFERENCES_HEIGHT / 2
    step = plot / len(values)
    parts = [_line(_LABELS, at, _LABELS + plot, at, "grid") for at in (4, _DIFFERENCES_HEIGHT - 4)]
    for number, value in enumerate(values):
        tall = abs(value) / widest * (half - 4)
        if tall:
            top = half - tall if value > 0 else half
            kind = "gain" if value > 0 else "loss"
            parts.append(
                f'<rect class="{kind}" x="{_LABELS + number * step:.2f}" y="{top:.2f}"'
                f' width="{max(step - 0.5, 0.6):.2f}" height="{tall:.2f}"/>'
            )
    parts.append(_line(_LABELS, half, _LABELS + plot, half, "axis"))
    for at, value in ((10.0, widest), (half, 0.0), (_DIFFERENCES_HEIGHT - 10.0, -widest)):
        parts.append(_text(_LABELS - 8, at, f"{value:+.2f}" if value else "0", "end"))
    return _svg(_DIFFERENCES_HEIGHT, label, parts)


def _scale(plot: int, bottom: float) -> str:
    ticks = []
    for tenth in range(0, 11, 2):
        across = _LABELS + plot * tenth / 10
        ticks.append(_line(across, 0, across, bottom, "grid"))
        ticks.append(_text(across, bottom + 12, f"{tenth / 10:g}", "middle"))
    return "".join(ticks)


def _whisker(bar: Bar, plot: int, middle: float) -> str:
    if bar.low == bar.high:
        return ""
    low, high = (_LABELS + plot * value for value in (bar.low, bar.high))
    ends = "".join(_line(at, middle - 4, at, middle + 4, "whisker") for at in (low, high))
    return _line(low, middle, high, middle, "whisker") + ends


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' dominant-baseline="central">{escape(text)}</text>'
    )


def _svg(height: float, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
