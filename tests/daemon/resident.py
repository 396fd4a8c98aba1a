"""The real daemon (`clumsiesd run`) with the models that ship, and short calls to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clumsies.daemon.client import DaemonClient
from tests.daemon.running import ROOT, Daemon, environment_of

RUN = [sys.executable, "-P", "-m", "clumsies.daemon.main", "run"]


def resident_environment(home: Path, **more: str) -> dict[str, str]:
    """A home of its own, the packaged models, this checkout, and warnings as errors."""
    given = {"CLUMSIES_MODEL_PROFILE": "compact", "PYTHONPATH": str(ROOT)} | more
    return environment_of(home, given)


def launch_resident(environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """The daemon as a plain process, not waited for."""
    return subprocess.Popen(RUN, env=environment, cwd="/", stderr=subprocess.PIPE, text=True)


class Resident(Daemon):
    """A daemon of its own home that serves real projects; ready once the object is made."""

    def __init__(self, home: Path, **more: str):
        self._clients: list[DaemonClient] = []
        super().__init__(home, **resident_environment(home, **more))

    def client(self, build_id: str = "test") -> DaemonClient:
        """A client that is closed with the daemon."""
        self._clients.append(super().client(build_id))
        return self._clients[-1]

    def end(self, number: int = signal.SIGTERM) -> int:
        status = super().end(number)
        for client in self._clients:
            client.close()
        return status

    def launch(self, more: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return launch_resident({**self.environment, **(more or {})})

    def project(self, directory: Path, files: Mapping[str, str], name: str = "test") -> Project:
        """A project bound to `directory`, which is made with these files and imported."""
        write_files(directory, files)
        client = self.client()
        made = client.call("create_local_project", {"name": name, "workspace_root": str(directory)})
        project = Project(client, str(made["project"]["project_id"]))
        if files:
            project.call("import_memory", paths=[str(directory)])
        return project


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")


class Project:
    """Calls about one project, each raising what the daemon raised."""

    def __init__(self, client: DaemonClient, project_id: str):
        self.client = client
        self.project_id = project_id

    def call(self, method: str, **payload: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.call(
            method, {"project_id": self.project_id, **payload}
        )
        return answer

    def activate(self, query: str, **more: Any) -> dict[str, Any]:
        return self.call("activate_memory", query=query, **more)

    def texts(self, query: str) -> str:
        """Everything that an activation shows, joined."""
        return "\n".join(f["content"] for f in self.activate(query)["fragments"])

    def load(self, *names: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("load_memory", ids=list(names))["resources"]
        return found

    def contents(self) -> dict[str, str]:
        """Path to text of the whole Effective Memory."""
        resources = self.call("project_checkout")["resources"]
        return {resource["path"]: resource["content"] for resource in resources}

    def store(self, source: str = "mcp_store", **op: Any) -> dict[str, Any]:
        return self.call(
            "store_draft_operation", scope="org", resource="memory", op=op, source=source
        )

    def create(self, path: str, text: str) -> dict[str, Any]:
        return self.store(create={"path": path, "content": {"content": text}})

    def replace(self, loaded: Mapping[str, Any], *pairs: Sequence[str]) -> dict[str, Any]:
        """Exact replacements in the text as it was loaded."""
        return self.store(
            update={
                "id": loaded["resource_id"],
                "expected_hash": loaded["content_hash"],
                "replacements": [{"old_text": old, "new_text": new} for old, new in pairs],
            }
        )
