"""Three-way merges of texts, against what merging means and against git."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from clumsies.memory.line_diff import line_changes, split_lines
from clumsies.memory.text_merge import (
    Side,
    TextMerge,
    conflict_marker_size,
    conflict_text,
    has_conflict_markers,
    merge_texts,
)
from tests.effort import at_least
from tests.memory.line_texts import TEXTS, git_changes, git_merge, require_git, text_triples

SIDES: tuple[Side, ...] = ("base", "current", "draft")
ORACLE = settings(
    max_examples=at_least(150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PROPERTY = settings(max_examples=at_least(300))


@ORACLE
@given(text_triples())
def test_git_merges_the_same(tmp_path: Path, texts: tuple[str, str, str]) -> None:
    """Status, merged text and conflict text, byte for byte.

    Only where git's own diff of a side is another than ours may they differ; then ours is not
    longer (test_text_diff). The one other class: current and draft became the same by different
    changes, which git sees without `--diff3` only.
    """
    require_git()
    base, current, draft = texts
    merge = merge_texts(*texts)
    labels = [word for side in ("current", "base", "draft") for word in ("-L", side)]
    clean, printed = git_merge(tmp_path, *texts, "--diff3", *labels)
    if (merge.text is not None, conflict_text(merge)) == (clean, printed):
        return
    same_diffs = all(
        git_changes(tmp_path, base, side) == line_changes(split_lines(base), split_lines(side))
        for side in (current, draft)
    )
    assert not same_diffs or git_merge(tmp_path, *texts) == (True, merge.text)


@PROPERTY
@given(TEXTS, TEXTS)
def test_a_side_that_changed_nothing_yields(base: str, text: str) -> None:
    assert merge_texts(base, text, base).text == text
    assert merge_texts(base, base, text).text == text
    assert merge_texts(base, text, text).text == text


@PROPERTY
@given(text_triples())
def test_the_sides_are_equal_in_rank(texts: tuple[str, str, str]) -> None:
    base, current, draft = texts
    merge, turned = merge_texts(base, current, draft), merge_texts(base, draft, current)
    assert merge.text == turned.text
    assert [(hunk.base, hunk.current, hunk.draft) for hunk in merge.hunks] == [
        (hunk.base, hunk.draft, hunk.current) for hunk in turned.hunks
    ]


@PROPERTY
@given(text_triples())
def test_the_hunks_cover_every_text_in_order(texts: tuple[str, str, str]) -> None:
    merge = merge_texts(*texts)
    for side, text in zip(SIDES, texts, strict=True):
        assert "".join(line for hunk in merge.hunks for line in merge.lines(hunk, side)) == text
    for hunk in merge.hunks:
        base, current, draft = (merge.lines(hunk, side) for side in SIDES)
        assert (
            hunk.source
            == {
                (True, True, True): "unchanged",
                (False, True, False): "current",
                (True, False, False): "draft",
                (False, False, True): "both",
                (False, False, False): "conflict",
            }[current == base, draft == base, current == draft]
        )


@PROPERTY
@given(text_triples())
def test_a_clean_text_has_what_was_added_and_not_what_was_removed(
    texts: tuple[str, str, str],
) -> None:
    base, current, draft = map(split_lines, texts)
    merged = merge_texts(*texts).text
    if merged is None:
        return
    counts = Counter(split_lines(merged))
    for side in (current, draft):
        for line, count in _added(base, side).items():
            assert counts[line] >= count
    removed = _removed(base, current) | _removed(base, draft)
    added = _added(base, current) + _added(base, draft)
    most = Counter(base) + added
    assert all(counts[line] <= most[line] - removed[line] for line in counts | removed)


def _added(old: list[str], new: list[str]) -> Counter[str]:
    return Counter(
        line for change in line_changes(old, new) for line in new[change.new_start : change.new_end]
    )


def _removed(old: list[str], new: list[str]) -> Counter[str]:
    return Counter(
        line for change in line_changes(old, new) for line in old[change.old_start : change.old_end]
    )


def _sources(merge: TextMerge) -> list[str]:
    return [hunk.source for hunk in merge.hunks]


def test_changes_with_a_common_line_between_are_clean() -> None:
    merge = merge_texts("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n")
    assert merge.text == "A\nb\nC\n"
    assert _sources(merge) == ["current", "unchanged", "draft"]


@pytest.mark.parametrize(
    ("base", "current", "draft"),
    [
        ("a\nb\n", "A\nb\n", "a\nB\n"),
        ("a\nb\n", "a\nx\nb\n", "A\nb\n"),
        ("a\n", "a\nx\n", "a\ny\n"),
        ("a\nb\nc\n", "a\nc\n", "a\nB\nc\n"),
        ("", "x\n", "y\n"),
        ("a\r\n", "a\n", "b\r\n"),
        ("a", "a\n", "a\nb\n"),
    ],
)
def test_changes_that_touch_are_a_conflict(base: str, current: str, draft: str) -> None:
    merge = merge_texts(base, current, draft)
    assert merge.text is None
    assert len(merge.conflicts) == 1
    assert merge_texts(base, draft, current).text is None


def test_both_made_the_same_change() -> None:
    merge = merge_texts("a\nb\nc\n", "X\nb\n", "X\nb\nc\nd\n")
    assert _sources(merge) == ["both", "unchanged", "conflict"]
    merge = merge_texts("a\nb\nc\n", "X\nb\nc\nd\n", "X\nb\nc\n")
    assert merge.text == "X\nb\nc\nd\n"


def test_both_became_the_same_by_different_changes(tmp_path: Path) -> None:
    """Which of two equal lines went is seen differently for each side; the outcome is one."""
    require_git()
    texts = ("a\nb\nb\n", "a\nb\n", "c\na\na\nb\n")
    merge = merge_texts(*texts)
    assert merge.text == "c\na\na\nb\n"
    assert _sources(merge) == ["draft", "unchanged", "both"]
    assert git_merge(tmp_path, *texts) == (True, merge.text)
    assert git_merge(tmp_path, *texts, "--diff3")[0] is False


def test_line_ends_stay() -> None:
    base = "one\r\ntwo\rstill two\nthree\n\nfive"
    current = base.replace("one", "ONE")
    draft = base.replace("five", "FIVE")
    assert merge_texts(base, current, draft).text == "ONE\r\ntwo\rstill two\nthree\n\nFIVE"


def test_a_conflict_is_written_out_as_people_know_it() -> None:
    merge = merge_texts("t\r\nold", "t\r\nnew\r\n", "t\r\nother")
    assert conflict_text(merge) == (
        "t\r\n<<<<<<< current\r\nnew\r\n||||||| base\r\nold\r\n=======\r\nother\r\n"
        ">>>>>>> draft\r\n"
    )


@pytest.mark.parametrize("line", ["=======\n", "<<<<<<< current\n", "||||||||| x\n", ">>>>>>>>>>"])
def test_markers_are_longer_than_lines_that_look_like_them(line: str) -> None:
    merge = merge_texts(f"x\ny\n{line}", f"a\ny\n{line}", f"b\ny\n{line}")
    size = conflict_marker_size(merge)
    assert size > len(line.split(maxsplit=1)[0])
    assert not any(has_conflict_markers("".join(lines), size) for lines in (merge.base,))
    written = conflict_text(merge)
    assert written.endswith(line)
    assert has_conflict_markers(written, size)
    for marker in ("<", "|", "=", ">"):
        kept = [part for part in split_lines(written) if part.startswith(marker * size)]
        assert len(kept) == 1
        assert has_conflict_markers(kept[0], size)


def test_a_clean_merge_has_no_marker() -> None:
    merge = merge_texts("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n")
    assert conflict_text(merge) == merge.text
    assert not has_conflict_markers(conflict_text(merge), conflict_marker_size(merge))
