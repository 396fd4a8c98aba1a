"""The three-way merge of texts by lines: what two sides made of one base, in one text.

The changes of each side against the base are grouped where they overlap or touch, which is where
no line that all three texts have lies between them. A group that one side alone changed, or both
to the same lines, is clean; any other is a conflict. Nothing is guessed and no line is dropped:
the hunks, in order, cover all three texts.

Against `git merge-file --diff3` the outcome differs in one class alone, where both diffs are as
git has them: a group both sides made the same by different changes, which git calls clean
without `--diff3` only, is always clean here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clumsies.memory.line_diff import Change, line_changes, split_lines

Source = Literal["unchanged", "current", "draft", "both", "conflict"]
Side = Literal["base", "current", "draft"]

GIT_MARKER_SIZE = 7
_MARKER_RUN = re.compile(r"<+|\|+|=+|>+")


class LineRange(NamedTuple):
    """Lines of one text, from 0; `end` is excluded."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MergeHunk:
    """One stretch of the three texts. `source` says whose lines are the result.

    "unchanged": all three are equal; "both": current and draft are, the base is not; "conflict":
    somebody has to decide.
    """

    source: Source
    base: LineRange
    current: LineRange
    draft: LineRange


@dataclass(frozen=True, slots=True)
class TextMerge:
    """The lines of the three texts, with their ends, and the hunks that cover them in order."""

    base: Sequence[str]
    current: Sequence[str]
    draft: Sequence[str]
    hunks: Sequence[MergeHunk]

    @property
    def conflicts(self) -> list[MergeHunk]:
        return [hunk for hunk in self.hunks if hunk.source == "conflict"]

    @property
    def text(self) -> str | None:
        """The merged text; None where there is a conflict."""
        if any(hunk.source == "conflict" for hunk in self.hunks):
            return None
        return "".join(line for hunk in self.hunks for line in self.clean_lines(hunk))

    def lines(self, hunk: MergeHunk, side: Side) -> Sequence[str]:
        """What one of the texts has in the hunk."""
        text: Sequence[str] = getattr(self, side)
        return text[slice(*getattr(hunk, side))]

    def clean_lines(self, hunk: MergeHunk) -> Sequence[str]:
        """The result of a hunk that is not a conflict."""
        return self.lines(hunk, "draft" if hunk.source == "draft" else "current")


def merge_texts(base: str, current: str, draft: str) -> TextMerge:
    """What `current` and `draft` made of `base`, joined by lines. Line ends are kept as they are.

    `current` and `draft` are equal in rank: exchanged, they give the same text.
    """
    texts = split_lines(base), split_lines(current), split_lines(draft)
    return TextMerge(*texts, tuple(_hunks(*texts)))


def _hunks(
    base: Sequence[str], current: Sequence[str], draft: Sequence[str]
) -> Iterator[MergeHunk]:
    at = MergeHunk("unchanged", LineRange(0, 0), LineRange(0, 0), LineRange(0, 0))
    for start, end, ours, theirs in _groups(line_changes(base, current), line_changes(base, draft)):
        if start > at.base.end:
            at = _unchanged(at, start - at.base.end)
            yield at
        stretch = LineRange(start, end)
        in_current = LineRange(at.current.end, at.current.end + end - start + _growth(ours))
        in_draft = LineRange(at.draft.end, at.draft.end + end - start + _growth(theirs))
        source = _source(
            base[slice(*stretch)], current[slice(*in_current)], draft[slice(*in_draft)]
        )
        at = MergeHunk(source, stretch, in_current, in_draft)
        yield at
    if at.base.end < len(base):
        yield _unchanged(at, len(base) - at.base.end)


def _unchanged(before: MergeHunk, size: int) -> MergeHunk:
    base, current, draft = (
        LineRange(lines.end, lines.end + size)
        for lines in (before.base, before.current, before.draft)
    )
    return MergeHunk("unchanged", base, current, draft)


def _growth(changes: Sequence[Change]) -> int:
    return sum(
        change.new_end - change.new_start - (change.old_end - change.old_start)
        for change in changes
    )


