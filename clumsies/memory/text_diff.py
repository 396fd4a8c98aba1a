"""The difference of two texts as unified-diff data, for whoever shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from clumsies.memory.line_diff import Change, line_changes, split_lines

DiffKind = Literal[" ", "-", "+"]
CONTEXT_LINES = 3
NO_LINE_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line as one side has it, its end included; numbers from 1, None where it is not there."""

    kind: DiffKind
    text: str
    old_number: int | None
    new_number: int | None


@dataclass(frozen=True, slots=True)
class DiffHunk:
    """Changes and the common lines about them; starts from 1, as patch programs count.

    A count of 0 stands behind line `start`, which may be 0.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: Sequence[DiffLine]

    @property
    def header(self) -> str:
        old = f"{self.old_start},{self.old_count}"
        return f"@@ -{old} +{self.new_start},{self.new_count} @@"


def diff_lines(old: str, new: str, context: int = CONTEXT_LINES) -> list[DiffHunk]:
    """The hunks from `old` to `new`, in order; none where the texts are equal."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    changes = line_changes(old_lines, new_lines)
    return [_hunk(old_lines, new_lines, near, context) for near in _near_changes(changes, context)]


def unified_text(hunks: Sequence[DiffHunk]) -> str:
    """The hunks as a patch program reads them, without file names."""
    return "".join(piece for hunk in hunks for piece in _hunk_text(hunk))


def _hunk_text(hunk: DiffHunk) -> Iterator[str]:
    yield f"{hunk.header}\n"
    for line in hunk.lines:
        yield f"{line.kind}{line.text}"
        if not line.text.endswith("\n"):
            yield f"\n{NO_LINE_END}\n"


def _near_changes(changes: Sequence[Change], context: int) -> Iterator[list[Change]]:
    """Runs of changes whose context would meet."""
    near: list[Change] = []
    for change in changes:
        if near and change.old_start - near[-1].old_end > 2 * context:
            yield near
            near = []
        near.append(change)
    if near:
        yield near


def _hunk(
    old: Sequence[str], new: Sequence[str], changes: Sequence[Change], context: int
) -> DiffHunk:
    before = min(context, changes[0].old_start)
    after = min(context, len(old) - changes[-1].old_end)
    old_start, new_start = changes[0].old_start - before, changes[0].new_start - before
    old_end, new_end = changes[-1].old_end + after, changes[-1].new_end + after
    lines: list[DiffLine] = []
    old_at, new_at = old_start, new_start
    for change in (*changes, Change(old_end, old_end, new_end, new_end)):
        common = zip(range(old_at, change.old_start), range(new_at, change.new_start), strict=True)
        lines += (DiffLine(" ", old[i], i + 1, j + 1) for i, j in common)
        old_at, new_at = change.old_end, change.new_end
        lines += (DiffLine("-", old[i], i + 1, None) for i in range(change.old_start, old_at))
        lines += (DiffLine("+", new[j], None, j + 1) for j in range(change.new_start, new_at))
    return DiffHunk(
        old_start + (old_end > old_start),
        old_end - old_start,
        new_start + (new_end > new_start),
        new_end - new_start,
        lines,
    )
