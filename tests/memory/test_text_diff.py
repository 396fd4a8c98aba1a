"""Changes of lines and unified diffs: shortest, where git has them, and bounded in effort."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from clumsies.memory.edit_path import Effort
from clumsies.memory.line_diff import Change, line_changes, split_lines
from clumsies.memory.text_diff import DiffHunk, diff_lines, unified_text
from tests.effort import at_least
from tests.memory.line_texts import TEXTS, git_changes, longest_common, require_git, text_triples

ORACLE = settings(
    max_examples=at_least(100), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PROPERTY = settings(max_examples=at_least(300))


def applied(old: list[str], new: list[str], changes: list[Change]) -> list[str]:
    """`old` with the changes made; asserts that they are in order, apart, and fit together."""
    result: list[str] = []
    at = -1
    for change in changes:
        assert at < change.old_start
        result += old[max(at, 0) : change.old_start]
        assert len(result) == change.new_start
        assert change.old_start < change.old_end or change.new_start < change.new_end
        result += new[change.new_start : change.new_end]
        at = change.old_end
    return result + old[max(at, 0) :]


def patched(old: list[str], hunks: list[DiffHunk]) -> list[str]:
    result: list[str] = []
    at = 0
    for hunk in hunks:
        start = hunk.old_start - (hunk.old_count > 0)
        result += old[at:start]
        assert len(result) == hunk.new_start - (hunk.new_count > 0)
        removed = [line for line in hunk.lines if line.kind != "+"]
        assert [line.text for line in removed] == old[start : start + hunk.old_count]
        assert [line.old_number for line in removed] == [
            *range(start + 1, start + 1 + hunk.old_count)
        ]
        added = [line for line in hunk.lines if line.kind != "-"]
        assert [line.new_number for line in added] == [
            *range(len(result) + 1, len(result) + 1 + hunk.new_count)
        ]
        result += [line.text for line in added]
        at = start + hunk.old_count
    return result + old[at:]


@PROPERTY
@given(TEXTS, TEXTS)
def test_the_lines_of_a_text_are_the_text(one: str, two: str) -> None:
    for text in (one, two, one + "x" + two):
        lines = split_lines(text)
        assert "".join(lines) == text
        assert all(line.index("\n") == len(line) - 1 for line in lines[:-1])


@PROPERTY
@given(text_triples())
def test_changes_make_the_new_text_and_are_the_fewest(texts: tuple[str, str, str]) -> None:
    base, current, draft = map(split_lines, texts)
    for old, new in ((base, current), (current, draft)):
        changes = line_changes(old, new)
        assert applied(old, new, changes) == new
        kept = len(old) - sum(change.old_end - change.old_start for change in changes)
        assert kept == longest_common(old, new)


@ORACLE
@given(text_triples())
def test_changes_stand_where_git_has_them(tmp_path: Path, texts: tuple[str, str, str]) -> None:
    """Or git's diff is longer than the shortest: it leaves out frequent lines beforehand."""
    require_git()
    _, current, draft = texts
    ours = line_changes(split_lines(current), split_lines(draft))
    theirs = git_changes(tmp_path, current, draft)
    assert ours == theirs or _size(ours) < _size(theirs)


def _size(changes: list[Change]) -> int:
    return sum(
        change.old_end - change.old_start + change.new_end - change.new_start for change in changes
    )


@PROPERTY
@given(text_triples())
def test_a_diff_turns_the_old_text_into_the_new(texts: tuple[str, str, str]) -> None:
    _, old, new = texts
    for context in (0, 1, 3):
        hunks = diff_lines(old, new, context)
        assert "".join(patched(split_lines(old), hunks)) == new
        assert bool(hunks) == (old != new)


