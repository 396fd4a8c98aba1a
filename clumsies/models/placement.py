"""Where each pinned file of a profile belongs on disk, and how much of it is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clumsies.models.manifest import Artifact, ModelFile, Profile
from clumsies.models.status import part_of
from clumsies.models.verification import size_of


@dataclass(frozen=True, slots=True)
class Placed:
    """One pinned file and its place."""

    artifact: Artifact
    file: ModelFile
    path: Path

    def bytes_on_disk(self) -> int:
        """The file's size where it stands complete, else what its part holds."""
        if size_of(self.path) == self.file.size_bytes:
            return self.file.size_bytes
        return min(size_of(part_of(self.path)) or 0, self.file.size_bytes)


def path_of(directory: Path, artifact: Artifact, file: ModelFile, *, packaged: bool) -> Path:
    """`<directory>/<owner>--<name>/<revision>/<path>`; packaged files lie flat."""
    if packaged:
        return directory / file.path
    repository = artifact.repository.replace("/", "--")
    return directory / repository / artifact.revision / file.path


def place(profile: Profile, directory: Path) -> tuple[Placed, ...]:
    """Every file of the profile in the manifest's order; one that artifacts share comes once."""
    placed: dict[Path, Placed] = {}
    for artifact in profile.artifacts:
        for file in artifact.files:
            path = path_of(directory, artifact, file, packaged=profile.packaged)
            placed.setdefault(path, Placed(artifact, file, path))
    return tuple(placed.values())


def total_on_disk(placed: Iterable[Placed]) -> int:
    """Bytes of all files that need not be fetched any more."""
    return sum(each.bytes_on_disk() for each in placed)
