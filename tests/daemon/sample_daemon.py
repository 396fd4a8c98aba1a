"""A real daemon process with small handlers; run as `python -m tests.daemon.sample_daemon`.

The query of `activate_memory` says what the handler does. What a handler saw is left as a file in
the daemon's root, where a test can look after the process has gone.
"""

from __future__ import annotations

import os
import sys
import time

from clumsies.daemon import messages as m
from clumsies.daemon.context import Handlers, ProcessContext, RequestContext
from clumsies.daemon.process import run, run_command
from clumsies.daemon.wire import PROTOCOL_REVISION, AgentRuntime
from clumsies.errors import NotFound


class SampleService:
    def __init__(self, context: ProcessContext):
        self._context = context
        self._root = context.places.root
        (self._root / "service-opened").touch()

    @property
    def handlers(self) -> Handlers:
        return {
            "health": self.health,
            "activate_memory": self.activate,
            "load_memory": self.load,
            "project_checkout": self.wrong_answer,
            "store_draft_operation": self.store,
            "mcp_status": self.mcp_status,
        }

    def reload(self) -> None:
        (self._root / "reloaded").touch()

    def close(self) -> None:
        (self._root / "closed").touch()

    def health(self, request: m.Nothing, context: RequestContext) -> m.Health:
        return m.Health(
            daemon_version="test",
            agent_runtime=AgentRuntime(PROTOCOL_REVISION, "test"),
            server_url="local:",
            daemon_installation_id="installation",
            log_dir=str(self._context.places.logs),
            local_db=m.LocalDatabase(str(self._root / "local.db"), True, 1),
        )

    def activate(self, request: m.ActivateMemory, context: RequestContext) -> m.Activation:
        word, _, rest = request.query.partition(" ")
        if word == "wait":
            (self._root / f"waiting-{rest}").touch()
            gone = context.cancel.wait(30.0)
            (self._root / f"{'cancelled' if gone else 'forgotten'}-{rest}").touch()
        elif word == "stubborn":
            (self._root / f"waiting-{rest}").touch()
            time.sleep(600.0)
        elif word == "missing":
            raise NotFound("memory_resource_not_found", "It is not there.", {"ids": [rest]})
        elif word == "broken":
            raise RuntimeError(f"a fault that quotes {rest}")
        elif word == "crash":
            os.abort()
        state = "x" * int(rest) if word == "large" else request.query
        return m.Activation("search_1", context.request_id, state, [], [], [])

    def load(self, request: m.LoadMemory, context: RequestContext) -> m.LoadedMemories:
        return m.LoadedMemories(
            [
                m.LoadedMemory(name, name, "org", "memory", "sha256:0", "", True, name)
                for name in request.ids
            ]
        )

    def store(
        self, request: m.StoreDraftOperation, context: RequestContext
    ) -> m.StoredDraftOperation:
        (self._root / f"storing-{request.project_id}").touch()
        time.sleep(0.5)
        (self._root / f"stored-{request.project_id}").touch()
        return m.StoredDraftOperation("op_1", "draft_1", True, "queued")

    def wrong_answer(self, request: m.OfProject, context: RequestContext) -> m.Nothing:
        return m.Nothing()

    def mcp_status(self, request: m.Nothing, context: RequestContext) -> m.McpStatus:
        now = self._context.statistics()
        return m.McpStatus(
            AgentRuntime(PROTOCOL_REVISION, "test"), now.agent_connections, now.active_requests
        )


def main() -> int:
    return run_command(lambda: run(SampleService))


if __name__ == "__main__":
    sys.exit(main())
