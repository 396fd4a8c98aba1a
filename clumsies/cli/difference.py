"""Two states of a memory as a person compares them: path, description, and lines in colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from clumsies.memory.text_diff import DiffHunk, diff_lines
from clumsies.memory.text_merge import Side, TextMerge, merge_texts

_SIDES: tuple[Side, ...] = ("base", "current", "draft")
_SIDE_STYLES = ("faint", "removed", "added")
_STYLES = {"+": "added", "-": "removed", " ": ""}


def print_change(console: Console, before: dict[str, Any], after: dict[str, Any]) -> None:
    """A memory before and after, each with `exists`, `path`, `description` and `content`."""
    console.print(_headline(before, after), soft_wrap=True)
    old, new = before.get("description") or "", after.get("description") or ""
    if old != new:
        console.print(Text("  description:", style="faint"))
        _print_sides(console, old, new)
    hunks = diff_lines(before.get("content") or "", after.get("content") or "")
    print_hunks(console, hunks)


def _headline(before: dict[str, Any], after: dict[str, Any]) -> Text:
    line = Text()
    old, new = before.get("path") or "", after.get("path") or ""
    if not before["exists"] and not after["exists"]:
        return line.append("nothing: made and taken back", style="faint")
    if not before["exists"]:
        return line.append("new ", style="added").append(new, style="place")
    if not after["exists"]:
        return line.append("deleted ", style="removed").append(old, style="place")
    line.append("changed ", style="faint").append(old, style="place")
    if old != new:
        line.append(" → ", style="faint").append(new, style="place")
    return line


def _print_sides(console: Console, old: str, new: str) -> None:
    for kind, text in (("-", old), ("+", new)):
        for part in text.splitlines():
            console.print(Text(f"  {kind}{part}", style=_STYLES[kind]), soft_wrap=True)


def print_hunks(console: Console, hunks: list[DiffHunk]) -> None:
    """Hunks as unified diff, without file names."""
    for hunk in hunks:
        console.print(Text(f"  {hunk.header}", style="heading"))
        for line in hunk.lines:
            text = line.text.rstrip("\r\n")
            console.print(Text(f"  {line.kind}{text}", style=_STYLES[line.kind]), soft_wrap=True)


def print_conflicts(console: Console, candidate: dict[str, Any]) -> None:
    """Where a draft and the team's memory changed the same thing: base, current, draft."""
    for conflict in candidate["conflicts"]:
        console.print(
            Text(f"  conflict in {conflict['field']} ({conflict['kind']})", style="warning")
        )
        sides = [conflict.get(side) for side in _SIDES]
        if conflict["field"] == "content" and all(isinstance(side, str) for side in sides):
            _print_places(console, merge_texts(*map(str, sides)))
        else:
            _print_three(console, [_shown(side) for side in sides])


def _print_places(console: Console, merge: TextMerge) -> None:
    """Each place that has to be decided, without the rest of the texts."""
    for hunk in merge.conflicts:
        line = hunk.current.start + 1
        console.print(Text(f"  from line {line} of the current text", style="heading"))
        _print_three(
            console, [[text.rstrip("\r\n") for text in merge.lines(hunk, side)] for side in _SIDES]
        )


def _print_three(console: Console, sides: Sequence[Sequence[str]]) -> None:
    for side, style, shown in zip(_SIDES, _SIDE_STYLES, sides, strict=True):
        for number, text in enumerate(shown or ["(nothing)"]):
            label = f"{side:>8} │ " if number == 0 else f"{'':>8} │ "
            line = Text(f"  {label}", style="faint")
            console.print(line.append(text, style=style), soft_wrap=True)


def _shown(value: object) -> list[str]:
    return [] if value is None else str(value).splitlines() or [""]
