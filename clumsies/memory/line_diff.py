"""The changes of lines that make one text of another.

A line ends with "\n" and keeps it; "\r" is part of the line, so a changed line end is a change,
and the last line may have no end. Where a change could stand at several places with the same
result (a repeated line was added or removed), it stands where a removal and an addition meet, else
as low as it can: where git puts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clumsies.memory.edit_path import Box, Effort, differing_boxes, trimmed


class Change(NamedTuple):
    """old[old_start:old_end] became new[new_start:new_end]; from 0, ends excluded."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """The lines with their ends; joined, they are the text again."""
    parts = text.split("\n")
    last = parts.pop()
    lines = [f"{part}\n" for part in parts]
    if last:
        lines.append(last)
    return lines


def line_changes(
    old: Sequence[str], new: Sequence[str], effort: Effort | None = None
) -> list[Change]:
    """The changes in order, with at least one common line between any two.

    As few lines as possible, unless that took more steps than `effort` allows: then some lines
    that both have count as changed.
    """
    effort = effort or Effort(len(old) + len(new))
    box = trimmed(old, new, Box(0, len(old), 0, len(new)))
    old_changed, new_changed = bytearray(len(old)), bytearray(len(new))
    _mark(old, new, box, (old_changed, new_changed), effort)
    old_groups = _groups(old_changed, box.old_start, box.old_end)
    new_groups = _groups(new_changed, box.new_start, box.new_end)
    old_groups = _slid(old, old_groups, {group.common for group in new_groups}, effort)
    new_groups = _slid(new, new_groups, {group.common for group in old_groups}, effort)
    return list(_changes(old_groups, new_groups))


def _mark(
    old: Sequence[str],
    new: Sequence[str],
    box: Box,
    marks: tuple[bytearray, bytearray],
    effort: Effort,
) -> None:
    """Mark the lines of the box that are not common."""
    old_places = _shared(old, box[:2], set(new), marks[0])
    new_places = _shared(new, box[2:], set(old), marks[1])
    numbers: dict[str, int] = {}
    old_kept = [numbers.setdefault(old[place], len(numbers)) for place in old_places]
    new_kept = [numbers.setdefault(new[place], len(numbers)) for place in new_places]
    whole = Box(0, len(old_kept), 0, len(new_kept))
    for differing in differing_boxes(old_kept, new_kept, whole, effort):
        for place in old_places[differing.old_start : differing.old_end]:
            marks[0][place] = 1
        for place in new_places[differing.new_start : differing.new_end]:
            marks[1][place] = 1


def _shared(
    lines: Sequence[str], stretch: tuple[int, int], others: Collection[str], marks: bytearray
) -> list[int]:
    """Places in the stretch of lines that the other side has somewhere; the rest are marked."""
    places = []
    for place in range(*stretch):
        if lines[place] in others:
            places.append(place)
        else:
            marks[place] = 1
    return places


@dataclass(slots=True)
class _Group:
    """`size` changed lines of one side that follow its first `common` common lines."""

    common: int
    size: int


def _groups(marks: bytearray, start: int, end: int) -> list[_Group]:
    groups: list[_Group] = []
    common, place = start, start
    while (first := marks.find(1, place, end)) != -1:
        common += first - place
        place = marks.find(0, first, end)
        if place == -1:
            place = end
        groups.append(_Group(common, place - first))
    return groups


def _slid(
    lines: Sequence[str], groups: Sequence[_Group], others: Collection[int], effort: Effort
) -> list[_Group]:
    """The groups at their places; `others` are where the other side has groups.

    A group slides down a line where its first line equals the line behind it, and up likewise;
    groups that touch are one from then on.
    """
    done: list[_Group] = []
    waiting = list(reversed(groups))
    taken = 0
    while waiting:
        slide = _Slide(lines, done, waiting, taken, effort)
        lowest = slide.settle(others)
        group = slide.group
        if lowest is not None:
            group.common = lowest
        done.append(group)
        taken = slide.taken + group.size
    return done


class _Slide:
    """One group on its way, with the groups that are `done` above it and `waiting` below.

    `taken` counts the changed lines of the groups above.
    """

    def __init__(
        self,
        lines: Sequence[str],
        done: list[_Group],
        waiting: list[_Group],
        taken: int,
        effort: Effort,
    ):
        self.lines, self.done, self.waiting, self.effort = lines, done, waiting, effort
        self.group = waiting.pop()
        self.taken = taken

    def settle(self, others: Collection[int]) -> int | None:
        """Slide as low as it goes; the lowest place on the way that is one of `others`."""
        group = self.group
        while True:
            size = group.size
            while self._up():
                pass
            highest = group.common
            met = group.common if group.common in others else None
            while self._down():
                if group.common in others:
                    met = group.common
            if group.size == size or self.effort.left <= 0:
                return None if group.common == highest else met

    def _up(self) -> bool:
        group = self.group
        start = group.common + self.taken
        end = start + group.size
        if start == 0 or self.effort.left <= 0 or self.lines[start - 1] != self.lines[end - 1]:
            return False
        self.effort.spent += 1
        group.common -= 1
        if self.done and self.done[-1].common == group.common:
            above = self.done.pop()
            self.taken -= above.size
            group.size += above.size
        return True

    def _down(self) -> bool:
        group = self.group
        start = group.common + self.taken
        end = start + group.size
        if end == len(self.lines) or self.effort.left <= 0 or self.lines[start] != self.lines[end]:
            return False
        self.effort.spent += 1
        group.common += 1
        if self.waiting and self.waiting[-1].common == group.common:
            group.size += self.waiting.pop().size
        return True


def _changes(old_groups: Sequence[_Group], new_groups: Sequence[_Group]) -> Iterator[Change]:
    """Groups that follow the same common line are one change."""
    old_sizes = {group.common: group.size for group in old_groups}
    new_sizes = {group.common: group.size for group in new_groups}
    old_shift, new_shift = 0, 0
    for common in sorted(old_sizes.keys() | new_sizes.keys()):
        old_size, new_size = old_sizes.get(common, 0), new_sizes.get(common, 0)
        old_start, new_start = common + old_shift, common + new_shift
        yield Change(old_start, old_start + old_size, new_start, new_start + new_size)
        old_shift += old_size
        new_shift += new_size
