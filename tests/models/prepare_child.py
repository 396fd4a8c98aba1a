"""A process that prepares the tiny profile: ROOT ENDPOINT SEED; prints the state it reached."""

from __future__ import annotations

import sys
from pathlib import Path

from clumsies.config import HubSettings
from clumsies.models.preparation import ModelStore
from tests.models.tiny_profile import contents, profile_of

if __name__ == "__main__":
    root, endpoint, seed = sys.argv[1:]
    store = ModelStore(
        Path(root),
        profile_of(contents(int(seed))),
        HubSettings(endpoint),
        wait=lambda cancel, seconds: cancel.wait(0.01),
    )
    print(store.prepare(attempts=3).state)  # noqa: T201
