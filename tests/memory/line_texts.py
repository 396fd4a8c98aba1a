"""Hypothesis strategies of texts that share lines, and git as the oracle of merging them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import strategies as st

from clumsies.memory.line_diff import Change

LINES = st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n", "e\rf\n", "g \x85\u2028h\n", "é\n"])
"""Ends of every kind, and characters that other programs take for one."""


@st.composite
def edited(draw: st.DrawFn, lines: list[str]) -> list[str]:
    """The lines after up to four small edits."""
    result = list(lines)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(result)))
        end = start + draw(st.integers(0, 2))
        result[start:end] = draw(st.lists(LINES, max_size=2))
    return result


@st.composite
def text_triples(draw: st.DrawFn) -> tuple[str, str, str]:
    """(base, current, draft): two edits of one base; some texts lack the last line end."""
    base = draw(st.lists(LINES, max_size=14))
    texts = ("".join(base), *("".join(draw(edited(base))) for _ in range(2)))
    cut = [draw(st.booleans()) for _ in texts]
    one, two, three = (
        text.removesuffix("\n") if short else text for text, short in zip(texts, cut, strict=True)
    )
    return one, two, three


TEXTS = st.lists(LINES, max_size=14).map("".join)


def require_git() -> str:
    """The program; the test is skipped where there is none."""
    program = shutil.which("git")
    if program is None:
        pytest.skip("git, the oracle of this test, is not installed")
    return program


def _run(arguments: list[str], directory: Path) -> tuple[int, bytes]:
    directory.joinpath("home").mkdir(exist_ok=True)
    done = subprocess.run(
        [require_git(), *arguments],
        cwd=directory,
        env={
            "HOME": str(directory / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(directory.parent),
        },
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


def git_merge(
    directory: Path, base: str, current: str, draft: str, *options: str
) -> tuple[bool, str]:
    """(whether it is clean, what `git merge-file -p` prints)."""
    for name, text in (("base", base), ("current", current), ("draft", draft)):
        directory.joinpath(name).write_bytes(text.encode())
    code, printed = _run(["merge-file", "-p", *options, "current", "base", "draft"], directory)
    assert code < 128
    return code == 0, printed.decode()


def git_changes(directory: Path, old: str, new: str) -> list[Change]:
    """The changes as git's diff sees them where it merges: without the indent heuristic."""
    directory.joinpath("old").write_bytes(old.encode())
    directory.joinpath("new").write_bytes(new.encode())
    options = ["--no-index", "--text", "-U0", "--no-indent-heuristic", "--diff-algorithm=myers"]
    _, printed = _run(["diff", *options, "old", "new"], directory)
    header = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
    changes = []
    for found in header.finditer(printed):
        old_start, old_count, new_start, new_count = (
            1 if number is None else int(number) for number in found.groups()
        )
        old_start -= old_count > 0
        new_start -= new_count > 0
        changes.append(Change(old_start, old_start + old_count, new_start, new_start + new_count))
    return changes


def longest_common(old: list[str], new: list[str]) -> int:
    """Length of the longest common subsequence, by the table."""
    row = [0] * (len(new) + 1)
    for line in old:
        above, row = row, [0]
        for j, other in enumerate(new):
            row.append(above[j] + 1 if line == other else max(above[j + 1], row[j]))
    return row[-1]
