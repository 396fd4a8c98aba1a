"""Reading a directory: what is taken, what is left out and said, what is never lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clumsies.errors import NotFound
from clumsies.memory.directory import DirectoryScan

LIMIT = 1024


def scan(root: Path, limit: int = LIMIT) -> tuple[list[str], DirectoryScan]:
    found = DirectoryScan(root, limit)
    return [resource.path for resource in found.resources()], found


def write(root: Path, path: str, text: str = "# Text\n") -> Path:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")
    return place


def test_markdown_of_every_depth_is_read_in_order_of_path(tmp_path: Path) -> None:
    for path in ("b.md", "a/z.MD", "a/deep/er/note.markdown", "a/script.py", "重跑.md"):
        write(tmp_path, path)
    paths, found = scan(tmp_path)
    assert paths == ["a/deep/er/note.markdown", "a/z.MD", "b.md", "重跑.md"]
    assert found.warnings == []


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "bom.md").write_bytes(b"\xef\xbb\xbf# Title\n")
    [resource] = DirectoryScan(tmp_path, LIMIT).resources()
    assert resource.content == "# Title\n"


def test_gitignore_means_what_it_means_to_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, ".gitignore", "*.tmp.md\n/build/\nsecret/*\n!secret/open.md\n**/cache/\n")
    write(tmp_path, "docs/.gitignore", "draft-*.md\n!draft-keep.md\n*.tmp.md\n!good.tmp.md\n")
    for path in (
        "a.md",
        "a.tmp.md",
        "build/x.md",
        "docs/build/x.md",
        "secret/closed.md",
        "secret/open.md",
        "docs/draft-1.md",
        "docs/draft-keep.md",
        "docs/good.tmp.md",
        "docs/cache/y.md",
        "draft-2.md",
    ):
        write(tmp_path, path)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "*.md"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert scan(tmp_path)[0] == sorted(listed)


def test_version_control_packages_and_environments_are_passed_over(tmp_path: Path) -> None:
    for path in (".git/x.md", "node_modules/p/README.md", "venv/lib/x.md", ".github/guide.md"):
        write(tmp_path, path)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert scan(tmp_path)[0] == [".github/guide.md"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: (root / "bad.md").write_bytes(b"\xff\xfe# no"), "UTF-8"),
        (lambda root: (root / "bad.md").write_bytes(b"a" * (LIMIT + 1)), "limit of"),
        (lambda root: (root / "bad.md").symlink_to("bad.md"), "cannot be read"),
        (lambda root: (root / "bad.md").symlink_to("/etc/hostname"), "outside"),
        (lambda root: (root / "bad.md").symlink_to("missing.md"), "cannot be read"),
        (lambda root: os.mkfifo(root / "bad.md"), "regular file"),
    ],
    ids=["not UTF-8", "too large", "link loop", "link outside", "dangling link", "pipe"],
)
def test_what_cannot_be_read_is_said_and_blocks_nothing_else(
    tmp_path: Path, make: object, words: str
) -> None:
    write(tmp_path, "good.md")
    make(tmp_path)  # type: ignore[operator]
    paths, found = scan(tmp_path)
    assert paths == ["good.md"]
    [warning] = found.warnings
    assert warning.path == "bad.md"
    assert words in warning.reason


def test_a_link_inside_the_directory_is_read(tmp_path: Path) -> None:
    write(tmp_path, "real.md")
    (tmp_path / "alias.md").symlink_to("real.md")
    assert scan(tmp_path)[0] == ["alias.md", "real.md"]


def test_a_loop_of_directories_ends(tmp_path: Path) -> None:
    write(tmp_path, "a/x.md")
    (tmp_path / "a" / "self").symlink_to(tmp_path, target_is_directory=True)
    assert scan(tmp_path)[0] == ["a/x.md"]


def test_a_name_that_is_not_utf8_is_said(tmp_path: Path) -> None:
    write(tmp_path, "good.md")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md"))).write_text("x")
    paths, found = scan(tmp_path)
    assert paths == ["good.md"]
    assert "not UTF-8" in found.warnings[0].reason


def test_an_unread_file_or_folder_is_remembered_as_unread_not_as_gone(tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_bytes(b"\xff")
    write(tmp_path, "good.md")
    found = scan(tmp_path)[1]
    assert found.was_unread("bad.md")
    assert not found.was_unread("good.md")
    assert not found.was_unread("bad.md.other.md")


@contextmanager
def unprivileged_directory() -> Iterator[Path]:
    """A directory of a user whom modes bind: root may read everything, so it steps down."""
    nobody = 65_534
    root = Path(tempfile.mkdtemp(prefix="clumsies-"))
    stepped_down = os.geteuid() == 0
    try:
        if stepped_down:
            os.chown(root, nobody, -1)
            os.seteuid(nobody)
        yield root
    finally:
        if stepped_down:
            os.seteuid(0)
        shutil.rmtree(root)


def test_a_folder_without_permission_is_unread_with_all_below_it() -> None:
    with unprivileged_directory() as root:
        write(root, "closed/x.md")
        write(root, "open.md")
        (root / "closed").chmod(0)
        try:
            paths, found = scan(root)
        finally:
            (root / "closed").chmod(0o700)
    assert paths == ["open.md"]
    assert found.was_unread("closed/x.md")
    assert not found.was_unread("open.md")


def test_a_missing_directory_and_a_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no directory"):
        scan(tmp_path / "nowhere")
    with pytest.raises(NotFound, match="not a directory"):
        scan(write(tmp_path, "file.md"))


def test_a_blank_file_is_no_resource(tmp_path: Path) -> None:
    write(tmp_path, "blank.md", " \n\t\n")
    assert scan(tmp_path)[0] == []
