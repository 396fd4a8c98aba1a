"""Private directories."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clumsies.errors import IoFailed
from clumsies.files import ensure_private_directory


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_on_the_way_is_private_and_what_was_there_stays(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o755)
    before = os.umask(0o022)
    try:
        made = ensure_private_directory(there / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert mode_of(there) == 0o755
    assert [mode_of(each) for each in (made, made.parent, made.parent.parent)] == [0o700] * 3
    made.chmod(0o750)
    assert mode_of(ensure_private_directory(made)) == 0o700


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_no_directory_of_its_own_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "place"
    if kind == "file":
        path.write_text("")
    else:
        path.symlink_to(tmp_path if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(IoFailed) as refused:
        ensure_private_directory(path)
    assert str(path) in refused.value.message
