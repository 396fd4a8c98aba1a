"""Bringing many texts into a project at a Server, as its administrators may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from clumsies.api.common import MAX_BODY_BYTES
from clumsies.api.imports import MAX_FILES, ImportAnswer, ImportedFile, ImportMemories
from clumsies.errors import Refused
from clumsies.sync.accounts import Peer
from clumsies.sync.addresses import api_path

_BATCH_BYTES = MAX_BODY_BYTES - 64 * 1024


def import_remotely(client: Peer, project_id: str, files: Iterable[ImportedFile]) -> ImportAnswer:
    """Send the files, in as many requests as their size needs; each is one commit.

    Raises Refused("forbidden") for whoever may only propose, and says how; what was sent before a
    failure stays, and a repeat changes nothing of it.
    """
    path = api_path("projects", project_id, "memory-imports")
    total = ImportAnswer(created=0, updated=0, unchanged=0, removed=0, commit_id=None)
    for batch in _batches(files):
        try:
            done = client.call("POST", path, ImportAnswer, json=ImportMemories(files=batch))
        except Refused as error:
            if error.code != "forbidden":
                raise
            raise Refused(
                "forbidden",
                "Only owners and admins import into a team's memory; propose each text with "
                "`clumsies store create`, and submit the drafts.",
            ) from error
        total = ImportAnswer(
            created=total.created + done.created,
            updated=total.updated + done.updated,
            unchanged=total.unchanged + done.unchanged,
            removed=total.removed + done.removed,
            commit_id=done.commit_id,
        )
    return total


def _batches(files: Iterable[ImportedFile]) -> Iterator[list[ImportedFile]]:
    batch: list[ImportedFile] = []
    size_bytes = 0
    for file in files:
        length = len(msgspec.json.encode(file)) + 1
        if batch and (size_bytes + length > _BATCH_BYTES or len(batch) == MAX_FILES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(file)
        size_bytes += length
    if batch:
        yield batch
