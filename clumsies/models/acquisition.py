"""One attempt to complete a profile: what is there, what the hub's cache has, then the network.

No connection is made where everything verifies, and nothing is asked of the network before the
disk is known to have room for the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clumsies.config import HubSettings
from clumsies.errors import IoFailed
from clumsies.files import ensure_private_directory, io_failed
from clumsies.models.placement import Placed
from clumsies.models.reuse import adopt
from clumsies.models.status import Patience, Progress, TransferFailed
from clumsies.models.verification import Verdicts

SPARE_BYTES = 64 * 1024 * 1024
"""Left free beside the files: a full disk stops more than this download."""

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Acquisition:
    """An attempt, made by the one process that holds the profile's lock.

    `free_space` gives the free bytes of the file system under a path.
    """

    root: Path
    placed: tuple[Placed, ...]
    hub: HubSettings
    verdicts: Verdicts
    patience: Patience
    free_space: Callable[[Path], int]
    wall_clock: Callable[[], float]
    on_progress: OnProgress
    cancel: threading.Event

    def run(self) -> None:
        """Every file verified and in its place.

        Raises TransferFailed or IoFailed where another attempt may help, InvalidRequest where
        the settings cannot be used, Cancelled; what was fetched stays.
        """
        absent = [each for each in self.placed if not self._is_good(each)]
        absent = [each for each in absent if not self._adopt(each)]
        if not absent:
            return
        if self.hub.offline:
            raise TransferFailed(
                "offline", f"HF_HUB_OFFLINE forbids fetching {absent[0].file.path}"
            )
        self._require_space(absent)
        self._fetch(absent)

    def _is_good(self, each: Placed) -> bool:
        """True for a verified file; a wrong one is removed, since it must not be used again."""
        problem = self.verdicts.examine(each.path, each.file, cancel=self.cancel)
        if problem is not None and problem.kind != "missing":
            try:
                each.path.unlink()
            except OSError as error:
                raise io_failed(error, "remove", each.path) from error
        return problem is None

    def _adopt(self, each: Placed) -> bool:
        self._make_directory(each.path.parent)
        caches = (self.hub.cache, self.root)
        return any(
            adopt(cache, each.artifact, each.file, each.path, self.cancel)
            for cache in caches
            if cache is not None
        )

    def _make_directory(self, directory: Path) -> None:
        ensure_private_directory(self.root)
        below = directory.relative_to(self.root)
        for parent in (*reversed(below.parents[:-1]), below):
            ensure_private_directory(self.root / parent)

    def _require_space(self, absent: Sequence[Placed]) -> None:
        needed = sum(each.file.size_bytes - each.bytes_on_disk() for each in absent)
        free = self.free_space(self.root)
        if free < needed + SPARE_BYTES:
            raise IoFailed(
                "insufficient_space",
                f"The models need {needed} bytes and {SPARE_BYTES} to spare; {self.root} has "
                f"{free} free. Free some space or move the cache with CLUMSIES_CACHE_DIR.",
                {"needed_bytes": needed, "spare_bytes": SPARE_BYTES, "free_bytes": free},
            )

    def _fetch(self, absent: Sequence[Placed]) -> None:
        # Imported here: a process that finds its models ready never pays for the HTTP client.
        from clumsies.models.download import Hub

        have = {each.path: each.bytes_on_disk() for each in self.placed}
        total = sum(each.file.size_bytes for each in self.placed)
        with Hub(self.hub, self.patience, wall_clock=self.wall_clock) as hub:
            for each in absent:

                def report(count: int, each: Placed = each) -> None:
                    have[each.path] = count
                    self.on_progress(
                        Progress(
                            each.file.path,
                            count,
                            each.file.size_bytes,
                            sum(have.values()),
                            total,
                        )
                    )

                hub.fetch(each.artifact, each.file, each.path, on_bytes=report, cancel=self.cancel)
