"""Which project a directory belongs to.

A directory has one binding among the authorities in use: that of a Server that is not configured
now sleeps until it is again.

A directory is bound by its real path and speaks for everything below it; the longest bound
ancestor decides. A git worktree that is not below one falls back to the same place in its main
checkout, but only where the main checkout knows the worktree too: a file in a cloned repository
cannot choose a project.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from clumsies.errors import Conflict, InvalidRequest, NotFound
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import canonical_authority
from clumsies.storage.timestamps import row_time
from clumsies.storage.tree_paths import is_cache_component

_COLUMNS = "server_url, workspace_root, project_id, revision, created_at, updated_at"
_GIT_FILE_BYTES = 8_192


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A bound directory; the revision grows with every change and is what a change must name."""

    server_url: str
    workspace_root: str
    project_id: str
    revision: int
    created_at: str
    updated_at: str


class BindingStore:
    """The bindings of the authorities in use; any thread may use it.

    `authorities` gives their URLs, `authority_of` the one that a project belongs to.
    """

    def __init__(
        self,
        database: LocalDatabase,
        authorities: Callable[[], Sequence[str]],
        authority_of: Callable[[str], str],
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ):
        self._database = database
        self._authorities = authorities
        self._authority_of = authority_of
        self._clock_ns = clock_ns

    def _urls(self) -> str:
        return msgspec.json.encode([canonical_authority(u) for u in self._authorities()]).decode()

    def resolve(self, directory: Path) -> Binding:
        """The binding that speaks for `directory`.

        Raises NotFound("project_binding_not_found") where no ancestor is bound.
        """
        with self._database.reader() as connection:
            for place in _candidates(canonical_directory(directory)):
                binding = self._nearest(connection, place)
                if binding is not None:
                    return binding
        raise NotFound(
            "project_binding_not_found",
            f"{_shown(directory)} belongs to no project; run `clumsies init` in it.",
        )

    def _nearest(self, connection: apsw.Connection, place: Path) -> Binding | None:
        for folder in (place, *place.parents):
            binding = self._read(connection, folder)
            if binding is not None:
                return binding
        return None

    def _read(self, connection: apsw.Connection, root: Path) -> Binding | None:
        if not _is_text(root):
            return None
        row = first_row(
            connection,
            f"SELECT {_COLUMNS} FROM project_bindings WHERE workspace_root = ? "
            "AND server_url IN (SELECT value FROM json_each(?)) ORDER BY updated_at DESC LIMIT 1",
            (str(root), self._urls()),
        )
        return None if row is None else _binding(row)

    def list(self, project_id: str | None = None) -> list[Binding]:
        """Every binding, or a project's, in order of directory."""
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                f"SELECT {_COLUMNS} FROM project_bindings "
                "WHERE server_url IN (SELECT value FROM json_each(?1)) "
                "AND (?2 IS NULL OR project_id = ?2) ORDER BY workspace_root",
                (self._urls(), project_id),
            )
        return [_binding(row) for row in rows]

    def replace(
        self, directory: Path, project_id: str, expected_revision: int | None = None
    ) -> Binding:
        """Bind `directory` (a revision of None: where it is not bound, or so already).

        Raises Conflict("project_binding_changed") where it is bound otherwise or at another
        revision, and InvalidRequest for what is no directory.
        """
        root = require_directory(directory)
        if not is_cache_component(project_id):
            raise InvalidRequest("invalid_request", f"{project_id!a} is not a project id.")
        with self._database.writer() as connection:
            return self.replace_in(connection, root, project_id, expected_revision)

    def replace_in(
        self,
        connection: apsw.Connection,
        root: Path,
        project_id: str,
        expected_revision: int | None,
    ) -> Binding:
        """`replace` of a canonical directory in a transaction that is there."""
        old = self._read(connection, root)
        if old is not None and expected_revision is None and old.project_id == project_id:
            return old
        if (old.revision if old is not None else None) != expected_revision:
            raise _changed(root, old)
        now = row_time(self._clock_ns())
        binding = Binding(
            server_url=canonical_authority(self._authority_of(project_id)),
            workspace_root=str(root),
            project_id=project_id,
            revision=1 if old is None else old.revision + 1,
            created_at=now if old is None else old.created_at,
            updated_at=now,
        )
        if old is not None:
            _delete(connection, old)
        connection.execute(
            "INSERT OR REPLACE INTO project_bindings VALUES (?, ?, ?, ?, ?, ?)",
            msgspec.structs.astuple(binding),
        )
        return binding

    def remove(self, directory: Path, expected_revision: int) -> None:
        """Unbind `directory`, which need not exist any more.

        Raises NotFound("project_binding_not_found") and Conflict("project_binding_changed").
        """
        root = canonical_directory(directory)
        with self._database.writer() as connection:
            old = self._read(connection, root)
            if old is None:
                raise NotFound(
                    "project_binding_not_found", f"{_shown(root)} is not bound to a project."
                )
            if old.revision != expected_revision:
                raise _changed(root, old)
            _delete(connection, old)


