"""Operations arrive once, in order, whatever happens on the way."""

from __future__ import annotations

import pytest

from clumsies.errors import ClumsiesError
from tests.memory.local_memory import create, delete, discard, rename, update
from tests.sync.fault_server import reset, status
from tests.sync.homes import Home, TestServer


def test_a_draft_arrives_with_its_operations_in_order(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.store(update(receipt.draft_id, "two"))
    home.store(rename(receipt.draft_id, "m.md"))
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced"] * 3
    draft = home.draft(receipt.draft_id)
    assert draft.draft.server_version == 3
    assert [op.source for op in draft.operations] == ["cli"] * 3
    assert all(op.server_operation_id for op in draft.operations)
    assert home.contents() == {"a.md": "A", "m.md": "two"}
    assert len(home.script.of("POST", "/api/v1/drafts")) == 1
    assert len(home.script.of("POST", "/api/v1/draft-operation-batches")) == 1
