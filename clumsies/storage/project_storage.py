"""Where a project's derived files are: a directory of our own, marked as such.

::

    <cache>/projects/<authority hash>/<project_id>/
      ownership.json     layout_version 1, authority_key (canonical URL), project_id
      generations/       installed snapshots of commits
      search/            index.sqlite and what is derived from it
      staging/           work that is not finished

Nothing is written below a directory whose marker is missing or another project's. Custom
locations and moves between them have their place in `location`; the managed root is the default.
"""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from clumsies.errors import InvalidRequest, IoFailed, StoreFailed
from clumsies.files import FILE_MODE, ensure_private_directory, io_failed, write_private
from clumsies.storage.tree_paths import is_cache_component

LAYOUT_VERSION = 1
MARKER_NAME = "ownership.json"
LOCAL_AUTHORITY = "local:"
"""The Server URL of the authority that runs in this process."""
CHILDREN = ("generations", "search", "staging")


class Ownership(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `ownership.json` says."""

    layout_version: int
    authority_key: str
    project_id: str


@dataclass(frozen=True, slots=True)
class Location:
    """Where a project is kept; the revision grows with every switch."""

    mode: Literal["default", "custom"]
    managed_root: Path
    location_revision: int

    @property
    def generations(self) -> Path:
        return self.managed_root / "generations"

    @property
    def search(self) -> Path:
        return self.managed_root / "search"

    @property
    def staging(self) -> Path:
        return self.managed_root / "staging"


def canonical_authority(server_url: str) -> str:
    """The Server URL trimmed and without slashes at its end; raises InvalidRequest for none."""
    url = server_url.strip().rstrip("/")
    if not url:
        raise InvalidRequest("invalid_request", "The Server URL is empty; name one, or `local:`.")
    return url


def authority_hash(server_url: str) -> str:
    """Hex SHA-256 of the canonical Server URL: the directory of one authority's projects."""
    return hashlib.sha256(canonical_authority(server_url).encode("utf-8")).hexdigest()


class ProjectStorage:
    """Managed directories below one cache directory."""

    def __init__(self, cache: Path):
        self._projects = cache / "projects"

    def location(self, server_url: str, project_id: str) -> Location:
        """Where the project is kept, whether or not anything is there yet."""
        if not is_cache_component(project_id):
            raise InvalidRequest(
                "invalid_request",
                f"{project_id!a} cannot be a project id; use letters, digits, `_`, `.` and `-`.",
            )
        root = self._projects / authority_hash(server_url) / project_id
        return Location("default", root, 1)

    def prepare(self, server_url: str, project_id: str) -> Location:
        """The project's location with its directories made, hardened and its marker verified.

        Raises StoreFailed("marker_mismatch") for a directory that is not this project's.
        """
        place = self.location(server_url, project_id)
        root = place.managed_root
        owner = Ownership(LAYOUT_VERSION, canonical_authority(server_url), project_id)
        ensure_private_directory(self._projects)
        ensure_private_directory(root.parent)
        adopted = self._adopt(root, project_id)
        ensure_private_directory(root)
        self._mark(root, owner, adopted)
        for child in CHILDREN:
            ensure_private_directory(root / child)
        return place

    def _adopt(self, root: Path, project_id: str) -> bool:
        """Take over the directory of the layout without authorities, once; whether it was there."""
        legacy = self._projects / project_id
        if root.exists() or (not legacy.is_symlink() and not legacy.exists()):
            return False
        if legacy.is_symlink() or not legacy.is_dir():
            raise StoreFailed(
                "marker_mismatch", f"{legacy} is not a directory of its own; move it away."
            )
        try:
            harden(legacy)
            legacy.rename(root)
        except OSError as error:
            raise io_failed(error, "adopt", legacy) from error
        return True

    def _mark(self, root: Path, owner: Ownership, adopted: bool) -> None:
        marker = root / MARKER_NAME
        if marker.is_symlink() or marker.exists():
            if read_marker(root) != owner:
                raise StoreFailed(
                    "marker_mismatch",
                    f"{root} belongs to another project or Server; move it away and try again.",
                    {"path": str(root)},
                )
            return
        if not adopted and any(root.iterdir()):
            raise StoreFailed(
                "marker_mismatch",
                f"{root} has content but no {MARKER_NAME}; move it away and try again.",
                {"path": str(root)},
            )
        write_private(marker, [msgspec.json.encode(owner)])


def read_marker(root: Path) -> Ownership | None:
    """What the marker of a managed root says; None where it cannot be read or understood."""
    marker = root / MARKER_NAME
    try:
        if not stat.S_ISREG(marker.lstat().st_mode):
            return None
        return msgspec.json.decode(marker.read_bytes(), type=Ownership)
    except (OSError, msgspec.MsgspecError):
        return None


def harden(root: Path) -> None:
    """Directories 0700 and files 0600 from `root` down.

    Raises StoreFailed("marker_mismatch") for anything that is neither.
    """
    ensure_private_directory(root)
    for entry in sorted(root.iterdir()):
        mode = entry.lstat().st_mode
        if stat.S_ISDIR(mode):
            harden(entry)
        elif stat.S_ISREG(mode):
            try:
                entry.chmod(FILE_MODE)
            except PermissionError as error:
                raise IoFailed(
                    "permission_required", f"{entry} belongs to another user; check its owner."
                ) from error
        else:
            raise StoreFailed(
                "marker_mismatch", f"{entry} is a link or a device; move it away and try again."
            )