def _delete(connection: apsw.Connection, binding: Binding) -> None:
    connection.execute(
        "DELETE FROM project_bindings WHERE server_url = ? AND workspace_root = ?",
        (binding.server_url, binding.workspace_root),
    )


def canonical_directory(directory: Path) -> Path:
    """The directory's real path; what of it does not exist stays as it is written.

    Raises InvalidRequest for a relative path: only the caller knows from where.
    """
    if not directory.is_absolute():
        raise InvalidRequest("invalid_request", f"{_shown(directory)} is not an absolute path.")
    try:
        return directory.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte
        raise InvalidRequest(
            "invalid_request", f"{_shown(directory)} cannot be resolved; check the path."
        ) from error


def require_directory(directory: Path) -> Path:
    """The real path of a directory that is there, and whose name is text."""
    root = canonical_directory(directory)
    if not root.is_dir() or not _is_text(root):
        raise InvalidRequest(
            "invalid_request",
            f"{_shown(root)} is not a directory with a UTF-8 name; name the project's folder.",
        )
    return root


def _candidates(place: Path) -> Iterator[Path]:
    """The directory, then, in a git worktree, the same directory of the main checkout."""
    yield place
    for folder in (place, *place.parents):
        mark = folder / ".git"
        if mark.is_file():
            main = main_checkout(folder)
            if main is not None:
                yield main / place.relative_to(folder)
            return
        if mark.is_dir():
            return


def main_checkout(worktree: Path) -> Path | None:
    """The main checkout of a linked git worktree; None where there is none, or it does not list
    this worktree among its own. Reads files only, runs nothing."""
    line = _git_line(worktree / ".git")
    if line is None or not line.startswith("gitdir:"):
        return None
    private = (worktree / line.removeprefix("gitdir:").strip()).resolve()
    common_line = _git_line(private / "commondir")
    listed = _git_line(private / "gitdir")
    if common_line is None or listed is None:
        return None
    common = (private / common_line).resolve()
    if (private / listed).resolve() != (worktree / ".git").resolve():
        return None
    if common.name != ".git" or private.parent != common / "worktrees":
        return None
    return common.parent


def _git_line(file: Path) -> str | None:
    """The first line of one of git's small files, or None."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_GIT_FILE_BYTES)
        line = data.decode("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return None
    return line if line and "\x00" not in line else None


def _binding(row: tuple[object, ...]) -> Binding:
    return msgspec.convert(dict(zip(_COLUMNS.split(", "), row, strict=True)), Binding)


def _changed(root: Path, old: Binding | None) -> Conflict:
    return Conflict(
        "project_binding_changed",
        f"The binding of {_shown(root)} is not the one expected; look at it and try again.",
        {
            "revision": None if old is None else old.revision,
            "project_id": None if old is None else old.project_id,
        },
    )


def _is_text(path: Path) -> bool:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(path: Path) -> str:
    return str(path).encode("utf-8", "replace").decode("utf-8")