@ORACLE
@given(text_triples())
def test_git_applies_a_unified_diff(tmp_path: Path, texts: tuple[str, str, str]) -> None:
    _, old, new = texts
    if not old or not new or old == new:
        return
    place = tmp_path / "file"
    place.write_bytes(old.encode())
    patch = f"--- a/file\n+++ b/file\n{unified_text(diff_lines(old, new))}"
    subprocess.run(
        [require_git(), "apply", "--whitespace=nowarn", "-"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
        input=patch.encode(),
        check=True,
    )
    assert place.read_bytes() == new.encode()


def test_a_repeated_line_that_was_added_stands_as_low_as_it_can() -> None:
    assert line_changes(["a\n", "x\n", "b\n"], ["a\n", "x\n", "x\n", "b\n"]) == [Change(2, 2, 2, 3)]


def test_a_hunk_tells_its_lines() -> None:
    (hunk,) = diff_lines("a\nb\nc", "a\nB\nc")
    assert hunk.header == "@@ -1,3 +1,3 @@"
    assert [line.kind for line in hunk.lines] == [" ", "-", "+", " "]
    assert unified_text([hunk]).endswith("+B\n c\n\\ No newline at end of file\n")


def _lines(count: int) -> list[str]:
    return [f"- line {number} of a long list\n" for number in range(count)]


def _numbered(seed: int, count: int, words: str) -> list[str]:
    chosen = random.Random(seed)
    return [f"{chosen.choice(words)}\n" for _ in range(count)]


def test_few_changes_in_a_long_text_cost_next_to_nothing() -> None:
    old = _lines(200_000)
    new = list(old)
    new[10] = new[150_000] = "changed\n"
    new.insert(77_777, old[5])
    del new[190_000]
    effort = Effort(0)
    changes = line_changes(old, new, effort)
    assert applied(old, new, changes) == new
    assert _size(changes) == 6
    assert effort.spent < 20_000


PATHOLOGICAL = {
    "equal lines": (["a\n"] * 100_000, ["a\n"] * 99_000),
    "equal lines between others": (
        ["x\n", *["a\n"] * 100_000, "y\n"],
        ["a\n", "x\n", *["a\n"] * 50_000, "y\n", *["a\n"] * 20_000, "z\n"],
    ),
    "two words": (_numbered(1, 30_000, "ab"), _numbered(2, 30_000, "ab")),
    "periods": (["a\n", "b\n"] * 20_000, ["b\n", "b\n", "a\n"] * 15_000),
    "reversed": (_lines(50_000), _lines(50_000)[::-1]),
    "shuffled": (_lines(50_000), sorted(_lines(50_000), key=lambda line: line[::-1])),
    "blank lines taken out": (
        [line for pair in zip(_lines(20_000), ["\n"] * 20_000, strict=True) for line in pair],
        _lines(20_000),
    ),
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_effort_is_bounded_and_the_result_still_right(name: str) -> None:
    old, new = PATHOLOGICAL[name]
    for one, other in ((old, new), (new, old)):
        effort = Effort(len(one) + len(other))
        changes = line_changes(one, other, effort)
        assert applied(one, other, changes) == other
        assert effort.spent <= effort.allowed + 10_000


@pytest.mark.parametrize("allowed", [0, 1, 10, 100])
def test_without_effort_left_the_result_is_coarser_and_still_right(allowed: int) -> None:
    for seed in range(50):
        old, new = _numbered(seed, 60, "abcdefgh"), _numbered(seed + 100, 60, "abcdefgh")
        effort = Effort(0)
        effort.allowed = allowed
        changes = line_changes(old, new, effort)
        assert applied(old, new, changes) == new


def test_lines_that_stand_once_hold_where_the_search_is_too_dear() -> None:
    old, new = PATHOLOGICAL["blank lines taken out"]
    old = [line for number, line in enumerate(old) for _ in range(1 + number % 2)]
    changes = line_changes(old, ["\n", *new])
    assert applied(old, ["\n", *new], changes) == ["\n", *new]
    assert sum(change.new_end - change.new_start for change in changes) <= 1
