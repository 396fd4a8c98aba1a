"""Paths against plain-Python oracles, and the names every attack uses."""

from __future__ import annotations

import unicodedata
from itertools import combinations
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import InvalidRequest
from clumsies.memory.paths import check_path
from clumsies.storage.tree_paths import (
    collision_key,
    find_collision,
    is_cache_component,
    path_problem,
)

DEVICES = {"CON", "PRN", "AUX", "NUL"} | {f"{d}{n}" for d in ("COM", "LPT") for n in range(1, 10)}
TRICKY = st.text(alphabet='ab./\\ \t\x00\x7f:*?"<>|~ÄäéconCON1ß中', max_size=12)
SEGMENTS = st.sampled_from(["a", "A", "b", "ä", "a\u0308", "c.md", "C.MD", "d e", "ß", "ss"])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)


def is_good(path: str) -> bool:
    """The rules of the contract, one after the other."""
    if not path or path[0] == "/" or path[-1] == "/":
        return False
    for segment in path.split("/"):
        stem = segment.rsplit(".", 1)[0] if "." in segment[1:] else segment
        bad = (
            segment in ("", ".", "..")
            or segment.strip() != segment
            or segment[-1] == "."
            or any(c in '\\<>:"|?*' or ord(c) < 32 or 127 <= ord(c) < 160 for c in segment)
            or stem.upper() in DEVICES
        )
        if bad:
            return False
    return True


@given(TRICKY)
def test_a_path_is_good_where_the_contract_says_so(path: str) -> None:
    assert (path_problem(path) is None) == is_good(path)


@given(TRICKY)
def test_a_good_path_stays_inside(path: str) -> None:
    if path_problem(path) is None:
        root = Path("/memory/root")
        assert not PurePosixPath(path).is_absolute()
        assert root in Path(root / path).resolve().parents


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..\\..\\secrets",
        "a/../b.md",
        "a//b.md",
        "./a.md",
        "a/",
        "C:/x.md",
        "nul",
        "con.md",
        "a/LPT9.txt",
        "a.md ",
        "a./b.md",
        "a\nb.md",
        "a\x85b.md",
        "",
        "x" * 241 + ".md",
        "/".join(["folder"] * 200),
        "a\udc80.md",
    ],
)
def test_a_path_outside_or_unwritable_somewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_path(path)
    assert caught.value.code == "invalid_request"
    caught.value.message.encode("ascii")


@pytest.mark.parametrize(
    "path", ["a.md", "日本/計画.md", ".hidden/x", "a b/c-d_e.md", "console.md"]
)
def test_an_ordinary_path_is_kept(path: str) -> None:
    assert check_path(path) == path


def clash(first: str, second: str) -> bool:
    """Whether some file system takes the two for one, or one for a folder of the other."""
    one, two = (
        [unicodedata.normalize("NFC", s).lower() for s in path.split("/")]
        for path in (first, second)
    )
    shorter = min(len(one), len(two))
    return one[:shorter] == two[:shorter]


@given(st.lists(PATHS, max_size=6))
def test_collisions_are_those_of_any_two(paths: list[str]) -> None:
    expected = any(clash(a, b) for a, b in combinations(paths, 2))
    found = find_collision(paths)
    assert (found is not None) == expected
    if found is not None:
        assert clash(*found)


@given(PATHS)
def test_the_key_does_not_depend_on_composition_or_case(path: str) -> None:
    assert collision_key(unicodedata.normalize("NFD", path)) == collision_key(path)
    assert collision_key(path.lower()) == collision_key(path)


def test_cache_components() -> None:
    assert all(map(is_cache_component, ["proj_1", "a.b-c", "0" * 64]))
    assert not any(map(is_cache_component, ["", ".", "..", "a/b", "a\\b", "ä", "a b", "a\n"]))
