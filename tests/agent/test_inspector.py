"""The protocol's inspector in front of the proxy. It needs Node 22 and is asked for by name.

`CLUMSIES_TEST_INSPECTOR=1` installs it with npm into a directory of its own for these tests;
an absolute path there names a directory that has it already. Its exit code is 5 for a result
that is an error and 6 for a schema that is at fault.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent.daemon_stub import DaemonStub
from tests.agent.host import command, environment

AS_STARTED = dict(os.environ)
WANTED = AS_STARTED.get("CLUMSIES_TEST_INSPECTOR", "")
NODE = "node@22"
INSPECTOR = "@modelcontextprotocol/inspector@2"
INSTALL_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 120.0
TOOL_IS_ERROR = 5

pytestmark = [
    pytest.mark.skipif(not WANTED, reason="CLUMSIES_TEST_INSPECTOR is not set"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm"),
]
each_era = pytest.mark.parametrize("era", ["legacy", "auto", "modern"])


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of `node` and `mcp-inspector`."""
    root = Path(WANTED) if WANTED.startswith("/") else tmp_path_factory.mktemp("inspector")
    found = root / "node_modules" / ".bin"
    if not (found / "mcp-inspector").exists():
        for package in (NODE, INSPECTOR):
            # The second is installed by the Node of the first: older ones are too old for it.
            subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(root), package],
                env={**AS_STARTED, "PATH": f"{found}:{AS_STARTED['PATH']}"},
                timeout=INSTALL_TIMEOUT_S,
                check=True,
            )
    return found


def inspect(
    binaries: Path, daemon: DaemonStub, *options: str, proxy: tuple[str, ...] = (), code: int = 0
) -> dict[str, Any]:
    """What the inspector prints about the proxy, its exit code seen to be `code`."""
    done = subprocess.run(
        [
            str(binaries / "mcp-inspector"),
            "--cli",
            *options,
            "--",
            *command("--no-start", "--socket", str(daemon.path), *proxy),
        ],
        env=environment(PATH=f"{binaries}:{AS_STARTED['PATH']}"),
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode(errors="replace")
    printed = json.loads(done.stdout)
    assert isinstance(printed, dict)
    return printed


@each_era
@pytest.mark.parametrize("proxy", [(), ("--tools", "memory")])
def test_schemas_are_portable(
    binaries: Path, daemon: DaemonStub, era: str, proxy: tuple[str, ...]
) -> None:
    options = ("--protocol-era", era, "--strict", "--method", "tools/list")
    listed = inspect(binaries, daemon, *options, proxy=proxy)
    names = [tool["name"] for tool in listed["tools"]]
    assert names == (["memory"] if proxy else ["activate", "load", "store"])


@each_era
@pytest.mark.parametrize(
    ("tool", "argument", "field"),
    [
        ("activate", "query=how is money kept?", "fragments"),
        ("load", 'ids=["res_1"]', "resources"),
        ("store", 'discard={"id": "draft_1"}', "draft_id"),
    ],
)
def test_tools_answer(
    binaries: Path, daemon: DaemonStub, era: str, tool: str, argument: str, field: str
) -> None:
    options = ("--protocol-era", era, "--method", "tools/call", "--tool-name", tool)
    result = inspect(binaries, daemon, *options, "--tool-arg", argument)
    assert field in result["structuredContent"]


@each_era
def test_a_failure_is_a_result(binaries: Path, absent: DaemonStub, era: str) -> None:
    options = ("--protocol-era", era, "--method", "tools/call", "--tool-name", "activate")
    result = inspect(binaries, absent, *options, "--tool-arg", "query=x", code=TOOL_IS_ERROR)
    assert result["structuredContent"]["error"]["code"] == "daemon_unavailable"


def test_two_hundred_calls_lose_none(binaries: Path, daemon: DaemonStub) -> None:
    load = ("--load", "--load-requests", "200", "--load-concurrency", "10")
    options = ("--method", "tools/call", "--tool-name", "activate", "--tool-arg", "query=x")
    report = inspect(binaries, daemon, *load, *options)
    assert report["ok"] == report["requests"] == 200
    assert report["errors"] == report["toolErrors"] == 0
