"""Which elements two sequences keep in common: a shortest edit path, as far as effort allows.

The path is searched from both ends at once (Myers 1986, "An O(ND) difference algorithm and its
variations", linear space). Where that grows too dear, elements that stand once on both sides are
fixed points (patience: the longest run of them that is in order on both) and the search goes on
between them; where there are none, the whole stretch counts as replaced. So the result is always
a common subsequence, and a longest one wherever the search was allowed to end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isqrt
from typing import NamedTuple

_BASE_STEPS = 2_000_000
"""Enough for some 1,200 inserted and deleted elements that stand elsewhere on the other side."""
_ELEMENTS_A_STEP_MORE = 2
_SHARE = 4
"""One search may take this part of the effort that is left, so that none takes it all."""
_LONGEST_STRIDE = 4_096
_ELEMENTS_A_STEP = 64
"""Of a run that is compared as a slice, how many cost what one step of the search costs."""
_COUNTED_A_STEP = 8
"""Likewise of the elements that are counted for anchors."""
_FAR = 1 << 62


class Effort:
    """Steps that one comparison may take: `spent` counts on, `allowed` stands.

    A step is about what Python does in half a microsecond. A quarter is kept for what follows the
    search.
    """

    def __init__(self, elements: int):
        self.allowed = _BASE_STEPS + elements // _ELEMENTS_A_STEP_MORE
        self.spent = 0

    @property
    def left(self) -> int:
        return self.allowed - self.spent

    @property
    def left_to_search(self) -> int:
        return max(self.left - self.allowed // 4, 0)


class Box(NamedTuple):
    """A stretch of both sequences: old[old_start:old_end] against new[new_start:new_end]."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Point(NamedTuple):
    """A place between elements: before old[old] and before new[new]."""

    old: int
    new: int


def run_forward(old: Sequence[object], new: Sequence[object], box: Box) -> int:
    """How many elements are equal from the starts of the box on."""
    i, j = box.old_start, box.new_start
    most = min(box.old_end - i, box.new_end - j)
    done, stride = 0, 8
    while done < most:
        stride = min(stride, most - done, _LONGEST_STRIDE)
        a, b = i + done, j + done
        if old[a : a + stride] == new[b : b + stride]:
            done += stride
            stride *= 2
        else:
            most = done + stride - 1
            stride = (stride + 1) // 2
    return done


def run_backward(old: Sequence[object], new: Sequence[object], box: Box) -> int:
    """How many elements are equal from the ends of the box back."""
    i, j = box.old_end, box.new_end
    most = min(i - box.old_start, j - box.new_start)
    done, stride = 0, 8
    while done < most:
        stride = min(stride, most - done, _LONGEST_STRIDE)
        a, b = i - done, j - done
        if old[a - stride : a] == new[b - stride : b]:
            done += stride
            stride *= 2
        else:
            most = done + stride - 1
            stride = (stride + 1) // 2
    return done


def trimmed(old: Sequence[object], new: Sequence[object], box: Box) -> Box:
    """The box without what both sides begin with, then without what both end with."""
    start = run_forward(old, new, box)
    box = box._replace(old_start=box.old_start + start, new_start=box.new_start + start)
    end = run_backward(old, new, box)
    return box._replace(old_end=box.old_end - end, new_end=box.new_end - end)


def differing_boxes(
    old: Sequence[int], new: Sequence[int], whole: Box, effort: Effort
) -> Iterator[Box]:
    """Boxes in no order, each empty on one side at least or replaced as a whole.

    What lies outside them is common: it pairs up in order.
    """
    waiting = [whole]
    while waiting:
        box = trimmed(old, new, waiting.pop())
        if box.old_start == box.old_end or box.new_start == box.new_end:
            yield box
            continue
        split = _Search(old, new, box, effort).middle()
        parts = _parts(box, [split]) if split else _between_anchors(old, new, box, effort)
        if parts:
            waiting += parts
        else:
            yield box


def _parts(box: Box, points: Sequence[Point]) -> list[Box]:
    corners = [
        Point(box.old_start, box.new_start),
        *points,
        Point(box.old_end, box.new_end),
    ]
    return [Box(a.old, b.old, a.new, b.new) for a, b in pairwise(corners)]


