"""Bodies of searched memories as files by their hash: `<2 hex>/<64 hex>` under one directory.

A file is 0600, written whole or not at all, and is what its name says or is written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path

from clumsies.errors import StoreFailed
from clumsies.files import ensure_private_directory, io_failed, write_private
from clumsies.types import content_hash

_PREFIX = "sha256:"
_HEX_DIGITS = 64


class BlobStore:
    """The bodies under `root`. Callers hold the history lock while they write or collect."""

    def __init__(self, root: Path):
        self.root = root

    def path(self, name: str) -> Path:
        """Where the body with this content hash stands. Raises StoreFailed for another form."""
        digits = name.removeprefix(_PREFIX)
        if len(digits) != _HEX_DIGITS or not set(digits) <= set("0123456789abcdef"):
            raise StoreFailed(
                "object_corrupt", "A kept body has a name that is no hash; run `clumsies doctor`."
            )
        return self.root / digits[:2] / digits

    def holds(self, name: str) -> bool:
        """Whether the file is there and is what its name says."""
        try:
            found = hashlib.sha256(self.path(name).read_bytes()).hexdigest()
        except OSError:
            return False
        return _PREFIX + found == name

    def put(self, name: str, text: str) -> None:
        """Keep the text under its hash. Raises StoreFailed where the hash is another, IoFailed."""
        if content_hash(text) != name:
            raise StoreFailed(
                "object_corrupt", "A body differs from its hash; it was not kept. Ask again."
            )
        if self.holds(name):
            return
        place = self.path(name)
        ensure_private_directory(place.parent)
        write_private(place, [text.encode("utf-8")])

    def read(self, name: str) -> str:
        """The text; raises StoreFailed("object_corrupt") where it is missing or differs."""
        try:
            data = self.path(name).read_bytes()
        except OSError:
            data = b""
        if _PREFIX + hashlib.sha256(data).hexdigest() != name:
            raise StoreFailed(
                "object_corrupt",
                f"The kept body {name} is missing or damaged; the case cannot be exported. "
                "Activate with the same query again, which writes the bodies anew.",
            )
        return data.decode("utf-8")

    def remove(self, names: Collection[str]) -> None:
        """Delete these bodies; missing ones are no error."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def sweep(self, kept: Collection[str], between: Callable[[], None]) -> int:
        """Delete every file that is none of `kept`, leftovers of crashes included; how many.

        `between` is called after each directory.
        """
        wanted = {self.path(name) for name in kept}
        removed = 0
        try:
            for folder in self.root.glob("*"):
                strays = [place for place in folder.iterdir() if place not in wanted]
                for place in strays:
                    place.unlink(missing_ok=True)
                removed += len(strays)
                between()
        except OSError as error:
            raise io_failed(error, "sweep", self.root) from error
        return removed
