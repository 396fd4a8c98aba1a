"""A process that prepares the tiny profile as `clumsies models prepare` does: ROOT ENDPOINT."""

from __future__ import annotations

import sys
from pathlib import Path

from clumsies.cli import output
from clumsies.cli.models import prepare_store
from clumsies.config import HubSettings
from clumsies.models.preparation import ModelStore
from tests.models.tiny_profile import contents, profile_of

if __name__ == "__main__":
    root, endpoint = sys.argv[1:]
    with output.failures(True):
        sys.exit(
            prepare_store(
                lambda wait: ModelStore(
                    Path(root), profile_of(contents()), HubSettings(endpoint), wait=wait
                ),
                attempts=1,
                as_json=True,
            )
        )