class _Search:
    """Furthest points of the paths from both corners of one box, one more edit in each round.

    A diagonal is old index - new index. `_ahead` has, for each diagonal about the first corner,
    the largest old index reached from there; `_back`, about the last corner, the smallest.
    """

    def __init__(self, old: Sequence[int], new: Sequence[int], box: Box, effort: Effort):
        self._old, self._new, self._box, self._effort = old, new, box, effort
        size = box.old_end - box.old_start + box.new_end - box.new_start
        self._rounds = min(isqrt(effort.left_to_search // _SHARE), (size + 1) // 2)
        self._first = box.old_start - box.new_start
        self._last = box.old_end - box.new_end
        self._lowest = box.old_start - box.new_end
        self._highest = box.old_end - box.new_start
        self._ahead_offset = self._rounds + 1 - self._first
        self._back_offset = self._rounds + 1 - self._last
        self._ahead = [-1] * (2 * self._rounds + 3)
        self._back = [_FAR] * (2 * self._rounds + 3)
        self._ahead[self._first + self._ahead_offset] = box.old_start
        self._back[self._last + self._back_offset] = box.old_end

    def middle(self) -> Point | None:
        """A point that a shortest path goes through; None where it is too far to find.

        The box differs in its first and in its last element and neither side is empty, so the
        point is never a corner.
        """
        odd = (self._first - self._last) % 2 == 1
        for edits in range(1, self._rounds + 1):
            point = self._forward(edits, odd) or self._backward(edits, not odd)
            if point is not None:
                return point
            if not self._effort.left_to_search:
                return None
        return None

    def _diagonals(self, centre: int, edits: int) -> range:
        """Those that this round can reach inside the box, highest first."""
        low, high = centre - edits, centre + edits
        if low < self._lowest:
            low += 2 * ((self._lowest - low + 1) // 2)
        if high > self._highest:
            high -= 2 * ((high - self._highest + 1) // 2)
        return range(high, low - 1, -2)

    def _forward(self, edits: int, may_meet: bool) -> Point | None:
        old, new, ahead, back = self._old, self._new, self._ahead, self._back
        old_end, new_end = self._box.old_end, self._box.new_end
        offset, back_offset = self._ahead_offset, self._back_offset
        met_low, met_high = self._last - edits + 1, self._last + edits - 1
        diagonals = self._diagonals(self._first, edits)
        spent = len(diagonals)
        for diagonal in diagonals:
            at = diagonal + offset
            below, above = ahead[at - 1], ahead[at + 1]
            i = below + 1 if below >= above else above
            j = i - diagonal
            if i < old_end and j < new_end and old[i] == new[j]:
                run = run_forward(old, new, Box(i, old_end, j, new_end))
                i += run
                spent += run // _ELEMENTS_A_STEP
            ahead[at] = i
            if may_meet and met_low <= diagonal <= met_high and back[diagonal + back_offset] <= i:
                self._effort.spent += spent
                return Point(i, i - diagonal)
        self._effort.spent += spent
        return None

    def _backward(self, edits: int, may_meet: bool) -> Point | None:
        old, new, ahead, back = self._old, self._new, self._ahead, self._back
        old_start, new_start = self._box.old_start, self._box.new_start
        offset, ahead_offset = self._back_offset, self._ahead_offset
        met_low, met_high = self._first - edits, self._first + edits
        diagonals = self._diagonals(self._last, edits)
        spent = len(diagonals)
        for diagonal in diagonals:
            at = diagonal + offset
            below, above = back[at - 1], back[at + 1]
            i = below if below < above else above - 1
            j = i - diagonal
            if i > old_start and j > new_start and old[i - 1] == new[j - 1]:
                run = run_backward(old, new, Box(old_start, i, new_start, j))
                i -= run
                spent += run // _ELEMENTS_A_STEP
            back[at] = i
            if may_meet and met_low <= diagonal <= met_high and i <= ahead[diagonal + ahead_offset]:
                self._effort.spent += spent
                return Point(i, i - diagonal)
        self._effort.spent += spent
        return None


def _between_anchors(old: Sequence[int], new: Sequence[int], box: Box, effort: Effort) -> list[Box]:
    """What lies between the elements that stand once on both sides of the box, in order."""
    elements = box.old_end - box.old_start + box.new_end - box.new_start
    cost = elements // _COUNTED_A_STEP + 1
    if cost > effort.left_to_search:
        return []
    effort.spent += cost
    old_places, new_places = _single(old, box[:2]), _single(new, box[2:])
    anchors = _longest_in_order(
        [Point(place, new_places[x]) for x, place in old_places.items() if x in new_places]
    )
    # An anchor itself is common, and left out: the part before ends with it, and is trimmed.
    return _parts(box, [Point(at.old + 1, at.new + 1) for at in anchors]) if anchors else []


def _single(elements: Sequence[int], stretch: tuple[int, int]) -> dict[int, int]:
    """Place of every element that stands once in the stretch, in order of place."""
    within = elements[slice(*stretch)]
    counts = Counter(within)
    return {x: place for place, x in enumerate(within, stretch[0]) if counts[x] == 1}


def _longest_in_order(points: Sequence[Point]) -> list[Point]:
    """The longest run of points, given by rising old, whose new rises too (patience sorting)."""
    tops: list[int] = []
    top_points: list[int] = []
    before: list[int] = []
    for index, point in enumerate(points):
        pile = bisect_left(tops, point.new)
        before.append(top_points[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(point.new)
            top_points.append(index)
        else:
            tops[pile], top_points[pile] = point.new, index
    run: list[Point] = []
    at = top_points[-1] if top_points else -1
    while at >= 0:
        run.append(points[at])
        at = before[at]
    return run[::-1]