def _groups(
    ours: Sequence[Change], theirs: Sequence[Change]
) -> Iterator[tuple[int, int, Sequence[Change], Sequence[Change]]]:
    """(base start, base end, ours, theirs) of changes that overlap or touch, in order."""
    i = j = 0
    while i < len(ours) or j < len(theirs):
        first_i, first_j = i, j
        start = end = min(change.old_start for change in (*ours[i : i + 1], *theirs[j : j + 1]))
        while True:
            if i < len(ours) and ours[i].old_start <= end:
                end = max(end, ours[i].old_end)
                i += 1
            elif j < len(theirs) and theirs[j].old_start <= end:
                end = max(end, theirs[j].old_end)
                j += 1
            else:
                break
        yield start, end, ours[first_i:i], theirs[first_j:j]


def _source(base: Sequence[str], current: Sequence[str], draft: Sequence[str]) -> Source:
    if current == draft:
        return "both"
    if draft == base:
        return "current"
    return "draft" if current == base else "conflict"


def conflict_marker_size(merge: TextMerge) -> int:
    """How long markers must be: git's length, or longer than any line of the texts begins with.

    A Markdown heading may be underlined with `=`, which is what git's middle marker looks like.
    """
    lines = (line for text in (merge.base, merge.current, merge.draft) for line in text)
    runs = (_MARKER_RUN.match(line) for line in lines if line[0] in "<|=>")
    longest = max((run.end() for run in runs if run), default=0)
    return max(GIT_MARKER_SIZE, longest + 1)


def conflict_text(merge: TextMerge) -> str:
    """The merged text with every conflict written out between markers, for people to edit.

    Markers are git's with `--diff3` (current, base, draft), of conflict_marker_size. They end as
    lines about them do, and a side without a final line end is given one.
    """
    size = conflict_marker_size(merge)
    pieces: list[str] = []
    for hunk in merge.hunks:
        if hunk.source != "conflict":
            pieces += merge.clean_lines(hunk)
            continue
        line_end = _line_end(merge, hunk)
        pieces.append(f"{'<' * size} current{line_end}")
        pieces += _ended(merge.lines(hunk, "current"), line_end)
        pieces.append(f"{'|' * size} base{line_end}")
        pieces += _ended(merge.lines(hunk, "base"), line_end)
        pieces.append(f"{'=' * size}{line_end}")
        pieces += _ended(merge.lines(hunk, "draft"), line_end)
        pieces.append(f"{'>' * size} draft{line_end}")
    return "".join(pieces)


def has_conflict_markers(text: str, size: int) -> bool:
    """Whether a line of the text is a marker of conflict_text: somebody has yet to decide."""
    marker = rf"^(?:<{{{size}}} current|\|{{{size}}} base|={{{size}}}|>{{{size}}} draft)\r?$"
    return re.search(marker, text, re.MULTILINE) is not None


def _line_end(merge: TextMerge, hunk: MergeHunk) -> str:
    """A marker's end: with "\\r" where the line before the conflict has it, in both sides.

    The base's first line must have it as well. A line without an end is passed over, and a side's
    first line speaks where there is none before.
    """
    ends = (
        _ends_with_return(merge.current, hunk.current.start - 1),
        _ends_with_return(merge.draft, hunk.draft.start - 1),
        _ends_with_return(merge.base, 0) or False,
    )
    return "\n" if False in ends else "\r\n"


def _ends_with_return(lines: Sequence[str], at: int) -> bool | None:
    """Whether a line, or the one before where it has no end, ends with a carriage return too."""
    for line in reversed(lines[max(at - 1, 0) : max(at, 0) + 1]):
        if line.endswith("\n"):
            return line.endswith("\r\n")
    return None


def _ended(lines: Sequence[str], line_end: str) -> list[str]:
    if not lines or lines[-1].endswith("\n"):
        return list(lines)
    return [*lines[:-1], f"{lines[-1]}{line_end}"]
